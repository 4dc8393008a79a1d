"""The engine: what to do next, doing it, and keeping what came of it, under one lock.

A group's order is a list of slots; the engine works on the window of slots from the cursor (the slot the
consumer takes next) to ``depth`` further. Each slot needs a sample of every member, and a sample goes

    new --plan--> planned --admit--> in production --> held --> dropped (and new again, if needed again)
     |              |                     |
     +--------------+--------- error -----+--> failed (until the next order)

*Plan* finds the records behind the anchor and measures them: metadata only, no memory. *Admit* happens
under the lock, in the order of slots: either there is room for everything the sample will allocate, if
need be by evicting what is needed later, and it is reserved, or the sample stays planned and is looked at
again whenever something changes. No thread ever waits for memory, so none that waits holds any back. The
slot at the cursor is admitted, room or not, when nothing else is in production. A record goes

    absent --claimed by a sample in production--> claimed --decoded--> held --> dropped = absent
                                                     |
                                                     +--error, cancel--> absent

Samples that need a record another one has claimed wait for it on their worker, which ends in all cases:
the claimant is running, waits for nothing before it has decoded what it claimed, and settles its claims
when it ends, however it ends. An error settles on the samples that wait, and then on the take of the slot;
behind a slot that failed nothing is planned or admitted.

The lock is held for bookkeeping only, never during I/O, decoding, a transform or a listener. Tasks that
were aborted (their token is set) change nothing any more, and count until they end.

An interrupt can cut the consumer short amid the bookkeeping; so can want of memory a worker. The books are
marked as torn while something is entered. Workers that find them torn leave them alone, and the consumer's
next call mends them: what was held is forgotten, and the order goes on at the cursor. That costs decodes.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from time import perf_counter
from typing import TypeVar

from earthsciio.decode.abort import AbortToken
from earthsciio.errors import Cancelled, GroupStateError
from earthsciio.events import (
    DecodeFinished,
    DecodeStarted,
    Emitter,
    Event,
    Evicted,
    FetchedAhead,
    Submitted,
)
from earthsciio.fields import NativeDataset
from earthsciio.records import RecordLayout, RecordRef, RecordSource

from .books import Books
from .buffers import arrays_of, footprint, footprint_of, seal, seal_fields
from .holdings import Lent, RecordUnit, SampleUnit, Unit, record_name
from .ledger import Ledger
from .reuse import NEVER, Item
from .stats import Tally
from .tasks import Claim, Failure, Fetch, Plan, Settings, Task, forget_frames, make_plan, transformed
from .timeline import Timeline
from .workers import Switch

__all__ = ["Engine"]

J = TypeVar("J")


class _OrphanedError(Exception):
    """Nobody decodes a record that a sample waits for any more."""


class Engine:
    """The working half of a group.

    Methods are called with `lock` held, unless they say otherwise.

    Attributes
    ----------
    lock : threading.RLock
        Taken by ``with`` only, which no interrupt can cut in two.
    torn : bool
        Whether something is being entered, or somebody was cut short at that.
    """

    def __init__(
        self,
        members: Mapping[str, RecordSource],
        timeline: Timeline,
        max_bytes: int,
        settings: Settings,
        emitter: Emitter,
    ) -> None:
        self.lock = threading.RLock()
        self.switch = Switch()
        self.changes, self.busy = self.switch.changes, self.switch.busy
        self.torn = False
        self.timeline = timeline
        self.max_bytes = max_bytes
        self.settings = settings
        self.emitter = emitter
        self.total = Tally(sorted(members))
        self.tally = Tally(sorted(members))  # of the current order
        self.order: tuple[int, ...] | None = None
        self.errors: dict[Item, Failure] = {}
        self.fatal: BaseException | None = None
        self._members = dict(sorted(members.items()))
        self._use(self._new_books(Ledger(max_bytes), None))
        self._leaving: frozenset[object] = frozenset()  # tasks of torn books, whose memory is in no account
        self._first_slot = 0
        self._limit = NEVER  # the first slot that failed
        self._plans: dict[Item, Plan] = {}
        self._tasks: dict[Item, Task] = {}  # those that are not aborted
        self._claims: dict[tuple[str, RecordRef], Claim] = {}
        self._needs: dict[str, int] = {}  # bytes that the last sample of a member was admitted with
        self._fetched: set[Item] = set()
        self._fetch_token = AbortToken()  # of the current order's
        self._announced = 0  # slots whose samples were said to be submitted
        self._outbox: deque[Event] = deque()

    @property
    def cursor(self) -> int:
        """The slot the consumer takes next."""
        return self._held.cursor

    # Orders.

    def begin(self, order: tuple[int, ...], cursor: int) -> None:
        """Follow an order from slot `cursor`."""
        self.abort()
        self.torn = True
        self._books.begin(order, cursor)
        self.tally = Tally(list(self._members))
        self.total.begin_order()
        self._first_slot = self._announced = cursor
        self.order = order  # last: what is cut short has not begun
        self.changes.announce()
        self.torn = False

    def abort(self) -> None:
        """Forget the order and what was to be done for it; tell what is running to stop."""
        self.mend()
        self.torn = True
        self.order = None
        self._forget_work()
        self.fatal = None
        self._limit = NEVER
        self.errors.clear()
        self.changes.announce()
        self.torn = False

    def mend(self) -> None:
        """Begin anew at the cursor, with nothing held, if somebody was cut short; what failed has failed."""
        if not self.torn:
            return
        self._forget_work()
        if not self.settings.threaded:  # it was the consumer itself that was at it
            self.busy.clear()
        books = self._new_books(self.ledger.successor(self.max_bytes), self._held.lent())
        if self.order is not None:
            books.held.begin(self.order, self.cursor)
            self._limit = min(
                (books.held.uses.next(item, self.cursor) for item in self.errors), default=NEVER
            )
        self._leaving = frozenset(job for job in self.busy if isinstance(job, Task))
        self.ledger.close()
        self._use(books)
        self.changes.announce()
        self.torn = False

    def clear(self) -> None:
        """Let go of all memory."""
        self.abort()
        self.torn = True
        self._books.clear()
        self.torn = False

    def _forget_work(self) -> None:
        for task in self._tasks.values():
            task.token.set()
        self._fetch_token.set()
        self._fetch_token = AbortToken()
        for memory in (self._tasks, self._plans, self._claims, self._fetched):
            memory.clear()

    def _new_books(self, ledger: Ledger, lent: Lent | None) -> Books:
        return Books(ledger, self.timeline, self.lock, self.changes, self.settings.depth, self._dropped, lent)

    def _use(self, books: Books) -> None:
        self._books, self.ledger, self._held, self._chunks = books, books.ledger, books.held, books.chunks

    # The consumer's side.

    def settled(self, slot: int) -> bool:
        """Whether every sample of a slot is held or has failed."""
        return all(self._settled(item, slot) for item in self._items(slot))

    def find_in_hand(self, slot: int) -> None:
        """Hold again what the consumer still has of a slot."""
        self.torn = True
        for item in self._items(slot):
            if item not in self._tasks and not self._serves(item, slot):
                self._revive(item, slot)
        self.torn = False

    def failures(self, slot: int) -> dict[str, Failure]:
        """Give what failed of a slot, by member in sorted order."""
        return {item.key: self.errors[item] for item in self._items(slot) if item in self.errors}

    def samples(self, slot: int) -> dict[str, SampleUnit]:
        """Give the samples of a slot, which must all be held."""
        return {item.key: self._held.samples[item] for item in self._items(slot)}

    def changes_at(self, slot: int, item: Item) -> bool:
        """Whether the slot before had another sample of the member, or is before the start."""
        return slot == self._first_slot or self._held.uses.at(item.key, slot - 1) != item

    def hand_out(self, samples: Mapping[str, SampleUnit]) -> None:
        """Go past the slot at the cursor, of which the consumer has the samples."""
        for key, sample in samples.items():
            if sample.served:
                self._count(key, "reused")
            sample.served += 1
            self._fetched.discard(sample.item)
        self._held.advance()
        if not self.settings.threaded:  # else a worker tidies up: the consumer has better things to do
            self._books.tidy()
        self.changes.announce()

    # What to do next.

    def next_task(self) -> Task | None:
        """Give something to do now: the first plan or admissible sample of the window; None if none is.

        It counts as being done from now on, so it must be given to :meth:`run`.
        """
        self._books.tidy()
        if not self._leaving.isdisjoint(self.busy):
            return None
        promised: int | None = 0  # what earlier samples will probably reserve; None: unknown or too much
        seen: set[Item] = set()
        for slot in self._window(self.settings.depth if self.settings.threaded else 1):
            self._announce(slot)
            items = [item for item in self._items(slot) if item not in seen and not self._settled(item, slot)]
            seen.update(items)
            for item in items:  # all are planned before any is made: then it is known what they share
                if item in self._tasks:
                    continue
                if self._revive(item, slot):
                    self.changes.announce()
                elif item not in self._plans:
                    return self._assign(Task(item, slot, self.tally))
            for item in items:
                task = self._tasks.get(item)
                if task is not None and task.plan is None and promised is not None:
                    need = self._needs.get(item.key)
                    promised = None if need is None else promised + need
                elif item in self._plans and promised is not None:
                    task = self._admit(item, slot, promised)
                    if task is not None:
                        return self._assign(task)
                    promised = None
        return None

    def next_fetch(self) -> Fetch | None:
        """Give the next sample to read ahead for; it counts as being done from now on."""
        for slot in self._window(self.settings.depth + self.settings.fetch_ahead):
            for item in self._items(slot):
                if not (item in self._fetched or item in self._tasks or item in self._held.samples):
                    self._fetched.add(item)
                    fetch = Fetch(item, self._fetch_token)
                    self.switch.begin(fetch)
                    return fetch
        return None

    def _window(self, n_slots: int) -> range:
        if self.order is None:
            return range(0)
        return range(self.cursor, min(self.cursor + n_slots, self._limit + 1, len(self.order)))

    def _items(self, slot: int) -> Iterator[Item]:
        return (self._held.uses.at(key, slot) for key in self._members)

    def _serves(self, item: Item, slot: int) -> bool:
        sample = self._held.samples.get(item)
        return sample is not None and sample.serves(slot)

    def _settled(self, item: Item, slot: int) -> bool:
        return self._serves(item, slot) or item in self.errors

    def _assign(self, task: Task) -> Task:
        self._tasks[task.item] = task
        self.switch.begin(task)
        return task

    def _revive(self, item: Item, slot: int) -> bool:
        """Hold a dropped sample that the consumer still has, if there is one and room for it."""
        revived = self._books.revive(item, slot, len(self.settings.windows[item.key]))
        if revived:
            self._plans.pop(item, None)
        return revived

    def _admit(self, item: Item, slot: int, promised: int) -> Task | None:
        """Reserve what a planned sample needs and claim the records it has to decode, if there is room."""
        plan = self._plans[item]
        absent = [
            record
            for record in plan.layouts
            if (item.key, record) not in self._held.records and (item.key, record) not in self._claims
        ]
        sizes = [output.nbytes for record in absent for output in plan.layouts[record].outputs]
        if not self._books.make_room(slot, sizes, plan.extra, promised):
            return None
        del self._plans[item]
        self._needs[item.key] = sum(layout.nbytes for layout in plan.layouts.values()) + plan.extra
        reservation = self.ledger.reserve(sizes, plan.extra, self.lock)
        task = Task(item, slot, self.tally, plan, reservation)
        for record in plan.layouts:
            unit = self._held.records.get((item.key, record))
            claim = self._claims.get((item.key, record))
            if unit is not None:
                unit.last_slot = max(unit.last_slot, slot)
                task.give(unit.decoded, unit.footprint)
            elif claim is not None:
                claim.waiting.append(task)
            else:
                task.claims[record] = self._claims[item.key, record] = Claim()
        return task

    # Doing it.

    def work(self) -> threading.Lock | None:
        """Do one task, or give a ticket for when there may be one. Called without the lock."""
        return self._turn(self.next_task, self.run)

    def read_ahead(self) -> threading.Lock | None:
        """Fetch for one sample, or give a ticket for when there may be one. Called without the lock."""
        return self._turn(self.next_fetch, self._fetch)

    def step(self) -> bool:
        """Do one task on the consumer's own thread; say whether there was one. Called without the lock."""
        try:
            with self.lock:
                self.torn = True
                task = self.next_task()
                self.torn = False
            if task is not None:
                self.run(task)
        except BaseException:
            self.torn = True  # wherever it was
            with self.lock:
                self.mend()
            raise
        return task is not None

    def run(self, task: Task) -> None:
        """Do a task. Called without the lock; only the consumer's own interrupt comes out of it."""
        began = perf_counter()
        result: Plan | SampleUnit | Exception | None = None
        try:
            if task.plan is None:
                result = make_plan(self._members, self.timeline, self.settings, task.item, task.token)
            else:
                result = self._produce(task, task.plan)
        except _OrphanedError:
            result = task.plan  # it decodes the record itself, once there is room for that
        except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to the take that needs it
            forget_frames(error)
            result = error
        except BaseException as error:
            if not self.settings.threaded:
                self.torn = True  # it may have been hit amid an entry
                raise
            forget_frames(error)
            result = GroupStateError(f"a worker was hit by {error!r}", member=task.item.key)
            result.__cause__ = error
        finally:
            self._settle(task, result, began)

    def flush(self) -> None:
        """Tell listeners what happened under the lock. Called without it."""
        with contextlib.suppress(IndexError):  # several threads may empty it
            while True:
                self.emitter(self._outbox.popleft())

    def _turn(self, next_job: Callable[[], J | None], do: Callable[[J], None]) -> threading.Lock | None:
        """Do one job or give a ticket. What goes wrong outside of a job ends the take; a start mends it."""
        job: J | None = None
        ticket: threading.Lock | None = None
        try:
            with self.lock:
                if not self.torn and self.fatal is None:
                    self.torn = True
                    job = next_job()
                    self.torn = False
                if job is None:
                    ticket = self.changes.ticket()
            try:
                self.flush()
            finally:
                if job is not None:
                    do(job)
            self.flush()
        except BaseException as error:  # noqa: BLE001 - the take that waits raises it
            forget_frames(error)
            self.fatal = error
            self.changes.announce()
        return ticket

    def _produce(self, task: Task, plan: Plan) -> SampleUnit:
        assert task.reservation is not None
        key = task.item.key
        for record in list(task.claims):
            task.token.check()
            self._decode(task, record, plan.layouts[record])
        self._wait_for_inputs(task, plan)
        inputs = [task.inputs[record] for record in plan.resolved.records]
        datasets = self._members[key].assemble(plan.resolved, inputs, task.reservation.allocate)
        datasets = tuple(seal(dataset) for dataset in datasets)
        until = None
        transform = self.settings.transform
        if transform is not None:
            results, anchor = [], self.timeline.anchors[key][task.item.anchor]
            for dataset in datasets:
                task.token.check()
                results.append(transformed(transform, key, dataset, anchor))
            if any(result is None for result in results):
                until = task.slot  # the slots that follow on it are found when it is held
            datasets = tuple(
                NativeDataset({}, {}, plan.resolved.times) if result is None else seal(result)
                for result in results
            )
        copied = plan.assembled > 0 or transform is not None
        return SampleUnit(task.item, datasets, footprint_of(datasets), copied, until)

    def _decode(self, task: Task, record: RecordRef, layout: RecordLayout) -> None:
        """Decode a record that `task` has claimed, and give it to all that wait for it."""
        assert task.reservation is not None
        key, anchor = task.item.key, self.timeline.anchors[task.item.key][task.item.anchor]
        name = record_name(record)
        self._emit(lambda: DecodeStarted(key=key, anchor=anchor, record=name))
        began = perf_counter()

        def finished(nbytes: int, error: str | None = None) -> None:
            seconds = perf_counter() - began
            self._emit(
                lambda: DecodeFinished(
                    key=key, anchor=anchor, record=name, seconds=seconds, nbytes=nbytes, error=error
                )
            )

        try:
            keep = self._chunks.keep(task.item, layout)
            decoded = self._members[key].decode_record(
                record, layout, task.reservation.allocate, task.token, keep
            )
        except BaseException as error:
            finished(0, repr(error))
            if isinstance(error, Exception):
                with self.lock:
                    for waiting in self._end_claim(task, record).waiting:
                        waiting.failed = error
            raise
        decoded = replace(
            decoded,
            fields=tuple(map(seal_fields, decoded.fields)),
            coords=tuple(map(seal_fields, decoded.coords)),
        )
        marks = footprint(arrays_of(*decoded.fields, *decoded.coords))
        with self.lock:
            if self.torn:
                raise Cancelled("its group was interrupted")
            self.torn = True
            takers = (task, *self._end_claim(task, record).waiting)
            for taker in takers:
                taker.give(decoded, marks)
            for tally in (task.tally, self.total):
                tally.decoded(key, decoded, layout.nbytes)
            if task.slot <= self._limit and not task.token.is_set():
                last_slot = max(taker.slot for taker in takers)
                self._held.add(RecordUnit(key, decoded, layout, marks, last_slot))
            self.torn = False
        finished(layout.nbytes)

    def _end_claim(self, task: Task, record: RecordRef) -> Claim:
        claim = task.claims.pop(record)
        if not task.token.is_set():  # claims of an aborted order are forgotten, and may have been made anew
            self._claims.pop((task.item.key, record), None)
        self.changes.announce()
        return claim

    def _wait_for_inputs(self, task: Task, plan: Plan) -> None:
        """Wait for the records that others decode."""
        while True:
            with self.lock:
                if all(record in task.inputs for record in plan.layouts):
                    return
                task.token.check()
                if task.failed is not None:
                    raise task.failed
                if task.orphaned:
                    raise _OrphanedError
                ticket = self.changes.ticket()
            began = perf_counter()
            ticket.acquire()
            task.waited += perf_counter() - began

    def _settle(self, task: Task, result: Plan | SampleUnit | Exception | None, began: float) -> None:
        """End a task: keep what came of it, and let go of what it held. Takes the lock."""
        with self.lock:
            try:
                if not self.torn:
                    self.torn = True
                    self._enter(task, result, perf_counter() - began - task.waited)
                    self.torn = False
            finally:
                self.busy.discard(task)
                self.changes.announce()

    def _enter(self, task: Task, result: Plan | SampleUnit | Exception | None, seconds: float) -> None:
        for tally in (task.tally, self.total):
            tally.worked(task.item.key, seconds, first=task.slot == self._first_slot)
        for record in list(task.claims):  # those it didn't come to
            for waiting in self._end_claim(task, record).waiting:
                waiting.orphaned = True
        reservation, task.reservation = task.reservation, None
        if reservation is not None and reservation.ledger is not self.ledger:
            reservation = None  # of books that were torn
        if isinstance(result, SampleUnit) and reservation is not None:
            reservation.hold(result.footprint, result)
        if not task.token.is_set():
            del self._tasks[task.item]
            self._keep(task, result)
        if reservation is not None:
            reservation.close()
        task.inputs.clear()

    def _keep(self, task: Task, result: Plan | SampleUnit | Exception | None) -> None:
        item = task.item
        if isinstance(result, Plan):
            self._plans[item] = result
            self._held.learn(item, result.resolved.records)
            self._chunks.learn(item, result)
        elif isinstance(result, SampleUnit):
            self._count(item.key, "epochs_decoded")
            if task.slot <= self._limit:
                if result.until is not None:
                    result.until = self._held.uses.run_end(item.key, task.slot)
                self._held.add(result)
        elif result is not None:
            self.errors[item] = Failure(result, result.__traceback__)
            self._limit = min(self._limit, self._held.uses.next(item, self.cursor))

    def _fetch(self, fetch: Fetch) -> None:
        began = perf_counter()
        key, anchor = fetch.item.key, self.timeline.anchors[fetch.item.key][fetch.item.anchor]
        failed: str | None = None
        try:
            self._members[key].fetch_ahead(anchor, self.settings.windows[key], fetch.token)
        except BaseException as error:  # noqa: BLE001 - a failure raises nothing: the decode tries again
            failed = repr(error)
        seconds = perf_counter() - began
        with self.lock:
            self.busy.discard(fetch)
            if failed is not None and not fetch.token.is_set():
                self.tally.fetches_failed += 1
                self.total.fetches_failed += 1
            self.changes.announce()
        self._emit(lambda: FetchedAhead(key=key, anchor=anchor, seconds=seconds, error=failed))

    # Telling.

    def _count(self, key: str, name: str) -> None:
        self.tally.count(key, name)
        self.total.count(key, name)

    def _announce(self, slot: int) -> None:
        if slot < self._announced:
            return
        self._announced = slot + 1
        if self.emitter:
            for item in self._items(slot):
                if not self._serves(item, slot):
                    anchor = self.timeline.anchors[item.key][item.anchor]
                    self._outbox.append(Submitted(key=item.key, anchor=anchor, slot=slot))

    def _dropped(self, unit: Unit, needed: bool) -> None:
        if needed:
            self._count(unit.key, "evicted")
        if self.emitter:
            nbytes = sum(unit.footprint.values())
            self._outbox.append(Evicted(key=unit.key, record=unit.name, nbytes=nbytes))

    def _emit(self, event: Callable[[], Event]) -> None:
        if self.emitter:
            self.emitter(event())
