"""How HDF5 stores one dataset: its layout, filters, fill and the place of every chunk.

Asked of h5py once per dataset, under its lock; afterwards the chunks are read without it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from earthsciio.fields import Array

from .base import ArrayInfo
from .encoded import EncodedArray, Filter, Located, PieceIndex, TableIndex

if TYPE_CHECKING:
    import h5py

__all__ = ["describe", "filled"]

#: Chunk coordinates are numbered in int64.
_MAX_CHUNKS = 2**62


def filled(dataset: h5py.Dataset, shape: tuple[int, ...]) -> Array:
    """Give the storage fill: zeros where the file defines none or never writes it."""
    import h5py

    plist = dataset.id.get_create_plist()
    defined = plist.fill_value_defined()
    if dataset.dtype.kind == "O":
        user_defined = defined == h5py.h5d.FILL_VALUE_USER_DEFINED
        return np.full(shape, dataset.fillvalue if user_defined else b"", dtype=object)
    undefined = defined == h5py.h5d.FILL_VALUE_UNDEFINED
    if undefined or plist.get_fill_time() == h5py.h5d.FILL_TIME_NEVER:
        return np.zeros(shape, dtype=dataset.dtype)
    return np.full(shape, dataset.fillvalue, dtype=dataset.dtype)


def describe(dataset: h5py.Dataset, info: ArrayInfo) -> EncodedArray | str:
    """Say how a dataset is stored, or why the engine can't read it.

    Parameters
    ----------
    dataset : h5py.Dataset
        Open.
    info : ArrayInfo
        The array it is delivered as.

    Returns
    -------
    EncodedArray or str
        The reason is a few words.
    """
    import h5py

    if info.dtype.kind == "O":
        return "text"
    if not _is_plain(dataset, info.dtype):
        return "unusual element type"
    plist = dataset.id.get_create_plist()
    layout = plist.get_layout()
    shape = tuple(dataset.shape)
    fill = filled(dataset, (1,)).astype(info.dtype).tobytes()
    if layout == h5py.h5d.CHUNKED:
        filters = tuple(_filters(plist))
        return EncodedArray(info.dtype, shape, info.chunks, filters, fill, _index(dataset, info.chunks))
    if layout == h5py.h5d.COMPACT:
        inline = np.array(dataset[()], dtype=info.dtype, order="C")
        return EncodedArray(
            info.dtype, shape, info.chunks, (), fill, _pieces(0, info), pieces=True, inline=inline
        )
    if layout != h5py.h5d.CONTIGUOUS:
        return "virtual dataset"
    if dataset.external:
        return "external storage"
    offset = dataset.id.get_offset()
    if offset is None:
        return EncodedArray(info.dtype, shape, info.chunks, (), fill, _no_chunks(info), pieces=True)
    return EncodedArray(info.dtype, shape, info.chunks, (), fill, _pieces(offset, info), pieces=True)


def _is_plain(dataset: h5py.Dataset, dtype: np.dtype[Any]) -> bool:
    """Whether the stored bits are those of a NumPy type: HDF5 knows 24-bit integers and other floats too."""
    import h5py

    stored = dataset.id.get_type()
    if isinstance(stored, h5py.h5t.TypeEnumID):
        stored = stored.get_super()
    plain = np.dtype(np.int8) if dtype.kind == "b" else dtype
    return dtype.kind in "iufb" and bool(stored == h5py.h5t.py_create(plain))


def _filters(plist: Any) -> list[Filter]:
    found = []
    for position in range(plist.get_nfilters()):
        code, _, parameters, name = plist.get_filter(position)
        found.append(Filter(int(code), name.decode("utf-8", "replace"), tuple(int(p) for p in parameters)))
    return found


def _index(dataset: h5py.Dataset, chunks: tuple[int, ...]) -> TableIndex:
    grid = tuple(-(-size // length) for size, length in zip(dataset.shape, chunks, strict=True))
    if math.prod(grid) > _MAX_CHUNKS:
        raise ValueError(f"a grid of {grid} chunks")
    rows: list[tuple[int, ...]] = []

    def note(chunk: Any) -> None:
        if chunk.byte_offset is not None:
            rows.append((*chunk.chunk_offset, chunk.byte_offset, chunk.size, chunk.filter_mask))

    if math.prod(grid):
        dataset.id.chunk_iter(note)
    # addresses are unsigned 64-bit numbers: a damaged one may not fit
    table = np.array(rows, dtype=np.uint64).reshape(len(rows), len(grid) + 3).astype(np.int64)
    origins, (offsets, sizes, masks) = table[:, : len(grid)], table[:, len(grid) :].T
    lengths = np.array(chunks, dtype=np.int64)
    if np.any(table < 0) or np.any(origins % lengths):
        raise ValueError("the chunk index is damaged")
    numbers = np.zeros(len(rows), dtype=np.int64)
    inside = np.ones(len(rows), dtype=bool)
    for axis, count in enumerate(grid):
        coordinate = origins[:, axis] // lengths[axis]
        inside &= coordinate < count
        numbers = numbers * count + np.minimum(coordinate, count - 1)
    order = np.flatnonzero(inside)
    order = order[np.argsort(numbers[order], kind="stable")]
    return TableIndex(grid, numbers[order], Located(offsets[order], sizes[order], masks[order]))


def _no_chunks(info: ArrayInfo) -> TableIndex:
    nothing = np.empty(0, dtype=np.int64)
    grid = tuple(-(-size // length) for size, length in zip(info.shape, info.chunks, strict=True))
    return TableIndex(grid, nothing, Located(nothing, nothing, nothing))


def _pieces(begin: int, info: ArrayInfo) -> PieceIndex:
    strides = [info.dtype.itemsize]
    for size in reversed(info.shape[1:]):
        strides.append(strides[-1] * size)
    return PieceIndex(
        begin, tuple(reversed(strides[: len(info.shape)])), info.shape, info.chunks, info.dtype.itemsize
    )
