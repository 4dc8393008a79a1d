"""Stored chunks that several samples are cut from: inflated once, and kept until the last of them is made.

Where a chunk spans several records, the samples of neighbouring anchors need it, and so do those of other
members that read the file. It is worth keeping as long as the order has such samples to make, and not one
slot longer. Kept chunks are part of what the group holds: they give way to any slot that is queued, and
compete with what else is kept by when each is needed next. Where there is no room for a chunk it is inflated
again; values never depend on it.

A record with chunks of its own needs none of this, and pays for a look at a dictionary.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Hashable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from earthsciio.decode.changes import Changes
from earthsciio.decode.pool import ChunkKey, ChunkPool
from earthsciio.records import ChunkSpan, Keep, RecordLayout

from .buffers import footprint
from .holdings import Holdings
from .ledger import Ledger
from .reuse import NEVER, Candidate, Item
from .tasks import Plan

__all__ = ["Chunks"]


class _Takers(NamedTuple):
    """The anchors of a member that take records of a span, and the numbers of their kinds."""

    anchors: range
    kinds: frozenset[int]


class Chunks(ChunkPool):
    """The chunk pool of one group, in its ledger and under its lock, which its methods expect to be held.

    Parameters
    ----------
    held : Holdings
        Knows which samples are still to be made.
    ledger : Ledger
        Counts the chunks.
    lock : threading.RLock
        The engine's. :meth:`keep` and what a decode calls take it.
    changes : Changes
        The engine's.
    depth : int
        Slots ahead of the cursor that samples are made for.
    make_room : callable
        Takes bytes and a slot; lets go of what no slot up to that one needs, and says whether there is room.
    """

    def __init__(
        self,
        held: Holdings,
        ledger: Ledger,
        lock: threading.RLock,
        changes: Changes,
        depth: int,
        make_room: Callable[[int, int], bool],
    ) -> None:
        super().__init__(ledger.limit, lock, changes)
        self._held = held
        self._ledger = ledger
        self._depth = depth
        self._make_room = make_room
        self._takers: dict[ChunkSpan, dict[str, _Takers]] = {}  # per member

    def learn(self, item: Item, plan: Plan) -> None:
        """Note who needs the chunks behind a sample."""
        for offset, layout in enumerate(
            plan.layouts.values()
        ):  # a bracket's second record is the next anchor's
            anchor = item.anchor + offset
            for use in layout.spans:
                anchors = range(anchor - use.before, anchor + use.after + 1)
                takers = self._takers.setdefault(use.span, {})
                if item.key not in takers or takers[item.key].anchors != anchors:
                    takers[item.key] = _Takers(anchors, self._held.kinds(item.key, anchors))

    def keep(self, item: Item, layout: RecordLayout) -> Keep | None:
        """Say which chunks of a record of `item` to take from the pool, or to leave there. Takes the lock."""
        with self._lock:
            kept = self._spans()
            needed = {use.span: self._next_use(use.span, making=item) for use in layout.spans}
            spans = frozenset(span for span, slot in needed.items() if slot != NEVER or span in kept)
            return Keep(self, spans, _time(min(needed[span] for span in spans))) if spans else None

    def tidy(self) -> None:
        """Let go of the chunks that the order needs no more, and see when it needs the others."""
        needed = {span: self._next_use(span) for span in self._spans()}
        for key, entry in list(self._entries.items()):
            entry.next_use = _time(needed[_span(key)])
            if entry.next_use == math.inf and not entry.pins:
                self._drop(key)
        kept, horizon = self._spans(), self._held.cursor + self._depth
        for span in [span for span in self._takers if span not in kept]:
            if self._first_made(self._takers[span], None) > horizon:  # it is learned again by then
                del self._takers[span]

    def evictable(self, after: int) -> list[Candidate[Hashable]]:
        """List the chunks that may go: those not in use that no slot up to `after` needs."""
        return [
            Candidate(_slot(entry.next_use), footprint([entry.data]), key)
            for key, entry in self._entries.items()
            if not entry.pins and entry.next_use > after
        ]

    def evict(self, key: Hashable) -> None:
        """Let go of a chunk."""
        self._drop(key)
        self._evicted += 1

    def _spans(self) -> set[Hashable]:
        return {_span(key) for key in self._entries}

    def _next_use(self, span: Hashable, making: Item | None = None) -> int:
        """Give the first slot that another sample than `making` is to be made for with a record in `span`."""
        assert isinstance(span, ChunkSpan)
        takers = self._takers.get(span, {})
        if (
            span.stop - span.first == 1
        ):  # a record is kept as such: its chunks are of use to other members only
            own = making.key if making is not None else next(iter(takers), "") if len(takers) == 1 else ""
            takers = {key: each for key, each in takers.items() if key != own}
        return self._first_made(takers, making)

    def _first_made(self, takers: Mapping[str, _Takers], making: Item | None) -> int:
        slots = (self._held.first_made(key, each.kinds, but=making) for key, each in takers.items())
        return min(slots, default=NEVER)

    def _obtain(self, nbytes: int, next_use: float | None) -> npt.NDArray[np.uint8] | None:
        slot = NEVER if next_use is None else _slot(next_use)
        if not self._make_room(nbytes, max(slot, self._held.cursor + self._depth)):
            return None
        reservation = self._ledger.reserve([nbytes], 0, self._lock)
        data = reservation.allocate((nbytes,), np.dtype(np.uint8))
        self._ledger.hold(footprint([data]))
        reservation.close()
        return data

    def _drop(self, key: Hashable) -> None:
        self._ledger.release(footprint([self._entries[key].data]))
        super()._drop(key)


def _span(key: Hashable) -> Hashable:
    assert isinstance(key, ChunkKey)
    return key.keep


def _time(slot: int) -> float:
    return math.inf if slot == NEVER else slot


def _slot(time: float) -> int:
    return NEVER if time == math.inf else int(time)
