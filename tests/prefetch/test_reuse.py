"""When something is needed next, and what to let go of, against brute force."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earthsciio.prefetch.reuse import NEVER, Candidate, Item, Uses, victims


@settings(deadline=None)
@given(st.lists(st.integers(0, 7), max_size=30), st.lists(st.integers(0, 1), min_size=7, max_size=7))
def test_next_use_is_the_first_slot_from_there_on(order, steps):
    of_epoch = np.cumsum([0, *steps])
    uses = Uses(order, {"m": of_epoch})
    needed = [int(of_epoch[epoch]) for epoch in order]
    for slot in range(len(order) + 1):
        for anchor in range(-1, 9):
            later = [s for s in range(slot, len(order)) if needed[s] == anchor]
            assert uses.next(Item("m", anchor), slot) == (later[0] if later else NEVER)
    for slot, anchor in enumerate(needed):
        assert uses.at("m", slot) == Item("m", anchor)
        end = uses.run_end("m", slot)
        assert needed[slot : end + 1] == [anchor] * (end + 1 - slot)
        assert end + 1 == len(needed) or needed[end + 1] != anchor


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 7), max_size=30),
    st.dictionaries(st.sampled_from([1, 4, 7]), st.integers(0, 30)),
)
def test_slots_are_counted_and_those_provided_for_passed_over(order, lasts):
    """Anchors 1, 4, 7 are of one kind, and some are there up to a last slot."""
    uses, kinds = Uses(order, {"m": np.arange(8)}), Uses(order, {"m": np.arange(8) % 3})
    for start in range(len(order) + 1):
        for stop in range(len(order) + 1):
            for anchor in range(-1, 9):
                assert uses.count(Item("m", anchor), start, stop) == order[start:stop].count(anchor)

        def provided(stop, start=start):
            return sum(uses.count(Item("m", i), start, min(stop, last + 1)) for i, last in lasts.items())

        lacking = (
            s for s in range(start, len(order)) if order[s] in (1, 4, 7) and s > lasts.get(order[s], -1)
        )
        assert kinds.next_beyond(Item("m", 1), start, provided) == next(lacking, NEVER)


def test_anchors_need_not_ascend_with_the_epochs():
    uses = Uses([0, 1, 2, 3], {"m": np.array([2, 0, 1, 0])})
    assert [uses.next(Item("m", anchor), 2) for anchor in range(3)] == [3, 2, NEVER]


footprints = st.dictionaries(st.integers(0, 5), st.just(10), min_size=1, max_size=3)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), footprints), max_size=6),
    st.dictionaries(st.integers(0, 5), st.integers(1, 2)),
    st.integers(1, 60),
)
def test_victims_are_those_needed_last_and_no_more_than_it_takes(units, others, wanted):
    candidates = [Candidate(next_use, marks, i) for i, (next_use, marks) in enumerate(units)]
    holders = dict(others)
    for candidate in candidates:
        for owner in candidate.footprint:
            holders[owner] = holders.get(owner, 0) + 1

    def freed_by(chosen) -> int:
        left = dict(holders)
        for i in chosen:
            for owner in units[i][1]:
                left[owner] -= 1
        gone = {owner for i in chosen for owner in units[i][1] if left[owner] == 0}
        return 10 * len(gone)

    chosen, freed = victims(candidates, holders, wanted)
    assert freed == freed_by(chosen)
    everything = freed_by(range(len(units)))
    assert freed >= wanted or freed == everything
    # nothing is needed later than the soonest of the chosen, and would do as well alone
    if freed >= wanted and chosen:
        soonest = min(units[i][0] for i in chosen)
        later = [i for i, (next_use, _) in enumerate(units) if next_use > soonest]
        assert freed_by(later) < wanted
    for i in chosen:  # each helps
        assert freed_by([other for other in chosen if other != i]) < freed


@pytest.mark.parametrize("wanted", [1, 10, 11, 20, 25, 30])
def test_things_that_share_memory_free_it_together(wanted):
    candidates = [
        Candidate(5, {1: 10}, "record"),
        Candidate(4, {1: 10, 2: 10}, "sample"),
        Candidate(3, {3: 5}, "x"),
    ]
    holders = {1: 2, 2: 1, 3: 1}
    chosen, freed = victims(candidates, holders, wanted)
    assert (chosen, freed) == (
        (["record", "sample"], 20) if wanted <= 20 else (["record", "sample", "x"], 25)
    )


def test_all_subsets_agree_with_the_greedy_choice_for_equal_sizes():
    """Of equal, unshared sizes the choice is the one of the latest next uses among all that free enough."""
    uses = [3, 9, 1, 7, 5]
    candidates = [Candidate(use, {i: 10}, i) for i, use in enumerate(uses)]
    holders = dict.fromkeys(range(5), 1)
    for wanted in range(1, 51):
        chosen, _ = victims(candidates, holders, wanted)
        n = -(-wanted // 10)
        best = max(combinations(range(5), n), key=lambda c: sorted((uses[i] for i in c), reverse=True))
        assert set(chosen) == set(best)
