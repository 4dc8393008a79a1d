"""Sweeps: the order they announce, the states they hand to an adjoint, restarts, and their accounts."""

from __future__ import annotations

import weakref
from itertools import pairwise

import numpy as np
import pytest
from checkpoint_schedules import (
    EndForward,
    EndReverse,
    Forward,
    Move,
    NoneCheckpointSchedule,
    Reverse,
    Revolve,
    SingleDiskStorageSchedule,
    SingleMemoryStorageSchedule,
    StorageType,
)
from synthetic import DAY, MemoryForcing, grid, winds

from earthsciio.errors import DeclarationError, FileFormatError, Unsupported
from integrator import sweep
from integrator.blocks import Blocks
from integrator.models.tracer import TracerModel
from integrator.partition import Dim, Partition
from integrator.restart import Restart


class Numbers:
    """A forcing whose sample of epoch k is the number k + 1; notes every call."""

    def __init__(self):
        self.calls = []

    def start(self, order):
        self.calls.append(("start", list(order)))

    def take(self, k):
        self.calls.append(("take", k))
        return k + 1

    def release(self, k):
        self.calls.append(("release", k))

    def taken(self):
        return [k for name, k in self.calls if name == "take"]


class Logistic:
    """x' = x + a s x (1 - x) per epoch of length a with sample s: its adjoint needs the right states."""

    def forward(self, x, s, t0, t1):
        return x + (t1 - t0) * s * x * (1 - x)

    def adjoint(self, lam, x, s, t0, t1):
        return lam * (1 + (t1 - t0) * s * (1 - 2 * x))


def boundaries(n):
    return [0.01 * k * (k + 1) for k in range(n + 1)]


def chain_rule(x, n):
    """Final state and derivative of sum(x**2) / 2, multiplied out step by step on the way forward."""
    slope, edges = np.ones_like(x), boundaries(n)
    for k in range(n):
        a = (edges[k + 1] - edges[k]) * (k + 1)
        slope = slope * (1 + a * (1 - 2 * x))
        x = x + a * x * (1 - x)
    return x, x * slope


@pytest.mark.parametrize("n", [1, 2, 3, 7, 12])
def test_gradients_are_those_of_the_chain_rule_under_any_schedule(n):
    x = np.array([0.1, 0.5, 0.9])
    final, gradient = chain_rule(x, n)
    schedules = [None, *(Revolve(n, s) for s in range(1, n + 1))]
    for schedule in schedules:
        forcing = Numbers()
        result = sweep.adjoint(Logistic(), forcing, x, boundaries(n), lambda end: end, schedule=schedule)
        assert np.array_equal(result.state, final)
        assert np.allclose(result.gradient, gradient, rtol=1e-13)
        assert forcing.calls[0] == ("start", forcing.taken())
        assert x.tolist() == [0.1, 0.5, 0.9]


def test_every_schedule_gives_the_same_bits():
    x = np.linspace(0.1, 0.9, 5)
    runs = [
        sweep.adjoint(Logistic(), Numbers(), x, boundaries(9), lambda end: end, schedule=schedule)
        for schedule in (None, Revolve(9, 1), Revolve(9, 3), Revolve(9, 8))
    ]
    assert len({run.gradient.tobytes() for run in runs}) == len({run.state.tobytes() for run in runs}) == 1


def test_the_order_of_a_revolve_sweep_is_the_published_one():
    # design section 13: 160 epochs and 8 snapshots take 745 times, 585 of them another epoch than before
    order = [action.step for action in sweep.walk(Revolve(160, 8), 160) if action.takes]
    assert len(order) == 745
    assert 1 + sum(a != b for a, b in pairwise(order)) == 585
    assert order[:160] == list(range(160))


@pytest.mark.parametrize("snapshots", [1, 3, 8])
def test_a_revolve_sweep_keeps_no_more_states_than_its_snapshots_and_the_one_at_work(snapshots):
    kept, most = {}, 0
    for action in sweep.walk(Revolve(20, snapshots), 20):
        match action.verb:
            case "store":
                kept[action.storage, action.step] = True
            case "drop":
                del kept[action.storage, action.step]
            case "clear":
                kept = {key: True for key in kept if key[0] is not action.storage}
        most = max(most, len({step for _, step in kept}))
    assert most <= snapshots + 1


def test_states_are_forgotten_when_the_schedule_is_done_with_them():
    class Counting(Logistic):
        made, most = [], 0

        def forward(self, x, s, t0, t1):
            state = super().forward(x, s, t0, t1)
            self.made.append(weakref.ref(state))
            return state

        def adjoint(self, lam, x, s, t0, t1):
            self.most = max(self.most, sum(ref() is not None for ref in self.made))
            return super().adjoint(lam, x, s, t0, t1)

    model = Counting()
    sweep.adjoint(model, Numbers(), np.ones(1), boundaries(20), lambda end: end, schedule=Revolve(20, 3))
    # 3 snapshots, the state at work, the one a replay has just made, and the final one
    assert model.most <= 6


def test_a_schedule_may_keep_what_the_adjoint_needs_apart_from_what_is_at_work():
    class Apart(list):
        max_n = 3

    ram, work = StorageType.RAM, StorageType.WORK
    schedule = Apart([Forward(0, 3, False, True, ram), EndForward()])
    for step in (2, 1, 0):
        schedule += [Move(step, ram, work), Reverse(step + 1, step, True)]
    schedule.append(EndReverse())
    x = np.array([0.2, 0.6])
    result = sweep.adjoint(Logistic(), Numbers(), x, boundaries(3), lambda end: end, schedule=schedule)
    assert np.allclose(result.gradient, chain_rule(x, 3)[1], rtol=1e-13)


def test_forward_takes_each_epoch_once_and_releases_it():
    forcing = Numbers()
    result = sweep.forward(Logistic(), forcing, np.array([0.3]), boundaries(4))
    assert forcing.calls == [("start", [0, 1, 2, 3])] + [
        (name, k) for k in range(4) for name in ("take", "release")
    ]
    assert np.array_equal(result.state, chain_rule(np.array([0.3]), 4)[0])
    assert result.gradient is None


def test_schedules_that_do_not_fit_are_refused_before_anything_is_taken():
    used = Revolve(4, 2)
    sweep.walk(used, 4)
    for schedule in (used, Revolve(3, 2), Revolve(5, 2), NoneCheckpointSchedule()):
        forcing = Numbers()
        with pytest.raises(DeclarationError, match="does not lead back over 4 epochs"):
            sweep.adjoint(Logistic(), forcing, np.ones(1), boundaries(4), lambda end: end, schedule=schedule)
        assert forcing.calls == []
    with pytest.raises(Unsupported, match="on disk"):
        sweep.walk(SingleDiskStorageSchedule(), 4)
    with pytest.raises(DeclarationError, match="no epoch"):
        sweep.forward(Logistic(), Numbers(), np.ones(1), [0.0])
    with pytest.raises(DeclarationError, match="seed"):
        sweep.adjoint(Logistic(), Numbers(), np.ones(1), boundaries(2), lambda end: np.ones(2))


def test_a_model_that_raises_leaves_its_epoch_unreleased():
    # release is collective: calling it here would wait for ranks whose model did not raise
    class Failing(Logistic):
        def forward(self, x, s, t0, t1):
            raise ArithmeticError("the model blew up")

    forcing = Numbers()
    with pytest.raises(ArithmeticError, match="blew up"):
        sweep.forward(Failing(), forcing, np.ones(1), boundaries(2))
    assert forcing.calls[-1] == ("take", 0)


def test_the_report_adds_up(monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(sweep, "perf_counter", lambda: float(next(clock)))
    report = sweep.adjoint(
        Logistic(),
        Numbers(),
        np.ones(1),
        boundaries(2),
        lambda end: end,
        schedule=SingleMemoryStorageSchedule(),
    ).report
    # per epoch the clock ticks at: start, taken, computed, released
    kinds = [(i.kind, i.epoch, i.start, i.stop) for i in report.intervals[:3]]
    assert kinds == [("take", 0, 0, 1), ("forward", 0, 1, 2), ("release", 0, 2, 3)]
    assert [i.epoch for i in report.intervals if i.kind == "adjoint"] == [1, 0]
    assert (report.epochs, report.computed, report.waited, report.first_wait) == (4, 4, 8, 1)
    assert report.total == 15
    assert sweep.gather_reports(None, report) == [report]
    assert sweep.SweepReport().total == 0


def tracer(n):
    g = grid(7, 8)
    partition = g.partition(1)
    u, v = winds(g, n + 1)
    forcing = MemoryForcing(partition, 0, u, v, [k * DAY for k in range(n + 1)])
    return TracerModel(g, partition, step=1800.0), forcing, np.random.default_rng(0).random((7, 8))


def test_the_tracer_reads_no_released_sample_and_its_gradient_is_exact():
    n = 5
    model, forcing, x = tracer(n)
    edges = [k * DAY for k in range(n + 1)]
    y = np.random.default_rng(1).random(x.shape)
    everything = sweep.adjoint(model, forcing, x, edges, lambda end: y)
    revolve = sweep.adjoint(model, forcing, x, edges, lambda end: y, schedule=Revolve(n, 2))
    assert everything.gradient.tobytes() == revolve.gradient.tobytes()
    assert np.sum(everything.state * y) == pytest.approx(np.sum(x * everything.gradient), rel=1e-12)
    assert forcing.orders[0] == [0, 1, 2, 3, 4, 4, 3, 2, 1, 0]


def test_a_sweep_goes_on_from_its_restart_file_with_the_same_bits(tmp_path):
    edges = [k * DAY for k in range(6)]
    model, forcing, x = tracer(5)
    expected = sweep.forward(model, forcing, x, edges).state

    class Dying(type(model)):
        def forward(self, q, sample, t0, t1):
            if t0 == 3 * DAY:
                raise KeyboardInterrupt
            return super().forward(q, sample, t0, t1)

    restart = Restart(tmp_path / "run.npz", Blocks(model.partition), every=2)
    model.__class__ = Dying
    with pytest.raises(KeyboardInterrupt):
        sweep.forward(model, forcing, x, edges, restart=restart)
    model, forcing, _ = tracer(5)
    resumed = sweep.forward(model, forcing, x, edges, restart=restart)
    assert forcing.orders == [[2, 3, 4]]
    assert resumed.state.tobytes() == expected.tobytes()
    assert [i.epoch for i in resumed.report.intervals if i.kind == "restart"] == [3, 4]
    # a finished run has nothing left to do
    assert sweep.forward(model, forcing, x, edges, restart=restart).state.tobytes() == expected.tobytes()
    assert [path.name for path in tmp_path.iterdir()] == ["run.npz"]


def test_a_write_that_fails_leaves_the_old_restart_file(tmp_path, monkeypatch):
    restart = Restart(tmp_path / "run.npz", Blocks(Partition((Dim("x", 3),), 1)))
    assert restart.load([0.0, 1.0]) is None
    restart.save(1, np.arange(3.0), [0.0, 1.0])

    def full(file, **arrays):
        file.write(b"half a file")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space left"):
        restart.save(2, np.zeros(3), [0.0, 1.0])
    epoch, state = restart.load([0.0, 1.0])
    assert (epoch, state.tolist()) == (1, [0.0, 1.0, 2.0])
    assert [path.name for path in tmp_path.iterdir()] == ["run.npz"]


def test_a_restart_file_of_another_run_is_refused(tmp_path):
    restart = Restart(tmp_path / "run.npz", Blocks(Partition((Dim("x", 3),), 1)))
    restart.save(1, np.arange(3.0), [0.0, 1.0])
    with pytest.raises(DeclarationError, match="other epochs"):
        restart.load([0.0, 2.0])
    with pytest.raises(DeclarationError, match="grid of"):
        Restart(tmp_path / "run.npz", Blocks(Partition((Dim("x", 4),), 1))).load([0.0, 1.0])
    with pytest.raises(DeclarationError, match=r"of a run with , not level 3.*Remove it"):
        Restart(tmp_path / "run.npz", Blocks(Partition((Dim("x", 3),), 1)), about="level 3").load([0.0, 1.0])
    whole = (tmp_path / "run.npz").read_bytes()
    entry = whole.index(b"PK\x01\x02")  # of the archive's directory, made to name an unknown compression
    unknown = whole[: entry + 10] + b"\x63\x00" + whole[entry + 12 :]
    for content in (b"", b"not a restart file", whole[:200], unknown):
        (tmp_path / "run.npz").write_bytes(content)
        with pytest.raises(FileFormatError, match="not a restart file"):
            restart.load([0.0, 1.0])
    with pytest.raises(DeclarationError):
        Restart(tmp_path / "run.npz", Blocks(Partition((Dim("x", 3),), 1)), every=0)
