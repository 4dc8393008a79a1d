"""Anchors are counted from start, never drift, and are found without a search; files likewise."""

import pickle
from datetime import UTC, datetime, timedelta

import cftime
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earthsciio.cadence import FOREVER, Cadence, Duration, Placed, Stamps, Steps, calendar
from earthsciio.calendars import DAY, SECOND
from earthsciio.errors import DeclarationError, RecordNotFound, TimeAxisError, TimeBeforeStart, TimePastEnd

HOUR = 3600 * SECOND
NAMES = ["standard", "proleptic_gregorian", "julian", "noleap", "all_leap", "360_day"]


def utc(*parts):
    return datetime(*parts, tzinfo=UTC)


def at(*parts):
    return calendar(None).instant(utc(*parts))


def declare(start, frequency, file_period=None, **options):
    return Cadence.declare(start, frequency, file_period, **options)


def times(cadence, instants):
    return [cadence.calendar.time(i) for i in instants]


# Anchors


# spec: T1.1
@pytest.mark.parametrize("name", NAMES)
@settings(derandomize=True, max_examples=60, deadline=None)
@given(
    year=st.integers(1600, 2400), month=st.integers(1, 12), day=st.integers(1, 28), hour=st.integers(0, 23),
    step=st.integers(1, 30), k=st.integers(0, 60), part=st.floats(0, 1, exclude_max=True),
)  # fmt: skip
def test_month_anchors_are_those_of_stepping_through_the_calendar(
    name, year, month, day, hour, step, k, part
):
    t = cftime.datetime(year, month, day, hour, calendar=name)
    cadence = declare(t, Duration(months=step), calendar=name)
    for _ in range(k * step):  # one month at a time, by the calendar's own names for its days
        t = t.replace(year=t.year + 1, month=1) if t.month == 12 else t.replace(month=t.month + 1)
    anchor = cadence.calendar.instant(t)
    assert cadence.anchor(k) == anchor
    inside = anchor + int(part * (cadence.anchor(k + 1) - anchor))
    assert cadence.index(inside) == k
    assert cadence.index(anchor - 1) == k - 1
    assert cadence.next_anchor(k) == cadence.anchor(k + 1) > anchor
    assert cadence.tolerance(k) == (cadence.anchor(k + 1) - anchor) // 20


# spec: T1.1
@settings(derandomize=True, max_examples=150, deadline=None)
@given(
    step=st.integers(1, 40 * DAY), k=st.integers(-10_000, 10_000), part=st.floats(0, 1, exclude_max=True),
    second=st.integers(0, 200 * 365 * 86_400),
)  # fmt: skip
def test_fixed_anchors_are_start_plus_k_steps(step, k, part, second):
    start = utc(1900, 1, 1) + timedelta(seconds=second)
    cadence = declare(start, timedelta(microseconds=step))
    assert cadence.calendar.time(cadence.anchor(k)) == start + k * timedelta(microseconds=step)
    assert cadence.index(cadence.anchor(k) + int(part * step)) == k


def test_month_steps_over_leap_years():
    cadence = declare(utc(2003, 12, 28, 6), "P1M", end=utc(2004, 4, 28, 6))
    assert times(cadence, cadence.anchors()) == [
        utc(2003, 12, 28, 6),
        *(utc(2004, m, 28, 6) for m in (1, 2, 3)),
    ]
    assert cadence.tolerance(2) == (29 * DAY) // 20  # February 2004
    yearly = declare(utc(2000, 2, 1), "P1Y")
    assert yearly.calendar.time(yearly.anchor(100)) == utc(2100, 2, 1)
    assert yearly.anchor(1) - yearly.anchor(0) == 366 * DAY
    assert yearly.index(at(2004, 1, 31, 23)) == 3


# spec: T1.2
def test_subsecond_steps_are_exact():
    cadence = declare(utc(2000, 1, 1), "PT0.1S")
    assert cadence.calendar.time(cadence.anchor(10**9 + 3)) == utc(2000, 1, 1) + timedelta(
        seconds=10**8, microseconds=300_000
    )
    assert cadence.index(cadence.anchor(10**9) - 1) == 10**9 - 1


def test_three_hourly_steps_know_no_summer_time():
    cadence = declare(utc(2021, 3, 28), "PT3H", end=utc(2021, 3, 29))
    assert [t.hour for t in times(cadence, cadence.anchors())] == [0, 3, 6, 9, 12, 15, 18, 21]
    assert {b - a for a, b in zip(cadence.anchors(), cadence.anchors()[1:], strict=False)} == {3 * HOUR}


# spec: T1.2
@pytest.mark.parametrize("day", [29, 30, 31])
@pytest.mark.parametrize("steps", [("P1M", None), ("P1D", "P1M"), ("P1Y", None)])
def test_months_from_a_day_above_28_are_refused(day, steps):
    with pytest.raises(DeclarationError, match=f"day {day}"):
        declare(utc(2000, 1, day), *steps)
    declare(utc(2000, 1, day), "P1D", "P1W")


def test_anchors_are_half_open_and_respect_end():
    cadence = declare(utc(2000, 1, 1), "P1D", end=utc(2000, 1, 4, 12))
    days = [at(2000, 1, d) for d in (1, 2, 3, 4)]
    assert cadence.anchors() == days
    assert cadence.anchors(days[1], days[3]) == days[1:3]
    assert cadence.anchors(days[1] - 1, days[3] + 1) == days[1:]
    assert cadence.anchors(days[1] + 1, days[1] + 2) == []
    assert cadence.anchors(at(1990, 1, 1), at(2010, 1, 1)) == days
    assert cadence.anchors(days[3], days[1]) == []
    assert cadence.last_index == 3
    assert declare(utc(2000, 1, 1), "P1D", end=utc(2000, 1, 4)).last_index == 2
    endless = declare(utc(2000, 1, 1), "P1D")
    assert endless.last_index is None
    assert endless.anchors(hi=days[2]) == days[:2]
    with pytest.raises(DeclarationError, match="end"):
        endless.anchors()


@pytest.mark.parametrize("months", [0, 5])
def test_between_is_at_for_each_k(months):
    own = calendar("360_day")
    step = Duration(months=months, microseconds=0 if months else 7 * HOUR)
    steps = Steps(own, 13 * DAY, step)
    assert steps.between(-20, 40).tolist() == [steps.at(k) for k in range(-20, 40)]
    assert steps.between(5, 5).tolist() == steps.between(5, 2).tolist() == []


# spec: T1.4
def test_the_calendar_is_the_declared_one_else_that_of_start_else_standard():
    noleap = cftime.datetime(2001, 1, 1, calendar="noleap")
    assert declare(noleap, "P1D").calendar.name == "noleap"
    assert declare(noleap, "P1D", calendar="360").calendar.name == "360_day"
    assert declare(utc(2001, 1, 1), "P1D").calendar.name == "standard"
    cadence = declare(utc(2001, 1, 1), "P1D", calendar="365_day", end=utc(2005, 1, 1))
    assert cadence.calendar.name == "noleap"
    assert len(cadence.anchors()) == 4 * 365
    with pytest.raises(TimeAxisError, match="lunar"):
        declare(noleap, "P1D", calendar="lunar")


def test_360_day_cadence_has_a_30th_of_february():
    cadence = declare(cftime.datetime(2001, 2, 28, calendar="360_day"), "P1D")
    assert times(cadence, [cadence.anchor(2), cadence.anchor(3)]) == [
        cftime.datetime(2001, 2, 30, calendar="360_day"),
        cftime.datetime(2001, 3, 1, calendar="360_day"),
    ]
    assert cadence.index(cadence.calendar.instant(utc(2001, 3, 31))) == 32  # no 31st: the 30th


# spec: T5.3
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"end": utc(2000, 1, 1)}, "after start"),
        ({"end": utc(1999, 1, 1)}, "after start"),
        ({"outside": "wrap"}, "'error', 'hold' or 'cycle'"),
        ({"outside": "cycle"}, "needs an end"),
        ({"outside": "cycle", "end": utc(2000, 7, 1)}, "whole number of years"),
        ({"outside": "cycle", "end": utc(2001, 1, 1, 6)}, "whole number of years"),
        ({"outside": "cycle", "end": utc(2000, 12, 31)}, "whole number of years"),
    ],
)
def test_a_cadence_that_contradicts_itself_is_refused(options, text):
    with pytest.raises(DeclarationError, match=text):
        declare(utc(2000, 1, 1), "P1D", **options)
    with pytest.raises(DeclarationError):
        declare("2000-01-01", "P1D")


def test_cadences_compare_and_pickle():
    cadence = declare(utc(2000, 1, 1), "P1M", "P1Y", end=utc(2001, 1, 1), outside="cycle")
    cadence.place(at(2010, 5, 5))
    again = pickle.loads(pickle.dumps(cadence))
    assert again == cadence == declare(utc(2000, 1, 1), "P1M", "P1Y", end=utc(2001, 1, 1), outside="cycle")
    assert again.place(at(2010, 5, 5)) == cadence.place(at(2010, 5, 5))


# Files


# spec: T1.1
def test_file_periods_are_aligned_to_start():
    cadence = declare(utc(2000, 1, 16, 12), "PT6H", "P1M")
    t = at(2000, 3, 1)
    assert times(cadence, [cadence.file_start(t), cadence.next_file_start(t)]) == [
        utc(2000, 2, 16, 12),
        utc(2000, 3, 16, 12),
    ]
    assert cadence.file_start(at(2000, 3, 16, 12)) == at(2000, 3, 16, 12)
    assert cadence.file_start(at(2000, 3, 16, 12) - 1) == at(2000, 2, 16, 12)
    assert times(cadence, cadence.file_starts(at(2000, 1, 20), at(2000, 3, 16, 12))) == [
        utc(2000, 1, 16, 12),
        utc(2000, 2, 16, 12),
    ]
    assert cadence.file_starts(t, t) == []


# spec: T1.3
def test_a_source_without_file_periods_is_one_file():
    cadence = declare(utc(2000, 1, 1), "P1D")
    assert cadence.file_start(at(2010, 1, 1)) == cadence.start
    assert cadence.next_file_start(at(2010, 1, 1)) is None
    assert cadence.file_starts(at(2005, 1, 1), at(2010, 1, 1)) == [cadence.start]
    assert cadence.file_starts(at(2005, 1, 1), at(2005, 1, 1)) == []


def test_three_hourly_records_in_daily_files():
    cadence = declare(utc(2000, 1, 1), "PT3H", "P1D")
    assert cadence.file_start(cadence.anchor(7)) == at(2000, 1, 1)
    assert cadence.file_start(cadence.anchor(8)) == at(2000, 1, 2) == cadence.anchor(8)


# Before start and after end


def test_outside_error_names_the_time_and_the_bound():
    cadence = declare(utc(2000, 1, 1), "P1D", end=utc(2000, 1, 4, 12))
    assert cadence.place(at(2000, 1, 2, 23)) == Placed(1, at(2000, 1, 2))
    assert cadence.place(at(2000, 1, 4, 12) - 1) == Placed(3, at(2000, 1, 4))
    with pytest.raises(TimeBeforeStart, match=r"1999-12-31 23:59:59.*2000-01-01") as early:
        cadence.place(at(1999, 12, 31, 23, 59, 59))
    assert isinstance(early.value, ValueError)
    with pytest.raises(TimePastEnd, match=r"2000-01-04 12:00:00.*end=2000-01-04 12:00:00") as late:
        cadence.place(at(2000, 1, 4, 12))
    assert isinstance(late.value, IndexError)


def test_a_cadence_without_end_has_data_forever():
    cadence = declare(utc(2000, 1, 1), "P1D")
    assert cadence.place(at(2500, 6, 1)).k == (utc(2500, 6, 1) - utc(2000, 1, 1)).days


def test_outside_hold_keeps_the_nearest_anchor():
    cadence = declare(utc(2000, 1, 1), "P1D", end=utc(2000, 1, 4), outside="hold")
    assert cadence.place(at(1980, 1, 1)) == Placed(0, at(2000, 1, 1))
    assert cadence.place(at(2000, 1, 2, 5)) == Placed(1, at(2000, 1, 2))
    assert cadence.place(at(2000, 1, 4)) == cadence.place(at(2020, 1, 1)) == Placed(2, at(2000, 1, 3))
    assert cadence.anchors(at(1980, 1, 1), at(2020, 1, 1)) == [at(2000, 1, d) for d in (1, 2, 3)]


@pytest.mark.parametrize("outside", ["error", "hold"])
def test_the_successor_ends_at_the_last_anchor_before_end(outside):
    cadence = declare(utc(2000, 1, 1), "P1D", end=utc(2000, 1, 3, 12), outside=outside)
    second = cadence.successor(cadence.place(at(2000, 1, 1, 9)))
    assert second == Placed(1, at(2000, 1, 2))
    assert cadence.successor(second) == Placed(2, at(2000, 1, 3))
    assert cadence.successor(cadence.place(at(2000, 1, 3))) is None


# Irregular series


def irregular(**options):
    options = {"end": utc(2001, 1, 1), **options}
    stamps = [at(1999, 12, 31), at(2000, 1, 5), at(2000, 1, 6), at(2000, 7, 1, 3), at(2001, 1, 1)]
    return declare(utc(2000, 1, 1), "records", "P1M", **options).with_stamps(stamps)


def test_the_anchors_of_an_irregular_series_are_its_stamps_within_the_declared_span():
    cadence = irregular()
    want = [at(2000, 1, 5), at(2000, 1, 6), at(2000, 7, 1, 3)]
    assert cadence.anchors() == want
    assert cadence.anchors(want[1], want[2]) == [want[1]]
    assert [cadence.anchor(k) for k in range(3)] == want
    assert [cadence.index(t) for t in (want[0] - 1, want[0], want[1] - 1, want[2] + DAY)] == [-1, 0, 0, 2]
    assert cadence.last_index == 2
    assert cadence.next_anchor(1) == want[2]
    assert cadence.next_anchor(2) == at(2001, 1, 1)
    assert irregular(end=None).next_anchor(3) == FOREVER
    assert cadence.tolerance(0) == 0
    assert cadence.place(at(2000, 3, 1)) == Placed(1, want[1])
    assert cadence.successor(Placed(1, want[1])) == Placed(2, want[2])
    assert cadence.successor(Placed(2, want[2])) is None


def test_an_irregular_series_has_bounds_like_any_other():
    with pytest.raises(TimeBeforeStart):
        irregular().place(at(1999, 12, 31))
    with pytest.raises(TimeBeforeStart, match="start=2000-01-05"):
        irregular().place(at(2000, 1, 2))
    with pytest.raises(TimePastEnd):
        irregular().place(at(2001, 1, 1))
    assert irregular(outside="hold").place(at(1990, 1, 1)).k == 0
    assert irregular(outside="hold").place(at(2010, 1, 1)).k == 2


def test_an_irregular_series_cycles():
    cadence = irregular(outside="cycle")
    assert cadence.place(at(2010, 3, 1)) == Placed(1, at(2010, 1, 6), 10)
    assert cadence.place(at(2010, 1, 2)) == Placed(2, at(2009, 7, 1, 3), 9)
    assert cadence.successor(cadence.place(at(2010, 8, 1))) == Placed(0, at(2011, 1, 5), 11)
    assert cadence.anchors(at(2009, 6, 1), at(2010, 1, 6)) == [at(2009, 7, 1, 3), at(2010, 1, 5)]


@pytest.mark.parametrize("outside", ["error", "hold", "cycle"])
def test_an_irregular_series_without_records_has_none_to_give(outside):
    cadence = irregular(outside=outside).with_stamps([])
    assert cadence.anchors() == []
    with pytest.raises(RecordNotFound):
        cadence.place(at(2000, 6, 1))


def test_unread_stamps_are_not_guessed():
    cadence = declare(utc(2000, 1, 1), "records", "P1M")
    assert not cadence.is_read
    assert cadence.with_stamps([at(2000, 2, 1)]).is_read
    with pytest.raises(RuntimeError, match="records"):
        cadence.anchor(0)
    assert cadence.file_start(at(2000, 2, 10)) == at(2000, 2, 1)  # files don't depend on them


def test_stamps_are_strictly_increasing():
    for bad in ([1, 1], [2, 1]):
        with pytest.raises(ValueError, match="increasing"):
            Stamps(bad)
    stamps = Stamps([3, 5, 9])
    assert stamps.between(1, 9).tolist() == [5, 9]
    assert not stamps.values.flags.writeable
    with pytest.raises(IndexError):
        stamps.at(-1)
    with pytest.raises(IndexError):
        stamps.at(4)


@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 400 * DAY), min_size=1, max_size=30, unique=True), st.integers(0, 400 * DAY))
def test_irregular_lookup_is_the_last_stamp_not_after(values, t):
    stamps = Stamps(np.sort(values))
    assert stamps.index(t) == sum(v <= t for v in values) - 1
