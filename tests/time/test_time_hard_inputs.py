"""The time inputs that broke readers in the wild, each with its right value."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import cftime
import numpy as np
import pytest

from earthsciio.cadence import Cadence, calendar
from earthsciio.calendars import DAY, SECOND
from earthsciio.errors import NotATimeAxis, TimeAxisError
from earthsciio.timeaxis import decode_axis

HOUR = 3600 * SECOND
REAL = Path(__file__).parents[3] / "shared" / "data" / "real"


def decode(values, units, name=None, target=None, **options):
    own = calendar(name if target is None else target)
    return decode_axis(np.asarray(values), units, name, own, file=options.pop("file", "a.nc"), **options)


def dates(axis):
    return [axis.calendar.text(int(i))[:10] for i in axis.stamps]


def utc(*parts):
    return datetime(*parts, tzinfo=UTC)


def find(cadence, axis, t):
    """The file record behind `t`, or None."""
    k = cadence.place(cadence.calendar.instant(t)).k
    position = axis.find(cadence.anchor(k), cadence.next_anchor(k), cadence.tolerance(k))
    return None if position is None else int(axis.records[position])


# noleap and 360_day are not read as Gregorian


def test_noleap_is_not_read_as_gregorian():
    value, units = [250 * 365 + 181], "days since 1750-01-01"
    assert dates(decode(value, units, "365_day")) == ["2000-07-01"]
    assert dates(decode(value, units, "standard")) == ["2000-05-01"]  # what the wrong reading gives


def test_360_day_has_a_30th_of_february():
    assert dates(decode([59], "days since 1900-1-1", "360_day")) == ["1900-02-30"]


def test_an_unknown_calendar_names_file_and_calendar():
    with pytest.raises(TimeAxisError, match=r"'martian'.*x\.nc"):
        decode([0], "days since 1900-1-1", "martian", target="standard", file="x.nc")


# months and years since


# spec: T2.2
@pytest.mark.parametrize("name", ["360_day", "360"])
def test_months_since_in_360_day_may_be_fractions(name):
    axis = decode([0, 0.5, 1, 13], "months since 1960-01-01", name)
    assert dates(axis) == ["1960-01-01", "1960-01-16", "1960-02-01", "1961-02-01"]
    assert dates(decode([0, 1], "years since 1960-01-01", name)) == ["1960-01-01", "1961-01-01"]


# spec: T2.2
@pytest.mark.parametrize("unit", ["months", "years", "month", "Year"])
@pytest.mark.parametrize("name", ["standard", "noleap"])
def test_months_since_elsewhere_need_an_opt_in_and_whole_numbers(name, unit):
    units = f"{unit} since 1960-01-01"
    with pytest.raises(TimeAxisError, match=rf"a\.nc.*{units}"):
        decode([0, 1], units, name)
    step = 12 if unit.lower().startswith("y") else 1
    axis = decode([0, 1, 13], units, name, months_opt_in=True)
    assert dates(axis) == [f"{1960 + k * step // 12}-{k * step % 12 + 1:02d}-01" for k in (0, 1, 13)]
    with pytest.raises(TimeAxisError, match="fractions"):
        decode([0, 0.5, 1], units, name, months_opt_in=True)


def test_just_months_is_no_time_axis():
    with pytest.raises(NotATimeAxis, match=r"a\.nc"):
        decode(range(12), "months")


# Reference year 1 and year 0


# spec: T2.4
def test_reference_year_1_differs_by_two_days_between_standard_and_proleptic():
    values, units = [725738, 733470], "days since 1-1-1 00:00:0.0"
    assert dates(decode(values, units, None)) == ["1988-01-01", "2009-03-03"]
    assert dates(decode(values, units, "proleptic_gregorian")) == ["1988-01-03", "2009-03-05"]


# spec: T2.3
def test_reference_year_0_exists_in_noleap_only():
    assert dates(decode([73020], "days since 0000-01-01", "noleap")) == ["0200-01-21"]
    with pytest.raises(TimeAxisError, match="year 0"):
        decode([73020], "days since 0000-01-01", "standard")


# Single-precision and fractional time


def test_single_precision_hours_are_found_within_the_tolerance():
    hours = np.arange(24) / 24 + (utc(2019, 7, 1) - utc(1900, 1, 1)).days
    cadence = Cadence.declare(utc(2019, 7, 1), "PT1H")
    single = decode(hours.astype("f4"), "days since 1900-01-01")
    assert single.calendar.time(int(single.stamps[1])) == utc(2019, 7, 1, 1, 1, 52, 500_000)
    assert find(cadence, single, utc(2019, 7, 1, 1)) == 1
    assert [find(cadence, single, utc(2019, 7, 1, h, 30)) for h in range(24)] == list(range(24))
    double = decode(hours, "days since 1900-01-01")
    assert double.calendar.time(int(double.stamps[1])) == utc(2019, 7, 1, 1)


# spec: T2.4
def test_a_rounded_fraction_of_a_day_is_the_whole_hour():
    axis = decode([0.041666666667], "days since 1979-01-01", "noleap")
    assert axis.calendar.time(int(axis.stamps[0])) == cftime.datetime(1979, 1, 1, 1, calendar="noleap")


# spec: T2.4
def test_int32_hours_do_not_wrap():
    values = np.array([596_523, 596_524], dtype=np.int32)  # x 3600 is beyond int32
    axis = decode(values, "hours since 1900-01-01")
    assert axis.calendar.time(int(axis.stamps[1])) == utc(1900, 1, 1) + timedelta(hours=596_524)
    with np.errstate(over="ignore"):
        assert int(values[1] * np.int32(3600)) < 0  # the trap


# Unsorted, duplicate records


def test_records_out_of_order_are_an_error_unless_sorted():
    with pytest.raises(TimeAxisError, match=r"out of order.*a\.nc.*index=2") as caught:
        decode([1, 3, 2], "days since 2000-01-01")
    assert (caught.value.file, caught.value.index, caught.value.previous_index) == ("a.nc", 2, 1)
    axis = decode([1, 3, 2], "days since 2000-01-01", sort=True)
    cadence = Cadence.declare(utc(2000, 1, 2), "P1D")
    days = [utc(2000, 1, d) for d in (2, 3, 4)]
    assert [find(cadence, axis, t) for t in days] == [0, 2, 1]
    assert [find(cadence, axis, t) for t in reversed(days)] == [1, 2, 0]


@pytest.mark.parametrize("sort", [False, True])
def test_duplicates_stay_an_error(sort):
    with pytest.raises(TimeAxisError, match=r"same time.*a\.nc.*index=2"):
        decode([1, 2, 2], "days since 2000-01-01", sort=sort)


# Brackets across files, and cyclic climatology


def test_a_bracket_is_the_tightest_pair_over_a_seam():
    own = calendar(None)
    files = {
        "2019": decode([-7, -4], "days since 2020-01-01"),  # ... 2019-12-28
        "2020": decode([4, 11], "days since 2020-01-01"),  # 2020-01-05 ...
    }
    cadence = Cadence.declare(utc(2019, 1, 1), "records").with_stamps(
        np.concatenate([a.stamps for a in files.values()])
    )
    placed = cadence.place(own.instant(utc(2020, 1, 1)))
    left, right = placed.anchor, cadence.successor(placed).anchor
    assert (own.time(left), own.time(right)) == (utc(2019, 12, 28), utc(2020, 1, 5))
    weight = (own.instant(utc(2020, 1, 1)) - left) / (right - left)
    assert (1 - weight) * 0 + weight * 8 == 4.0


def test_a_bracket_is_not_a_neighbouring_pair():
    stamps = [utc(2016, 6, d) for d in (2, 10, 17, 24)] + [utc(2016, 7, 4)]
    own = calendar(None)
    cadence = Cadence.declare(utc(2016, 1, 1), "records").with_stamps([own.instant(t) for t in stamps])
    placed = cadence.place(own.instant(utc(2016, 7, 1)))
    assert own.time(placed.anchor) == utc(2016, 6, 24)
    assert own.time(cadence.successor(placed).anchor) == utc(2016, 7, 4)


def test_monthly_files_of_2021_used_for_2023():
    own = calendar(None)
    cadence = Cadence.declare(utc(2021, 1, 1), "P1M", "P1M", end=utc(2022, 1, 1), outside="cycle")
    july = cadence.place(own.instant(utc(2023, 7, 20)))
    assert own.time(cadence.file_start(cadence.anchor(july.k))) == utc(2021, 7, 1)
    december = cadence.place(own.instant(utc(2023, 12, 15)))
    january = cadence.successor(december)
    assert own.time(cadence.file_start(cadence.anchor(december.k))) == utc(2021, 12, 1)
    assert own.time(cadence.file_start(cadence.anchor(january.k))) == utc(2021, 1, 1)
    assert own.time(january.anchor) == utc(2024, 1, 1)


# Record number inside a file


def test_the_first_record_of_the_second_daily_file():
    own = calendar(None)
    cadence = Cadence.declare(utc(2000, 1, 1), "PT3H", "P1D")
    axes = {
        own.instant(utc(2000, 1, day)): decode(range(0, 24, 3), f"hours since 2000-01-0{day}")
        for day in (1, 2)
    }

    def record(k):
        axis = axes[cadence.file_start(cadence.anchor(k))]
        return cadence.file_start(cadence.anchor(k)), find(cadence, axis, own.time(cadence.anchor(k)))

    first, second = axes
    assert record(8) == (second, 0)
    assert record(7) == (first, 7)
    assert cadence.next_file_start(cadence.anchor(7)) == second


def test_a_step_that_never_hits_midnight_finds_the_day():
    axis = decode(range(31), "days since 2001-10-01")
    cadence = Cadence.declare(utc(2001, 10, 1), "P1D", "P1M")
    t, step = utc(2001, 10, 1), timedelta(minutes=7)
    while t < utc(2001, 10, 31):
        assert find(cadence, axis, t) == t.day - 1
        t += step
    assert find(cadence, axis, utc(2001, 10, 31, 0, 2)) == 30


# Leap day between two calendars


def test_noleap_model_on_noleap_data():
    axis = decode([58.5, 59.5], "days since 1964-01-01", "noleap")
    assert dates(axis) == ["1964-02-28", "1964-03-01"]
    assert np.diff(axis.stamps).tolist() == [DAY]
    t = axis.calendar.instant(cftime.datetime(1964, 3, 1, calendar="noleap"))
    assert (t - int(axis.stamps[0])) / DAY == 0.5


@pytest.mark.parametrize("declared", ["noleap", "standard"])
def test_gregorian_model_on_noleap_data_repeats_feb_28(declared):
    axis = decode([57.5, 58.5, 59.5], "days since 1964-01-01", "noleap", target=declared)
    cadence = Cadence.declare(utc(1964, 1, 1, 12), "P1D", calendar=declared)
    assert find(cadence, axis, utc(1964, 2, 28, 12)) == 1
    assert find(cadence, axis, utc(1964, 2, 29, 12)) == 1
    assert find(cadence, axis, utc(1964, 3, 1, 12)) == 2


def test_noleap_model_on_gregorian_data_skips_feb_29():
    axis = decode([57.5, 58.5, 59.5, 60.5], "days since 1964-01-01", "standard", target="noleap")
    cadence = Cadence.declare(
        cftime.datetime(1964, 2, 1, 12, calendar="noleap"),
        "P1D",
        end=cftime.datetime(1964, 3, 2, calendar="noleap"),
    )
    anchors = cadence.anchors()[-3:]
    records = [find(cadence, axis, cadence.calendar.time(a)) for a in anchors]
    assert [cadence.calendar.text(a)[5:10] for a in anchors] == ["02-27", "02-28", "03-01"]
    assert records == [0, 1, 3]


@pytest.mark.parametrize(("year", "days"), [(1900, 365), (2000, 366), (2100, 365)])
def test_centuries(year, days):
    axis = decode([0, days], f"days since {year}-01-01", "standard")
    assert dates(axis)[1] == f"{year + 1}-01-01"


# Units differ from file to file


def test_a_seam_with_other_units_runs_on():
    axes = [decode([1, 2, 3], f"days since 1900-01-0{day}") for day in (1, 4)]
    assert dates(axes[0]) + dates(axes[1]) == [f"1900-01-0{d}" for d in range(2, 8)]


# Real files


@pytest.mark.skipif(not REAL.is_dir(), reason="../shared/data/real is not there")
@pytest.mark.parametrize(
    ("name", "variable", "first", "last", "count"),
    [
        ("seam-jan-2000.nc4", "time", "2000-01-01", "2000-01-31", 31),
        ("seam-feb-2000.nc4", "time", "2000-02-01", "2000-02-28", 28),
        ("calendar-360-day.nc", "time", "1900-01-01", "1906-05-20", 2300),
        ("classic-packed-co2.nc", "time", "2006-01-01", "2006-01-08", 31),
        ("air-packed-descending-lat.nc", "time", None, None, None),
    ],
)
def test_real_axes(name, variable, first, last, count):
    netCDF4 = pytest.importorskip("netCDF4")
    with netCDF4.Dataset(REAL / name) as file:
        time = file[variable]
        values, units, own = np.asarray(time[:]), time.units, getattr(time, "calendar", None)
    axis = decode(values, units, own)
    if count is not None:
        assert (dates(axis)[0], dates(axis)[-1], len(axis)) == (first, last, count)
    if not units.endswith("Jan 1, 2000"):  # a date cftime can't read
        want = cftime.num2date(values, units, calendar=own or "standard")
        assert [axis.calendar.instant(t) for t in want] == axis.stamps.tolist()
