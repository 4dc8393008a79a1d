"""Windows meet the chunk grid: which chunks to read, and what of each goes where.

Pure arithmetic, no I/O, and the only code that knows it. :func:`plan_reads` takes the shape and chunk grid
of one stored array and, for each Window, one selector per axis. It yields every touched chunk exactly once,
however many Windows touch it, each with a :class:`Placement` per Window. Chunks between two Windows are
never touched: the union is of chunks, not of bounding boxes.

Per axis, the part of a Window that falls into one chunk is a table of *runs*: ``count`` elements from
``src`` on (stride ``step``) inside the chunk go to ``dst`` on (stride 1) in the output. A box has one run
per chunk; an index list has one per stretch of neighbours.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from earthsciio.errors import TooLarge
from earthsciio.selection import Points, Span

__all__ = ["ArrayPlan", "AxisPart", "ChunkRead", "Placement", "plan_reads"]

#: Chunks that are planned at once. Each takes some hundred bytes and microseconds, so a file that declares
#: 10**12 of them, none of them written, would be planned for days.
MOST_CHUNKS = 1 << 22
#: Columns of a run table.
SRC, DST, COUNT, STEP = range(4)

Index: TypeAlias = slice | npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class AxisPart:
    """What one Window takes from one chunk along one axis.

    Attributes
    ----------
    runs : numpy.ndarray
        Shape (n, 4), int64: columns ``SRC`` (inside the chunk), ``DST`` (in the output), ``COUNT``, ``STEP``.
    """

    runs: npt.NDArray[np.int64]

    @property
    def count(self) -> int:
        """Elements taken."""
        return int(self.runs[:, COUNT].sum())

    def _index(self, start: int, step: npt.NDArray[Any]) -> Index:
        if len(self.runs) == 1:
            first, count, stride = int(self.runs[0, start]), int(self.runs[0, COUNT]), int(step[0])
            return slice(first, first + (count - 1) * stride + 1, stride)
        counts = self.runs[:, COUNT]
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        gathered: npt.NDArray[np.int64] = np.repeat(self.runs[:, start], counts)
        gathered += within * np.repeat(step, counts)
        return gathered

    def source(self) -> Index:
        """Give the NumPy index into the chunk."""
        return self._index(SRC, self.runs[:, STEP])

    def target(self) -> Index:
        """Give the NumPy index into the output."""
        return self._index(DST, np.ones(len(self.runs), dtype=np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """One chunk's share of one Window: a part per axis; the share is their outer product."""

    window: int
    parts: tuple[AxisPart, ...]

    def source(self) -> tuple[Any, ...]:
        """Give the NumPy index of the share inside the chunk."""
        return _outer([part.source() for part in self.parts])

    def target(self) -> tuple[Any, ...]:
        """Give the NumPy index of the share inside the Window's output."""
        return _outer([part.target() for part in self.parts])


@dataclass(frozen=True, slots=True, eq=False)
class ChunkRead:
    """A chunk to read once, and where its elements go."""

    chunk: tuple[int, ...]
    placements: tuple[Placement, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ArrayPlan:
    """All reads of one array for K Windows.

    Attributes
    ----------
    shapes : tuple of tuple of int
        Output shape of each Window, time axis (of length 1) included.
    axes : tuple
        Per Window and axis, the touched chunk coordinates, ascending, each with its part.
    """

    shapes: tuple[tuple[int, ...], ...]
    axes: tuple[tuple[Mapping[int, AxisPart], ...], ...]

    def __iter__(self) -> Iterator[ChunkRead]:
        """Yield the touched chunks in storage order, each once."""
        touched: dict[tuple[int, ...], list[Placement]] = {}
        for window, axes in enumerate(self.axes):
            for chunk in itertools.product(*axes):
                parts = tuple(axis[coordinate] for axis, coordinate in zip(axes, chunk, strict=True))
                touched.setdefault(chunk, []).append(Placement(window, parts))
        for chunk in sorted(touched):
            yield ChunkRead(chunk, tuple(touched[chunk]))

    def placements(self, chunk: tuple[int, ...]) -> Iterator[Placement]:
        """Yield the share of every Window that touches a chunk."""
        for window, axes in enumerate(self.axes):
            if all(coordinate in axis for axis, coordinate in zip(axes, chunk, strict=True)):
                parts = (axis[coordinate] for axis, coordinate in zip(axes, chunk, strict=True))
                yield Placement(window, tuple(parts))


def plan_reads(
    shape: Sequence[int], chunks: Sequence[int], windows: Sequence[Sequence[Span | Points]]
) -> ArrayPlan:
    """Plan the reads of one array through K Windows.

    Parameters
    ----------
    shape, chunks : sequence of int
        Extent of the array and of one chunk, per axis. Edge chunks may stick out of the array.
    windows : sequence of sequence of Span or Points
        Per Window one selector per axis.

    Returns
    -------
    ArrayPlan
        Iterate it for the chunk reads.

    Raises
    ------
    SelectionRangeError
        If a selector lies outside the array.
    TooLarge
        If more than :data:`MOST_CHUNKS` chunks are touched.
    """
    for selectors in windows:
        for axis, (selector, size) in enumerate(zip(selectors, shape, strict=True)):
            selector.check(f"axis {axis}", size)
    touched = sum(
        math.prod(_touched(selector, length) for selector, length in zip(window, chunks, strict=True))
        for window in windows
    )
    if touched > MOST_CHUNKS:
        raise TooLarge(f"{touched} chunks of {tuple(chunks)} elements are more than {MOST_CHUNKS} at once")
    axes = tuple(
        # an axis may be as long as it likes where another one is empty
        tuple(_split(selector, length) for selector, length in zip(window, chunks, strict=True))
        if all(map(len, window))
        else tuple({} for _ in window)
        for window in windows
    )
    return ArrayPlan(tuple(tuple(len(selector) for selector in window) for window in windows), axes)


def _touched(selector: Span | Points, chunk: int) -> int:
    """Count the chunks that a selector touches along its axis; of an index list at most."""
    count = len(selector)
    if isinstance(selector, Points) or selector.step > chunk or not count:
        return count
    last = selector.start + (count - 1) * selector.step
    return last // chunk - selector.start // chunk + 1


@lru_cache(maxsize=1024)
def _split(selector: Span | Points, chunk: int) -> Mapping[int, AxisPart]:
    """Cut a selector at the chunk borders of its axis. Remembered: the next record asks the same again."""
    if isinstance(selector, Span):
        return dict(_split_span(selector, chunk))
    return _split_points(selector.values, chunk)


def _split_span(span: Span, chunk: int) -> Iterator[tuple[int, AxisPart]]:
    position = 0
    index = span.start
    while index < span.stop:
        coordinate = index // chunk
        end = min(span.stop, (coordinate + 1) * chunk)
        count = -((index - end) // span.step)
        run = np.array([[index - coordinate * chunk, position, count, span.step]], dtype=np.int64)
        yield coordinate, AxisPart(run)
        position += count
        index += count * span.step


def _split_points(values: npt.NDArray[np.int64], chunk: int) -> dict[int, AxisPart]:
    if len(values) == 0:
        return {}
    coordinates = values // chunk
    # a run ends where the next index is not the neighbour, or lies in another chunk
    breaks = np.flatnonzero((np.diff(values) != 1) | (np.diff(coordinates) != 0)) + 1
    starts = np.concatenate([[0], breaks])
    counts = np.diff(np.concatenate([starts, [len(values)]]))
    owner = coordinates[starts]
    runs = np.column_stack([values[starts] - owner * chunk, starts, counts, np.ones_like(counts)])
    order = np.argsort(owner, kind="stable")
    cuts = np.flatnonzero(np.diff(owner[order])) + 1
    return {int(owner[group[0]]): AxisPart(runs[group]) for group in np.split(order, cuts)}


def _outer(indices: list[Index]) -> tuple[Any, ...]:
    """Combine per-axis indices as an outer product, in slices where all of them are."""
    if all(isinstance(index, slice) for index in indices):
        return tuple(indices)
    lists = [np.arange(i.start, i.stop, i.step) if isinstance(i, slice) else i for i in indices]
    return np.ix_(*lists)
