"""Windows: by name over mixed ranks, over untouchable chunks, wrapped, several at once, wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from corpus.casebook import Case, case
from corpus.encoding import Json, dataset, field
from corpus.writing import netcdf, zarr2, zarr3

HOURS = {"units": "hours since 2020-01-01"}
T0, T1 = "2020-01-01T00:00:00", "2020-01-01T01:00:00"

#: Indices wanted of a dimension.
Indices: TypeAlias = Mapping[str, Sequence[int]]
Table: TypeAlias = Mapping[str, tuple[str, Any, Mapping[str, Any]]]


def cut(dims: str, values: Any, attrs: Mapping[str, Any], window: Indices, record: int | None = None) -> Json:
    """Slice by name, and take one record out of the time dimension."""
    names, part = dims.split(), np.asarray(values)
    if record is not None and "time" in names:
        part = part.take(record, axis=names.index("time"))
        names.remove("time")
    for axis, name in enumerate(names):
        if name in window:
            part = part.take(list(window[name]), axis=axis)
    out = part.astype("f8") if part.dtype.kind == "f" else part
    return field(names, out, attrs)


def sliced(
    table: Table, fields: Sequence[str], coords: Sequence[str], window: Indices, record: int, time: str
) -> Json:
    """Give the sample of one record through a window."""
    parts = {name: cut(*table[name], window, record) for name in (*fields, *coords)}
    return dataset([time], {n: parts[n] for n in fields}, {n: parts[n] for n in coords})


def _grid() -> Table:
    """Fields of several ranks on a staggered grid, every element another number."""
    sizes = {"time": 2, "lev": 2, "lat": 3, "lat_v": 4, "lon": 4, "lon_u": 5}
    axes = {
        "lev": [1000.0, 500.0], "lat": [10.0, 0.0, -10.0], "lat_v": [15.0, 5.0, -5.0, -15.0],
        "lon": [0.0, 90.0, 180.0, 270.0], "lon_u": [-45.0, 45.0, 135.0, 225.0, 315.0],
    }  # fmt: skip
    table: dict[str, tuple[str, Any, Mapping[str, Any]]] = {"time": ("time", np.array([0.0, 1.0]), HOURS)}
    for name, values in axes.items():
        table[name] = (name, np.array(values), {"units": "hPa" if name == "lev" else "degrees"})
    first = 0
    for name, dims, attrs in (
        ("ps", "time lat lon", {"coordinates": "area", "units": "Pa"}),
        ("t", "time lev lat lon", {"units": "K"}),
        ("u", "time lev lat lon_u", {"units": "m s-1"}),
        ("v", "time lev lat_v lon", {"units": "m s-1"}),
        ("oro", "lat lon", {}),
        ("area", "lat lon", {"units": "m2"}),
    ):
        shape = [sizes[dim] for dim in dims.split()]
        count = int(np.prod(shape))
        table[name] = (dims, np.arange(first, first + count, dtype="f4").reshape(shape), attrs)
        first += count
    return table


@case("named-window-mixed-rank")
def named_window_mixed_rank(case: Case) -> None:
    """Cut every field and coordinate that carries a named dimension, whatever its rank."""
    table = _grid()
    fields, coords = ["ps", "t", "u", "v", "oro"], ["lev", "lat", "lat_v", "lon", "lon_u", "area"]
    storage: dict[str, Any] = {name: {"zlib": True, "shuffle": True} for name in ("ps", "t")}
    storage["t"]["chunksizes"] = (1, 1, 2, 3)
    netcdf(case.folder / "grid.nc", table, form="NETCDF4", storage=storage)
    case.source("grid", "grid.nc", *fields, start=T0, frequency="PT1H", end="2020-01-01T02:00:00")
    windows: list[tuple[Mapping[str, Any], Indices]] = [
        ({}, {}),
        ({"lat": {"slice": [1, 3]}, "lon": {"slice": [0, 2]}}, {"lat": [1, 2], "lon": [0, 1]}),
        ({"lon_u": {"slice": [3, 5]}, "lev": "all"}, {"lon_u": [3, 4]}),
        ({"lat_v": {"indices": [3, 0, 3]}, "lat": {"indices": [2]}}, {"lat_v": [3, 0, 3], "lat": [2]}),
        ({"lon": {"slice": [0, 4, 3]}, "lev": {"slice": [1, 2]}}, {"lon": [0, 3], "lev": [1]}),
        ({"lon": {"slice": [2, 2]}, "lat": {"indices": []}}, {"lon": [], "lat": []}),
    ]
    for record, time in enumerate((T0, T1)):
        for dims, indices in windows:
            gives = sliced(table, fields, coords, indices, record, time)
            case.sample("grid", gives, at=time, select={"dims": dims} if dims else None)
    # by position: fields of that rank, and coordinates through their dimensions; others stay whole
    axes = ["all", "all", {"slice": [0, 2]}, {"indices": [3, 0]}]
    by_rank = {name: cut(*table[name], {}, 0) for name in ("ps", "oro")}
    chosen = {"lat": [0, 1], "lon": [3, 0]}
    by_rank |= {name: cut(*table[name], chosen, 0) for name in ("t",)}
    case.source("t-ps", "grid.nc", "ps", "t", "oro", start=T0, frequency="PT1H")
    case.sample(
        "t-ps",
        dataset(
            [T0],
            {name: by_rank[name] for name in ("ps", "t", "oro")},
            {name: cut(*table[name], chosen) for name in ("lev", "lat", "lon", "area")},
        ),
        at=T0,
        select={"axes": axes},
    )


_CORNERS = (
    {"lat": {"slice": [0, 2]}, "lon": {"slice": [0, 2]}},
    {"lat": {"slice": [4, 6]}, "lon": {"slice": [4, 6]}},
)
_CORNER_INDICES: tuple[Indices, ...] = ({"lat": [0, 1], "lon": [0, 1]}, {"lat": [4, 5], "lon": [4, 5]})


@case("named-window-zarr")
def named_window_zarr(case: Case) -> None:
    """Fetch no chunk object that no Window touches: those hold rubbish."""
    table: dict[str, tuple[str, Any, Mapping[str, Any]]] = {
        "time": ("time", np.array([0, 1], "i8"), HOURS),
        "lat": ("lat", np.arange(6) * 10.0, {"units": "degrees_north"}),
        "lon": ("lon", np.arange(6) * 60.0, {"units": "degrees_east"}),
        "v": ("time lat lon", np.arange(72, dtype="f4").reshape(2, 6, 6), {"units": "K"}),
    }
    extents = {"time": (2,), "lat": (2,), "lon": (2,), "v": (1, 2, 2)}

    def unwanted(key: str) -> bool:
        """Whether no corner of the first record needs this object."""
        name, *index = key.replace("/c/", "/").replace(".", "/").split("/")
        if name == "v":
            return index not in (["0", "0", "0"], ["0", "2", "2"])
        return name != "time" and index == ["1"]

    arrays: dict[str, Any] = {name: (*table[name], extents[name], {}) for name in table}
    zarr3(case.folder / "three.zarr", arrays, poisoned=unwanted)
    packed = {
        name: (*entry[:4], {"compressor": {"id": "zlib", "level": 0}}) for name, entry in arrays.items()
    }
    zarr2(case.folder / "two.zarr", packed, poisoned=unwanted)
    # one shard of all of lat x lon, its inner chunks 2 x 2: 0 and 8 are the corners
    sharded = {**arrays, "v": (*table["v"], (1, 6, 6), {"_inner": (1, 2, 2)})}

    def unwanted_inside(key: str) -> bool:
        return (
            unwanted(key)
            if not key.startswith("v/")
            else "#" in key and key not in ("v/c/0/0/0#0", "v/c/0/0/0#8")
        )

    zarr3(case.folder / "shards.zarr", sharded, poisoned=unwanted_inside)
    corners = [sliced(table, ["v"], ["lat", "lon"], indices, 0, T0) for indices in _CORNER_INDICES]
    for store in ("three", "two", "shards"):
        case.source(store, f"{store}.zarr", "v", format="zarr", start=T0, frequency="PT1H")
        for window, gives in zip(_CORNERS, corners, strict=True):
            case.sample(store, gives, at=T0, select={"dims": window})
        case.windows(store, T0, [{"dims": window} for window in _CORNERS], corners)
        case.fails(store, "OSError", "v", at=T0)
        case.fails(store, "OSError", "v", at=T1, select={"dims": _CORNERS[0]})


@case("window-wrap")
def window_wrap(case: Case) -> None:
    """Deliver indices in the order given, across the last and first longitude too."""
    lon = np.arange(8) * 45.0
    raw = np.arange(32, dtype="i2").reshape(2, 2, 8)
    stored: dict[str, Any] = {
        "time": ("time", np.array([0.0, 1.0]), HOURS),
        "lat": ("lat", np.array([-45.0, 45.0]), {}),
        "lon": ("lon", lon, {"units": "degrees_east"}),
        "v": ("time lat lon", raw, {"scale_factor": 0.5, "units": "m"}),
    }
    netcdf(case.folder / "wrap.nc", stored)
    table = {**stored, "v": ("time lat lon", raw * 0.5, {"units": "m"})}
    case.source("wrap", "wrap.nc", start=T0, frequency="PT1H", records_per_sample=1)
    for indices in ([6, 7, 0, 1], [7, 0, 7, 0, 0], [3, 2, 1, 0], [5, 6, 7, *range(8), 0, 1, 2]):
        gives = sliced(table, ["v"], ["lat", "lon"], {"lon": indices}, 1, T1)
        case.sample("wrap", gives, at=T1, select={"dims": {"lon": {"indices": indices}}})


@case("multi-window")
def multi_window(case: Case) -> None:
    """Read several Windows at once as each alone."""
    lat, lon = np.array([60.0, 40.0, 20.0, 0.0, -20.0]), np.arange(6) * 60.0
    seconds = np.array([1577836800.0, 1577840400.0, 1577844000.0])  # of T0, T1 and the hour after
    times = [T0, T1, "2020-01-01T02:00:00"]
    raw = np.arange(3 * 2 * 5 * 6, dtype="i2").reshape(3, 2, 5, 6)
    surface = np.arange(90, dtype="f4").reshape(3, 5, 6) / 8
    stored: dict[str, Any] = {
        "time": ("time", np.array([0, 1, 2], "i4"), HOURS),
        "lat": ("lat", lat, {}),
        "lon": ("lon", lon, {}),
        "q": (
            "time lev lat lon",
            raw,
            {"scale_factor": 0.25, "add_offset": -1.0, "missing_value": np.int16(7)},
        ),
        "ps": ("time lat lon", surface, {}),
    }
    packing = {"zlib": True, "shuffle": True}
    storage = {"q": {**packing, "chunksizes": (1, 1, 2, 4)}, "ps": {**packing, "chunksizes": (2, 3, 3)}}
    netcdf(case.folder / "fields.nc", stored, form="NETCDF4", storage=storage)
    q = np.array([np.nan if number == 7 else number * 0.25 - 1.0 for number in raw.reshape(-1).tolist()])
    table: Table = {**stored, "q": ("time lev lat lon", q.reshape(raw.shape), {})}
    windows: list[tuple[Mapping[str, Any], Indices]] = [
        ({}, {}),
        ({"lat": {"slice": [0, 2]}, "lon": {"slice": [0, 2]}}, {"lat": [0, 1], "lon": [0, 1]}),
        ({"lat": {"slice": [4, 5]}, "lon": {"indices": [5, 0, 0]}}, {"lat": [4], "lon": [5, 0, 0]}),
        ({"lat": {"slice": [1, 3]}, "lon": {"slice": [1, 4]}}, {"lat": [1, 2], "lon": [1, 2, 3]}),
        ({"lev": {"indices": [1]}, "lon": {"slice": [0, 6, 2]}}, {"lev": [1], "lon": [0, 2, 4]}),
        ({"lat": {"slice": [0, 2]}, "lon": {"slice": [0, 2]}}, {"lat": [0, 1], "lon": [0, 1]}),
        ({"lat": {"indices": []}}, {"lat": []}),
    ]
    asked = [{"dims": dims} for dims, _ in windows]
    case.source("single", "fields.nc", "q", "ps", start=T0, frequency="PT1H")
    for record, time in enumerate(times):
        give = [sliced(table, ["q", "ps"], ["lat", "lon"], indices, record, time) for _, indices in windows]
        case.windows("single", time, asked, give)
    case.source("brackets", "fields.nc", "q", "ps", start=T0, frequency="PT1H", records_per_sample=2)
    for record, time in enumerate(times):
        pair = [record, min(record + 1, 2)]
        stamps = field(["time"], seconds[pair], {"units": "seconds since 1970-01-01", "calendar": "standard"})
        give = [
            dataset(
                [times[k] for k in pair],
                {name: cut(*table[name], {**indices, "time": pair}) for name in ("q", "ps")},
                {**{name: cut(*table[name], indices) for name in ("lat", "lon")}, "time": stamps},
            )
            for _, indices in windows
        ]
        case.windows("brackets", time, asked, give)


@case("selection-errors")
def selection_errors(case: Case) -> None:
    """Refuse a selection that does not fit; clamp, wrap and pad nothing."""
    stored: dict[str, Any] = {
        "time": ("time", np.array([0.0]), HOURS),
        "x": ("x", np.arange(5.0), {}),
        "one": ("one", np.array([3.0]), {}),
        "v": ("time x", np.arange(5.0).reshape(1, 5), {}),
        "w": ("time one x", np.arange(5.0).reshape(1, 1, 5), {}),
        "far": ("far", np.arange(2.0), {}),
    }
    netcdf(case.folder / "line.nc", stored)
    case.source("line", "line.nc", "v", "w", start=T0, frequency="PT1H")
    selector: Any
    for selector in (
        {"slice": [0, 10]}, {"slice": [7, 9]}, {"slice": [6, 6]}, {"slice": [-2, 3]}, {"indices": [7]},
        {"indices": [0, -1]}, {"indices": [5]},
    ):  # fmt: skip
        case.fails("line", "IndexError", "line.nc", "x", "5", at=T0, select={"dims": {"x": selector}})
    case.fails("line", "IndexError", "one", at=T0, select={"dims": {"one": {"slice": [0, 2]}}})
    case.fails("line", "ValueError", "time", at=T0, select={"dims": {"time": {"slice": [0, 1]}}})
    case.fails("line", "ValueError", "time", at=T0, select={"dims": {"time": "all"}})
    case.fails("line", "ValueError", "y", at=T0, select={"dims": {"y": {"slice": [0, 1]}}})
    case.fails("line", "ValueError", "far", at=T0, select={"dims": {"far": {"slice": [0, 1]}}})
    case.fails("line", "ValueError", "4", at=T0, select={"axes": ["all", "all", "all", "all"]})
    case.fails("line", "ValueError", "time", at=T0, select={"axes": [{"slice": [0, 1]}, "all"]})
    wrong: Any
    for wrong in (
        {"dims": {"x": {"slice": [3, 1]}}}, {"dims": {"x": {"slice": [0, 4, 0]}}},
        {"dims": {"x": {"slice": [1]}}},
        {"dims": {"x": {"indices": [1.5]}}}, {"dims": {"x": "some"}}, {"dims": {}, "axes": []}, {},
        {"dims": {"x": {"slice": [0, 1], "indices": [0]}}},
    ):  # fmt: skip
        case.fails("line", "ValueError", at=T0, select=wrong)
    empty = [field(dims, np.empty(shape), {}) for dims, shape in ((["x"], (0,)), (["one", "x"], (1, 0)))]
    coords = {"x": field(["x"], np.empty(0), {}), "one": field(["one"], np.array([3.0]), {})}
    nothing: Any
    for nothing in ({"slice": [5, 5]}, {"slice": [2, 2]}, {"indices": []}):
        gives = dataset([T0], {"v": empty[0], "w": empty[1]}, coords)
        case.sample("line", gives, at=T0, select={"dims": {"x": nothing}})
