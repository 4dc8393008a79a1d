"""Holdings: the decoded records and samples a group keeps, and when the order needs each of them again.

Records and samples are *units*. A unit is held from when it is made until it is dropped: either for lack
of memory, the one needed furthest in the future first, or because the order needs it no more, and then at
the take after its last use, so that an order that turns round finds it.

When a record is needed again is known exactly as far as its takers are: the records behind an anchor show
when its files are opened. Until then a bracket's record is taken to be shared with the neighbouring
anchor, which is what brackets do. A record is not needed for samples that are held as copies.

What the group has dropped but the consumer still holds is found again by a weak reference, so that a
sample that comes again is the same object. The engine's lock protects all of this.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias
from weakref import WeakValueDictionary

import numpy as np

from earthsciio.fields import NativeDataset
from earthsciio.records import DecodedRecord, RecordLayout, RecordRef

from .ledger import Ledger
from .reuse import NEVER, Candidate, Item, Uses
from .timeline import Timeline

__all__ = ["Holdings", "RecordUnit", "SampleUnit", "Unit"]

#: Anchors that are made of the same records: member and number.
Kind: TypeAlias = Item
RecordKey: TypeAlias = tuple[str, RecordRef]
#: What was handed out: by item and Window.
Lent: TypeAlias = "WeakValueDictionary[tuple[Item, int], NativeDataset]"


@dataclass(slots=True, eq=False)
class RecordUnit:
    """A decoded record of a member.

    Attributes
    ----------
    last_slot : int
        The last slot that it went into a sample of.
    due : int
        After which slot to see whether the order still needs it; :data:`NEVER`: at the next take.
    """

    key: str
    decoded: DecodedRecord
    layout: RecordLayout
    footprint: dict[int, int]
    last_slot: int
    due: int = NEVER

    @property
    def name(self) -> str:
        """How events call it."""
        return record_name(self.decoded.record)


@dataclass(slots=True, eq=False)
class SampleUnit:
    """The sample of an anchor, one dataset per Window.

    Attributes
    ----------
    copied : bool
        Whether it has memory of its own, so that its records are of no use to it.
    until : int or None
        The last slot it serves, if it was staged in the caller's memory; None: any slot.
    served : int
        How often it was handed out.
    due : int
        As of a record.
    """

    item: Item
    datasets: tuple[NativeDataset, ...]
    footprint: dict[int, int]
    copied: bool
    until: int | None = None
    served: int = 0
    due: int = NEVER

    @property
    def key(self) -> str:
        """The member."""
        return self.item.key

    @property
    def name(self) -> str:
        """How events call it."""
        return f"sample {self.item.anchor}"

    def serves(self, slot: int) -> bool:
        """Whether it is good for `slot`."""
        return self.until is None or slot <= self.until


Unit: TypeAlias = RecordUnit | SampleUnit


def record_name(record: RecordRef) -> str:
    """Give the name of a record in events and messages."""
    return record.url if record.index is None else f"{record.url}[{record.index}]"


@dataclass(slots=True)
class _Takers:
    """Which anchors are made of which records, as far as that is known."""

    records: dict[Kind, tuple[RecordRef, ...]] = field(default_factory=dict)
    kinds: dict[RecordKey, dict[Kind, Item]] = field(default_factory=dict)  # with an anchor of each kind

    def learn(self, kind: Kind, item: Item, records: tuple[RecordRef, ...]) -> None:
        if self.records.get(kind) != records:
            self.forget(kind)
        self.records[kind] = records
        for record in records:
            self.kinds.setdefault((kind.key, record), {})[kind] = item

    def forget(self, kind: Kind) -> None:
        for record in set(self.records.pop(kind, ())):
            kinds = self.kinds[kind.key, record]
            kinds.pop(kind, None)
            if not kinds:
                del self.kinds[kind.key, record]


class Holdings:
    """What one group holds.

    Parameters
    ----------
    ledger : Ledger
        Counts it.
    timeline : Timeline
        Names anchors.
    on_drop : callable
        Told of every unit dropped, and whether the order needs it again.
    lent : weakref.WeakValueDictionary, optional
        What was handed out by others of the group; see :meth:`lent`.
    """

    def __init__(
        self,
        ledger: Ledger,
        timeline: Timeline,
        on_drop: Callable[[Unit, bool], None],
        lent: Lent | None = None,
    ) -> None:
        self.records: dict[RecordKey, RecordUnit] = {}
        self.samples: dict[Item, SampleUnit] = {}
        self._of_kind: dict[Kind, dict[Item, SampleUnit]] = {}  # the same, by kind
        self._ledger = ledger
        self._timeline = timeline
        self._on_drop = on_drop
        self._lent: Lent = WeakValueDictionary() if lent is None else lent
        self._takers = _Takers()
        self._due: dict[
            int, dict[Unit, None]
        ] = {}  # units by the slot at which to look at them; ordered sets
        self._passed: deque[int] = deque()
        self.begin((), 0)

    # The order.

    def begin(self, order: tuple[int, ...], cursor: int) -> None:
        """Follow a new order from slot `cursor`; what is held stays, what was staged for the old one goes."""
        self.tidy()  # by the old order: what turning round finds does not depend on the workers
        of_epoch, kinds = self._timeline.of_epoch, self._timeline.kinds
        self.uses = Uses(order, of_epoch)
        own_kinds = all(np.array_equal(numbers, np.arange(len(numbers))) for numbers in kinds.values())
        self._kind_uses = (
            self.uses if own_kinds else Uses(order, {key: kinds[key][of_epoch[key]] for key in of_epoch})
        )
        self.cursor = cursor
        self._due.clear()
        for sample in [sample for sample in self.samples.values() if sample.until is not None]:
            self.drop(sample)
        for unit in self._units():
            if isinstance(unit, RecordUnit):
                unit.last_slot = -1  # slots of the new order are others
            self._file(unit, cursor)
        for kind in list(self._takers.records):
            self._forget_if_useless(kind)

    def advance(self) -> None:
        """Go past the slot at the cursor; what follows from that waits for :meth:`tidy`."""
        self._passed.append(self.cursor)
        self.cursor += 1

    def tidy(self) -> bool:
        """Drop what the order needs no more, slot by slot that it went past; say whether it went past any."""
        passed = bool(self._passed)
        while self._passed:
            self._tidy(self._passed.popleft())
        return passed

    def _tidy(self, slot: int) -> None:
        """Drop what was last needed before `slot`, and note what it needed last."""
        now = slot + 1  # the cursor may be further
        spent = list(self._due.pop(NEVER, ()))
        for unit in list(self._due.pop(slot, ())):
            self._file(unit, now)
            if isinstance(unit, SampleUnit) and unit.until is not None:
                spent.append(unit)  # staged: never kept
        for unit in spent:
            if self._next_use(unit, now) == NEVER:
                self.drop(unit)
            else:
                self._file(unit, now)
        for key in self._timeline.anchors:
            self._forget_if_useless(self._kind(self.uses.at(key, slot)))

    def learn(self, item: Item, records: tuple[RecordRef, ...]) -> None:
        """Note which records the sample of `item` is made of."""
        self._takers.learn(self._kind(item), item, records)

    # Units.

    def add(self, unit: Unit) -> None:
        """Hold a unit, in place of one of the same name."""
        if isinstance(unit, RecordUnit):
            old: Unit | None = self.records.get((unit.key, unit.decoded.record))
        else:
            old = self.samples.get(unit.item)
        if old is not None:
            self.drop(old)
        if isinstance(unit, RecordUnit):
            self.records[unit.key, unit.decoded.record] = unit
        else:
            self.samples[unit.item] = unit
            self._of_kind.setdefault(self._kind(unit.item), {})[unit.item] = unit
        self._ledger.hold(unit.footprint)
        self._file(unit, self.cursor)

    def drop(self, unit: Unit) -> None:
        """Let go of a unit. A sample that was handed out is found again while the consumer holds it."""
        needed = self._next_use(unit, self.cursor) != NEVER
        self._ledger.release(unit.footprint)
        self._due.get(unit.due, {}).pop(unit, None)
        if isinstance(unit, RecordUnit):
            del self.records[unit.key, unit.decoded.record]
            for kind in list(self._takers.kinds.get((unit.key, unit.decoded.record), ())):
                self._forget_if_useless(kind)
        else:
            del self.samples[unit.item]
            alike = self._of_kind[self._kind(unit.item)]
            del alike[unit.item]
            if not alike:
                del self._of_kind[self._kind(unit.item)]
            self._lend(unit)
        self._on_drop(unit, needed)

    def lent(self) -> Lent:
        """Give what was handed out and can come again. Changes nothing else, whatever state this is in."""
        for sample in list(self.samples.values()):
            self._lend(sample)
        return self._lent

    def find_lent(self, item: Item, n_windows: int) -> tuple[NativeDataset, ...] | None:
        """Give a sample that was dropped here, but is held by the consumer."""
        found = [self._lent.get((item, window)) for window in range(n_windows)]
        datasets = tuple(dataset for dataset in found if dataset is not None)
        return datasets if len(datasets) == n_windows else None

    def kinds(self, key: str, anchors: range) -> frozenset[int]:
        """Give the numbers of the kinds that anchors of a member are of; anchors it has not are of none."""
        return frozenset(self._timeline.kinds[key][max(anchors.start, 0) : max(anchors.stop, 0)].tolist())

    def first_made(self, key: str, kinds: frozenset[int], *, but: Item | None = None) -> int:
        """Give the first slot from the cursor on that a sample of one of some kinds is not there for.

        Parameters
        ----------
        key : str
            The member.
        kinds : frozenset of int
            Their numbers.
        but : Item, optional
            One that is not asked for.
        """
        out = None if but is None or but.key != key else self._kind(but)
        # one of many kinds is mostly needed soon: to look at the next slots costs less than to look at all
        for slot in range(self.cursor, min(self.cursor + len(kinds), self._kind_uses.n_slots)):
            kind = self._kind_uses.at(key, slot)
            if kind.anchor in kinds and kind != out and self._first_made(kind) == slot:
                return slot
        each = (Kind(key, number) for number in kinds)
        return min((self._first_made(kind) for kind in each if kind != out), default=NEVER)

    def _first_made(self, kind: Kind) -> int:
        return self._made_next(kind, self.cursor, copied=False)

    def evictable(self, slot: int) -> list[Candidate[Unit]]:
        """List what may go in favour of `slot`: all that no slot up to it needs."""
        units = ((self._next_use(unit, self.cursor), unit) for unit in self._units())
        return [Candidate(next_use, unit.footprint, unit) for next_use, unit in units if next_use > slot]

    def clear(self) -> None:
        """Drop everything; there is no order any more."""
        self.begin((), 0)
        for unit in list(self._units()):
            self.drop(unit)

    # Inside.

    def _lend(self, sample: SampleUnit) -> None:
        if sample.served and sample.until is None:
            for window, dataset in enumerate(sample.datasets):
                self._lent[sample.item, window] = dataset

    def _units(self) -> Iterable[Unit]:
        return [*self.samples.values(), *self.records.values()]

    def _kind(self, item: Item) -> Kind:
        return Kind(item.key, int(self._timeline.kinds[item.key][item.anchor]))

    def _kinds_taking(self, unit: RecordUnit) -> Iterator[Kind]:
        record, kinds = unit.decoded.record, self._takers.kinds.get((unit.key, unit.decoded.record), {})
        for kind, item in kinds.items():
            yield kind
            records = self._takers.records[kind]
            if len(set(records)) == 2:
                neighbour = item.anchor + (1 if records[1] == record else -1)
                if 0 <= neighbour < len(self._timeline.anchors[unit.key]):
                    other = self._kind(Item(unit.key, neighbour))
                    if other not in self._takers.records:
                        yield other

    def _next_use(self, unit: Unit, now: int) -> int:
        """Give the first slot from `now` on that needs a unit."""
        if isinstance(unit, SampleUnit):
            slot = self.uses.next(unit.item, now)
            return slot if unit.serves(slot) else NEVER
        kinds = self._kinds_taking(unit)
        return min((self._made_next(kind, now, copied=True) for kind in kinds), default=NEVER)

    def _made_next(self, kind: Kind, now: int, *, copied: bool) -> int:
        """Give the first slot from `now` on that a sample of `kind` must be made for, not just handed out.

        With `copied`, one that lies in its records' memory is as good as none.
        """
        slot = self._kind_uses.next(kind, now)
        held = [sample for sample in self._of_kind.get(kind, {}).values() if sample.copied or not copied]
        if slot == NEVER or not any(sample.item == self.uses.at(kind.key, slot) for sample in held):
            return slot
        return self._kind_uses.next_beyond(
            kind, now, lambda stop: sum(self._served(sample, now, stop) for sample in held)
        )

    def _served(self, sample: SampleUnit, now: int, stop: int) -> int:
        """Give how many slots from `now` on and before `stop` a sample that is held serves."""
        last = stop if sample.until is None else min(stop, sample.until + 1)
        return self.uses.count(sample.item, now, last)

    def _file(self, unit: Unit, now: int) -> None:
        next_use = self._next_use(unit, now)
        if next_use == NEVER and isinstance(unit, RecordUnit) and unit.last_slot >= now:
            next_use = unit.last_slot  # it is used up, but its sample is not
        unit.due = next_use
        self._due.setdefault(next_use, {})[unit] = None

    def _forget_if_useless(self, kind: Kind) -> None:
        records = self._takers.records.get(kind, ())
        if self._kind_uses.next(kind, self.cursor) == NEVER and not any(
            (kind.key, record) in self.records for record in records
        ):
            self._takers.forget(kind)
