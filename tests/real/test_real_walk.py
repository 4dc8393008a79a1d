"""The walk over real files can fail: of series written here it passes the good, and names what is off."""

import zipfile
from dataclasses import replace

import cftime
import netCDF4
import numpy as np
import pytest
from catalogue import Series, cmip6, fetched
from truth import Expected
from walk import difference, walk

from earthsciio import FetchError, NativeDataset, NativeField, Provider
from integrator.demo.wheels import Wheel

MONTHS = 12


def _year(folder, year):
    """Write a year of monthly means, as CMIP6 names and dates them: noleap, stamps amid the month."""
    path = folder / f"ta_Amon_M_historical_r1i1p1f1_gn_{year}01-{year}12.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", MONTHS)
        file.createDimension("lat", 2)
        file.createVariable("lat", "f4", ("lat",))[:] = [-45, 45]
        time = file.createVariable("time", "f8", ("time",))
        time.units, time.calendar = "days since 1950-01-01", "365_day"
        time[:] = (year - 1950) * 365 + 15 + np.arange(MONTHS) * 30.4
        ta = file.createVariable("ta", "f4", ("time", "lat"), fill_value=-1)
        ta[:] = np.arange(2 * MONTHS).reshape(MONTHS, 2) - 1 + year
    return path


@pytest.fixture
def series(tmp_path):
    for year in (1950, 1951, 1952):
        _year(tmp_path, year)
    (found,) = cmip6(tmp_path)
    return found


def test_series_of_cmip6_are_declared_from_their_file_names(series):
    assert list(series.files) == ["1950-01-01", "1951-01-01", "1952-01-01"]
    assert (series.frequency, series.file_period, series.end) == ("P1M", "P1Y", "1953-01-01")
    assert series.calendar == "365_day"


def test_a_healthy_series_is_walked_whole(series):
    outcome = walk(series)
    assert (outcome.fault, outcome.skipped, outcome.warned) == ("", "", [])
    assert outcome.records == 3 * MONTHS
    # whole files; three ways, two orders; brackets by a group; at both ends of a file in two ways more
    assert outcome.compared == 3 + 6 * 36 + 36 + 2 * 6


def test_one_wrong_bit_of_one_record_is_found_and_named(series, monkeypatch):
    sample_at = Provider.sample_at

    def wrong(self, t):
        sample = sample_at(self, t)
        if (t.year, t.month) == (1951, 3):
            sample["ta"].data[1:] = np.nextafter(sample["ta"].data[1:], 0)
        return sample

    monkeypatch.setattr(Provider, "sample_at", wrong)
    fault = walk(series).fault
    assert "record 2 of ta_Amon_M_historical_r1i1p1f1_gn_195101-195112.nc, refresh forward: ta[1] is" in fault


def test_a_record_of_another_time_is_found(series):
    first, second, third = series.files.values()
    swapped = dict(zip(series.files, (first, third, second), strict=True))
    fault = walk(replace(series, files=swapped)).fault
    assert fault.startswith("record 0 of ta_Amon_M_historical_r1i1p1f1_gn_195201-195212.nc is of 1952-01-16")
    assert fault.endswith("its anchor 1951-01-01 00:00:00")


def test_records_without_an_anchor_are_found(series):
    assert walk(replace(series, end="1952-12-01")).fault == "35 anchors, but the files hold 36 records"


def test_differences_are_told_apart():
    stamp = cftime.datetime(1950, 1, 1, calendar="noleap")
    expected = Expected({"v": (("x",), np.array([0.0, np.nan]))}, {}, (stamp,))

    def sample(values, dims=("x",), times=(stamp,), coords=None):
        return NativeDataset({"v": NativeField(np.array(values), dims)}, coords or {}, times)

    assert difference(sample([0.0, np.nan]), expected) == ""
    assert difference(sample([-0.0, np.nan]), expected).startswith("v[0] is ")
    assert difference(sample([0.0, -np.nan]), expected).startswith("v[1] is ")
    assert difference(sample([0.0, np.nan], ("y",)), expected).startswith("v is (('y',)")
    assert difference(sample([0, 1]), expected).startswith("v is (('x',)")
    assert difference(sample([0.0, np.nan], times=()), expected).startswith("times ()")
    extra = {"x": NativeField(np.zeros(2), ("x",))}
    assert difference(sample([0.0, np.nan], coords=extra), expected).startswith("fields ['v'] and coord")


def test_a_file_that_netcdf_c_cannot_read_is_skipped_with_the_reason(series, monkeypatch):
    def refuse(*_):
        raise RuntimeError("NetCDF: Filter error: undefined filter encountered")

    monkeypatch.setattr("walk.read_file", refuse)
    outcome = walk(Series("x", series.files, ("ta",)))
    assert outcome.skipped == "netCDF4: NetCDF: Filter error: undefined filter encountered"


def test_wheels_are_unpacked_once_and_only_with_the_pinned_hash(tmp_path, monkeypatch):
    calls = []

    def run(command, **_):
        calls.append(command)
        with zipfile.ZipFile(
            f"{command[command.index('--dest') + 1]}/some_data-1.0-py3-none-any.whl", "w"
        ) as w:
            w.writestr(zipfile.ZipInfo("some/a.nc"), b"abc")
            w.writestr(zipfile.ZipInfo("some/code.py"), b"")
        return type("Done", (), {"returncode": 0})

    monkeypatch.setattr("integrator.demo.wheels.subprocess.run", run)
    with pytest.raises(FetchError, match=r"some_data-1\.0.*has the hash (?P<digest>\w{64})") as caught:
        fetched(Wheel("some-data", "1.0", 64 * "0"), tmp_path)
    assert list(tmp_path.iterdir()) == []
    digest = str(caught.value).split("has the hash ")[1][:64]
    for _ in range(2):
        unpacked = fetched(Wheel("some-data", "1.0", digest), tmp_path)
    assert len(calls) == 2
    assert calls[0][-1] == "some-data==1.0"
    assert [path.name for path in unpacked.rglob("*.*")] == ["a.nc"]
