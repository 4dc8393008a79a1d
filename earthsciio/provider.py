"""A provider: one source, read through the selection a rank needs.

:meth:`Provider.sample_at` is the plain synchronous read that everything else in this library is measured
against: it touches no state, may run on many threads, and returns arrays nobody else writes.
:meth:`Provider.refresh` is the same plus the update of buffers that a solver holds views of. The steps in
between (resolve, measure, decode, assemble) are those of :class:`~earthsciio.records.RecordSource`, so that
a PrefetchGroup runs the very same code on its workers.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from .assembly import unshared, write_in_place
from .cache import Cache
from .decode import BadChunk
from .decode.abort import AbortToken
from .errors import SelectionError, VariableNotFound
from .fields import NativeDataset, NativeField, Time
from .filelist import SourceFile
from .forks import new_lock
from .formats import Reader
from .formats import supports_selection as reader_supports_selection
from .recordreader import RecordReader, Selection, assembly_nbytes
from .records import (
    Allocate,
    DecodedRecord,
    Keep,
    RecordLayout,
    RecordRef,
    Resolved,
    new_array,
)
from .registry import Registry
from .selection import AxesSelection, SelectionLike, Window, parse_selection
from .series import FileSeries
from .source import DataSource, parse_time
from .standin import Grids

__all__ = ["Provider"]


class Provider:
    """Reads one source.

    Parameters
    ----------
    loader : DataSource
        The declaration.
    cache : Cache, optional
        Where files that are not local paths are kept; the default cache if None.
    window : (start, end), optional
        Half-open time range that :meth:`refresh_times` and :meth:`prefetch` keep to.
    formats : Registry, optional
        Formats to choose from; the library's own registry by default.

    Raises
    ------
    BackendNotRegistered
        If the source's format is not registered.
    UnknownReaderOption
        If ``loader.reader_kwargs`` holds an option the format does not have.

    Notes
    -----
    `window` is an interval of time. A spatial :class:`~earthsciio.selection.Window` is bound with
    :meth:`with_window`, or with the reader option ``select``.
    """

    def __init__(
        self,
        loader: DataSource,
        cache: Cache | None = None,
        window: tuple[Time | str | None, Time | str | None] | None = None,
        *,
        formats: Registry[Reader] | None = None,
    ) -> None:
        series = FileSeries.of(loader, Cache() if cache is None else cache, formats)
        self._setup(loader, series, window, series.reader.select)

    def _setup(
        self,
        loader: DataSource,
        series: FileSeries,
        window: tuple[Time | str | None, Time | str | None] | None,
        select: SelectionLike | AxesSelection | None,
    ) -> None:
        self.loader = loader
        self.window = window
        self._series = series
        self._select = None if select is None else parse_selection(select)
        self._range = self._time_range(window)
        self._lock = new_lock(self)
        self._buffers: NativeDataset | None = None
        grids = None if series.stand_in is None else Grids()
        # by what a record says of its source
        self._records: dict[str | None, RecordReader] = {None: RecordReader(series, grids)}
        for other in series.stand_ins():
            self._records[other.source.name] = RecordReader(other, grids)

    def _time_range(self, window: tuple[Any, Any] | None) -> tuple[int | None, int | None]:
        if window is None or self.loader.temporal is None:
            return None, None
        own = self.loader.temporal.cadence.calendar
        start, end = (None if t is None else own.instant(parse_time(t, own.name)) for t in window)
        return start, end

    # What it is.

    @property
    def reader(self) -> Reader:
        """The format's reader with the source's options."""
        return self._series.reader

    @property
    def cache(self) -> Cache:
        """Where its files come from."""
        return self._series.cache

    @property
    def is_const(self) -> bool:
        """Whether the source has no time."""
        return self.loader.is_const

    @property
    def supports_selection(self) -> bool:
        """Whether the format reads Windows without reading the rest."""
        return reader_supports_selection(self.reader)

    @property
    def store_backed(self) -> bool:
        """Whether the source is a store of many objects rather than files."""
        return self.reader.store_backed

    @property
    def select(self) -> Window | AxesSelection | None:
        """The selection it is bound to."""
        return self._select

    @property
    def calendar(self) -> str:
        """Canonical name of the calendar its times are in."""
        return "standard" if self.is_const else self._series.temporal.cadence.calendar.name

    @property
    def outside(self) -> str:
        """What serves times before ``start`` and from ``end`` on."""
        return "hold" if self.is_const else self._series.temporal.outside

    def __repr__(self) -> str:
        kind = "CONST" if self.is_const else "DISCRETE"
        return f"<Provider {self.loader.name!r} ({kind}, {self.loader.format})>"

    # Times.

    def refresh_times(self) -> list[Time]:
        """Give the anchors inside the time range, ascending; empty for a CONST source.

        From the declaration alone, except for ``frequency="records"``, which reads the files' time axes.

        Raises
        ------
        DeclarationError
            If neither the declaration nor the time range has an end.
        """
        return [] if self.is_const else self.anchors(*self._range_times())

    def _range_times(self) -> tuple[Time | None, Time | None]:
        time = self._series.temporal.cadence.calendar.time
        lo, hi = (None if bound is None else time(bound) for bound in self._range)
        return lo, hi

    @property
    def end(self) -> Time | None:
        """The time from which on it has no samples; None if it holds, cycles or never ends."""
        cadence = self._series.temporal.cadence
        ends = [self._range[1]] if cadence.outside != "error" else [self._range[1], cadence.end]
        known = [end for end in ends if end is not None]
        return cadence.calendar.time(min(known)) if known else None

    def first_anchor(self) -> Time | None:
        """Give the first anchor of its time range; None if it has samples since ever."""
        cadence = self._series.cadence
        lo = self._range[0]
        if lo is None:
            return cadence.calendar.time(cadence.anchor(0)) if cadence.outside == "error" else None
        placed = cadence.place(max(lo, cadence.start) if cadence.outside == "error" else lo)
        if placed.anchor >= lo:
            return cadence.calendar.time(placed.anchor)
        following = cadence.successor(placed)
        return None if following is None else cadence.calendar.time(following.anchor)

    def anchor_at(self, t: Time) -> Time:
        """Give the anchor in force at `t`; errors are those of ``refresh(t)``."""
        cadence = self._series.cadence
        return cadence.calendar.time(cadence.place(cadence.calendar.instant(t)).anchor)

    def series_index(self, anchors: Sequence[Time]) -> list[int]:
        """Give numbers to anchors; those made of the same records share one."""
        cadence = self._series.cadence
        if cadence.outside != "cycle":
            return list(range(len(anchors)))
        return [cadence.place(cadence.calendar.instant(anchor)).k for anchor in anchors]

    def anchors(self, lo: Time | None = None, hi: Time | None = None) -> list[Time]:
        """Give the anchors in ``[lo, hi)``, ascending; by default from ``start`` to ``end``."""
        cadence = self._series.cadence
        instant = cadence.calendar.instant
        bounds = (None if t is None else instant(t) for t in (lo, hi))
        return [cadence.calendar.time(anchor) for anchor in cadence.anchors(*bounds)]

    # Reading.

    def sample_at(self, t: Time) -> NativeDataset:
        """Read the sample in force at `t`; touches no state.

        Parameters
        ----------
        t : datetime or cftime.datetime
            Snapped down to the anchor in force. A naive datetime is UTC.

        Returns
        -------
        NativeDataset
            Arrays that nobody else writes.

        Raises
        ------
        ValueError, IndexError
            Outside the declared span (``outside="error"``), or if the file does not hold the record.
        EarthSciIOError
            If a file can't be had or decoded; never fill, never an older record.
        """
        return self._read(t, (self._select,))[0]

    def sample_windows_at(self, t: Time, windows: Sequence[SelectionLike]) -> list[NativeDataset]:
        """Read the sample in force at `t` through K Windows, each touched chunk once.

        Equal to ``[self.with_window(w).sample_at(t) for w in windows]``, bit for bit.

        Raises
        ------
        SelectionError
            If the provider is bound to a selection already.
        """
        self._refuse_second_selection()
        return self._read(t, tuple(parse_selection(window) for window in windows))

    def _read(self, t: Time, selections: tuple[Selection, ...]) -> list[NativeDataset]:
        if self.is_const:
            return self._read_const(selections)
        resolved = self.resolve(t)
        abort = AbortToken()
        decoded: dict[RecordRef, DecodedRecord] = {}
        for record in resolved.records:
            if record not in decoded:
                layout = self.measure(record, selections)
                decoded[record] = self.decode_record(record, layout, new_array, abort)
        assembled = self.assemble(resolved, [decoded[record] for record in resolved.records], new_array)
        return [unshared(dataset) for dataset in assembled]

    def _read_const(self, selections: tuple[Selection, ...]) -> list[NativeDataset]:
        record = self._const_record()
        decoded = self.decode_record(record, self.measure(record, selections), new_array, AbortToken())
        return [unshared(NativeDataset(f, c)) for f, c in zip(decoded.fields, decoded.coords, strict=True)]

    def _const_record(self) -> RecordRef:
        url, path = self._series.locate(None)
        with self._series.open(path, url) as (_, contents):
            return RecordRef(url, contents.identity, None, None)

    def refresh(self, t: Time, select: SelectionLike | None = None) -> NativeDataset:
        """Read the sample in force at `t` into the provider's buffers.

        Parameters
        ----------
        t : datetime or cftime.datetime
            As for :meth:`sample_at`; ignored for a CONST source, which is read once.
        select : Window or wire dict, optional
            Peek instead: the sample through that selection, no buffer touched.

        Returns
        -------
        NativeDataset
            The buffers. Where shape and dtype are unchanged they are written in place, so that views of
            them stay live; nothing is written if reading raises.
        """
        if select is not None:
            return self.with_window(select).sample_at(t)
        if self.is_const:
            return self.materialize()
        sample = self.sample_at(t)
        with self._lock:
            self._buffers = write_in_place(self._buffers, sample)
            return self._buffers

    def materialize(self) -> NativeDataset:
        """Read what is in force at the start: the constant, or the first sample of the time range."""
        if self.is_const:
            with self._lock:
                if self._buffers is None:
                    self._buffers = self._read_const((self._select,))[0]
                return self._buffers
        return self.refresh(self._first_time())

    def _first_time(self) -> Time:
        """Give the first time of the time range that has a sample."""
        cadence, lo = self._series.cadence, self._range[0]
        first = cadence.anchor(0)
        return cadence.calendar.time(
            first if lo is None or (lo < first and cadence.outside == "error") else lo
        )

    def _first_record(self) -> RecordRef:
        return self._const_record() if self.is_const else self.resolve(self._first_time()).records[0]

    @property
    def coords(self) -> Mapping[str, NativeField]:
        """The coordinates as last refreshed; until then those at the start, read without the fields."""
        with self._lock:
            if self._buffers is not None:
                return self._buffers.coords
        record = self._first_record()
        layout = self._measure(record, (self._select,), fields=False)
        coords = self.decode_record(record, layout, new_array, AbortToken()).coords[0]
        return unshared(NativeDataset({}, coords)).coords

    def array_shape(self, variable: str) -> tuple[int, ...]:
        """Give the shape in which a field or coordinate is delivered, from metadata alone.

        Raises
        ------
        KeyError
            If the source does not deliver it.
        """
        record, brackets = self._first_record(), not self.is_const and self._series.temporal.brackets
        path, records = str(record.identity[0]), self._records[record.source]
        with records.series.open(path, record.url) as (_, contents):
            every = {**contents.coords, **contents.fields}
            if brackets and variable == contents.time_name:
                return (2,)
            if variable not in every:
                raise VariableNotFound(
                    f"the source delivers no {variable!r}", file=path, variable=variable,
                    hint=f"It delivers {list(every)}",
                )  # fmt: skip
            selected = records.selected(self._select, contents, path)
            shape = tuple(len(selector) for selector in selected[variable])
        if not self.is_const:
            shape = every[variable].drop_time(shape)
        axis = contents.bracket_axes().get(variable) if brackets else None
        return shape if axis is None else (*shape[:axis], 2, *shape[axis:])

    def with_window(self, window: SelectionLike) -> Provider:
        """Give a provider of the same source bound to a selection; opens nothing.

        Raises
        ------
        SelectionError
            If the selection's form is wrong, or this provider is bound to one already.
        """
        self._refuse_second_selection()
        bound = object.__new__(type(self))
        bound._setup(self.loader, self._series, self.window, parse_selection(window))
        return bound

    def _refuse_second_selection(self) -> None:
        if self._select is not None:
            raise SelectionError(
                f"the provider of {self.loader.name!r} is bound to a selection already",
                hint="Start from one without `select`, or combine the Windows with Window.union",
            )

    def prefetch(self, window: tuple[Time | str | None, Time | str | None] | None = None) -> int:
        """Bring the files of a time range into the cache; decodes nothing.

        Parameters
        ----------
        window : (start, end), optional
            Half-open; the provider's own time range by default.

        Returns
        -------
        int
            Number of files.
        """
        files = self.files(window)
        absent = {file.start for file in files if not self._series.is_there(file.start)}
        for t in self.needing(absent, window) if absent else ():
            self.resolve(t)
        return len(files)

    def needing(
        self,
        absent: Container[int | None],
        window: tuple[Time | str | None, Time | str | None] | None = None,
    ) -> list[Time]:
        """List the anchors of a time range whose samples need missing files, named by their starts."""
        return self._series.needing(absent, *(self._range if window is None else self._time_range(window)))

    def files(self, window: tuple[Time | str | None, Time | str | None] | None = None) -> list[SourceFile]:
        """List the files behind the samples of a time range, in the order of their times; opens nothing.

        Parameters
        ----------
        window : (start, end), optional
            Half-open; the provider's own time range by default.

        Raises
        ------
        DeclarationError
            If neither the declaration nor the time range has an end.
        Unsupported
            If a file can't be fetched into the cache.
        """
        return self._series.files(*(self._range if window is None else self._time_range(window)))

    # The steps in between: earthsciio.records.RecordSource.

    def resolve(self, t: Time, abort: AbortToken | None = None) -> Resolved:
        """Find the records behind ``sample_at(t)``; `abort` ends a download.

        Where they stand in for those of a missing file, it says so: a warning, an event, the provenance.
        """
        resolved = self._series.resolve(t, abort)
        self._series.notices.tell(resolved)
        return resolved

    def measure(self, record: RecordRef, windows: Sequence[Selection]) -> RecordLayout:
        """Plan the decode of a record through Windows (None: the provider's own); metadata only.

        Raises
        ------
        SelectionError, SelectionRangeError
            If a Window does not fit the file.
        FileFormatError
            If the file's dimensions differ from those of the file at ``start``.
        """
        return self._measure(record, windows, fields=True)

    def _measure(self, record: RecordRef, windows: Sequence[Selection], *, fields: bool) -> RecordLayout:
        selections = tuple(self._select if window is None else window for window in windows)
        return self._records[record.source].measure(record, selections, fields=fields)

    def assembly_nbytes(self, resolved: Resolved, layouts: Sequence[RecordLayout]) -> int:
        """Bytes that :meth:`assemble` will allocate: both halves of every bracketed array."""
        return assembly_nbytes(resolved, layouts)

    def decode_record(
        self,
        record: RecordRef,
        layout: RecordLayout,
        allocate: Allocate,
        abort: AbortToken,
        keep: Keep | None = None,
    ) -> DecodedRecord:
        """Decode one record; asks `allocate` once per output of `layout`, in its order.

        The chunks of `keep` are taken from its pool, or left there.

        Raises
        ------
        DecodeError
            If stored bytes can't be read, or the file was replaced since the record was resolved.
        Cancelled
            If `abort` was set.
        """
        return self._records[record.source].decode(record, layout, allocate, abort, keep)

    def assemble(
        self, resolved: Resolved, records: Sequence[DecodedRecord], allocate: Allocate
    ) -> tuple[NativeDataset, ...]:
        """Put the sample of each Window together from its decoded records.

        Raises
        ------
        FileFormatError
            If the two files of a bracket have different horizontal coordinates.
        """
        return self._records[None].assemble(resolved, records, allocate)

    def fetch_ahead(
        self, t: Time, windows: Sequence[Selection] = (None,), abort: AbortToken | None = None
    ) -> None:
        """Bring the files behind a sample into the cache, and what Windows need of them into memory.

        Decodes nothing; errors are those of the read.
        """
        abort = AbortToken() if abort is None else abort
        for record in dict.fromkeys(self.resolve(t, abort).records):
            self._records[record.source].read_ahead(self.measure(record, windows), abort)

    @property
    def bad_chunks(self) -> list[tuple[str, BadChunk]]:
        """Files and chunks that could not be read and came out as NaN, each once: ``on_bad_chunk="nan"``."""
        return [bad for records in self._records.values() for bad in records.bad_chunks]
