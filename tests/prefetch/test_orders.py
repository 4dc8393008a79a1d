"""Orders, spelled out and read off checkpoint schedules."""

from __future__ import annotations

import builtins

import checkpoint_schedules as cs
import numpy as np
import pytest

from earthsciio.errors import DeclarationError, OrderError, Unsupported
from earthsciio.prefetch import Order, revolve
from earthsciio.prefetch.orders import as_order


def test_forward_and_reverse_are_spelled_out():
    assert as_order("forward", 3).epochs == (0, 1, 2)
    assert as_order("reverse", 3).epochs == (2, 1, 0)
    assert as_order([], 3).epochs == ()
    assert as_order(np.array([2, 2, 0]), 3).epochs == (2, 2, 0)
    assert as_order(Order((1,)), 3) == Order((1,))


def test_what_is_no_order_is_refused():
    for wrong in ("sideways", [0, 3], [-1]):
        with pytest.raises(OrderError, match="indices in boundaries"):
            as_order(wrong, 3)


# spec: G2.1
@pytest.mark.parametrize("wrong", [True, False, np.True_, 1.0, 1.5, None, "1", [1]])
def test_an_epoch_is_an_integer(wrong):
    with pytest.raises(OrderError, match="is an integer, not"):
        as_order([0, wrong], 3)


# spec: G2.1
def test_any_iterable_of_epochs_is_an_order_and_so_is_none():
    assert as_order(iter([2, 0]), 3).epochs == (2, 0)
    assert as_order((k for k in (1, 1)), 3).epochs == (1, 1)
    assert as_order([], 3).epochs == ()


def simulate(schedule, n_steps: int) -> list[int]:
    """The steps a solver runs forward and back, by following the actions' meaning with isinstance."""
    steps = []
    for action in schedule:
        if isinstance(action, cs.Forward):
            steps += list(range(action.n0, min(action.n1, n_steps)))
            if action.n1 >= n_steps and schedule.max_n is None:
                schedule.finalize(n_steps)
        elif isinstance(action, cs.Reverse):
            steps += list(action)
        elif isinstance(action, cs.EndReverse):
            break
    return steps


SCHEDULES = {
    "Revolve": lambda: cs.Revolve(20, 4),
    "Multistage": lambda: cs.MultistageCheckpointSchedule(20, 2, 2),
    "Mixed": pytest.param(
        lambda: cs.MixedCheckpointSchedule(20, 4), marks=pytest.mark.soak
    ),  # compiles for long
    "HRevolve": lambda: cs.HRevolve(20, 2, 3),
    "DiskRevolve": lambda: cs.DiskRevolve(20, 3),
    "PeriodicDiskRevolve": lambda: cs.PeriodicDiskRevolve(20, 3),
    "TwoLevel": lambda: cs.TwoLevelCheckpointSchedule(5, 2),
    "SingleMemory": cs.SingleMemoryStorageSchedule,
    "SingleDisk": cs.SingleDiskStorageSchedule,
    "SingleDiskMove": lambda: cs.SingleDiskStorageSchedule(move_data=True),
    "None": cs.NoneCheckpointSchedule,
}


@pytest.mark.parametrize("make", SCHEDULES.values(), ids=SCHEDULES.keys())
def test_an_order_has_the_steps_that_the_schedule_runs(make):
    steps = simulate(make(), 20)
    assert set(steps) == set(range(20))
    assert list(Order.from_schedule(make(), range(20))) == steps


def test_steps_of_one_action_that_share_an_epoch_take_it_once():
    six_steps_each = [step // 6 for step in range(18)]
    order = Order.from_schedule(cs.SingleMemoryStorageSchedule(), six_steps_each)
    assert list(order) == [0, 1, 2, 2, 1, 0]
    by_call = Order.from_schedule(cs.Revolve(18, 18), lambda step: step // 6)
    assert list(by_call) == list(Order.from_schedule(cs.Revolve(18, 18), six_steps_each))


def test_a_schedule_without_end_needs_a_sequence():
    with pytest.raises(DeclarationError, match="without end"):
        Order.from_schedule(cs.SingleMemoryStorageSchedule(), lambda step: step)


def test_actions_are_told_by_name_and_args_since_their_equality_raises():
    with pytest.raises(TypeError):
        assert cs.EndForward() == cs.EndReverse()

    class Forward:
        def __init__(self, *args):
            self.args = args

    assert list(Order.from_schedule([Forward(0, 2, True, False, None)], [5, 7])) == [5, 7]


def test_revolve_is_revolve():
    order = revolve(160, 8)
    assert len(order) == 745  # design section 13
    assert list(order) == simulate(cs.Revolve(160, 8), 160)


def test_revolve_says_which_package_it_needs(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "checkpoint_schedules":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(Unsupported, match="checkpoint-schedules"):
        revolve(3, 1)
