"""Series of files: seams, brackets at both ends, hold and cycle, irregular series, constants, tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from corpus.casebook import Case, case
from corpus.encoding import dataset, field
from corpus.writing import csv, netcdf

from .time import pair, record, write
from .values import out

T0 = "2020-01-01T00:00:00"
#: Seconds from 1970-01-01 to T0.
EPOCH = 1577836800.0
DAY = 86400.0


def _hour(hours: float) -> str:
    day, hour = divmod(int(hours), 24)
    return f"2020-01-{day + 1:02d}T{hour:02d}:00:00"


def _stamps(hours: Sequence[int]) -> list[float]:
    return [EPOCH + 3600.0 * hour for hour in hours]


@case("seams")
def seams(case: Case) -> None:
    """Take record, units and packing from the file that holds the record; bracket across seams."""
    # two files of four hours, each packed and dated in its own way
    parts = [(0.5, 10.0, 0), (2.0, -5.0, 4)]
    for scale, offset, first in parts:
        stored: dict[str, Any] = {
            "time": ("time", np.arange(4, dtype="i4"), {"units": f"hours since 2020-01-01T{first:02d}:00"}),
            "v": ("time", np.arange(4, dtype="i2"), {"scale_factor": scale, "add_offset": offset}),
        }
        netcdf(case.folder / f"packed.{first:02d}.nc", stored, unlimited=("time",))
    values = [raw * scale + offset for scale, offset, _ in parts for raw in range(4)]
    case.source(
        "packed",
        "packed.%H.nc",
        "v",
        start=T0,
        frequency="PT1H",
        file_period="PT4H",
        end="2020-01-01T08:00:00",
        records_per_sample=2,
    )
    for hour in (0, 3, 4, 7, 2):
        two = [hour, min(hour + 1, 7)]
        gives = pair([_hour(h) for h in two], [values[h] for h in two], _stamps(two))
        case.sample("packed", gives, at=_hour(hour))
    case.times("packed", [_hour(hour) for hour in range(8)])

    # daily files of eight records; tick 8 is record 0 of the second
    for day in range(2):
        write(
            case,
            f"daily.{day + 1:02d}.nc",
            np.arange(0, 24, 3, dtype="i4") + 24 * day,
            list(range(8 * day, 8 * day + 8)),
        )
    case.source("daily", "daily.%d.nc", "v", start=T0, frequency="PT3H", file_period="P1D", end="2020-01-03")
    case.sample("daily", record(_hour(24), 8.0), at=_hour(24))
    case.sample("daily", record(_hour(21), 7.0), at="2020-01-01T23:59:00")
    case.source(
        "daily-2",
        "daily.%d.nc",
        "v",
        start=T0,
        frequency="PT3H",
        file_period="P1D",
        end="2020-01-03",
        records_per_sample=2,
    )
    case.sample("daily-2", pair([_hour(21), _hour(24)], [7.0, 8.0], _stamps([21, 24])), at=_hour(21))

    # an empty file is skipped by brackets; its own anchors are not there
    write(case, "some.01.nc", np.array([0.0]), [1.0])
    write(case, "some.02.nc", np.empty(0), [])
    write(case, "some.03.nc", np.array([48.0]), [3.0])
    case.source(
        "some",
        "some.%d.nc",
        "v",
        start=T0,
        frequency="P1D",
        file_period="P1D",
        end="2020-01-04",
        records_per_sample=2,
    )
    case.sample("some", pair([_hour(0), _hour(48)], [1.0, 3.0], _stamps([0, 48])), at=_hour(0))
    case.fails("some", "IndexError", "some.02.nc", at=_hour(24))

    # overlapping files: each serves its own period
    write(case, "over.01.nc", np.array([0, 12, 24], "i4"), [0.0, 1.0, 99.0])
    write(case, "over.02.nc", np.array([24, 36], "i4"), [2.0, 3.0])
    case.source(
        "over",
        "over.%d.nc",
        "v",
        start=T0,
        frequency="PT12H",
        file_period="P1D",
        end="2020-01-03",
        records_per_sample=2,
    )
    case.sample("over", pair([_hour(12), _hour(24)], [1.0, 2.0], _stamps([12, 24])), at=_hour(12))
    case.sample("over", pair([_hour(24), _hour(36)], [2.0, 3.0], _stamps([24, 36])), at=_hour(24))

    # a file that is not there hurts the samples that need it, and no others
    case.source(
        "gap",
        "daily.%d.nc",
        "v",
        start=T0,
        frequency="PT3H",
        file_period="P1D",
        end="2020-01-05",
        records_per_sample=2,
    )
    case.sample("gap", pair([_hour(42), _hour(45)], [14.0, 15.0], _stamps([42, 45])), at=_hour(42))
    for hour in (45, 48):
        case.fails("gap", "FileNotFoundError", "daily.03.nc", at=_hour(hour))

    # another size in the second file
    for day in (1, 2):
        stored = {
            "time": ("time", np.array([24.0 * (day - 1)]), {"units": "hours since 2020-01-01"}),
            "v": ("time x", np.ones((1, day + 1)), {}),
        }
        netcdf(case.folder / f"size.{day:02d}.nc", stored, unlimited=("time",))
    case.source("size", "size.%d.nc", "v", start=T0, frequency="P1D", file_period="P1D", end="2020-01-03")
    case.sample("size", dataset([T0], {"v": field(["x"], out([1, 1]))}), at=T0)
    case.fails("size", "OSError", "size.01.nc", "size.02.nc", "x", at=_hour(24))

    # another grid in the second file
    for day, x in ((1, [0.0, 1.0]), (2, [0.0, 1.0 + 2**-52])):
        stored = {
            "time": ("time", np.array([24.0 * (day - 1)]), {"units": "hours since 2020-01-01"}),
            "x": ("x", np.array(x), {}),
            "v": ("time x", np.array([[1.0, 2.0]]), {}),
        }
        netcdf(case.folder / f"grid.{day:02d}.nc", stored, unlimited=("time",))
    case.source(
        "grid",
        "grid.%d.nc",
        "v",
        start=T0,
        frequency="P1D",
        file_period="P1D",
        end="2020-01-03",
        records_per_sample=2,
    )
    case.fails("grid", "OSError", "grid.01.nc", "grid.02.nc", "x", at=T0)


@case("brackets")
def brackets(case: Case) -> None:
    """Bracket a record with its successor: at both ends, and wherever the time dimension stands."""
    write(case, "three.nc", np.array([0, 3, 6], "i4"), [0.0, 1.0, 2.0])
    declared: dict[str, Any] = {"start": T0, "frequency": "PT3H", "records_per_sample": 2}
    case.source("open", "three.nc", "v", **declared)
    case.sample("open", pair([_hour(3), _hour(6)], [1.0, 2.0], _stamps([3, 6])), at="2020-01-01T05:59:00")
    case.sample("open", pair([_hour(6), _hour(6)], [2.0, 2.0], _stamps([6, 6])), at=_hour(6))
    case.source("ended", "three.nc", "v", **declared, end=_hour(6))
    case.sample("ended", pair([_hour(3), _hour(3)], [1.0, 1.0], _stamps([3, 3])), at=_hour(3))
    case.fails("ended", "ValueError", at="2019-12-31T23:59:00", via=["provider"])
    case.fails("ended", "IndexError", at=_hour(6), via=["provider"])
    # a daily anchor in an hourly file: the successor is the next record, not the next anchor's
    write(case, "hourly.nc", np.arange(48, dtype="i4"), list(range(48)))
    case.source("finer", "hourly.nc", "v", start=T0, frequency="P1D", end="2020-01-03", records_per_sample=2)
    case.sample("finer", pair([_hour(24), _hour(25)], [24.0, 25.0], _stamps([24, 25])), at=_hour(24))
    # stamps later than the anchors leave the time between uncovered: a warning says what to declare
    write(case, "late.nc", np.array([1.5, 4.5], "f8"), [0.0, 1.0])
    case.source("late", "late.nc", "v", **declared)
    late = ["2020-01-01T01:30:00", "2020-01-01T04:30:00"]
    case.sample(
        "late", pair(late, [0.0, 1.0], [EPOCH + 5400, EPOCH + 16200]), at=T0, warns=["2020-01-01 01:30:00"]
    )
    # the time dimension stays where the file has it; what has none is the first record's
    cube = np.arange(12.0).reshape(2, 3, 2)
    cube_file: dict[str, Any] = {
        "time": ("time", np.array([0, 3], "i4"), {"units": "hours since 2020-01-01"}),
        "y": ("y", np.array([1.0, 2.0]), {}),
        "v": ("y x time", np.arange(12.0).reshape(2, 3, 2), {"coordinates": "h"}),
        "h": ("time x", np.arange(6.0).reshape(2, 3), {}),
        "s": ("x", np.array([7, 8, 9], "i2"), {}),
    }
    netcdf(case.folder / "inner.nc", cube_file)
    case.source("inner", "inner.nc", "v", "s", **declared)
    stamps = field(
        ["time"], out(_stamps([0, 3])), {"units": "seconds since 1970-01-01", "calendar": "standard"}
    )
    case.sample(
        "inner",
        dataset(
            [_hour(0), _hour(3)],
            {
                "v": field(["y", "x", "time"], cube, {"coordinates": "h"}),
                "s": field(["x"], out([7, 8, 9], "i2")),
            },
            {
                "y": field(["y"], out([1, 2])),
                "h": field(["time", "x"], np.arange(6.0).reshape(2, 3)),
                "time": stamps,
            },
        ),
        at=T0,
    )
    case.source("inner-1", "inner.nc", "v", "s", start=T0, frequency="PT3H")
    case.sample(
        "inner-1",
        dataset(
            [_hour(3)],
            {
                "v": field(["y", "x"], cube[:, :, 1], {"coordinates": "h"}),
                "s": field(["x"], out([7, 8, 9], "i2")),
            },
            {"y": field(["y"], out([1, 2])), "h": field(["x"], np.array([3.0, 4.0, 5.0]))},
        ),
        at=_hour(3),
    )
    # files of one record, dated by a scalar: a bracket puts time first
    for day in (1, 2):
        stored: dict[str, Any] = {
            "time": ("", np.array(float(day - 1)), {"units": "days since 2020-01-01"}),
            "x": ("x", np.array([1.0, 2.0]), {}),
            "v": ("x", np.array([day, day + 0.5]), {}),
        }
        netcdf(case.folder / f"scalar.{day:02d}.nc", stored)
    case.source(
        "scalar",
        "scalar.%d.nc",
        "v",
        start=T0,
        frequency="P1D",
        file_period="P1D",
        end="2020-01-03",
        records_per_sample=2,
    )
    stamps = field(
        ["time"], out(_stamps([0, 24])), {"units": "seconds since 1970-01-01", "calendar": "standard"}
    )
    case.sample(
        "scalar",
        dataset(
            [_hour(0), _hour(24)],
            {"v": field(["time", "x"], out([[1, 1.5], [2, 2.5]]))},
            {"x": field(["x"], out([1, 2])), "time": stamps},
        ),
        at=T0,
    )
    # integers that floats hold exactly may meet them in a bracket; others may not
    for name, big in (("mixed", 2**53), ("refused", 2**53 + 1)):
        for day, value in ((1, np.array([big], "i8")), (2, np.array([0.5]))):
            stored = {
                "time": ("time", np.array([24.0 * (day - 1)]), {"units": "hours since 2020-01-01"}),
                "v": ("time", value, {}),
            }
            netcdf(
                case.folder / f"{name}.{day:02d}.nc", stored, form="NETCDF3_64BIT_DATA", unlimited=("time",)
            )
        case.source(
            name,
            f"{name}.%d.nc",
            "v",
            start=T0,
            frequency="P1D",
            file_period="P1D",
            end="2020-01-03",
            records_per_sample=2,
        )
    case.sample("mixed", pair([_hour(0), _hour(24)], [2.0**53, 0.5], _stamps([0, 24])), at=T0)
    case.fails("refused", "OSError", "v", "refused.01.nc", "refused.02.nc", str(2**53 + 1), at=T0)
    # nothing is converted: halves in different units don't go together, other attributes are the first's
    for day, units in ((1, "K"), (2, "degC"), (3, "degC")):
        stored = {
            "time": ("time", np.array([24.0 * (day - 1)]), {"units": "hours since 2020-01-01"}),
            "v": ("time", np.array([float(day)]), {"units": units, "serial": np.int32(day)}),
        }
        netcdf(case.folder / f"units.{day:02d}.nc", stored, unlimited=("time",))
    case.source(
        "units", "units.%d.nc", "v", start=T0, frequency="P1D", file_period="P1D", end="2020-01-04",
        records_per_sample=2,
    )  # fmt: skip
    case.fails("units", "OSError", "v", "units.01.nc", "units.02.nc", at=T0)
    days = {"units": "seconds since 1970-01-01", "calendar": "standard"}
    warm = dataset(
        [_hour(24), _hour(48)],
        {"v": field(["time"], out([2.0, 3.0]), {"units": "degC", "serial": np.int32(2)})},
        {"time": field(["time"], out(_stamps([24, 48])), days)},
    )
    case.sample("units", warm, at=_hour(24))


@case("outside")
def outside(case: Case) -> None:
    """Answer before the start and from the end on: an error, the nearest record, another year's."""
    write(case, "three.nc", np.array([0, 3, 6], "i4"), [0.0, 1.0, 2.0])
    end = _hour(9)
    declared: dict[str, Any] = {"start": T0, "frequency": "PT3H", "end": end}
    case.source("error", "three.nc", "v", **declared)
    case.fails("error", "ValueError", "2019-12-31", at="2019-12-31T00:00:00", via=["provider"])
    case.fails("error", "IndexError", "2020-01-01 09:00:00", at=end, via=["provider"])
    case.sample("error", record(_hour(6), 2.0), at="2020-01-01T08:59:58")
    case.source("hold", "three.nc", "v", **declared, outside="hold")
    case.sample("hold", record(_hour(0), 0.0), at="1990-06-01T00:00:00")
    case.sample("hold", record(_hour(6), 2.0), at="2050-06-01T00:00:00")
    case.source("hold-2", "three.nc", "v", **declared, outside="hold", records_per_sample=2)
    case.sample("hold-2", pair([_hour(0), _hour(3)], [0.0, 1.0], _stamps([0, 3])), at="1990-06-01T00:00:00")
    case.sample("hold-2", pair([_hour(6), _hour(6)], [2.0, 2.0], _stamps([6, 6])), at="2050-06-01T00:00:00")
    # a climatology of twelve months, used in 2023: December is followed by the January after it
    lengths = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    starts = [sum(lengths[:month]) for month in range(12)]
    write(case, "year.nc", np.array(starts, "i4"), list(range(1, 13)), units="days since 2021-01-01")
    case.source(
        "cycle",
        "year.nc",
        "v",
        start="2021-01-01",
        frequency="P1M",
        end="2022-01-01",
        outside="cycle",
        records_per_sample=2,
    )
    days_2023 = 19358.0  # from 1970-01-01 to 2023-01-01: 53 years, 13 of them leap years
    july, december = (days_2023 + starts[month] for month in (6, 11))
    case.sample(
        "cycle",
        pair(["2023-07-01T00:00:00", "2023-08-01T00:00:00"], [7.0, 8.0], [july * DAY, (july + 31) * DAY]),
        at="2023-07-20T00:00:00",
    )
    case.sample(
        "cycle",
        pair(
            ["2023-12-01T00:00:00", "2024-01-01T00:00:00"],
            [12.0, 1.0],
            [december * DAY, (december + 31) * DAY],
        ),
        at="2023-12-15T00:00:00",
    )
    # a daily climatology of a year without leap day: Feb 29 repeats Feb 28
    write(case, "daily.nc", np.arange(365, dtype="i4"), list(range(365)), units="days since 2021-01-01")
    case.source(
        "leap", "daily.nc", "v", start="2021-01-01", frequency="P1D", end="2022-01-01", outside="cycle"
    )
    for day, number in (("02-28", 58), ("02-29", 58), ("03-01", 59), ("12-31", 364)):
        case.sample("leap", record(f"2024-{day}T00:00:00", float(number)), at=f"2024-{day}T06:00:00")
    # numbered by month, not dated: only as a climatology
    write(case, "numbered.nc", np.arange(12) + 0.5, list(range(1, 13)), units="months")
    case.source(
        "numbered", "numbered.nc", "v", start="2000-01-01", frequency="P1M", end="2001-01-01", outside="cycle"
    )
    case.sample("numbered", record("2023-05-01T00:00:00", 5.0), at="2023-05-31T00:00:00")


@case("irregular")
def irregular(case: Case) -> None:
    """Take the stamps of the files as anchors where frequency is "records"."""
    write(case, "2019.nc", np.array([354, 361], "i4"), [-8.0, 0.0], units="days since 2019-01-01")
    write(case, "2020.nc", np.array([4, 11], "i4"), [8.0, 16.0], units="days since 2020-01-01")
    stamps = ["2019-12-21T00:00:00", "2019-12-28T00:00:00", "2020-01-05T00:00:00", "2020-01-12T00:00:00"]
    seconds = [EPOCH - 11 * DAY, EPOCH - 4 * DAY, EPOCH + 4 * DAY, EPOCH + 11 * DAY]
    values = [-8.0, 0.0, 8.0, 16.0]
    declared: dict[str, Any] = {
        "start": "2019-01-01",
        "frequency": "records",
        "file_period": "P1Y",
        "end": "2021-01-01",
    }
    case.source("series", "%Y.nc", "v", **declared)
    case.source("brackets", "%Y.nc", "v", **declared, records_per_sample=2)
    case.times("series", stamps)
    for at, k in (("2019-12-21T00:00:00", 0), ("2020-01-01T00:00:00", 1), ("2020-12-31T00:00:00", 3)):
        two = [k, min(k + 1, 3)]
        case.sample("series", record(stamps[k], values[k]), at=at)
        gives = pair([stamps[n] for n in two], [values[n] for n in two], [seconds[n] for n in two])
        case.sample("brackets", gives, at=at)
    case.fails("series", "ValueError", at="2019-12-20T00:00:00", via=["provider"])
    case.fails("series", "IndexError", at="2021-01-01T00:00:00", via=["provider"])


@case("const")
def const(case: Case) -> None:
    """Read a source without times whole, its time coordinate as stored."""
    axis = {"units": "hours since 2020-01-01", "calendar": "noleap"}
    stored: dict[str, Any] = {
        "time": ("time", np.array([0, 6], "i4"), axis),
        "x": ("x", np.array([1.0, 2.0]), {}),
        "v": (
            "time x",
            np.array([[0, 1], [2, -1]], "i2"),
            {"scale_factor": 0.5, "missing_value": np.int16(-1)},
        ),
    }
    netcdf(case.folder / "const.nc", stored)
    case.source("const", "const.nc")
    time, x = field(["time"], out([0, 6], "i4"), axis), field(["x"], out([1, 2]))
    v = out([0, 0.5, 1, None]).reshape(2, 2)
    case.sample("const", dataset([], {"v": field(["time", "x"], v)}, {"time": time, "x": x}))
    window = {"dims": {"time": {"indices": [1, 0]}, "x": {"slice": [1, 2]}}}
    gives = dataset(
        [],
        {"v": field(["time", "x"], v[[1, 0]][:, 1:])},
        {"time": field(["time"], out([6, 0], "i4"), axis), "x": field(["x"], out([2]))},
    )
    case.sample("const", gives, select=window)
    case.times("const", [])
    case.source("unknown", "const.nc", format="grib")
    case.fails("unknown", "LookupError", "grib")
    case.source("option", "const.nc", options={"varaibles": ["v"]})
    case.fails("option", "ValueError", "varaibles")


@case("table")
def table(case: Case) -> None:
    """Read CSV: numbers as float64, empty cells missing, the rest text; a time column dates rows."""
    csv(
        case.folder / "points.csv",
        ["id,lat,lon,so2,note", "a1,10.5,20,1.25,", "a2,-3,350,,clean", "7,0,0,1e3,7"],
    )
    located = {"coordinates": "lat lon"}
    case.source("points", "points.csv", format="csv", options={"coordinates": ["lat", "lon"], "text": ["id"]})
    gives = {
        "id": field(["point"], np.array(["a1", "a2", "7"], object), located),
        "so2": field(["point"], out([1.25, None, 1000]), located),
        "note": field(["point"], np.array(["", "clean", "7"], object), located),
    }
    lat, lon = field(["point"], out([10.5, -3, 0])), field(["point"], out([20, 350, 0]))
    case.sample("points", dataset([], gives, {"lat": lat, "lon": lon}))
    part = {
        "id": field(["point"], np.array(["7", "a1"], object), located),
        "so2": field(["point"], out([1000, 1.25]), located),
        "note": field(["point"], np.array(["7", ""], object), located),
    }
    coords = {"lat": field(["point"], out([0, 10.5])), "lon": field(["point"], out([0, 20]))}
    case.sample("points", dataset([], part, coords), select={"dims": {"point": {"indices": [2, 0]}}})
    csv(case.folder / "dated.csv", ["when,so2", "2020-01-01T00:00,1", "2020-01-01T03:00,2.5"])
    case.source(
        "dated",
        "dated.csv",
        "so2",
        format="csv",
        options={"time_column": "when"},
        start=T0,
        frequency="PT3H",
        time_dim="when",
    )
    case.sample("dated", dataset([_hour(3)], {"so2": field([], np.float64(2.5))}), at="2020-01-01T04:00:00")
    csv(case.folder / "ragged.csv", ["a,b", "1,2", "3"])
    case.source("ragged", "ragged.csv", format="csv")
    case.fails("ragged", "OSError", "ragged.csv", "3")
