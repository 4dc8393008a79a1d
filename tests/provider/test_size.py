"""Files that declare more than there can be: refused at once, and read where little of them is asked for."""

import json
from contextlib import closing

import h5py
import numpy as np
import pytest

from earthsciio import DataSource, Provider, SourceTemporal, errors, memory
from earthsciio.decode import native, plan, threads
from earthsciio.decode.abort import AbortToken
from earthsciio.errors import TimeAxisError, TooLarge
from earthsciio.selection import Span

DAYS = np.arange(4, dtype="f8")


def hdf5(path, shape, chunks, records=4):
    with h5py.File(path, "w") as file:
        # an unlimited dimension says nothing about what was written
        time = file.create_dataset("time", (records,), "f8", chunks=(4,), maxshape=(None,))
        time[:4] = DAYS
        time.attrs["units"] = "days since 2020-01-01"
        time.make_scale("time")
        field = file.create_dataset(
            "v", (records, *shape), "f4", chunks=(1, *chunks), maxshape=(None, *shape)
        )
        field.dims[0].attach_scale(time)
    return "netcdf"


def zarr(path, shape, chunks, records=4):
    def write(name, document):
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(document))

    def array(name, shape, chunks, dtype, dims, **attrs):
        write(f"{name}/.zarray", {
            "zarr_format": 2, "shape": shape, "chunks": chunks, "dtype": dtype, "compressor": None,
            "fill_value": 0, "order": "C", "filters": None,
        })  # fmt: skip
        write(f"{name}/.zattrs", {"_ARRAY_DIMENSIONS": dims, **attrs})

    write(".zgroup", {"zarr_format": 2})
    array("time", [records], [4], "<f8", ["time"], units="days since 2020-01-01")
    (path / "time/0").write_bytes(DAYS.tobytes())
    array("v", [records, *shape], [1, *chunks], "<f4", ["time", "y", "x"])
    return "zarr"


def provider(make, path, *arguments, **options):
    kind = make(path, *arguments, **options)
    times = SourceTemporal("2020-01-01", "P1D", end="2020-01-05")
    return Provider(DataSource("huge", kind, str(path), ("v",), times))


def small(source):
    """Three rows and two columns through a Window."""
    with source._series.open(str(source.loader.url), str(source.loader.url)) as (_, contents):
        y, x = contents.fields["v"].info.dims[1:]
    window = {"dims": {y: {"slice": [1000, 1003]}, x: {"slice": [1, 3]}}}
    return source.with_window(window).sample_at(source.refresh_times()[1])


FORMATS = pytest.mark.parametrize("make", [hdf5, zarr])


# spec: P4.3
@FORMATS
@pytest.mark.parametrize(
    ("shape", "chunks"),
    [
        ((10**6, 10**6), (1, 1)),
        ((10**12, 4), (8, 4)),
        ((10**6, 10**6), (1000, 1000)),
    ],
    ids=["tiny chunks", "one long axis", "large chunks"],
)
def test_more_than_memory_is_refused_and_a_window_of_it_read(make, shape, chunks, tmp_path):
    source = provider(make, tmp_path / "huge", shape, chunks)
    with pytest.raises(TooLarge, match=f"it takes {8 * shape[0] * shape[1]} bytes") as caught:
        source.sample_at(source.refresh_times()[1])
    assert (caught.value.file, caught.value.variable) == (str(tmp_path / "huge"), "v")
    assert small(source)["v"].data.tolist() == [[0, 0]] * 3


# spec: P4.3
@FORMATS
def test_more_chunks_than_can_be_planned_are_refused(make, tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "MOST_CHUNKS", 5000)
    source = provider(make, tmp_path / "huge", (2000, 20), (2, 3))
    with pytest.raises(TooLarge, match="7000 chunks") as caught:
        source.sample_at(source.refresh_times()[1])
    assert (caught.value.file, caught.value.variable) == (str(tmp_path / "huge"), "v")
    assert small(source)["v"].data.shape == (3, 2)


# spec: P4.3
@FORMATS
def test_a_time_axis_of_more_records_than_there_can_be_is_refused(make, tmp_path):
    source = provider(make, tmp_path / "huge", (4, 4), (4, 4), records=10**12)
    with pytest.raises(TimeAxisError, match="1000000000000 records") as caught:
        source.sample_at(source.refresh_times()[1])
    assert (caught.value.file, caught.value.variable) == (str(tmp_path / "huge"), "time")


# spec: P4.3
def test_an_axis_of_any_length_can_be_left_out():
    planned = plan.plan_reads((10**15, 4), (1, 4), [[Span(0, 10**15), Span(2, 2)]])
    assert planned.shapes == ((10**15, 0),)
    assert list(planned) == []


# spec: P4.3
@pytest.mark.parametrize(
    "span", [Span(0, 10), Span(3, 10, 2), Span(3, 9, 5), Span(7, 8), Span(2, 10, 7), Span(4, 4)]
)
@pytest.mark.parametrize("chunk", [1, 2, 3, 4, 20])
def test_chunks_are_counted_as_they_are_planned(span, chunk):
    assert plan._touched(span, chunk) == len(plan._split(span, chunk))


# spec: P4.3
def test_memory_that_cannot_be_had_is_an_error_that_says_for_what(tmp_path, monkeypatch):
    source = provider(hdf5, tmp_path / "small.nc", (30, 20), (3, 20))
    with h5py.File(tmp_path / "small.nc", "r+") as file:  # what is not written needs no buffers
        del file["v"]
        data = np.ones((4, 30, 20), "f4")
        field = file.create_dataset("v", data=data, chunks=(1, 3, 20), compression="gzip")
        field.dims[0].attach_scale(file["time"])
    (record,) = source.resolve(source.refresh_times()[1]).records
    layout = source.measure(record, (None,))

    def allocate(shape, dtype):
        raise MemoryError("there is none")

    with pytest.raises(TooLarge, match=r"it takes 4800 bytes.*there is none") as caught:
        source.decode_record(record, layout, allocate, AbortToken())
    assert (caught.value.file, caught.value.variable) == (str(tmp_path / "small.nc"), "v")
    monkeypatch.setattr(threads, "_pool", threads._Pool())  # one whose threads have no buffers yet
    with (
        closing(threads._pool),
        native.replaced(allocate=lambda nbytes: allocate((), "u1")),
        pytest.raises(TooLarge, match=r"it takes 240 bytes.*there is none") as caught,
    ):
        source.sample_at(source.refresh_times()[1])
    assert (caught.value.file, caught.value.variable) == (str(tmp_path / "small.nc"), "v")


def test_what_is_refused_depends_on_the_memory_there_is(monkeypatch):
    monkeypatch.setattr(memory, "_there_is", lambda: 100)
    memory.check_size(100)
    with pytest.raises(errors.TooLarge, match="101 bytes"):
        memory.check_size(101, file="a.nc")
