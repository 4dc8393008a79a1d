"""The time axis of a file: calendars, units, precision, order, and which record serves an anchor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from corpus.casebook import Case, case
from corpus.encoding import Json, dataset, field
from corpus.writing import netcdf

from .values import out

T0 = "2020-01-01T00:00:00"


def write(case: Case, name: str, stamps: Any, values: Sequence[float], **attrs: Any) -> None:
    """Write records dated by `stamps`: ``v(time)`` holds `values`."""
    stored: dict[str, Any] = {
        "time": ("time", np.asarray(stamps), {"units": "hours since 2020-01-01", **attrs}),
        "v": ("time", np.array(values, "f8"), {}),
    }
    netcdf(case.folder / name, stored, unlimited=("time",))


def record(time: str, value: float) -> Json:
    """Give a sample of one record."""
    return dataset([time], {"v": field([], np.float64(value))})


def pair(
    times: Sequence[str], values: Sequence[float], seconds: Sequence[float], calendar: str = "standard"
) -> Json:
    """Give a bracket."""
    stamps = field(["time"], out(seconds), {"units": "seconds since 1970-01-01", "calendar": calendar})
    return dataset(times, {"v": field(["time"], out(values))}, {"time": stamps})


@case("calendars")
def calendars(case: Case) -> None:
    """Read stamps in the file's calendar, and keep their components."""
    # one record each: stamp, units, calendar of the file, the date it is
    axes: Mapping[str, tuple[Any, str, str | None, str]] = {
        "noleap": (np.array([250 * 365 + 181]), "days since 1750-01-01", "365_day", "2000-07-01T00:00:00"),
        "thirty": (np.array([59]), "days since 1900-1-1", "360_day", "1900-02-30T00:00:00"),
        "alias": (np.array([59]), "days since 1900-1-1", "360", "1900-02-30T00:00:00"),
        "year-1": (np.array([725738]), "days since 1-1-1 00:00:0.0", "standard", "1988-01-01T00:00:00"),
        "year-1-late": (np.array([733470]), "days since 1-1-1 00:00:0.0", None, "2009-03-03T00:00:00"),
        "proleptic": (
            np.array([725738]), "days since 1-1-1 00:00:0.0", "proleptic_gregorian", "1988-01-03T00:00:00",
        ),
        "year-0": (np.array([73020]), "days since 0000-01-01", "noleap", "0200-01-21T00:00:00"),
        "months": (np.array([0.5]), "months since 1960-01-01", "360_day", "1960-01-16T00:00:00"),
        "fraction": (np.array([0.041666666667]), "days since 1979-01-01", "noleap", "1979-01-01T01:00:00"),
        "int32": (np.array([596524], "i4"), "hours since 1970-01-01", None, "2038-01-19T04:00:00"),
        "zone": (np.array([12.5]), "hours since 2020-01-01 00:00:00 +01:30", None, "2020-01-01T11:00:00"),
        "julian": (np.array([0]), "days since 1582-10-05", "julian", "1582-10-05T00:00:00"),
        "gap": (np.array([1]), "days since 1582-10-04", "standard", "1582-10-15T00:00:00"),
    }  # fmt: skip
    for name, (stamps, units, calendar, date) in axes.items():
        attrs = {"units": units, **({} if calendar is None else {"calendar": calendar})}
        write(case, f"{name}.nc", stamps.astype("i4") if stamps.dtype.kind == "i" else stamps, [1.0], **attrs)
        own: dict[str, Any] = {} if calendar is None else {"calendar": calendar}
        case.source(name, f"{name}.nc", "v", start=date, frequency="P1D", **own)
        case.sample(name, record(date, 1.0), at=date)
    refused: Mapping[str, tuple[str, str | None]] = {
        "martian": ("days since 2000-01-01", "martian"),
        "year-0-standard": ("days since 0000-01-01", "standard"),
        "months-standard": ("months since 1960-01-01", "standard"),
        "months-noleap": ("years since 1960-01-01", "noleap"),
        "just-months": ("months", None),
        "fortnights": ("fortnights since 2020-01-01", None),
        "soon": ("days since soon", None),
    }
    for name, (units, calendar) in refused.items():
        attrs = {"units": units, **({} if calendar is None else {"calendar": calendar})}
        write(case, f"{name}.nc", np.array([0.0]), [1.0], **attrs)
        case.source(name, f"{name}.nc", "v", start=T0, frequency="P1D")
        case.fails(name, "ValueError", f"{name}.nc", at=T0)
    write(case, "steps.nc", np.array([0, 1, 13], "i4"), [0.0, 1.0, 13.0], units="months since 1960-01-01")
    case.source(
        "steps", "steps.nc", "v", start="1960-01-01", frequency="records", options={"whole_months": True}
    )
    for date, value in (("1960-01-01", 0.0), ("1960-02-01", 1.0), ("1961-02-01", 13.0)):
        case.sample("steps", record(f"{date}T00:00:00", value), at=f"{date}T00:00:00")


@case("leap-days")
def leap_days(case: Case) -> None:
    """Use the last existing day before a date that one of two calendars lacks."""
    # noleap noons of Feb 27, 28, Mar 1, 2
    write(case, "noleap.nc", np.array([57.5, 58.5, 59.5, 60.5]), [27.0, 28.0, 1.0, 2.0],
          units="days since 1964-01-01", calendar="noleap")  # fmt: skip
    own: dict[str, Any] = {"start": "1964-02-27T12:00:00", "frequency": "P1D"}
    case.source("noleap", "noleap.nc", "v", **own, calendar="noleap", records_per_sample=2)
    # seconds since 1970-01-01 in noleap: 6 years of 365 days before 1964-01-01
    start = -6 * 365 * 86400.0
    case.sample(
        "noleap",
        pair(
            ["1964-02-28T12:00:00", "1964-03-01T12:00:00"],
            [28.0, 1.0],
            [start + 58.5 * 86400, start + 59.5 * 86400],
            "noleap",
        ),
        at="1964-03-01T00:00:00",
    )
    case.source("standard", "noleap.nc", "v", **own)
    days = [("1964-02-28", 28.0), ("1964-02-29", 28.0), ("1964-03-01", 1.0)]
    for day, value in days:
        case.sample("standard", record(f"{day}T12:00:00", value), at=f"{day}T12:00:00")
    write(
        case,
        "gregorian.nc",
        np.array([57.5, 58.5, 59.5, 60.5]),
        [27.0, 28.0, 29.0, 1.0],
        units="days since 1964-01-01",
    )
    case.source("skips", "gregorian.nc", "v", **own, calendar="noleap")
    for day, value in (("1964-02-28", 28.0), ("1964-03-01", 1.0)):
        case.sample("skips", record(f"{day}T12:00:00", value), at=f"{day}T12:00:00")


@case("stamps")
def stamps(case: Case) -> None:
    """Find the record nearest to its anchor within the tolerance, else the earliest later one."""
    # 2019-07-01 as float32 days since 1900: 337.5 s apart
    days = (np.arange(24) / 24 + 43645).astype("f4")
    write(case, "single.nc", days, list(range(24)), units="days since 1900-01-01")
    case.source("single", "single.nc", "v", start="2019-07-01", frequency="PT1H")
    for hour in (0, 1, 2, 13, 23):
        # a float32 of this size is a multiple of 1/256 day, which is 337.5 s
        ticks = round(float(days[hour]) * 256) - 43645 * 256
        microseconds = ticks * 337_500_000
        seconds, fraction = divmod(microseconds, 1_000_000)
        text = f"2019-07-01T{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
        text += f".{fraction:06d}" if fraction else ""
        case.sample("single", record(text, float(hour)), at=f"2019-07-01T{hour:02d}:00:00")
    # hourly stamps under a daily cadence: the record at the anchor, not the 23:00 within the tolerance
    write(case, "hourly.nc", np.arange(48, dtype="i4"), list(range(48)))
    case.source("daily", "hourly.nc", "v", start=T0, frequency="P1D", end="2020-01-03")
    case.sample("daily", record("2020-01-02T00:00:00", 24.0), at="2020-01-02T00:00:00")
    case.sample("daily", record("2020-01-02T00:00:00", 24.0), at="2020-01-02T17:30:00")
    # means of months, dated in their middle
    write(case, "middle.nc", np.array([15.5, 45.0, 74.5]), [1.0, 2.0, 3.0], units="days since 2001-01-01")
    case.source("middle", "middle.nc", "v", start="2001-01-01", frequency="P1M", end="2001-04-01")
    case.sample("middle", record("2001-02-15T00:00:00", 2.0), at="2001-02-01T00:00:00")
    case.sample("middle", record("2001-03-16T12:00:00", 3.0), at="2001-03-31T00:00:00")
    # dated at the end: start is declared a step later
    write(case, "ends.nc", np.array([3, 6, 9], "i4"), [1.0, 2.0, 3.0])
    case.source("ends", "ends.nc", "v", start="2020-01-01T03:00:00", frequency="PT3H")
    case.sample("ends", record("2020-01-01T03:00:00", 1.0), at="2020-01-01T04:00:00")
    # a hole in the axis
    write(case, "hole.nc", np.array([0, 6], "i4"), [0.0, 1.0])
    case.source("hole", "hole.nc", "v", start=T0, frequency="PT3H", end="2020-01-02")
    case.fails("hole", "IndexError", "hole.nc", "2020-01-01 03:00:00", at="2020-01-01T03:00:00")
    case.sample("hole", record("2020-01-01T06:00:00", 1.0), at="2020-01-01T06:00:00")
    # no time coordinate at all: counted by the cadence
    netcdf(case.folder / "undated.nc", {"v": ("time", np.array([5.0, 6.0, 7.0]), {})}, unlimited=("time",))
    case.source("undated", "undated.nc", "v", start=T0, frequency="PT3H")
    case.sample("undated", record("2020-01-01T06:00:00", 7.0), at="2020-01-01T08:59:00")
    case.fails("undated", "IndexError", "undated.nc", at="2020-01-01T09:00:00")
    # a time dimension of another name: not all of it is one record
    stored = {"valid_time": ("valid_time", np.arange(24, dtype="i4"), {"units": "hours since 2020-01-01"})}
    fields: dict[str, Any] = {"v": ("valid_time", np.arange(24.0), {})}
    netcdf(case.folder / "valid.nc", {**stored, **fields})
    case.source("valid", "valid.nc", "v", start=T0, frequency="P1D")
    case.fails("valid", "ValueError", "valid.nc", "valid_time", at=T0)
    case.source("named", "valid.nc", "v", start=T0, frequency="PT1H", time_dim="valid_time")
    case.sample("named", record("2020-01-01T07:00:00", 7.0), at="2020-01-01T07:30:00")


@case("order")
def order(case: Case) -> None:
    """Refuse stamps out of order unless sort_time is set, and duplicates always; skip NaN."""
    write(case, "shuffled.nc", np.array([0, 6, 3], "i4"), [0.0, 2.0, 1.0])
    declared: dict[str, Any] = {"start": T0, "frequency": "PT3H"}
    case.source("strict", "shuffled.nc", "v", **declared)
    case.fails("strict", "ValueError", "shuffled.nc", "2", at=T0)
    case.source("sorted", "shuffled.nc", "v", options={"sort_time": True}, **declared)
    for hour in (6, 0, 3, 6):
        time = f"2020-01-01T{hour:02d}:00:00"
        case.sample("sorted", record(time, hour / 3), at=time)
    write(case, "twice.nc", np.array([0, 3, 3], "i4"), [0.0, 1.0, 2.0])
    for name, options in (("twice", None), ("twice-sorted", {"sort_time": True})):
        case.source(name, "twice.nc", "v", options=options, **declared)
        case.fails(name, "ValueError", "twice.nc", at=T0)
    write(case, "gaps.nc", np.array([0.0, np.nan, 3.0, 9.969209968386869e36]), [0.0, 1.0, 2.0, 3.0])
    case.source("gaps", "gaps.nc", "v", records_per_sample=2, **declared)
    hours = [1577836800.0, 1577836800.0 + 3 * 3600]
    case.sample("gaps", pair([T0, "2020-01-01T03:00:00"], [0.0, 2.0], hours), at=T0)


@case("dated")
def dated(case: Case) -> None:
    """Date the records by the same variable whichever fields are asked for, and keep it out of the fields."""
    noon, next_noon = "2020-01-01T12:00:00", "2020-01-03T12:00:00"
    since = {"units": "hours since 2020-01-01"}
    centered = ("step", np.array([12.0, 60.0]), {**since, "standard_name": "time"})
    instant = ("step", np.array([24.0, 72.0]), since)
    v: Any = ("step", np.array([1.0, 3.0]), {})
    declared: dict[str, Any] = {"start": T0, "frequency": "P1D", "end": "2020-01-04", "time_dim": "step"}
    # the only one with dates
    netcdf(case.folder / "one.nc", {"centered": centered, "v": v}, unlimited=("step",))
    for name, variables in (("all", ()), ("one", ("v",)), ("named", ("v", "centered"))):
        case.source(name, "one.nc", *variables, **declared)
        for time, position in ((noon, 0), (next_noon, 1)):
            fields = {"v": field([], np.float64([1, 3][position]))}
            if "centered" in variables:  # a field like any other, as stored
                fields["centered"] = field([], np.float64([12, 60][position]), centered[2])
            case.sample(name, dataset([time], fields), at=f"{time[:10]}T00:00:00")
        case.fails(name, "IndexError", "one.nc", at="2020-01-02T00:00:00")
    # two: by the standard name, or not at all
    netcdf(case.folder / "two.nc", {"centered": centered, "instant": instant, "v": v}, unlimited=("step",))
    case.source("two", "two.nc", "v", "instant", **declared)
    two = {"v": field([], np.float64(1)), "instant": field([], np.float64(24), since)}
    case.sample("two", dataset([noon], two), at=T0)
    unnamed = ("step", np.array([12.0, 60.0]), since)
    netcdf(case.folder / "unclear.nc", {"centered": unnamed, "instant": instant, "v": v}, unlimited=("step",))
    for name, variables in (("unclear", ("v",)), ("unclear-all", ()), ("unclear-named", ("v", "centered"))):
        case.source(name, "unclear.nc", *variables, **declared)
        case.fails(name, "ValueError", "centered", "instant", at=T0)
    # what a field names goes first; fields that name different ones are no one source
    named = {
        "centered": centered,
        "instant": instant,
        "mean": (*v[:2], {"coordinates": "centered"}),
        "snap": (*v[:2], {"coordinates": "instant"}),
    }
    netcdf(case.folder / "fields.nc", named, unlimited=("step",))
    case.source("snap", "fields.nc", "snap", **{**declared, "start": "2020-01-02"})
    snap = field([], np.float64(1), {"coordinates": "instant"})
    case.sample("snap", dataset(["2020-01-02T00:00:00"], {"snap": snap}), at="2020-01-02T00:00:00")
    case.source("mean-snap", "fields.nc", "mean", "snap", **declared)
    case.fails("mean-snap", "ValueError", "centered", "instant", at=T0)
    # a scalar, counting from each file's own day: never a field unless named, and in a bracket in seconds
    for day in (1, 2):
        scalar = {
            "time": ("", np.array(12.0), {"units": f"hours since 2020-01-{day:02d}"}),
            "v": ("x", np.array([day, day + 0.5]), {}),
        }
        netcdf(case.folder / f"scalar.{day:02d}.nc", scalar)
    daily: dict[str, Any] = {
        "start": noon, "frequency": "P1D", "file_period": "P1D", "end": "2020-01-03T12:00:00",
    }  # fmt: skip
    case.source("scalar", "scalar.%d.nc", **daily)
    case.sample("scalar", dataset([noon], {"v": field(["x"], out([1, 1.5]))}), at=noon)
    stamps = field(
        ["time"], out([1577836800.0 + 43200, 1577836800.0 + 129600]),
        {"units": "seconds since 1970-01-01", "calendar": "standard"},
    )  # fmt: skip
    both = field(["time", "x"], out([[1, 1.5], [2, 2.5]]))
    case.source("pair", "scalar.%d.nc", **daily, records_per_sample=2)
    times = [noon, "2020-01-02T12:00:00"]
    case.sample("pair", dataset(times, {"v": both}, {"time": stamps}), at=noon)
    case.source("pair-named", "scalar.%d.nc", "time", "v", **daily, records_per_sample=2)
    case.sample("pair-named", dataset(times, {"time": stamps, "v": both}), at=noon)
