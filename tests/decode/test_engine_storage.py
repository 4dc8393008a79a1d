"""Every storage form of HDF5 and classic NetCDF, as hard inputs name them: right values, no fallback."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import stored

from earthsciio.decode import ArrayRequest, DecodeOptions, decode_arrays
from earthsciio.decode.abort import AbortToken
from earthsciio.decode.plan import plan_reads
from earthsciio.decode.values import ValueOptions
from earthsciio.errors import DecodeError, Unsupported
from earthsciio.selection import Points, Span

RAW = ValueOptions("source", default_fill=False)


def read(path: Path, name: str, expect_fallback: bool = False) -> np.ndarray:
    file = stored.open_file(path)
    wanted = stored.request(file, name, stored.everything(file, name), RAW)
    report = decode_arrays(file, [wanted], AbortToken())
    assert bool(report.fallbacks) == expect_fallback, report.fallbacks
    return wanted.outs[0]


def test_chunks_never_written_are_the_storage_fill(tmp_path: Path) -> None:
    path = tmp_path / "c.h5"
    with h5py.File(path, "w") as file:
        part = file.create_dataset("part", (10,), "i4", chunks=(5,), fillvalue=7)
        part[:5] = [1, 2, 3, 4, 5]
        file.create_dataset("never", (4,), "f4", fillvalue=7)
        file.create_dataset("scalar", (), "i4", fillvalue=-2147483647)
    assert read(path, "part").tolist() == [1, 2, 3, 4, 5, 7, 7, 7, 7, 7]
    assert read(path, "never").tolist() == [7, 7, 7, 7]
    assert read(path, "scalar") == -2147483647


def test_fill_time_never_reads_as_zeros(tmp_path: Path) -> None:
    path = tmp_path / "c.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("v", (6,), "i4", chunks=(4,), fillvalue=9, fill_time="never")
    assert read(path, "v").tolist() == [0] * 6


@pytest.mark.parametrize("dtype", [">f4", "<f8", ">i2"])
def test_compact_layout_and_scalars(tmp_path: Path, dtype: str) -> None:
    path = tmp_path / "c.h5"
    with h5py.File(path, "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((3,))
        identifier = h5py.h5d.create(file.id, b"v", h5py.h5t.py_create(np.dtype(dtype)), space, plist)
        h5py.Dataset(identifier)[...] = [1, 2, 3]
        file["s"] = np.array(5, dtype)
    assert read(path, "v").tolist() == [1, 2, 3]
    assert read(path, "s").shape == ()
    assert read(path, "s") == 5


def test_filters_left_out_for_single_chunks(tmp_path: Path) -> None:
    path = tmp_path / "m.h5"
    values = np.arange(1, 9, dtype="<i4")
    with h5py.File(path, "w") as file:
        data = file.create_dataset("v", (8,), "<i4", chunks=(2,), shuffle=True, compression="gzip")
        shuffled = values.reshape(4, 2).view("u1").reshape(4, 2, 4).transpose(0, 2, 1).reshape(4, 8)
        data.id.write_direct_chunk((0,), values[:2].tobytes(), 0b11)
        data.id.write_direct_chunk((2,), shuffled[1].tobytes(), 0b10)
        data.id.write_direct_chunk((4,), zlib.compress(values[4:6].tobytes()), 0b01)
        data.id.write_direct_chunk((6,), zlib.compress(shuffled[3].tobytes()), 0)
    assert read(path, "v").tolist() == values.tolist()


@pytest.mark.parametrize("writer", ["h5py", "netCDF4"])
def test_fletcher32_at_either_end_of_the_pipeline(tmp_path: Path, writer: str) -> None:
    path = tmp_path / "f.nc"
    values = np.linspace(-3, 3, 64)
    if writer == "h5py":
        with h5py.File(path, "w") as file:
            file.create_dataset(
                "v", data=values, chunks=(64,), fletcher32=True, shuffle=True, compression="gzip"
            )
    else:
        with netCDF4.Dataset(path, "w") as file:
            file.createDimension("x", 64)
            file.createVariable("v", "f8", ("x",), zlib=True, shuffle=True, fletcher32=True)[:] = values
    assert read(path, "v").tolist() == values.tolist()
    damage(path, "v")
    with pytest.raises(DecodeError, match=r"variable=v.*chunk=\(0,\).*byte_range"):
        read(path, "v")


def damage(path: Path, name: str, at: int = 9) -> None:
    with h5py.File(path) as file:
        offset = file[name].id.get_chunk_info(0).byte_offset
    data = bytearray(path.read_bytes())
    data[offset + at] ^= 0x55
    path.write_bytes(data)


@pytest.mark.parametrize("values", [np.arange(7, dtype="u1"), np.full(5, -1, "<i4"), np.zeros(33, ">i2")])
def test_fletcher32_of_odd_lengths_and_of_all_ones(tmp_path: Path, values: np.ndarray) -> None:
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("v", data=values, chunks=values.shape, fletcher32=True)
    assert read(path, "v").tolist() == values.tolist()
    damage(path, "v", at=2)
    with pytest.raises(DecodeError, match="Fletcher"):
        read(path, "v")


@pytest.mark.parametrize("rows", [5, 8192, 40001])
def test_fletcher32_of_long_chunks(tmp_path: Path, rows: int) -> None:
    path = tmp_path / "f.h5"
    values = np.random.default_rng(rows).integers(0, 1 << 16, rows, dtype="u2")
    with h5py.File(path, "w") as file:
        file.create_dataset("v", data=values, chunks=(rows,), fletcher32=True)
    assert read(path, "v").tobytes() == values.tobytes()


def test_a_variable_shorter_than_its_unlimited_dimensions(tmp_path: Path) -> None:
    path = tmp_path / "s.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("t")
        file.createDimension("x")
        file.createVariable("long", "f4", ("t", "x"), chunksizes=(2, 4))[:] = np.arange(70).reshape(7, 10)
        short = file.createVariable("short", "f4", ("t", "x"), chunksizes=(2, 4), zlib=True, fill_value=-5)
        short[:3, :5] = np.arange(15).reshape(3, 5)
        file.createVariable("empty", "i2", ("t", "x"), fill_value=-9)
    file = stored.open_file(path)
    gather = [Points([6, 2, 0, 3, 2]), Points([9, 4, 5, 0])]
    for name in ("short", "empty"):
        selectors = [*stored.everything(file, name), gather, [Span(1, 7, 2), Span(3, 9, 3)]]
        both = stored.read_both(file, [(name, selectors)], RAW)
        assert both.fast == both.slow
        assert both.report.fallbacks == ()
    whole = read(path, "short")
    assert whole[:3, :5].tolist() == np.arange(15).reshape(3, 5).tolist()
    assert np.isnan(whole).sum() == 70 - 15


def test_a_zero_length_unlimited_dimension(tmp_path: Path) -> None:
    path = tmp_path / "z.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time")
        file.createDimension("y", 2)
        file.createVariable("v", "f4", ("time", "y"))
    assert read(path, "v").shape == (0, 2)


def test_a_user_block_does_not_shift_the_chunks(tmp_path: Path) -> None:
    path = tmp_path / "u.h5"
    with h5py.File(path, "w", userblock_size=1024) as file:
        file.create_dataset("a", data=np.arange(90), chunks=(25,), compression="gzip")
        file.create_dataset("b", data=np.arange(90))
    assert read(path, "a").tolist() == list(range(90))
    assert read(path, "b").tolist() == list(range(90))


@pytest.mark.parametrize("form", ["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"])
def test_classic_files_by_record_and_whole(tmp_path: Path, form: Any) -> None:
    path = tmp_path / "c.nc"
    rng = np.random.default_rng(5)
    kinds = ["i1", "i2", "i4", "f4", "f8"] + (["u2", "i8"] if form.endswith("DATA") else [])
    with netCDF4.Dataset(path, "w", format=form) as file:
        file.createDimension("t")
        file.createDimension("x", 7)
        file.createDimension("y", 3)
        for kind in kinds:
            values = rng.integers(0, 100, (5, 7, 3)).astype(kind)
            file.createVariable(f"r{kind}", kind, ("t", "x", "y"))[:] = values
            file.createVariable(f"f{kind}", kind, ("y", "x"))[:] = values[0].T
        file["ri2"].setncatts({"scale_factor": 0.5, "add_offset": 2.0, "missing_value": np.int16(3)})
        with h5py.File(tmp_path / "expected.h5", "w") as expected:
            file.set_auto_maskandscale(False)
            for name, variable in file.variables.items():
                expected[name] = variable[:]
    file = stored.open_file(path)
    wanted = []
    for name, info in file.arrays.items():
        selectors = [stored.random_selectors(rng, info.shape) for _ in range(3)]
        wanted.append((name, [*stored.everything(file, name), *selectors]))
    both = stored.read_both(file, wanted)
    assert both.fast == both.slow
    assert both.report.fallbacks == ()
    with h5py.File(tmp_path / "expected.h5") as expected:
        for name in expected:
            if name != "ri2":
                assert read(path, name).tolist() == expected[name][...].tolist()


def test_text_and_what_compiled_code_does_not_know_fall_back_with_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "t.h5"
    with h5py.File(path, "w") as file:
        file["text"] = ["a", "bc"]
        file["half"] = np.arange(3, dtype="f2")
        file["deep"] = np.zeros((1,) * 9)
        file["complex"] = np.array([1 + 2j])
        file.create_dataset("so", data=np.arange(9), chunks=(3,), scaleoffset=0)
        layout = h5py.VirtualLayout((3,), "i4")
        layout[:] = h5py.VirtualSource(path, "base", (3,))
        file["base"] = np.arange(3, dtype="i4")
        file.create_virtual_dataset("virtual", layout)
        odd = h5py.h5t.STD_I32LE.copy()
        odd.set_precision(24)
        odd_set = h5py.h5d.create(file.id, b"odd", odd, h5py.h5s.create_simple((2,)))
        h5py.Dataset(odd_set)[...] = np.array([3, -4])
    opened = stored.open_file(path)
    reasons = {}
    for name in set(opened.arrays) - {"text"}:
        both = stored.read_both(opened, [(name, stored.everything(opened, name))], RAW)
        assert both.fast == both.slow, name
        reasons.update(both.report.fallbacks)
    text = stored.request(opened, "text", stored.everything(opened, "text"))
    assert decode_arrays(opened, [text], AbortToken()).fallbacks == (("text", "text"),)
    assert text.outs[0].tolist() == ["a", "bc"]
    assert reasons == {
        "half": "element type float16", "deep": "9 dimensions", "complex": "element type complex128",
        "so": "filter 6 (scaleoffset)", "virtual": "virtual dataset", "odd": "unusual element type",
    }  # fmt: skip


def test_a_filter_nobody_has_is_unsupported_by_name(tmp_path: Path) -> None:
    path = tmp_path / "b.h5"
    with h5py.File(path, "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((4,))
        plist.set_filter(32008, h5py.h5z.FLAG_OPTIONAL, (0, 4, 4))
        space = h5py.h5s.create_simple((4,))
        identifier = h5py.h5d.create(file.id, b"v", h5py.h5t.NATIVE_INT32, space, plist)
        identifier.write_direct_chunk((0,), b"\0" * 16, 0)
    with pytest.raises(Unsupported, match="32008"):
        read(path, "v", expect_fallback=True)


@pytest.mark.parametrize("codec", ["zstd", "lz4", "lzf", "bzip2"])
def test_codecs_that_live_in_python(tmp_path: Path, codec: str) -> None:
    import bz2

    import imagecodecs

    encode: dict[str, tuple[int, Any]] = {
        "zstd": (32015, imagecodecs.zstd_encode),
        "lz4": (32004, imagecodecs.lz4h5_encode),
        "lzf": (32000, imagecodecs.lzf_encode),
        "bzip2": (307, bz2.compress),
    }
    code, function = encode[codec]
    path = tmp_path / "z.h5"
    values = (np.arange(4000) // 7).astype("<i4").reshape(40, 100)
    with h5py.File(path, "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((20, 100))
        plist.set_filter(code, h5py.h5z.FLAG_OPTIONAL, (1,))
        space = h5py.h5s.create_simple((40, 100))
        identifier = h5py.h5d.create(file.id, b"v", h5py.h5t.STD_I32LE, space, plist)
        for row in (0, 20):
            identifier.write_direct_chunk((row, 0), bytes(function(values[row : row + 20].tobytes())), 0)
    assert read(path, "v").tolist() == values.tolist()


@pytest.mark.parametrize("codec", ["zstd", "bzip2", "szip", "blosc_lz", "blosc_lz4", "blosc_zstd"])
def test_codecs_as_netcdf_writes_them(tmp_path: Path, codec: Any) -> None:
    path = tmp_path / "n.nc"
    values = (np.arange(4000) // 7).astype("f4").reshape(40, 100)
    with netCDF4.Dataset(path, "w") as file:
        if not getattr(file, f"has_{codec.split('_')[0]}_filter")():
            pytest.skip(f"this netCDF4 has no {codec}")
        file.createDimension("y", 40)
        file.createDimension("x", 100)
        file.createVariable("v", "f4", ("y", "x"), compression=codec, chunksizes=(16, 100))[:] = values
    assert read(path, "v").tolist() == values.tolist()


def test_a_codec_that_refuses_a_chunk_is_a_decode_error(tmp_path: Path) -> None:
    path = tmp_path / "z.h5"
    with h5py.File(path, "w") as file:
        data = file.create_dataset("v", (6,), "i4", chunks=(6,), compression="lzf")
        data.id.write_direct_chunk((0,), b"\xff" * 9, 0)
    with pytest.raises(DecodeError, match=r"refused by its codec.*variable=v.*chunk=\(0,\)"):
        read(path, "v")


def test_a_bad_chunk_becomes_nan_only_where_asked_and_only_its_cells(tmp_path: Path) -> None:
    path = tmp_path / "bad.h5"
    with h5py.File(path, "w") as file:
        for name, dtype in (("f", "f4"), ("i", "i4")):
            file.create_dataset(
                name, data=np.arange(24).reshape(4, 6).astype(dtype), chunks=(2, 3), compression=1
            )
    damage(path, "f")
    damage(path, "i")
    file = stored.open_file(path)
    windows = [[Span(0, 4), Span(0, 6)], [Points([3, 1]), Points([5, 2, 0])]]
    wanted = stored.request(file, "f", windows)
    report = decode_arrays(file, [wanted], AbortToken(), DecodeOptions(on_bad_chunk="nan"))
    expected = np.arange(24.0).reshape(4, 6)
    expected[:2, :3] = np.nan
    assert np.array_equal(wanted.outs[0], expected, equal_nan=True)
    assert np.array_equal(wanted.outs[1], expected[np.ix_([3, 1], [5, 2, 0])], equal_nan=True)
    assert [(bad.variable, bad.chunk) for bad in report.bad_chunks] == [("f", (0, 0))]
    whole = stored.request(file, "i", stored.everything(file, "i"), RAW)
    with pytest.raises(DecodeError, match="variable=i"):
        decode_arrays(file, [whole], AbortToken(), DecodeOptions(on_bad_chunk="nan"))


def test_two_corner_windows_decode_only_the_chunks_they_touch(tmp_path: Path) -> None:
    path = tmp_path / "w.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("v", data=np.zeros((64, 64)), chunks=(8, 8), compression=1)
    file = stored.open_file(path)
    corners = [[Span(0, 3), Span(0, 9)], [Span(60, 64), Span(60, 64)]]
    report = decode_arrays(file, [stored.request(file, "v", corners)], AbortToken())
    assert report.chunks == 3


def test_a_prefix_is_enough_where_the_checksum_may_be_skipped(tmp_path: Path) -> None:
    path = tmp_path / "p.h5"
    values = np.random.default_rng(1).normal(size=(400, 300)).astype("f4")
    with h5py.File(path, "w") as file:
        file.create_dataset("v", data=values, chunks=values.shape, compression=1)
        size = file["v"].id.get_chunk_info(0).size
    damage(path, "v", at=size - 40)  # far behind the rows below
    file = stored.open_file(path)
    top = [[Span(0, 10), Span(5, 300, 7)]]
    wanted = stored.request(file, "v", top, RAW)
    decode_arrays(file, [wanted], AbortToken(), DecodeOptions(verify="prefix"))
    assert np.array_equal(wanted.outs[0], values[:10, 5::7])
    with pytest.raises(DecodeError, match="checksum"):
        decode_arrays(file, [wanted], AbortToken())


def test_chunks_that_claim_more_than_their_bytes_can_become_ask_for_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "h.h5"
    with h5py.File(path, "w") as file:
        huge = file.create_dataset("v", (1 << 20, 1 << 8), "f8", chunks=(1 << 20, 1 << 8), compression=1)
        huge.id.write_direct_chunk((0, 0), zlib.compress(b"abc"), 0)
    file = stored.open_file(path)
    with pytest.raises(DecodeError, match="more than its 11 stored bytes"):
        decode_arrays(file, [stored.request(file, "v", [[Span(0, 1), Span(0, 1)]])], AbortToken())


def test_a_file_replaced_while_in_use_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "r.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("v", data=np.arange(10), chunks=(5,))
    file = stored.open_file(path)
    other = tmp_path / "other.h5"
    with h5py.File(other, "w") as replacement:
        replacement["v"] = np.arange(99)
    other.replace(path)
    with pytest.raises(DecodeError, match="replaced"):
        decode_arrays(file, [stored.request(file, "v", stored.everything(file, "v"))], AbortToken())


def test_outputs_of_the_wrong_form_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "o.h5"
    with h5py.File(path, "w") as file:
        file["v"] = np.arange(10.0)
    file = stored.open_file(path)
    good = stored.request(file, "v", stored.everything(file, "v"))
    for out in (np.empty(9), np.empty(10, "f4")):
        with pytest.raises(ValueError, match="output"):
            decode_arrays(file, [ArrayRequest(good.info, good.spec, good.plan, (out,))], AbortToken())


def test_inexact_integers_are_the_reference_paths_error(tmp_path: Path) -> None:
    path = tmp_path / "i.h5"
    with h5py.File(path, "w") as file:
        wide = file.create_dataset("v", data=np.array([1, 2**53 + 1, -(2**63), 7]), chunks=(2,))
        wide.attrs["scale_factor"] = 2.0
    file = stored.open_file(path)
    with pytest.raises(DecodeError, match="9007199254740993 has no exact float64"):
        decode_arrays(file, [stored.request(file, "v", stored.everything(file, "v"))], AbortToken())
    rest = stored.request(file, "v", [[Points([0, 2, 3])]])
    decode_arrays(file, [rest], AbortToken())
    assert rest.outs[0].tolist() == [2.0, -(2.0**64), 14.0]


REAL = Path(__file__).parents[3] / "shared" / "data" / "real"


@pytest.mark.skipif(not REAL.exists(), reason="the real files lie beside the project, not in it")
@pytest.mark.parametrize("path", sorted(REAL.glob("*.*")), ids=lambda path: path.name)
def test_real_files_are_bitwise_the_reference(path: Path) -> None:
    if path.suffix == ".md":
        return
    file = stored.open_file(path)
    for name, info in file.arrays.items():
        if info.dtype.kind == "O" or info.unsupported:
            continue
        try:
            both = stored.read_both(file, [(name, stored.everything(file, name))])
        except Unsupported:
            continue  # blosc without hdf5plugin: the reference path has no codec for it
        assert both.fast == both.slow
        assert both.report.fallbacks == ()


def test_plans_know_what_of_a_chunk_goes_where() -> None:
    plan = plan_reads((6, 6), (4, 4), [[Span(0, 2), Span(0, 6)], [Span(4, 6), Span(5, 6)]])
    assert [placement.window for placement in plan.placements((0, 1))] == [0]
    assert [placement.window for placement in plan.placements((1, 1))] == [1]
    assert list(plan.placements((1, 0))) == []
