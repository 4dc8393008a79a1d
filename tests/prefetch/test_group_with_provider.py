"""A group over real providers gives, bit for bit, what their refresh gives."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import netCDF4
import numpy as np
import pytest

from earthsciio import DataSource, Provider, SourceTemporal
from earthsciio.errors import SelectionRangeError
from earthsciio.fields import NativeDataset
from earthsciio.prefetch import PrefetchGroup
from earthsciio.selection import Window

START = datetime(2021, 3, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """Three days of 6-hourly winds (chunks that span records) and a year of monthly means."""
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(7)
    for day in range(3):
        with netCDF4.Dataset(folder / f"wind_202103{day + 1:02d}.nc", "w") as file:
            for name, size in (("time", 4), ("lat", 6), ("lon", 8)):
                file.createDimension(name, size)
                file.createVariable(name, "f8", (name,))[:] = np.arange(size) * (6 if name == "time" else 1.5)
            file["time"].units = f"hours since 2021-03-{day + 1:02d}"
            u = file.createVariable("u", "f4", ("time", "lat", "lon"), zlib=True, chunksizes=(2, 3, 8))
            u[:] = rng.normal(size=(4, 6, 8))
            packed = file.createVariable("t", "i2", ("time", "lat", "lon"), zlib=True, fill_value=-9)
            packed.set_auto_maskandscale(False)
            packed.setncatts({"scale_factor": 0.5, "add_offset": 10.0 * day})
            packed[:] = rng.integers(-9, 9, size=(4, 6, 8))
    with netCDF4.Dataset(folder / "clim.nc", "w") as file:
        file.createDimension("time", 12)
        file.createDimension("x", 5)
        time = file.createVariable("time", "f8", ("time",))
        time.units = "days since 2000-01-01"
        time[:] = [(datetime(2000, month, 1) - datetime(2000, 1, 1)).days for month in range(1, 13)]  # noqa: DTZ001
        file.createVariable("q", "f8", ("time", "x"))[:] = rng.normal(size=(12, 5))
    return folder


def wind(files: Path, *, bracket: bool) -> Provider:
    temporal = SourceTemporal(
        start=START,
        frequency="PT6H",
        file_period="P1D",
        end=START + timedelta(days=3),
        records_per_sample=2 if bracket else None,
    )
    return Provider(DataSource("wind", "netcdf", str(files / "wind_%Y%m%d.nc"), temporal=temporal))


def climate(files: Path) -> Provider:
    temporal = SourceTemporal(
        start=datetime(2000, 1, 1, tzinfo=UTC),
        frequency="P1M",
        file_period="P1Y",
        end=datetime(2001, 1, 1, tzinfo=UTC),
        records_per_sample=2,
        outside="cycle",
    )
    return Provider(DataSource("clim", "netcdf", str(files / "clim.nc"), temporal=temporal))


def assert_same(ours: NativeDataset, theirs: NativeDataset) -> None:
    assert ours.times == theirs.times
    assert ours.variable_names() == theirs.variable_names()
    assert ours.coord_names() == theirs.coord_names()
    for name in (*ours.variable_names(), *ours.coord_names()):
        a, b = ours[name], theirs[name]
        assert (a.dims, a.dtype, a.shape) == (b.dims, b.dtype, b.shape)
        assert a.attrs.keys() == b.attrs.keys()
        assert a.data.tobytes() == b.data.tobytes(), name


@pytest.mark.parametrize("order", ["forward", "reverse", [0, 5, 5, 0, 11, 1, 10, 0]])
@pytest.mark.parametrize("bracket", [False, True])
@pytest.mark.parametrize(
    "mode", [{"workers": 0}, {"depth": 2}, {"depth": 4, "workers": 3}, {"max_bytes": 1, "workers": 2}]
)
def test_take_equals_refresh_bitwise(files, order, bracket, mode):
    members = {"wind": wind(files, bracket=bracket), "clim": climate(files)}
    with PrefetchGroup(members, **mode) as group:
        boundaries = group.boundaries()
        assert boundaries == [START + k * 6 * HOUR for k in range(12)]
        group.start(order)
        epochs = {"forward": range(12), "reverse": range(11, -1, -1)}.get(str(order), order)
        taken = [(k, group.take(k)) for k in epochs]
        stats = group.stats()
    for k, epoch in taken:
        assert_same(epoch["wind"].data, wind(files, bracket=bracket).refresh(boundaries[k]))
        assert_same(epoch["clim"].data, climate(files).refresh(boundaries[k]))
    if order in ("forward", "reverse") and "max_bytes" not in mode:
        assert stats.members["wind"].records_decoded == 12
        assert stats.members["clim"].records_decoded == 2
    assert stats.bytes_in > 0


def test_windows_equal_windowed_refreshes(files):
    windows = [Window({"lat": (1, 4)}), Window({"lon": [7, 0, 1], "lat": (0, 2)})]
    with PrefetchGroup({"wind": wind(files, bracket=True)}, windows=windows, workers=2) as group:
        group.start("reverse")
        for k in range(11, -1, -1):
            data = group.take(k)["wind"].data
            for one, window in zip(data, windows, strict=True):
                alone = wind(files, bracket=True).with_window(window)
                assert_same(one, alone.refresh(group.boundaries()[k]))


def test_errors_are_those_of_refresh(files, tmp_path):
    for day in (1, 3):
        (tmp_path / f"wind_2021030{day}.nc").symlink_to(files / f"wind_2021030{day}.nc")
    provider = wind(tmp_path, bracket=False)
    with pytest.raises(Exception, match="wind_20210302") as alone:
        provider.refresh(START + 24 * HOUR)
    with PrefetchGroup({"wind": provider}) as group:
        group.start("forward")
        for k in range(4):
            group.take(k)
        with pytest.raises(type(alone.value), match="wind_20210302"):
            group.take(4)
        group.start("forward", from_=8)
        assert_same(group.take(8)["wind"].data, provider.refresh(START + 48 * HOUR))


def test_a_window_that_does_not_fit_is_an_error_of_the_take(files):
    with PrefetchGroup({"wind": wind(files, bracket=False)}, windows=[Window({"lat": (0, 7)})]) as group:
        group.start("forward")
        with pytest.raises(SelectionRangeError):
            group.take(0)


@pytest.mark.parametrize("bracket", [False, True])
def test_the_account_is_exact_but_for_a_brackets_two_times(files, bracket):
    with PrefetchGroup({"wind": wind(files, bracket=bracket)}, max_bytes=1) as group:
        group.start("forward")
        sizes = []
        for k in range(12):
            data = group.take(k)["wind"].data
            sizes.append(data.nbytes)
        records = 6 * 8 * 16 + 8 * 14
        assert group.stats().peak_bytes <= (2 * records + sizes[0] if bracket else records) + 16
