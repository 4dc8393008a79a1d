"""The real files of ../shared, read whole and compared with netCDF4 or h5py, decoded by hand here."""

from datetime import UTC, datetime

import cftime
import h5py
import netCDF4
import numpy as np
import pytest
from inputs import REAL, assert_values, read, same_bits, source

from earthsciio import DataSource, EarthSciIOWarning, Provider, SourceTemporal, Unsupported, Window

NAMES = (
    "air-packed-descending-lat.nc", "ascat-valid-min-max.nc", "big-endian.nc", "calendar-360-day.nc",
    "classic-packed-co2.nc", "seam-jan-2000.nc4", "seam-feb-2000.nc4",
)  # fmt: skip


def real(name):
    path = REAL / name
    if not path.exists():
        pytest.skip(f"needs {name} of ../shared/data/real, which only the authors' machine has")
    return path


def decode(variable):
    """Decode what netCDF4 reads raw."""
    variable.set_auto_maskandscale(False)
    raw = np.asarray(variable[...])
    raw = raw.astype(raw.dtype.newbyteorder("="))
    attrs = {name: variable.getncattr(name) for name in variable.ncattrs()}
    masks = [attrs[name] for name in ("_FillValue", "missing_value") if name in attrs]
    packed = "scale_factor" in attrs or "add_offset" in attrs
    if raw.dtype.kind == "f" and "_FillValue" not in attrs:
        masks.append(raw.dtype.type(netCDF4.default_fillvals["f8"]))
    if raw.dtype.kind in "iu" and not masks and not packed:
        return raw
    values = raw.astype("f8")
    if packed:
        values = values * float(attrs.get("scale_factor", 1)) + float(attrs.get("add_offset", 0))
    return np.where(np.isin(raw, np.array(masks, raw.dtype)), np.nan, values)


@pytest.mark.parametrize("name", NAMES)
def test_every_numeric_variable_is_what_netcdf_c_stores(name):
    path = real(name)
    found = read(path)
    if not found.variable_names():  # nothing but its time coordinate
        found = read(path, "time")
    with netCDF4.Dataset(path) as file:
        compared = 0
        for variable in file.variables.values():
            if variable.dtype is str or variable.dtype.kind not in "iuf":
                continue
            if variable.name not in found:
                continue
            assert found[variable.name].dims == variable.dimensions
            np.testing.assert_array_equal(found[variable.name].data, decode(variable))
            assert found[variable.name].dtype == decode(variable).dtype
            compared += 1
    assert compared >= len(found.variable_names())
    field = found.variable_names()[0]
    dims = dict(zip(found[field].dims, found[field].shape, strict=True))
    window = Window({dim: [size - 1, 0, size // 2] for dim, size in dims.items() if size})
    part = read(path, field, window=window)
    expected = found[field].data
    for axis, size in enumerate(expected.shape):
        expected = np.take(expected, [size - 1, 0, size // 2], axis=axis)
    assert same_bits(part[field].data, expected)


def test_chunks_with_filters_skipped_give_zero_to_seven():
    path = real("chunk-filter-masks.h5")
    with h5py.File(path) as file:
        (name,) = [n for n in file if isinstance(file[n], h5py.Dataset)]
        expected = file[name][...]
    assert sorted(expected.ravel().tolist()) == list(range(8))
    found = read(path, name, precision="source")[name].data
    assert same_bits(found, expected.astype(expected.dtype.newbyteorder("=")))


@pytest.mark.parametrize("name", ["blosc-with-mask.h5", "szip.h5"])
def test_filters_that_may_not_be_here_give_values_or_say_so(name):
    path = real(name)
    with h5py.File(path) as file:
        names = [n for n in file if isinstance(file[n], h5py.Dataset)]
        for variable in names:
            try:
                expected = file[variable][...]
            except OSError:
                with pytest.raises(Unsupported, match=rf"{name}.*variable={variable}"):
                    read(path, variable)
            else:
                found = read(path, variable, precision="source")[variable].data
                np.testing.assert_array_equal(found, expected)


def test_values_outside_valid_bounds_are_masked_by_option_only():
    path = real("ascat-valid-min-max.nc")
    with netCDF4.Dataset(path) as file:
        ours = [n for n, v in file.variables.items() if getattr(v, "valid_min", None) == -18000]
        (name,) = ours
        file[name].set_auto_maskandscale(False)
        raw = np.asarray(file[name][...])
        low, high, fill = (file[name].getncattr(a) for a in ("valid_min", "valid_max", "_FillValue"))
    outside = ((raw < low) | (raw > high)) & (raw != fill)
    assert outside.sum() == 12
    plain = read(path, name)[name].data
    with pytest.warns(EarthSciIOWarning) as caught:  # of a coordinate, whose bounds are text
        strict = read(path, name, mask_valid_range=True)[name].data
    assert all("sigma0: valid_m" in str(warning.message) for warning in caught)
    assert not np.isnan(plain[outside]).any()
    assert np.array_equal(np.isnan(strict), outside | (raw == fill))


def _series(path, start, frequency, rank=None, **temporal):
    times = SourceTemporal(start, frequency, records_per_sample=rank, **temporal)
    return Provider(DataSource("real", "netcdf", str(path), (), times))


def test_packed_air_is_read_record_by_record_as_netcdf_c_dates_it():
    path = real("air-packed-descending-lat.nc")
    with netCDF4.Dataset(path) as file:
        time = file["time"]
        stamps = netCDF4.num2date(np.asarray(time[:], "f8"), time.units, "standard")
        expected = decode(file["air"])
    provider = _series(path, stamps[0].isoformat(), "PT6H", 2)
    for k in (0, 1, len(stamps) // 2, len(stamps) - 2, len(stamps) - 1):
        sample = provider.sample_at(_aware(stamps[k]))
        following = min(k + 1, len(stamps) - 1)
        assert sample.times == (_aware(stamps[k]), _aware(stamps[following]))
        np.testing.assert_array_equal(sample["air"].data, expected[[k, following]])
    assert sample["lat"].data[0] > sample["lat"].data[-1]  # as the file has it


def utc(*parts):
    return datetime(*parts, tzinfo=UTC)


def _aware(stamp):
    return utc(*stamp.timetuple()[:6])


def test_the_seam_between_january_and_february_2000(tmp_path):
    for month, name in (("01", "seam-jan-2000.nc4"), ("02", "seam-feb-2000.nc4")):
        (tmp_path / f"2000{month}.nc4").symlink_to(real(name))
    provider = _series(tmp_path / "%Y%m.nc4", "2000-01-01", "P1D", 2, file_period="P1M", end="2000-03-01")
    fields = {}
    for month in ("01", "02"):
        with netCDF4.Dataset(tmp_path / f"2000{month}.nc4") as file:
            assert len(file["time"]) == (31 if month == "01" else 28)
            fields[month] = {
                n: decode(v) for n, v in file.variables.items() if v.ndim > 1 and v.dtype.kind in "iuf"
            }
    sample = provider.sample_at(utc(2000, 1, 31))
    assert [(t.month, t.day) for t in sample.times] == [(1, 31), (2, 1)]
    for name in sample.variable_names():
        np.testing.assert_array_equal(sample[name].data[0], fields["01"][name][30])
        np.testing.assert_array_equal(sample[name].data[1], fields["02"][name][0])
    last = provider.sample_at(utc(2000, 2, 28))
    assert [(t.month, t.day) for t in last.times] == [(2, 28), (2, 28)]
    with pytest.raises(IndexError, match="2000-02-29"):  # which the files leave out
        provider.sample_at(utc(2000, 2, 29))


def test_the_360_day_file_is_read_in_its_calendar():
    path = real("calendar-360-day.nc")
    with netCDF4.Dataset(path) as file:
        raw = np.asarray(file["time"][:])
        stamps = netCDF4.num2date(raw, file["time"].units, "360_day")
    assert_values(read(path, "time")["time"].data, raw, np.int32)
    start = cftime.datetime(1900, 1, 1, calendar="360_day")
    times = SourceTemporal(start, "records")
    provider = Provider(DataSource("real", "netcdf", str(path), ("time",), times))
    assert provider.refresh_times() == list(stamps)
    assert provider.refresh_times()[-1] == cftime.datetime(1906, 5, 20, calendar="360_day")
    assert provider.sample_at(cftime.datetime(1900, 2, 30, calendar="360_day"))["time"].data == 59


def test_half_of_the_classic_file_is_refused(tmp_path):
    data = real("classic-packed-co2.nc").read_bytes()
    (tmp_path / "half.nc").write_bytes(data[: len(data) // 2])
    with pytest.raises(OSError, match=r"half\.nc"):
        Provider(source(tmp_path / "half.nc")).materialize()
