"""Forward and adjoint sweeps: a model stepped through the epochs of a forcing, in the order a schedule wants.

A sweep knows a model only by two methods (:class:`Model`) and its forcing only by the
:class:`~integrator.forcing.Forcing` protocol. An adjoint sweep needs the states of the forward one in
reverse; which of them are kept and which are computed again is up to a checkpoint schedule
(``checkpoint_schedules``: Revolve, or everything stored), one step of which is one epoch. The schedule is
walked twice: first on paper, which gives the list of epochs that will be taken, replays included, so that
the forcing can decode ahead; then for real.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from earthsciio.errors import DeclarationError, EarthSciIOError, Unsupported

from .ranks import gather_objects

if TYPE_CHECKING:
    from mpi4py import MPI

    from earthsciio.fields import Array
    from earthsciio.prefetch.samples import EpochSample

    from .forcing import Forcing
    from .restart import Restart

__all__ = [
    "Action",
    "Interval",
    "Model",
    "SweepReport",
    "SweepResult",
    "adjoint",
    "forward",
    "gather_reports",
    "walk",
]

_Kind: TypeAlias = Literal["take", "forward", "adjoint", "release", "restart", "decode"]


class Model(Protocol):
    """What a sweep needs of a model. A state is an array of this rank's cells, and is never written to."""

    def forward(self, state: Array, sample: EpochSample, t0: float, t1: float, /) -> Array:
        """Give the state at `t1` from that at `t0`."""
        ...

    def adjoint(self, lam: Array, state: Array, sample: EpochSample, t0: float, t1: float, /) -> Array:
        """Give the gradient with respect to the state at `t0`, which is `state`, from that at `t1`."""
        ...


@dataclass(frozen=True, slots=True)
class Interval:
    """What a rank, or a decoding thread of its, did from `start` to `stop`.

    Times are ``time.perf_counter`` seconds, one clock for all ranks of a node.
    """

    kind: _Kind
    epoch: int
    start: float
    stop: float

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.stop - self.start


@dataclass(slots=True)
class SweepReport:
    """Where the time of one rank's sweep went, epoch by epoch, as a table or a timeline.

    Attributes
    ----------
    intervals : list of Interval
        In order of time.
    """

    intervals: list[Interval] = field(default_factory=list)

    def seconds(self, *kinds: str) -> float:
        """Sum the intervals of some kinds."""
        return sum(interval.seconds for interval in self.intervals if interval.kind in kinds)

    @property
    def computed(self) -> float:
        """Seconds in the model, waits for its neighbours' halos included."""
        return self.seconds("forward", "adjoint")

    @property
    def waited(self) -> float:
        """Seconds waited for forcing."""
        return self.seconds("take", "release")

    @property
    def first_wait(self) -> float:
        """Seconds waited for the first epoch, which nothing can hide."""
        return next((interval.seconds for interval in self.intervals if interval.kind == "take"), 0.0)

    @property
    def total(self) -> float:
        """Seconds from the first interval's start to the last one's stop."""
        return self.intervals[-1].stop - self.intervals[0].start if self.intervals else 0.0

    @property
    def epochs(self) -> int:
        """Epochs taken, replays counted."""
        return sum(interval.kind == "take" for interval in self.intervals)


@dataclass(frozen=True, slots=True)
class SweepResult:
    """What a sweep leaves.

    Attributes
    ----------
    state : numpy.ndarray
        This rank's state at the end of the last epoch.
    gradient : numpy.ndarray or None
        Gradient of the objective with respect to the initial state, after an adjoint sweep.
    report : SweepReport
        This rank's times.
    """

    state: Array
    gradient: Array | None
    report: SweepReport


@dataclass(frozen=True, slots=True)
class Action:
    """One thing an adjoint sweep does; what a schedule comes down to.

    ``store`` keeps the state at the start of `step` in `storage`, ``load`` goes back to it, ``drop`` forgets
    it; ``forward`` and ``adjoint`` take the epoch and run the model through it; ``turn`` starts the adjoint
    from the final state; ``clear`` forgets all of `storage`.
    """

    verb: Literal["store", "load", "drop", "clear", "forward", "turn", "adjoint"]
    step: int = -1
    storage: Any = None

    @property
    def takes(self) -> bool:
        """Whether it needs the forcing of its step."""
        return self.verb in ("forward", "adjoint")


def walk(schedule: Any, steps: int) -> list[Action]:
    """Spell a checkpoint schedule out, without running anything.

    The data a schedule calls "initial conditions" and "adjoint dependencies" of a step are the same array
    here: the state at its start, from which a model replays or linearises.

    Parameters
    ----------
    schedule : checkpoint_schedules.CheckpointSchedule
        A fresh one; it is used up.
    steps : int
        Steps of the forward sweep; an online schedule is told when they are done.

    Raises
    ------
    DeclarationError
        If the schedule is used up, or for another number of steps.
    Unsupported
        If it keeps states on disk.
    """
    actions: list[Action] = []
    for action in schedule:
        expanded = list(_expand(action, steps))
        actions += expanded
        if any(item.storage is not None and item.storage.name == "DISK" for item in expanded):
            raise Unsupported(f"{type(schedule).__name__} keeps states on disk")
        forwards = any(item.verb == "forward" for item in expanded)
        if forwards and schedule.max_n is None and schedule.n >= steps:
            schedule.finalize(steps)
        if type(action).__name__ == "EndReverse":
            break
    adjoints = [action.step for action in actions if action.verb == "adjoint"]
    if adjoints != list(range(steps - 1, -1, -1)):
        raise DeclarationError(
            f"{type(schedule).__name__} does not lead back over {steps} epochs",
            hint="A schedule can be walked once, and is made for one number of steps",
        )
    return actions


def _expand(action: Any, steps: int) -> Iterator[Action]:
    """Spell one action of a schedule out. By type, since ``==`` of these actions raises."""
    from checkpoint_schedules import Copy, EndForward, EndReverse, Forward, Move, Reverse, StorageType

    work = StorageType.WORK
    match action:
        case Forward():
            first, stop, keep_first, keep_each, storage = action.args
            for step in range(first, min(stop, steps)):
                if keep_each or (keep_first and step == first):
                    yield Action("store", step, storage)
                yield Action("forward", step)
        case Copy() | Move():
            step, source, target = action.args
            if target is work:
                yield Action("load", step, source)
            elif target is not StorageType.NONE:
                raise Unsupported(f"a schedule that moves states to {target}")
            if isinstance(action, Move):
                yield Action("drop", step, source)
        case Reverse():
            stop, first, clear = action.args
            for step in range(stop - 1, first - 1, -1):
                yield Action("adjoint", step)
            if clear:
                yield Action("clear", storage=work)
        case EndForward():
            yield Action("turn")
        case EndReverse():
            pass
        case _:
            raise Unsupported(f"schedule action {action!r}")


def forward(
    model: Model,
    forcing: Forcing,
    state: Array,
    boundaries: Sequence[float],
    *,
    restart: Restart | None = None,
) -> SweepResult:
    """Run a model forward through all epochs.

    On several ranks every rank calls it with its own cells.

    Parameters
    ----------
    model : Model
        The model.
    forcing : Forcing
        Where samples come from; epoch k is ``[boundaries[k], boundaries[k + 1])``.
    state : numpy.ndarray
        This rank's initial state.
    boundaries : sequence of float, length epochs + 1
        Seconds, on the time axis of the samples' time coordinates; the last closes the last epoch.
    restart : Restart, optional
        Where to go on from, if there is a file, and to write to as epochs are done.

    Returns
    -------
    SweepResult
        The final state; no gradient.
    """
    sweep = _Sweep(model, forcing, boundaries)
    begin = 0
    if restart is not None and (found := restart.load(boundaries)) is not None:
        begin, state = found
    forcing.start(range(begin, sweep.epochs))
    for k in range(begin, sweep.epochs):
        state = sweep.forward(state, k)
        if restart is not None and ((k + 1) % restart.every == 0 or k + 1 == sweep.epochs):
            start = perf_counter()
            restart.save(k + 1, state, boundaries)
            sweep.note("restart", k, start)
    return SweepResult(state, None, sweep.report)


def adjoint(
    model: Model,
    forcing: Forcing,
    state: Array,
    boundaries: Sequence[float],
    seed: Callable[[Array], Array],
    *,
    schedule: Any | None = None,
) -> SweepResult:
    """Run a model forward through all epochs, then its adjoint back.

    Parameters
    ----------
    model, forcing, state, boundaries
        As for :func:`forward`.
    seed : callable
        Gives the gradient of the objective with respect to this rank's final state from that state: the
        weights of a linear functional, or for a quadratic one also a function of the state.
    schedule : checkpoint_schedules.CheckpointSchedule, optional
        A fresh one, for as many steps as there are epochs; states are kept in memory. By default all are.

    Returns
    -------
    SweepResult
        The final state, and the gradient with respect to `state`.

    Raises
    ------
    DeclarationError, Unsupported
        See :func:`walk`; also if the seed is not of the state's shape.
    """
    sweep = _Sweep(model, forcing, boundaries)
    if schedule is None:
        from checkpoint_schedules import SingleMemoryStorageSchedule

        schedule = SingleMemoryStorageSchedule()
    actions = walk(schedule, sweep.epochs)
    forcing.start([action.step for action in actions if action.takes])
    return sweep.follow(actions, state, seed)


class _Sweep:
    """A sweep under way: takes, runs the model, releases, and keeps the times."""

    def __init__(self, model: Model, forcing: Forcing, boundaries: Sequence[float]) -> None:
        if len(boundaries) < 2:
            raise DeclarationError(f"{len(boundaries)} boundaries make no epoch")
        self.model, self.forcing, self.boundaries = model, forcing, boundaries
        self.epochs = len(boundaries) - 1
        self.report = SweepReport()

    def note(self, kind: _Kind, k: int, start: float) -> float:
        stop = perf_counter()
        self.report.intervals.append(Interval(kind, k, start, stop))
        return stop

    def forward(self, state: Array, k: int) -> Array:
        return self._epoch("forward", k, partial(self.model.forward, state))

    def adjoint(self, lam: Array, state: Array, k: int) -> Array:
        return self._epoch("adjoint", k, partial(self.model.adjoint, lam, state))

    def _epoch(self, kind: _Kind, k: int, run: Callable[[EpochSample, float, float], Array]) -> Array:
        start = perf_counter()
        sample = self.forcing.take(k)
        taken = self.note("take", k, start)
        try:
            result = run(sample, self.boundaries[k], self.boundaries[k + 1])
        except EarthSciIOError as error:
            if error.epoch is None:
                anchors = {str(each.anchor): None for each in sample.values()}
                error.epoch = f"{k} ({', '.join(anchors)})"
            raise
        computed = self.note(kind, k, taken)
        # no finally: release is collective, and a rank whose model raised would wait in it for the others
        self.forcing.release(k)
        self.note("release", k, computed)
        return result

    def follow(self, actions: list[Action], state: Array, seed: Callable[[Array], Array]) -> SweepResult:
        from checkpoint_schedules import StorageType

        final = lam = state
        # states are never written to, so keeping one costs no copy
        kept: defaultdict[Any, dict[int, Array]] = defaultdict(dict)
        work = kept[StorageType.WORK]
        for action in actions:
            match action.verb:
                case "store":
                    kept[action.storage][action.step] = state
                case "load":
                    state = work[action.step] = kept[action.storage][action.step]
                case "drop":
                    del kept[action.storage][action.step]
                case "clear":
                    kept[action.storage].clear()
                case "forward":
                    state = self.forward(state, action.step)
                case "turn":
                    final = state
                    lam = seed(final)
                    if lam.shape != final.shape:
                        raise DeclarationError(f"a seed of shape {lam.shape} for a state of {final.shape}")
                case "adjoint":
                    lam = self.adjoint(lam, work[action.step], action.step)
        return SweepResult(final, lam, self.report)


def gather_reports(comm: MPI.Intracomm | None, report: SweepReport) -> list[SweepReport] | None:
    """Collect the reports of all ranks on rank 0, by rank; None on the others. Collective."""
    return gather_objects(comm, report)
