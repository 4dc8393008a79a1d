"""Our own readers pass the suite that we give to others, and the suite finds readers that are wrong."""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import zarr

from earthsciio import CSVReader, NetCDFReader, ZarrReader, testing
from earthsciio.errors import FileFormatError
from earthsciio.fields import Array
from earthsciio.formats import ArrayInfo, OpenFile, Reader


def write_netcdf(kind: Any) -> Callable[[Path, testing.Contents], None]:
    def write(path: Path, contents: testing.Contents) -> None:
        with netCDF4.Dataset(path, "w", format=kind) as out:
            for array in contents.values():
                for dim, size in zip(array.dims, array.data.shape, strict=True):
                    if dim not in out.dimensions:
                        out.createDimension(dim, size or None)
            for name, array in contents.items():
                chunks = {"zlib": True, "chunksizes": [2 if n > 1 else 1 for n in array.data.shape]}
                packing = chunks if kind == "NETCDF4" and array.dims and array.data.size < 100 else {}
                variable = out.createVariable(name, array.data.dtype, array.dims, **packing)
                variable.setncatts(array.attrs)
                if array.data.size:
                    variable[...] = array.data

    return write


def write_hdf5(path: Path, contents: testing.Contents) -> None:
    with h5py.File(path, "w") as out:
        for name, array in contents.items():
            out.create_dataset(name, data=array.data).attrs.update(array.attrs)
        for array in contents.values():
            for dim in array.dims:
                if dim in out and "CLASS" not in out[dim].attrs:
                    out[dim].make_scale(dim)
                elif dim not in out:
                    size = array.data.shape[array.dims.index(dim)]
                    out.create_dataset(dim, data=np.zeros(size, "f4"))
                    out[dim].make_scale("This is a netCDF dimension but not a netCDF variable.")
        for name, array in contents.items():
            for axis, dim in enumerate(array.dims):
                if dim != name:
                    out[name].dims[axis].attach_scale(out[dim])


def write_zarr(version: int, packed: bool = False, **options: Any) -> Callable[[Path, testing.Contents], Any]:
    def write(path: Path, contents: testing.Contents) -> Path:
        group = zarr.open_group(path, mode="w", zarr_format=version)  # type: ignore[arg-type]
        for name, array in contents.items():
            chunks = tuple(2 if 1 < n < 100 else max(n, 1) for n in array.data.shape)
            extra = dict(options)
            if options.get("shards"):
                extra["shards"] = tuple(2 * n for n in chunks) if array.dims else None
            if version == 3:
                extra["dimension_names"] = array.dims
            stored = group.create_array(
                name, shape=array.data.shape, dtype=array.data.dtype, chunks=chunks, fill_value=0, **extra
            )
            stored.attrs.update(dict(array.attrs))
            if version == 2:
                stored.attrs["_ARRAY_DIMENSIONS"] = array.dims
            stored[...] = array.data
        return zipped(path) if packed else path

    return write


def zipped(store: Path) -> Path:
    packed = store.with_suffix(".zip")
    with zipfile.ZipFile(packed, "w") as archive:
        for path in sorted(store.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(store))
    return packed


def write_csv(path: Path, contents: testing.Contents) -> None:
    with path.open("w", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(contents)
        for row in zip(*(array.data.tolist() for array in contents.values()), strict=True):
            table.writerow("" if value != value else value for value in row)


def tables() -> Mapping[str, testing.Contents]:
    text = np.empty(4, object)
    text[:] = ["Oslo", "Köln", "", 'a "quoted", cell']
    return {
        "points": {
            "name": testing.StoredArray(("point",), text),
            "v": testing.StoredArray(("point",), np.array([1.5, np.nan, -0.0, 1e300])),
        },
        "long": {"v": testing.StoredArray(("point",), np.arange(300.0))},
        "empty": {"v": testing.StoredArray(("point",), np.zeros(0))},
    }


@dataclass(frozen=True)
class Case:
    reader: type[Reader]
    write: Callable[[Path, testing.Contents], Any]
    contents: Mapping[str, testing.Contents] | None = None
    finds_truncation: bool = True


CASES = {
    "classic": Case(NetCDFReader, write_netcdf("NETCDF3_CLASSIC")),
    "64-bit offset": Case(NetCDFReader, write_netcdf("NETCDF3_64BIT_OFFSET")),
    "CDF-5": Case(NetCDFReader, write_netcdf("NETCDF3_64BIT_DATA")),
    "NetCDF-4": Case(NetCDFReader, write_netcdf("NETCDF4")),
    "HDF5": Case(NetCDFReader, write_hdf5),
    "Zarr 2": Case(ZarrReader, write_zarr(2)),
    "Zarr 3": Case(ZarrReader, write_zarr(3)),
    "Zarr 3 uncompressed": Case(ZarrReader, write_zarr(3, compressors=None)),
    "Zarr 3 sharded": Case(ZarrReader, write_zarr(3, shards=True)),
    "Zarr in a zip": Case(ZarrReader, write_zarr(3, packed=True)),
    "CSV": Case(CSVReader, write_csv, tables(), finds_truncation=False),
}


# spec: S2.6
@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("case", CASES)
def test_our_readers_conform(case: str, check: Callable[[testing.Subject], None], tmp_path: Path) -> None:
    chosen = CASES[case]
    for subject in testing.write_subjects(
        chosen.reader, chosen.write, tmp_path, chosen.contents, finds_truncation=chosen.finds_truncation
    ):
        check(subject)


# A reader of somebody else's, right at first and then wrong in one way after the other.


class RawFile:
    """One float64 array in a file that begins with b"RAW!"."""

    def __init__(self, path: str) -> None:
        data = Path(path).read_bytes()
        if data[:4] != b"RAW!" or len(data) % 8 != 4:
            raise FileFormatError("not a raw file", file=path)
        self.path = path
        self.data: Array = np.frombuffer(data, "<f8", offset=4)
        info = ArrayInfo("v", ("x",), self.data.shape, self.data.dtype, {}, (2,), key="v")
        self._arrays = MappingProxyType({"v": info})

    @property
    def arrays(self) -> Mapping[str, ArrayInfo]:
        return self._arrays

    @property
    def own(self) -> frozenset[str]:
        return frozenset(self._arrays)

    def read_chunk(self, info: ArrayInfo, chunk: tuple[int, ...]) -> Array:
        return self.data[info.chunk_box(chunk)].copy()

    def close(self) -> None:
        pass


@dataclass(frozen=True, kw_only=True)
class RawReader(Reader):
    def open(self, path: str) -> OpenFile:
        return RawFile(path)


def raw_subject(tmp_path: Path, reader: type[Reader]) -> testing.Subject:
    data = np.array([1.0, 2, 3, 4, 5])
    path = tmp_path / "file.raw"
    path.write_bytes(b"RAW!" + data.tobytes())
    # whole records may be cut off unseen
    return testing.Subject(
        reader, str(path), {"v": testing.StoredArray(("x",), data)}, finds_truncation=False
    )


# spec: R1.4
def test_a_third_party_reader_can_pass(tmp_path: Path) -> None:
    testing.check_all(raw_subject(tmp_path, RawReader))


class Shared(RawFile):
    def read_chunk(self, info: ArrayInfo, chunk: tuple[int, ...]) -> Array:
        self.data = self.data if self.data.flags.writeable else self.data.copy()
        return self.data[info.chunk_box(chunk)]


class Padded(RawFile):
    def read_chunk(self, info: ArrayInfo, chunk: tuple[int, ...]) -> Array:
        return np.resize(super().read_chunk(info, chunk), info.chunks)


class Narrow(RawFile):
    def read_chunk(self, info: ArrayInfo, chunk: tuple[int, ...]) -> Array:
        return super().read_chunk(info, chunk).astype("f4")


class Forgetful(RawFile):
    def close(self) -> None:
        self.data = self.data[:0]


class Lenient(RawFile):
    def __init__(self, path: str) -> None:
        try:
            super().__init__(path)
        except FileFormatError:
            self.data = np.zeros(5)
            self._arrays = MappingProxyType(
                {"v": ArrayInfo("v", ("x",), (5,), self.data.dtype, {}, (2,), key="v")}
            )


class Leaking(RawFile):
    opened: list[Any] = []  # noqa: RUF012 - that is the leak

    def read_chunk(self, info: ArrayInfo, chunk: tuple[int, ...]) -> Array:
        self.opened.append(Path(self.path).open("rb"))  # noqa: SIM115
        return super().read_chunk(info, chunk)


@pytest.mark.parametrize(
    ("wrong", "check"),
    [
        (Shared, testing.chunks_are_the_callers_own),
        (Padded, testing.chunks_make_up_the_array),
        (Narrow, testing.chunks_make_up_the_array),
        (Forgetful, testing.closed_files_open_again),
        (Forgetful, testing.threads_read_together),
        (Lenient, testing.what_is_no_such_file_is_refused),
        (Leaking, testing.closed_files_open_again),
    ],
)
def test_the_suite_finds_a_wrong_file(
    tmp_path: Path, wrong: type[RawFile], check: Callable[[testing.Subject], None]
) -> None:
    @dataclass(frozen=True, kw_only=True)
    class WrongReader(Reader):
        def open(self, path: str) -> OpenFile:
            return wrong(path)

    with pytest.raises(testing.NonConforming):
        check(raw_subject(tmp_path, WrongReader))
    for stream in Leaking.opened:
        stream.close()
    Leaking.opened.clear()


def test_the_suite_finds_an_identity_that_does_not_change(tmp_path: Path) -> None:
    @dataclass(frozen=True, kw_only=True)
    class WrongReader(RawReader):
        def identity(self, path: str) -> tuple[Any, ...]:
            return (path,)

    with pytest.raises(testing.NonConforming, match="identity"):
        testing.identity_tells_versions_apart(raw_subject(tmp_path, WrongReader))


def test_the_suite_finds_readers_that_are_no_values(tmp_path: Path) -> None:
    class WrongReader(RawReader):
        __eq__ = object.__eq__
        __hash__ = object.__hash__

    with pytest.raises(testing.NonConforming):
        testing.readers_are_values(raw_subject(tmp_path, WrongReader))


def test_the_suite_finds_metadata_that_are_not_those_of_the_file(tmp_path: Path) -> None:
    subject = raw_subject(tmp_path, RawReader)
    for stored in (
        testing.StoredArray(("y",), np.arange(1.0, 6)),
        testing.StoredArray(("x",), np.arange(4.0)),
        testing.StoredArray(("x",), np.arange(1, 6)),
        testing.StoredArray(("x",), np.arange(1.0, 6), {"units": "K"}),
    ):
        told = testing.Subject(subject.reader, subject.path, {"v": stored})
        with pytest.raises(testing.NonConforming):
            testing.metadata_are_those_of_the_file(told)
