"""Where the stored bytes of an array lie, and what was done to them: what the engine asks of a format.

A format that can say this about an array lets the engine read and decode its chunks without the format's
library, without a lock, on every core. One that can't gives a reason instead, and the engine takes
:meth:`OpenFile.read_chunk <earthsciio.formats.base.OpenFile.read_chunk>`.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

from earthsciio.fields import Array

from .base import ArrayInfo, OpenFile

__all__ = [
    "ABSENT",
    "ChunkIndex",
    "EncodedArray",
    "EncodedFile",
    "Filter",
    "Located",
    "PieceIndex",
    "TableIndex",
    "as_encoded",
]

Integers: TypeAlias = npt.NDArray[np.int64]

#: Offset of a chunk that was never written.
ABSENT = -1


@dataclass(frozen=True, slots=True)
class Filter:
    """One step that was applied when a chunk was stored.

    Attributes
    ----------
    code : int
        HDF5's registered number; other formats use the number of the same step.
    name : str
        For messages.
    parameters : tuple of int
        The step's own.
    """

    code: int
    name: str
    parameters: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Located:
    """Where chunks lie.

    Attributes
    ----------
    offsets, sizes : numpy.ndarray
        Shape (n,), int64: first byte (or ABSENT) and stored bytes of each chunk.
    masks : numpy.ndarray
        Shape (n,), int64: bit i set means that filter i was left out for the chunk.
    """

    offsets: Integers
    sizes: Integers
    masks: Integers


class ChunkIndex(Protocol):
    """Finds chunks; immutable, used from any thread."""

    def locate(self, chunks: Integers) -> Located:
        """Locate chunks, given as an (n, rank) array of chunk coordinates inside the grid."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class TableIndex:
    """Chunks listed one by one, as HDF5 does.

    Attributes
    ----------
    grid : tuple of int
        Chunks along each axis.
    keys : numpy.ndarray
        Shape (m,), int64, ascending: the listed chunks, numbered in C order of the grid.
    entries : Located
        Of the listed chunks. Absent ones are not listed.
    """

    grid: tuple[int, ...]
    keys: Integers
    entries: Located

    def __post_init__(self) -> None:
        if np.any(np.diff(self.keys) <= 0):
            raise ValueError("a chunk is listed twice")

    def locate(self, chunks: Integers) -> Located:
        """Look the chunks up."""
        numbers = np.zeros(len(chunks), dtype=np.int64)
        for axis, count in enumerate(self.grid):
            numbers = numbers * count + chunks[:, axis]
        if len(self.keys) == 0:
            return Located(np.full(len(chunks), ABSENT), np.zeros_like(numbers), np.zeros_like(numbers))
        at = np.minimum(np.searchsorted(self.keys, numbers), len(self.keys) - 1)
        found = self.keys[at] == numbers
        if found.all():
            return Located(self.entries.offsets[at], self.entries.sizes[at], self.entries.masks[at])
        return Located(
            np.where(found, self.entries.offsets[at], ABSENT),
            np.where(found, self.entries.sizes[at], 0),
            np.where(found, self.entries.masks[at], 0),
        )


@dataclass(frozen=True, slots=True, eq=False)
class PieceIndex:
    """Pieces of an array whose elements lie in order, as contiguous HDF5 and classic files have them.

    Attributes
    ----------
    begin : int
        Byte of the first element.
    strides : tuple of int
        Bytes from one index to the next, per axis.
    shape, chunks : tuple of int
        Extent of the array and of a piece.
    itemsize : int
        Bytes per element.
    """

    begin: int
    strides: tuple[int, ...]
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    itemsize: int

    def locate(self, chunks: Integers) -> Located:
        """Work out where the pieces lie."""
        offsets = np.full(len(chunks), self.begin, dtype=np.int64)
        sizes = np.full(len(chunks), self.itemsize, dtype=np.int64)
        for axis, (stride, size, length) in enumerate(
            zip(self.strides, self.shape, self.chunks, strict=True)
        ):
            first = chunks[:, axis] * length
            offsets += first * stride
            sizes *= np.minimum(length, size - first)
        return Located(offsets, sizes, np.zeros_like(sizes))


@dataclass(frozen=True, slots=True, eq=False)
class EncodedArray:
    """One array as it is stored.

    Attributes
    ----------
    dtype : numpy.dtype
        Of the elements once the filters are undone, byte order included.
    shape : tuple of int
        Stored extent; shorter than the array's where it falls short of an unlimited dimension.
    chunks : tuple of int
        Extent of one chunk, the same as the array's ``ArrayInfo.chunks``.
    filters : tuple of Filter
        In the order in which they were applied.
    fill : bytes
        One element: what stands where nothing was written.
    index : ChunkIndex
        Finds the chunks.
    pieces : bool
        Whether a chunk at the edge is stored clipped, and not whole.
    inline : numpy.ndarray or None
        All stored bytes, of a small array that has no place of its own in the file.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    filters: tuple[Filter, ...]
    fill: bytes
    index: ChunkIndex
    pieces: bool = False
    inline: Array | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if len(self.fill) != self.dtype.itemsize:
            raise ValueError(f"a fill of {len(self.fill)} bytes for elements of {self.dtype.itemsize}")
        if len(self.shape) != len(self.chunks):
            raise ValueError(f"shape {self.shape} and chunks {self.chunks} differ in rank")

    @property
    def chunk_nbytes(self) -> int:
        """Bytes of a whole chunk once decoded."""
        return math.prod(self.chunks) * self.dtype.itemsize


@runtime_checkable
class EncodedFile(OpenFile, Protocol):
    """What an open file offers on top of :class:`~earthsciio.formats.base.OpenFile` to be read fast."""

    path: str

    def encoded(self, info: ArrayInfo) -> EncodedArray | str:
        """Say where an array's bytes lie, or why that can't be said. Cheap when asked again."""
        ...

    def descriptor(self) -> AbstractContextManager[int]:
        """Lend a descriptor to ``pread`` from, for the time of a ``with`` block.

        Raises
        ------
        DecodeError
            If the file is not the one that was opened.
        """
        ...


_encoded_kinds: dict[type, bool] = {}


def as_encoded(file: OpenFile) -> EncodedFile | None:
    """Give the file as one that can be read fast, or None. A class is looked at once: that is slow."""
    kind = type(file)
    if kind not in _encoded_kinds:
        _encoded_kinds[kind] = isinstance(file, EncodedFile)
    return cast("EncodedFile", file) if _encoded_kinds[kind] else None
