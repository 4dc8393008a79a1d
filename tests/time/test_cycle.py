"""A climatology repeats by calendar years: the same dates, whatever leap years do."""

from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import cftime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earthsciio.cadence import Cadence, Placed, calendar
from earthsciio.calendars import DAY, SECOND
from earthsciio.errors import DeclarationError

HOUR = 3600 * SECOND


def utc(*parts):
    return datetime(*parts, tzinfo=UTC)


def at(*parts):
    return calendar(None).instant(utc(*parts))


def cycle(start, frequency, end, **options):
    return Cadence.declare(start, frequency, end=end, outside="cycle", **options)


def test_a_monthly_climatology_serves_the_same_month_of_any_year():
    cadence = cycle(utc(2021, 1, 1), "P1M", utc(2022, 1, 1))
    assert cadence.place(at(2023, 7, 14)) == Placed(6, at(2023, 7, 1), 2)
    assert cadence.place(at(2023, 12, 31, 23, 59)) == Placed(11, at(2023, 12, 1), 2)
    assert cadence.place(at(2019, 2, 28)) == Placed(1, at(2019, 2, 1), -2)
    assert cadence.place(at(2021, 3, 1)) == Placed(2, at(2021, 3, 1), 0)
    assert cadence.place(at(2024, 2, 29, 23)) == Placed(1, at(2024, 2, 1), 3)


def test_december_is_followed_by_the_january_of_the_next_cycle():
    cadence = cycle(utc(2021, 1, 1), "P1M", utc(2022, 1, 1))
    december = cadence.place(at(2023, 12, 15))
    assert cadence.successor(december) == Placed(0, at(2024, 1, 1), 3)
    assert cadence.successor(cadence.place(at(2021, 12, 15))) == Placed(0, at(2022, 1, 1), 1)
    # mid-month stamps: the bracket of mid-December
    assert cadence.in_year_of(december, at(2021, 12, 16)) == at(2023, 12, 16)
    assert cadence.in_year_of(cadence.successor(december), at(2021, 1, 16)) == at(2024, 1, 16)


def test_a_cycle_need_not_start_in_january():
    cadence = cycle(utc(2020, 7, 1), "P1M", utc(2021, 7, 1))
    assert cadence.place(at(2030, 6, 30)) == Placed(11, at(2030, 6, 1), 9)
    assert cadence.place(at(2030, 7, 1)) == Placed(0, at(2030, 7, 1), 10)
    assert cadence.anchors(at(2030, 6, 1), at(2030, 8, 1)) == [at(2030, 6, 1), at(2030, 7, 1)]


def test_a_cycle_of_several_years():
    cadence = cycle(utc(2000, 1, 1), "P1Y", utc(2003, 1, 1))
    assert [cadence.place(at(y, 5, 5)).k for y in range(1997, 2007)] == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]


# spec: T5.4
def test_a_daily_climatology_repeats_feb_28_on_a_leap_day():
    cadence = cycle(utc(2001, 1, 1), "P1D", utc(2002, 1, 1))
    assert cadence.place(at(2004, 2, 28, 23)) == Placed(58, at(2004, 2, 28), 3)
    leap = cadence.place(at(2004, 2, 29, 6))
    assert leap == Placed(58, at(2004, 2, 29), 3, repeated=1)
    assert cadence.place(at(2004, 3, 1)) == Placed(59, at(2004, 3, 1), 3)
    assert cadence.successor(cadence.place(at(2004, 2, 28))) == leap
    assert cadence.successor(leap) == cadence.place(at(2004, 3, 1))
    assert len(cadence.anchors(at(2004, 1, 1), at(2005, 1, 1))) == 366
    assert len(cadence.anchors(at(2003, 1, 1), at(2004, 1, 1))) == 365
    assert len(cadence.anchors(at(2100, 1, 1), at(2101, 1, 1))) == 365
    assert cadence.in_year_of(leap, at(2001, 2, 28)) == at(2004, 2, 29)


def test_a_six_hourly_climatology_keeps_its_time_of_day_on_a_leap_day():
    cadence = cycle(utc(2001, 1, 1), "PT6H", utc(2002, 1, 1))
    day = [cadence.place(at(2004, 2, 29, h)) for h in (0, 6, 12, 18)]
    assert [(p.k, p.anchor) for p in day] == [(58 * 4 + i, at(2004, 2, 29, 6 * i)) for i in range(4)]
    assert cadence.successor(day[3]) == Placed(59 * 4, at(2004, 3, 1), 3)
    assert cadence.successor(cadence.place(at(2004, 2, 28, 18))) == day[0]


def test_daily_anchors_at_noon_hold_into_the_next_morning_also_around_a_leap_day():
    cadence = cycle(utc(2001, 1, 1, 12), "P1D", utc(2002, 1, 1, 12))
    assert cadence.place(at(2004, 2, 29, 6)) == Placed(58, at(2004, 2, 28, 12), 3)
    assert cadence.place(at(2004, 3, 1, 6)) == Placed(58, at(2004, 2, 29, 12), 3, repeated=1)
    assert cadence.place(at(2004, 3, 1, 12)) == Placed(59, at(2004, 3, 1, 12), 3)


# spec: T5.4
def test_a_leap_day_of_the_declared_year_is_left_out_of_years_without_one():
    cadence = cycle(utc(2000, 1, 1), "P1D", utc(2001, 1, 1))
    assert cadence.place(at(2000, 2, 29)) == Placed(59, at(2000, 2, 29), 0)
    assert cadence.place(at(2001, 2, 28, 12)) == Placed(58, at(2001, 2, 28), 1)
    assert cadence.successor(cadence.place(at(2001, 2, 28))) == Placed(60, at(2001, 3, 1), 1)
    assert cadence.place(at(2004, 2, 29, 12)) == Placed(59, at(2004, 2, 29), 4)
    assert cadence.place(at(1900, 2, 28)) == Placed(58, at(1900, 2, 28), -100)
    assert len(cadence.anchors(at(1900, 1, 1), at(1901, 1, 1))) == 365


# spec: T5.4
def test_pentads_go_on_across_a_leap_day():
    cadence = cycle(utc(2001, 1, 1), "P5D", utc(2002, 1, 1))
    assert cadence.place(at(2004, 2, 29)) == Placed(11, at(2004, 2, 25), 3)
    assert cadence.place(at(2004, 3, 2)) == Placed(12, at(2004, 3, 2), 3)
    assert len(cadence.anchors(at(2004, 1, 1), at(2005, 1, 1))) == 73


# spec: T5.4
def test_a_coarse_anchor_on_a_leap_day_falls_on_feb_28():
    cadence = cycle(utc(2000, 2, 2), "P27D", utc(2001, 2, 2))
    assert cadence.calendar.time(cadence.anchor(1)) == utc(2000, 2, 29)
    assert cadence.place(at(2001, 2, 28)) == Placed(1, at(2001, 2, 28), 1)


def test_stamps_go_to_the_year_asked_for_by_their_components():
    cadence = cycle(utc(2001, 1, 1), "P1Y", utc(2002, 1, 1))
    placed = cadence.place(at(2004, 9, 9))
    assert cadence.in_year_of(placed, at(2001, 7, 1)) == at(2004, 7, 1)
    assert cadence.in_year_of(cadence.place(at(2001, 9, 9)), at(2001, 7, 1)) == at(2001, 7, 1)


def test_a_stamp_a_hair_before_its_anchor_stays_a_hair_before_it():
    cadence = cycle(utc(2001, 1, 1), "P1M", utc(2002, 1, 1))
    march = cadence.place(at(2004, 3, 5))
    assert cadence.in_year_of(march, at(2001, 3, 1) - 7) == at(2004, 3, 1) - 7


@pytest.mark.parametrize("name", ["noleap", "all_leap", "360_day"])
def test_calendars_without_leap_years_repeat_exactly(name):
    start = cftime.datetime(2001, 1, 1, calendar=name)
    cadence = cycle(start, "P1D", cftime.datetime(2002, 1, 1, calendar=name))
    period = cadence.end - cadence.start
    anchors = cadence.anchors(cadence.start - 2 * period, cadence.end + period)
    assert anchors == list(range(cadence.start - 2 * period, cadence.end + period, DAY))
    for n in (-2, 5):
        placed = cadence.place(cadence.anchor(58) + n * period + 9)
        assert placed == Placed(58, cadence.anchor(58) + n * period, n)


def test_a_julian_cycle_has_a_leap_day_in_1900():
    start, end = (cftime.datetime(y, 1, 1, calendar="julian") for y in (2001, 2002))
    cadence = cycle(start, "P1D", end)
    placed = cadence.place(cadence.calendar.instant(cftime.datetime(1900, 2, 29, calendar="julian")))
    assert (placed.k, placed.repeated) == (58, 1)


def test_a_cycle_starts_on_a_day_every_year_has():
    with pytest.raises(DeclarationError, match="day 29"):
        cycle(utc(2000, 2, 29), "P1D", utc(2004, 2, 29))


def test_a_cycle_that_begins_in_the_middle_of_feb_28_stays_in_order():
    cadence = cycle(utc(2001, 2, 28, 12), "PT6H", utc(2002, 2, 28, 12))
    anchors = cadence.anchors(at(2004, 2, 28), at(2004, 3, 1, 6))
    days = [(28, 0), (28, 6), (28, 12), (28, 18), (29, 12), (29, 18)]
    assert anchors == [*(at(2004, 2, day, hour) for day, hour in days), at(2004, 3, 1)]
    assert [cadence.place(a).anchor for a in anchors] == anchors
    assert [cadence.successor(cadence.place(a)).anchor for a in anchors[:-1]] == anchors[1:]


FREQUENCIES = ["P1M", "P1D", "PT6H", "PT5H", "PT36H", "P5D", "P27D", "P2M", "P1W"]


@settings(derandomize=True, max_examples=150, deadline=None)
@given(
    frequency=st.sampled_from(FREQUENCIES), years=st.integers(1, 5), first=st.integers(1999, 2005),
    month=st.integers(1, 12), day=st.integers(1, 28), hour=st.integers(0, 23),
    second=st.integers(0, 215 * 365 * 86_400),
)  # fmt: skip
def test_placing_snaps_down_onto_the_listed_anchors(frequency, years, first, month, day, hour, second):
    start = utc(first, month, day, hour)
    cadence = cycle(start, frequency, start.replace(year=first + years))
    own = cadence.calendar
    instant = own.instant(utc(1895, 1, 1) + timedelta(seconds=second))
    anchors = cadence.anchors(instant - 70 * DAY, instant + 70 * DAY)
    placed = cadence.place(instant)
    i = bisect_right(anchors, instant) - 1
    assert placed.anchor == anchors[i] <= instant < anchors[i + 1]
    assert cadence.place(placed.anchor) == placed
    assert cadence.successor(placed) == cadence.place(anchors[i + 1])
    assert all(b > a for a, b in pairwise(anchors))
    # same date as the declared anchor, unless one of the two is a leap day
    asked, declared = own.time(placed.anchor), own.time(cadence.anchor(placed.k))
    assert (asked.year - declared.year) == placed.cycles * years
    assert asked.time() == declared.time()
    if {(asked.month, asked.day), (declared.month, declared.day)}.isdisjoint({(2, 29)}):
        assert (asked.month, asked.day) == (declared.month, declared.day)
        assert placed.repeated == 0
    else:
        assert {asked.month, declared.month} == {2}
        assert placed.repeated == (asked.day == 29 and declared.day == 28)
    # the anchor's own stamp is carried onto it
    assert cadence.in_year_of(placed, cadence.anchor(placed.k)) == placed.anchor


@settings(derandomize=True, max_examples=30, deadline=None)
@given(year=st.integers(1895, 2110), declared=st.integers(1999, 2005), hours=st.sampled_from([1, 3, 6, 24]))
def test_a_daily_or_finer_climatology_covers_every_day_of_every_year(year, declared, hours):
    cadence = cycle(utc(declared, 1, 1), timedelta(hours=hours), utc(declared + 1, 1, 1))
    lo, hi = at(year, 1, 1), at(year + 1, 1, 1)
    assert cadence.anchors(lo, hi) == list(range(lo, hi, hours * HOUR))
