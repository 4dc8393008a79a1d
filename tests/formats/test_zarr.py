"""Zarr stores: what is written with zarr, xarray, netCDF-C or by hand comes out as it was written."""

from __future__ import annotations

import json
import shutil
import warnings
import zipfile
from datetime import datetime
from pathlib import Path
from typing import Any

import netCDF4
import numcodecs
import numpy as np
import pytest
import xarray as xr
import zarr

from earthsciio import (
    DataSource,
    DeclarationError,
    DecodeError,
    EarthSciIOWarning,
    FileFormatError,
    MissingFile,
    NativeDataset,
    Provider,
    SelectionError,
    SourceTemporal,
    UnknownReaderOption,
    Unsupported,
    Window,
    ZarrReader,
)
from earthsciio.formats import zarr_objects


def read(path: Path | str, *variables: str, window: Any = None, **options: Any) -> NativeDataset:
    provider = Provider(DataSource("s", "zarr", str(path), variables=variables, reader_kwargs=options))
    return (provider if window is None else provider.with_window(window)).materialize()


def write(path: Path, arrays: dict[str, Any], version: int, **options: Any) -> zarr.Group:
    """Write arrays ``name: (dims, data)`` or ``(dims, data, attrs)`` with zarr."""
    group = zarr.open_group(path, mode="w", zarr_format=version)
    for name, (dims, data, *attrs) in arrays.items():
        put(group, name, dims, data, *attrs, **options)
    return group


def put(group: zarr.Group, name: str, dims: Any, data: Any, attrs: Any = None, **options: Any) -> zarr.Array:
    data = np.asarray(data)
    attributes = dict(attrs or {})
    version = group.metadata.zarr_format
    if version == 2 and dims is not None:
        attributes["_ARRAY_DIMENSIONS"] = list(dims)
    if version == 3 and dims is not None:
        options["dimension_names"] = dims
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr says which of its types other libraries may not know
        array = group.create_array(
            name, shape=data.shape, dtype=data.dtype, attributes=attributes, **{"fill_value": 0, **options}
        )
        array[...] = data
    return array


def raw_v2(path: Path, name: str, objects: dict[str, bytes], **metadata: Any) -> Path:
    """Write a version 2 array by hand, uncompressed."""
    where = path / name
    where.mkdir(parents=True)
    (path / ".zgroup").write_text('{"zarr_format": 2}')
    document = {
        "zarr_format": 2, "order": "C", "compressor": None, "filters": None, "fill_value": None, **metadata,
    }  # fmt: skip
    (where / ".zarray").write_text(json.dumps(document))
    dims = [f"d{axis}" for axis in range(len(metadata["shape"]))]
    (where / ".zattrs").write_text(json.dumps({"_ARRAY_DIMENSIONS": dims}))
    for key, data in objects.items():
        target = where / key
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return path


def i4(*values: int) -> bytes:
    return np.array(values, dtype="<i4").tobytes()


versions = pytest.mark.parametrize("version", [2, 3])


# What hard-inputs.md says of Zarr.


class TestOnlyDefiniteAbsenceIsFill:
    def store(self, tmp_path: Path) -> Path:
        return raw_v2(
            tmp_path / "s.zarr", "v", {"0": i4(1, 2), "1": i4(3, 4)},
            shape=[6], chunks=[2], dtype="<i4", fill_value=-5,
        )  # fmt: skip

    # spec: V8.3
    def test_an_absent_chunk_is_fill(self, tmp_path: Path) -> None:
        field = read(self.store(tmp_path), fill_value_masks=False)["v"]
        np.testing.assert_array_equal(field.data, [1, 2, 3, 4, -5, -5])

    # spec: V8.3
    def test_a_directory_in_place_of_a_chunk_raises(self, tmp_path: Path) -> None:
        store = self.store(tmp_path)
        (store / "v" / "0").unlink()
        (store / "v" / "0").mkdir()
        with pytest.raises(DecodeError, match="directory") as caught:
            read(store)
        assert (caught.value.variable, caught.value.chunk, caught.value.file) == ("v", (0,), str(store))

    @pytest.mark.parametrize(
        "error", [PermissionError(13, "denied"), TimeoutError("slow"), OSError(116, "stale")]
    )
    def test_an_error_of_the_file_system_raises(
        self, tmp_path: Path, error: OSError, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = self.store(tmp_path)
        genuine = zarr_objects.DirectoryObjects.read

        def failing(self: Any, key: str, start: int = 0, stop: int | None = None) -> bytes | None:
            if key == "v/2":
                raise error
            return genuine(self, key, start, stop)

        monkeypatch.setattr(zarr_objects.DirectoryObjects, "read", failing)
        with pytest.raises(DecodeError, match=str(error.args[-1])) as caught:
            read(store)
        assert caught.value.chunk == (2,)

    # spec: V8.3
    def test_a_dangling_link_raises(self, tmp_path: Path) -> None:
        store = self.store(tmp_path)
        (store / "v" / "1").unlink()
        (store / "v" / "1").symlink_to(tmp_path / "archive" / "away")
        with pytest.raises(DecodeError):
            read(store)

    # spec: V8.3
    def test_a_short_chunk_raises(self, tmp_path: Path) -> None:
        store = self.store(tmp_path)
        for data in (b"", i4(1), i4(1, 2, 3)):
            (store / "v" / "0").write_bytes(data)
            with pytest.raises(DecodeError):
                read(store)

    # spec: V8.3
    def test_a_store_that_was_removed_is_not_fill(self, tmp_path: Path) -> None:
        store = self.store(tmp_path)
        file = ZarrReader().open(str(store))
        shutil.rmtree(store)
        with pytest.raises(DecodeError, match="removed"):
            file.read_chunk(file.arrays["v"], (0,))


class TestNullFill:
    # spec: V8.3
    def test_a_hole_raises(self, tmp_path: Path) -> None:
        whole = np.array([1, 2], "<f4").tobytes()
        store = raw_v2(tmp_path / "s.zarr", "v", {"0": whole}, shape=[4], chunks=[2], dtype="<f4")
        np.testing.assert_array_equal(read(store, window={"dims": {"d0": (0, 2)}})["v"].data, [1, 2])
        with pytest.raises(DecodeError, match="null") as caught:
            read(store)
        assert caught.value.chunk == (1,)


class TestFillThatIsNoMask:
    # spec: V2.4
    @versions
    def test_zero_is_data(self, tmp_path: Path, version: int) -> None:
        write(tmp_path / "s", {"v": (("x",), np.array([0, 1, 2], "i4"))}, version)
        field = read(tmp_path / "s")["v"]
        assert field.dtype == np.int32
        np.testing.assert_array_equal(field.data, [0, 1, 2])

    # spec: V2.4
    @versions
    def test_another_v2_fill_stands_for_fill_value_and_a_v3_one_never(
        self, tmp_path: Path, version: int
    ) -> None:
        write(tmp_path / "s", {"v": (("x",), np.array([0, 1, -9], "i4"))}, version, fill_value=-9)
        field = read(tmp_path / "s")["v"]
        if version == 2:
            assert field.dtype == np.float64
            np.testing.assert_array_equal(field.data, [0, 1, np.nan])
        else:
            assert field.dtype == np.int32
            np.testing.assert_array_equal(field.data, [0, 1, -9])

    # spec: V2.4
    def test_the_option_overrides(self, tmp_path: Path) -> None:
        write(tmp_path / "zero", {"v": (("x",), np.array([0, 1], "i4"))}, 2)
        write(tmp_path / "nine", {"v": (("x",), np.array([9, 1], "i4"))}, 2, fill_value=9)
        np.testing.assert_array_equal(read(tmp_path / "zero", fill_value_masks=True)["v"].data, [np.nan, 1])
        field = read(tmp_path / "nine", fill_value_masks=False)["v"]
        assert field.dtype == np.int32
        np.testing.assert_array_equal(field.data, [9, 1])

    # spec: V2.4
    def test_an_explicit_fill_value_attribute_comes_first(self, tmp_path: Path) -> None:
        arrays = {"v": (("x",), np.array([9, 1, -1], "i4"), {"_FillValue": -1})}
        write(tmp_path / "s", arrays, 2, fill_value=9)
        np.testing.assert_array_equal(read(tmp_path / "s")["v"].data, [9, 1, np.nan])
        both = read(tmp_path / "s", fill_value_masks=True)["v"]
        np.testing.assert_array_equal(both.data, [np.nan, 1, np.nan])
        assert "_FillValue" not in both.attrs

    def test_a_word_is_a_number(self, tmp_path: Path) -> None:
        chunk = np.array([np.inf, 1], "<f4").tobytes()
        store = raw_v2(
            tmp_path / "s", "v", {"0": chunk}, shape=[2], chunks=[2], dtype="<f4", fill_value="Infinity"
        )
        np.testing.assert_array_equal(read(store)["v"].data, [np.nan, 1])


class TestSharded:
    def store(self, tmp_path: Path, **options: Any) -> Path:
        group = zarr.open_group(tmp_path / "s", mode="w", zarr_format=3)
        array = group.create_array(
            "v",
            shape=(8,),
            chunks=(2,),
            shards=(4,),
            dtype="i4",
            fill_value=-1,
            dimension_names=("x",),
            **options,
        )
        array[:6] = np.arange(6)
        return tmp_path / "s"

    def test_absent_inner_chunks_are_fill(self, tmp_path: Path) -> None:
        store = self.store(tmp_path)
        assert sorted(path.name for path in (store / "v" / "c").iterdir()) == ["0", "1"]
        np.testing.assert_array_equal(read(store)["v"].data, [0, 1, 2, 3, 4, 5, -1, -1])

    def test_the_inner_chunk_is_the_unit(self, tmp_path: Path) -> None:
        store = self.store(tmp_path)
        assert ZarrReader().open(str(store)).arrays["v"].chunks == (2,)

    def test_only_the_inner_chunk_is_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        store = self.store(tmp_path)
        shard = store / "v" / "c" / "0"
        before = shard.read_bytes()
        damaged = bytes([before[0] ^ 255]) + before[1:]  # in the first inner chunk
        shard.write_bytes(damaged)
        np.testing.assert_array_equal(read(store, window={"dims": {"x": (2, 4)}})["v"].data, [2, 3])

    def test_a_cut_shard_raises(self, tmp_path: Path) -> None:
        store = self.store(tmp_path)
        shard = store / "v" / "c" / "0"
        whole = shard.read_bytes()
        for length in range(0, len(whole), 3):
            shard.write_bytes(whole[:length])
            with pytest.raises(DecodeError):
                read(store)

    def test_an_empty_shard_raises_also_where_it_is_one_inner_chunk(self, tmp_path: Path) -> None:
        data = np.arange(4)
        write(tmp_path / "s", {"v": (("x",), data)}, 3, chunks=(4,), shards=(4,))
        (tmp_path / "s" / "v" / "c" / "0").write_bytes(b"")
        with pytest.raises(DecodeError, match="empty"):
            read(tmp_path / "s")

    @pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed` codec")
    def test_a_codec_before_the_shards_moves_axes_and_the_shard_is_the_unit(self, tmp_path: Path) -> None:
        group = zarr.open_group(tmp_path / "t", mode="w", zarr_format=3)
        data = np.arange(24, dtype="f8").reshape(4, 6)
        array = group.create_array(
            "v", shape=(4, 6), chunks=(2, 6), dtype="f8", fill_value=0, dimension_names=("y", "x"),
            filters=[zarr.codecs.TransposeCodec(order=(1, 0))],
            serializer=zarr.codecs.ShardingCodec(chunk_shape=(2, 1)), compressors=None,
        )  # fmt: skip
        array[...] = data
        assert ZarrReader().open(str(tmp_path / "t")).arrays["v"].chunks == (2, 6)
        np.testing.assert_array_equal(read(tmp_path / "t")["v"].data, data)


class TestOrderAndSeparator:
    # spec: V4.9
    def test_f_order_comes_out_in_logical_order_and_c_contiguous(self, tmp_path: Path) -> None:
        columns = np.arange(12, dtype="<i4").reshape(3, 4)
        store = raw_v2(
            tmp_path / "s", "v", {"0.0": columns.tobytes(order="F")},
            shape=[3, 4], chunks=[3, 4], dtype="<i4", order="F",
        )  # fmt: skip
        data = read(store)["v"].data
        np.testing.assert_array_equal(data, np.arange(12).reshape(3, 4))
        assert data.flags.c_contiguous

    def nested(self, tmp_path: Path, **metadata: Any) -> Path:
        chunks = {"0/0": i4(0, 1), "1/0": i4(2, 3)}
        return raw_v2(
            tmp_path / "s", "v", chunks, shape=[2, 2], chunks=[1, 2], dtype="<i4", fill_value=0, **metadata
        )

    def test_the_separator_is_honoured(self, tmp_path: Path) -> None:
        store = self.nested(tmp_path, dimension_separator="/")
        np.testing.assert_array_equal(read(store)["v"].data, [[0, 1], [2, 3]])

    # spec: V8.3
    def test_without_the_separator_a_chunk_directory_raises(self, tmp_path: Path) -> None:
        with pytest.raises(DecodeError, match="dimension_separator"):
            read(self.nested(tmp_path))

    def test_dotted_chunks_under_a_slash_raise(self, tmp_path: Path) -> None:
        store = raw_v2(
            tmp_path / "s", "v", {"0.0": i4(0, 1)},
            shape=[2, 2], chunks=[1, 2], dtype="<i4", fill_value=0, dimension_separator="/",
        )  # fmt: skip
        with pytest.raises(DecodeError, match="dimension_separator"):
            read(store)

    def test_an_array_without_any_chunk_is_fill(self, tmp_path: Path) -> None:
        store = raw_v2(tmp_path / "s", "v", {}, shape=[2, 2], chunks=[1, 2], dtype="<i4", fill_value=7)
        np.testing.assert_array_equal(read(store, fill_value_masks=False)["v"].data, [[7, 7], [7, 7]])

    def test_the_last_chunk_is_cut_at_the_shape(self, tmp_path: Path) -> None:
        store = raw_v2(
            tmp_path / "s", "v", {"0": i4(1, 2), "1": i4(3, 99)}, shape=[3], chunks=[2], dtype="<i4"
        )
        np.testing.assert_array_equal(read(store)["v"].data, [1, 2, 3])

    @versions
    @pytest.mark.parametrize("separator", [".", "/"])
    def test_both_separators_in_both_versions(self, tmp_path: Path, version: int, separator: str) -> None:
        data = np.arange(12, dtype="f4").reshape(3, 4)
        keys = {"name": "default" if version == 3 else "v2", "separator": separator}
        write(tmp_path / "s", {"v": (("y", "x"), data)}, version, chunks=(2, 3), chunk_key_encoding=keys)
        np.testing.assert_array_equal(read(tmp_path / "s")["v"].data, data)


def test_big_endian_packed_integers_come_out_native(tmp_path: Path) -> None:
    raw = np.array([0, 1, 256, -999], dtype=">i2")
    store = raw_v2(
        tmp_path / "s", "v", {"0": raw.tobytes()}, shape=[4], chunks=[4], dtype=">i2", fill_value=-999
    )
    attrs = json.loads((store / "v" / ".zattrs").read_text())
    (store / "v" / ".zattrs").write_text(json.dumps({**attrs, "scale_factor": 0.1}))
    data = read(store)["v"].data
    assert data.dtype.isnative
    np.testing.assert_array_equal(data, [0, 1 * 0.1, 256 * 0.1, np.nan])


# Windows touch what they need and nothing else.


class TestPoisonedChunks:
    """Every object a Window must not fetch is a directory, which raises when it is read."""

    @pytest.mark.parametrize("separator", [".", "/"])
    @versions
    def test_unselected_chunk_objects_are_never_fetched(
        self, tmp_path: Path, version: int, separator: str
    ) -> None:
        data = np.arange(36, dtype="f8").reshape(6, 6)
        keys = {"name": "default" if version == 3 else "v2", "separator": separator}
        write(tmp_path / "s", {"v": (("y", "x"), data)}, version, chunks=(2, 2), chunk_key_encoding=keys)
        prefix = "c" + separator if version == 3 else ""
        for y in range(3):
            for x in range(3):
                if (y, x) not in {(0, 0), (2, 2)}:
                    chunk = tmp_path / "s" / "v" / f"{prefix}{y}{separator}{x}"
                    chunk.unlink()
                    chunk.mkdir()
        corners = [Window({"y": (0, 2), "x": (0, 2)}), Window({"y": (4, 6), "x": (5, 6)})]
        for corner, expected in zip(corners, (data[:2, :2], data[4:, 5:]), strict=True):
            np.testing.assert_array_equal(read(tmp_path / "s", window=corner)["v"].data, expected)
        with pytest.raises(DecodeError):
            read(tmp_path / "s", window=corners[0].union(corners[1]))

    def test_also_between_the_corner_windows_of_one_request(self, tmp_path: Path) -> None:
        data = np.arange(36, dtype="f8").reshape(1, 6, 6)
        arrays = {
            "time": (("time",), np.array([0]), {"units": "hours since 2019-07-01"}),
            "v": (("time", "y", "x"), data),
        }
        write(tmp_path / "s", arrays, 3)
        group = zarr.open_group(tmp_path / "s")
        put(group, "w", ("time", "y", "x"), data, chunks=(1, 2, 2))
        for chunk in (tmp_path / "s" / "w" / "c" / "0").glob("*/*"):
            if chunk.parts[-2:] not in {("0", "0"), ("2", "2")}:
                chunk.unlink()
                chunk.mkdir()
        source = DataSource(
            "s", "zarr", str(tmp_path / "s"), variables=("w",),
            temporal=SourceTemporal("2019-07-01", "PT1H"),
        )  # fmt: skip
        corners = [Window({"y": (0, 2), "x": (0, 2)}), Window({"y": (4, 6), "x": (4, 6)})]
        first, last = Provider(source).sample_windows_at(datetime(2019, 7, 1), corners)  # noqa: DTZ001
        np.testing.assert_array_equal(first["w"].data, data[0, :2, :2])
        np.testing.assert_array_equal(last["w"].data, data[0, 4:, 4:])


# What xarray and netCDF-C write.


@versions
@pytest.mark.parametrize("consolidated", [False, True])
class TestWrittenByXarray:
    def dataset(self) -> xr.Dataset:
        rng = np.random.default_rng(1)
        field = rng.normal(size=(3, 4, 5)).astype("f4")
        field[1, 2, 3] = np.nan
        return xr.Dataset(
            {
                "t2m": (("time", "lat", "lon"), field, {"units": "K"}),
                "packed": (("time", "lat", "lon"), np.round(field.astype("f8"), 1), {"units": "m"}),
                "count": (("lat", "lon"), np.arange(20, dtype="i2").reshape(4, 5)),
                "crs": ((), np.int32(1)),
            },
            coords={
                "time": ("time", np.array(["2019-07-01T00", "2019-07-01T03", "2019-07-01T06"], "M8[ns]")),
                "lat": ("lat", np.linspace(-30, 30, 4)),
                "lon": ("lon", np.arange(5) * 72.0),
            },
        )

    def write(self, path: Path, version: int, consolidated: bool) -> xr.Dataset:
        written = self.dataset()
        encoding = {
            "packed": {"dtype": "i2", "scale_factor": 0.1, "add_offset": 1.0, "_FillValue": -32768},
            "t2m": {"chunks": (1, 2, 3)},
            "time": {"units": "hours since 2019-01-01"},
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            written.to_zarr(path, zarr_format=version, consolidated=consolidated, encoding=encoding)
        return written

    def test_a_sample_holds_what_was_written(self, tmp_path: Path, version: int, consolidated: bool) -> None:
        written = self.write(tmp_path / "s", version, consolidated)
        source = DataSource("s", "zarr", str(tmp_path / "s"), temporal=SourceTemporal("2019-07-01", "PT3H"))
        sample = Provider(source).sample_at(datetime(2019, 7, 1, 4))  # noqa: DTZ001
        assert sample.variable_names() == ["count", "crs", "packed", "t2m"]
        assert sample.coord_names() == ["lat", "lon"]
        np.testing.assert_array_equal(sample["t2m"].data, written["t2m"].values[1].astype("f8"))
        # xarray rounds to the nearest packed integer: within half a step, and exactly the integer's value
        np.testing.assert_allclose(sample["packed"].data, written["packed"].values[1], atol=1e-9)
        assert np.isnan(sample["packed"].data[2, 3])
        assert sample["packed"].attrs["units"] == "m"
        np.testing.assert_array_equal(sample["count"].data, written["count"].values)
        assert sample["count"].dtype == np.int16
        assert sample["crs"].data == 1
        np.testing.assert_array_equal(sample["lat"].data, written["lat"].values)
        assert sample.times == (datetime.fromisoformat("2019-07-01T03:00+00:00"),)

    def test_consolidated_metadata_can_be_demanded_and_refused(
        self, tmp_path: Path, version: int, consolidated: bool
    ) -> None:
        written = self.write(tmp_path / "s", version, consolidated)
        unread = read(tmp_path / "s", "t2m", consolidated=False)
        np.testing.assert_array_equal(unread["t2m"].data, written["t2m"].values.astype("f8"))
        if consolidated:
            assert "t2m" in read(tmp_path / "s", consolidated=True)
        else:
            with pytest.raises(FileFormatError, match="consolidated"):
                read(tmp_path / "s", consolidated=True)


def test_consolidated_metadata_say_what_there_is(tmp_path: Path) -> None:
    group = write(tmp_path / "s", {"v": (("x",), np.arange(3))}, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(group.store)
    put(zarr.open_group(tmp_path / "s", use_consolidated=False), "late", ("x",), np.arange(3))
    assert read(tmp_path / "s").variable_names() == ["v"]
    assert read(tmp_path / "s", consolidated=False).variable_names() == ["late", "v"]


# spec: V2.4
def test_a_fill_value_attribute_in_base64_is_decoded(tmp_path: Path) -> None:
    values = xr.Dataset({"v": ("x", np.array([1.5, -9.5, np.nan]))})
    values.to_zarr(
        tmp_path / "s",
        zarr_format=3,
        consolidated=False,
        encoding={"v": {"_FillValue": -9.25, "dtype": "f4"}},
    )
    stored = json.loads((tmp_path / "s" / "v" / "zarr.json").read_text())
    assert isinstance(stored["attributes"]["_FillValue"], str)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        field = read(tmp_path / "s")["v"]
    np.testing.assert_array_equal(field.data, [1.5, -9.5, np.nan])
    assert "_FillValue" not in field.attrs


def test_text_that_is_no_fill_value_is_ignored_with_a_warning(tmp_path: Path) -> None:
    write(tmp_path / "s", {"v": (("x",), np.array([1.0, 2.0]), {"_FillValue": "none"})}, 3)
    with pytest.warns(EarthSciIOWarning, match="_FillValue"):
        np.testing.assert_array_equal(read(tmp_path / "s")["v"].data, [1, 2])


def test_what_netcdf_c_writes_as_zarr(tmp_path: Path) -> None:
    store = tmp_path / "n.zarr"
    try:
        with netCDF4.Dataset(f"file://{store}#mode=nczarr,file", "w") as out:
            out.createDimension("y", 2)
            out.createDimension("x", 3)
            out.createVariable("v", "i2", ("y", "x"), fill_value=-1)[:] = np.array([[1, 2, -1], [4, 5, 6]])
    except OSError as error:
        pytest.skip(f"this netCDF-C writes no Zarr: {error}")
    attributes = store / "v" / ".zattrs"
    named = json.loads(attributes.read_text())
    for without in ((), ("_ARRAY_DIMENSIONS",)):
        attributes.write_text(json.dumps({k: v for k, v in named.items() if k not in without}))
        field = read(store, "v")["v"]
        assert field.dims == ("y", "x")
        assert not any("nczarr" in name for name in field.attrs)
        np.testing.assert_array_equal(field.data, [[1, 2, np.nan], [4, 5, 6]])


# Types.


@versions
class TestTypes:
    def one(self, tmp_path: Path, version: int, data: Any, **options: Any) -> Any:
        write(tmp_path / "s", {"v": (("x",), data)}, version, **options)
        return read(tmp_path / "s")["v"]

    @pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "c8", "c16"])
    def test_numbers_keep_their_type(self, tmp_path: Path, version: int, dtype: str) -> None:
        field = self.one(tmp_path, version, np.array([0, 1, 100], dtype), chunks=(2,))
        assert field.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(field.data, [0, 1, 100])

    # spec: V2.6
    @pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
    def test_floats_come_out_as_float64(self, tmp_path: Path, version: int, dtype: str) -> None:
        data = np.array([0.1, np.nan, -0.0, 9.969209968386869e36 if dtype != "f2" else 5], dtype)
        field = self.one(tmp_path, version, data, chunks=(3,))
        np.testing.assert_array_equal(field.data, data.astype("f8"))  # Zarr has no default fill
        assert field.dtype == np.float64

    def test_bool_is_int8(self, tmp_path: Path, version: int) -> None:
        field = self.one(tmp_path, version, np.array([True, False, True]), chunks=(2,), fill_value=True)
        assert field.dtype == np.int8
        np.testing.assert_array_equal(field.data, [1, 0, 1])

    @pytest.mark.parametrize("dtype", ["U5", "S7", "T"])
    def test_text_is_str(self, tmp_path: Path, version: int, dtype: str) -> None:
        texts = ["Köln" if dtype != "S7" else "Koeln", "", "Oslo"]
        data = np.array(texts, dtype)
        field = self.one(tmp_path, version, data, chunks=(2,), fill_value=b"" if dtype == "S7" else "")
        assert field.dtype == np.dtype(object)
        assert field.data.tolist() == texts
        assert all(type(text) is str for text in field.data)

    # spec: V4.7
    def test_characters_are_joined_along_their_own_last_dimension(self, tmp_path: Path, version: int) -> None:
        letters = np.array([list("Oslo"), list("Rom\0")], "S1")
        flags = np.array([b"a", b"b"], "S1")
        arrays = {
            "name": (("station", "strlen"), letters),
            "flag": (("station",), flags),
            "v": (("station",), np.arange(2)),
        }
        write(tmp_path / "s", arrays, version, fill_value=None)
        sample = read(tmp_path / "s")
        assert sample["name"].dims == ("station",)
        assert sample["name"].data.tolist() == ["Oslo", "Rom"]
        assert sample["flag"].data.tolist() == ["a", "b"]

    # spec: V4.10
    @pytest.mark.parametrize("unit", ["D", "h", "s", "ms", "us", "ns"])
    def test_times_are_integers_with_cf_units(self, tmp_path: Path, version: int, unit: str) -> None:
        stamps = np.array(["2019-07-01", "2019-07-02", "NaT"], f"M8[{unit}]")
        words = {"D": "days", "h": "hours", "s": "seconds", "ms": "milliseconds", "us": "microseconds"}
        field = self.one(tmp_path, version, stamps, chunks=(2,))
        first = int(stamps[0].astype("i8"))
        np.testing.assert_array_equal(field.data, [first, int(stamps[1].astype("i8")), np.nan])
        assert field.attrs["units"] == f"{words.get(unit, 'nanoseconds')} since 1970-01-01"
        assert field.attrs["calendar"] == "proleptic_gregorian"
        assert field.dtype == np.float64
        odd = np.array([2**53 + 1, 5], "i8").view(f"M8[{unit}]")  # no float64 has that count
        with pytest.raises(DecodeError, match=str(2**53 + 1)):
            self.one(tmp_path / "odd", version, odd)

    def test_times_date_the_records(self, tmp_path: Path, version: int) -> None:
        arrays = {
            "time": (("time",), np.array(["2019-07-01T00", "2019-07-01T03"], "M8[s]")),
            "v": (("time",), np.array([1, 2])),
        }
        write(tmp_path / "s", arrays, version)
        source = DataSource("s", "zarr", str(tmp_path / "s"), temporal=SourceTemporal("2019-07-01", "PT3H"))
        assert Provider(source).sample_at(datetime(2019, 7, 1, 3))["v"].data == 2  # noqa: DTZ001

    def test_a_type_that_can_not_be_delivered_is_unsupported_when_asked_for(
        self, tmp_path: Path, version: int
    ) -> None:
        pair = np.zeros(2, [("a", "i4"), ("b", "f8")])
        write(tmp_path / "s", {"good": (("x",), np.arange(2)), "pair": (("x",), pair)}, version)
        np.testing.assert_array_equal(read(tmp_path / "s", "good")["good"].data, [0, 1])
        with pytest.raises(Unsupported) as caught:
            read(tmp_path / "s", "pair")
        assert caught.value.variable == "pair"


# spec: V4.8
def test_python_objects_are_never_unpickled(tmp_path: Path) -> None:
    store = raw_v2(
        tmp_path / "s", "v", {"0": b"cos\nsystem\n."}, shape=[1], chunks=[1], dtype="|O",
        filters=[{"id": "pickle", "protocol": 5}],
    )  # fmt: skip
    with pytest.raises(Unsupported, match="pickle"):
        read(store)


# spec: V8.6
@versions
def test_a_codec_that_is_not_there_is_unsupported_and_its_metadata_readable(
    tmp_path: Path, version: int
) -> None:
    write(tmp_path / "s", {"v": (("x",), np.arange(4.0))}, version)
    document = tmp_path / "s" / "v" / (".zarray" if version == 2 else "zarr.json")
    metadata = json.loads(document.read_text())
    if version == 2:
        metadata["compressor"] = {"id": "nobody-has-this"}
    else:
        metadata["codecs"][-1] = {"name": "nobody-has-this", "configuration": {}}
    document.write_text(json.dumps(metadata))
    source = DataSource("s", "zarr", str(tmp_path / "s"))
    assert Provider(source).array_shape("v") == (4,)
    with pytest.raises(Unsupported, match="nobody-has-this") as caught:
        Provider(source).materialize()
    assert caught.value.variable == "v"


@versions
def test_corrupt_chunks_raise(tmp_path: Path, version: int) -> None:
    rng = np.random.default_rng(0)
    codecs: dict[str, Any] = {"compressors": zarr.codecs.GzipCodec()} if version == 3 else {}
    write(tmp_path / "s", {"v": (("x",), rng.normal(size=100))}, version, **codecs)
    chunk = tmp_path / "s" / "v" / ("0" if version == 2 else "c/0")
    chunk.write_bytes(chunk.read_bytes()[:-40])
    with pytest.raises(DecodeError) as caught:
        read(tmp_path / "s")
    assert (caught.value.variable, caught.value.chunk) == ("v", (0,))


@versions
@pytest.mark.parametrize("codec", ["blosc", "zstd", "gzip", "none"])
def test_a_chunk_cut_anywhere_raises(tmp_path: Path, version: int, codec: str) -> None:
    data = np.random.default_rng(0).integers(0, 4, 64).astype("i4")
    names = {"blosc": "Blosc", "zstd": "Zstd", "gzip": "GZip", "none": ""}
    made = getattr(numcodecs, names[codec])() if codec != "none" else None
    if version == 3 and codec != "none":
        made = getattr(zarr.codecs, f"{codec.capitalize()}Codec")()
    write(tmp_path / "s", {"v": (("x",), data)}, version, compressors=made)
    chunk = tmp_path / "s" / "v" / ("0" if version == 2 else "c/0")
    whole = chunk.read_bytes()
    file = ZarrReader().open(str(tmp_path / "s"))
    for length in range(len(whole)):
        chunk.write_bytes(whole[:length])
        with pytest.raises(DecodeError):
            file.read_chunk(file.arrays["v"], (0,))
    chunk.write_bytes(whole)
    np.testing.assert_array_equal(file.read_chunk(file.arrays["v"], (0,)), data)


# spec: V8.5
def test_a_checksum_that_does_not_match_raises(tmp_path: Path) -> None:
    data = np.arange(10, dtype="f8")
    write(tmp_path / "s", {"v": (("x",), data)}, 3, compressors=zarr.codecs.Crc32cCodec())
    chunk = tmp_path / "s" / "v" / "c" / "0"
    whole = bytearray(chunk.read_bytes())
    whole[3] ^= 1
    chunk.write_bytes(whole)
    with pytest.raises(DecodeError):
        read(tmp_path / "s")


# Dimensions and groups.


@versions
class TestDimensions:
    # spec: V8.8
    def test_nameless_axes_are_named_by_length(self, tmp_path: Path, version: int) -> None:
        arrays = {"a": (None, np.zeros((2, 3))), "b": (None, np.zeros(3)), "c": (("x",), np.zeros(2))}
        write(tmp_path / "s", arrays, version)
        dims = {name: field.dims for name, field in read(tmp_path / "s").variables.items()}
        assert dims == {"a": ("phony_dim_0", "phony_dim_1"), "b": ("phony_dim_1",), "c": ("x",)}

    def test_a_scalar_has_none(self, tmp_path: Path, version: int) -> None:
        write(tmp_path / "s", {"v": ((), np.float64(2.5))}, version)
        field = read(tmp_path / "s")["v"]
        assert (field.dims, field.shape, field.data[()]) == ((), (), 2.5)

    def test_a_dimension_of_length_zero(self, tmp_path: Path, version: int) -> None:
        write(tmp_path / "s", {"v": (("t", "x"), np.zeros((0, 2), "f4"))}, version, chunks=(1, 2))
        assert read(tmp_path / "s")["v"].shape == (0, 2)

    def test_two_lengths_of_one_dimension_are_refused(self, tmp_path: Path, version: int) -> None:
        write(tmp_path / "s", {"a": (("t",), np.zeros(3)), "b": (("t",), np.zeros(2))}, version)
        assert read(tmp_path / "s", "a")["a"].shape == (3,)
        with pytest.raises(FileFormatError, match="'t'"):
            read(tmp_path / "s")


def test_one_v3_name_may_be_missing(tmp_path: Path) -> None:
    write(tmp_path / "s", {"v": (("y", None), np.zeros((2, 3)))}, 3)
    assert read(tmp_path / "s")["v"].dims == ("y", "phony_dim_0")


@versions
@pytest.mark.parametrize("consolidated", [False, True])
class TestGroups:
    def store(self, path: Path, version: int, consolidated: bool) -> Path:
        root = write(
            path, {"lat": (("lat",), np.array([1.0, 2.0])), "lev": (("lev",), np.arange(3.0))}, version
        )
        put(root, "over", ("lat",), np.array([7.0, 8.0]))
        inner = root.create_group("a/b")
        put(inner, "v", ("lat", "lev"), np.arange(4.0).reshape(2, 2))
        put(inner, "over", ("lat",), np.array([5.0, 6.0]))
        if consolidated:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                zarr.consolidate_metadata(root.store)
        return path

    # spec: V8.7
    def test_a_group_sees_its_parents(self, tmp_path: Path, version: int, consolidated: bool) -> None:
        sample = read(self.store(tmp_path / "s", version, consolidated), group="a/b")
        assert sample.variable_names() == ["over", "v"]
        assert sample.coord_names() == ["lat"]  # the root's lev has another length
        np.testing.assert_array_equal(sample["over"].data, [5, 6])
        np.testing.assert_array_equal(sample["lat"].data, [1, 2])
        np.testing.assert_array_equal(sample["v"].data, [[0, 1], [2, 3]])

    def test_the_root_has_its_own(self, tmp_path: Path, version: int, consolidated: bool) -> None:
        assert read(self.store(tmp_path / "s", version, consolidated)).variable_names() == ["over"]

    def test_a_group_that_is_not_there(self, tmp_path: Path, version: int, consolidated: bool) -> None:
        with pytest.raises(SelectionError, match=r"'c'.*\['a'\]"):
            read(self.store(tmp_path / "s", version, consolidated), group="c")

    def test_a_group_by_its_path(self, tmp_path: Path, version: int, consolidated: bool) -> None:
        store = self.store(tmp_path / "s", version, consolidated)
        np.testing.assert_array_equal(read(store / "a" / "b")["v"].data, [[0, 1], [2, 3]])


# The store as a source.


@versions
def test_a_series_of_stores_is_read_in_place_with_brackets_across_the_seam(
    tmp_path: Path, version: int
) -> None:
    for day in (1, 2):
        arrays = {
            "time": (("time",), np.array([0, 12]), {"units": f"hours since 2019-07-0{day}"}),
            "v": (("time", "x"), np.array([[10 * day, 1], [10 * day + 5, 2]])),
        }
        write(tmp_path / f"2019070{day}.zarr", arrays, version)
    temporal = SourceTemporal(
        "2019-07-01", "PT12H", file_period="P1D", end="2019-07-03", records_per_sample=2
    )
    source = DataSource("s", "zarr", str(tmp_path / "%Y%m%d.zarr"), temporal=temporal)
    provider = Provider(source)
    assert provider.store_backed
    noon = datetime.fromisoformat("2019-07-01T12:00+00:00")
    np.testing.assert_array_equal(provider.sample_at(noon)["v"].data, [[15, 2], [20, 1]])
    window = Window({"x": (1, 2)})
    np.testing.assert_array_equal(provider.with_window(window).sample_at(noon)["v"].data, [[2], [1]])


class TestIdentity:
    # spec: P4.1
    def test_a_store_written_anew_is_read_anew(self, tmp_path: Path) -> None:
        write(tmp_path / "s", {"v": (("x",), np.array([1, 2]))}, 2)
        provider = Provider(DataSource("s", "zarr", str(tmp_path / "s")))
        assert provider.array_shape("v") == (2,)
        write(tmp_path / "s", {"v": (("x",), np.array([3, 4, 5]))}, 2)
        assert provider.array_shape("v") == (3,)

    @versions
    def test_it_changes_with_the_metadata_and_not_with_reading(self, tmp_path: Path, version: int) -> None:
        group = write(tmp_path / "s", {"v": (("x",), np.arange(4))}, version, chunks=(2,))
        seen = [ZarrReader().identity(str(tmp_path / "s"))]
        read(tmp_path / "s")
        assert ZarrReader().identity(str(tmp_path / "s")) == seen[0]
        group["v"].resize((6,))
        seen.append(ZarrReader().identity(str(tmp_path / "s")))
        group["v"].attrs["units"] = "m"
        seen.append(ZarrReader().identity(str(tmp_path / "s")))
        put(group, "w", ("x",), np.arange(6))
        seen.append(ZarrReader().identity(str(tmp_path / "s")))
        shutil.rmtree(tmp_path / "s" / "v")
        seen.append(ZarrReader().identity(str(tmp_path / "s")))
        assert len(set(seen)) == 5
        assert all(identity[0] == str(tmp_path / "s") for identity in seen)


class TestZip:
    def zipped(self, store: Path) -> Path:
        packed = store.with_suffix(".zip")
        with zipfile.ZipFile(packed, "w") as archive:
            for path in sorted(store.rglob("*")):
                if path.is_file():
                    archive.write(path, path.relative_to(store))
        return packed

    @versions
    def test_a_store_in_one_file(self, tmp_path: Path, version: int) -> None:
        data = np.arange(12, dtype="f8").reshape(3, 4)
        write(tmp_path / "s", {"v": (("y", "x"), data)}, version, chunks=(2, 2), fill_value=-1)
        hole = tmp_path / "s" / "v" / ("1.1" if version == 2 else "c/1/1")
        hole.unlink()
        expected = data.copy()
        expected[2:, 2:] = np.nan if version == 2 else -1
        np.testing.assert_array_equal(read(self.zipped(tmp_path / "s"))["v"].data, expected)

    def test_sharded(self, tmp_path: Path) -> None:
        store = TestSharded().store(tmp_path)
        np.testing.assert_array_equal(read(self.zipped(store))["v"].data, [0, 1, 2, 3, 4, 5, -1, -1])

    def test_it_is_fetched_like_any_file(self, tmp_path: Path) -> None:
        write(tmp_path / "s", {"v": (("x",), np.arange(3))}, 3)
        url = self.zipped(tmp_path / "s").as_uri()
        np.testing.assert_array_equal(read(url)["v"].data, [0, 1, 2])

    # spec: V8.5
    def test_a_damaged_object_raises(self, tmp_path: Path) -> None:
        write(tmp_path / "s", {"v": (("x",), np.arange(100))}, 3, compressors=None)
        packed = self.zipped(tmp_path / "s")
        whole = bytearray(packed.read_bytes())
        whole[whole.index(np.arange(100).tobytes()) + 17] ^= 255
        packed.write_bytes(whole)
        with pytest.raises(DecodeError):
            read(packed)

    @pytest.mark.parametrize("flags", [b"\x00\x00", b"\x01\x00"], ids=["damaged", "encrypted"])
    def test_a_document_that_zipfile_refuses_is_an_error_of_the_store(
        self, tmp_path: Path, flags: bytes
    ) -> None:
        write(tmp_path / "s", {"v": (("x",), np.arange(3))}, 2)
        packed = self.zipped(tmp_path / "s")
        whole = bytearray(packed.read_bytes())
        whole[whole.index(b'"shape"') + 3] ^= 1
        entry = whole.rindex(b"v/.zarray") - 46  # in the central directory
        assert whole[entry : entry + 4] == b"PK\x01\x02"
        whole[entry + 8 : entry + 10] = flags
        packed.write_bytes(whole)
        with pytest.raises(FileFormatError, match=r"v/\.zarray can't be read from the zip file") as caught:
            read(packed)
        assert caught.value.file == str(packed)


class TestRefused:
    # spec: P3.6
    def test_a_remote_store(self) -> None:
        with pytest.raises(Unsupported, match="store of many objects"):
            read("s3://bucket/store.zarr")

    def test_what_is_no_store(self, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        (tmp_path / "page.zarr").write_text("<html>")
        write(tmp_path / "s", {"v": (("x",), np.arange(3))}, 3)
        for path in ("empty", "page.zarr", "s/v"):
            with pytest.raises(FileFormatError) as caught:
                read(tmp_path / path)
            assert caught.value.file == str(tmp_path / path)

    def test_what_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(MissingFile):
            read(tmp_path / "none.zarr")

    def test_damaged_metadata(self, tmp_path: Path) -> None:
        write(tmp_path / "s", {"v": (("x",), np.arange(3))}, 2)
        document = tmp_path / "s" / "v" / ".zarray"
        whole = document.read_text()
        for text in (whole[:20], "[]", whole.replace('"shape"', '"shap"')):
            document.write_text(text)
            with pytest.raises(FileFormatError, match="v"):
                read(tmp_path / "s")

    def test_options_it_does_not_have(self) -> None:
        with pytest.raises(UnknownReaderOption, match="fill_value_masks"):
            Provider(DataSource("s", "zarr", "x", reader_kwargs={"fill_value_mask": True}))
        with pytest.raises(DeclarationError):
            Provider(DataSource("s", "zarr", "x", reader_kwargs={"fill_value_masks": "yes"}))


def test_importing_the_library_does_not_import_zarr() -> None:
    import subprocess
    import sys

    code = "import sys, earthsciio; earthsciio.ZarrReader(); sys.exit('zarr' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
