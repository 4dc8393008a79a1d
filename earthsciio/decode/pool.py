"""Decoded chunks, kept for whoever needs another part of them.

A chunk that spans several records is wanted again with the next record. The pool holds such chunks within a
byte budget: a request *claims* what it touches, finds each chunk ready, being loaded by another request, or
its own to load, and gives the claim back when its outputs are written. What is claimed is never evicted.
Room is made by dropping what is needed last, where the order of use is known, else what was used longest
ago. A chunk that could not be loaded leaves no trace: the next request tries again. A prefetch group, whose
chunks share a budget with its samples, makes room its own way (:mod:`earthsciio.prefetch.chunks`).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from . import native
from .abort import AbortToken
from .changes import Changes

__all__ = ["ChunkKey", "ChunkPool", "Claim", "PoolStats"]

#: Seconds between looks at the abort word while another request loads.
_PATIENCE = 0.1


class ChunkKey(NamedTuple):
    """Which chunk: that of equal keys is the same.

    Attributes
    ----------
    keep : hashable
        The request's ``keep``, which says which file.
    array : str
        The array in it.
    chunk : tuple of int
        Chunk coordinates.
    encoded : bool
        Whether the bytes are those that the engine makes of a chunk, and not a format's own.
    """

    keep: Hashable
    array: str
    chunk: tuple[int, ...]
    encoded: bool


@dataclass(frozen=True, slots=True)
class PoolStats:
    """What a pool did since it was made.

    Attributes
    ----------
    hits, loads, evicted : int
        Chunks found, chunks loaded and kept, chunks dropped for room.
    nbytes, peak_nbytes : int
        Held now, and at most.
    """

    hits: int = 0
    loads: int = 0
    evicted: int = 0
    nbytes: int = 0
    peak_nbytes: int = 0


@dataclass(slots=True, eq=False)
class Claim:
    """One chunk, held for one request.

    Attributes
    ----------
    key : hashable
        Which chunk.
    data : numpy.ndarray or None
        Its bytes, or the room for them; None while another request loads it, or where there is no room.
    loads : bool
        Whether the holder has to fill `data` and say so.
    waits : bool
        Whether another request is loading it.
    shuffled : bool
        Whether the bytes are in byte planes.
    """

    key: Hashable
    data: npt.NDArray[np.uint8] | None
    loads: bool = False
    waits: bool = False
    shuffled: bool = False


@dataclass(slots=True, eq=False)
class _Entry:
    data: npt.NDArray[np.uint8]
    next_use: float
    last_use: int
    ready: bool = False
    shuffled: bool = False
    pins: int = 1


class ChunkPool:
    """Decoded chunks within a byte budget; used from any thread.

    Parameters
    ----------
    max_bytes : int
        What the chunks may take together, claimed ones included. A chunk that has no room is not kept.
    lock : threading.RLock, optional
        Protects it. Default: one of its own.
    changes : Changes, optional
        Where threads wait for it. Default: its own.
    """

    def __init__(
        self, max_bytes: int, lock: threading.RLock | None = None, changes: Changes | None = None
    ) -> None:
        self.max_bytes = max_bytes
        self._lock = threading.RLock() if lock is None else lock
        self._changes = Changes() if changes is None else changes
        self._entries: dict[Hashable, _Entry] = {}
        self._clock = 0
        self._hits = self._loads = self._evicted = self._nbytes = self._peak = 0

    def claim(self, wanted: Sequence[tuple[Hashable, int]], next_use: float | None = None) -> list[Claim]:
        """Claim chunks.

        Parameters
        ----------
        wanted : sequence of (key, int)
            Chunks and their decoded sizes in bytes.
        next_use : float, optional
            When these chunks are wanted next, in any unit that grows with time; infinity for never. Unknown
            by default: then the one used longest ago is dropped first.

        Returns
        -------
        list of Claim
            In the order of `wanted`. Load what ``loads``, then wait for what ``waits``, never the other way
            round: two requests would wait for each other.
        """
        with self._lock:
            self._clock += 1
            return [self._claim(key, nbytes, next_use) for key, nbytes in wanted]

    def _claim(self, key: Hashable, nbytes: int, next_use: float | None) -> Claim:
        entry = self._entries.get(key)
        if entry is None:
            data = self._obtain(nbytes, next_use)
            if data is None:
                return Claim(key, None)
            entry = _Entry(data, 0.0, 0)
            self._entries[key] = entry
            self._nbytes += nbytes
            self._peak = max(self._peak, self._nbytes)
            self._touch(entry, next_use)
            return Claim(key, entry.data, loads=True)
        if not entry.ready:
            return Claim(key, None, waits=True)
        self._hits += 1
        entry.pins += 1
        self._touch(entry, next_use)
        return Claim(key, entry.data, shuffled=entry.shuffled)

    def _touch(self, entry: _Entry, next_use: float | None) -> None:
        entry.last_use = self._clock
        entry.next_use = -math.inf if next_use is None else next_use  # all alike: the oldest goes first

    def _obtain(self, nbytes: int, next_use: float | None) -> npt.NDArray[np.uint8] | None:  # noqa: ARG002
        """Give memory for a chunk; None where there is no room."""
        if nbytes > self.max_bytes:
            return None
        free = [(key, entry) for key, entry in self._entries.items() if not entry.pins]
        free.sort(key=lambda pair: (-pair[1].next_use, pair[1].last_use))
        for key, _ in free:
            if self._nbytes + nbytes <= self.max_bytes:
                break
            self._drop(key)
            self._evicted += 1
        return native.SEAM.allocate(nbytes) if self._nbytes + nbytes <= self.max_bytes else None

    def _drop(self, key: Hashable) -> None:
        self._nbytes -= self._entries.pop(key).data.nbytes

    def publish(self, claim: Claim, *, shuffled: bool) -> None:
        """Say that a chunk this request had to load is there; the claim stays."""
        with self._lock:
            entry = self._entries[claim.key]
            entry.ready, entry.shuffled = True, shuffled
            claim.loads = False
            self._loads += 1
            self._changes.announce()

    def wait(self, claims: Sequence[Claim], abort: AbortToken) -> None:
        """Wait until no other request is loading any of these chunks.

        Claim them again afterwards: one that the other request could not load is then this one's to load.

        Raises
        ------
        Cancelled
            If `abort` is set meanwhile.
        """
        while True:
            with self._lock:
                entries = [self._entries.get(claim.key) for claim in claims]
                if all(entry is None or entry.ready for entry in entries):
                    return
                ticket = self._changes.ticket()
            abort.check()
            while not ticket.acquire(timeout=_PATIENCE):
                abort.check()

    def release(self, claims: Sequence[Claim]) -> None:
        """Give claims back; chunks that were to be loaded and are not there are forgotten."""
        with self._lock:
            for claim in claims:
                if claim.data is None:
                    continue
                entry = self._entries[claim.key]
                entry.pins -= 1
                if not entry.ready or (entry.next_use == math.inf and not entry.pins):
                    self._drop(claim.key)
            self._changes.announce()

    def clear(self) -> None:
        """Drop every chunk that nobody claims."""
        with self._lock:
            for key in [key for key, entry in self._entries.items() if not entry.pins]:
                self._drop(key)

    def stats(self) -> PoolStats:
        """Say what the pool did so far."""
        with self._lock:
            return PoolStats(self._hits, self._loads, self._evicted, self._nbytes, self._peak)
