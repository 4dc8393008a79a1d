"""Decodes of whole orders: as few as the order and the budget allow."""

from __future__ import annotations

import sys
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from fake import FakeSource, hours

import earthsciio.prefetch
from earthsciio.prefetch import PrefetchGroup, revolve


def furthest_next_use(order: list[int], capacity: int) -> int:
    """Decodes of a cache of that many samples, the one in hand included, that looks ahead in the order."""
    cached: set[int] = set()
    decodes = 0
    for slot, epoch in enumerate(order):
        if epoch not in cached:
            decodes += 1
            if len(cached) == capacity:
                rest = order[slot:]
                cached.remove(max(cached, key=lambda e: rest.index(e) if e in rest else len(order)))
            cached.add(epoch)
    return decodes


def optimum(order: tuple[int, ...], capacity: int) -> int:
    """The least decodes that any choice of what to let go of leads to, by trying all."""

    @cache
    def least(slot: int, cached: frozenset[int]) -> int:
        if slot == len(order):
            return 0
        epoch = order[slot]
        if epoch in cached:
            return least(slot + 1, cached)
        if len(cached) < capacity:
            return 1 + least(slot + 1, cached | {epoch})
        return 1 + min(least(slot + 1, cached - {gone} | {epoch}) for gone in cached)

    return least(0, frozenset())


def decodes(order, capacity, *, workers=0, depth=0) -> int:
    """Decodes of a group that has room for so many samples, and whose consumer holds none."""
    source = FakeSource(max(order) + 1)
    budget = capacity * source.nbytes
    with PrefetchGroup({"w": source}, depth=depth, workers=workers, max_bytes=budget) as group:
        group.start(order)
        for k in order:
            group.take(k)
        stats = group.stats()
    assert stats.peak_bytes <= budget
    assert len(source.decoded()) == stats.records_decoded
    assert stats.reused + stats.records_decoded == len(order)
    return stats.records_decoded


@pytest.mark.parametrize(("capacity", "known"), [(1, 585), (8, 419), (16, 370)])
def test_revolve_decodes_as_rarely_as_furthest_next_use_allows(capacity, known):
    order = revolve(160, 8)
    assert len(order) == 745
    assert furthest_next_use(list(order), capacity) == known
    assert decodes(order, capacity) == known


@pytest.mark.parametrize("seed", range(12))
def test_no_choice_of_what_to_let_go_of_would_decode_less(seed):
    rng = np.random.default_rng(seed)
    order = tuple(int(e) for e in rng.integers(0, 6, size=14))
    for capacity in (1, 2, 3, 4):
        assert optimum(order, capacity) == furthest_next_use(list(order), capacity)
        assert decodes(order, capacity) == optimum(order, capacity)


def test_with_room_for_all_everything_is_decoded_once_whatever_runs_ahead():
    order = revolve(60, 4)
    assert decodes(order, 60, workers=3, depth=4) == 60


@pytest.mark.parametrize("order", ["forward", "reverse"])
@pytest.mark.parametrize("mode", [{"depth": 0}, {"depth": 1}, {"depth": 2}, {"depth": 4, "workers": 4}])
def test_bracket_mode_decodes_epochs_plus_one_records(order, mode):
    source = FakeSource(41, bracket=True)
    with PrefetchGroup({"w": source}, clip=(hours(0), hours(40)), **mode) as group:
        group.start(order)
        for k in range(40) if order == "forward" else range(39, -1, -1):
            group.take(k)
        assert group.stats().records_decoded == 41
        assert group.stats().epochs_decoded == 40


@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_brackets_in_turn_need_room_for_two_samples_only(order):
    """One in hand gives way; a bracket, its two records, and nothing decoded twice."""
    source = FakeSource(21, bracket=True)
    with PrefetchGroup(
        {"w": source}, clip=(hours(0), hours(20)), max_bytes=4 * source.nbytes, depth=1
    ) as group:
        group.start(order)
        for k in range(20) if order == "forward" else range(19, -1, -1):
            group.take(k)
        stats = group.stats()
    assert stats.records_decoded == 21
    assert stats.peak_bytes == 4 * source.nbytes


def test_members_of_different_cadence_decode_each_sample_once():
    hourly, coarse = FakeSource(72), FakeSource(24, step=3)
    with PrefetchGroup({"a": hourly, "b": coarse}, workers=2, depth=4) as group:
        group.start("forward")
        for k in range(72):
            group.take(k)
        group.start("reverse")
        for k in range(71, -1, -1):
            group.take(k)
        assert group.stats().members["b"].epochs_decoded == 23  # it turned round in the last one
    assert len(hourly.decoded()) == 72 + 71
    assert len(coarse.decoded()) == 24 + 23


def test_an_adjoint_over_brackets_decodes_no_more_than_each_sweep_would():
    order = revolve(24, 3)
    source = FakeSource(25, bracket=True)
    with PrefetchGroup({"w": source}, clip=(hours(0), hours(24)), depth=2, max_bytes=10**6) as group:
        group.start(order)
        for k in order:
            group.take(k)
        assert group.stats().records_decoded == 25  # there was room for all
    turns = sum(a != b for a, b in pairwise(order))
    source = FakeSource(25, bracket=True)
    with PrefetchGroup({"w": source}, clip=(hours(0), hours(24)), depth=0, max_bytes=1) as group:
        group.start(order)
        for k in order:
            group.take(k)
        assert group.stats().records_decoded < 2 * turns  # neighbours still share a record


def lines_of_takes(members, order, **options) -> int:
    """Lines of the prefetch package that the first takes of an order run."""
    here, lines = str(Path(earthsciio.prefetch.__file__).parent), 0

    def trace(frame, event, _):
        nonlocal lines
        lines += event == "line"
        return trace if frame.f_code.co_filename.startswith(here) else None

    before = sys.gettrace()
    with PrefetchGroup(members, workers=0, **options) as group:
        group.start(order)
        sys.settrace(trace)
        try:
            for k in order[:40]:
                group.take(k)
        finally:
            sys.settrace(before)
    return lines


LONG_ORDERS = {
    "brackets that come round": lambda n: ({"w": FakeSource(5, bracket=True)}, [0, 1, 2] * n, 450),
    "a climatology": lambda n: (
        {"w": FakeSource(3, bracket=True, cycle=True), "f": FakeSource(6)},
        [0, 1, 3, 4] * n,
        900,
    ),
    "a sample for all slots": lambda n: (
        {"w": FakeSource(3 * n, size=16), "slow": FakeSource(1, step=3 * n, bracket=True)},
        list(range(3 * n)),
        450,
    ),
}


@pytest.mark.parametrize("case", LONG_ORDERS.values(), ids=LONG_ORDERS.keys())
def test_a_take_costs_no_more_in_a_longer_order(case):
    """But for the depth of a search; going through the order would cost twice as much, or more."""
    short, long = (
        lines_of_takes(members, order, max_bytes=budget) for members, order, budget in map(case, (40, 4000))
    )
    assert long < 1.5 * short
