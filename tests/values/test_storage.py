"""How elements lie in files: byte order, holes, layouts, filters, short dimensions, and damage."""

import contextlib
import fcntl
import os
import resource
import struct
import subprocess
import sys
import textwrap
import zlib
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
from inputs import assert_values, hdf5, netcdf, one, read, same_bits, source, values

from earthsciio import (
    DecodeError,
    EarthSciIOError,
    FileFormatError,
    MissingFile,
    NetCDFReader,
    Provider,
    Unsupported,
)
from earthsciio.formats import files

CLASSIC = ("NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA")


def oracle(path, name="v"):
    """Read raw with netCDF4: stored elements, native byte order."""
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        raw = np.asarray(file[name][...])
    return raw.astype(raw.dtype.newbyteorder("="))


# Byte order


# spec: V4.9
def test_big_endian_is_read_once_and_handed_out_native(tmp_path):
    attrs = {"_FillValue": np.int16(-999), "scale_factor": 0.1}
    raw = np.array([0, 1, 256, -999], ">i2")
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("x", 4)
        variable = file.createVariable("v", ">i2", ("x",), endian="big", fill_value=attrs["_FillValue"])
        variable.set_auto_maskandscale(False)
        variable.scale_factor = 0.1
        variable[:] = raw
    assert_values(values(tmp_path / "a.nc"), [0, 0.1, 256 * 0.1, None])
    path = one(tmp_path / "b.nc", raw.astype("i2"), attrs, format="NETCDF3_CLASSIC")
    assert_values(values(path), [0, 0.1, 256 * 0.1, None])


# spec: V4.9
@pytest.mark.parametrize("dtype", ["i2", "u4", "i8", "f4", "f8", "c8", "c16"])
def test_every_width_comes_out_native_and_contiguous(tmp_path, dtype):
    raw = np.arange(12).reshape(3, 4).astype(f">{dtype}")
    found = values(hdf5(tmp_path / "a.h5", raw), precision="source")
    assert same_bits(found, raw.astype(dtype))
    assert found.flags.c_contiguous
    assert found.dtype.isnative


# Classic files


@pytest.mark.parametrize("file_format", CLASSIC)
def test_classic_files_of_every_version_are_read_exactly(tmp_path, file_format):
    rng = np.random.default_rng(1)
    types = ["i1", "i2", "i4", "f4", "f8"]
    types += ["u1", "u2", "u4", "i8", "u8"] if file_format == "NETCDF3_64BIT_DATA" else []
    with netCDF4.Dataset(tmp_path / "a.nc", "w", format=file_format) as file:
        for dim, size in (("t", None), ("y", 3), ("x", 5)):
            file.createDimension(dim, size)
        for dtype in types:
            for name, dims, shape in (
                ("r", ("t", "y", "x"), (4, 3, 5)),
                ("f", ("x", "y"), (5, 3)),
                ("s", (), ()),
            ):
                variable = file.createVariable(f"{name}_{dtype}", dtype, dims)
                variable.set_auto_mask(False)
                variable[...] = rng.integers(0, 100, shape)
    found = read(tmp_path / "a.nc", precision="source")
    for name in found.variable_names():
        assert same_bits(found[name].data, oracle(tmp_path / "a.nc", name)), name


def test_a_lone_record_variable_of_odd_size_is_not_padded(tmp_path):
    with netCDF4.Dataset(tmp_path / "a.nc", "w", format="NETCDF3_CLASSIC") as file:
        file.createDimension("t", None)
        file.createDimension("x", 3)
        file.createVariable("v", "i1", ("t", "x"))[:] = np.arange(12).reshape(4, 3)
    assert_values(values(tmp_path / "a.nc").ravel(), np.arange(12), np.int8)
    window = {"dims": {"t": (2, 4), "x": [2, 0]}}
    assert read(tmp_path / "a.nc", window=window)["v"].data.tolist() == [[8, 6], [11, 9]]


def test_odd_record_variables_together_are_padded(tmp_path):
    with netCDF4.Dataset(tmp_path / "a.nc", "w", format="NETCDF3_CLASSIC") as file:
        file.createDimension("t", None)
        file.createDimension("x", 3)
        file.createVariable("v", "i1", ("t", "x"))[:] = np.arange(12).reshape(4, 3)
        file.createVariable("w", "i2", ("t",))[:] = [1, 2, 3, 4]
    assert values(tmp_path / "a.nc").tolist() == np.arange(12).reshape(4, 3).tolist()
    assert values(tmp_path / "a.nc", "w").tolist() == [1, 2, 3, 4]


def test_a_streamed_record_count_is_worked_out_from_the_size(tmp_path):
    path = netcdf(
        tmp_path / "a.nc", {"v": (("t", "x"), np.arange(6.0).reshape(3, 2), {})}, format="NETCDF3_CLASSIC",
        sizes={"t": None},
    )  # fmt: skip
    data = bytearray(path.read_bytes())
    data[4:8] = b"\xff\xff\xff\xff"
    path.write_bytes(data)
    assert values(path).tolist() == [[0, 1], [2, 3], [4, 5]]


# Zero-length and short dimensions


@pytest.mark.parametrize("file_format", ["NETCDF4", "NETCDF3_CLASSIC"])
def test_a_dimension_of_length_zero_keeps_shape_and_dtype(tmp_path, file_format):
    with netCDF4.Dataset(tmp_path / "a.nc", "w", format=file_format) as file:
        file.createDimension("time", None)
        file.createDimension("y", 2)
        file.createVariable("time", "f8", ("time",)).units = "days since 2000-01-01"
        file.createVariable("v", "i2", ("time", "y"))
    found = read(tmp_path / "a.nc")
    assert found["v"].shape == (0, 2)
    assert found["v"].dtype == np.int16
    assert found["time"].shape == (0,)


# spec: V8.1
def test_variables_shorter_than_an_unlimited_dimension_are_filled_up(tmp_path):
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("t", None)
        file.createDimension("u", None)
        for name, dtype, fill in (
            ("long", "i4", None),
            ("i", "i4", -5),
            ("f", "f4", None),
            ("m", "i2", None),
        ):
            file.createVariable(name, dtype, ("t", "u"), fill_value=fill, chunksizes=(2, 2))
        file["long"][:5, :5] = np.arange(25).reshape(5, 5)
        file["i"][:3, :3] = 1
        file["f"][:1, :3] = 2.5
    with h5py.File(tmp_path / "a.nc") as file:
        assert file["i"].shape == (3, 3)  # shorter on disk, in both dimensions
        stored = {name: file[name][...] for name in ("i", "f")}
    found = read(tmp_path / "a.nc")
    expected = np.full((5, 5), -5)
    expected[:3, :3] = stored["i"]
    assert_values(found["i"].data.ravel(), [None if v == -5 else v for v in expected.ravel().tolist()])
    expected = np.full((5, 5), np.nan)
    expected[:1, :3] = stored["f"]
    np.testing.assert_array_equal(found["f"].data, expected)
    default = netCDF4.default_fillvals["i2"]
    assert_values(found["m"].data.ravel(), [default] * 25, np.int16)
    window = {"dims": {"t": [4, 2, 0], "u": (1, 5, 2)}}
    assert read(tmp_path / "a.nc", "f", window=window)["f"].data.tolist()[2] == [
        2.5,
        pytest.approx(np.nan, nan_ok=True),
    ]


# Holes


# spec: V8.2
def test_storage_never_written_reads_as_the_storage_fill(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        c = file.create_dataset("c", (10,), "i4", chunks=(5,), fillvalue=7)
        c[:5] = [1, 2, 3, 4, 5]
        file.create_dataset("k", (4,), "f4", fillvalue=7)
        file.create_dataset("s", (), "i4", fillvalue=-2147483647)
        file.create_dataset("z", (3,), "f8", chunks=(2,))
    found = read(tmp_path / "a.h5")
    assert_values(found["c"].data, [1, 2, 3, 4, 5, 7, 7, 7, 7, 7], np.int32)
    assert_values(found["k"].data, [7, 7, 7, 7])
    assert found["s"].data == -2147483647
    assert_values(found["z"].data, [0, 0, 0])


# spec: V8.2
@pytest.mark.parametrize("chunks", [None, (2,)])
def test_with_fill_time_never_holes_are_zeros_and_never_stale_memory(tmp_path, chunks):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        plist.set_fill_value(np.array(9, "i4"))
        if chunks:
            plist.set_chunk(chunks)
        space = h5py.h5s.create_simple((4,))
        h5py.h5d.create(file.id, b"v", h5py.h5t.NATIVE_INT32, space, plist)
    for _ in range(2):
        assert_values(values(tmp_path / "a.h5"), [0, 0, 0, 0], np.int32)


def test_compact_layout_and_scalars_are_data_though_they_have_no_offset(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((3,))
        dataset = h5py.Dataset(h5py.h5d.create(file.id, b"v", h5py.h5t.NATIVE_FLOAT, space, plist))
        dataset[:] = [1, 2, 3]
        file["s"] = np.float32(4)
    assert_values(values(tmp_path / "a.h5"), [1, 2, 3])
    assert values(tmp_path / "a.h5", "s").shape == ()
    assert values(tmp_path / "a.h5", "s") == 4


# Filters


# spec: V8.4
def test_filters_skipped_for_one_chunk_are_skipped_when_reading_it(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        dataset = file.create_dataset("v", (4,), "i4", chunks=(2,), shuffle=True, compression=1)
        raw = np.array([1, 2, 3, 4], "<i4")
        shuffled = raw[2:].view("u1").reshape(2, 4).T.tobytes()
        dataset.id.write_direct_chunk((0,), raw[:2].tobytes(), 0b11)
        dataset.id.write_direct_chunk((2,), shuffled, 0b10)
    assert_values(values(tmp_path / "a.h5"), [1, 2, 3, 4], np.int32)


@pytest.fixture(params=["netCDF4", "h5py"])
def checksummed(request, tmp_path):
    path = tmp_path / "a.nc"
    if request.param == "netCDF4":
        with netCDF4.Dataset(path, "w") as file:
            file.createDimension("x", 64)
            options = {"zlib": True, "shuffle": True, "fletcher32": True, "chunksizes": (64,)}
            file.createVariable("v", "f8", ("x",), **options)[:] = np.arange(64)
    else:
        options = {"chunks": (64,), "compression": 4, "shuffle": True, "fletcher32": True}
        hdf5(path, np.arange(64.0), **options)
    return path


def _flip_stored_byte(path):
    with h5py.File(path) as file:
        chunk = file["v"].id.get_chunk_info(0)
    data = bytearray(path.read_bytes())
    data[chunk.byte_offset + chunk.size // 2] ^= 0x10
    path.write_bytes(data)


# spec: V8.4
def test_fletcher32_may_stand_at_either_end_of_the_pipeline(checksummed):
    assert_values(values(checksummed), np.arange(64))


# spec: V8.5
def test_a_flipped_byte_is_an_error_naming_variable_and_chunk(checksummed):
    _flip_stored_byte(checksummed)
    with pytest.raises(DecodeError, match=r"a\.nc.*variable=v.*chunk=\(0,\)") as caught:
        values(checksummed)
    assert caught.value.variable == "v"
    assert caught.value.chunk == (0,)


def test_checksums_of_odd_lengths_and_of_all_ones_are_fine(tmp_path):
    path = hdf5(tmp_path / "a.h5", np.arange(7, dtype="u1"), chunks=(7,), fletcher32=True)
    assert_values(values(path), range(7), np.uint8)
    path = hdf5(tmp_path / "b.h5", np.full(8, -1, "i4"), chunks=(8,), fletcher32=True)
    assert_values(values(path), [-1] * 8, np.int32)


# spec: V8.5
def test_a_deflate_checksum_that_fails_is_an_error(tmp_path):
    path = hdf5(tmp_path / "a.h5", np.arange(1000, dtype="i4"), chunks=(1000,), compression=1)
    with h5py.File(path) as file:
        chunk = file["v"].id.get_chunk_info(0)
    data = bytearray(path.read_bytes())
    end = chunk.byte_offset + chunk.size
    (adler,) = struct.unpack(">I", data[end - 4 : end])
    assert adler == zlib.adler32(np.arange(1000, dtype="i4").tobytes())
    data[end - 1] ^= 1
    path.write_bytes(data)
    with pytest.raises(DecodeError, match="variable=v"):
        values(path)


# spec: V8.6
def test_a_filter_that_is_not_here_is_named_and_metadata_stay_readable(tmp_path):
    path = tmp_path / "a.h5"
    unknown = 32123  # nobody's
    with h5py.File(path, "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((4,))
        plist.set_filter(unknown, h5py.h5z.FLAG_OPTIONAL, ())
        space = h5py.h5s.create_simple((4,))
        raw = h5py.h5d.create(file.id, b"v", h5py.h5t.NATIVE_INT32, space, plist)
        raw.write_direct_chunk((0,), np.arange(4, dtype="i4").tobytes(), 0)
        file["w"] = [1.0, 2.0]
    provider = Provider(source(path, ("v",)))
    assert provider.array_shape("v") == (4,)
    with pytest.raises(Unsupported, match=rf"a\.h5.*variable=v.*{unknown}") as caught:
        provider.materialize()
    assert caught.value.filter == unknown
    assert_values(values(path, "w"), [1, 2])


@pytest.mark.parametrize("options", [{"scaleoffset": 2}, {"compression": "lzf"}])
def test_filters_of_hdf5_itself_are_left_to_it(tmp_path, options):
    path = hdf5(tmp_path / "a.h5", np.arange(100, dtype="i4") % 4, chunks=(32,), **options)
    with h5py.File(path) as file:
        assert_values(values(path), file["v"][...], np.int32)


# Damage


def _half(path):
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    return path


def _broken_files(tmp_path):
    big = np.arange(3000, dtype="f4").reshape(30, 100)
    yield _half(
        netcdf(tmp_path / "classic.nc", {"v": (("t", "x"), big, {})}, format=CLASSIC[0], sizes={"t": None})
    )
    yield _half(netcdf(tmp_path / "fixed.nc", {"v": (("t", "x"), big, {})}, format=CLASSIC[2]))
    yield _half(netcdf(tmp_path / "hdf5.nc", {"v": (("t", "x"), big, {})}))
    (tmp_path / "empty.nc").write_bytes(b"")
    yield tmp_path / "empty.nc"
    (tmp_path / "page.nc").write_text("<!DOCTYPE html><html><body>Please log in</body></html>")
    yield tmp_path / "page.nc"
    (tmp_path / "magic.nc").write_bytes(b"CDF\x01")
    yield tmp_path / "magic.nc"
    (tmp_path / "signature.nc").write_bytes(b"\x89HDF\r\n\x1a\n")
    yield tmp_path / "signature.nc"


# spec: P4.2
@pytest.mark.parametrize("index", range(7))
def test_truncated_empty_and_foreign_files_are_refused_by_name(tmp_path, index):
    path = list(_broken_files(tmp_path))[index]
    with pytest.raises(FileFormatError, match=path.name.replace(".", r"\.")) as caught:
        values(path)
    assert isinstance(caught.value, OSError)
    assert caught.value.file == str(path)


@pytest.mark.parametrize("file_format", ["NETCDF3_CLASSIC", "NETCDF4"])
def test_a_file_short_of_one_byte_is_refused(tmp_path, file_format):
    path = netcdf(tmp_path / "a.nc", {"v": ("x", np.arange(4000, dtype="f8"), {})}, format=file_format)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(EarthSciIOError, match=r"a\.nc"):
        values(path)


# spec: P4.3
def test_a_declared_size_larger_than_the_file_is_refused_before_anything_is_allocated(tmp_path):
    path = netcdf(tmp_path / "a.nc", {"v": ("x", np.arange(4, dtype="i1"), {})}, format="NETCDF3_64BIT_DATA")
    data = path.read_bytes()
    claimed = data.replace(b"\x00\x00\x00\x01x\x00\x00\x00" + (4).to_bytes(8, "big"),
                           b"\x00\x00\x00\x01x\x00\x00\x00" + (1 << 50).to_bytes(8, "big"))  # fmt: skip
    assert claimed != data
    path.write_bytes(claimed)
    with pytest.raises(FileFormatError, match=r"a\.nc"):
        values(path)


def test_random_damage_never_raises_anything_but_the_library_s_own_errors(tmp_path):
    rng = np.random.default_rng(3)
    for file_format in ("NETCDF3_CLASSIC", "NETCDF4"):
        path = netcdf(
            tmp_path / "a.nc",
            {"v": (("t", "x"), np.arange(60, dtype="i4").reshape(6, 10), {})},
            format=file_format,
        )
        good = path.read_bytes()
        for _ in range(60):
            bad = bytearray(good)
            bad[rng.integers(0, len(bad))] ^= int(rng.integers(1, 256))
            path.unlink()
            path.write_bytes(bad)
            with contextlib.suppress(EarthSciIOError):  # anything else fails the test
                read(path)


def test_a_missing_file_is_file_not_found_and_named(tmp_path):
    with pytest.raises(MissingFile, match=r"gone\.nc") as caught:
        values(tmp_path / "gone.nc")
    assert isinstance(caught.value, FileNotFoundError)


def test_a_directory_named_like_a_file_is_an_error(tmp_path):
    (tmp_path / "a.nc").mkdir()
    with pytest.raises(FileFormatError, match=r"a\.nc"):
        values(tmp_path / "a.nc")


# spec: P4.1
def test_a_file_that_was_replaced_is_read_anew(tmp_path):
    path = one(tmp_path / "a.nc", [1, 2])
    provider = Provider(source(path))
    assert provider.sample_at(None)["v"].data.tolist() == [1, 2]
    one(tmp_path / "b.nc", [3, 4, 5]).replace(path)
    assert provider.sample_at(None)["v"].data.tolist() == [3, 4, 5]


# spec: P4.1
@pytest.mark.parametrize("file_format", ["NETCDF4", "NETCDF3_CLASSIC"])
def test_whoever_still_reads_a_replaced_file_gets_old_values_or_an_error_never_new_ones(
    tmp_path, file_format
):
    def write(name, first):
        return one(tmp_path / name, [first, 2.0], format=file_format)

    path, reader = write("a.nc", 1.0), NetCDFReader()
    with files.lease(reader, str(path)) as old:
        write("b.nc", 9.0).replace(path)
        with files.lease(reader, str(path)) as new:
            assert new.file.read_chunk(new.file.arrays["v"], (0,)).tolist() == [9, 2]
        try:
            found = old.file.read_chunk(old.file.arrays["v"], (0,)).tolist()
        except DecodeError as error:
            found = str(error)
    assert found == [1, 2] or "replaced" in found


# Locks and descriptors


def test_a_locked_file_names_the_switch_that_lets_it_be_read(tmp_path):
    path = one(tmp_path / "block.nc", [1, 2])
    with path.open("rb") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(FileFormatError, match=r"block\.nc.*HDF5_USE_FILE_LOCKING"):
            values(path)
        program = textwrap.dedent(f"""
            import earthsciio as e
            p = e.Provider(e.DataSource("s", "netcdf", {str(path)!r}))
            print(p.materialize()["v"].data.tolist())
        """)
        env = {**os.environ, "HDF5_USE_FILE_LOCKING": "FALSE"}
        done = subprocess.run(
            [sys.executable, "-c", program], check=False, env=env, capture_output=True, text=True, timeout=60
        )
        assert done.stdout.strip() == "[1, 2]", done.stderr
    assert values(path).tolist() == [1, 2]


def test_a_path_with_lock_in_it_does_not_make_every_error_a_lock(tmp_path):
    (tmp_path / "lock").mkdir()
    path = _half(one(tmp_path / "lock" / "a.nc", np.arange(1000)))
    with pytest.raises(FileFormatError) as caught:
        values(path)
    assert "LOCKING" not in str(caught.value)


_WALK = """
import resource, sys, os
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
import h5py, datetime
import earthsciio as e
from earthsciio.formats import files
day = datetime.timedelta(days=1)
start = datetime.datetime(2020, 1, 1)
temporal = e.SourceTemporal(start, "P1D", "P1D", end=start + 100 * day, records_per_sample=2)
source = e.DataSource("s", "netcdf", sys.argv[1] + "/%Y%m%d.nc", temporal=temporal)
before = len(os.listdir("/proc/self/fd"))
provider = e.Provider(source)
days = [*range(100), *reversed(range(100))]
assert all(provider.refresh(start + k * day)["v"].data[0, 0] == k for k in days)
files.close_idle()
assert len(os.listdir("/proc/self/fd")) == before, os.listdir("/proc/self/fd")
print("walked")
"""


# spec: P4.4
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
@pytest.mark.parametrize("file_format", ["NETCDF4", "NETCDF3_CLASSIC"])
def test_a_hundred_files_are_walked_with_64_descriptors(tmp_path, file_format):
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= 64
    for k in range(100):
        stamp = np.datetime64("2020-01-01") + k
        units = {"units": "days since 2020-01-01"}
        netcdf(
            tmp_path / f"{str(stamp).replace('-', '')}.nc",
            {"time": ("time", [float(k)], units), "v": (("time", "x"), np.array([[k, -k]], "f4"), {})},
            format=file_format,
        )
    done = subprocess.run(
        [sys.executable, "-c", _WALK, str(tmp_path)], check=False, capture_output=True, text=True, timeout=100
    )
    assert done.stdout.strip() == "walked", done.stderr


def test_idle_files_keep_few_descriptors(tmp_path):
    for k in range(2 * files.MAX_OPEN):
        assert values(one(tmp_path / f"{k}.nc", [k])).tolist() == [k]
    open_ones = [e for e in files._entries.values() if getattr(e.file, "_handle", None) is not None]
    assert len(open_ones) <= files.MAX_OPEN
    files.close_idle()
    assert not any(getattr(e.file, "_handle", None) for e in files._entries.values())
