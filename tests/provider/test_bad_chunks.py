"""A damaged chunk is an error, or NaN in its own cells and on record, as the source says."""

from __future__ import annotations

from datetime import UTC, datetime

import h5py
import numpy as np
import pytest

from earthsciio import DataSource, DecodeError, Provider, SourceTemporal, Window
from earthsciio.formats.hdf5 import Hdf5File

START, SECOND = datetime(2000, 1, 1, tzinfo=UTC), datetime(2000, 1, 2, tzinfo=UTC)


@pytest.fixture
def damaged(tmp_path):
    """Six float32 in chunks of two, of which the middle one has a flipped byte."""
    path = tmp_path / "v.h5"
    with h5py.File(path, "w") as file:
        data = np.arange(6, dtype="f4")
        dataset = file.create_dataset("v", data=data, chunks=(2,), compression=1, fletcher32=True)
        found = dataset.id.get_chunk_info(1)
        offset, size = found.byte_offset, found.size
    content = bytearray(path.read_bytes())
    content[offset + size // 2] ^= 0xFF
    path.write_bytes(content)
    return path


def source(path, **options):
    return DataSource("s", "netcdf", str(path), ("v",), reader_kwargs=options)


def test_a_damaged_chunk_is_an_error_that_names_it(damaged):
    with pytest.raises(DecodeError) as caught:
        Provider(source(damaged)).materialize()
    assert (caught.value.file, caught.value.variable, caught.value.chunk) == (str(damaged), "v", (1,))


def test_by_option_its_cells_are_nan_and_the_provider_lists_it(damaged):
    provider = Provider(source(damaged, on_bad_chunk="nan"))
    values = provider.materialize()["v"].data
    assert np.array_equal(values, [0, 1, np.nan, np.nan, 4, 5], equal_nan=True)
    ((path, bad),) = provider.bad_chunks
    assert (path, bad.variable, bad.chunk) == (str(damaged), "v", (1,))


@pytest.fixture
def damaged_coordinate(tmp_path):
    """Two records of 200 x 200 cells, whose 2-D coordinate has one chunk with a flipped byte."""
    path = tmp_path / "c.h5"
    with h5py.File(path, "w") as file:
        area = np.arange(40_000, dtype="f8").reshape(200, 200)
        v = file.create_dataset("v", data=np.zeros((2, 200, 200), "f4"))
        v.attrs["coordinates"] = "area"
        coordinate = file.create_dataset("area", data=area, chunks=(100, 200), compression=1)
        time = file.create_dataset("time", data=[0.0, 1.0])
        time.attrs["units"] = "days since 2000-01-01"
        for name in ("time", "y", "x"):
            scale = time if name == "time" else file.create_dataset(name, data=np.arange(200.0))
            scale.make_scale(name)
            v.dims[("time", "y", "x").index(name)].attach_scale(scale)
            if name != "time":
                coordinate.dims[("y", "x").index(name)].attach_scale(scale)
        found = coordinate.id.get_chunk_info(1)
        offset, size = found.byte_offset, found.size
    content = bytearray(path.read_bytes())
    content[offset + size // 2] ^= 0xFF
    path.write_bytes(content)
    return path


def series(path, **options):
    when = SourceTemporal(start="2000-01-01", frequency="P1D", file_period=None)
    return DataSource("s", "netcdf", str(path), ("v",), when, reader_kwargs=options)


@pytest.mark.parametrize("rows", [200, 60, 1])
def test_a_bad_chunk_of_a_coordinate_is_nan_through_windows_of_every_size(damaged_coordinate, rows):
    provider = Provider(series(damaged_coordinate, on_bad_chunk="nan"))
    window = Window({"y": (200 - rows, 200)})
    found = provider.sample_windows_at(SECOND, [window])[0]["area"].data
    expected = np.arange(40_000.0).reshape(200, 200)
    expected[100:] = np.nan
    assert np.array_equal(found, expected[200 - rows :], equal_nan=True)
    assert [(path, bad.variable, bad.chunk) for path, bad in provider.bad_chunks] == [
        (str(damaged_coordinate), "area", (1, 0))
    ]


@pytest.mark.parametrize("rows", [200, 1])
def test_a_bad_chunk_of_a_coordinate_is_an_error_through_windows_of_every_size(damaged_coordinate, rows):
    provider = Provider(series(damaged_coordinate))
    with pytest.raises(DecodeError) as caught:
        provider.sample_windows_at(SECOND, [Window({"y": (200 - rows, 200)})])
    assert (caught.value.variable, caught.value.chunk) == ("area", (1, 0))


@pytest.mark.parametrize("rows", [200, 1])
def test_a_coordinate_that_can_be_read_again_is_not_nan_for_ever(damaged_coordinate, monkeypatch, rows):
    """What came out as NaN is not remembered, whatever the Window: the next sample reads it again."""
    path, real = damaged_coordinate, Hdf5File.read_chunk
    with h5py.File(path, "r+") as file:  # by a filter that only HDF5 itself undoes
        del file["area"]
        area = file.create_dataset("area", data=np.ones((200, 200), ">i4"), chunks=(200, 200), scaleoffset=0)
        area.attrs["scale_factor"] = 2.0
        area.dims[0].attach_scale(file["y"])
        area.dims[1].attach_scale(file["x"])
    away = [True]

    def read_chunk(self, info, chunk):
        if info.name == "area" and away[0]:
            raise DecodeError("the file system is away", variable="area", chunk=chunk)
        return real(self, info, chunk)

    monkeypatch.setattr(Hdf5File, "read_chunk", read_chunk)
    provider = Provider(series(path, on_bad_chunk="nan"))
    window = Window({"y": (200 - rows, 200)})
    first = provider.sample_windows_at(START, [window])[0]["area"].data
    away[0] = False
    second = provider.sample_windows_at(START, [window])[0]["area"].data
    assert np.isnan(first).all()
    assert np.array_equal(second, np.full((rows, 200), 2.0))
