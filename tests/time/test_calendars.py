"""Instants are what cftime and datetime say, in every calendar; times cross calendars by components."""

import pickle
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta, timezone

import cftime
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earthsciio.calendars import DAY, SECOND, Calendar, Duration, calendar, carry
from earthsciio.errors import DeclarationError, TimeAxisError

NAMES = ["standard", "proleptic_gregorian", "julian", "noleap", "all_leap", "360_day"]
FIRST_DAY, LAST_DAY = -719_000, 2_900_000  # within the years 2 to 9900 of every calendar


def cf_time(t: object, name: str) -> cftime.datetime:
    """The cftime datetime with the components of `t`."""
    return cftime.datetime(t.year, t.month, t.day, t.hour, t.minute, t.second, t.microsecond, calendar=name)


@pytest.mark.parametrize("name", NAMES)
@settings(derandomize=True, max_examples=150, deadline=None)
@given(day=st.integers(FIRST_DAY, LAST_DAY), in_day=st.integers(0, DAY - 1))
def test_instants_are_those_of_cftime(name, day, in_day):
    own = calendar(name)
    want = cftime.datetime(1970, 1, 1, calendar=name) + timedelta(days=day, microseconds=in_day)
    assert own.instant(want) == day * DAY + in_day
    year, month, day_of_month = own.civil(day)
    assert (year, month, day_of_month) == (want.year, want.month, want.day)
    got = own.time(day * DAY + in_day)
    if not own.is_standard:
        assert got == want
        assert got.calendar == name
    elif (want.month, want.day) != (2, 29):
        assert got == datetime(*want.timetuple()[:6], want.microsecond, tzinfo=UTC)


@pytest.mark.parametrize("name", NAMES)
def test_arrays_and_numbers_count_alike(name):
    own = calendar(name)
    days = np.arange(-800_000, 800_000, 311)
    year, month, day = own.civil(days)
    assert own.day_number(year, month, day).tolist() == days.tolist()
    assert [own.civil(int(d)) for d in days[::50]] == list(
        zip(year[::50].tolist(), month[::50].tolist(), day[::50].tolist(), strict=True)
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_day_of_history_round_trips(name):
    own = calendar(name)
    days = np.arange(-719_000, 150_000)
    assert np.array_equal(own.day_number(*own.civil(days)), days)


# spec: T1.4
@pytest.mark.parametrize(
    ("alias", "name"),
    [
        (None, "standard"),
        ("gregorian", "standard"),
        ("Gregorian", "standard"),
        ("365_day", "noleap"),
        ("366_day", "all_leap"),
        ("360", "360_day"),
        (" NOLEAP ", "noleap"),
    ],
)
def test_calendar_aliases(alias, name):
    assert calendar(alias).name == name
    assert calendar(alias) == calendar(name)


# spec: T1.4
@pytest.mark.parametrize("name", ["", "lunar", "utc", "none", "365"])
def test_an_unknown_calendar_is_an_error_that_lists_the_known_ones(name):
    with pytest.raises(TimeAxisError, match=r"360_day.*noleap"):
        calendar(name)
    with pytest.raises(TimeAxisError):
        Calendar(name)


def test_calendars_pickle_and_hash():
    own = calendar("365_day")
    assert pickle.loads(pickle.dumps(own)) == own
    assert len({own, calendar("noleap"), calendar(None)}) == 2


# spec: T1.6
def test_naive_is_utc_aware_is_converted_and_what_comes_out_is_aware():
    own = calendar(None)
    naive = datetime(2020, 3, 1, 1, 30)  # noqa: DTZ001 - naive on purpose
    east = datetime(2020, 3, 1, 3, 30, tzinfo=timezone(timedelta(hours=2)))
    assert own.instant(naive) == own.instant(east) == own.instant(naive.replace(tzinfo=UTC))
    out = own.time(own.instant(east))
    assert out == east
    assert out.tzinfo is UTC
    assert own.instant(date(2020, 3, 1)) == own.instant(naive) - 90 * 60 * SECOND


def test_microseconds_survive():
    t = datetime(1999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    assert calendar(None).time(calendar(None).instant(t)) == t
    assert calendar("360_day").time(-1) == cftime.datetime(
        1969, 12, 30, 23, 59, 59, 999_999, calendar="360_day"
    )


def test_what_is_no_time_is_a_type_error():
    with pytest.raises(TypeError, match="2020-01-01"):
        calendar(None).instant("2020-01-01")


# spec: T1.7
@pytest.mark.parametrize(
    ("target", "source", "components", "want"),
    [
        ("noleap", "standard", (2004, 2, 29, 6), (2004, 2, 28, 6)),
        ("standard", "all_leap", (1900, 2, 29, 6), (1900, 2, 28, 6)),
        ("standard", "all_leap", (2000, 2, 29, 6), (2000, 2, 29, 6)),
        ("standard", "360_day", (2001, 2, 30, 18), (2001, 2, 28, 18)),
        ("360_day", "standard", (2001, 1, 31, 1), (2001, 1, 30, 1)),
        ("julian", "standard", (1900, 2, 28, 0), (1900, 2, 28, 0)),
        ("standard", "julian", (1900, 2, 29, 0), (1900, 2, 28, 0)),
        ("standard", "proleptic_gregorian", (1582, 10, 10, 3), (1582, 10, 4, 3)),
    ],
)
def test_a_time_of_another_calendar_keeps_its_components(target, source, components, want):
    own = calendar(target)
    got = own.time(own.instant(cftime.datetime(*components, calendar=source)))
    assert (got.year, got.month, got.day, got.hour) == want


# spec: T1.5
def test_the_standard_calendar_is_julian_before_1582():
    own = calendar("standard")
    assert (
        own.instant(datetime(1582, 10, 15, tzinfo=UTC)) - own.instant(datetime(1582, 10, 4, tzinfo=UTC))
        == DAY
    )
    assert calendar("proleptic_gregorian").instant(datetime(1, 1, 1, tzinfo=UTC)) == -719_162 * DAY
    assert own.instant(datetime(1, 1, 1, tzinfo=UTC)) == -719_164 * DAY
    # a day that Python's calendar lacks comes out as the one before
    assert own.time(own.instant(cftime.datetime(1000, 2, 29, calendar="standard"))).day == 28


@pytest.mark.parametrize(("year", "leap"), [(1900, False), (2000, True), (2004, True), (2100, False)])
def test_leap_years_of_the_standard_calendar(year, leap):
    own = calendar(None)
    assert own.exists(year, 2, 29) == leap
    assert own.day_number(year, 3, 1) - own.day_number(year, 2, 28) == 1 + leap
    assert not calendar("noleap").exists(year, 2, 29)
    assert calendar("all_leap").exists(year, 2, 29)
    assert calendar("julian").exists(year, 2, 29)
    assert calendar("360_day").exists(year, 2, 30)


def test_dates_that_exist_nowhere():
    for name in NAMES:
        assert not calendar(name).exists(2000, 13, 1)
        assert not calendar(name).exists(2000, 0, 1)
        assert not calendar(name).exists(2000, 1, 0)
        assert not calendar(name).exists(2000, 4, 31)
    assert not calendar("standard").exists(1582, 10, 14)
    assert calendar("proleptic_gregorian").exists(1582, 10, 14)


# spec: T1.5
@pytest.mark.parametrize("name", ["noleap", "all_leap", "360_day"])
def test_idealised_calendars_have_a_year_zero_and_years_before(name):
    own = calendar(name)
    for year in (-50, -1, 0, 1):
        t = cftime.datetime(year, 3, 1, 12, calendar=name)
        assert own.time(own.instant(t)) == t
    year = {"noleap": 365, "all_leap": 366, "360_day": 360}[name]
    before, after = (own.instant(cftime.datetime(y, 1, 1, calendar=name)) for y in (-1, 1))
    assert after - before == 2 * year * DAY


@pytest.mark.parametrize(
    ("name", "year"), [("standard", 0), ("proleptic_gregorian", 0), ("julian", -3), ("standard", 10_000)]
)
def test_a_year_no_datetime_can_have_is_an_error_but_can_be_written(name, year):
    own = calendar(name)
    instant = own.day_number(year, 1, 1) * DAY
    with pytest.raises(TimeAxisError, match="year"):
        own.time(instant)
    assert own.text(instant).endswith("-01-01 00:00:00")


def test_text_is_readable():
    own = calendar("360_day")
    assert own.text(own.instant(cftime.datetime(1900, 2, 30, 9, 5, 7, 250_000, calendar="360_day"))) == (
        "1900-02-30 09:05:07.250000"
    )


def test_months_clip_the_day_once_not_at_each_step():
    own = calendar(None)
    jan_31 = own.instant(datetime(2001, 1, 31, 12, tzinfo=UTC))
    month = Duration(months=1)
    assert own.time(own.add(jan_31, month, 1)) == datetime(2001, 2, 28, 12, tzinfo=UTC)
    assert own.time(own.add(jan_31, month, 2)) == datetime(2001, 3, 31, 12, tzinfo=UTC)
    assert own.time(own.add(jan_31, month, -2)) == datetime(2000, 11, 30, 12, tzinfo=UTC)
    assert own.add(jan_31, Duration(microseconds=7), -3) == jan_31 - 21


# Durations


# spec: T1.2
@pytest.mark.parametrize(
    ("text", "months", "microseconds"),
    [
        ("P1M", 1, 0),
        ("P1Y", 12, 0),
        ("P1Y6M", 18, 0),
        ("P1W", 0, 7 * DAY),
        ("P1D", 0, DAY),
        ("P1DT12H", 0, DAY * 3 // 2),
        ("PT3H", 0, 3 * 3600 * SECOND),
        ("PT1M", 0, 60 * SECOND),
        ("PT90M", 0, 90 * 60 * SECOND),
        ("PT0.5S", 0, 500_000),
        ("PT1,25S", 0, 1_250_000),
        ("PT0.000001S", 0, 1),
        ("PT1.5H", 0, 90 * 60 * SECOND),
        ("P0Y0M1D", 0, DAY),
    ],
)
def test_iso_durations(text, months, microseconds):
    duration = Duration.parse(text)
    assert (duration.months, duration.microseconds) == (months, microseconds)
    assert Duration.parse(duration.isoformat()) == duration
    assert Duration.parse(duration) is duration


# spec: T1.2
@pytest.mark.parametrize(
    "value",
    ["", "P", "PT", "1D", "P1", "P-1D", "-P1D", "P1M1D", "P1MT1H", "P1Y1W", "P0D", "PT0S", "P0M", "P0.5M",
     "P1H", "PT1D", "PT0.0000001S", "p1d", "P1DT", "monthly", 3, None, 1.5, timedelta(0), timedelta(days=-1)],
)  # fmt: skip
def test_what_is_no_positive_duration_is_refused(value):
    with pytest.raises(DeclarationError):
        Duration.parse(value)


def test_durations_print_in_the_usual_form():
    assert Duration(months=14).isoformat() == "P1Y2M"
    assert Duration.parse(timedelta(days=1, hours=2, minutes=3, seconds=4.05)).isoformat() == "P1DT2H3M4.05S"
    assert Duration.parse(timedelta(hours=36)).isoformat() == "P1DT12H"


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.timedeltas(min_value=timedelta(microseconds=1), max_value=timedelta(days=40_000)))
def test_durations_round_trip_through_iso(value):
    duration = Duration.parse(value)
    assert duration.microseconds == value // timedelta(microseconds=1)
    assert Duration.parse(duration.isoformat()) == duration


# Days that only one calendar has


def carried(stamps, source, target):
    """Carry cftime stamps; give (components, source index) pairs."""
    own, other = calendar(source), calendar(target)
    instants = np.array([own.instant(t) for t in stamps], dtype=np.int64)
    out, index = carry(instants, lambda days: other.day_number(*own.civil(days)))
    return [(other.text(i)[5:16], int(k)) for i, k in zip(out, index, strict=True)]


def series(name, first, step_hours, count):
    t = cftime.datetime(*first, calendar=name)
    return [t + timedelta(hours=step_hours * k) for k in range(count)]


# spec: T2.5
def test_a_day_the_target_lacks_is_skipped_when_the_day_before_has_records():
    got = carried(series("standard", (2004, 2, 28), 12, 6), "standard", "noleap")
    assert got == [("02-28 00:00", 0), ("02-28 12:00", 1), ("03-01 00:00", 4), ("03-01 12:00", 5)]


# spec: T2.5
def test_a_lone_record_on_a_day_the_target_lacks_falls_on_the_day_before():
    monthly = [cftime.datetime(2001, m, 30, calendar="360_day") for m in (1, 2, 3)]
    assert carried(monthly, "360_day", "standard") == [
        ("01-30 00:00", 0),
        ("02-28 00:00", 1),
        ("03-30 00:00", 2),
    ]


# spec: T2.5
def test_a_day_the_source_lacks_repeats_the_day_before_in_a_daily_or_finer_series():
    got = carried(series("noleap", (2004, 2, 27, 12), 24, 3), "noleap", "standard")
    assert got == [("02-27 12:00", 0), ("02-28 12:00", 1), ("02-29 12:00", 1), ("03-01 12:00", 2)]
    got = carried(series("noleap", (2004, 2, 28), 12, 3), "noleap", "standard")
    assert got == [
        ("02-28 00:00", 0),
        ("02-28 12:00", 1),
        ("02-29 00:00", 0),
        ("02-29 12:00", 1),
        ("03-01 00:00", 2),
    ]


def test_the_last_day_of_a_file_is_repeated_too():
    got = carried(series("360_day", (2004, 1, 29), 24, 2), "360_day", "standard")
    assert got == [("01-29 00:00", 0), ("01-30 00:00", 1), ("01-31 00:00", 1)]


# spec: T2.5
def test_a_coarse_series_goes_on_across_a_day_the_source_lacks():
    monthly = [cftime.datetime(2004, m, 28, calendar="noleap") for m in (1, 2, 3)]
    assert carried(monthly, "noleap", "standard") == [
        ("01-28 00:00", 0),
        ("02-28 00:00", 1),
        ("03-28 00:00", 2),
    ]


@pytest.mark.parametrize("source", NAMES)
@pytest.mark.parametrize("target", NAMES)
def test_a_daily_series_has_every_day_of_the_calendar_it_is_carried_into(source, target):
    own, other = calendar(source), calendar(target)
    stamps = np.arange(own.day_number(1895, 1, 1), own.day_number(2105, 1, 1)) * DAY + 12 * 3600 * SECOND
    out, index = carry(stamps, lambda days: other.day_number(*own.civil(days)))
    want = np.arange(other.day_number(1895, 1, 1), other.day_number(2105, 1, 1)) * DAY + 12 * 3600 * SECOND
    assert np.array_equal(out[: len(want)], want[: len(out)])
    assert abs(len(out) - len(want)) <= 1  # the series stops on Dec 30 or 31
    # each comes from the same date, or the last existing one before it
    components = np.array(own.civil(stamps[index] // DAY))
    assert np.array_equal(own.day_number(*other.civil(out // DAY)), own.day_number(*components))


@pytest.mark.parametrize("name", NAMES)
def test_carrying_into_the_same_calendar_changes_nothing(name):
    own = calendar(name)
    stamps = np.arange(-1_000_000, 1_000_000, 99_991, dtype=np.int64) * SECOND * 1000
    out, index = carry(stamps, lambda days: own.day_number(*own.civil(days)))
    assert np.array_equal(out, stamps)
    assert np.array_equal(index, np.arange(len(stamps)))


def test_importing_time_costs_numpy_and_cftime_only():
    code = (
        "import sys, earthsciio.cadence, earthsciio.timeaxis;"
        "print([m for m in ('scipy', 'xarray', 'h5py', 'netCDF4', 'numba', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
