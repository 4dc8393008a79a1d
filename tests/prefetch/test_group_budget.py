"""What a group may hold: exact, hard, and never a reason to wait for ever."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest
from fake import FakeSource, hours, quiet, values

from earthsciio.events import Evicted
from earthsciio.fields import NativeDataset, NativeField
from earthsciio.memory import default_max_bytes
from earthsciio.prefetch import PrefetchGroup

S = FakeSource(1).nbytes  # of a sample that is one record


def sweep(group, order):
    """Take an order, and hold nothing."""
    group.start(order)
    for k in order:
        group.take(k)


def held(group) -> list[int]:
    """The anchors of the samples a group holds."""
    return sorted(item.anchor for item in group._engine._held.samples)


# spec: G5.1
def test_nothing_is_allocated_before_its_size_is_reserved():
    source = FakeSource(4)
    first = source.gate(0)
    with PrefetchGroup({"w": source}, depth=3, workers=2, max_bytes=2 * S - 1, fetch_ahead=0) as group:
        group.start("forward")
        source.wait_until_reached(0)
        quiet(group, source)
        assert set(source.called("measure")) == {0, 1, 2}  # planned as far as depth goes
        assert source.decoded() == [0]  # there is room for one only
        assert group._engine.ledger.nbytes == S
        first.set()
        quiet(group, source)
        assert source.decoded() == [0]
        group.take(0)
        quiet(group, source)
        assert source.decoded() == [0, 1]
        assert group.stats().peak_bytes == S


def test_a_reservation_is_the_exact_decoded_size():
    source = FakeSource(3, bracket=True)
    gate = source.gate(0)
    with PrefetchGroup({"w": source}, depth=1, max_bytes=10**6) as group:
        group.start("forward")
        source.wait_until_reached(0)
        with group._engine.lock:
            assert group._engine.ledger.nbytes == 2 * S + 2 * S  # two records, and the bracket
        gate.set()
        group.take(0)
        quiet(group, source)
        assert group.stats().peak_bytes == 2 * S + 2 * S + S + 2 * S  # the next one shares a record
    assert group.stats().evicted == 0


# spec: G5.1
@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("budget", [1, S, 2 * S, 3 * S, 5 * S, 100 * S])
@pytest.mark.parametrize("order", [range(12), [0, 5, 1, 0, 5, 5, 2, 1, 11, 0]])
def test_the_peak_never_passes_the_budget_but_for_one_sample_alone(workers, budget, order):
    with PrefetchGroup({"w": FakeSource(12)}, depth=3, workers=workers, max_bytes=budget) as group:
        sweep(group, order)
        assert group.stats().peak_bytes <= max(budget, S)


# spec: G5.1
def test_a_sample_larger_than_the_budget_is_decoded_alone_and_counted():
    small, large = FakeSource(6), FakeSource(6, size=100)
    with PrefetchGroup({"a": small, "b": large}, depth=3, workers=4, max_bytes=10 * S) as group:
        sweep(group, range(6))
        # beside it only what the same slot needs
        assert 8 * 100 <= group.stats().peak_bytes <= 8 * 100 + S
    assert large.most_running == 1


# spec: G5.2
@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("bracket", [False, True])
def test_a_consumer_that_keeps_every_sample_never_deadlocks(workers, bracket):
    members = {"a": FakeSource(12, bracket=bracket), "b": FakeSource(4, step=3, bracket=bracket)}
    order = [0, 3, 1, 0, 5, 3, 11, 0, 1, 2, 3]
    with PrefetchGroup(members, depth=3, workers=workers, max_bytes=2 * S) as group:
        group.start(order)
        kept = [group.take(k) for k in order]
    for epoch in kept:
        for key, member in members.items():
            np.testing.assert_array_equal(values(epoch[key]), member.expected(hours(epoch.epoch)))


def test_a_sample_in_hand_that_is_not_needed_again_makes_room_for_the_next():
    source = FakeSource(4)
    with PrefetchGroup({"w": source}, depth=1, max_bytes=S, fetch_ahead=0) as group:
        group.start([0, 1, 2])
        first = group.take(0)
        quiet(group, source)
        assert group.ready(1)  # though the first is still held by the consumer
        assert group.stats().peak_bytes == S
        np.testing.assert_array_equal(values(first["w"]), source.expected(hours(0)))


def test_a_sample_in_hand_counts_while_the_order_needs_it_again():
    source = FakeSource(4)
    with PrefetchGroup({"w": source}, depth=1, max_bytes=2 * S, fetch_ahead=0) as group:
        group.start([0, 1, 2, 0])
        first = group.take(0)
        quiet(group, source)
        assert held(group) == [0, 1]
        assert group._engine.ledger.nbytes == 2 * S
        group.take(1)
        quiet(group, source)
        assert held(group) == [0, 2]  # 1 has gone for 2
        assert source.decoded() == [0, 1, 2]
        group.take(2)
        assert group.take(0)["w"].data is first["w"].data


def test_queued_slots_are_reserved_before_kept_ones():
    source = FakeSource(6)
    evicted = []
    with PrefetchGroup(
        {"w": source}, depth=2, max_bytes=2 * S, fetch_ahead=0, listeners=[evicted.append]
    ) as group:
        group.start([0, 1, 2, 3, 0])
        group.take(0)
        quiet(group, source)
        assert held(group) == [1, 2]  # 0 is needed again, but 1 and 2 are queued
        assert group.stats().evicted == 2  # the sample, and the record with the same memory
    assert [e.record for e in evicted if isinstance(e, Evicted)][:1] == ["sample 0"]


# spec: G5.3
def test_what_is_needed_again_furthest_in_the_future_is_evicted_first():
    source = FakeSource(8)
    order = [0, 1, 2, 3, 1, 0, 2]
    with PrefetchGroup({"w": source}, depth=0, max_bytes=3 * S) as group:
        group.start(order)
        for k in order[:3]:
            group.take(k)
        assert held(group) == [0, 1, 2]
        group.take(3)
        assert held(group) == [0, 1, 3]  # 2 comes last
        group.take(1)
        group.take(0)
        group.take(2)
    assert source.decoded() == [0, 1, 2, 3, 2]


def test_an_earlier_slot_takes_room_from_later_ones_that_are_ready():
    source = FakeSource(4)
    gate = source.gate(0)
    large = FakeSource(4, size=24)
    with PrefetchGroup(
        {"a": source, "b": large}, depth=2, workers=2, max_bytes=8 * S, fetch_ahead=0
    ) as group:
        group.start([0, 1])
        source.wait_until_reached(0)
        quiet(group, source)
        assert held(group) == [0, 1, 1]
        gate.set()
        sweep_rest = [group.take(0), group.take(1)]
    assert len(sweep_rest) == 2
    assert group.stats(total=True).peak_bytes <= 8 * S


# spec: G5.1
def test_cancelled_but_running_work_counts_until_it_ends():
    source = FakeSource(4)
    with PrefetchGroup({"w": source}, depth=1, max_bytes=2 * S, fetch_ahead=0) as group:
        hold = DeafGate(source)
        group.start("forward")
        hold.entered.wait(20)
        group.cancel()
        with group._engine.lock:
            assert group._engine.ledger.nbytes == S
        hold.release.set()
        group.cancel(wait=True)
        with group._engine.lock:
            group._engine.ledger.collect()
            assert group._engine.ledger.nbytes == group._engine.ledger.pool.nbytes


class DeafGate:
    """Holds a source's decodes, deaf to their abort tokens."""

    def __init__(self, source):
        self.entered, self.release = threading.Event(), threading.Event()
        source.latency = self._wait

    def _wait(self, i):
        self.entered.set()
        assert self.release.wait(20)


# Buffers.


# spec: G3.3
def test_memory_goes_back_to_the_group_only_when_nobody_holds_it():
    source = FakeSource(6)
    with PrefetchGroup({"w": source}, depth=0) as group:
        group.start("forward")
        view = memoryview(values(group.take(0)["w"])[2:].reshape(2, 3).T[::2])
        where = [values(group.take(k)["w"]).ctypes.data for k in range(1, 6)]
        np.testing.assert_array_equal(view, np.array([[2.0, 5.0], [4.0, 7.0]]))
        assert len(set(where)) == 2  # used in turn: one in hand, one decoded into


# spec: G5.1
@pytest.mark.parametrize("budget", [1, S, 3 * S])
def test_what_gives_way_is_used_again_or_freed_at_once(budget):
    """A block on its way back is in no account, so there must be none when a decode has its memory."""
    source = FakeSource(6)
    on_their_way = []
    with PrefetchGroup({"w": source}, workers=0, max_bytes=budget) as group:
        source.latency = lambda i: on_their_way.append(len(group._engine.ledger.pool.returns.collect()))
        sweep(group, [0, 1, 2, 0, 3, 4, 0])
    assert set(on_their_way) == {0}


def test_buffers_are_used_again_after_start():
    with PrefetchGroup({"w": FakeSource(6)}, depth=1) as group:
        group.start([0, 1, 2])
        first = {values(group.take(k)["w"]).ctypes.data for k in [0, 1, 2]}
        group.start([3, 4, 5])
        second = {values(group.take(k)["w"]).ctypes.data for k in [3, 4, 5]}
    assert first & second


# spec: G2.5
def test_a_sample_outlives_cancel_start_and_close():
    source = FakeSource(6)
    group = PrefetchGroup({"w": source}, depth=2)
    group.start("forward")
    first = group.take(0)
    group.cancel(wait=True)
    group.start([3, 4])
    second = group.take(3)
    group.take(4)
    group.close()
    del group
    gc.collect()
    np.testing.assert_array_equal(values(first["w"]), source.expected(hours(0)))
    np.testing.assert_array_equal(values(second["w"]), source.expected(hours(3)))


def test_close_lets_go_of_all_memory():
    source = FakeSource(6, bracket=True)
    with PrefetchGroup({"w": source}, depth=3) as group:
        group.start([0, 1, 2, 0])
        dataset = weakref.ref(group.take(0)["w"].data)
        assert dataset() is not None
    assert dataset() is None
    assert group._engine.ledger.nbytes == 0
    assert group._engine.ledger.holders == {}


def test_a_failed_decode_leaves_no_buffer_behind():
    source = FakeSource(3)
    source.failing[0] = OSError("bad")
    with PrefetchGroup({"w": source}, depth=1) as group:
        group.start("forward")
        with pytest.raises(OSError, match="bad"):
            group.take(0)
        quiet(group, source)
        with group._engine.lock:
            group._engine.ledger.collect()
            assert group._engine.ledger.holders == {}
            assert group._engine.ledger.nbytes == group._engine.ledger.pool.nbytes == S  # idle


# Transforms.


def test_a_shape_changing_transform_declares_its_size():
    class Mean:
        def output_nbytes(self, key, outputs):
            assert [output.name for output in outputs] == ["v", "v"]
            return 8

        def __call__(self, key, dataset):
            mean = np.array([dataset["v"].data.mean()])
            return NativeDataset({"v": NativeField(mean, ("m",))}, {}, dataset.times)

    source = FakeSource(8, bracket=True)
    with PrefetchGroup({"w": source}, depth=3, transform=Mean(), max_bytes=10**6, fetch_ahead=0) as group:
        group.start("forward")
        first = group.take(0)
        quiet(group, source)
        group._engine.ledger.collect()
        # five results in hand or ready, and the records that a bracket still shares
        held_by_samples = sum(sum(u.footprint.values()) for u in group._engine._held.samples.values())
        assert held_by_samples == 4 * 8
    assert values(first["w"])[0] == source.expected(hours(0)).mean()


@pytest.mark.parametrize("workers", [0, 2])
def test_the_account_follows_what_a_transform_keeps(workers):
    """A result that is a view of its input costs nothing more; one of its own is counted beside it."""

    def half(key, dataset):
        field = dataset["v"]
        return NativeDataset({"v": NativeField(field.data[::2], field.dims)}, {}, dataset.times)

    with PrefetchGroup({"w": FakeSource(4)}, depth=1, workers=workers, transform=half) as group:
        group.start("forward")
        for k in range(4):
            assert len(values(group.take(k)["w"])) == 4
        for unit in group._engine._held.samples.values():
            assert sum(unit.footprint.values()) == S  # the whole block stays


# spec: G5.4
def test_without_max_bytes_it_is_half_of_this_processs_share():
    group = PrefetchGroup({"w": FakeSource(1)})
    assert group.max_bytes == default_max_bytes()
    assert group.max_bytes > 0
