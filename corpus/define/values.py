"""Values: signedness, masks, packing, every dtype rule, options, coordinates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import h5py
import netCDF4
import numpy as np

from corpus.casebook import Case, case
from corpus.encoding import Json, dataset, field
from corpus.writing import Form, hdf5, netcdf

F32, I16 = np.float32, np.int16
#: Stored elements, attributes, what comes out (None: missing) and its dtype, attributes that remain.
Row: TypeAlias = tuple[Any, Mapping[str, Any], Sequence[Any], str, Mapping[str, Any]]


def out(values: Sequence[Any], dtype: str = "f8") -> Any:
    """Make the array that must come out; None is missing."""
    return np.array([np.nan if value is None else value for value in values], dtype)


def _dims(values: Sequence[Any]) -> str:
    return f"n{len(values)}"


def _fields(rows: Mapping[str, Row]) -> dict[str, Json]:
    return {
        name: field([_dims(values)], out(values, dtype), left)
        for name, (_, _, values, dtype, left) in rows.items()
    }


def _table(
    case: Case, source: str, rows: Mapping[str, Row], *, form: Form, options: Any = None, **more: Any
) -> None:
    """Write variables into one file, and expect all of them."""
    stored: dict[str, Any] = {name: (_dims(raw), raw, attrs) for name, (raw, attrs, *_) in rows.items()}
    netcdf(case.folder / f"{source}.nc", stored, form=form)
    case.source(source, f"{source}.nc", *rows, options=options)
    case.sample(source, dataset([], _fields(rows)), **more)


@case("packing")
def packing(case: Case) -> None:
    """Mask in packed space, then raw * scale_factor + add_offset in float64 with two roundings."""
    deci = float(F32(0.1))
    rows: dict[str, Row] = {
        "unsigned": (
            np.array([0, 1, 32767, -32768, -1], "i2"),
            {"_Unsigned": "true", "_FillValue": I16(-1), "scale_factor": F32(0.5), "units": "1"},
            [0.0, 0.5, 16383.5, 16384.0, None], "f8", {"units": "1"},
        ),
        "packed": (
            np.array([-3, 0, 7, 100], "i2"), {"scale_factor": 0.1, "add_offset": 273.15},
            [-3 * 0.1 + 273.15, 0 * 0.1 + 273.15, 7 * 0.1 + 273.15, 100 * 0.1 + 273.15], "f8", {},
        ),
        "single": (  # float32 attributes are widened exactly
            np.array([1, 3, 7], "i2"), {"scale_factor": F32(0.1), "add_offset": F32(0.1)},
            [1 * deci + deci, 3 * deci + deci, 7 * deci + deci], "f8", {},
        ),
        "offset": (np.array([0, 250], "u1"), {"add_offset": -10.5}, [-10.5, 239.5], "f8", {}),
        "scale": (np.array([2, -2], "i4"), {"scale_factor": 3}, [6.0, -6.0], "f8", {}),
        "lists": (
            np.array([4, 5], "i1"), {"scale_factor": np.array([2.0]), "add_offset": np.array([1.0])},
            [9.0, 11.0], "f8", {},
        ),
        "identity": (np.array([1, 2], "i2"), {"scale_factor": 1.0, "add_offset": 0.0}, [1.0, 2.0], "f8", {}),
        "geos": (  # an identity on floats is none: the stored values come out
            np.array([1.1, -0.0], "f4"), {"scale_factor": F32(1), "add_offset": F32(0)},
            [float(F32(1.1)), -0.0], "f8", {},
        ),
        "floats": (
            np.array([1.1, 2.2], "f4"), {"scale_factor": 10.0},
            [float(F32(1.1)) * 10.0, float(F32(2.2)) * 10.0], "f8", {},
        ),
        "first_mask": (  # scaling first would hide 100 * 0.1 = 10 and keep 1.0
            np.array([100, 10, 1], "i2"), {"_FillValue": I16(10), "scale_factor": 0.1},
            [100 * 0.1, None, 1 * 0.1], "f8", {},
        ),
        "several": (
            np.array([-999, -99, -98, 0, 5], "i2"),
            {"_FillValue": I16(-999), "missing_value": np.array([-99, -98], "i2"), "scale_factor": 0.1,
             "add_offset": 10.0},
            [None, None, None, 0 * 0.1 + 10.0, 5 * 0.1 + 10.0], "f8", {},
        ),
        "two_roundings": (  # one fused multiply-add gives other last bits
            np.array([3, 23, 49, 111, 9973], "i2"), {"scale_factor": 0.001, "add_offset": 0.007},
            [n * 0.001 + 0.007 for n in (3, 23, 49, 111, 9973)], "f8", {},
        ),
    }  # fmt: skip
    _table(case, "classic", {k: v for k, v in rows.items() if k != "offset"}, form="NETCDF3_CLASSIC")
    _table(case, "four", rows, form="NETCDF4")

    source_rows: dict[str, Row] = {
        "unsigned": (*rows["unsigned"][:3], "f4", {"units": "1"}),
        "packed": rows["packed"],  # float64 attributes: float64
        "single": (
            rows["single"][0], rows["single"][1], [F32(n * deci + deci) for n in (1, 3, 7)], "f4", {},
        ),
        "geos": (*rows["geos"][:2], [F32(1.1), -0.0], "f4", {}),
        "floats": rows["floats"],
    }  # fmt: skip
    case.source("stored-width", "four.nc", *source_rows, options={"precision": "source"})
    case.sample("stored-width", dataset([], _fields(source_rows)))

    def text_scale(file: Any) -> None:
        file.createVariable("v", "i2", ("n2",)).setncattr("scale_factor", "ten")

    netcdf(case.folder / "wrong.nc", {"ok": ("n2", np.array([1, 2], "i2"), {})}, extra=text_scale)
    case.source("wrong", "wrong.nc", "v")
    case.fails("wrong", "OSError", "v", "scale_factor")


@case("masks")
def masks(case: Case) -> None:
    """Find what is missing by equality in the variable's own type, and by bounds only on request."""
    bound = {"valid_range": np.array([0, -6], "i2")}
    rows: dict[str, Row] = {
        "float_fill": (
            np.array([1, 1e37, 2], "f4"), {"_FillValue": F32(1e37), "missing_value": 1e37},
            [1.0, None, 2.0], "f8", {},
        ),
        "double_on_float": (
            np.array([0.1, 0.2], "f4"), {"missing_value": 0.1}, [None, float(F32(0.2))], "f8", {},
        ),
        "nan_fill": (np.array([1, np.nan], "f8"), {"_FillValue": np.nan}, [1.0, None], "f8", {}),
        "whole_float": (np.array([5, 6], "i4"), {"missing_value": 5.0}, [None, 6.0], "f8", {}),
        "zero": (np.array([0.0], "f8"), {}, [0.0], "f8", {}),
        "never_missing": (np.array([1, 2], "i2"), {"_FillValue": I16(9)}, [1.0, 2.0], "f8", {}),
        "default_fill": (
            np.array([1, 9.969209968386869e36, 3], "f4"), {}, [1.0, None, 3.0], "f8", {},
        ),
        "own_fill": (  # a fill of its own replaces the default one
            np.array([1, 9.969209968386869e36], "f4"), {"_FillValue": F32(1)},
            [None, float(F32(9.969209968386869e36))], "f8", {},
        ),
        "bounds": (np.array([-1, 0, 5, 11], "i2"), {"valid_min": I16(0), "valid_max": I16(10)},
                   [-1, 0, 5, 11], "i2", {"valid_min": I16(0), "valid_max": I16(10)}),
        "unsigned_bounds": (
            np.array([0, 1, -1, -5, -2, -6], "i2"),
            {"_Unsigned": "true", "_FillValue": I16(-1), "scale_factor": F32(0.5), **bound},
            [0.0, 0.5, None, 32765.5, 32767.0, 32765.0], "f8", {},
        ),
        "byte_255": (np.array([0, -2, -1], "i1"), {}, [0, -2, -1], "i1", {}),
    }  # fmt: skip
    _table(case, "masks", rows, form="NETCDF3_CLASSIC")
    inside: dict[str, Row] = {
        "bounds": (*rows["bounds"][:2], [None, 0.0, 5.0, None], "f8", {}),
        "unsigned_bounds": (*rows["unsigned_bounds"][:2], [0.0, 0.5, None, None, None, 32765.0], "f8", {}),
    }
    case.source("in-bounds", "masks.nc", *inside, options={"mask_valid_range": True})
    case.sample("in-bounds", dataset([], _fields(inside)))

    wrong: dict[str, tuple[Any, Any, str]] = {
        "fraction": (np.array([1, 2], "i2"), np.float64(1.5), "i2"),
        "too_large": (np.array([1, 2], "i2"), np.int32(99999), "i2"),
        "text": (np.array([1, 2], "i4"), "none", "i4"),
        "overflow": (np.array([1, 2], "f4"), np.float64(1e300), "f8"),
    }
    ignored: dict[str, Row] = {
        name: (raw, {"missing_value": value}, [1, 2], dtype, {"missing_value": value})
        for name, (raw, value, dtype) in wrong.items()
    }
    stored: dict[str, Any] = {name: (_dims(raw), raw, attrs) for name, (raw, attrs, *_) in ignored.items()}
    netcdf(case.folder / "ignored.nc", stored)
    for name, row in ignored.items():
        case.source(f"ignored-{name}", "ignored.nc", name)
        case.sample(f"ignored-{name}", dataset([], _fields({name: row})), warns=[name])

    def fills(file: h5py.File) -> None:
        file.create_dataset("k", shape=(2,), dtype="f4", fillvalue=7, track_times=False)
        file.create_dataset("scalar", data=0.0)
        nan = file.create_dataset("nan", data=np.array([1, np.nan], "f4"))
        nan.attrs["_FillValue"] = np.float64("nan")  # stored as double on a float
        unwritten = file.create_dataset("u", shape=(4,), chunks=(2,), dtype="i4", fillvalue=7)
        unwritten[:2] = [1, 2]

    hdf5(case.folder / "holes.h5", fills)
    case.source("holes", "holes.h5", "k", "scalar", "nan", "u")
    case.sample(
        "holes",
        dataset(
            [],
            {
                "k": field(["phony_dim_0"], out([7, 7])),
                "scalar": field([], np.float64(0.0)),
                "nan": field(["phony_dim_0"], out([1, None])),
                "u": field(["phony_dim_1"], out([1, 2, 7, 7], "i4")),
            },
        ),
    )


@case("dtypes")
def dtypes(case: Case) -> None:
    """Let the dtype depend on declaration and file, never on values or Window."""
    lowest, highest = -(2**63), 2**63 - 1
    integers: dict[str, Row] = {}
    for name in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"):
        info = np.iinfo(name)
        raw = np.array([info.min, 0, info.max], name)
        integers[name] = (raw, {}, raw.tolist(), name, {})
    masked: dict[str, Row] = {
        f"{name}_masked": (
            np.array([1, 2, 3], name),
            {"_FillValue": np.dtype(name).type(3)},
            [1.0, 2.0, None],
            "f8",
            {},
        )
        for name in ("i1", "u2", "i4", "i8")
    }
    _table(case, "integers", {**integers, **masked}, form="NETCDF4")
    for window, part in (
        ({"slice": [0, 2]}, slice(0, 2)),
        ({"indices": [2]}, slice(2, 3)),
        ({"slice": [0, 0]}, slice(0, 0)),
    ):
        fields = {
            name: field(["n3"], out(values, dtype)[part], {})
            for name, (_, _, values, dtype, _) in {**integers, **masked}.items()
        }
        case.sample("integers", dataset([], fields), select={"dims": {"n3": window}})

    netcdf(
        case.folder / "wide.nc",
        {
            "exact": ("n3", np.array([2**53, -(2**53), lowest], "i8"), {"missing_value": np.int64(5)}),
            "masked": ("n3", np.array([2**53 + 1, 1, 2], "i8"), {"missing_value": np.int64(2**53 + 1)}),
            "inexact": ("n3", np.array([2**53 + 1, 1, 2], "i8"), {"missing_value": np.int64(5)}),
            "scaled": ("n3", np.array([highest, 0, 1], "i8"), {"scale_factor": 0.5}),
        },
        form="NETCDF3_64BIT_DATA",
    )
    case.source("wide", "wide.nc", "exact", "masked")
    exact = {
        "exact": field(["n3"], out([2.0**53, -(2.0**53), -(2.0**63)])),
        "masked": field(["n3"], out([None, 1, 2])),
    }
    case.sample("wide", dataset([], exact))
    for name in ("inexact", "scaled"):
        case.source(name, "wide.nc", name)
        case.fails(name, "OSError", name)

    floats = np.array(
        [0x8000000000000000, 0x7FF8000000000123, 0xFFF8000000000000, 0x7FF0000000000000], "u8"
    ).view("f8")
    netcdf(
        case.folder / "floats.nc",
        {
            "double": ("n4", floats, {}),
            "single": ("n3", np.array([0.1, -0.0, 3e38], "f4"), {}),
        },
    )
    single = out([float(F32(0.1)), -0.0, float(F32(3e38))])
    case.source("floats", "floats.nc", "double", "single")
    case.sample("floats", dataset([], {"double": field(["n4"], floats), "single": field(["n3"], single)}))
    case.source("floats-as-stored", "floats.nc", "double", "single", options={"precision": "source"})
    case.sample(
        "floats-as-stored",
        dataset([], {"double": field(["n4"], floats), "single": field(["n3"], single.astype("f4"))}),
    )

    def plain(file: h5py.File) -> None:
        file["half"] = np.array([1.5, -2], "f2")
        file["flag"] = np.array([True, False])
        file["wave"] = np.array([1 + 2j, -0.5j], "c8")
        file["waves"] = np.array([1 + 2j, 3], "c16")
        color = h5py.enum_dtype({"red": 1, "blue": 9}, basetype="u2")
        file.create_dataset("color", data=np.array([9, 1], "u2"), dtype=color)
        file["pair"] = np.array([(1, 2.0)], [("a", "i4"), ("b", "f4")])

    hdf5(case.folder / "plain.h5", plain)
    case.source("plain", "plain.h5", "half", "flag", "wave", "waves", "color")
    dims = ["phony_dim_0"]
    case.sample(
        "plain",
        dataset(
            [],
            {
                "half": field(dims, out([1.5, -2])),
                "flag": field(dims, out([1, 0], "i1")),
                "wave": field(dims, np.array([1 + 2j, -0.5j], "c8")),
                "waves": field(dims, np.array([1 + 2j, 3], "c16")),
                "color": field(dims, out([9, 1], "u2")),
            },
        ),
    )
    case.source("compound", "plain.h5", "pair")
    case.fails("compound", "NotImplementedError", "pair", "compound")
    case.source("everything", "plain.h5")
    case.fails("everything", "NotImplementedError", "pair")


@case("text")
def text(case: Case) -> None:
    """Join characters along their last dimension; give strings as they are."""
    letters = np.array([list("Kiel\0\0"), list("Bonn\0\0")], "S1")
    latin = np.array([[bytes([code]) for code in "K\xf6ln".encode("latin-1")]], "S1")
    netcdf(
        case.folder / "letters.nc",
        {
            "name": ("station length", letters, {"long_name": "station name"}),
            "city": ("one four", latin, {"_Encoding": "latin-1"}),
            "flag": ("station", np.array([b"a", b"b"], "S1"), {}),
            "code": ("time", np.array([b"x", b"y"], "S1"), {}),
            "v": ("time station", np.array([[1.0, 2.0], [3.0, 4.0]]), {"coordinates": "name"}),
        },
        unlimited=("time",),
    )
    names = field(["station"], np.array(["Kiel", "Bonn"], object), {"long_name": "station name"})
    case.source("letters", "letters.nc", "v", "city", "flag", "code")
    case.sample(
        "letters",
        dataset(
            [],
            {
                "v": field(["time", "station"], np.array([[1.0, 2.0], [3.0, 4.0]]), {"coordinates": "name"}),
                "city": field(["one"], np.array(["K\xf6ln"], object), {"_Encoding": "latin-1"}),
                "flag": field([], np.array("ab", object), {}),
                # along the record dimension characters are not joined
                "code": field(["time"], np.array(["x", "y"], object), {}),
            },
            {"name": names},
        ),
    )
    case.sample(
        "letters",
        dataset(
            [],
            {
                "v": field(["time", "station"], np.array([[2.0], [4.0]]), {"coordinates": "name"}),
                "city": field(["one"], np.array(["K\xf6ln"], object), {"_Encoding": "latin-1"}),
                "flag": field([], np.array("ab", object), {}),
                "code": field(["time"], np.array(["x", "y"], object), {}),
            },
            {"name": field(["station"], np.array(["Bonn"], object), {"long_name": "station name"})},
        ),
        select={"dims": {"station": {"indices": [1]}}},
    )

    declared: dict[str, Any] = {"start": "2020-01-01T00:00:00", "frequency": "PT1H"}
    hours = ["2020-01-01T00:00:00", "2020-01-01T01:00:00"]
    case.source("records", "letters.nc", "code", **declared)
    case.sample("records", dataset(hours[1:], {"code": field([], np.array("y", object))}), at=hours[1])
    case.source("brackets", "letters.nc", "code", **declared, records_per_sample=2)
    seconds = np.array([1577836800.0, 1577840400.0])
    stamps = field(["time"], seconds, {"units": "seconds since 1970-01-01", "calendar": "standard"})
    both = field(["time"], np.array(["x", "y"], object))
    case.sample("brackets", dataset(hours, {"code": both}, {"time": stamps}), at=hours[0])

    def strings(file: netCDF4.Dataset) -> None:
        file.createDimension("n", 3)
        variable = file.createVariable("s", str, ("n",))
        variable[:2] = np.array(["\u00e5ngstr\u00f6m", ""], object)

    netcdf(case.folder / "strings.nc", {}, form="NETCDF4", extra=strings)
    case.source("strings", "strings.nc", "s")
    case.sample("strings", dataset([], {"s": field(["n"], np.array(["\u00e5ngstr\u00f6m", "", ""], object))}))


@case("coordinates")
def coordinates(case: Case) -> None:
    """Tell coordinates from data, and carry those whose dimensions a field carries."""
    stored: dict[str, Any] = {
        "lat": ("lat", np.array([50.0, 40.0]), {"bounds": "lat_bnds", "units": "degrees_north"}),
        "lat_bnds": ("lat two", np.array([[55.0, 45.0], [45.0, 35.0]]), {}),
        "lon": ("lon", np.array([0, 10, 20], "i2"), {"scale_factor": 0.5}),
        "height": ("", np.array(2.0), {"units": "m"}),
        "area": ("lat lon", np.arange(6.0).reshape(2, 3), {}),
        "crs": ("", np.array(1, "i4"), {}),
        "t": (
            "lat lon", np.arange(6.0).reshape(2, 3),
            {"coordinates": "height area nowhere", "grid_mapping": "crs", "units": "K"},
        ),
        "p": ("lon", np.array([1.0, 2.0, 3.0]), {}),
    }  # fmt: skip
    netcdf(case.folder / "c.nc", stored)
    lat = field(["lat"], stored["lat"][1], stored["lat"][2])
    lon = field(["lon"], np.array([0.0, 5.0, 10.0]), {})
    height = field([], np.float64(2.0), {"units": "m"})
    area = field(["lat", "lon"], stored["area"][1], {})
    t, p = field(["lat", "lon"], stored["t"][1], stored["t"][2]), field(["lon"], stored["p"][1], {})
    case.source("all", "c.nc")
    case.sample(
        "all", dataset([], {"t": t, "p": p}, {"lat": lat, "lon": lon, "height": height, "area": area})
    )
    case.source("p", "c.nc", "p")
    case.sample("p", dataset([], {"p": p}, {"lon": lon}))
    case.source("asked", "c.nc", "lat_bnds", "lon", "crs")
    bounds = field(["lat", "two"], stored["lat_bnds"][1], {})
    crs = field([], np.int32(1), {})
    case.sample("asked", dataset([], {"lat_bnds": bounds, "lon": lon, "crs": crs}, {"lat": lat}))
    case.source("absent", "c.nc", "q")
    case.fails("absent", "KeyError", "q", "c.nc")
    # "area" lies along dimensions of both fields, but of neither alone
    apart: dict[str, Any] = {
        "area": stored["area"],
        "a": ("lat", np.array([1.0, 2.0]), {"coordinates": "area"}),
        "b": ("lon", np.array([1.0, 2.0, 3.0]), {}),
    }
    netcdf(case.folder / "apart.nc", apart)
    case.source("apart", "apart.nc", "a", "b")
    a, b = (field([apart[name][0]], apart[name][1], apart[name][2]) for name in ("a", "b"))
    case.sample("apart", dataset([], {"a": a, "b": b}))
