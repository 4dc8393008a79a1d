"""Buffers: memory that samples are decoded into, and that is used again when nobody holds it any more.

Fresh memory costs a page fault per page, a third of the time of a full-field decode, so a group uses its
blocks again. Whether a block is free is not a matter of bookkeeping but of fact: the arrays handed out
have a :class:`Lease` at the end of their ``base`` chain, views of views and memoryviews included, and the
block comes back when the lease dies with the last of them. That may happen on any thread and at any
moment, inside a lock too, so all a dying lease does is to put its block on a deque.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from earthsciio.fields import Array, NativeDataset, NativeField

__all__ = [
    "Lease",
    "Pool",
    "Returns",
    "arrays_of",
    "footprint",
    "footprint_of",
    "owner",
    "seal",
    "seal_fields",
]


class Returns:
    """Where dying leases put their blocks; takes no more than :attr:`room` bytes, the rest is freed.

    Its counters are changed without a lock, by whichever thread drops an array; they may be off by a
    block between two calls of :meth:`collect`, which starts them over.
    """

    __slots__ = ("_blocks", "_nbytes", "room")

    def __init__(self) -> None:
        self._blocks: deque[Array] = deque()
        self._nbytes = 0
        self.room = 0

    def put(self, block: Array) -> None:
        """Take a block back, or let go of it."""
        if self._nbytes + block.nbytes <= self.room:
            self._nbytes += block.nbytes
            self._blocks.append(block)

    def collect(self) -> list[Array]:
        """Give what came back since the last call."""
        found: list[Array] = []
        while self._blocks:
            found.append(self._blocks.popleft())
        self._nbytes = 0
        return found


class Lease:
    """A block of memory in use; the last owner in the ``base`` chain of every array that lies in it."""

    __slots__ = ("__array_interface__", "__weakref__", "_block", "_returns", "nbytes")

    def __init__(self, block: Array, returns: Returns) -> None:
        self.nbytes = block.nbytes
        self._block = block
        self._returns = returns
        self.__array_interface__ = {
            "data": (block.ctypes.data, False),
            "shape": block.shape,
            "typestr": "|u1",
            "version": 3,
        }

    def __del__(self) -> None:
        if hasattr(self, "_returns"):  # an interrupt may have kept it from being made
            self._returns.put(self._block)

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Lay an array over the block; the block lives as long as the array or any view of it."""
        return np.asarray(self).view(dtype).reshape(shape)


class Pool:
    """Idle blocks, by size; one is used for arrays of exactly its size, so that accounts are exact."""

    __slots__ = ("_idle", "nbytes", "returns")

    def __init__(self) -> None:
        self._idle: dict[int, list[Array]] = {}
        self.nbytes = 0
        self.returns = Returns()

    def take(self, sizes: Iterable[int]) -> list[Array]:
        """Give an idle block for each of the sizes for which there is one."""
        found = []
        for size in sizes:
            blocks = self._idle.get(size)
            if blocks:
                found.append(blocks.pop())
                self.nbytes -= size
        return found

    def give(self, block: Array) -> None:
        """Add an idle block."""
        self._idle.setdefault(block.nbytes, []).append(block)
        self.nbytes += block.nbytes

    def shrink(self, wanted: int) -> None:
        """Free idle blocks, the largest first, until `wanted` bytes are free or none is left."""
        for size in sorted(self._idle, reverse=True):
            blocks = self._idle[size]
            while blocks and wanted > 0:
                blocks.pop()
                self.nbytes -= size
                wanted -= size
            if not blocks:
                del self._idle[size]


def owner(array: Array) -> tuple[object, int]:
    """Find who owns the memory of an array, a Lease or else the last array, and how many bytes that is."""
    base: object = array.base
    while isinstance(base, np.ndarray):
        array, base = base, base.base
    return (base, base.nbytes) if isinstance(base, Lease) else (array, array.nbytes)


def footprint(arrays: Iterable[Array]) -> dict[int, int]:
    """Give the bytes of every distinct owner of the arrays' memory, by the owner's ``id``."""
    owners = (owner(array) for array in arrays)
    return {id(who): nbytes for who, nbytes in owners}


def arrays_of(*fields: Mapping[str, NativeField]) -> list[Array]:
    """List the arrays of some fields."""
    return [field.data for named in fields for field in named.values()]


def footprint_of(datasets: Iterable[NativeDataset]) -> dict[int, int]:
    """Give the same of datasets."""
    return footprint(array for ds in datasets for array in arrays_of(ds.variables, ds.coords))


def _seal_array(array: Array) -> Array:
    """Make an array of ours read-only for good; of others' memory give a read-only view."""
    if isinstance(owner(array)[0], Lease):
        link: Any = array
        while isinstance(link, np.ndarray):
            link.flags.writeable = False
            link = link.base
        return array
    view = array.view()
    view.flags.writeable = False
    return view


def seal_fields(fields: Mapping[str, NativeField]) -> dict[str, NativeField]:
    """Give fields with the same arrays, read-only."""
    return {name: NativeField(_seal_array(f.data), f.dims, f.attrs) for name, f in fields.items()}


def seal(dataset: NativeDataset) -> NativeDataset:
    """Give a dataset with the same arrays, read-only."""
    return NativeDataset(seal_fields(dataset.variables), seal_fields(dataset.coords), dataset.times)
