"""The reference runs behind AU and hidden: the model without decoding, and decoding without the model."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any

import numpy as np

from .figures import Figures, figures_of
from .ranks import maximum
from .sweep import SweepReport

if TYPE_CHECKING:
    from earthsciio.fields import Array
    from earthsciio.prefetch.samples import EpochSample

    from .forcing import EpochOrder
    from .run import CaseRun

__all__ = ["HeldForcing", "SleepingModel", "compute_alone", "decode_alone", "with_references"]


class HeldForcing:
    """A forcing that has every sample at hand, by giving the same one for every epoch.

    Parameters
    ----------
    sample : EpochSample
        What every take gives; its arrays must stay valid.
    """

    def __init__(self, sample: EpochSample) -> None:
        self.sample = sample
        self.group = None

    def start(self, order: EpochOrder) -> None:
        """Nothing to declare."""

    def take(self, _k: int) -> EpochSample:
        """Give the sample."""
        return self.sample

    def release(self, _k: int) -> None:
        """Nothing to give back."""

    def close(self) -> None:
        """Nothing to close."""


class SleepingModel:
    """A model that sleeps as long as another one computes: what a host does while an accelerator steps.

    Parameters
    ----------
    forward_s, adjoint_s : float
        Seconds per epoch.
    """

    def __init__(self, forward_s: float, adjoint_s: float) -> None:
        self.forward_s = forward_s
        self.adjoint_s = adjoint_s

    def forward(self, state: Array, _sample: EpochSample, _t0: float, _t1: float) -> Array:
        """Sleep through an epoch."""
        sleep(self.forward_s)
        return state

    def adjoint(self, lam: Array, _state: Array, _sample: EpochSample, _t0: float, _t1: float) -> Array:
        """Sleep back through an epoch."""
        sleep(self.adjoint_s)
        return lam


def with_references(
    run: CaseRun, boundaries: list[float], direction: str, figures: Figures, report: SweepReport
) -> tuple[Figures, Figures | None]:
    """Add the reference runs to a run's figures, and measure the case with a sleeping model. Collective.

    Returns
    -------
    figures : Figures
        With ``compute_alone_s`` and ``decode_alone_s``.
    device : Figures or None
        Those of the same case while the model sleeps; None where decoding is too little to matter.
    """
    alone = compute_alone(run, boundaries, direction)
    decode_s = decode_alone(run, report)
    figures = replace(figures, compute_alone_s=_slowest(run, alone.total), decode_alone_s=decode_s)
    if figures.hidden is None:
        return figures, None
    per_epoch = [
        _slowest(run, alone.seconds(kind)) / max(sum(i.kind == kind for i in alone.intervals), 1)
        for kind in ("forward", "adjoint")
    ]
    sleeping = SleepingModel(per_epoch[0], per_epoch[1])
    idle = compute_alone(run, boundaries, direction, sleeping)
    forcing = run.forcing()
    slept = run.sweep(forcing, boundaries, direction, sleeping).report
    device = figures_of(run.comm, slept, forcing.stats(), figures.epochs)
    forcing.close()
    return figures, replace(device, compute_alone_s=_slowest(run, idle.total), decode_alone_s=decode_s)


def _slowest(run: CaseRun, seconds: float) -> float:
    return float(maximum(run.comm, np.array([seconds]))[0])


def compute_alone(run: CaseRun, boundaries: list[float], direction: str, model: Any = None) -> SweepReport:
    """Run the sweep with samples at hand. Collective."""
    forcing = run.forcing(workers=0, depth=0)
    forcing.start([0])
    held = HeldForcing(forcing.take(0))
    report = run.sweep(held, boundaries, direction, model).report  # type: ignore[arg-type]  # a Forcing suffices
    forcing.release(0)
    forcing.close()
    return report


def decode_alone(run: CaseRun, of: SweepReport) -> float:
    """Decode the epochs a sweep took, in its order and with its budget, one by one and without the model.

    Returns
    -------
    float
        Seconds of the slowest reader, the first take left out. Collective.
    """
    order = [interval.epoch for interval in of.intervals if interval.kind == "take"]
    forcing = run.forcing(workers=0, depth=0)
    seconds = 0.0
    if forcing.group is not None:
        group = forcing.group
        group.start(order)
        group.take(order[0])
        start = perf_counter()
        for k in order[1:]:
            group.take(k)
        seconds = perf_counter() - start
    slowest = _slowest(run, seconds)
    forcing.close()
    return slowest
