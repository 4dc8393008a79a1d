"""A case, run: sources, model and forcing put together, swept, and measured.

:func:`run_case` is what ``integrator run`` does on every rank. The figures it gives are those of design
section "Speed": `AU`, the share of the run in which the model computed, and `hidden`, the share of decoding
that cost no time. Both need two reference runs, the model alone with its forcing at hand and the decode
alone without the model, which :mod:`integrator.measure` makes.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from earthsciio.calendars import calendar as get_calendar
from earthsciio.events import DecodeFinished, Event
from earthsciio.fields import Array
from earthsciio.timeaxis import encode_times

from .blocks import Blocks
from .checks import CaseGrid, check_model, read_grid, set_up
from .figures import Figures, figures_of
from .models.setup import ModelSetup
from .pictures import Lane
from .ranks import agreed, broadcast, gather_objects
from .restart import Restart
from .scatter import OwnForcing, ReaderForcing, open_forcing
from .sweep import Interval, SweepReport, SweepResult, adjoint, forward, gather_reports

if TYPE_CHECKING:
    from mpi4py import MPI

    from earthsciio.declare import Case
    from earthsciio.provider import Provider

__all__ = ["CaseRun", "Outcome", "run_case"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run left, on rank 0; arrays are of the whole grid.

    Attributes
    ----------
    figures : Figures
        What it cost.
    lat, lon : numpy.ndarray
        The grid, degrees.
    start, end : numpy.ndarray
        The state before and after.
    gradient : numpy.ndarray or None
        Sensitivity of the objective to `start`, after an adjoint sweep.
    mass : (float, float)
        Of the tracer before and after.
    identity : (float, float) or None
        ``<L x, y>`` and ``<x, L* y>``, x the initial state and y the objective's weights.
    area : numpy.ndarray
        What the state is to be multiplied with to give mass.
    device : Figures or None
        What the case costs if the model sleeps as long as it computes, as a host does while an accelerator
        steps; where it was measured.
    lanes : list of Lane
        Who did what when.
    provenance : list of dict
        The files the run used, on any rank: fields of :class:`earthsciio.cache.provenance.UsedFile`.
    notes : tuple of str
        What it took of the files, and what it did by default.
    target : dict of str to (float, float), optional
        ``lat`` and ``lon`` bounds of the region that the objective is about, degrees.
    """

    figures: Figures
    lat: Array
    lon: Array
    start: Array
    end: Array
    gradient: Array | None
    area: Array
    mass: tuple[float, float]
    identity: tuple[float, float] | None
    device: Figures | None
    lanes: list[Lane] = field(default_factory=list)
    provenance: list[dict[str, Any]] = field(default_factory=list)
    notes: tuple[str, ...] = ()
    target: dict[str, tuple[float, float]] | None = None


class _DecodeLog:
    """Listens for finished decodes, by thread."""

    def __init__(self) -> None:
        self.intervals: dict[str, list[Interval]] = {}

    def __call__(self, event: Event) -> None:
        if isinstance(event, DecodeFinished):
            done = Interval("decode", -1, event.when - event.seconds, event.when)
            self.intervals.setdefault(event.thread, []).append(done)


class CaseRun:
    """A case on this rank: set up once, swept as often as wanted. Every method is collective.

    Parameters
    ----------
    case : Case
        The declaration.
    comm : mpi4py.MPI.Intracomm or None
        None for a single rank without MPI.
    """

    def __init__(self, case: Case, comm: MPI.Intracomm | None = None) -> None:
        agreed(comm, lambda: check_model(case))
        self.case = case
        self.comm = comm
        self.rank = 0 if comm is None else comm.Get_rank()
        self.cache = case.open_cache()
        self.members: dict[str, Provider] = {
            name: provider for name, provider in case.providers(self.cache).items() if not provider.is_const
        }
        self.grid: CaseGrid = self._shared(lambda: read_grid(case, self.cache))
        self.setup: ModelSetup = agreed(comm, lambda: set_up(case, self.grid.domain, comm))
        self.blocks = Blocks(self.setup.partition, comm)

    def _shared(self, act: Callable[[], Any]) -> Any:
        """Do something on rank 0 and give its result to all, or its error."""
        result = agreed(self.comm, lambda: act() if self.rank == 0 else None)
        return pickle.loads(  # noqa: S301 - sent by rank 0 of this job
            broadcast(self.comm, pickle.dumps(result) if self.rank == 0 else None)
        )

    def forcing(self, **changes: Any) -> OwnForcing | ReaderForcing:
        """Open the forcing of this rank; `changes` go before the case's ``prefetch`` section."""
        cells = self.setup.partition.window(self.rank)
        return open_forcing(
            self.members,
            {name: self.grid.domain.window(name, cells) for name in self.members},
            self.comm,
            mode=self.case.scatter.mode,
            transform=self.setup.transform,
            **{**self.case.group_options(), **changes},
        )

    def boundaries(self, forcing: OwnForcing | ReaderForcing) -> list[float]:
        """Give the start of every epoch and the end of the last, seconds since 1970-01-01."""
        members = list(self.members.values())
        own = get_calendar(members[0].calendar)
        ends = [t for t in (self.case.clip[1], *(member.end for member in members)) if t is not None]
        instants = [own.instant(t) for t in forcing.boundaries()]
        instants.append(min(own.instant(t) for t in ends))
        seconds: list[float] = encode_times(instants, own)[0].tolist()
        return seconds

    def sweep(
        self, forcing: OwnForcing | ReaderForcing, boundaries: list[float], direction: str, model: Any = None
    ) -> SweepResult:
        """Run the model forward, or forward and back."""
        model = self.setup.model if model is None else model
        if direction == "forward":
            wanted = self.case.restart
            restart = None
            if wanted is not None:
                restart = Restart(wanted.file, self.blocks, every=wanted.every, about=self._about())
            return forward(model, forcing, self.setup.initial, boundaries, restart=restart)
        schedule = None
        if self.case.sweep.snapshots is not None:
            from checkpoint_schedules import Revolve

            epochs = len(boundaries) - 1
            schedule = Revolve(epochs, min(self.case.sweep.snapshots, epochs))
        weights = self.setup.weights
        return adjoint(model, forcing, self.setup.initial, boundaries, lambda _: weights, schedule=schedule)

    def _about(self) -> str:
        """Say what a state is of: the region and levels, and the tracer it began as."""
        assert self.case.model is not None
        start = self.case.model.parameters.get("start")
        return json.dumps({"window": self.case.model.window, "start": start}, sort_keys=True)

    def dot(self, one: Array, other: Array) -> float:
        """Sum the products of two fields over all cells of all ranks, exactly rounded."""
        return self.blocks.total(one * other)

    def close(self) -> None:
        """Free what the model holds."""
        self.setup.close()


def run_case(
    case: Case, comm: MPI.Intracomm | None = None, *, direction: str | None = None, measure: bool = False
) -> Outcome | None:
    """Run a case; collective over `comm`.

    Parameters
    ----------
    case : Case
        The declaration.
    comm : mpi4py.MPI.Intracomm or None
        None for a single rank without MPI.
    direction : {"forward", "adjoint"}, optional
        Instead of the case's own.
    measure : bool
        Also make the reference runs that AU and hidden need; about doubles the time.

    Returns
    -------
    Outcome or None
        On rank 0; None on the others.
    """
    run = CaseRun(case, comm)
    direction = direction or case.sweep.direction
    log = _DecodeLog()
    forcing = run.forcing(listeners=(log,))
    boundaries = run.boundaries(forcing)
    try:
        result = run.sweep(forcing, boundaries, direction)
        stats = forcing.stats()
    finally:
        # not collective: on the way out of an error the other ranks may be elsewhere
        if forcing.group is not None:
            forcing.group.close()
    figures, device = figures_of(comm, result.report, stats, len(boundaries) - 1), None
    if measure:
        from .measure import with_references

        figures, device = with_references(run, boundaries, direction, figures, result.report)
    reports = gather_reports(comm, result.report)
    decoded = gather_objects(comm, log.intervals)
    used = gather_objects(comm, run.cache.provenance())
    start, end = run.setup.initial, result.state
    fields = [run.blocks.gather(block) for block in (start, end, run.setup.volume)]
    gradient = None if result.gradient is None else run.blocks.gather(result.gradient)
    mass = (run.dot(start, run.setup.volume), run.dot(end, run.setup.volume))
    identity = None
    if result.gradient is not None:
        identity = (run.dot(end, run.setup.weights), run.dot(start, result.gradient))
    run.close()
    if reports is None or decoded is None or used is None:
        return None
    whole = [np.asarray(values) for values in fields]
    return Outcome(
        figures,
        *run.setup.axes,
        whole[0], whole[1], gradient, whole[2],
        mass, identity, device, _lanes(reports, decoded), _once(used),
        run.grid.notes + run.setup.notes, run.setup.target,
    )  # fmt: skip


def _once(used: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Join the ranks' records of the files they used, each version once."""
    joined: dict[tuple[Any, ...], dict[str, Any]] = {}
    for record in (record for records in used for record in records):
        version = tuple(record[name] for name in ("key", "sha256_content", "bytes", "modified"))
        joined.setdefault(version, record)
    return list(joined.values())


def _lanes(reports: list[SweepReport], decoded: list[Mapping[str, list[Interval]]]) -> list[Lane]:
    lanes = []
    for rank, (report, threads) in enumerate(zip(reports, decoded, strict=True)):
        lanes.append(Lane(f"rank {rank}", report.intervals))
        busy = [intervals for _, intervals in sorted(threads.items())]
        lanes += [Lane(f"rank {rank}, decode {n}", intervals) for n, intervals in enumerate(busy)]
    return lanes
