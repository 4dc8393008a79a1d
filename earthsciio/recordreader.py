"""Reads records of one series through selections: measures, decodes and assembles them.

A :class:`RecordReader` is what stands behind a provider's :class:`~earthsciio.records.RecordSource` once the
records are found. It remembers views of files and which chunks came out as NaN, nothing of any sample, and
may be used from any thread.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .assembly import bracket, check_same_grid
from .contents import Contents
from .decode import ArrayRequest, BadChunk, DecodeOptions, decode_arrays
from .decode.abort import AbortToken
from .decode.ahead import read_ahead
from .errors import DecodeError, FileFormatError
from .fields import NativeDataset, NativeField
from .forks import new_lock
from .memory import allocating
from .recordplan import RecordPlan
from .records import Allocate, ChunkSpan, DecodedRecord, Keep, RecordLayout, RecordRef, Resolved, SpanUse
from .selection import AxesSelection, Points, Span, Window, resolve
from .series import FileSeries
from .standin import Grids
from .timeaxis import encode_times
from .views import View, Views

__all__ = ["RecordReader", "Selection", "assembly_nbytes"]

#: What a record is read through; None for all of it.
Selection = Window | AxesSelection | None


class RecordReader:
    """Reads records of a series.

    Parameters
    ----------
    series : FileSeries
        Which found them.
    grids : Grids, optional
        Of all sources that stand in for each other; none if the source stands alone.
    """

    def __init__(self, series: FileSeries, grids: Grids | None = None) -> None:
        self.series = series
        self._grids = grids
        self._views = Views()
        self._noting = new_lock(self, "_noting")
        self._bad_chunks: dict[tuple[str, BadChunk], None] = {}

    def measure(self, record: RecordRef, selections: tuple[Selection, ...], *, fields: bool) -> RecordLayout:
        """Plan the decode of a record's coordinates, and of its fields if they are wanted; metadata only.

        Raises
        ------
        SelectionError, SelectionRangeError
            If a selection does not fit the file.
        FileFormatError
            If the file's dimensions differ from those of the file at ``start``, or its grid from that of the
            source it stands in for.
        """
        path = str(record.identity[0])
        with self.series.open(path, record.url) as (file, contents):
            _check_version(record, contents, path)
            view = self._views.get(contents.identity, selections)
            if view is None:
                self._check_sizes(contents, path)
                if self._grids is not None:
                    self._grids.check(self.series.source.name, path, file, contents)
                selected = tuple(self.selected(each, contents, path) for each in selections)
                view = self._views.add(View(contents, selections, selected))
        plan = RecordPlan.of(record, view, fields=fields)
        uses = [self._use(contents, record, span) for span in plan.spans]
        return RecordLayout(plan.outputs, plan, tuple(uses))

    def _use(self, contents: Contents, record: RecordRef, span: ChunkSpan) -> SpanUse:
        assert record.index is not None
        return SpanUse(span, *self.series.neighbours(contents, record.index, span.first, span.stop))

    def decode(
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
        plan: RecordPlan = layout.plan
        arrays = []
        for output in layout.outputs:
            with allocating(output.nbytes, file=plan.path, variable=output.name):
                arrays.append(allocate(output.shape, output.dtype))
        fields, coords, requests = plan.fill(arrays, keep)
        pool, next_use = (None, None) if keep is None else (keep.pool, keep.next_use)
        reader = self.series.reader
        options = DecodeOptions(reader.on_bad_chunk, reader.verify, pool, next_use)
        with self.series.open(plan.path, record.url) as (file, contents):
            _check_version(record, contents, plan.path)
            largest = max(requests, key=_chunk_nbytes, default=None)
            buffers = 0 if largest is None else _chunk_nbytes(largest)
            name = None if largest is None else largest.info.name
            with allocating(buffers, file=plan.path, variable=name):
                report = decode_arrays(file, requests, abort, options=options)
            kept, bad_chunks = plan.view.kept_coords(file, abort, options)
            self._note_bad(plan.path, report.bad_chunks + bad_chunks)
            for window, shared in enumerate(kept):
                coords[window].update(shared)
        return DecodedRecord(
            record, fields, coords, plan.time_axes, plan.view.contents.time_name, report.bytes_read,
            report.chunks, report.reused, report.fallbacks,
        )  # fmt: skip

    def assemble(
        self, resolved: Resolved, records: Sequence[DecodedRecord], allocate: Allocate
    ) -> tuple[NativeDataset, ...]:
        """Put the sample of each Window together from its decoded records.

        Raises
        ------
        FileFormatError
            If the two files of a bracket don't go together.
        """
        first = records[0]
        if len(records) == 1:
            return tuple(
                NativeDataset(f, c, resolved.times) for f, c in zip(first.fields, first.coords, strict=True)
            )
        time_dim, own = self.series.temporal.time_dim, self.series.temporal.cadence.calendar
        values, attrs = encode_times([own.instant(time) for time in resolved.times], own)
        datasets = []
        for window in range(len(first.fields)):
            try:
                check_same_grid(first, records[1], window)
                with allocating(2 * _nbytes(first, window), file=first.record.identity[0]):
                    fields, coords = bracket(first, records[1], window, time_dim, allocate)
            except FileFormatError as error:
                error.epoch = own.text(own.instant(resolved.anchor))
                raise
            if first.time_name:
                times = allocate(values.shape, values.dtype)
                times[...] = values
                named = fields if first.time_name in fields else coords
                named[first.time_name] = NativeField(times, (time_dim,), attrs)
            datasets.append(NativeDataset(fields, coords, resolved.times))
        return tuple(datasets)

    def read_ahead(self, layout: RecordLayout, abort: AbortToken) -> None:
        """Bring what a decode will need into memory; decodes nothing."""
        plan: RecordPlan = layout.plan
        with self.series.open(plan.path, plan.record.url) as (file, _):
            read_ahead(file, [(each.variable.info, each.plan) for each in plan.variables], abort)

    @property
    def bad_chunks(self) -> list[tuple[str, BadChunk]]:
        """Files and chunks that could not be read and came out as NaN, each once."""
        with self._noting:
            return list(self._bad_chunks)

    def _note_bad(self, path: str, chunks: tuple[BadChunk, ...]) -> None:
        with self._noting:
            self._bad_chunks.update(dict.fromkeys((path, chunk) for chunk in chunks))

    # Checks.

    def selected(
        self, selection: Selection, contents: Contents, path: str
    ) -> dict[str, tuple[Span | Points, ...]]:
        """Give the selectors of each variable of a file, one per axis."""
        temporal = self.series.source.temporal
        return resolve(
            selection,
            contents.dims(contents.fields),
            contents.dims(contents.coords),
            contents.sizes,
            time_dim=None if temporal is None else temporal.time_dim,
            file=path,
        )

    def _check_sizes(self, contents: Contents, path: str) -> None:
        temporal = self.series.source.temporal
        reference = None if temporal is None else self.series.reference()
        if temporal is None or reference is None or reference.identity == contents.identity:
            return
        for dim, size in contents.sizes.items():
            expected = reference.sizes.get(dim, size)
            if dim != temporal.time_dim and size != expected:
                raise FileFormatError(
                    f"dimension {dim!r} has length {size}, but {expected} in {reference.identity[0]}",
                    file=path, hint="Declare series on different grids as two sources",
                )  # fmt: skip


def _nbytes(decoded: DecodedRecord, window: int) -> int:
    fields = (*decoded.fields[window].values(), *decoded.coords[window].values())
    return sum(field.data.nbytes for field in fields)


def _chunk_nbytes(request: ArrayRequest) -> int:
    """Bytes of a decoded chunk, which a decode has to have room for."""
    return math.prod(request.info.chunks) * request.info.dtype.itemsize


def assembly_nbytes(resolved: Resolved, layouts: Sequence[RecordLayout]) -> int:
    """Bytes that :meth:`RecordReader.assemble` will allocate: both halves of every bracketed array."""
    if len(resolved.records) == 1:
        return 0
    first, second = layouts[0], layouts[-1]
    others = {(output.window, output.name): output.dtype for output in second.outputs}
    total = 2 * 8 * int(first.plan.windows)  # the time coordinate, named among the fields or not
    time_axes = first.plan.time_axes
    for one in first.outputs:
        if one.name in time_axes:
            dtype = np.promote_types(one.dtype, others.get((one.window, one.name), one.dtype))
            total += 2 * (one.nbytes // one.dtype.itemsize) * dtype.itemsize
    return total


def _check_version(record: RecordRef, contents: Contents, path: str) -> None:
    if contents.identity != record.identity:
        raise DecodeError(
            "the file was replaced while it was being read",
            file=path,
            hint="Read it again; a group, start again",
        )
