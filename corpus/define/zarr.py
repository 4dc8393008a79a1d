"""Zarr: what a fill value means in each version, holes, order, separators, shards, text fills."""

from __future__ import annotations

from typing import Any

import numpy as np

from corpus.casebook import Case, case
from corpus.encoding import dataset, field
from corpus.writing import zarr2, zarr3

from .values import out

T0 = "2020-01-01T00:00:00"


@case("zarr-fill")
def zarr_fill(case: Case) -> None:
    """Mask by a version 2 fill value other than 0 and null, and never by that of version 3."""
    numbers = np.array([0, 1, 2], "<i4")
    two: dict[str, Any] = {
        "zero": ("x", numbers, {}, (3,), {"fill_value": 0}),
        "one": ("x", numbers, {}, (3,), {"fill_value": 1}),
        "none": ("x", numbers, {}, (3,), {"fill_value": None}),
        "own": ("x", numbers, {"_FillValue": 2}, (3,), {"fill_value": 1}),
        "holes": ("y", np.array([1, 2, -5, -5], "<i4"), {}, (2,), {"fill_value": -5}),
        "nan": ("y", np.array([1, 2, 0, 0], "<f4"), {}, (2,), {"fill_value": "NaN"}),
    }
    zarr2(case.folder / "two.zarr", two, absent=["holes/1", "nan/1"])
    case.source("two", "two.zarr", *two, format="zarr")
    plain = field(["x"], out([0, 1, 2], "i4"))
    case.sample(
        "two",
        dataset(
            [],
            {
                "zero": plain,
                "one": field(["x"], out([0, None, 2])),
                "none": plain,
                "own": field(["x"], out([0, 1, None])),
                "holes": field(["y"], out([1, 2, None, None])),
                "nan": field(["y"], out([1, 2, None, None])),
            },
        ),
    )
    case.source("all-mask", "two.zarr", "zero", "one", format="zarr", options={"fill_value_masks": True})
    case.sample(
        "all-mask",
        dataset([], {"zero": field(["x"], out([None, 1, 2])), "one": field(["x"], out([0, None, 2]))}),
    )
    case.source(
        "none-mask", "two.zarr", "zero", "one", "holes", format="zarr", options={"fill_value_masks": False}
    )
    holes = field(["y"], out([1, 2, -5, -5], "i4"))
    case.sample("none-mask", dataset([], {"zero": plain, "one": plain, "holes": holes}))

    null: dict[str, Any] = {"v": ("y", np.array([1, 2, 3, 4], "<f4"), {}, (2,), {"fill_value": None})}
    zarr2(case.folder / "null.zarr", null, absent=["v/1"])
    case.source("null", "null.zarr", "v", format="zarr")
    case.fails("null", "OSError", "null.zarr", "v")
    case.sample(
        "null", dataset([], {"v": field(["y"], out([1, 2]))}), select={"dims": {"y": {"slice": [0, 2]}}}
    )

    three: dict[str, Any] = {
        "zero": ("x", numbers, {}, (3,), {"fill_value": 0}),
        "one": ("x", numbers, {}, (3,), {"fill_value": 1}),
        "attribute": ("x", numbers, {"_FillValue": 1}, (3,), {"fill_value": 0}),
        # 1.0 in base64 of a little-endian double, as xarray writes it
        "base64": ("x", np.array([0, 1, 2], "<f4"), {"_FillValue": "AAAAAAAA8D8="}, (3,), {"fill_value": 0}),
        "shards": (
            "z",
            np.array([0, 1, 2, 3, 4, 5, -1, -1], "<i4"),
            {},
            (4,),
            {"fill_value": -1, "_inner": (2,)},
        ),
    }
    zarr3(case.folder / "three.zarr", three, absent=["shards/c/1#1"])
    case.source("three", "three.zarr", *three, format="zarr")
    case.sample(
        "three",
        dataset(
            [],
            {
                "zero": plain,
                "one": plain,
                "attribute": field(["x"], out([0, None, 2])),
                "base64": field(["x"], out([0, None, 2])),
                "shards": field(["z"], out([0, 1, 2, 3, 4, 5, -1, -1], "i4")),
            },
        ),
    )


@case("zarr-layout")
def zarr_layout(case: Case) -> None:
    """Honour orders and separators; take nothing for a hole that may be there by another name."""
    table = np.arange(12, dtype="<i4").reshape(3, 4)
    stores = {
        "fortran": {"order": "F"},
        "slash": {"dimension_separator": "/"},
        "big": {"dtype": ">i4"},
    }
    arrays: dict[str, Any] = {
        name: ("x y", table.astype(more.get("dtype", "<i4")), {}, (2, 3), {"fill_value": 0, **more})
        for name, more in stores.items()
    }
    zarr2(case.folder / "layout.zarr", arrays)
    case.source("layout", "layout.zarr", *stores, format="zarr")
    gives = {name: field(["x", "y"], table.astype("i4")) for name in stores}
    case.sample("layout", dataset([], gives))

    # keys with "/", and a document that doesn't say so: all of it would silently be fill
    zarr2(
        case.folder / "unsaid.zarr", {"v": ("x y", table, {}, (2, 3), {"fill_value": 0, "_separator": "/"})}
    )
    case.source("unsaid", "unsaid.zarr", "v", format="zarr")
    case.fails("unsaid", "OSError", "v")

    # a directory in the place of a chunk object is no absent object
    zarr2(
        case.folder / "directory.zarr",
        {"v": ("x", np.array([1, 2], "<i4"), {}, (1,), {"fill_value": -5})},
        absent=["v/0"],
    )
    (case.folder / "directory.zarr/v/0").mkdir()
    (case.folder / "directory.zarr/v/0/keep").write_bytes(b"")  # version control keeps no empty folder
    case.source("directory", "directory.zarr", "v", format="zarr")
    case.fails("directory", "OSError", "v")


@case("zarr-series")
def zarr_series(case: Case) -> None:
    """Find records across a series of stores by each one's own time axis."""
    for day in (1, 2):
        arrays: dict[str, Any] = {
            "time": ("time", np.array([0, 12], "<i8"), {"units": f"hours since 2020-01-{day:02d}"}, (2,), {}),
            "x": ("x", np.array([1.0, 2.0]), {}, (2,), {}),
            "v": (
                "time x", np.array([[4 * day, 4 * day + 1], [4 * day + 2, 4 * day + 3]], "<i2"),
                {"scale_factor": 0.5}, (1, 2), {},
            ),
        }  # fmt: skip
        writer = zarr2 if day == 1 else zarr3
        writer(case.folder / f"{day:02d}.zarr", arrays)
    x = field(["x"], out([1, 2]))
    declared: dict[str, Any] = {
        "start": T0,
        "frequency": "PT12H",
        "file_period": "P1D",
        "end": "2020-01-03T00:00:00",
    }
    case.source("single", "%d.zarr", "v", format="zarr", **declared)
    case.source("brackets", "%d.zarr", "v", format="zarr", **declared, records_per_sample=2)
    stamps = ["2020-01-01T00:00:00", "2020-01-01T12:00:00", "2020-01-02T00:00:00", "2020-01-02T12:00:00"]
    for k, stamp in enumerate(stamps):
        record = [[(4 + 2 * n) * 0.5, (5 + 2 * n) * 0.5] for n in (k, min(k + 1, 3))]
        case.sample("single", dataset([stamp], {"v": field(["x"], out(record[0]))}, {"x": x}), at=stamp)
        pair = [k, min(k + 1, 3)]
        seconds = field(
            ["time"], out([1577836800.0 + 43200.0 * n for n in pair]),
            {"units": "seconds since 1970-01-01", "calendar": "standard"},
        )  # fmt: skip
        gives = dataset(
            [stamps[n] for n in pair], {"v": field(["time", "x"], out(record))}, {"x": x, "time": seconds}
        )
        case.sample("brackets", gives, at=stamp)
