"""Storage: byte order, layouts, holes, filters, lengths, groups, and files that are not whole."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np

from corpus.casebook import Case, case
from corpus.encoding import dataset, field
from corpus.writing import Form, hdf5, netcdf

from .values import I16, out

T0 = "2020-01-01T00:00:00"


@case("storage")
def storage(case: Case) -> None:
    """Give the same elements in whatever order, layout or pipeline they are stored."""

    def write(file: h5py.File) -> None:
        big = file.create_dataset("big", data=np.array([0, 1, 256, -999], ">i2"))
        big.attrs["_FillValue"], big.attrs["scale_factor"] = I16(-999), 0.1
        file["big_double"] = np.array([1.5, -2.5], ">f8")
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((3,))
        compact = h5py.h5d.create(file.id, b"compact", h5py.h5t.IEEE_F32LE, space, properties)
        compact.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array([1, 2, 3], "f4"))
        file["scalar"] = np.float32(2.5)
        file.create_dataset("lone", shape=(), dtype="i4", fillvalue=-2147483647)
        file.create_dataset(
            "cube",
            data=np.arange(24, dtype="i4").reshape(2, 3, 4),
            chunks=(1, 2, 3),
            compression="gzip",
            shuffle=True,
        )
        # bit i of a chunk's mask: filter i of [shuffle, deflate] was skipped for it
        skipped = file.create_dataset(
            "skipped", shape=(4,), chunks=(2,), dtype="<i4", shuffle=True, compression="gzip"
        )
        skipped.id.write_direct_chunk((0,), struct.pack("<2i", 1, 2), 0b11)
        skipped.id.write_direct_chunk((2,), bytes([3, 4, 0, 0, 0, 0, 0, 0]), 0b10)
        checked = file.create_dataset("checked", shape=(7,), dtype="u1", chunks=(7,), fletcher32=True)
        checked[:] = [1, 2, 3, 4, 5, 6, 255]
        ones = file.create_dataset("ones", shape=(4,), dtype="<i4", chunks=(4,), fletcher32=True)
        ones[:] = -1

    hdf5(case.folder / "layouts.h5", write)
    names = ["big", "big_double", "compact", "scalar", "lone", "cube", "skipped", "checked", "ones"]
    case.source("layouts", "layouts.h5", *names)
    # netCDF names axes without a scale by their length, in file order (h5py: by name)
    cube = np.arange(24, dtype="i4").reshape(2, 3, 4)
    axes = {"big": "phony_dim_0", "big_double": "phony_dim_1", "ones": "phony_dim_0"}
    gives = {
        "big": field([axes["big"]], out([0 * 0.1, 1 * 0.1, 256 * 0.1, None])),
        "big_double": field([axes["big_double"]], out([1.5, -2.5])),
        "compact": field(["phony_dim_3"], out([1, 2, 3])),
        "scalar": field([], np.float64(2.5)),
        "lone": field([], np.int32(-2147483647)),
        "cube": field(["phony_dim_1", "phony_dim_3", "phony_dim_0"], cube),
        "skipped": field(["phony_dim_0"], out([1, 2, 3, 4], "i4")),
        "checked": field(["phony_dim_2"], out([1, 2, 3, 4, 5, 6, 255], "u1")),
        "ones": field([axes["ones"]], out([-1, -1, -1, -1], "i4")),
    }
    case.sample("layouts", dataset([], gives))

    numbers = np.arange(64.0)
    pipeline = {"zlib": True, "shuffle": True, "fletcher32": True, "chunksizes": (64,)}
    netcdf(case.folder / "pipeline.nc", {"v": ("x", numbers, {})}, form="NETCDF4", storage={"v": pipeline})
    case.source("pipeline", "pipeline.nc", "v")
    case.sample("pipeline", dataset([], {"v": field(["x"], numbers)}))


@case("lengths")
def lengths(case: Case) -> None:
    """Keep dimensions of length zero; fill up variables shorter than their unlimited dimension."""

    def write(file: netCDF4.Dataset) -> None:
        file.createDimension("time", None)
        file.createDimension("y", 2)
        file.createVariable("long", "f8", ("time", "y"))[0:3] = np.arange(6.0).reshape(3, 2)
        file.createVariable("short", "f4", ("time", "y"), fill_value=-1.0)[0:1] = np.array([[7.0, 8.0]])
        file.createVariable("bare", "f4", ("time",))[0:1] = np.array([5.0])
        file.createVariable("count", "i4", ("time",))[0:2] = np.array([1, 2])

    netcdf(case.folder / "short.nc", {}, form="NETCDF4", extra=write)
    case.source("short", "short.nc", "long", "short", "bare", "count")
    gives = {
        "long": field(["time", "y"], np.arange(6.0).reshape(3, 2)),
        "short": field(["time", "y"], out([7, 8, None, None, None, None]).reshape(3, 2)),
        "bare": field(["time"], out([5, None, None])),
        "count": field(["time"], out([1, 2, -2147483647], "i4")),  # the storage fill of integers is data
    }
    case.sample("short", dataset([], gives))

    axis = {"units": "hours since 2020-01-01"}
    empty: dict[str, Any] = {
        "time": ("time", np.empty(0), axis),
        "v": ("time y", np.empty((0, 2), "i2"), {"scale_factor": 0.5}),
    }
    forms: dict[str, Form] = {"empty4.nc": "NETCDF4", "empty3.nc": "NETCDF3_CLASSIC"}
    for name, form in forms.items():
        netcdf(case.folder / name, empty, form=form, unlimited=("time",))
        case.source(name, name, "v")
        raw = {"time": field(["time"], np.empty(0), axis)}
        case.sample(name, dataset([], {"v": field(["time", "y"], np.empty((0, 2)))}, raw))
        case.source(f"{name}-dated", name, "v", start=T0, frequency="PT1H")
        case.fails(f"{name}-dated", "IndexError", name, at=T0)


@case("groups")
def groups(case: Case) -> None:
    """Let a group's variables see the dimensions and coordinates of its parents."""

    def write(file: netCDF4.Dataset) -> None:
        file.createDimension("lat", 2)
        file.createVariable("lat", "f8", ("lat",))[:] = [10, 20]
        file.createVariable("top", "i4", ("lat",))[:] = [1, 2]
        inner = file.createGroup("inner")
        inner.createDimension("x", 3)
        inner.createVariable("x", "f8", ("x",))[:] = [1, 2, 3]
        inner.createVariable("v", "i2", ("lat", "x"))[:] = np.arange(6).reshape(2, 3)
        own = inner.createGroup("own")
        own.createDimension("lat", 1)
        own.createVariable("w", "i2", ("lat",))[:] = [9]

    netcdf(case.folder / "groups.nc", {}, form="NETCDF4", extra=write)
    lat = field(["lat"], out([10, 20]))
    case.source("root", "groups.nc")
    case.sample("root", dataset([], {"top": field(["lat"], out([1, 2], "i4"))}, {"lat": lat}))
    case.source("inner", "groups.nc", options={"group": "inner"})
    inner = {"v": field(["lat", "x"], np.arange(6, dtype="i2").reshape(2, 3))}
    case.sample("inner", dataset([], inner, {"lat": lat, "x": field(["x"], out([1, 2, 3]))}))
    case.source("own", "groups.nc", options={"group": "/inner/own"})
    case.sample("own", dataset([], {"w": field(["lat"], out([9], "i2"))}))
    case.source("nowhere", "groups.nc", options={"group": "outer"})
    case.fails("nowhere", "ValueError", "outer", "inner")


def _damage(path: Path, to: Path, change: Any) -> None:
    to.write_bytes(change(path.read_bytes()))


@case("damaged")
def damaged(case: Case) -> None:
    """Refuse a file that is not whole, by name; hand out nothing that can't be verified."""
    classic = {
        "time": ("time", np.arange(4.0), {"units": "hours since 2020-01-01"}),
        "v": ("time x", np.ones((4, 8)), {}),
    }
    netcdf(case.folder / "classic.nc", classic, unlimited=("time",))
    numbers = np.arange(32, dtype="<i4")
    pipeline = {"fletcher32": True, "chunksizes": (32,)}
    netcdf(case.folder / "four.nc", {"v": ("x", numbers, {})}, form="NETCDF4", storage={"v": pipeline})
    _damage(case.folder / "classic.nc", case.folder / "half-classic.nc", lambda data: data[: len(data) // 2])
    _damage(case.folder / "classic.nc", case.folder / "short-by-one.nc", lambda data: data[:-1])
    _damage(case.folder / "four.nc", case.folder / "half-four.nc", lambda data: data[: len(data) // 2])
    stored = numbers.tobytes()

    def flip(data: bytes) -> bytes:
        at = data.index(stored) + 5
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    _damage(case.folder / "four.nc", case.folder / "flipped.nc", flip)
    (case.folder / "nothing.nc").write_bytes(b"")
    (case.folder / "page.nc").write_bytes(b"<!DOCTYPE html><title>404</title>\n")
    (case.folder / "classic.nc").unlink()
    for name in ("half-classic", "short-by-one", "half-four", "nothing", "page"):
        case.source(name, f"{name}.nc", "v")
        case.fails(name, "OSError", f"{name}.nc")
    case.source("four", "four.nc", "v")
    case.sample("four", dataset([], {"v": field(["x"], numbers)}))
    case.source("flipped", "flipped.nc", "v")
    case.fails("flipped", "OSError", "flipped.nc", "v")
    case.source("missing", "missing.nc", "v")
    case.fails("missing", "FileNotFoundError", "missing.nc")

    def deflated(file: h5py.File) -> None:
        dataset_ = file.create_dataset("v", shape=(8,), chunks=(8,), dtype="<i4", compression="gzip")
        data = bytearray(zlib.compress(np.arange(8, dtype="<i4").tobytes(), 0))
        data[-1] ^= 0xFF  # its checksum
        dataset_.id.write_direct_chunk((0,), bytes(data))

    hdf5(case.folder / "checksum.h5", deflated)
    case.source("checksum", "checksum.h5", "v")
    case.fails("checksum", "OSError", "v")
