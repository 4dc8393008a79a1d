"""The provider: reads without state, refreshes in place, Windows together, metadata by itself."""

import threading
from concurrent.futures import ThreadPoolExecutor

import netCDF4
import numpy as np
import pytest
from series_files import DAY, HOUR, daily_files, dated, first, provider, utc

import earthsciio
import earthsciio.recordreader
from earthsciio import (
    BackendNotRegistered,
    DataSource,
    DeclarationError,
    EarthSciIOError,
    NativeDataset,
    Provider,
    Registry,
    SelectionRangeError,
    SourceTemporal,
    UnknownReaderOption,
    Window,
)
from earthsciio.formats import files

START = utc(2020, 1, 1)


@pytest.fixture
def source(tmp_path):
    return provider(
        daily_files(tmp_path, 3), START, "PT3H", file_period="P1D", end=START + 3 * DAY, records_per_sample=2
    )


@pytest.fixture
def wide(tmp_path):
    """Chunked, compressed and packed fields of three records."""
    rng = np.random.default_rng(0)
    with netCDF4.Dataset(tmp_path / "wide.nc", "w") as file:
        for dim, size in (("time", 3), ("lev", 4), ("lat", 9), ("lon", 10)):
            file.createDimension(dim, size)
            file.createVariable(dim, "f8", (dim,))[:] = np.arange(size)
        file["time"].units = "hours since 2020-01-01"
        options = {"zlib": True, "shuffle": True}
        t = file.createVariable("t", "i2", ("time", "lev", "lat", "lon"), chunksizes=(1, 2, 4, 3), **options)
        t.set_auto_maskandscale(False)
        t.setncatts({"scale_factor": 0.1, "missing_value": np.int16(7)})
        t[:] = rng.integers(0, 20, (3, 4, 9, 10))
        ps = file.createVariable("ps", "f4", ("time", "lat", "lon"), chunksizes=(1, 5, 5), **options)
        ps[:] = rng.normal(size=(3, 9, 10))
    return provider(tmp_path / "wide.nc", START, "PT1H", variables=("t", "ps"), records_per_sample=2)


def same(one, other):
    """Whether two samples are equal in every bit, attribute and name."""
    fields = [(dict(d.variables), dict(d.coords)) for d in (one, other)]
    return one.times == other.times and all(
        list(mine) == list(theirs)
        and all(
            mine[name].dims == theirs[name].dims
            and mine[name].attrs == theirs[name].attrs
            and mine[name].dtype == theirs[name].dtype
            and mine[name].shape == theirs[name].shape
            and mine[name].data.tobytes() == theirs[name].data.tobytes()
            for name in mine
        )
        for mine, theirs in zip(*fields, strict=True)
    )


# Equal values, however they were asked for


WINDOWS = [
    {"dims": {}},
    {"dims": {"lat": (0, 3), "lon": (0, 3)}},
    Window({"lat": (6, 9), "lon": (7, 10)}),
    Window({"lat": [8, 0, 0, 4], "lev": (1, 4, 2)}),
    {"dims": {"lon": [9, 0, 1], "lat": (5, 5)}},
    {"axes": ["all", "all", [3, 2], "all"]},
]


# spec: P2.6
def test_several_windows_at_once_equal_one_at_a_time(wide):
    for t in (START, START + HOUR, START + 2 * HOUR):
        together = wide.sample_windows_at(t, WINDOWS)
        assert len(together) == len(WINDOWS)
        for window, found in zip(WINDOWS, together, strict=True):
            assert same(found, wide.with_window(window).sample_at(t))
    assert wide.sample_windows_at(START, []) == []


# spec: P2.6
def test_each_touched_chunk_is_read_once_for_all_windows_and_no_other(wide, monkeypatch):
    monkeypatch.setattr(earthsciio.recordreader, "decode_arrays", _reference_only)
    read = []
    kept = files.lease

    class Spy:
        def __init__(self, file):
            self.file = file

        def __getattr__(self, name):
            return getattr(self.file, name)

        def read_chunk(self, info, chunk):
            read.append((info.name, chunk))
            return self.file.read_chunk(info, chunk)

    from contextlib import contextmanager

    @contextmanager
    def spying(reader, path):
        with kept(reader, path) as lease:
            yield files.Lease(Spy(lease.file), lease.identity)

    single = Provider(DataSource("s", "netcdf", wide.loader.url, ("ps",), SourceTemporal(START, "PT1H")))
    single.sample_at(START)  # the time axis is read once per file
    monkeypatch.setattr(files, "lease", spying)
    corner, opposite = {"dims": {"lat": (0, 2), "lon": (0, 2)}}, {"dims": {"lat": (7, 9), "lon": (8, 10)}}
    single.sample_windows_at(START, [corner, corner, opposite])
    fields = [chunk for name, chunk in read if name == "ps"]
    assert sorted(fields) == [(0, 0, 0), (0, 1, 1)]
    assert len(read) == len(set(read))


def _reference_only(file, requests, abort, **options):
    from earthsciio.decode.reference import decode_reference
    from earthsciio.decode.run import DecodeReport

    return DecodeReport(decode_reference(file, requests, abort))


# spec: P2.4, P2.8
def test_refresh_equals_sample_at_in_any_order(wide):
    for t in (START, START + 2 * HOUR, START + HOUR, START, START + 2.5 * HOUR):
        assert same(wide.refresh(t), wide.sample_at(t))


# Refresh


# spec: P2.4
def test_refresh_writes_in_place_so_that_views_stay_live(source):
    held = source.refresh(START)
    view = held["v"].data[:, 0]
    for tick in (5, 3, 8, 23, 0):
        found = source.refresh(START + 3 * tick * HOUR)
        assert found["v"].data is held["v"].data
        assert found["time"].data is held["time"].data
        assert view.tolist() == [tick, min(tick + 1, 23)]


# spec: P2.4
def test_refresh_updates_nothing_if_it_raises(source, tmp_path):
    held = source.refresh(START)
    before = held["v"].data.copy()
    (tmp_path / "20200102.nc").unlink()
    for t in (START + DAY, START - HOUR, START + 9 * DAY):
        with pytest.raises(EarthSciIOError):
            source.refresh(t)
        assert np.array_equal(held["v"].data, before)
        assert source.coords["time"].data is held["time"].data


# spec: P2.4
def test_refresh_updates_nothing_if_only_the_last_variable_fails(tmp_path):
    for day in (1, 2):
        with netCDF4.Dataset(tmp_path / f"2020010{day}.nc", "w") as file:
            file.createDimension("time", 1)
            file.createVariable("time", "i4", ("time",))[:] = day - 1
            file["time"].units = "days since 2020-01-01"
            file.createVariable("a", "f8", ("time",))[:] = day
            b = file.createVariable("b", "i8", ("time",), fill_value=-1)
            b[:] = 2**53 + day - 1  # the second has no exact float64
    times = {"file_period": "P1D", "end": START + 2 * DAY}
    source = provider(tmp_path / "%Y%m%d.nc", START, "P1D", variables=("a", "b"), **times)
    held = source.refresh(START)
    with pytest.raises(earthsciio.DecodeError, match="variable=b"):
        source.refresh(START + DAY)
    assert held["a"].data == 1


# spec: P2.5
def test_refresh_with_select_peeks_and_touches_no_buffer(source):
    held = source.refresh(START)
    peek = source.refresh(START + 3 * HOUR, select={"dims": {"x": [1]}})
    assert peek["v"].data.tolist() == [[1.5], [2.5]]
    assert first(held) == [0, 1]
    assert source.refresh(START)["v"].data is held["v"].data


# spec: P2.4
def test_a_refresh_of_another_shape_brings_new_arrays(tmp_path):
    for day in (1, 2):
        dated(tmp_path / f"2020010{day}.nc", [24 * (day - 1)], [day])
    with netCDF4.Dataset(tmp_path / "20200102.nc", "a") as file:
        file["static"].setncattr("missing_value", 8.0)
    source = provider(
        tmp_path / "%Y%m%d.nc",
        START,
        "P1D",
        variables=("v", "static"),
        file_period="P1D",
        end=START + 2 * DAY,
    )
    held = source.refresh(START)
    found = source.refresh(START + DAY)
    assert found["static"].data is held["static"].data
    assert np.isnan(found["static"].data[1])
    assert "missing_value" not in found["static"].attrs


# Sampling


# spec: P2.3
def test_sample_at_returns_arrays_nobody_else_writes(source):
    one = source.sample_at(START)
    again = source.sample_at(START)
    source.refresh(START)
    again["v"].data[:] = -1
    source.refresh(START + 3 * HOUR)
    assert first(one) == [0, 1]
    assert one["v"].data.flags.writeable
    assert not np.shares_memory(one["v"].data, again["v"].data)


# spec: P2.3, P2.8
def test_sample_at_may_run_on_many_threads_at_once(source, wide):
    ticks = [*range(24), *reversed(range(24))] * 2
    expected = {t: wide.sample_at(START + t * HOUR) for t in range(3)}
    start = threading.Barrier(8)

    def walk(k):
        start.wait()
        for tick in ticks[k:] + ticks[:k]:
            assert first(source.sample_at(START + 3 * tick * HOUR)) == [tick, min(tick + 1, 23)]
            assert same(wide.sample_at(START + (tick % 3) * HOUR), expected[tick % 3])
        return k

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(walk, range(8))) == list(range(8))


# CONST


# spec: P3.1
def test_a_constant_is_read_once_and_has_no_times(tmp_path):
    path = dated(tmp_path / "a.nc", [0, 3], [0, 1])
    const = Provider(DataSource("c", "netcdf", str(path), ("v", "static")))
    assert const.is_const
    assert const.refresh_times() == []
    held = const.materialize()
    assert held.times == ()
    assert held["v"].dims == ("time", "x")
    assert const.refresh(START) is held
    assert const.refresh(None) is held
    assert const.array_shape("v") == (2, 2)
    assert const.with_window({"dims": {"x": [1]}}).materialize()["static"].data.tolist() == [8]
    assert const.refresh(None, select={"dims": {"x": [1]}})["static"].data.tolist() == [8]


# Metadata alone


# spec: P3.4
def test_array_shape_is_what_a_sample_has(wide):
    for window in WINDOWS:
        bound = wide.with_window(window)
        sample = bound.sample_at(START)
        for name in [*sample.variable_names(), *sample.coord_names()]:
            assert bound.array_shape(name) == sample[name].shape, name
    with pytest.raises(KeyError, match="nothing"):
        wide.array_shape("nothing")


# spec: P3.4
def test_array_shape_and_coords_decode_no_field(tmp_path):
    path = dated(tmp_path / "a.nc", [0], [0], chunksizes=(1, 2), fletcher32=True)
    import h5py

    with h5py.File(path) as file:
        chunk = file["v"].id.get_chunk_info(0)
    data = bytearray(path.read_bytes())
    data[chunk.byte_offset] ^= 1
    path.write_bytes(data)
    source = provider(path, START, "PT3H")
    assert source.array_shape("v") == (2,)
    assert source.coords["x"].data.tolist() == [10, 20]
    with pytest.raises(earthsciio.DecodeError):
        source.sample_at(START)


# spec: P3.4
def test_coords_are_those_of_the_last_refresh(source):
    assert source.coords["x"].data.tolist() == [10, 20]
    source.refresh(START + 3 * HOUR)
    assert source.coords["time"].data.tolist() == [1577836800 + 3 * 3600, 1577836800 + 6 * 3600]


# spec: P3.2
def test_materialize_reads_the_first_sample_of_the_time_range(source):
    assert first(source.materialize()) == [0, 1]
    later = Provider(source.loader, window=(START + DAY + HOUR, START + 2 * DAY))
    assert first(later.materialize()) == [8, 9]
    early = Provider(source.loader, window=(START - 5 * DAY, START + 2 * DAY))
    assert first(early.materialize()) == [0, 1]


# spec: P3.3
def test_refresh_times_are_the_anchors_inside_the_time_range(source):
    assert source.refresh_times() == [START + 3 * k * HOUR for k in range(24)]
    part = Provider(source.loader, window=(START + HOUR, START + 9 * HOUR))
    assert part.refresh_times() == [START + 3 * HOUR, START + 6 * HOUR]
    assert Provider(source.loader, window=("2020-01-03T21:00", None)).refresh_times() == [START + 69 * HOUR]
    endless = provider("never.nc", START, "PT3H")
    with pytest.raises(DeclarationError, match="end"):
        endless.refresh_times()


# Prefetch


def _fetching(tmp_path, files_url):
    cache = earthsciio.Cache(root=tmp_path / "cache")
    temporal = SourceTemporal(START, "PT3H", "P1D", START + 3 * DAY, records_per_sample=2)
    return Provider(DataSource("s", "netcdf", f"file://{files_url}", ("v",), temporal), cache), cache


# spec: P3.5
def test_prefetch_warms_the_cache_for_a_time_range_and_decodes_nothing(tmp_path):
    url = daily_files(tmp_path / "files", 3)
    (tmp_path / "files" / "20200101.nc").write_bytes(b"never looked at")
    source, _ = _fetching(tmp_path, url)
    assert source.prefetch((START, START + DAY)) == 2  # the successor of the last record too
    for path in (tmp_path / "files").iterdir():
        path.unlink()
    offline = Provider(source.loader, earthsciio.Cache(root=tmp_path / "cache", offline=True))
    assert first(offline.sample_at(START + DAY)) == [8, 9]
    with pytest.raises(earthsciio.CacheMiss):
        offline.sample_at(START + 2 * DAY)


# spec: P3.5
def test_prefetch_takes_the_provider_s_own_range_by_default(tmp_path):
    url = daily_files(tmp_path / "files", 3)
    source, cache = _fetching(tmp_path, url)
    assert source.prefetch() == 3
    ranged = Provider(source.loader, cache, window=(START + DAY + HOUR, START + DAY + 2 * HOUR))
    assert ranged.prefetch() == 1
    assert source.prefetch((START - 9 * DAY, START + HOUR)) == 1  # there is nothing before the start


def test_errors_of_fetched_files_say_where_they_came_from(tmp_path):
    url = daily_files(tmp_path / "files", 1)
    (tmp_path / "files" / "20200101.nc").write_bytes(b"<html>")
    source, _ = _fetching(tmp_path, url)
    with pytest.raises(earthsciio.FileFormatError) as caught:
        source.sample_at(START)
    text = str(caught.value) + "".join(getattr(caught.value, "__notes__", []))
    assert "20200101.nc" in text


# Declarations


# spec: P1.3
def test_a_format_or_option_that_is_not_there_fails_at_construction():
    with pytest.raises(BackendNotRegistered, match="netcdf"):
        Provider(DataSource("s", "netcfd", "a.nc"))
    with pytest.raises(UnknownReaderOption, match="precision"):
        Provider(DataSource("s", "netcdf", "a.nc", reader_kwargs={"precison": "source"}))
    with pytest.raises(ValueError, match="precision"):
        Provider(DataSource("s", "netcdf", "a.nc", reader_kwargs={"precision": "float16"}))
    with pytest.raises(ValueError, match="axes"):
        Provider(DataSource("s", "netcdf", "a.nc", reader_kwargs={"select": {"lat": (0, 1)}}))
    with pytest.raises(BackendNotRegistered):
        Provider(DataSource("s", "netcdf", "a.nc"), formats=Registry("format"))


# spec: P1.2
def test_urls_are_literals_templates_or_functions():
    t = utc(2020, 2, 3, 4)
    url = lambda template: DataSource("s", "netcdf", template).resolve_url(t)
    assert url("/data/a.nc") == "/data/a.nc"
    assert url("/data/%Y/%m/a.%Y%m%d_%H.nc") == "/data/2020/02/a.20200203_04.nc"
    assert url("http://host/a%20b/%Y.nc") == "http://host/a%20b/2020.nc"
    assert url("http://host/a%20b.nc") == "http://host/a%20b.nc"
    assert url("100%%_%Y.nc") == "100%_2020.nc"
    assert url(lambda t: f"{t.month}.nc") == "2.nc"
    assert DataSource("s", "netcdf", "%Y.nc").resolve_url(utc(200, 1, 1)) == "0200.nc"
    assert DataSource("s", "netcdf", "%Y.nc").resolve_url() == "%Y.nc"


# spec: P1.3
def test_a_declaration_that_contradicts_itself_is_refused():
    for bad in (
        lambda: DataSource("s", "netcdf", "a.nc", "uwnd"),
        lambda: DataSource("s", "netcdf", "a.nc", ("u", "u")),
        lambda: SourceTemporal("2020-01-01", "P1D", records_per_sample=3),
        lambda: SourceTemporal("2020-13-01", "P1D"),
        lambda: SourceTemporal("yesterday", "P1D"),
        lambda: SourceTemporal("2020-01-01", "daily"),
        lambda: SourceTemporal("2020-01-01", "P1D", end="2019-01-01"),
        lambda: SourceTemporal("2020-01-31", "P1M"),
        lambda: SourceTemporal("2020-01-01", "P1D", outside="wrap"),
    ):
        with pytest.raises(DeclarationError) as caught:
            bad()
        assert isinstance(caught.value, ValueError)


def test_samples_convert_to_xarray_without_a_copy(wide):
    sample = wide.sample_at(START)
    xr = earthsciio.to_xarray(sample)
    assert dict(xr.sizes) == {"time": 2, "lev": 4, "lat": 9, "lon": 10}
    assert np.shares_memory(xr["t"].values, sample["t"].data)
    assert xr["ps"].dims == ("time", "lat", "lon")


# spec: P2.1
def test_a_dataset_is_a_plain_mapping_of_names(wide):
    sample = wide.sample_at(START)
    assert isinstance(sample, NativeDataset)
    assert list(sample) == sample.variable_names() == ["t", "ps"]
    assert len(sample) == 2
    assert "t" in sample
    assert "lat" in sample
    assert "nothing" not in sample
    with pytest.raises(KeyError, match="nothing"):
        sample["nothing"]


def test_a_window_out_of_bounds_is_found_before_any_sample_of_the_others(wide):
    with pytest.raises(SelectionRangeError):
        wide.sample_windows_at(START, [{"dims": {}}, {"dims": {"lat": (0, 10)}}])
