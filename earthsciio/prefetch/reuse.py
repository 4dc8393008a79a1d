"""Reuse: when an order needs something again, and what to let go of first when memory runs out.

Pure. The order is known, so the best policy is known too: let go of what is needed again furthest in the
future (Belady, 1966). :class:`Uses` answers when an anchor of a member is needed next; :func:`victims`
picks what to evict among things that may share memory.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["NEVER", "Candidate", "Item", "Uses", "victims"]

#: The slot at which something is needed that the order does not need again.
NEVER: Final = sys.maxsize

T = TypeVar("T")


class Item(NamedTuple):
    """An anchor of a member: what a sample is of."""

    key: str
    anchor: int


class Uses:
    """Which anchor of each member every slot of an order needs, and which slots need an anchor.

    Parameters
    ----------
    order : sequence of int
        The epoch of each slot.
    of_epoch : mapping of str to numpy.ndarray
        Per member, the index of the anchor in force in each epoch.
    """

    __slots__ = ("_anchors", "_first", "_run_ends", "_slots", "n_slots")

    def __init__(self, order: Sequence[int], of_epoch: Mapping[str, NDArray[np.int64]]) -> None:
        epochs = np.asarray(order, dtype=np.int64)
        self.n_slots = len(epochs)
        self._anchors: dict[str, array[int]] = {}  # per member: the anchor of each slot
        self._slots: dict[str, array[int]] = {}  # per member: slots sorted by their anchor, then ascending
        self._first: dict[str, array[int]] = {}  # per member: where the slots of each anchor begin in that
        self._run_ends: dict[str, array[int]] = {}  # per member: the last slot of the run around each slot
        for key, anchor_of in of_epoch.items():
            anchors = anchor_of[epochs]
            by_anchor = np.argsort(anchors, kind="stable")
            n_anchors = int(anchor_of.max(initial=-1)) + 1
            self._anchors[key] = array("q", anchors.tobytes())
            self._slots[key] = array("q", by_anchor.astype(np.int64).tobytes())
            first = np.searchsorted(anchors[by_anchor], np.arange(n_anchors + 1))
            self._first[key] = array("q", first.astype(np.int64).tobytes())
            (ends,) = np.nonzero(np.append(anchors[1:] != anchors[:-1], True)[: len(anchors)])
            run_ends = np.repeat(ends, np.diff(ends, prepend=-1))
            self._run_ends[key] = array("q", run_ends.astype(np.int64).tobytes())

    def at(self, key: str, slot: int) -> Item:
        """Give what `slot` needs of member `key`."""
        return Item(key, self._anchors[key][slot])

    def next(self, item: Item, slot: int) -> int:
        """Give the first slot at or after `slot` that needs `item`, or :data:`NEVER`."""
        slots = self._slots[item.key]
        at, stop = self._span(item, slot)
        return slots[at] if at < stop else NEVER

    def count(self, item: Item, slot: int, stop: int) -> int:
        """Give how many slots from `slot` on and before `stop` need `item`."""
        first, end = self._span(item, slot)
        return max(0, bisect_left(self._slots[item.key], stop, first, end) - first)

    def next_beyond(self, item: Item, slot: int, provided: Callable[[int], int]) -> int:
        """Give the first slot at or after `slot` that needs `item` and is not provided for.

        Parameters
        ----------
        item : Item
            What is needed.
        slot : int
            Where to begin.
        provided : callable
            How many of the slots from `slot` on and before the one it is given, that need `item`, are
            provided for. Counting instead of going from one to the next keeps the cost from growing
            with the order.
        """
        slots = self._slots[item.key]
        first, stop = self._span(item, slot)
        at = bisect_left(range(first, stop), True, key=lambda at: at - first + 1 > provided(slots[at] + 1))
        return slots[first + at] if first + at < stop else NEVER

    def run_end(self, key: str, slot: int) -> int:
        """Give the last slot of the run of slots around `slot` that need the same anchor of a member."""
        return self._run_ends[key][slot]

    def _span(self, item: Item, slot: int) -> tuple[int, int]:
        """Where in the sorted slots those are that need `item`, from `slot` on."""
        first = self._first[item.key]
        if not 0 <= item.anchor < len(first) - 1:
            return 0, 0
        lo, hi = first[item.anchor], first[item.anchor + 1]
        return bisect_left(self._slots[item.key], slot, lo, hi), hi


@dataclass(frozen=True, slots=True)
class Candidate(Generic[T]):
    """Something that can be let go of.

    Attributes
    ----------
    next_use : int
        The slot that needs it next, or :data:`NEVER`.
    footprint : mapping of int to int
        The memory it keeps: bytes of each owner of memory, by the owner's identity.
    what : object
        The thing.
    """

    next_use: int
    footprint: Mapping[int, int]
    what: T


def victims(
    candidates: Iterable[Candidate[T]], holders: Mapping[int, int], wanted: int
) -> tuple[list[T], int]:
    """Choose what to let go of so that `wanted` bytes become free, furthest next use first.

    Parameters
    ----------
    candidates : iterable of Candidate
        What may go. Two may keep the same memory, which is free when both are gone.
    holders : mapping of int to int
        How many hold each owner of memory, candidates and others.
    wanted : int
        Bytes to free.

    Returns
    -------
    chosen : list
        Those to let go of; each helps to free something. All that help, where they free less than `wanted`.
    freed : int
        Bytes that become free.
    """
    chosen: list[Candidate[T]] = []
    left: dict[int, int] = {}
    freed = 0
    for candidate in sorted(candidates, key=lambda candidate: -candidate.next_use):
        if freed >= wanted:
            break
        chosen.append(candidate)
        for owner, nbytes in candidate.footprint.items():
            left[owner] = left.get(owner, holders[owner]) - 1
            if left[owner] == 0:
                freed += nbytes
    helpful = [c.what for c in chosen if any(left[owner] == 0 for owner in c.footprint)]
    return helpful, freed
