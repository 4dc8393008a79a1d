"""Errors belong to the take that needs them, and only to it."""

from __future__ import annotations

import gc
import pickle
import weakref

import numpy as np
import pytest
from fake import FakeSource, hours, quiet, values

from earthsciio.errors import CacheMiss, DecodeError, GroupStateError
from earthsciio.events import DecodeFinished
from earthsciio.prefetch import PrefetchGroup

MODES = [{"workers": 0}, {"depth": 0}, {"depth": 1}, {"depth": 3, "workers": 1}, {"depth": 3, "workers": 4}]
all_modes = pytest.mark.parametrize("mode", MODES)


# spec: G6.1
@all_modes
@pytest.mark.parametrize("order", [range(6), range(5, -1, -1), [0, 1, 0, 3, 4, 3]])
def test_an_error_is_raised_by_the_take_that_needs_it_and_not_earlier(mode, order):
    source = FakeSource(6)
    source.failing[3] = DecodeError("corrupt", file="mem:0", chunk=(3,))
    with PrefetchGroup({"w": source}, **mode) as group:
        group.start(list(order))
        for k in order:
            if k == 3:
                with pytest.raises(DecodeError, match="corrupt") as caught:
                    group.take(k)
                assert caught.value.file == "mem:0"
                break
            np.testing.assert_array_equal(values(group.take(k)["w"]), source.expected(hours(k)))


@pytest.mark.parametrize("where", [("resolve", 1), ("measure", 1), 1])
@all_modes
def test_every_step_of_a_sample_can_fail(mode, where):
    source = FakeSource(3)
    source.failing[where] = CacheMiss("http://x", "abc")
    with PrefetchGroup({"w": source}, **mode) as group:
        group.start("forward")
        group.take(0)
        with pytest.raises(CacheMiss) as caught:
            group.take(1)
    assert caught.value is source.failing[where]  # what refresh would have raised
    assert caught.value.others == {}
    assert pickle.loads(pickle.dumps(caught.value)).others == {}


# spec: G6.3
@all_modes
def test_the_cursor_stays_and_the_same_error_comes_again_without_io(mode):
    source = FakeSource(3)
    source.failing[1] = OSError("bad")
    with PrefetchGroup({"w": source}, **mode) as group:
        group.start("forward")
        group.take(0)
        with pytest.raises(OSError, match="bad") as first:
            group.take(1)
        assert group.ready(1)
        calls = len(source.calls)
        for _ in range(3):
            with pytest.raises(OSError, match="bad") as again:
                group.take(1)
            assert again.value is first.value
        depth = len(list(traceback_of(again.value)))
        assert depth == len(list(traceback_of(first.value)))  # does not grow
        assert len(source.calls) == calls
        source.failing.clear()
        with pytest.raises(OSError, match="bad"):
            group.take(1)  # the file may be fine by now; only start clears it
        group.start("forward", from_=1)
        assert values(group.take(1)["w"])[0] == 1000


def traceback_of(error):
    link = error.__traceback__
    while link is not None:
        yield link
        link = link.tb_next


# spec: G6.2
@all_modes
def test_all_members_are_tried_and_the_first_in_sorted_order_is_raised(mode):
    members = {key: FakeSource(2) for key in "abcd"}
    members["b"].failing[1] = OSError("b")
    members["d"].failing[("resolve", 1)] = KeyError("d")
    with PrefetchGroup(members, **mode) as group:
        group.start("forward")
        group.take(0)
        with pytest.raises(OSError, match="b") as caught:
            group.take(1)
        assert caught.value.others == {"d": members["d"].failing["resolve", 1]}
    assert members["a"].decoded() == [0, 1]
    assert members["c"].decoded() == [0, 1]


def test_a_slot_fails_only_when_all_its_members_have_been_tried():
    a, b = FakeSource(2), FakeSource(2)
    a.failing[0] = OSError("a")
    gate = b.gate(0)
    with PrefetchGroup({"a": a, "b": b}, depth=1, workers=2) as group:
        group.start("forward")
        b.wait_until_reached(0)
        quiet(group, b)
        assert not group.ready(0)
        gate.set()
        with pytest.raises(OSError, match="a"):
            group.take(0)
        assert group.ready(0)


# spec: G6.3
def test_nothing_past_a_failed_slot_is_scheduled():
    source = FakeSource(9)
    source.failing[1] = OSError("bad")
    with PrefetchGroup({"w": source}, depth=5, workers=1, fetch_ahead=0) as group:
        group.start("forward")
        quiet(group, source)
        assert source.decoded() == [0, 1]
        assert max(source.called("resolve")) <= 1
        group.take(0)
        quiet(group, source)
        assert source.decoded() == [0, 1]


def test_what_is_in_flight_past_a_failed_slot_is_finished_and_dropped():
    source = FakeSource(4)
    source.failing[0] = OSError("bad")
    slow, first = source.gate(1), source.gate(0)
    events = []
    with PrefetchGroup({"w": source}, depth=2, workers=2, fetch_ahead=0, listeners=[events.append]) as group:
        group.start("forward")
        source.wait_until_reached(1)
        first.set()
        with pytest.raises(OSError, match="bad"):
            group.take(0)
        with group._engine.lock:
            assert group._engine.ledger.nbytes >= source.nbytes  # counted until freed
        slow.set()
        quiet(group, source)
        assert not group._engine._held.samples
        assert not group._engine._held.records
        finished = [e for e in events if isinstance(e, DecodeFinished)]
        assert [e.record for e in finished if e.error is None] == ["mem:0[1]"]
        group.start([1])
        group.take(1)
    assert source.decoded() == [0, 1, 1]


def test_errors_are_per_member_and_anchor():
    hourly, coarse = FakeSource(6), FakeSource(2, step=3)
    coarse.failing[1] = OSError("coarse")
    with PrefetchGroup({"a": hourly, "b": coarse}, depth=1) as group:
        group.start([2, 4])
        group.take(2)
        with pytest.raises(OSError, match="coarse"):
            group.take(4)
        group.start([1])
        group.take(1)  # needs another anchor of b


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_a_bracket_fails_where_either_record_does(workers):
    source = FakeSource(4, bracket=True)
    source.failing[2] = OSError("bad")
    with PrefetchGroup({"w": source}, workers=workers, depth=2) as group:
        group.start("forward")
        group.take(0)
        with pytest.raises(OSError, match="bad"):
            group.take(1)
        group.start([3])
        group.take(3)


def test_a_record_that_failed_fails_those_that_wait_for_it():
    source = FakeSource(3, bracket=True)
    source.failing[1] = OSError("bad")
    gate = source.gate(1)
    with PrefetchGroup({"w": source}, workers=2, depth=2) as group:
        group.start("forward")
        quiet(group, source)
        assert sorted(source.decoded()) == [0, 1, 2]
        gate.set()
        with pytest.raises(OSError, match="bad"):
            group.take(0)
        quiet(group, source)
        assert len(group._engine.errors) == 2
    assert sorted(source.decoded()) == [0, 1, 2]


def test_a_sample_is_not_failed_by_a_record_it_does_not_need():
    """Sample 0 waits for record 1, which sample 1 was to decode after record 2, which fails."""
    source = FakeSource(3, bracket=True)
    source.failing[2] = OSError("bad")
    real = source.resolve
    source.resolve = lambda *at: swap(real(*at))  # a bracket decodes them in their order: 2 before 1
    planning = source.gate(("resolve", 0))
    second = source.gate(2)
    with PrefetchGroup({"w": source}, workers=2, depth=2, fetch_ahead=0, clip=(hours(0), hours(2))) as group:
        group.start([1])
        second.set()
        with pytest.raises(OSError, match="bad"):
            group.take(1)  # now the need of a sample is known, so that the next may overtake
        second = source.gate(2)
        group.start([0, 1])
        source.wait_until_reached(2)
        planning.set()
        quiet(group, source)  # sample 0 has decoded record 0 and waits for record 1
        second.set()
        assert group.take(0)["w"].data.times[1] == hours(0)
        with pytest.raises(OSError, match="bad"):
            group.take(1)


def swap(resolved):
    from earthsciio.records import Resolved

    return Resolved(resolved.anchor, resolved.records[::-1], resolved.times[::-1])


@all_modes
def test_a_transform_that_raises_is_an_error_of_its_sample(mode):
    source = FakeSource(3)

    def transform(key, dataset):
        if dataset.times[0] == hours(1):
            raise ZeroDivisionError("mine")
        return dataset

    with PrefetchGroup({"w": source}, transform=transform, **mode) as group:
        group.start("forward")
        group.take(0)
        with pytest.raises(ZeroDivisionError, match="mine"):
            group.take(1)


# spec: G6.4
@pytest.mark.parametrize("workers", [1, 3])
def test_a_worker_hit_by_what_is_no_exception_ends_the_take_with_an_error_and_start_begins_anew(workers):
    members = {"a": FakeSource(3), "b": FakeSource(3)}
    members["a"].failing[1] = SystemExit(3)
    with PrefetchGroup(members, depth=1, workers=workers) as group:
        group.start("forward")
        group.take(0)
        for _ in range(2):
            with pytest.raises(GroupStateError, match=r"hit by SystemExit\(3\)"):
                group.take(1)
        members["a"].failing.clear()
        group.start("forward", from_=1)
        assert values(group.take(1)["a"])[0] == 1000


def test_a_fault_of_the_library_ends_the_take_too(monkeypatch):
    with PrefetchGroup({"w": FakeSource(3)}, depth=1) as group:
        group.start("forward")
        group.take(0)
        quiet(group)
        monkeypatch.setattr(group._engine, "_admit", lambda *args: 1 / 0)
        group.start([2])
        with pytest.raises(GroupStateError, match="ZeroDivisionError"):
            group.take(2)


@all_modes
def test_a_stored_error_keeps_no_decoded_memory_alive(mode):
    buffers = []
    source = FakeSource(2)
    source.failing[0] = OSError("bad")
    real = source.decode_record

    def spying(record, layout, allocate, abort, keep):
        def spy(shape, dtype):
            array = allocate(shape, dtype)
            buffers.append(weakref.ref(array.base.base if array.base.base is not None else array.base))
            return array

        return real(record, layout, spy, abort)

    source.decode_record = spying
    with PrefetchGroup({"w": source}, **mode) as group:
        group.start("forward")
        with pytest.raises(OSError, match="bad"):
            group.take(0)
        if group._settings.threaded:
            quiet(group, source)
        gc.collect()
        assert buffers
        assert all(buffer() is None for buffer in buffers)


def test_a_warning_of_a_listener_that_fails_disturbs_nothing():
    def listener(event):
        raise RuntimeError("listener")

    with PrefetchGroup({"w": FakeSource(3)}, listeners=[listener]) as group:
        group.start("forward")
        for k in range(3):
            group.take(k)
