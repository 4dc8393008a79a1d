"""The books: all that a group holds and how many bytes that is, and how room is made in it.

They are kept together so that they can be begun anew together, when somebody was cut short amid an entry.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from earthsciio.decode.changes import Changes

from .buffers import footprint_of
from .chunks import Chunks
from .holdings import Holdings, Lent, RecordUnit, SampleUnit, Unit
from .ledger import Ledger
from .reuse import Candidate, Item, victims
from .timeline import Timeline

__all__ = ["Books"]


class Books:
    """The samples, records and chunks that a group holds, and the account of them.

    Parameters
    ----------
    ledger : Ledger
        The account, empty.
    timeline : Timeline
        Names anchors.
    lock : threading.RLock
        The engine's, which protects all of this and is expected to be held.
    changes : Changes
        The engine's.
    depth : int
        Slots ahead of the cursor that samples are made for.
    on_drop : callable
        Told of every unit dropped, and whether the order needs it again.
    lent : weakref.WeakValueDictionary, optional
        What was handed out from earlier books.
    """

    def __init__(
        self,
        ledger: Ledger,
        timeline: Timeline,
        lock: threading.RLock,
        changes: Changes,
        depth: int,
        on_drop: Callable[[Unit, bool], None],
        lent: Lent | None = None,
    ) -> None:
        self._lock = lock
        self.ledger = ledger
        self.held = Holdings(ledger, timeline, on_drop, lent)
        self.chunks = Chunks(self.held, ledger, lock, changes, depth, self._make_room_for_chunk)

    def make_room(self, slot: int, sizes: list[int], extra: int, promised: int) -> bool:
        """Make room for a sample of `slot` at the cost of what is needed later; say whether there is.

        `promised` bytes are for samples that come first and have not reserved them yet.
        """
        self.ledger.collect()
        short = self.ledger.shortfall(sizes, extra)
        if short + promised <= 0:
            return True
        if promised:
            return False
        # a chunk is of use to the slot too, but never stands in its way
        alone = slot == self.held.cursor and not self.ledger.in_flight
        return self._evict(slot, -1, short, at_least=0 if alone else short)

    def revive(self, item: Item, slot: int, n_windows: int) -> bool:
        """Hold a dropped sample that the consumer still has, if there is one and room for it."""
        datasets = self.held.find_lent(item, n_windows)
        if datasets is None or item in self.held.samples:
            return False
        marks = footprint_of(datasets)
        nbytes = self.ledger.new_bytes(marks)
        if not self.make_room(slot, [], nbytes, 0):
            return False
        reservation = self.ledger.reserve([], nbytes, self._lock)
        reservation.hold(marks, datasets)
        self.held.add(SampleUnit(item, datasets, marks, copied=True, served=1))
        reservation.close()
        return True

    def tidy(self) -> None:
        """Drop what the order needs no more."""
        if self.held.tidy():
            self.chunks.tidy()

    def begin(self, order: tuple[int, ...], cursor: int) -> None:
        """Follow a new order from slot `cursor`; what is held stays."""
        self.held.begin(order, cursor)
        self.chunks.tidy()
        self.ledger.collect()
        self.ledger.restart_peak()

    def clear(self) -> None:
        """Let go of all memory."""
        self.held.clear()
        self.chunks.clear()
        self.ledger.close()

    def _make_room_for_chunk(self, nbytes: int, slot: int) -> bool:
        """Make room for a chunk at the cost of what is needed after `slot`; say whether there is."""
        self.ledger.collect()
        short = self.ledger.shortfall([], nbytes)
        return short <= 0 or self._evict(slot, slot, short, at_least=short)

    def _evict(self, slot: int, chunks_slot: int, wanted: int, at_least: int) -> bool:
        """Let go of what is needed last, and after these slots, if that frees enough."""
        candidates: list[Candidate[Any]] = [
            *self.held.evictable(slot),
            *self.chunks.evictable(chunks_slot),
        ]
        chosen, freed = victims(candidates, self.ledger.holders, wanted)
        if freed < at_least:
            return False
        candidates.clear()
        while chosen:
            self._drop(chosen.pop(0))  # nothing here may refer to it when its memory is collected
        self.ledger.collect()
        return True

    def _drop(self, what: Any) -> None:
        if isinstance(what, RecordUnit | SampleUnit):
            self.held.drop(what)
        else:
            self.chunks.evict(what)
