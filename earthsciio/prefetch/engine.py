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
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from time import perf_counter
from typing import Any, TypeVar

from earthsciio.decode.abort import AbortToken
from earthsciio.errors import GroupStateError
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
from earthsciio.records import OutputSpec, RecordLayout, RecordRef, RecordSource

from .buffers import arrays_of, footprint, seal, seal_fields
from .chunks import Chunks
from .holdings import Holdings, RecordUnit, SampleUnit, Unit, record_name
from .ledger import Ledger
from .reuse import NEVER, Candidate, Item, victims
from .stats import Tally
from .tasks import Claim, Failure, Fetch, Plan, Settings, Task, forget_frames, transformed
from .timeline import Timeline

__all__ = ["Engine"]

J = TypeVar("J")


class _OrphanedError(Exception):
    """Nobody decodes a record that a sample waits for any more."""


class Engine:
    """The working half of a group; its threads know nothing else of it.

    Methods are called with `lock` held, unless they say otherwise.
    """

    def __init__(
        self,
        members: Mapping[str, RecordSource],
        timeline: Timeline,
        ledger: Ledger,
        settings: Settings,
        emitter: Emitter,
    ) -> None:
        self.lock = threading.Condition()
        self.timeline = timeline
        self.ledger = ledger
        self.settings = settings
        self.emitter = emitter
        self.total = Tally(sorted(members))
        self.tally = Tally(sorted(members))  # of the current order
        self.order: tuple[int, ...] | None = None
        self.errors: dict[Item, Failure] = {}
        self.fatal: BaseException | None = None
        self.closed = False
        self.busy: set[object] = set()  # what threads are at now, aborted tasks too
        self._members = dict(sorted(members.items()))
        self._held = Holdings(ledger, timeline, self._dropped)
        self._chunks = Chunks(self._held, ledger, self.lock, settings.depth, self._make_room_for_chunk)
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
        self.order = order
        self._held.begin(order, cursor)
        self._chunks.tidy()
        self.ledger.collect()
        self.ledger.restart_peak()
        self.tally = Tally(list(self._members))
        self.total.begin_order()
        self._first_slot = self._announced = cursor

    def abort(self) -> None:
        """Forget the order and what was to be done for it; tell what is running to stop."""
        for task in self._tasks.values():
            task.token.set()
        self._fetch_token.set()
        self._fetch_token = AbortToken()
        self.order = None
        self.fatal = None
        self._limit = NEVER
        for memory in (self.errors, self._tasks, self._plans, self._claims, self._fetched):
            memory.clear()
        self.lock.notify_all()

    def stop(self) -> None:
        """Make all threads end soon. Takes the lock."""
        with self.lock:
            self.closed = True
            self.abort()

    def clear(self) -> None:
        """Let go of all memory."""
        self._held.clear()
        self._chunks.clear()
        self.ledger.close()

    # The consumer's side.

    def settled(self, slot: int) -> bool:
        """Whether every sample of a slot is held or has failed."""
        return all(self._settled(item, slot) for item in self._items(slot))

    def find_in_hand(self, slot: int) -> None:
        """Hold again what the consumer still has of a slot."""
        for item in self._items(slot):
            if item not in self._tasks and not self._serves(item, slot):
                self._revive(item, slot)

    def failures(self, slot: int) -> dict[str, Failure]:
        """Give what failed of a slot, by member in sorted order."""
        return {item.key: self.errors[item] for item in self._items(slot) if item in self.errors}

    def hand_out(self) -> dict[str, SampleUnit]:
        """Give the samples of the slot at the cursor, which must all be held, and go past it."""
        items = list(self._items(self.cursor))
        taken = {item.key: self._held.samples[item] for item in items}
        for key, sample in taken.items():
            if sample.served:
                self._count(key, "reused")
            sample.served += 1
        self._fetched.difference_update(items)
        self._held.advance()
        if not self.settings.threaded:  # else a worker tidies up: the consumer has better things to do
            self._tidy()
        self.lock.notify_all()
        return taken

    # What to do next.

    def next_task(self) -> Task | None:
        """Give something to do now: the first plan or admissible sample of the window; None if none is.

        It counts as being done from now on, so it must be given to :meth:`run`.
        """
        self._tidy()
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
                    self.lock.notify_all()
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
                    self.busy.add(fetch)
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

    def _tidy(self) -> None:
        if self._held.tidy():
            self._chunks.tidy()

    def _assign(self, task: Task) -> Task:
        self._tasks[task.item] = task
        self.busy.add(task)
        return task

    def _revive(self, item: Item, slot: int) -> bool:
        """Hold a dropped sample that the consumer still has, if there is one and room for it."""
        datasets = self._held.find_lent(item, len(self.settings.windows[item.key]))
        if datasets is None or item in self._held.samples:
            return False
        marks = _footprint(datasets)
        nbytes = self.ledger.new_bytes(marks)
        if not self._make_room(slot, [], nbytes, 0):
            return False
        reservation = self.ledger.reserve([], nbytes, self.lock)
        reservation.hold(marks, datasets)
        self._held.add(SampleUnit(item, datasets, marks, copied=True, served=1))
        reservation.close()
        self._plans.pop(item, None)
        return True

    def _admit(self, item: Item, slot: int, promised: int) -> Task | None:
        """Reserve what a planned sample needs and claim the records it has to decode, if there is room."""
        plan = self._plans[item]
        absent = [
            record
            for record in plan.layouts
            if (item.key, record) not in self._held.records and (item.key, record) not in self._claims
        ]
        sizes = [output.nbytes for record in absent for output in plan.layouts[record].outputs]
        if not self._make_room(slot, sizes, plan.extra, promised):
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

    def _make_room(self, slot: int, sizes: list[int], extra: int, promised: int) -> bool:
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
        alone = slot == self.cursor and not self.ledger.in_flight
        return self._evict(slot, -1, short, at_least=0 if alone else short)

    def _make_room_for_chunk(self, nbytes: int, slot: int) -> bool:
        """Make room for a chunk at the cost of what is needed after `slot`; say whether there is."""
        self.ledger.collect()
        short = self.ledger.shortfall([], nbytes)
        return short <= 0 or self._evict(slot, slot, short, at_least=short)

    def _evict(self, slot: int, chunks_slot: int, wanted: int, at_least: int) -> bool:
        """Let go of what is needed last, and after these slots, if that frees enough."""
        candidates: list[Candidate[Any]] = [
            *self._held.evictable(slot),
            *self._chunks.evictable(chunks_slot),
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
            self._held.drop(what)
        else:
            self._chunks.evict(what)

    # Doing it.

    def work(self) -> None:
        """Be a worker until the group is closed. Called without the lock."""
        self._live(self.next_task, self.run)

    def read_ahead(self) -> None:
        """Be the thread that fetches ahead until the group is closed. Called without the lock."""
        self._live(self.next_fetch, self._fetch)

    def run(self, task: Task) -> None:
        """Do a task. Called without the lock; only the consumer's own interrupt comes out of it."""
        began = perf_counter()
        result: Plan | SampleUnit | Exception
        try:
            result = self._make_plan(task) if task.plan is None else self._produce(task, task.plan)
        except _OrphanedError:
            assert task.plan is not None
            result = task.plan  # it decodes the record itself, once there is room for that
        except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to the take that needs it
            forget_frames(error)
            result = error
        except BaseException as error:
            if not self.settings.threaded:
                self._settle(task, None, began)
                raise
            forget_frames(error)
            result = GroupStateError(f"a worker was hit by {error!r}", member=task.item.key)
            result.__cause__ = error
        self._settle(task, result, began)

    def flush(self) -> None:
        """Tell listeners what happened under the lock. Called without it."""
        with contextlib.suppress(IndexError):  # several threads may empty it
            while True:
                self.emitter(self._outbox.popleft())

    def _live(self, next_job: Callable[[], J | None], do: Callable[[J], None]) -> None:
        """Do one job after the other. What hits it outside of one ends the take; the next start mends it."""
        while not self.closed:
            try:
                self._do_one(next_job, do)
            except BaseException as error:  # noqa: BLE001 - the take that waits raises it
                with self.lock:
                    self.fatal = error
                    self.lock.notify_all()
                    while self.fatal is not None and not self.closed:
                        self.lock.wait()

    def _do_one(self, next_job: Callable[[], J | None], do: Callable[[J], None]) -> None:
        # in a frame of its own: a thread that waits must not refer to the sample it made last
        with self.lock:
            job = next_job()
            if job is None and not self.closed:
                self.lock.wait()
        self.flush()
        if job is not None:
            do(job)
            self.flush()

    def _make_plan(self, task: Task) -> Plan:
        key, anchor = task.item
        source, windows = self._members[key], self.settings.windows[key]
        resolved = source.resolve(self.timeline.anchors[key][anchor], task.token)
        layouts: dict[RecordRef, RecordLayout] = {}
        for record in resolved.records:
            task.token.check()
            if record not in layouts:
                layouts[record] = source.measure(record, windows)
        behind = [layouts[record] for record in resolved.records]
        assembled = source.assembly_nbytes(resolved, behind)
        return Plan(resolved, layouts, assembled, self._transformed_nbytes(key, behind))

    def _transformed_nbytes(self, key: str, behind: list[RecordLayout]) -> int:
        if self.settings.transform is None:
            return 0
        declared = getattr(self.settings.transform, "output_nbytes", None)
        if declared is None:
            return sum(layout.nbytes for layout in behind)
        outputs: dict[int, list[OutputSpec]] = {}
        for layout in behind:
            for output in layout.outputs:
                outputs.setdefault(output.window, []).append(output)
        return sum(int(declared(key, tuple(specs))) for specs in outputs.values())

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
        return SampleUnit(task.item, datasets, _footprint(datasets), copied, until)

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
            takers = (task, *self._end_claim(task, record).waiting)
            for taker in takers:
                taker.give(decoded, marks)
            for tally in (task.tally, self.total):
                tally.decoded(key, decoded, layout.nbytes)
            if task.slot <= self._limit and not task.token.is_set():
                last_slot = max(taker.slot for taker in takers)
                self._held.add(RecordUnit(key, decoded, layout, marks, last_slot))
        finished(layout.nbytes)

    def _end_claim(self, task: Task, record: RecordRef) -> Claim:
        claim = task.claims.pop(record)
        if not task.token.is_set():  # claims of an aborted order are forgotten, and may have been made anew
            del self._claims[task.item.key, record]
        self.lock.notify_all()
        return claim

    def _wait_for_inputs(self, task: Task, plan: Plan) -> None:
        """Wait for the records that others decode."""
        with self.lock:
            while any(record not in task.inputs for record in plan.layouts):
                task.token.check()
                if task.failed is not None:
                    raise task.failed
                if task.orphaned:
                    raise _OrphanedError
                began = perf_counter()
                self.lock.wait()
                task.waited += perf_counter() - began

    def _settle(self, task: Task, result: Plan | SampleUnit | Exception | None, began: float) -> None:
        """End a task: keep what came of it, and let go of what it held. Takes the lock."""
        with self.lock:
            item, aborted = task.item, task.token.is_set()
            seconds = perf_counter() - began - task.waited
            for tally in (task.tally, self.total):
                tally.worked(item.key, seconds, first=task.slot == self._first_slot)
            for record in list(task.claims):  # those it didn't come to
                for waiting in self._end_claim(task, record).waiting:
                    waiting.orphaned = True
            if isinstance(result, SampleUnit) and task.reservation is not None:
                task.reservation.hold(result.footprint, result)
            if not aborted:
                del self._tasks[item]
                self._keep(task, result)
            if task.reservation is not None:
                task.reservation.close()
                task.reservation = None
            task.inputs.clear()
            self.busy.discard(task)
            self.lock.notify_all()

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
            self.lock.notify_all()
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


def _footprint(datasets: tuple[NativeDataset, ...]) -> dict[int, int]:
    return footprint(array for ds in datasets for array in arrays_of(ds.variables, ds.coords))
