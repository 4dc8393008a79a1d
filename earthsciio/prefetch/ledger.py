"""The ledger: how many bytes a group holds, and the promise that it asks before it allocates.

Three things count: memory that something of the group refers to (once, however many refer to it), memory
that a decode has reserved but not allocated yet, and idle blocks. A :class:`Reservation` is made with the
exact size before a decode starts and turns into memory piece by piece; what is left of it is given back
at the end. The ledger decides nothing: who may have how much is the engine's business. None of its methods
locks; the engine's lock protects it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from earthsciio.fields import Array

from .buffers import Lease, Pool, owner

__all__ = ["Ledger", "Reservation"]


class Ledger:
    """The account of one group.

    Parameters
    ----------
    limit : int
        Bytes the group may hold.

    Attributes
    ----------
    holders : dict of int to int
        How many things of the group refer to each owner of memory, by the owner's ``id``.
    peak : int
        The most bytes held since :meth:`restart_peak`.
    peak_ever : int
        The most bytes ever held.
    in_flight : int
        Reservations that are not closed.
    """

    __slots__ = ("_held", "_most", "_reserved", "holders", "in_flight", "limit", "peak", "peak_ever", "pool")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.holders: dict[int, int] = {}
        self.pool = Pool()
        self.peak = 0
        self.peak_ever = 0
        self.in_flight = 0
        self._held = 0
        self._reserved = 0
        self._most = 0  # ever held or reserved, idle blocks left out

    @property
    def nbytes(self) -> int:
        """Bytes held, reserved and idle."""
        return self._held + self._reserved + self.pool.nbytes

    def restart_peak(self) -> None:
        """Count the peak from now on."""
        self.peak = self.nbytes

    def hold(self, footprint: Mapping[int, int], spent: int = 0) -> None:
        """Count memory that something refers to from now on; it must, or ids would be used again.

        `spent` bytes of it were reserved.
        """
        self._reserved -= spent  # in one step with the rest: in between there would seem to be room
        for who, nbytes in footprint.items():
            if who not in self.holders:
                self._held += nbytes
            self.holders[who] = self.holders.get(who, 0) + 1
        self._note()

    def release(self, footprint: Mapping[int, int]) -> None:
        """Undo a :meth:`hold`, before the reference goes."""
        for who, nbytes in footprint.items():
            self.holders[who] -= 1
            if not self.holders[who]:
                del self.holders[who]
                self._held -= nbytes
        self._note()

    def new_bytes(self, footprint: Mapping[int, int]) -> int:
        """Give the bytes that holding this would add."""
        return sum(nbytes for who, nbytes in footprint.items() if who not in self.holders)

    def collect(self) -> None:
        """Make blocks that nobody holds any more idle, or free them where there is no room.

        Idle blocks are of use as far as the group needs as much again, so there are never more of them than
        it has held.
        """
        for block in self.pool.returns.collect():
            if self.nbytes + block.nbytes <= self.limit and self.pool.nbytes + block.nbytes <= self._most:
                self.pool.give(block)
        self._note()

    def shortfall(self, sizes: Iterable[int], extra: int) -> int:
        """Give by how many bytes such a reservation would pass the limit; nonpositive where it fits.

        Idle blocks don't count: they are used for it, or freed.
        """
        return self._held + self._reserved + sum(sizes) + extra - self.limit

    def reserve(self, sizes: Iterable[int], extra: int, lock: threading.RLock) -> Reservation:
        """Reserve arrays of these sizes, and `extra` bytes.

        Idle blocks of these sizes are set aside for it, others that stand in its way are freed.
        """
        sizes = list(sizes)
        nbytes = sum(sizes) + extra
        blocks = self.pool.take(sizes)
        self.pool.shrink(self.nbytes + nbytes - self.limit)
        self._reserved += nbytes
        self.in_flight += 1
        self._note()
        self.collect()  # what came back just before that found room that is gone now
        return Reservation(self, nbytes, blocks, lock)

    def successor(self, limit: int) -> Ledger:
        """Give an empty account that goes on with the peaks of this one."""
        ledger = Ledger(limit)
        ledger.peak, ledger.peak_ever = self.peak, self.peak_ever
        return ledger

    def close(self) -> None:
        """Free idle blocks and keep none from now on."""
        self.limit = 0
        self.pool.shrink(self.pool.nbytes)
        self._note()
        self.pool.returns.collect()

    def give_back(self, nbytes: int) -> None:
        """Undo a part of a reservation."""
        self._reserved -= nbytes
        self._note()

    def _note(self) -> None:
        self._most = max(self._most, self._held + self._reserved)
        self.peak = max(self.peak, self.nbytes)
        self.peak_ever = max(self.peak_ever, self.peak)
        self.pool.returns.room = max(0, self.limit - self.nbytes)


class Reservation:
    """Memory that one task may use; its :meth:`allocate` is what a decode is given.

    Everything allocated counts until :meth:`close`, whether or not the decode keeps it.
    """

    __slots__ = ("_blocks", "_held", "_keep", "_lock", "ledger", "left")

    def __init__(self, ledger: Ledger, nbytes: int, blocks: list[Array], lock: threading.RLock) -> None:
        self.left = nbytes
        self.ledger = ledger
        self._blocks = blocks
        self._lock = lock
        self._held: list[dict[int, int]] = []
        self._keep: list[object] = []  # what is counted must live

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any], /) -> Array:
        """Give an array, from an idle block if there is one of its size. Takes the lock."""
        dtype = np.dtype(dtype)
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        with self._lock:
            if dtype.hasobject or nbytes == 0:
                array: Array = np.empty(shape, dtype)
            else:
                array = Lease(self._block(nbytes), self.ledger.pool.returns).array(shape, dtype)
            who, nbytes = owner(array)
            self.hold({id(who): nbytes}, who)
        return array

    def hold(self, footprint: Mapping[int, int], keep: object) -> None:
        """Count memory that the task refers to until it is done; `keep` must keep it alive.

        What nobody has counted yet comes out of what was reserved.
        """
        spent = min(self.ledger.new_bytes(footprint), self.left)
        self.left -= spent
        self._held.append(dict(footprint))
        self._keep.append(keep)
        self.ledger.hold(footprint, spent)

    def close(self) -> None:
        """Give back what was not used, and stop counting the rest for the task."""
        for footprint in self._held:
            self.ledger.release(footprint)
        self._held.clear()
        self._keep.clear()
        self.ledger.give_back(self.left)
        self.left = 0
        for block in self._blocks:
            self.ledger.pool.give(block)
        self._blocks.clear()
        self.ledger.in_flight -= 1

    def _block(self, nbytes: int) -> Array:
        for i, block in enumerate(self._blocks):
            if block.nbytes == nbytes:
                return self._blocks.pop(i)
        idle = self.ledger.pool.take([nbytes])
        return idle[0] if idle else np.empty(nbytes, np.uint8)
