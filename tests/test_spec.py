"""The normative text: each of its statements has a test that names it, and its numbers are what comes out."""

import dataclasses
import json
import re
import warnings
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import netCDF4
import numpy as np
import pytest

from earthsciio import (
    DataSource,
    EarthSciIOWarning,
    Provider,
    SelectionRangeError,
    SourceTemporal,
    TimeAxisError,
    Window,
    format_registry,
    store_registry,
    transport_registry,
)
from earthsciio.formats import Reader
from earthsciio.selection import AxesSelection, parse_selection

ROOT = Path(__file__).parents[1]
SPEC = ROOT / "spec"
#: Which page defines the statements of a letter.
PAGES = {
    "P": "provider.md", "S": "selection.md", "V": "values.md", "T": "time.md", "G": "prefetch.md",
    "C": "cache.md", "R": "registries.md",
}  # fmt: skip
_ID = re.compile(r"\[([A-Z]\d+\.\d+)\]")
_NAMED = re.compile(r"spec: ((?:[A-Z]\d+\.\d+(?:, )?)+)")


def _statements():
    return {page: Counter(_ID.findall((SPEC / page).read_text())) for page in PAGES.values()}


def test_every_statement_stands_once_on_the_page_of_its_letter():
    statements = _statements()
    for page, found in statements.items():
        for number, count in found.items():
            if PAGES[number[0]] == page:
                assert count == 1, f"{number} stands {count} times in {page}"
            else:
                assert number in statements[PAGES[number[0]]], (
                    f"{page} refers to {number}, which is not there"
                )
    assert set(PAGES.values()) == {path.name for path in SPEC.glob("*.md")}


def test_every_statement_has_a_test_that_names_it():
    named = {
        number
        for path in (ROOT / "tests").rglob("test_*.py")
        for numbers in _NAMED.findall(path.read_text())
        for number in numbers.split(", ")
    }
    defined = {n for page, found in _statements().items() for n in found if PAGES[n[0]] == page}
    assert len(defined) > 100
    assert defined - named == set(), "statements without a test"
    assert named - defined == set(), "tests of statements that are not there"


# spec: R1.1, R1.2
def test_registries_json_is_what_is_registered():
    listed = json.loads((SPEC / "registries.json").read_text())
    assert listed["transports"] == list(transport_registry.names())
    assert listed["stores"] == list(store_registry.names())
    assert list(listed["formats"]) == list(format_registry.names())
    shared = {option.name for option in dataclasses.fields(Reader)}
    for name, entry in listed["formats"].items():
        reader = format_registry.get(name)
        assert entry["reader"] == reader.__name__
        assert entry["store_backed"] == reader.store_backed
        assert entry["supports_selection"] == reader.supports_selection
        options = {option.name: option.default for option in dataclasses.fields(reader)}
        assert entry["options"] == json.loads(json.dumps(options))
        assert shared <= set(options)
        text = (SPEC / "registries.md").read_text() + (SPEC / "values.md").read_text()
        assert [option for option in options if f"`{option}`" not in text] == []
    assert all(entry["select"] == ["axes", "dims"] for entry in listed["formats"].values())
    forms = [parse_selection(form) for form in ({"axes": ["all"]}, {"dims": {}})]
    assert [type(form) for form in forms] == [AxesSelection, Window]


# The worked numbers


@pytest.fixture
def wrap(tmp_path):
    with netCDF4.Dataset(tmp_path / "wrap.nc", "w") as file:
        for dim, values in (("lat", [10, 0, -10, -20, -30]), ("lon", np.arange(8) * 45)):
            file.createDimension(dim, len(values))
            file.createVariable(dim, "f8", (dim,))[:] = values
        v = file.createVariable("v", "i2", ("lat", "lon"))
        v.set_auto_maskandscale(False)
        v.missing_value = np.int16(9)
        v[:] = np.arange(40).reshape(5, 8)
    return Provider(DataSource("wrap", "netcdf", str(tmp_path / "wrap.nc")))


# spec: S1.2, S1.4, S1.5
def test_selections_of_the_spec(wrap):
    def read(**dims):
        return wrap.with_window({"dims": dims}).materialize()

    assert read(lon={"indices": [6, 7, 0, 1]})["lon"].data.tolist() == [270, 315, 0, 45]
    for empty in ({"slice": [5, 5]}, {"slice": [2, 2]}, {"indices": []}):
        assert read(lat=empty)["v"].shape == (0, 8)
        assert read(lat=empty)["v"].dtype == np.float64
    assert read(lat={"indices": [3]})["v"].shape == (1, 8)
    for wrong in ([0, 10], [7, 9], [6, 6], {"indices": [-1]}, {"indices": [5]}):
        with pytest.raises(SelectionRangeError, match="lat"):
            read(lat={"slice": wrong} if isinstance(wrong, list) else wrong)


# spec: S3.3, S3.4, S3.5
def test_windows_of_the_spec():
    assert Window({"x": (0, 2)}).union(Window({"x": (5, 7)}))["x"] == [0, 1, 5, 6]
    grown = Window({"x": (0, 2)})
    assert grown.grow({"x": 1}, sizes={"x": 8})["x"] == (0, 3)
    assert grown.grow({"x": 1}, sizes={"x": 8}, periodic=["x"])["x"] == [7, 0, 1, 2]
    assert Window.from_bounds({"lon": np.arange(4) * 90.0}, lon=(-90, 90))["lon"] == [3, 0, 1]


# spec: V2.7
def test_missing_is_the_quiet_nan(wrap, tmp_path):
    assert wrap.materialize()["v"].data[1, 1:2].view("u8").tolist() == [0x7FF8000000000000]
    with netCDF4.Dataset(tmp_path / "single.nc", "w") as file:
        file.createDimension("x", 1)
        file.createVariable("v", "f4", ("x",), fill_value=-1.0)[:] = [-1.0]
    source = DataSource(
        "single", "netcdf", str(tmp_path / "single.nc"), reader_kwargs={"precision": "source"}
    )
    assert Provider(source).materialize()["v"].data.view("u4").tolist() == [0x7FC00000]


@pytest.fixture
def stored(tmp_path):
    """Write one variable ``v`` over ``n`` and read it."""

    def read(raw, *, warns=0, options=None, **attrs):
        path = tmp_path / "stored.nc"
        path.unlink(missing_ok=True)
        with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC") as file:
            file.createDimension("n", len(raw))
            v = file.createVariable("v", raw.dtype, ("n",), fill_value=attrs.pop("_FillValue", None))
            v.set_auto_maskandscale(False)
            v.setncatts(attrs)
            v[:] = raw
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found = Provider(DataSource("s", "netcdf", str(path), reader_kwargs=options or {})).materialize()
        assert [each.category for each in said] == [EarthSciIOWarning] * warns
        return found["v"]

    return read


# spec: V2.2, V2.3, V5.1
def test_masks_of_the_spec(stored):
    raw = np.array([1, 2, 3], "i2")
    part = stored(raw, missing_value=np.array([1, 99999], "i4"), warns=1)
    np.testing.assert_array_equal(part.data, [np.nan, 2, 3])
    assert part.attrs == {}  # its other element counted
    none = stored(raw, missing_value=np.array([1.5, np.nan]), units="K", warns=1)
    assert (none.dtype, none.data.tolist(), sorted(none.attrs)) == (
        np.int16,
        [1, 2, 3],
        ["missing_value", "units"],
    )
    zeros = stored(np.array([0.0, -0.0, 1.0]), missing_value=0.0)
    np.testing.assert_array_equal(zeros.data, [np.nan, np.nan, 1])


# spec: V2.5
def test_bounds_of_the_spec(stored):
    raw, option = np.array([1, 2, 3, 20], "i2"), {"mask_valid_range": True}
    bounds = {"valid_range": np.array([3, 10], "i2"), "valid_min": np.int16(2)}
    assert stored(raw, **bounds).data.tolist() == raw.tolist()
    np.testing.assert_array_equal(stored(raw, options=option, **bounds).data, [np.nan, 2, 3, np.nan])
    three = stored(raw, options=option, valid_range=np.array([3, 10, 11], "i2"), warns=1)
    assert (three.dtype, three.data.tolist()) == (np.int16, raw.tolist())


# spec: V3.1, V4.2, V4.4
def test_packing_of_the_spec(stored):
    raw = np.array([23], "i2")
    packed = stored(raw, scale_factor=0.001, add_offset=0.007)
    assert (packed.dtype, packed.data[0]) == (np.float64, 23 * 0.001 + 0.007)
    single = {"scale_factor": np.float32(0.1), "add_offset": np.float32(0.3)}
    wide = 23 * float(np.float32(0.1)) + float(np.float32(0.3))
    assert stored(raw, **single).data[0] == wide
    narrow = stored(raw, options={"precision": "source"}, **single)
    assert (narrow.dtype, narrow.data[0]) == (np.float32, np.float32(wide))
    half = stored(raw, options={"precision": "source"}, scale_factor=np.float32(0.1), add_offset=0.3)
    assert half.dtype == np.float64
    assert stored(raw.astype("i4"), options={"precision": "source"}, **single).dtype == np.float64
    assert stored(raw, options={"precision": "source"}, _FillValue=np.int16(0)).dtype == np.float64


# spec: T2.1
def test_the_time_coordinate_of_the_spec(tmp_path):
    def write(*standard, coordinates=""):
        (tmp_path / "t.nc").unlink(missing_ok=True)
        with netCDF4.Dataset(tmp_path / "t.nc", "w", format="NETCDF3_CLASSIC") as file:
            file.createDimension("record", 1)
            for day, name in enumerate(("early", "late"), 1):
                time = file.createVariable(name, "f8", ("record",))
                time.units = f"days since 2020-01-{day:02d}"
                time[:] = 0
                if name in standard:
                    time.standard_name = "time"
            v = file.createVariable("v", "f8", ("record",))
            v.coordinates = coordinates
            v[:] = 1
        times = SourceTemporal("2020-01-01", "P2D", time_dim="record")
        source = DataSource("t", "netcdf", str(tmp_path / "t.nc"), ("v",), times)
        return Provider(source).sample_at(datetime(2020, 1, 1, tzinfo=UTC)).times[0].day

    assert write(coordinates="late") == 2
    assert write("early", coordinates="late") == 2
    assert write("early") == 1
    assert write("late", coordinates="early late") == 2
    for standard in ((), ("early", "late")):
        with pytest.raises(TimeAxisError, match=r"early.*late"):
            write(*standard)


# spec: T1.1, T3.1, P1.2
def test_times_and_urls_of_the_spec():
    monthly = SourceTemporal("2019-01-28", "P1M").cadence
    dates = [monthly.calendar.time(monthly.anchor(k)).date().isoformat() for k in range(3)]
    assert dates == ["2019-01-28", "2019-02-28", "2019-03-28"]
    assert SourceTemporal("2020-01-01", "PT3H").cadence.tolerance(0) == timedelta(minutes=9) / timedelta(
        microseconds=1
    )
    source = DataSource("a", "netcdf", "a%20b/%Y%m.nc")
    assert source.resolve_url(datetime(2019, 7, 1, tzinfo=UTC)) == "a%20b/201907.nc"
