"""A group driven at random against a model that knows nothing of threads, memory or order of completion."""

from __future__ import annotations

import gc
import random
import sys
import threading
import time

import numpy as np
import pytest
from fake import FakeSource, hours
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from earthsciio.errors import GroupStateError, OrderError
from earthsciio.fields import NativeDataset, NativeField
from earthsciio.prefetch import PrefetchGroup
from earthsciio.selection import Window

MEMBERS = {
    "hourly": lambda: FakeSource(12),
    "bracket": lambda: FakeSource(12, bracket=True, salt=1),
    "coarse": lambda: FakeSource(4, step=3, bracket=True, size=16, salt=2),
    "cycle": lambda: FakeSource(3, step=2, cycle=True, bracket=True, salt=3),
    "held": lambda: FakeSource(2, step=4, offset=2, hold=True, salt=4),
}


class Broken(Exception):
    """A failure put into a source or a transform."""


class Grown:
    """A transform whose result is its own, twice as long as its input, and says so."""

    def output_nbytes(self, key, outputs):
        return 2 * sum(output.nbytes for output in outputs)

    def __call__(self, key, dataset):
        data = np.concatenate([dataset["v"].data] * 2, axis=-1)
        return NativeDataset({"v": NativeField(data, dataset["v"].dims)}, {}, dataset.times)


def plus_one(key, dataset):
    return NativeDataset({"v": NativeField(dataset["v"].data + 1, dataset["v"].dims)}, {}, dataset.times)


def tail(key, dataset):
    return NativeDataset({"v": NativeField(dataset["v"].data[..., 1:], dataset["v"].dims)}, {}, dataset.times)


def stage_some(key, dataset):
    return None if key in ("bracket", "held") else dataset


def broken_at_3(key, dataset):
    if key == "hourly" and dataset.times[0] == hours(3):
        raise Broken("transform", key)
    return dataset


TRANSFORMS = {
    None: None,
    "grown": Grown(),
    "+1": plus_one,
    "tail": tail,
    "stage": stage_some,
    "broken": broken_at_3,
}


class GroupMachine(RuleBasedStateMachine):
    """Rules are what a consumer may do; every outcome is compared with the model's."""

    group: PrefetchGroup | None = None

    @initialize(
        keys=st.sets(st.sampled_from(sorted(MEMBERS)), min_size=1, max_size=3),
        depth=st.integers(0, 4),
        workers=st.integers(0, 3),
        budget=st.sampled_from([1, 64, 200, 500, 1000, 3000, 10**6]),
        transform=st.sampled_from(list(TRANSFORMS)),
        n_windows=st.sampled_from([None, 1, 2]),
        failing=st.sets(st.tuples(st.sampled_from(sorted(MEMBERS)), st.integers(0, 11)), max_size=2),
        flaky=st.booleans(),
        latency=st.sampled_from([None, 0.0, 0.0004]),
        seed=st.integers(0, 2**16),
    )
    def make(self, keys, depth, workers, budget, transform, n_windows, failing, flaky, latency, seed):
        self.members = {key: MEMBERS[key]() for key in keys}
        self.failing = {key: {i for member, i in failing if member == key} for key in keys}
        self.flaky, self.random = flaky, random.Random(seed)
        self.transform, self.n_windows, self.budget = transform, n_windows, budget
        for key, member in self.members.items():
            member.latency = self._latency(key, latency)
        self.threads_before = threading.active_count()
        self.group = PrefetchGroup(
            self.members,
            depth=depth,
            workers=workers,
            max_bytes=budget,
            windows=None if n_windows is None else [Window({})] * n_windows,
            transform=TRANSFORMS[transform],
            clip=(hours(0), hours(12)),
        )
        self.threads = workers + 1
        self.boundaries = self.group.boundaries()
        self.order: list[int] | None = None
        self.cursor = 0
        self.last: dict[str, object] = {}
        self.failed: Exception | None = None
        self.kept: dict[tuple[str, object], list] = {}  # what the consumer holds, with a copy of the values

    def _latency(self, key, seconds):
        def latency(i):
            if seconds is not None:
                time.sleep(seconds * self.random.random())
            if i in self.failing[key] and (not self.flaky or self.random.random() < 0.5):
                raise Broken(key, i)

        return latency

    # The model.

    def anchor(self, key, k):
        return self.members[key].anchor_at(self.boundaries[k])

    def may_fail(self, key, k) -> bool:
        member = self.members[key]
        j = member.index(self.anchor(key, k))
        records = {j % member.n}
        if member.bracket:
            records.add((j + 1) % member.n if member.cycle else min(j + 1, member.n - 1))
        broken = self.transform == "broken" and key == "hourly" and self.anchor(key, k) == hours(3)
        return broken or bool(records & self.failing[key])

    def must_fail(self, key, k) -> bool:
        broken = self.transform == "broken" and key == "hourly" and self.anchor(key, k) == hours(3)
        return broken or (self.may_fail(key, k) and not self.flaky)

    def expected(self, key, k, window):
        values = self.members[key].expected(self.anchor(key, k), window)
        if self.transform == "grown":
            return np.concatenate([values] * 2, axis=-1)
        if self.transform == "+1":
            return values + 1
        if self.transform == "tail":
            return values[..., 1:]
        if self.transform == "stage" and key in ("bracket", "held"):
            return None
        return values

    # What a consumer does.

    @rule(
        order=st.one_of(st.sampled_from(["forward", "reverse"]), st.lists(st.integers(0, 11), max_size=12)),
        share=st.floats(0, 1),
    )
    def start(self, order, share):
        n = len(self.boundaries)
        if isinstance(order, list):
            order = [k % n for k in order]
            spelled = order
        else:
            spelled = list(range(n)) if order == "forward" else list(range(n - 1, -1, -1))
        self.cursor = int(share * len(spelled)) if share < 0.5 else 0
        self.group.start(order, at=self.cursor)
        self.order, self.last, self.failed = spelled, {}, None

    @precondition(lambda self: self.order is not None and self.cursor < len(self.order))
    @rule(keep=st.booleans())
    def take(self, keep):
        k = self.order[self.cursor]
        if self.failed is None:
            self.group.ready(k)
        else:
            assert self.group.ready(k)
        error = None
        try:
            epoch = self.group.take(k)
        except Broken as caught:
            error = caught
        if error is not None:
            self.check_failure(k, error)
            return
        assert self.failed is None
        assert not any(self.must_fail(key, k) for key in self.members)
        assert list(epoch) == sorted(self.members)
        for key, sample in epoch.items():
            anchor = self.anchor(key, k)
            assert sample.anchor == anchor
            assert sample.changed == (self.last.get(key) != anchor)
            self.last[key] = anchor
            datasets = [sample.data] if self.n_windows is None else list(sample.data)
            assert len(datasets) == (self.n_windows or 1)
            held = self.kept.get((key, anchor))
            for window, dataset in enumerate(datasets):
                expected = self.expected(key, k, window)
                if expected is None:
                    assert len(dataset) == 0
                    continue
                np.testing.assert_array_equal(dataset["v"].data, expected)
                assert not dataset["v"].data.flags.writeable
                if held is not None:
                    assert held[window][0] is dataset
            if keep and self.expected(key, k, 0) is not None:
                self.kept[key, anchor] = [(ds, ds["v"].data.copy()) for ds in datasets]
        self.cursor += 1

    def check_failure(self, k, error):
        assert self.failed in (None, error)  # the same again, until the next start
        self.failed = error
        first = error.args[0] if error.args[0] != "transform" else "hourly"
        failed = sorted({first, *error.others})
        assert failed[0] == first
        assert all(self.may_fail(key, k) for key in failed)
        assert {key for key in self.members if self.must_fail(key, k)} <= set(failed)

    @precondition(lambda self: self.order is not None and self.cursor < len(self.order))
    @rule(k=st.integers(0, 11))
    def take_a_wrong_epoch(self, k):
        if k != self.order[self.cursor]:
            with pytest.raises(OrderError, match=f"is {self.order[self.cursor]},"):
                self.group.take(k)

    @precondition(lambda self: self.order is None)
    @rule()
    def take_without_an_order(self):
        with pytest.raises(GroupStateError):
            self.group.take(0)

    @rule(wait=st.booleans())
    def cancel(self, wait):
        self.group.cancel(wait)
        self.order, self.failed = None, None
        if wait:
            assert not any(member.running for member in self.members.values())

    @rule(count=st.integers(0, 5))
    def forget(self, count):
        for key in list(self.kept)[:count]:
            del self.kept[key]

    @invariant()
    def what_is_held_never_changes(self):
        for datasets in getattr(self, "kept", {}).values():
            for dataset, values in datasets:
                np.testing.assert_array_equal(dataset["v"].data, values)

    @invariant()
    def the_budget_holds(self):
        if self.group is not None:
            slot = 0  # the most that one slot can need alone
            for member in self.members.values():
                samples = (2 if member.bracket else 1) * member.nbytes * (self.n_windows or 1)
                factor = (1 if member.bracket else 0) + {None: 0, "grown": 2}.get(self.transform, 1)
                slot += samples * (1 + factor)
            assert self.group.stats(total=True).peak_bytes <= max(self.budget, slot)

    def teardown(self):
        if self.group is None:
            return
        self.group.close()
        assert threading.active_count() <= self.threads_before
        engine = self.group._engine
        self.what_is_held_never_changes()
        if engine is not None:
            assert not engine.busy
            assert engine.ledger.holders == {}
            assert engine.ledger.nbytes == 0
            assert engine.ledger.in_flight == 0
            del engine
        self.kept.clear()


COMMON = settings(deadline=None, stateful_step_count=25, suppress_health_check=list(HealthCheck))


def test_any_use_of_a_group_gives_what_the_model_says():
    run_state_machine_as_test(GroupMachine, settings=settings(COMMON, max_examples=200))
    gc.collect()


def test_threads_that_are_switched_all_the_time_change_nothing():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        run_state_machine_as_test(GroupMachine, settings=settings(COMMON, max_examples=60))
    finally:
        sys.setswitchinterval(before)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_thousands_of_uses_of_a_group_give_what_the_model_says():
    run_state_machine_as_test(GroupMachine, settings=settings(COMMON, max_examples=5000))
