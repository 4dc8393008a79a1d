"""Design section 8, rule by rule: what a group decodes, when, how often, and what it hands out."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from fake import FakeSource, hours, quiet, values

from earthsciio.errors import DeclarationError, GroupStateError, OrderError, SelectionError, Unsupported
from earthsciio.events import DecodeStarted, Submitted
from earthsciio.fields import NativeDataset, NativeField
from earthsciio.prefetch import Order, PrefetchGroup
from earthsciio.selection import Window


def walk(group: PrefetchGroup, order="forward", **start) -> list:
    """Take a whole order; give the epoch samples."""
    n = len(group.boundaries())
    group.start(order, **start)
    named = {"forward": range(n), "reverse": range(n - 1, -1, -1)}
    return [group.take(k) for k in (named[order] if isinstance(order, str) else order)]


def check_values(group, members, epochs) -> None:
    boundaries = group.boundaries()
    for epoch in epochs:
        for key, member in members.items():
            np.testing.assert_array_equal(values(epoch[key]), member.expected(boundaries[epoch.epoch]))


ORDERS = ["forward", "reverse", [0, 0, 3, 1, 3, 11, 0, 1, 2]]
MODES = [
    {"workers": 0},
    {"depth": 0},
    {"depth": 1},
    {"depth": 3, "workers": 4},
    {"max_bytes": 1, "workers": 3},
    {"max_bytes": 300, "workers": 2, "depth": 4},
]


# spec: G3.1
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("mode", MODES)
def test_take_gives_what_refresh_gives(order, mode):
    members = {
        "hourly": FakeSource(12, bracket=True),
        "coarse": FakeSource(4, step=3, salt=1),
        "climate": FakeSource(5, step=2, cycle=True, salt=2),
        "held": FakeSource(2, step=2, offset=3, hold=True, salt=3),
    }
    with PrefetchGroup(members, **mode) as group:
        check_values(group, members, walk(group, order))


# spec: G1.1
def test_a_member_that_is_not_there_is_answered_with_those_that_are():
    with PrefetchGroup({"wind": FakeSource(2), "rain": FakeSource(2)}) as group:
        group.start("forward")
        epoch = group.take(0)
        with pytest.raises(KeyError, match=r"no member 'winds'; there are \['rain', 'wind'\]"):
            epoch["winds"]
        assert "winds" not in epoch


def test_keys_are_served_in_sorted_order():
    members = {key: FakeSource(2) for key in "cab"}
    started = []
    with PrefetchGroup(members, depth=2, listeners=[started.append]) as group:
        epochs = walk(group)
    assert list(epochs[0]) == ["a", "b", "c"]
    keys = [event.key for event in started if isinstance(event, DecodeStarted)]
    assert keys == ["a", "b", "c", "a", "b", "c"]


# The unit of decode.


# spec: G3.4
@pytest.mark.parametrize("order", ["forward", "reverse"])
@pytest.mark.parametrize("mode", [*MODES[:4], {"depth": 2, "workers": 2}])
def test_a_record_that_two_brackets_share_is_decoded_once(order, mode):
    source = FakeSource(21, bracket=True)
    with PrefetchGroup({"w": source}, clip=(hours(0), hours(20)), **mode) as group:
        walk(group, order)
        stats = group.stats()
    assert sorted(source.decoded()) == list(range(21))
    assert stats.records_decoded == 20 + 1  # epochs + 1
    assert stats.epochs_decoded == 20


def test_a_record_being_decoded_is_waited_for_not_decoded_again():
    source = FakeSource(3, bracket=True)
    gate = source.gate(1)
    with PrefetchGroup({"w": source}, depth=2, workers=2) as group:
        group.start("forward")
        source.wait_until_reached(1)
        quiet(group, source)  # the second sample has decoded record 2 and waits for 1
        assert sorted(source.decoded()) == [0, 1, 2]
        gate.set()
        check_values(group, {"w": source}, [group.take(0), group.take(1)])
    assert sorted(source.decoded()) == [0, 1, 2]


# spec: G3.4
@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_what_several_epochs_need_is_decoded_once(order):
    hourly, coarse = FakeSource(24), FakeSource(8, step=3)
    with PrefetchGroup({"a": hourly, "b": coarse}, workers=2) as group:
        walk(group, order)
        stats = group.stats()
    assert sorted(hourly.decoded()) == list(range(24))
    assert sorted(coarse.decoded()) == list(range(8))
    assert stats.members["a"].epochs_decoded == 24
    assert stats.members["b"].epochs_decoded == 8
    assert stats.members["b"].reused == 16


@pytest.mark.parametrize("mode", [{"depth": 0}, {"depth": 2}, {"depth": 3, "workers": 3}])
def test_anchors_made_of_one_record_share_its_decode(mode):
    source = FakeSource(4)
    source.aliases[2] = 1  # as on a Feb 29 of a file without one
    with PrefetchGroup({"w": source}, **mode) as group:
        walk(group)
    assert source.decoded() == [0, 1, 3]


@pytest.mark.parametrize("bracket", [False, True])
@pytest.mark.parametrize("mode", [{"depth": 0}, {"depth": 2, "workers": 2}])
def test_a_cycle_decodes_each_record_of_the_file_once(bracket, mode):
    source = FakeSource(6, cycle=True, bracket=bracket)
    with PrefetchGroup({"w": source}, clip=(hours(2), hours(26)), **mode) as group:
        epochs = walk(group)
        check_values(group, {"w": source}, epochs)
    assert sorted(source.decoded()) == list(range(6))
    assert epochs[7]["w"].data.times[0] == hours(9)  # each in its own year


# Samples.


# spec: G3.3
def test_a_sample_that_comes_again_is_the_same_object_while_the_order_keeps_it():
    source = FakeSource(3)
    with PrefetchGroup({"w": source}) as group:
        first, second, again = walk(group, [0, 1, 0])
    assert again["w"].data is first["w"].data
    assert second["w"].data is not first["w"].data
    assert source.decoded() == [0, 1]


# spec: G3.3
@pytest.mark.parametrize("windows", [None, [Window({"x": (0, 1)})] * 2])
def test_a_sample_the_consumer_holds_is_found_again_though_the_budget_let_go_of_it(windows):
    source = FakeSource(3)
    with PrefetchGroup({"w": source}, max_bytes=1, depth=1, windows=windows) as group:
        group.start([0, 1, 2, 0])
        first = group.take(0)
        group.take(1)
        group.take(2)
        again = group.take(0)
    if windows is None:
        assert again["w"].data is first["w"].data
    else:
        assert all(a is b for a, b in zip(again["w"].data, first["w"].data, strict=True))
    assert source.decoded() == [0, 1, 2]


def test_a_sample_nobody_holds_is_decoded_again_where_the_budget_let_go_of_it():
    source = FakeSource(3)
    with PrefetchGroup({"w": source}, max_bytes=1, depth=1) as group:
        for k in walk_lazily(group, [0, 1, 2, 0]):
            assert values(group.take(k)["w"])[0] == 1000 * k
    assert source.decoded() == [0, 1, 2, 0]


def walk_lazily(group, order):
    group.start(order)
    yield from order


# spec: G3.3
@pytest.mark.parametrize("bracket", [False, True])
def test_arrays_are_read_only_for_good(bracket):
    with PrefetchGroup({"w": FakeSource(2, bracket=bracket)}) as group:
        array = values(walk(group)[0]["w"])
    while isinstance(array, np.ndarray):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True
        array = array.base


# spec: G3.2
def test_changed_compares_with_the_members_last_sample_returned():
    hourly, coarse = FakeSource(6), FakeSource(2, step=3)
    with PrefetchGroup({"a": hourly, "b": coarse}) as group:
        epochs = walk(group, [0, 1, 3, 3, 0])
        assert [e["a"].changed for e in epochs] == [True, True, True, False, True]
        assert [e["b"].changed for e in epochs] == [True, False, True, False, True]
        group.start([0, 1])
        assert group.take(0)["b"].changed  # the first since start
        assert not group.take(1)["b"].changed
    assert epochs[2]["b"].anchor == hours(3)


# spec: G3.2
@pytest.mark.parametrize("mode", [{"depth": 0}, {"depth": 2}])
def test_a_take_that_raised_does_not_count_for_changed(mode):
    a, b = FakeSource(3), FakeSource(1, step=3)
    a.failing[1] = OSError("bad")
    with PrefetchGroup({"a": a, "b": b}, **mode) as group:
        group.start([0, 1, 2])
        group.take(0)
        with pytest.raises(OSError, match="bad"):
            group.take(1)
        group.start([2])
        assert group.take(2)["b"].changed


# spec: G3.1
def test_windows_give_a_tuple_of_datasets_decoded_in_one_go():
    a, b = FakeSource(3), FakeSource(3, bracket=True, salt=1)
    three = [Window({"x": (0, 2)}), {"dims": {"x": "all"}}, Window({"x": [0]})]
    with PrefetchGroup({"a": a, "b": b}, windows={"a": three, "b": three[:1]}) as group:
        epochs = walk(group)
    for k, epoch in enumerate(epochs):
        assert len(epoch["a"].data) == 3
        assert len(epoch["b"].data) == 1
        for w in range(3):
            np.testing.assert_array_equal(values(epoch["a"], w), a.expected(hours(k), w))
    assert a.decoded() == [0, 1, 2]


# Depth and workers.


# spec: G4.1
def test_depth_is_how_many_slots_are_decoded_ahead_of_the_consumer():
    source = FakeSource(9)
    with PrefetchGroup({"w": source}, depth=3, workers=2, fetch_ahead=0) as group:
        group.start("forward")
        quiet(group, source)
        assert sorted(source.decoded()) == [0, 1, 2]
        group.take(0)
        quiet(group, source)
        assert sorted(source.decoded()) == [0, 1, 2, 3]
        group.take(1)
        group.take(2)
        quiet(group, source)
        assert sorted(source.decoded()) == [0, 1, 2, 3, 4, 5]


# spec: G4.1
@pytest.mark.parametrize("mode", [{"depth": 0, "workers": 2}, {"depth": 2, "workers": 0}])
def test_without_depth_or_workers_everything_is_decoded_inside_take_on_the_callers_thread(mode):
    before = threading.active_count()
    where = []
    with PrefetchGroup(
        {"w": FakeSource(4)}, listeners=[lambda e: where.append((e.thread, e))], **mode
    ) as group:
        group.start("forward")
        assert not group.ready(0)
        group.take(0)
        assert not group.ready(1)
        assert threading.active_count() == before
        assert not group.stats().overlap
        assert group.stats().hidden_est is None
        group.take(1)
        assert group.stats().records_decoded == 2
    assert {thread for thread, _ in where} == {threading.current_thread().name}


# spec: G4.1
def test_workers_is_how_many_samples_are_in_flight():
    source = FakeSource(6)
    gates = [source.gate(i) for i in range(4)]
    with PrefetchGroup({"w": source}, depth=4, workers=3, fetch_ahead=0) as group:
        group.start("forward")
        for i in range(3):
            source.wait_until_reached(i)
        quiet(group, source)
        assert source.running == 3
        assert sorted(source.decoded()) == [0, 1, 2]
        gates[1].set()
        source.wait_until_reached(3)
        assert group.ready(1)  # finished first, and is not handed out before its turn
        assert not group.ready(0)
        for gate in gates:
            gate.set()
        for k in range(6):
            assert values(group.take(k)["w"])[0] == 1000 * k
    assert source.most_running == 3


# spec: G3.1
def test_finishing_out_of_order_changes_nothing():
    source = FakeSource(3)
    gate = source.gate(0)
    with PrefetchGroup({"w": source}, depth=3, workers=2) as group:
        group.start("forward")
        quiet(group, source)
        assert group.ready(1)
        assert group.ready(2)
        assert not group.ready(0)
        gate.set()
        check_values(group, {"w": source}, [group.take(k) for k in range(3)])


# Orders.


# spec: G2.2
def test_a_wrong_epoch_is_an_error_that_names_the_right_one_and_moves_nothing():
    with PrefetchGroup({"w": FakeSource(4)}) as group:
        group.start([2, 0])
        with pytest.raises(OrderError, match="next epoch of the order is 2, not 0") as caught:
            group.take(0)
        assert caught.value.expected == 2
        assert group.take(2).epoch == 2
        assert group.take(0).epoch == 0
        with pytest.raises(OrderError, match="ended"):
            group.take(0)


# spec: G2.1
def test_an_order_can_begin_at_an_epoch_or_at_a_slot():
    source = FakeSource(6)
    with PrefetchGroup({"w": source}, fetch_ahead=0) as group:
        group.start("reverse", from_=2)
        assert group.take(2)["w"].anchor == hours(2)
        group.start(Order((0, 3, 3, 1)), from_=3)
        assert [group.take(3).epoch, group.take(3).epoch, group.take(1).epoch] == [3, 3, 1]
        group.start([0, 3, 3, 1], at=2)
        assert [group.take(3).epoch, group.take(1).epoch] == [3, 1]
        group.start([0, 1], at=2)
        with pytest.raises(OrderError, match="ended"):
            group.take(0)
        for wrong in (
            {"from_": 5},
            {"at": 5},
            {"at": -1},
            {"from_": 0, "at": 0},
            {"at": True},
            {"from_": True},
        ):
            with pytest.raises(OrderError):
                group.start([0, 1], **wrong)


# spec: G2.1, G2.2
@pytest.mark.parametrize("order", [[], [0, 1]])
def test_an_order_of_nothing_begins_and_has_ended(order):
    with PrefetchGroup({"w": FakeSource(4)}) as group:
        group.start(order, at=len(order))
        with pytest.raises(OrderError, match="ended"):
            group.take(0)
        with pytest.raises(OrderError):
            group.ready(0)
        group.start(iter([3, 0]))
        assert [group.take(3).epoch, group.take(0).epoch] == [3, 0]
        with pytest.raises(OrderError, match="ended"):
            group.take(0)


# spec: G2.1
def test_a_start_that_is_refused_leaves_the_order_alone():
    with PrefetchGroup({"w": FakeSource(3)}) as group:
        group.start("forward")
        group.take(0)
        for wrong in ("backward", [0, 3], [-1], [0.5]):
            with pytest.raises(OrderError):
                group.start(wrong)
        assert group.take(1).epoch == 1


# spec: G2.1
@pytest.mark.parametrize("mode", [{"depth": 0}, {"depth": 2}])
def test_start_keeps_samples_already_decoded(mode):
    source = FakeSource(5, bracket=True)
    with PrefetchGroup({"w": source}, clip=(hours(0), hours(4)), **mode) as group:
        for k in walk_lazily(group, range(4)):
            group.take(k)
        assert sorted(source.decoded()) == [0, 1, 2, 3, 4]
        for k in walk_lazily(group, range(3, -1, -1)):  # turns round at a sample that is still there
            group.take(k)
    assert source.decoded()[5:] == [2, 1, 0]


def test_start_keeps_what_is_ready_but_untaken():
    source = FakeSource(4)
    with PrefetchGroup({"w": source}, depth=3, fetch_ahead=0) as group:
        group.start("forward")
        quiet(group, source)
        group.start([2, 1])
        check_values(group, {"w": source}, [group.take(2), group.take(1)])
    assert source.decoded() == [0, 1, 2]


# spec: G5.3
def test_what_the_order_needs_no_more_is_dropped_at_the_next_take():
    source = FakeSource(4)
    with PrefetchGroup({"w": source}, depth=0) as group:
        group.start([0, 1, 2])
        group.take(0)
        assert len(group._engine._held.samples) == 1
        group.take(1)
        assert [item.anchor for item in group._engine._held.samples] == [1]
        group.take(2)
        assert [item.anchor for item in group._engine._held.samples] == [2]
        assert len(group._engine._held.records) == 1


# spec: G2.4
def test_ready_asks_about_the_next_slot_of_an_epoch():
    source = FakeSource(5)
    with PrefetchGroup({"w": source}, depth=2) as group:
        with pytest.raises(GroupStateError, match="no order"):
            group.ready(0)
        group.start([3, 1, 3])
        quiet(group, source)
        assert group.ready(3)
        assert group.ready(1)
        group.take(3)
        group.take(1)
        assert group.ready(3)
        group.take(3)
        with pytest.raises(OrderError, match="no epoch 3 any more"):
            group.ready(3)


# Reading ahead.


# spec: G4.2
def test_fetch_ahead_runs_on_its_own_thread_beyond_depth():
    source = FakeSource(9)
    gate = source.gate(0)
    threads = set()
    source.fetch_ahead = lambda *args, plain=source.fetch_ahead: (
        threads.add(threading.current_thread().name),
        plain(*args),
    )
    with PrefetchGroup({"w": source}, depth=2, fetch_ahead=3) as group:
        group.start("forward")
        source.wait_until_reached(0)
        quiet(group, source)
        fetched = set(source.called("fetch"))
        assert fetched >= {2, 3, 4}  # up to depth + fetch_ahead, the decode waiting
        assert max(fetched) == 4
        gate.set()
        group.take(0)
        quiet(group, source)
        assert max(source.called("fetch")) == 5
    assert len(threads) == 1
    assert "fetch" in threads.pop()


# spec: G4.2
def test_fetch_ahead_defaults_to_depth_and_is_off_in_synchronous_mode():
    source = FakeSource(9)
    with PrefetchGroup({"w": source}, depth=2) as group:
        group.start("forward")
        quiet(group, source)
        assert max(source.called("fetch")) == 3
    quietly = FakeSource(9)
    with PrefetchGroup({"w": quietly}, workers=0) as group:
        walk(group)
    assert quietly.called("fetch") == []


# spec: G4.2
def test_a_failed_fetch_ahead_raises_nothing_and_the_decode_tries_again():
    source = FakeSource(4)
    for j in range(4):
        source.failing["fetch", j] = OSError("no network")
    with PrefetchGroup({"w": source}, depth=1, fetch_ahead=2) as group:
        check_values(group, {"w": source}, walk(group))
        quiet(group, source)
        assert group.stats().fetches_failed > 0


# Transform.


def shifted(dataset: NativeDataset, by: float) -> NativeDataset:
    fields = {name: NativeField(f.data + by, f.dims, f.attrs) for name, f in dataset.variables.items()}
    return NativeDataset(fields, dataset.coords, dataset.times)


# spec: G4.3
@pytest.mark.parametrize("mode", MODES)
def test_transform_runs_once_per_decoded_dataset_and_not_again_on_reuse(mode):
    members = {"a": FakeSource(6, bracket=True), "b": FakeSource(2, step=3)}
    calls = []

    def transform(key, dataset):
        calls.append((key, dataset.times[0]))
        return shifted(dataset, 0.5)

    with PrefetchGroup(members, transform=transform, **mode) as group:
        epochs = walk(group, [0, 1, 0, 2])
        for epoch in epochs:
            for key, member in members.items():
                np.testing.assert_array_equal(values(epoch[key]), member.expected(hours(epoch.epoch)) + 0.5)
    assert len(calls) == len(set(calls))


def test_transform_runs_on_the_worker_once_per_window():
    threads, keys = set(), []

    def transform(key, dataset):
        threads.add(threading.current_thread().name)
        keys.append(key)
        return dataset

    with PrefetchGroup({"w": FakeSource(2)}, transform=transform, windows=[{"dims": {}}] * 3) as group:
        walk(group)
    assert keys == ["w"] * 6
    assert threading.current_thread().name not in threads


# spec: G4.3
@pytest.mark.parametrize("mode", [{"workers": 0}, {"workers": 1}])
def test_a_transform_that_writes_into_what_it_is_given_is_an_error_of_its_sample(mode):
    def transform(key, dataset):
        dataset["v"].data[...] += 1
        return dataset

    with PrefetchGroup({"w": FakeSource(2)}, transform=transform, **mode) as group:
        group.start("forward", from_=1)
        with pytest.raises(ValueError, match="read-only") as caught:
            group.take(1)
        note = f"raised by the transform of member 'w' at {hours(1)}; what it is given is read-only"
        assert caught.value.__notes__ == [note]
        with pytest.raises(ValueError, match="read-only") as caught:
            group.take(1)
        assert caught.value.__notes__ == [note]


def test_a_transformed_array_of_the_callers_own_stays_writable_for_the_caller():
    mine = np.zeros(8)
    with PrefetchGroup(
        {"w": FakeSource(1)},
        transform=lambda key, ds: NativeDataset({"v": NativeField(mine, ("x",))}, {}, ds.times),
    ) as group:
        given = values(walk(group)[0]["w"])
    assert not given.flags.writeable
    mine[0] = 1


def test_staged_results_serve_the_slots_that_follow_on_and_are_never_kept():
    hourly, coarse = FakeSource(6), FakeSource(2, step=3)
    staged = []

    def transform(key, dataset):
        if key == "b":
            staged.append(dataset.times[0])
            return None
        return dataset

    with PrefetchGroup({"a": hourly, "b": coarse}, transform=transform, depth=3) as group:
        epochs = walk(group, [0, 1, 2, 3, 0, 0, 1])
    assert staged == [hours(0), hours(3), hours(0)]
    assert [len(epoch["b"].data) for epoch in epochs] == [0] * 7
    assert epochs[3]["b"].data.times == (hours(3),)
    assert [epoch["b"].changed for epoch in epochs] == [True, False, False, True, True, False, False]


def test_a_staged_sample_is_staged_again_after_start():
    calls = []
    with PrefetchGroup({"w": FakeSource(2)}, transform=lambda key, ds: calls.append(ds.times)) as group:
        walk(group, [0])
        walk(group, [0])
    assert len(calls) == 2


# Members.


# spec: G1.1
def test_what_cannot_make_a_group_is_refused_by_name():
    const = FakeSource(2)
    const.is_const = True
    other = FakeSource(2)
    other.calendar = "noleap"
    with pytest.raises(DeclarationError, match="'b' has no time"):
        PrefetchGroup({"a": FakeSource(2), "b": const})
    with pytest.raises(DeclarationError, match="'b' is in calendar noleap"):
        PrefetchGroup({"a": FakeSource(2), "b": other})
    with pytest.raises(DeclarationError, match="at least one member"):
        PrefetchGroup({})
    with pytest.raises(DeclarationError, match=r"a mapping of names to providers, not list.*Write {'wind'"):
        PrefetchGroup([FakeSource(2)])
    for wrong in ({"depth": -1}, {"workers": -1}, {"max_bytes": 0}, {"fetch_ahead": -1}, {"depth": 1.5}):
        with pytest.raises(DeclarationError, match=next(iter(wrong))):
            PrefetchGroup({"a": FakeSource(2)}, **wrong)


# spec: G6.5
@pytest.mark.parametrize("later", [{"executor": "process"}, {"spill_dir": "/tmp/x"}, {"spill_bytes": 1}])
def test_what_is_not_there_yet_names_itself(later):
    with pytest.raises(Unsupported, match=next(iter(later))):
        PrefetchGroup({"a": FakeSource(2)}, **later)


# spec: S2.7
def test_windows_are_checked_for_their_form_at_construction():
    members = {"a": FakeSource(2), "b": FakeSource(2)}
    for wrong in (Window({"x": (0, 1)}), {"a": [Window({})]}, []):
        with pytest.raises(DeclarationError):
            PrefetchGroup(members, windows=wrong)
    for wrong in ([{"axes": ["all"]}], [{"x": (0, 1)}], [{"dims": {"x": {"slice": [3, 1]}}}]):
        with pytest.raises(SelectionError):
            PrefetchGroup(members, windows=wrong)


def test_windows_are_refused_for_a_member_that_has_a_selection():
    bound = FakeSource(2)
    bound.select = Window({"x": (0, 1)})
    with PrefetchGroup({"a": bound}) as group:
        walk(group)
    with pytest.raises(SelectionError, match="'a' has a selection already"):
        PrefetchGroup({"a": bound}, windows=[Window({"x": (0, 1)})])


# spec: G1.3
def test_construction_and_boundaries_open_nothing_and_start_no_thread():
    source, before = FakeSource(4), threading.active_count()
    group = PrefetchGroup({"w": source})
    assert group.boundaries() == [hours(k) for k in range(4)]
    assert group.end == hours(4)
    assert source.calls == []
    assert threading.active_count() == before
    assert group.stats().takes == 0
    group.close()


def test_submitted_is_said_once_per_slot_and_member():
    events = []
    with PrefetchGroup({"a": FakeSource(3), "b": FakeSource(3)}, listeners=[events.append]) as group:
        walk(group)
    submitted = [(e.slot, e.key) for e in events if isinstance(e, Submitted)]
    assert submitted == [(slot, key) for slot in range(3) for key in "ab"]
