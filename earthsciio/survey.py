"""What a source would deliver, without decoding it: the first and the last file, and all that is wrong.

:func:`survey` asks what a run would ask, in the same code: it finds the first and last records, plans their
decode through the Windows, and counts how many of the records promised to a file are in it. Local files
between the two are looked for, not opened. Whatever raises becomes a line of the report instead, so that one
look shows all there is to mend.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from .cache import Cache
from .cadence import Cadence, Steps
from .calendars import calendar
from .contents import Contents
from .errors import EarthSciIOError, EarthSciIOWarning, FetchError, RecordNotFound, TimePastEnd
from .fields import Time
from .filelist import SourceFile
from .provider import Provider
from .records import RecordLayout, RecordRef, Resolved
from .selection import AxesSelection, Points, Selector, Span, Window
from .series import FileSeries
from .source import DataSource

__all__ = ["FieldSurvey", "FileSurvey", "SourceSurvey", "survey"]

#: Calendars that differ only before 1582, when no model output is dated.
_ALIKE = {"standard", "proleptic_gregorian"}
#: How many missing files, and selected indices, are listed.
_LISTED = 3, 8


@dataclass(frozen=True, slots=True)
class FieldSurvey:
    """A field as it is delivered.

    Attributes
    ----------
    name : str
        On-disk name.
    dims : tuple of str
        Without the time dimension, unless the source delivers brackets.
    shape : tuple of int
        Through the Window.
    dtype : str
        What comes out.
    """

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class FileSurvey:
    """A file of a source.

    Attributes
    ----------
    url : str
        Where it is.
    sizes : dict of str to int
        Its dimensions.
    records : int
        Records on its time dimension; 1 for a constant.
    calendar : str or None
        As the file names it.
    span : (str, str) or None
        Its first and last stamp, in the source's calendar; None if it has no time coordinate.
    expected, found : int
        Anchors the declaration puts into it, and how many of them have a record.
    """

    url: str
    sizes: dict[str, int]
    records: int
    calendar: str | None = None
    span: tuple[str, str] | None = None
    expected: int = 0
    found: int = 0


@dataclass(slots=True)
class SourceSurvey:
    """What :func:`survey` found out; parts that could not be had are empty.

    Attributes
    ----------
    name, format, kind : str
        The source, its format, and ``CONST`` or ``DISCRETE``.
    calendar, start, end : str or None
        Its calendar and the time looked at.
    anchors, files : int or None
        Anchors in that time, and files that their samples need, a last successor's included; None where the
        declaration has no end.
    opened : list of FileSurvey
        The first and the last file.
    fields : list of FieldSurvey
        What is delivered.
    selects : dict of str to str
        Per dimension that is not delivered whole: which of its indices are.
    bytes_per_epoch : int
        What a sample takes in memory while it is made: its decoded records, and the bracket put together
        from them.
    problems, warnings : list of str
        What would raise, and what is doubtful.
    """

    name: str
    format: str
    kind: str
    calendar: str | None = None
    start: str | None = None
    end: str | None = None
    anchors: int | None = None
    files: int | None = None
    opened: list[FileSurvey] = field(default_factory=list)
    fields: list[FieldSurvey] = field(default_factory=list)
    selects: dict[str, str] = field(default_factory=dict)
    bytes_per_epoch: int = 0
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Turn an error of the library into a problem; a file that can't be had is one, however often met."""
        try:
            yield
        except EarthSciIOError as error:
            text = str(error)
            file = getattr(error, "resolved_url", error.file) if isinstance(error, FetchError) else None
            if not any(text == known or (file is not None and file in known) for known in self.problems):
                self.problems.append(text)

    def doubt(self, text: str) -> None:
        """Add a warning, unless it is there."""
        if text not in self.warnings:
            self.warnings.append(text)


def survey(
    source: DataSource,
    cache: Cache | None = None,
    *,
    clip: tuple[Time | None, Time | None] = (None, None),
    window: Window | None = None,
) -> SourceSurvey:
    """Look at the first and last files of a source.

    Python's warnings are caught while it runs, which other threads would notice.

    Parameters
    ----------
    source : DataSource
        The declaration.
    cache : Cache, optional
        Where remote files come from; the default one if None.
    clip : (start, end)
        Look at this time only; either may be None.
    window : Window, optional
        A Window that will be asked for.

    Returns
    -------
    SourceSurvey
        Never raises for what is wrong with the source.
    """
    report = SourceSurvey(source.name, source.format, "CONST" if source.is_const else "DISCRETE")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with report.noting():
            provider = Provider(source, Cache() if cache is None else cache)
            bound = provider if window is None else provider.with_window(window)
            look = _Look(report, bound, FileSeries.of(source, provider.cache))
            if source.is_const:
                look.constant()
            else:
                look.records(clip)
    texts = (str(each.message) for each in caught if issubclass(each.category, EarthSciIOWarning))
    for text in texts:
        report.doubt(text)
    return report


class _Look:
    """One survey under way."""

    def __init__(self, report: SourceSurvey, provider: Provider, series: FileSeries) -> None:
        self.report = report
        self.provider = provider
        self.series = series

    def constant(self) -> None:
        url, path = self.series.locate(None)
        with self.series.open(path, url) as (_, contents):
            self.report.opened.append(FileSurvey(url, dict(contents.sizes), 1))
        layout = self.provider.measure(RecordRef(url, contents.identity, None, None), (None,))
        self.report.bytes_per_epoch = layout.nbytes
        self._fields(contents, layout)

    def records(self, clip: tuple[Time | None, Time | None]) -> None:
        cadence = self.series.cadence
        text = cadence.calendar.text
        self.report.calendar = cadence.calendar.name
        lo, hi = self._span(cadence, clip)
        self.report.start, self.report.end = text(lo), None if hi is None else text(hi)
        if hi is None:
            self.report.doubt("no end is declared; a run needs one, here or as the case's time")
            hi = self._end_of_records(cadence)
        needed = self._look_for_files(lo, hi)
        anchors = cadence.anchors(lo, hi)
        if not anchors or (anchors[0] > lo and cadence.index(lo) >= 0):
            anchors.insert(0, cadence.place(lo).anchor)  # in force already
        if self.report.end is not None:
            self.report.anchors = len(anchors)
            self.report.files = needed
        ends = anchors[0], anchors[-1]
        for start in dict.fromkeys(map(cadence.file_start, ends)):
            with self.report.noting():
                if self.series.is_there(start):  # the sample tells what stands in
                    self._file(cadence, start, *ends)
        for anchor in dict.fromkeys(ends):
            with self.report.noting():
                resolved = self._sample(cadence.calendar.time(anchor))
                if anchor == ends[1]:
                    self._doubt_last_bracket(cadence, anchor, resolved)

    def _span(self, cadence: Cadence, clip: tuple[Time | None, Time | None]) -> tuple[int, int | None]:
        """Give the declared span, or the part of it that is asked for."""
        lo, hi = (None if t is None else cadence.calendar.instant(t) for t in clip)
        if cadence.outside != "error":  # its records serve every time
            return cadence.start, hi if cadence.end is None else cadence.end
        lo = cadence.start if lo is None else max(cadence.start, lo)
        ends = [end for end in (cadence.end, hi) if end is not None]
        if not ends or min(ends) > lo:
            return lo, min(ends, default=None)
        text = cadence.calendar.text
        until = "" if cadence.end is None else f" to {text(cadence.end)}"
        raise TimePastEnd(
            f"there are no data in the time asked for: they run from {text(cadence.start)}{until}"
        )

    def _end_of_records(self, cadence: Cadence) -> int:
        """Give when the records of the first file end."""
        url, path = self.series.locate(cadence.start)
        with self.series.open(path, url) as (_, contents):
            records, axis = _count(contents), contents.axis
        last = cadence.anchor(max(records, 1) - 1) if axis is None or axis.span is None else axis.span[1]
        following = cadence.next_file_start(cadence.start)
        last = max(last, cadence.start) + 1
        return last if following is None else min(last, following)

    def _look_for_files(self, lo: int, hi: int) -> int:
        """Say which local files are not there, those aside that something stands in for; count all."""
        every = {file.url: file for file in self.series.files(lo, hi)}
        not_there = [file for file in every.values() if file.in_place and not Path(file.url).exists()]
        self._look_at_gaps([file for file in not_there if file.may_be_absent], lo, hi)
        absent = [file.url for file in not_there if not file.may_be_absent]
        if absent:
            named = absent if len(absent) <= _LISTED[0] else [*absent[: _LISTED[0] - 1], "...", absent[-1]]
            self.report.problems.append(f"{len(absent)} of {len(every)} files not there: {', '.join(named)}")
        return len(every)

    def _look_at_gaps(self, absent: list[SourceFile], lo: int, hi: int) -> None:
        """Say what stands in for local files that do not exist, or that nothing does."""
        for file in absent:
            stood_in: list[Time] = []
            others: dict[str, None] = {}
            try:
                for t in self.series.needing({file.start}, lo, hi):
                    others.update((record.url, None) for record in self.series.resolve(t).records)
                    stood_in.append(t)
            except EarthSciIOError as error:
                self.report.problems.append(str(error))
                continue
            if stood_in:
                until = f" to {stood_in[-1]}" if len(stood_in) > 1 else ""
                self.report.doubt(
                    f"{file.url} does not exist: in {len(stood_in)} samples, {stood_in[0]}{until}, "
                    f"records of {', '.join(others)} stand in"
                )

    def _doubt_last_bracket(self, cadence: Cadence, anchor: int, resolved: Resolved) -> None:
        """Say so where the last sample is one record twice, for want of a successor."""
        first, last = resolved.records[0], resolved.records[-1]
        brackets = self.series.temporal.brackets and not resolved.missing
        if not brackets or first != last or cadence.outside != "error":
            return
        spell = cadence.calendar.text
        text = f"nothing follows the record of {spell(anchor)}: its bracket is that record twice"
        if isinstance(cadence.series, Steps):
            later = cadence.anchor(cadence.index(anchor) + 2)
            text += (
                f". Where there are more, declare `end: {spell(later)}`, and `time: {{end: ...}}` before it"
            )
        self.report.doubt(text)

    def _file(self, cadence: Cadence, start: int, first: int, last: int) -> None:
        """Count the records promised to a file that are in it."""
        text = cadence.calendar.text
        url, path = self.series.locate(start)
        following = cadence.next_file_start(start)
        low = first if following is None else max(start, first)
        high = last + 1 if following is None else min(following, last + 1)
        ks = range(max(cadence.index(low - 1) + 1, 0), cadence.index(high - 1) + 1)
        with self.series.open(path, url) as (file, contents):
            missing = [k for position, k in enumerate(ks) if not _holds(contents, cadence, k, position)]
            time = file.arrays.get(contents.time_name or "")
        named = None if time is None else time.attrs.get("calendar")
        span = None
        if contents.axis is not None and contents.axis.span is not None:
            span = text(contents.axis.span[0]), text(contents.axis.span[1])
        found = len(ks) - len(missing)
        theirs = named if isinstance(named, str) else None
        sizes = dict(contents.sizes)
        self.report.opened.append(FileSurvey(url, sizes, _count(contents), theirs, span, len(ks), found))
        self._doubt_calendar(theirs)
        if not missing and ks:
            self._doubt_frequency(contents, cadence, ks)
        if missing:
            holds = f"{_count(contents)} records" + ("" if span is None else f", from {span[0]} to {span[1]}")
            raise RecordNotFound(
                f"{found} of {len(ks)} records are there, none for {text(cadence.anchor(missing[0]))}; "
                f"the file holds {holds}",
                file=path,
                hint="Check start, end, frequency and file_period",
            )

    def _doubt_calendar(self, named: str | None) -> None:
        theirs, own = None if named is None else calendar(named).name, self.report.calendar
        if theirs is not None and theirs != own and not {theirs, own} <= _ALIKE:
            self.report.doubt(
                f"the files are of calendar {theirs}, the source of {own}: dates are taken as written, and "
                f"records of days that {own} lacks are left out. `calendar: {theirs}` follows the files"
            )

    def _doubt_frequency(self, contents: Contents, cadence: Cadence, ks: range) -> None:
        """Say so where a file has records between those of the anchors."""
        if contents.axis is None:
            return
        first, last = ks[0], ks[-1]
        lo = cadence.anchor(first) - cadence.tolerance(first)
        hi = cadence.next_anchor(last) - cadence.tolerance(last)
        stamps = contents.axis.stamps
        between = int(((stamps >= lo) & (stamps < hi)).sum()) - len(ks)
        if between > 0 and not any("serve no anchor" in text for text in self.report.warnings):
            follow = ", but follow in brackets" if self.series.temporal.brackets else ""
            self.report.doubt(
                f"{between} of {between + len(ks)} records serve no anchor{follow}: the file's are closer "
                "than `frequency` says"
            )

    def _sample(self, t: Time) -> Resolved:
        """Plan a sample: records found, Windows inside, and what it takes."""
        resolved = self.provider.resolve(t)
        layouts = [self.provider.measure(record, (None,)) for record in resolved.records]
        decoded = dict(zip(resolved.records, layouts, strict=True))
        taken = sum(layout.nbytes for layout in decoded.values())
        taken += self.provider.assembly_nbytes(resolved, layouts)
        self.report.bytes_per_epoch = max(self.report.bytes_per_epoch, taken)
        if not self.report.fields:
            record = resolved.records[0]
            family = (self.series, *self.series.stand_ins())
            owner = next(series for series in family if record.source in (None, series.source.name))
            with owner.open(str(record.identity[0]), record.url) as (_, contents):
                self._fields(contents, layouts[0])
        return resolved

    def _fields(self, contents: Contents, layout: RecordLayout) -> None:
        """List the fields as they are delivered, and what is selected of their dimensions."""
        self._selection(contents)
        temporal = self.series.source.temporal
        axes = contents.bracket_axes() if temporal is not None and temporal.brackets else {}
        for output in layout.outputs:
            variable = contents.fields.get(output.name)
            if variable is None:
                continue
            dims, shape = variable.info.dims, output.shape
            if temporal is not None:
                dims = variable.drop_time(dims)
            kind, axis = str(output.dtype), axes.get(output.name)
            if temporal is not None and temporal.brackets and output.name == contents.time_name:
                kind, axis = "float64", 0  # made by the bracket
            if axis is not None and temporal is not None:
                dims = (*dims[:axis], temporal.time_dim, *dims[axis:])
                shape = (*shape[:axis], 2, *shape[axis:])
            self.report.fields.append(FieldSurvey(output.name, dims, shape, kind))

    def _selection(self, contents: Contents) -> None:
        """Spell out what is selected, as it was understood."""
        select = self.provider.select
        if isinstance(select, AxesSelection):
            self.report.selects["axes"] = str(select.wire()["axes"])
        elif select is not None:
            for dim in select:
                selector, size = select.selector(dim), contents.sizes.get(dim)
                if selector is None or size is None or selector == Span(0, size):
                    continue
                self.report.selects[dim] = f"{len(selector)} of {size}: {_spelled(selector)}"
                pair = selector.indices().tolist()
                if isinstance(selector, Points) and len(pair) == 2 and pair[1] > pair[0] + 1:
                    self.report.doubt(f"{dim}: {pair} are two indices; a range is {{slice: {pair}}}")


def _spelled(selector: Selector) -> str:
    """Write the indices of a selector for people."""
    if isinstance(selector, Points):
        values = selector.values.tolist()
        return ", ".join(map(str, values[: _LISTED[1]])) + (", ..." if len(values) > _LISTED[1] else "")
    if not len(selector):
        return "none"
    steps = "" if selector.step == 1 else f", in steps of {selector.step}"
    return f"{selector.start} to {selector.stop - 1}{steps}"


def _count(contents: Contents) -> int:
    """Count the records of a file; one without a time dimension is a record as a whole."""
    return 1 if contents.records is None else contents.records


def _holds(contents: Contents, cadence: Cadence, k: int, position: int) -> bool:
    """Whether a file holds the record of the k-th anchor, the `position`-th that it should have."""
    if contents.axis is None:
        return position < _count(contents)
    return contents.axis.find(cadence.anchor(k), cadence.next_anchor(k), cadence.tolerance(k)) is not None
