"""The series of files behind a source: which file and which record serve a time.

A :class:`FileSeries` turns an anchor into records by the files' own time axes, across file seams, and knows
nothing of Windows or values. Files are opened for their metadata only, when first needed; what was learned
of a version of a file is kept. Where a file does not exist and the declaration says what stands in, an anchor
gets the records of an earlier file, or of the series of another source. Every method may be called from any
thread.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .cache import Cache
from .cache.redact import redact
from .cadence import FOREVER, Cadence, Placed
from .calendars import IntArray
from .contents import Contents, read_contents
from .decode.abort import AbortToken
from .errors import (
    DeclarationError,
    EarthSciIOError,
    EarthSciIOWarning,
    FileFormatError,
    RecordNotFound,
    Unsupported,
)
from .fields import Time
from .filelist import SourceFile, is_local_path
from .forks import new_rlock
from .formats import create_reader, files
from .formats.base import OpenFile, Reader
from .records import RecordRef, Resolved
from .registry import Registry
from .source import DataSource, SourceTemporal
from .standin import Absent, Notices, Presence, missing_file

__all__ = ["FileSeries"]

#: Versions of files whose contents are remembered per source.
_REMEMBERED = 512
#: The warning about brackets, beside those about variables; no variable has this name.
_LATE = "/late"


@dataclass(frozen=True, slots=True)
class _Record:
    """A record found: its file, its place on the time dimension, its stamp in the declared span."""

    start: int
    url: str
    path: str
    identity: tuple[Any, ...]
    index: int | None
    stamp: int


class FileSeries:
    """Finds the files and records of a source.

    Parameters
    ----------
    source : DataSource
        The declaration.
    reader : Reader
        Of the source's format, with its options.
    cache : Cache
        Where remote files come from.
    stand_in : FileSeries, optional
        That of the source that stands in for missing files; :meth:`of` makes it too.
    """

    def __init__(
        self, source: DataSource, reader: Reader, cache: Cache, stand_in: FileSeries | None = None
    ) -> None:
        self.source = source
        self.reader = reader
        self.cache = cache
        self.stand_in = stand_in
        self.notices = Notices(cache)
        self._presence = Presence()
        self._lock = new_rlock(self)
        self._contents: OrderedDict[tuple[Any, ...], Contents] = OrderedDict()
        self._cadence = source.temporal.cadence if source.temporal else None
        self._warned: set[str] = set()
        self._reference: Contents | None = None
        self._sought_reference = False

    @classmethod
    def of(cls, source: DataSource, cache: Cache, formats: Registry[Reader] | None = None) -> FileSeries:
        """Build it from a declaration, with what stands in.

        Raises
        ------
        BackendNotRegistered, UnknownReaderOption
            If the format or an option of its reader is not known.
        """
        other = None if source.stand_in is None else cls.of(source.stand_in, cache, formats)
        return cls(source, create_reader(source.format, dict(source.reader_kwargs), formats), cache, other)

    def stand_ins(self) -> Iterator[FileSeries]:
        """Iterate over the series of what stands in for it, of what stands in for that, and so on."""
        other = self.stand_in
        while other is not None:
            yield other
            other = other.stand_in

    # Files.

    @property
    def temporal(self) -> SourceTemporal:
        """The declaration's temporal part; only a DISCRETE source has one."""
        if self.source.temporal is None:
            raise DeclarationError(f"the source {self.source.name!r} has no times")
        return self.source.temporal

    def locate(self, start: int | None, abort: AbortToken | None = None) -> tuple[str, str]:
        """Give URL and local path of the file whose period starts at `start` (None: of a CONST source).

        `abort` ends a download.

        Raises
        ------
        FetchError
            If it can't be had; FileNotFoundError covers a path that is not there.
        """
        try:
            return self._at_hand(start, abort)
        except Absent as absent:
            raise absent.error from None

    def is_there(self, start: int | None, abort: AbortToken | None = None) -> bool:
        """Look for a file, as :meth:`locate`; False if it does not exist and something stands in."""
        try:
            self._at_hand(start, abort)
        except Absent:
            return False
        return True

    def _at_hand(self, start: int | None, abort: AbortToken | None) -> tuple[str, str]:
        file = self.file(start)
        if file.may_be_absent:
            return file.url, self._presence.path(file, self.cache, abort)
        if file.in_place:
            return file.url, file.url
        return file.url, str(file.fetch(self.cache, abort=abort).path)

    def file(self, start: int | None) -> SourceFile:
        """Say which file's period starts at `start` (None: of a CONST source), without looking for it.

        Raises
        ------
        Unsupported
            If the cache can't hold what is at its URL.
        """
        file = SourceFile.of(self.source, start)
        if not (file.in_place or self.reader.fetchable(file.url)):
            raise Unsupported(
                "a store of many objects can't be fetched into the cache",
                file=redact(file.url), source=self.source.name,
                hint="Copy it to a file system and give its path, or pack it as one file",
            )  # fmt: skip
        return file

    @contextmanager
    def open(self, path: str, url: str) -> Iterator[tuple[OpenFile, Contents]]:
        """Open a file for the time of the ``with`` block, with what the source delivers from it."""
        try:
            with files.lease(self.reader, path) as lease:
                yield lease.file, self._learn(lease, path, url)
        except EarthSciIOError as error:
            error.file = error.file or path
            if url != path and url not in str(error):
                error.add_note(f"fetched from {redact(url)}")
            raise
        except FileNotFoundError as error:
            raise missing_file(path, self.source.name) from error
        except OSError as error:
            raise FileFormatError(f"can't be read: {error}", file=path, source=self.source.name) from error

    def _learn(self, lease: files.Lease, path: str, url: str) -> Contents:
        with self._lock:
            known = self._contents.get(lease.identity)
            if known is not None:
                self._contents.move_to_end(lease.identity)
                return known
        learned = read_contents(
            lease.file, lease.identity, path, self.reader, self.source.variables, self.source.temporal
        )
        if is_local_path(url):
            self.cache.note_in_place(path, self.source.name)
        with self._lock:
            for name, variable in {**learned.fields, **learned.coords}.items():
                if variable.spec.warnings and name not in self._warned:
                    self._warned.add(name)
                    warnings.warn(
                        f"{path}: {', '.join(variable.spec.warnings)}. What that was to mask comes out "
                        "as data: correct the attribute in the files, or mask it yourself",
                        EarthSciIOWarning,
                        stacklevel=4,
                    )
            for name, why in learned.left_out.items():
                if name not in self._warned:
                    self._warned.add(name)
                    warnings.warn(
                        f"{path}: {name} {why}; what it is a coordinate of comes out without it",
                        EarthSciIOWarning,
                        stacklevel=4,
                    )
            self._contents[lease.identity] = learned
            if self._sought_reference and self._reference is None:
                self._reference = learned
            while len(self._contents) > _REMEMBERED:
                self._contents.popitem(last=False)
        return learned

    def reference(self) -> Contents | None:
        """Give the contents of the file at ``start``, which all others must agree with in size.

        Where that file is not at hand (it may never have been wanted, or be damaged, which only its own
        samples should suffer from), the first one opened stands in.
        """
        with self._lock:
            if self._reference is None and not self._sought_reference:
                self._sought_reference = True
                url = self.source.resolve_url(self.cadence.calendar.time(self.cadence.start))
                if is_local_path(url):
                    with suppress(EarthSciIOError), self.open(url, url) as (_, contents):
                        self._reference = contents
            return self._reference

    def files(self, lo: int | None, hi: int | None) -> list[SourceFile]:
        """List the files behind the samples of ``[lo, hi)``, successors included, ascending; opens nothing.

        With ``frequency="records"`` those of the whole declared span, which anybody has to read for stamps.
        """
        if self.source.is_const:
            return [self.file(None)]
        declared = self.temporal.cadence
        starts = self._file_starts(declared, lo, hi) if declared.is_read else _all_starts(declared)
        return [self.file(start) for start in starts]

    def _file_starts(self, cadence: Cadence, lo: int | None, hi: int | None) -> list[int]:
        return list(dict.fromkeys(start for _, starts in self._needed(cadence, lo, hi) for start in starts))

    def _needed(
        self, cadence: Cadence, lo: int | None, hi: int | None
    ) -> Iterator[tuple[Placed, tuple[int, ...]]]:
        """Iterate over the anchors in force in ``[lo, hi)``, with the starts of the files they need."""
        anchors = cadence.anchors(lo, hi)
        first = cadence.start if cadence.outside == "error" else -FOREVER
        if lo is not None and lo >= first and (not anchors or lo < anchors[0]):
            anchors.insert(0, lo)
        for anchor in anchors:
            placed = cadence.place(anchor)
            following = cadence.successor(placed) if self.temporal.brackets else None
            every = (placed,) if following is None else (placed, following)
            yield placed, tuple(cadence.file_start(cadence.anchor(each.k)) for each in every)

    def needing(self, absent: Container[int | None], lo: int | None, hi: int | None) -> list[Time]:
        """List the anchors in force in ``[lo, hi)`` whose samples need one of some files, by their starts."""
        if self.source.is_const:
            return []
        needed = self._needed(self.cadence, lo, hi)
        time = self.cadence.calendar.time
        return [time(placed.anchor) for placed, starts in needed if any(start in absent for start in starts)]

    # Records.

    @property
    def cadence(self) -> Cadence:
        """The cadence; with ``frequency="records"`` the files are read for their stamps first."""
        with self._lock:
            cadence = self._cadence
            if cadence is None:
                raise DeclarationError(f"the source {self.source.name!r} has no times")
            if not cadence.is_read:
                cadence = self._cadence = cadence.with_stamps(self._all_stamps(cadence))
            return cadence

    def _all_stamps(self, cadence: Cadence) -> IntArray:
        stamps: list[IntArray] = []
        for start in _all_starts(cadence):
            url, path = self.locate(start)
            with self.open(path, url) as (_, contents):
                if contents.axis is None:
                    raise RecordNotFound("frequency='records' needs files with a time coordinate", file=path)
                lo, hi = self._own_span(cadence, start, 0)
                inside = (contents.axis.stamps >= lo) & (contents.axis.stamps < hi)
                stamps.append(contents.axis.stamps[inside])
        return np.concatenate(stamps)

    def resolve(self, t: Time, abort: AbortToken | None = None) -> Resolved:
        """Find the records of the sample at `t`; `abort` ends a download.

        Raises
        ------
        TimeBeforeStart, TimePastEnd
            Outside the declared span, with ``outside="error"``.
        RecordNotFound
            If the file does not hold the record of the anchor.
        """
        cadence = self.cadence
        placed = cadence.place(cadence.calendar.instant(t))
        try:
            return self._resolved(cadence, placed, self._sample(cadence, placed, abort))
        except Absent as absent:
            return self._substituted(cadence, placed, absent, abort)
        except EarthSciIOError as error:
            if error.epoch is None:
                error.epoch = cadence.calendar.text(placed.anchor)
            raise

    def _resolved(
        self,
        cadence: Cadence,
        placed: Placed,
        sample: list[tuple[_Record, int]],
        missing: tuple[tuple[str, str], ...] = (),
    ) -> Resolved:
        time = cadence.calendar.time
        return Resolved(
            anchor=time(placed.anchor),
            records=tuple(RecordRef(r.url, r.identity, r.index, time(r.stamp)) for r, _ in sample),
            times=tuple(time(stamp) for _, stamp in sample),
            missing=missing,
        )

    def _sample(
        self, cadence: Cadence, placed: Placed, abort: AbortToken | None
    ) -> list[tuple[_Record, int]]:
        """Find the records of a sample, each with the stamp that it reports."""
        record = self._find(cadence, placed, abort)
        found = [(record, cadence.in_year_of(placed, record.stamp))]
        if self.temporal.brackets:
            self._warn_late(cadence, placed, record)
            found.append(self._successor(cadence, placed, record, abort))
        return found

    # Missing files.

    def _substituted(
        self, cadence: Cadence, placed: Placed, absent: Absent, abort: AbortToken | None
    ) -> Resolved:
        """Give what stands in for the sample of an anchor that needs a file which does not exist."""
        file = self.file(absent.start)
        missing = (file.source, file.url)
        held = self._held(cadence, placed, absent, abort)
        if held is not None:
            return self._resolved(cadence, placed, held, (missing,))
        if self.stand_in is None:
            absent.error.epoch = cadence.calendar.text(placed.anchor)
            absent.error.hint = (
                "Nothing that its `missing` could hold lies close enough before: hold longer, or name a "
                "`source` that stands in"
            )
            raise absent.error from None
        anchor = cadence.calendar.time(placed.anchor)
        try:
            theirs = self.stand_in.resolve(anchor, abort)
        except EarthSciIOError as error:
            error.add_note(f"wanted in place of {redact(file.url)}, which does not exist")
            raise
        name = self.stand_in.source.name
        records = tuple(replace(record, source=record.source or name) for record in theirs.records)
        return Resolved(anchor, records, theirs.times, (missing, *theirs.missing))

    def _held(
        self, cadence: Cadence, placed: Placed, absent: Absent, abort: AbortToken | None
    ) -> list[tuple[_Record, int]] | None:
        """Find the sample of the last anchor before whose file exists; None if there is none close enough."""
        rule = self.temporal.missing
        assert rule is not None
        k = due = placed.k
        if absent.start == cadence.file_start(cadence.anchor(k)):
            k = cadence.index(absent.start - 1)
        else:  # that of the successor
            due += 1
        while k >= 0 and rule.holds(cadence.calendar, cadence.anchor(k), cadence.anchor(due)):
            before = Placed(k, cadence.anchor(k))
            try:
                record = self._find(cadence, before, abort)
            except Absent as also:
                k = cadence.index(also.start - 1)
                continue
            sample = [(record, record.stamp)]
            if self.temporal.brackets:
                try:
                    sample.append(self._successor(cadence, before, record, abort))
                except Absent:
                    sample *= 2  # held: nothing leads across the gap
            return sample
        return None

    def _find(self, cadence: Cadence, placed: Placed, abort: AbortToken | None) -> _Record:
        """Find the record of a declared anchor."""
        anchor, following = cadence.anchor(placed.k), cadence.next_anchor(placed.k)
        tolerance = cadence.tolerance(placed.k)
        start = cadence.file_start(anchor)
        url, path = self._at_hand(start, abort)
        with self.open(path, url) as (_, contents):
            axis = contents.axis
            if axis is None:
                return self._by_arithmetic(cadence, placed, start, url, path, contents)
            position = axis.find(anchor, following, tolerance)
            if position is None:
                text = cadence.calendar.text
                span = "no records" if axis.span is None else f"{text(axis.span[0])} to {text(axis.span[1])}"
                raise RecordNotFound(
                    "the file holds no record of the anchor", file=path, source=self.source.name,
                    epoch=text(anchor), file_span=span,
                    hint="Check start, frequency and file_period against the file's times",
                )  # fmt: skip
            return self._at(contents, start, url, path, position)

    def _at(self, contents: Contents, start: int, url: str, path: str, position: int) -> _Record:
        axis = contents.axis
        assert axis is not None
        index = int(axis.records[position])
        return _Record(
            start,
            url,
            path,
            contents.identity,
            index if contents.records is not None else None,
            int(axis.stamps[position]),
        )

    def _by_arithmetic(
        self, cadence: Cadence, placed: Placed, start: int, url: str, path: str, contents: Contents
    ) -> _Record:
        """Index a file without any time coordinate by the cadence."""
        index = placed.k - (0 if cadence.files is None else max(cadence.index(start - 1) + 1, 0))
        count = 1 if contents.records is None else contents.records
        if index >= count:
            raise RecordNotFound(
                f"record {index} is wanted of a file with {count} and no time coordinate",
                file=path, source=self.source.name, epoch=cadence.calendar.text(cadence.anchor(placed.k)),
                hint="Check frequency and file_period",
            )  # fmt: skip
        stamp = cadence.anchor(placed.k)
        where = None if contents.records is None else index
        return _Record(start, url, path, contents.identity, where, stamp)

    def _own_span(self, cadence: Cadence, start: int, tolerance: int) -> tuple[int, int]:
        """Give the stamps a file of a series is asked for: its period, less the tolerance at both ends."""
        following = cadence.next_file_start(start)
        if following is None:
            return -FOREVER, FOREVER
        return start - tolerance, following - tolerance

    def _successor(
        self, cadence: Cadence, placed: Placed, record: _Record, abort: AbortToken | None
    ) -> tuple[_Record, int]:
        """Find the record after one on the series' time axis, and the stamp it reports."""
        following = cadence.successor(placed)
        found = self._next_record(cadence, placed, record, abort)
        ends = cadence.next_anchor(placed.k) - cadence.tolerance(placed.k)
        if cadence.outside == "cycle" and following is not None and (found is None or found.stamp >= ends):
            # the next anchor need not be the next record: the year wraps, repeats a day, or skips one
            found = self._find(cadence, following, abort)
            return found, cadence.in_year_of(following, found.stamp)
        if found is None:
            return record, cadence.in_year_of(placed, record.stamp)
        return found, cadence.in_year_of(placed, found.stamp)

    def _next_record(
        self, cadence: Cadence, placed: Placed, record: _Record, abort: AbortToken | None
    ) -> _Record | None:
        """Find the next record on the time axis; None where the declared span ends."""
        tolerance = cadence.tolerance(placed.k)
        last = cadence.last_index
        with self.open(record.path, record.url) as (_, contents):
            if contents.axis is None:
                if last is not None and placed.k >= last:
                    return None
                following = Placed(placed.k + 1, cadence.anchor(placed.k + 1))
                if cadence.files is None and following.k >= (contents.records or 1):
                    return None
                return self._find(cadence, following, abort)
            position = int(np.searchsorted(contents.axis.stamps, record.stamp, side="right"))
            stop = FOREVER if cadence.end is None else cadence.end - tolerance
            stop = min(stop, self._own_span(cadence, record.start, tolerance)[1])
            if position < len(contents.axis) and contents.axis.stamps[position] < stop:
                return self._at(contents, record.start, record.url, record.path, position)
        if cadence.files is None or (last is not None and placed.k >= last):
            return None
        return self._first_after(cadence, record, tolerance, abort)

    def _first_after(
        self, cadence: Cadence, record: _Record, tolerance: int, abort: AbortToken | None
    ) -> _Record | None:
        """Find the first record of the next file that has any; overlapping files may repeat `record`."""
        following = cadence.next_file_start(record.start)
        while following is not None and (cadence.end is None or following < cadence.end):
            url, path = self._at_hand(following, abort)
            with self.open(path, url) as (_, contents):
                if contents.axis is None:
                    k = cadence.index(following - 1) + 1
                    return self._by_arithmetic(
                        cadence, Placed(k, cadence.anchor(k)), following, url, path, contents
                    )
                lo, hi = self._own_span(cadence, following, tolerance)
                stop = hi if cadence.end is None else min(hi, cadence.end - tolerance)
                position = int(np.searchsorted(contents.axis.stamps, max(lo, record.stamp + 1)))
                if position < len(contents.axis) and contents.axis.stamps[position] < stop:
                    return self._at(contents, following, url, path, position)
            following = cadence.next_file_start(following)
        return None

    def neighbours(self, contents: Contents, index: int, first: int, stop: int) -> tuple[int, int]:
        """Say who takes records ``[first, stop)`` of a file, around the anchor of record `index` among them.

        Returns
        -------
        before, after : int
            Anchors before and after that one; those whose brackets end there count too.
        """
        cadence, axis = self.cadence, contents.axis
        before, after = index - first, stop - 1 - index
        if axis is not None and stop - first > 1:

            def anchor(position: int) -> int:
                stamp = int(axis.stamps[position])
                k = cadence.index(stamp)
                return k + (stamp >= cadence.anchor(k + 1) - cadence.tolerance(k))

            inside = axis.positions(first, stop)
            own, low, high = axis.positions(index, index + 1)[0], inside.min(), inside.max()
            here, first_anchor, last_anchor = anchor(own), anchor(low), anchor(high)
            # an anchor takes the first of the records that lie in its step, and in the file that it lies in
            if low > 0:
                first_anchor += anchor(low - 1) == first_anchor
            elif first_anchor < here:
                starts = (cadence.file_start(cadence.anchor(k)) for k in (first_anchor, here))
                first_anchor += next(starts) != next(starts)
            before, after = here - first_anchor, last_anchor - here
        return before + self.temporal.brackets, after

    def _is_news(self, about: str) -> bool:
        """Whether this is the first warning about something."""
        with self._lock:
            known = about in self._warned
            self._warned.add(about)
            return not known

    def _warn_late(self, cadence: Cadence, placed: Placed, record: _Record) -> None:
        """Say once that the bracket of an anchor begins after it, so that nothing covers the time between."""
        late = record.stamp - cadence.anchor(placed.k)
        if late > cadence.tolerance(placed.k) and self._is_news(_LATE):
            text = cadence.calendar.text
            anchor, stamp, start = (
                text(t) for t in (cadence.anchor(placed.k), record.stamp, cadence.start + late)
            )
            warnings.warn(
                f"{self.source.name}: the bracket of {anchor} starts at {stamp}; "
                f"declare start={start!r} so that anchors fall on stamps",
                EarthSciIOWarning,
                stacklevel=3,
            )


def _all_starts(cadence: Cadence) -> list[int]:
    """List the starts of all files of the declared span."""
    if cadence.files is None or cadence.end is None:
        return [cadence.start]
    return cadence.file_starts(cadence.start, cadence.end)
