"""A decoded axis has cftime's times, in order, in the source's calendar; what can't be decoded is refused."""

import pickle
import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import cftime
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earthsciio.calendars import DAY, SECOND, calendar
from earthsciio.errors import NotATimeAxis, TimeAxisError
from earthsciio.timeaxis import TimeAxis, decode_axis, encode_times

NAMES = ["standard", "proleptic_gregorian", "julian", "noleap", "all_leap", "360_day"]
HOUR = 3600 * SECOND


def decode(values, units, name=None, target=None, **options):
    target = calendar(name if target is None else target)
    return decode_axis(np.asarray(values), units, name, target, file="a.nc", **options)


def texts(axis):
    return [axis.calendar.text(int(i)) for i in axis.stamps]


def by_cftime(values, units, name):
    own = calendar(name)
    return [own.instant(t) for t in cftime.num2date(values, units, calendar=name)]


UNITS = ["days", "hours", "minutes", "seconds", "milliseconds", "microseconds"]


# spec: T2.4
@pytest.mark.parametrize("name", NAMES)
@settings(derandomize=True, max_examples=80, deadline=None)
@given(
    unit=st.sampled_from(UNITS), year=st.integers(1, 2300), month=st.integers(1, 12), day=st.integers(1, 28),
    hour=st.integers(0, 23), days=st.lists(st.integers(0, 400_000), min_size=1, max_size=6, unique=True),
)  # fmt: skip
def test_integers_decode_as_cftime_decodes_them(name, unit, year, month, day, hour, days):
    if name == "standard" and (year, month, day) >= (1582, 10, 5) and (year, month, day) < (1582, 10, 15):
        day = 20
    units = f"{unit} since {year:04d}-{month}-{day} {hour}:30"
    length = {"days": 1, "hours": 24, "minutes": 1440}.get(
        unit, 86_400 * 10 ** (3 * max(UNITS.index(unit) - 3, 0))
    )
    values = np.sort(np.array(days)) * length + 1
    assert decode(values, units, name).stamps.tolist() == by_cftime(values, units, name)


@pytest.mark.parametrize("name", NAMES)
@settings(derandomize=True, max_examples=80, deadline=None)
@given(
    unit=st.sampled_from(UNITS[:4]), dtype=st.sampled_from(["f4", "f8"]),
    values=st.lists(st.floats(-1e5, 3e5), min_size=1, max_size=6, unique=True),
)  # fmt: skip
def test_floats_decode_as_cftime_decodes_them(name, unit, dtype, values):
    units = f"{unit} since 1850-01-01"
    values = np.unique(np.array(values, dtype=dtype))
    want = by_cftime(values, units, name)
    if len(set(want)) < len(want):
        return  # closer than a microsecond: duplicates, tested elsewhere
    got = decode(values, units, name).stamps.tolist()
    assert max(abs(a - b) for a, b in zip(got, want, strict=True)) <= 1  # a tie may round either way


def test_hours_as_fractions_of_a_day_come_out_whole():
    values = np.arange(20_000) / 24 + 43_000  # hours the double can't hold exactly
    stamps = decode(values, "days since 1900-01-01").stamps
    assert np.array_equal(np.diff(stamps), np.full(19_999, HOUR))
    assert stamps[0] % HOUR == 0


# spec: T2.2
@pytest.mark.parametrize(
    ("units", "want"),
    [
        ("days since 1-1-1 00:00:0.0", "0001-01-02 00:00:00"),
        ("days since Jan 1, 2000", "2000-01-02 00:00:00"),
        ("days since January 1 2000 06:00", "2000-01-02 06:00:00"),
        ("days since 1 Jan 2000", "2000-01-02 00:00:00"),
        ("days since 01-JAN-2000 00:00:00", "2000-01-02 00:00:00"),
        ("Days Since 2000-01-01", "2000-01-02 00:00:00"),
        ("DAYS SINCE 2000-01-01", "2000-01-02 00:00:00"),
        ("  days  since   2000-01-01  ", "2000-01-02 00:00:00"),
        ("day since 2000-1-1", "2000-01-02 00:00:00"),
        ("d since 2000-01", "2000-01-02 00:00:00"),
        ("week since 2000-01-01", "2000-01-08 00:00:00"),
        ("hour since 2000-01-01", "2000-01-01 01:00:00"),
        ("hr since 2000-01-01", "2000-01-01 01:00:00"),
        ("hrs since 2000-01-01", "2000-01-01 01:00:00"),
        ("h since 2000-01-01 12:30", "2000-01-01 13:30:00"),
        ("minutes since 2000-01-01", "2000-01-01 00:01:00"),
        ("min since 2000-01-01", "2000-01-01 00:01:00"),
        ("s since 2000-01-01", "2000-01-01 00:00:01"),
        ("sec since 2000-01-01", "2000-01-01 00:00:01"),
        ("msec since 2000-01-01", "2000-01-01 00:00:00.001000"),
        ("milliseconds since 2000-01-01", "2000-01-01 00:00:00.001000"),
        ("microseconds since 2000-01-01", "2000-01-01 00:00:00.000001"),
        ("us since 2000-01-01", "2000-01-01 00:00:00.000001"),
        ("hours since 2000-01-01T00:00:00Z", "2000-01-01 01:00:00"),
        ("hours since 2000-01-01T06Z", "2000-01-01 07:00:00"),
        ("hours since 2000-01-01 00:00:00 UTC", "2000-01-01 01:00:00"),
        ("hours since 2000-01-01 00:00:00 +02:00", "1999-12-31 23:00:00"),
        ("hours since 2000-01-01 00:00:00+0530", "1999-12-31 19:30:00"),
        ("hours since 2000-01-01 00:00:00 -5", "2000-01-01 06:00:00"),
        ("hours since 2000-01-01 00:00:00 -5:00", "2000-01-01 06:00:00"),
        ("hours since 2000-01-01 00:00:0.25", "2000-01-01 01:00:00.250000"),
        ("days since 1582-10-04", "1582-10-15 00:00:00"),
        ("days since -1-12-31", "0001-01-01 00:00:00"),
        (
            "days since -4713-01-01 12:00",
            "-4712-01-02 12:00:00",
        ),  # the Julian day number; text counts a year 0
    ],
)
def test_units_in_all_the_forms_of_the_wild(units, want):
    assert texts(decode([1], units)) == [want]


@pytest.mark.parametrize(
    ("units", "name", "text"),
    [
        ("days since 2001-02-29", "standard", "no '2001-02-29'"),
        ("days since 2000-02-29", "noleap", "no '2000-02-29'"),
        ("days since 2000-01-31", "360_day", "no '2000-01-31'"),
        ("days since 1582-10-10", "standard", "no '1582-10-10'"),
        ("days since 2000-13-01", None, "no '2000-13-01'"),
        ("days since 2000-01-01 25:00", None, "no '2000-01-01 25:00'"),
        ("days since 0000-01-01", "standard", "no year 0"),
        ("days since 0000-01-01", "julian", "no year 0"),
        ("days since 0000-01-01", None, "no year 0"),
        ("days since the flood", None, "unreadable reference date 'the flood'"),
        ("days since Foo 1, 2000", None, "no 'Foo 1, 2000'"),
        ("days since 2000-01-01 00:00 somewhere", None, "unreadable"),
        ("fortnights since 2000-01-01", None, "unknown unit of time 'fortnights'"),
        ("common_years since 2000-01-01", "standard", "unknown unit"),
        ("days since 2000-01-01", "lunar", "unknown calendar 'lunar'"),
        ("days since 999999999-01-01", "noleap", "no '999999999"),
    ],
)
def test_what_cannot_be_decoded_is_an_error_that_names_file_and_reason(units, name, text):
    with pytest.raises(TimeAxisError, match=f"{re.escape(text)}.*file=a.nc.*{re.escape(units)}") as caught:
        decode_axis(np.arange(3), units, name, calendar(None), file="a.nc")
    assert caught.value.file == "a.nc"
    assert not isinstance(caught.value, NotATimeAxis)


@pytest.mark.parametrize("units", ["months", "1", "", None, "day as %Y%m%d.%f", "K", "since 2000-01-01"])
def test_units_without_a_date_are_no_time_axis(units):
    with pytest.raises(NotATimeAxis, match=r"a\.nc.*climatology"):
        decode(range(12), units)


@pytest.mark.parametrize("values", [[1e30], [-1e30], [np.inf], [1, 2**63 - 1], [-(2**62)]])
def test_times_too_far_away_are_an_error(values):
    with pytest.raises(TimeAxisError, match="out of range"):
        decode(values, "seconds since 2000-01-01")


@pytest.mark.parametrize(
    "values", [np.zeros((2, 2)), np.array(["2000"]), np.array([True]), np.array([0], dtype="M8[s]")]
)
def test_a_time_axis_is_one_dimensional_and_numeric(values):
    with pytest.raises(TimeAxisError, match="1-D and numeric"):
        decode(values, "days since 2000-01-01")


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "i4", "u4", "i8", "u8", "f4", "f8", ">i4", ">f8", "f2"])
def test_every_numeric_type_decodes(dtype):
    axis = decode(np.array([0, 1, 100], dtype=dtype), "days since 2000-01-01")
    assert texts(axis) == ["2000-01-01 00:00:00", "2000-01-02 00:00:00", "2000-04-10 00:00:00"]
    assert axis.stamps.dtype == axis.records.dtype == np.int64


def test_a_scalar_is_one_record_and_an_empty_axis_is_none():
    assert len(decode(np.float64(3), "days since 2000-01-01")) == 1
    empty = decode(np.zeros(0, "i4"), "days since 2000-01-01", target="noleap")
    assert len(empty) == 0
    assert empty.span is None
    assert empty.find(0, DAY, 0) is None


def test_nan_and_fill_stamps_are_no_records():
    values = np.array([0, np.nan, 1, -999, 2])
    axis = decode(values, "days since 2000-01-01", valid=values != -999)
    assert axis.records.tolist() == [0, 2, 4]
    assert texts(axis) == ["2000-01-01 00:00:00", "2000-01-02 00:00:00", "2000-01-03 00:00:00"]
    assert len(decode([np.nan, np.nan], "days since 2000-01-01")) == 0


def test_sorting_keeps_track_of_the_records():
    axis = decode([3, np.nan, 1, 2], "days since 2000-01-01", sort=True)
    assert axis.records.tolist() == [2, 3, 0]
    assert np.array_equal(np.diff(axis.stamps), [DAY, DAY])
    with pytest.raises(TimeAxisError, match=r"same time.*index=2.*previous_index=0"):
        decode([3, 1, 3], "days since 2000-01-01", sort=True)


# spec: T3.1
def test_find_takes_the_earliest_stamp_in_the_interval():
    axis = decode([0, 6, 12, 18, 24], "hours since 2000-01-01")
    day = int(axis.stamps[0])
    tol = DAY // 20
    assert axis.find(day, day + DAY, tol) == 0
    assert axis.find(day + DAY, day + 2 * DAY, tol) == 4
    assert axis.find(day + 2 * DAY, day + 3 * DAY, tol) is None
    assert axis.find(day - DAY, day, tol) is None
    assert axis.find(day + 6 * HOUR + tol, day + 7 * HOUR + tol, tol) == 1  # exactly a - tol belongs
    assert axis.find(day + 5 * HOUR, day + 6 * HOUR + tol, tol) is None  # exactly next - tol does not
    assert axis.span == (day, day + DAY)


def test_mid_interval_stamps_belong_to_the_anchor_before_them():
    axis = decode([15.5, 45], "days since 2001-01-01")
    own = axis.calendar
    months = [own.instant(datetime(2001, m, 1, tzinfo=UTC)) for m in (1, 2, 3, 4)]
    found = [axis.find(a, b, (b - a) // 20) for a, b in pairwise(months)]
    assert found == [0, 1, None]


def test_an_axis_is_read_only_and_pickles():
    axis = decode([0, 1], "days since 2000-01-01")
    with pytest.raises(ValueError, match="read-only"):
        axis.stamps[0] = 1
    again = pickle.loads(pickle.dumps(axis))
    assert isinstance(again, TimeAxis)
    assert (texts(again), again.records.tolist(), again.file) == (texts(axis), [0, 1], "a.nc")


def test_stamps_go_into_the_sources_calendar_by_their_components():
    daily = decode(range(57, 61), "days since 2004-01-01", "standard", target="noleap")
    assert texts(daily) == ["2004-02-27 00:00:00", "2004-02-28 00:00:00", "2004-03-01 00:00:00"]
    assert daily.records.tolist() == [0, 1, 3]  # Feb 29 is skipped
    other = decode(range(57, 60), "days since 2004-01-01", "noleap", target="standard")
    assert [t[5:10] for t in texts(other)] == ["02-27", "02-28", "02-29", "03-01"]
    assert other.records.tolist() == [0, 1, 1, 2]  # Feb 28 stands for the 29th
    old = decode([0], "days since 1000-01-01", "standard", target="proleptic_gregorian")
    assert texts(old) == ["1000-01-01 00:00:00"]


def test_sorting_comes_before_changing_calendar():
    axis = decode([60, 58, 59], "days since 2004-01-01", "standard", target="noleap", sort=True)
    assert [t[5:10] for t in texts(axis)] == ["02-28", "03-01"]
    assert axis.records.tolist() == [1, 0]


@pytest.mark.parametrize("name", NAMES)
def test_encoded_times_are_read_back_by_cftime(name):
    own = calendar(name)
    moments = [
        cftime.datetime(1850, 2, 28, 18, calendar=name),
        cftime.datetime(2300, 12, 30, 23, 59, 59, 250_000, calendar=name),
    ]
    values, attrs = encode_times([own.instant(t) for t in moments], own)
    assert values.dtype == np.float64
    assert attrs["calendar"] == name
    for value, moment in zip(values, moments, strict=True):
        decoded = cftime.num2date(value, attrs["units"], calendar=attrs["calendar"])
        assert abs(decoded - moment) <= timedelta(microseconds=2)
    back = decode_axis(values, attrs["units"], attrs["calendar"], own, file="a.nc")
    assert np.abs(back.stamps - [own.instant(t) for t in moments]).max() <= 1
    assert encode_times([], own)[0].shape == (0,)


def test_whole_months_count_from_the_reference_never_from_each_other():
    axis = decode([0, 1, 13, -1], "months since 1960-01-28 06:00", sort=True, months_opt_in=True)
    assert texts(axis) == [
        "1959-12-28 06:00:00",
        "1960-01-28 06:00:00",
        "1960-02-28 06:00:00",
        "1961-02-28 06:00:00",
    ]
    assert texts(decode([0.0, 3.0], "years since 1960-02-01", "noleap", months_opt_in=True)) == [
        "1960-02-01 00:00:00",
        "1963-02-01 00:00:00",
    ]
    with pytest.raises(TimeAxisError, match="day 31"):
        decode([0, 1], "months since 1960-01-31", months_opt_in=True)
    with pytest.raises(TimeAxisError, match="out of range"):
        decode([1e9], "months since 1960-01-01", months_opt_in=True)


# spec: T2.2
def test_common_years_have_365_days_in_noleap():
    values, units = [0, 1, 2.5], "common_years since 2000-01-01"
    assert decode(values, units, "noleap").stamps.tolist() == by_cftime(values, units, "noleap")


def test_a_million_stamps_need_no_datetime_objects(monkeypatch):
    monkeypatch.setattr(cftime, "num2date", None)
    axis = decode(np.arange(1_000_000, dtype=np.int32), "hours since 1900-01-01", "standard", target="noleap")
    assert len(axis) == 1_000_000 - 28 * 24  # to January 2014, less the leap days of 1904 to 2012


# spec: T3.1
def test_a_file_much_finer_than_the_cadence_gives_the_record_at_the_anchor():
    hourly = TimeAxis("f", calendar("standard"), np.arange(0, 3 * 24) * HOUR, np.arange(3 * 24))
    day, tolerance = 24 * HOUR, 24 * HOUR // 20  # 72 minutes, which the record of 23:00 is within
    assert hourly.find(day, 2 * day, tolerance) == 24


def test_nanoseconds_are_rounded_to_the_microsecond():
    day = 86_400_000_000_000
    axis = decode(
        np.array([0, day, day + 3_600_000_000_000]), "nanoseconds since 1970-01-01", "proleptic_gregorian"
    )
    assert axis.stamps.tolist() == [0, DAY, DAY + HOUR]
