"""PrefetchGroup: the samples of several sources, epoch by epoch, decoded while the consumer computes.

The group lays out the epochs, takes the consumer's calls, and hands samples out; what happens in between
is the :mod:`~earthsciio.prefetch.engine`'s. Values never depend on it: ``take(k)`` gives bit for bit what
``refresh(boundaries()[k])`` of every member would have given.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from earthsciio.errors import DeclarationError, GroupStateError, OrderError, Unsupported
from earthsciio.events import Emitter, Event, Listener, OrderStarted, Taken, Waited
from earthsciio.forks import new_lock, new_rlock
from earthsciio.memory import default_max_bytes
from earthsciio.records import RecordSource

from .arguments import WindowsLike, at_least, first_slot, windows_of
from .engine import Engine
from .holdings import SampleUnit
from .orders import OrderLike, as_index, as_order
from .samples import EpochSample, Sample
from .stats import Stats, Tally
from .tasks import Failure, Settings, Transform
from .timeline import Clip, Timeline, as_clip, check_members, lay_out
from .workers import Crew, serve

if TYPE_CHECKING:
    from earthsciio.fields import Time

__all__ = ["PrefetchGroup"]


class PrefetchGroup:
    """Decodes the next epochs of its members on worker threads, in the order in which they will be taken.

    Parameters
    ----------
    members : mapping of str to Provider
        Sources with time, all in one calendar. Keys are served in sorted order.
    depth : int
        Slots decoded or being decoded ahead of the consumer; 0 decodes inside :meth:`take`.
    max_bytes : int, optional
        Bytes of memory the group may hold. Default: half of this process's share of memory, by cgroup and
        the number of ranks on this node.
    fetch_ahead : int, optional
        Slots beyond `depth` whose files are brought into the cache and read ahead. Default `depth`, but 0
        where nothing overlaps.
    workers : int
        Samples in flight. 0 decodes inside :meth:`take`, on the caller's thread.
    windows : sequence of Window, or mapping of str to such sequences, optional
        Windows to decode, for all members or per member. A sample is then a tuple of one dataset per
        Window. Default: the member's own.
    transform : callable, optional
        ``transform(key, dataset)``, run on the worker once per decoded dataset (with `windows`, once per
        member and Window) and not again when a sample is reused. It gives a dataset, or None if it has put
        the values into memory of the caller's own; then the sample is an empty dataset, and is never kept
        for later slots but those that follow on it at once with the same anchor. It must be pure but for
        that. One whose result is not as large as its input says so by an attribute
        ``output_nbytes(key, outputs) -> int``, where `outputs` are the
        :class:`~earthsciio.records.OutputSpec` of the records behind the dataset.
    executor : {"thread"}
        What runs the decodes.
    clip : tuple of two times, optional
        Start and end of the epochs; either may be None.
    spill_dir, spill_bytes
        Not there yet.
    listeners : sequence of callable
        Each is called with every :class:`~earthsciio.events.Event`, on the thread that it happens on.

    Raises
    ------
    DeclarationError
        A member without time or of another calendar, by name; nothing that ends the epochs; a parameter
        out of range.
    SelectionError
        A Window that can't be read, or Windows for a member that has a selection already.
    Unsupported
        ``executor="process"``, `spill_dir`, `spill_bytes`.

    Notes
    -----
    :meth:`start`, :meth:`take` and :meth:`cancel` are called from one thread, the others from any; those
    three not from a transform, a listener or a signal handler amid one of them. Nothing is opened and no
    thread started before :meth:`start`. An interrupt (Ctrl-C) comes out of what it hits: a :meth:`take`
    then has taken nothing, and a :meth:`start` that did not return has started all of its order or none.

    Examples
    --------
    >>> with PrefetchGroup({"wind": winds, "rain": rain}, depth=2) as group:  # doctest: +SKIP
    ...     group.start("forward")
    ...     for k, t in enumerate(group.boundaries()):
    ...         epoch = group.take(k)
    ...         model.advance(t, epoch["wind"].data["U"].data, epoch["rain"].data["R"].data)
    """

    def __init__(
        self,
        members: Mapping[str, RecordSource],
        *,
        depth: int = 2,
        max_bytes: int | None = None,
        fetch_ahead: int | None = None,
        workers: int = 1,
        windows: WindowsLike | None = None,
        transform: Transform | None = None,
        executor: Literal["thread", "process"] = "thread",
        clip: Clip | None = None,
        spill_dir: str | os.PathLike[str] | None = None,
        spill_bytes: int | None = None,
        listeners: Sequence[Listener] = (),
    ) -> None:
        if executor == "process":
            raise Unsupported("executor='process' is not there yet", hint="Use executor='thread'")
        if executor != "thread":
            raise DeclarationError(f"executor is 'thread' or 'process', not {executor!r}")
        for name, value in (("spill_dir", spill_dir), ("spill_bytes", spill_bytes)):
            if value is not None:
                raise Unsupported(f"{name} is not there yet", hint="Raise max_bytes to keep more")
        self._workers = at_least(0, "workers", workers)
        depth = at_least(0, "depth", depth)
        threaded = self._workers > 0 and depth > 0
        ahead = (depth if threaded else 0) if fetch_ahead is None else fetch_ahead
        if not isinstance(members, Mapping):
            raise DeclarationError(
                f"members is a mapping of names to providers, not {type(members).__name__}",
                hint="Write {'wind': provider}",
            )
        self._members = dict(sorted(members.items()))
        if self._members:
            self._clip = as_clip(clip, next(iter(self._members.values())).calendar)
            check_members(self._members, self._clip)
        else:
            raise DeclarationError("a group needs at least one member")
        self._windowed = windows is not None
        self._settings = Settings(
            windows=windows_of(self._members, windows),
            depth=depth,
            fetch_ahead=at_least(0, "fetch_ahead", ahead),
            threaded=threaded,
            transform=transform,
        )
        self._max_bytes = default_max_bytes() if max_bytes is None else at_least(1, "max_bytes", max_bytes)
        self._emitter = Emitter(listeners)
        self._timeline: Timeline | None = None
        self._engine: Engine | None = None
        self._crew: Crew | None = None
        self._closed = False
        self._making = new_rlock(self, "_making")  # the engine
        self._turn = new_lock(self, "_turn")  # held while the consumer starts, takes or cancels
        self._consumer: int | None = None  # the thread that takes
        self._manned = False  # whether the threads that the order needs were started
        self._handed: tuple[int, EpochSample] | None = None  # a slot's, until take has returned it

    # What there is.

    def boundaries(self) -> list[Time]:
        """Give when each epoch begins, ascending; epoch k is ``[B[k], B[k + 1])``.

        Raises
        ------
        DeclarationError
            If nothing says when the first epoch begins, or the members have no time in common.
        """
        return list(self._laid_out().boundaries)

    @property
    def end(self) -> Time:
        """When the last epoch ends."""
        return self._laid_out().end

    @property
    def max_bytes(self) -> int:
        """Bytes of memory the group may hold."""
        return self._max_bytes

    # Orders.

    def start(self, order: OrderLike, from_: int | None = None, at: int | None = None) -> None:
        """Declare the epochs that will be taken; decoding begins.

        Cancels a previous order and forgets its errors; samples already decoded are kept as far as
        `max_bytes` allows.

        Parameters
        ----------
        order : {"forward", "reverse"}, iterable of int, or Order
            Epochs, repeats allowed; none at all is an order, too.
        from_ : int, optional
            Begin at the first slot of this epoch.
        at : int, optional
            Begin at this slot; at the order's length there is nothing left to take.

        Raises
        ------
        OrderError
            If it is no order of this group, or there is no such slot. The previous order then goes on.
        GroupStateError
            If the group is closed, or another thread takes from it.
        """
        self._check_caller()
        spelled = as_order(order, len(self._laid_out().boundaries))
        slot = first_slot(spelled, from_, at)
        try:
            with self._turn:
                engine = self._started()
                with engine.lock:
                    if self._closed:
                        raise _closed()
                    self._handed, self._manned = None, False
                    engine.begin(spelled.epochs, slot)
                self._emit(OrderStarted, slots=len(spelled), first=slot)
                self._man(engine)
        finally:
            self._end_if_closed()

    def take(self, k: int) -> EpochSample:
        """Give the samples of epoch `k`, the next of the order; waits until they are decoded.

        Parameters
        ----------
        k : int
            An index into :meth:`boundaries`. It must be the next of the order: nothing is skipped by mistake.

        Returns
        -------
        EpochSample
            Per member its :class:`Sample`. Arrays are read-only, and stay what they are as long as anybody
            holds them.

        Raises
        ------
        OrderError
            If `k` is not the next epoch, which the error names as ``expected``. Nothing has moved.
        GroupStateError
            If there is no order, the group is closed, another thread takes from it, or something hit
            a worker that is no Exception.
        Exception
            What ``refresh`` would have raised, if a sample of the epoch could not be made: that of the
            first member in sorted order; those of the others are in its ``others``. Taking `k` again raises
            it again.
        """
        self._check_caller()
        engine = self._engine
        if engine is None:
            raise GroupStateError("no order: start() one first")
        try:
            with self._turn:
                if not self._manned:  # the start was interrupted
                    self._man(engine)
                epoch = self._take(engine, k)
        finally:
            self._end_if_closed()
        self._handed = None
        return epoch

    def ready(self, k: int) -> bool:
        """Tell whether epoch `k` is decoded, or has failed, where the order needs it next. Doesn't wait.

        Raises
        ------
        OrderError
            If the order doesn't need `k` any more.
        GroupStateError
            If there is no order, or the group is closed.
        """
        self._check_usable()
        engine, epoch = self._engine, as_index(k)
        if engine is None or engine.order is None:
            raise GroupStateError("no order: start() one first")
        with engine.lock:
            try:
                slot = (engine.order or ()).index(epoch, engine.cursor)
            except ValueError:
                raise OrderError(f"the order takes no epoch {k} any more", epoch=k) from None
            return engine.settled(slot)

    def cancel(self, wait: bool = False) -> None:
        """Drop the order and what was queued for it; running decodes stop at the next chunk.

        Parameters
        ----------
        wait : bool
            Whether to wait until they have stopped.
        """
        self._check_caller()
        engine = self._engine
        if engine is None:
            return
        try:
            with self._turn:
                with engine.lock:
                    self._handed = None
                    engine.abort()
                while wait:
                    with engine.lock:
                        if not engine.busy or engine.switch.closed:
                            break
                        ticket = engine.changes.ticket()
                    ticket.acquire()
                engine.flush()
        finally:
            self._end_if_closed()

    def close(self) -> None:
        """Cancel, end the threads, and let go of all memory. Samples handed out stay valid.

        From a transform, a listener, or a signal handler amid another call it does not wait: all that comes
        of the group's work is discarded, and the call amid which it happens does the rest.
        """
        if self._is_forked:  # there is nothing to end, and its locks may be held for ever
            self._closed = True
            return
        with self._making:
            self._closed = True
        if self._engine is not None:
            self._engine.switch.flip()
            if not self._is_at_work():
                self._end_if_closed()

    def stats(self, total: bool = False) -> Stats:
        """Give figures since the last :meth:`start`, or since construction (`total`)."""
        if self._engine is None:
            return Tally(list(self._members)).stats(overlap=self._settings.threaded, peak_bytes=0)
        # in a forked child nothing changes any more, and the lock may be held for ever
        with contextlib.nullcontext() if self._is_forked else self._engine.lock:
            ledger, engine = self._engine.ledger, self._engine
            if total:
                return engine.total.stats(overlap=self._settings.threaded, peak_bytes=ledger.peak_ever)
            return engine.tally.stats(overlap=self._settings.threaded, peak_bytes=ledger.peak)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # Inside.

    def _laid_out(self) -> Timeline:
        if self._timeline is None:
            self._timeline = lay_out(self._members, self._clip)
        return self._timeline

    def _started(self) -> Engine:
        with self._making:
            if self._closed:
                raise _closed()
            if self._engine is None:
                engine = Engine(
                    self._members, self._laid_out(), self._max_bytes, self._settings, self._emitter
                )
                self._crew = Crew(engine.switch.flip)
                # a group that was forgotten ends its threads too; idle ones know neither it nor the engine
                weakref.finalize(self, self._crew.stop).atexit = False
                self._engine = engine
            return self._engine

    def _man(self, engine: Engine) -> None:
        """Start the threads that don't run yet."""
        assert self._crew is not None
        if self._settings.threaded:
            for number in range(self._workers):
                self._crew.ensure(f"worker-{number}", serve, weakref.ref(engine), engine.switch, Engine.work)
        if self._settings.fetch_ahead:
            self._crew.ensure("fetch", serve, weakref.ref(engine), engine.switch, Engine.read_ahead)
        self._manned = True

    def _end_if_closed(self) -> None:
        """Do what closing takes; again, if it was cut short."""
        if self._closed and self._engine is not None and self._crew is not None:
            self._engine.switch.flip()
            self._crew.join()
            with self._engine.lock:
                self._handed = None
                self._engine.clear()
            self._engine.flush()

    def _is_at_work(self) -> bool:
        """Whether the calling thread is amid the group's work, so that waiting for that would never end."""
        if self._crew is not None and self._crew.is_current():
            return True
        return self._consumer == threading.get_ident() and self._turn.locked()

    @property
    def _is_forked(self) -> bool:
        return self._crew is not None and self._crew.forked

    def _check_usable(self) -> None:
        if self._closed:
            raise _closed()
        if self._is_forked:
            raise GroupStateError(
                "a group can't be used in a forked process: its threads are not there",
                hint="Make it in the process that uses it",
            )

    def _check_caller(self) -> None:
        self._check_usable()
        me = threading.get_ident()
        if self._consumer is None:
            self._consumer = me
        if self._consumer != me:
            raise GroupStateError("start, take and cancel of a group are called from one thread")
        if self._turn.locked():
            raise GroupStateError(
                "start, take and cancel can't be called amid one another",
                hint="Don't call them from a transform, a listener or a signal handler",
            )

    def _take(self, engine: Engine, k: int) -> EpochSample:
        began = perf_counter()
        while True:
            ticket = None
            with engine.lock:
                if self._handed is not None and not engine.switch.closed:
                    slot, epoch = self._handed
                    if engine.cursor == slot + 1 and epoch.epoch == k:
                        return epoch  # the take of it was interrupted
                slot = self._next_slot(engine, k)
                if self._there(engine, slot, k):
                    now = perf_counter()
                    failures = engine.failures(slot)
                    units = {} if failures else engine.samples(slot)
                    break
                if self._settings.threaded:
                    ticket = engine.changes.ticket()
            if ticket is not None:
                ticket.acquire()
            elif not engine.step():
                raise GroupStateError("nothing is left to do, but the epoch is not there", epoch=k)
        engine.flush()
        self._emit(Waited, epoch=k, seconds=now - began)
        if failures:
            with engine.lock:
                for tally in (engine.tally, engine.total):
                    tally.waited(now - began)
            _raise(failures)
        self._emit(Taken, epoch=k, slot=slot)
        epoch = EpochSample(k, self._samples(engine, units, slot))
        with engine.lock:  # last: a take that is cut short before has moved nothing, and after is remembered
            if engine.switch.closed:
                raise _closed()
            engine.mend()
            self._handed = slot, epoch
            engine.torn = True
            for tally in (engine.tally, engine.total):
                tally.waited(now - began)
                tally.taken(now)
            engine.hand_out(units)
            engine.torn = False
        return epoch

    def _next_slot(self, engine: Engine, k: int) -> int:
        if engine.switch.closed:
            raise _closed()
        engine.mend()
        if engine.order is None:
            raise GroupStateError("no order: start() one first")
        slot = engine.cursor
        if slot == len(engine.order):
            raise OrderError("the order has ended", epoch=k, hint="start() a new one")
        expected = engine.order[slot]
        if as_index(k) != expected:
            raise OrderError(
                f"the next epoch of the order is {expected}, not {k}",
                expected=expected,
                slot=slot,
                hint="start(order, from_=...) goes elsewhere",
            )
        return slot

    def _there(self, engine: Engine, slot: int, k: int) -> bool:
        """Tell whether `slot`, which is that of epoch `k`, can be handed out or has failed."""
        engine.find_in_hand(slot)
        if engine.settled(slot):
            return True
        if engine.fatal is not None:
            raise GroupStateError(
                f"a worker was hit by {engine.fatal!r}", epoch=k, hint="start() begins anew"
            ) from engine.fatal
        return False

    def _samples(self, engine: Engine, units: Mapping[str, SampleUnit], slot: int) -> dict[str, Sample]:
        return {
            key: Sample(
                data=unit.datasets if self._windowed else unit.datasets[0],
                anchor=engine.timeline.anchors[key][unit.item.anchor],
                changed=engine.changes_at(slot, unit.item),
            )
            for key, unit in units.items()
        }

    def _emit(self, kind: type[Event], **what: Any) -> None:
        if self._emitter:
            self._emitter(kind(**what))


def _closed() -> GroupStateError:
    return GroupStateError("the group is closed", hint="Make a new one; samples that it gave stay valid")


def _raise(failures: Mapping[str, Failure]) -> None:
    """Raise the first, which knows the others."""
    first, *_ = failures.values()
    vars(first.error)["others"] = {key: failure.error for key, failure in list(failures.items())[1:]}
    raise first.error.with_traceback(first.traceback)
