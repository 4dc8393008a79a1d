"""When epochs begin and end, and which anchor is in force, from declarations alone."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import cftime
import numpy as np
import pytest
from fake import FakeSource, hours

from earthsciio.errors import DeclarationError
from earthsciio.prefetch import PrefetchGroup
from earthsciio.prefetch.timeline import as_clip, lay_out


def in_force(timeline, key) -> list:
    return [timeline.anchors[key][j] for j in timeline.of_epoch[key]]


# spec: G1.2
def test_boundaries_are_the_sorted_union_of_the_members_anchors():
    members = {"a": FakeSource(4, step=2), "b": FakeSource(3, step=3)}
    timeline = lay_out(members, (None, None))
    assert timeline.boundaries == tuple(hours(h) for h in (0, 2, 3, 4, 6))
    assert timeline.end == hours(8)  # b ends at 9
    assert in_force(timeline, "a") == [hours(h) for h in (0, 2, 2, 4, 6)]
    assert in_force(timeline, "b") == [hours(h) for h in (0, 0, 3, 3, 6)]


# spec: G1.2
def test_epochs_run_from_the_latest_start_to_the_earliest_end():
    members = {"a": FakeSource(10), "b": FakeSource(2, step=3, offset=2.5)}
    timeline = lay_out(members, (None, None))
    assert timeline.boundaries == tuple(hours(h) for h in (2.5, 3, 4, 5, 5.5, 6, 7, 8))
    assert timeline.end == hours(8.5)
    assert in_force(timeline, "a")[0] == hours(2)  # the sample in force then


# spec: G1.2
def test_a_clip_cuts_both_ends_and_begins_with_the_samples_in_force():
    timeline = lay_out({"a": FakeSource(10, step=3)}, (hours(4), hours(10)))
    assert timeline.boundaries == (hours(4), hours(6), hours(9))
    assert timeline.end == hours(10)
    assert in_force(timeline, "a") == [hours(3), hours(6), hours(9)]
    only_start = lay_out({"a": FakeSource(4)}, (hours(2), None))
    assert only_start.boundaries == (hours(2), hours(3))


# spec: G1.2
def test_the_end_is_no_boundary():
    timeline = lay_out({"a": FakeSource(10)}, (None, hours(3)))
    assert timeline.boundaries == (hours(0), hours(1), hours(2))


# spec: G1.3
def test_members_that_hold_or_cycle_bound_nothing():
    members = {
        "a": FakeSource(6, step=2, offset=10),
        "climate": FakeSource(4, step=5, cycle=True),
        "held": FakeSource(2, step=1, offset=12.5, hold=True),
    }
    timeline = lay_out(members, (None, None))
    assert timeline.boundaries == tuple(hours(h) for h in (10, 12, 12.5, 13.5, 14, 15, 16, 18, 20))
    assert in_force(timeline, "held") == [hours(12.5)] * 3 + [hours(13.5)] * 6
    assert in_force(timeline, "climate") == [hours(10)] * 5 + [hours(15)] * 3 + [hours(20)]


def test_anchors_of_a_cycle_that_have_the_same_records_are_of_one_kind():
    timeline = lay_out({"c": FakeSource(3, cycle=True)}, (hours(2), hours(9)))
    kinds = timeline.kinds["c"]
    assert [anchor.hour for anchor in timeline.anchors["c"]] == [2, 3, 4, 5, 6, 7, 8]
    assert np.array_equal(kinds[:3], kinds[3:6])
    assert len(set(kinds[:3])) == 3
    assert kinds[6] == kinds[0]


# spec: G1.3
def test_a_group_that_nothing_ends_is_refused():
    for members in (
        {"a": FakeSource(3, open_ended=True)},
        {"a": FakeSource(3, cycle=True), "b": FakeSource(3, hold=True)},
    ):
        with pytest.raises(DeclarationError, match="clip"):
            PrefetchGroup(members)
        with pytest.raises(DeclarationError, match="clip"):
            PrefetchGroup(members, clip=(hours(0), None))
        with PrefetchGroup(members, clip=(hours(0), hours(2))) as group:
            assert len(group.boundaries()) == 2


# spec: G1.3
def test_a_group_that_nothing_begins_is_refused():
    with (
        PrefetchGroup({"a": FakeSource(3, cycle=True)}, clip=(None, hours(2))) as group,
        pytest.raises(DeclarationError, match="begins"),
    ):
        group.boundaries()


# spec: G1.3
def test_members_without_time_in_common_are_refused():
    members = {"a": FakeSource(3), "b": FakeSource(3, offset=5)}
    with PrefetchGroup(members) as group, pytest.raises(DeclarationError, match="no time in common"):
        group.boundaries()


def test_a_clip_is_put_into_the_groups_calendar():
    naive = as_clip((datetime(2020, 1, 1), None), "standard")  # noqa: DTZ001 - naive means UTC
    assert naive == (hours(0), None)
    east = timezone(timedelta(hours=2))
    assert as_clip((None, datetime(2020, 1, 1, 5, tzinfo=east)), "standard") == (None, hours(3))
    assert as_clip((datetime(2020, 2, 29, 6), None), "noleap") == (  # noqa: DTZ001
        cftime.datetime(2020, 2, 28, 6, calendar="noleap"),
        None,
    )
    assert as_clip(None, "noleap") == (None, None)


def test_a_clip_that_is_none_is_refused():
    for wrong in ((hours(1), hours(1)), (hours(2), hours(1)), (hours(1),)):
        with pytest.raises(DeclarationError, match="clip"):
            as_clip(wrong, "standard")
