"""Which variable dates the records, whatever fields are asked for, and how it comes out (spec/time.md, 2)."""

import cftime
import netCDF4
import numpy as np
import pytest
from series_files import DAY, provider, utc

from earthsciio import EarthSciIOError, PrefetchGroup, TimeAxisError

START = utc(2000, 1, 1)
NOON = "seconds since 2000-01-01"


def nemo(path, times, fields, *, records=2):
    """Write records along ``time_counter``: `times` and `fields` as {name: (values, attributes)}."""
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time_counter", None)
        file.createDimension("y", 1)
        for name, (values, attrs) in times.items():
            time = file.createVariable(name, "f8", ("time_counter",))
            time.setncatts(attrs)
            time[:] = values
        for name, (values, attrs) in fields.items():
            field = file.createVariable(name, "i4", ("time_counter", "y"))
            field.setncatts(attrs)
            field[:] = np.asarray(values).reshape(records, 1)
    return path


def read(path, *variables, start=START, **how):
    how = {"frequency": "P1D", "end": START + 4 * DAY, "time_dim": "time_counter", **how}
    return provider(path, start, how.pop("frequency"), variables=variables, **how)


CENTERED = ([43200, 43200 + 2 * 86400], {"units": NOON, "standard_name": "time"})  # noon of Jan 1 and 3
INSTANT = ([86400, 3 * 86400], {"units": NOON})  # the ends of those days


# spec: T2.1, T2.7, V6.3
@pytest.mark.parametrize("variables", [("T",), (), ("T", "time_centered"), ("time_centered",)])
def test_the_only_variable_with_dates_dates_the_records_whatever_is_asked_for(tmp_path, variables):
    path = nemo(tmp_path / "a.nc", {"time_centered": CENTERED}, {"T": ([1, 3], {})})
    source = read(path, *variables)
    with netCDF4.Dataset(path) as file:  # cftime is the judge of dates
        true = cftime.num2pydate(file["time_centered"][:].data, NOON)
    for day, index in ((0, 0), (2, 1)):
        sample = source.sample_at(START + day * DAY)
        assert [t.replace(tzinfo=None) for t in sample.times] == [true[index]]
        assert sample.variable_names() == list(variables or ("T",))
        if "T" in sample:
            assert sample["T"].data.tolist() == [[1, 3][index]]
        assert sample.coord_names() == []
    with pytest.raises(IndexError, match="2000-01-02"):  # there is no such record, and none is made up
        source.sample_at(START + DAY)


# spec: T2.1, V6.3
@pytest.mark.parametrize("variables", [("T",), (), ("T", "time_centered"), ("T", "time_instant")])
def test_of_two_candidates_the_same_one_dates_whatever_is_asked_for(tmp_path, variables):
    path = nemo(tmp_path / "a.nc", {"time_centered": CENTERED, "time_instant": INSTANT}, {"T": ([1, 3], {})})
    sample = read(path, *variables).sample_at(START)
    assert sample.times == (utc(2000, 1, 1, 12),)
    assert sample.variable_names() == list(variables or ("time_instant", "T"))  # that which dates is no field


# spec: T2.1
@pytest.mark.parametrize("variables", [("T",), (), ("T", "time_centered"), ("time_centered",)])
def test_two_candidates_that_nothing_tells_apart_are_an_error_whatever_is_asked_for(tmp_path, variables):
    times = {"time_centered": (CENTERED[0], {"units": NOON}), "time_instant": INSTANT}
    path = nemo(tmp_path / "a.nc", times, {"T": ([1, 3], {})})
    with pytest.raises(TimeAxisError, match=r"time_centered.*time_instant.*a\.nc"):
        read(path, *variables).sample_at(START)


# spec: T2.1
def test_what_dates_a_field_does_not_depend_on_the_fields_beside_it(tmp_path):
    fields = {
        "mean": ([1, 3], {"coordinates": "time_centered"}),
        "snap": ([1, 3], {"coordinates": "time_instant"}),
        "plain": ([1, 3], {}),
    }
    path = nemo(tmp_path / "a.nc", {"time_centered": CENTERED, "time_instant": INSTANT}, fields)
    assert read(path, "mean").sample_at(START).times == (utc(2000, 1, 1, 12),)
    snap = utc(2000, 1, 2)
    assert read(path, "snap", start=snap).sample_at(snap).times == (snap,)
    for beside in ((), ("mean",)):  # by the standard name, though not by its own `coordinates`
        assert read(path, "plain", *beside).sample_at(START).times == (utc(2000, 1, 1, 12),)
    for disagree in (("mean", "snap"), ("plain", "snap"), ()):
        with pytest.raises(TimeAxisError, match=r"by 'time_(centered|instant)' and .* by 'time_"):
            read(path, *disagree).sample_at(START)


# spec: T2.1
def test_a_field_that_names_no_time_takes_the_one_that_others_of_the_file_name(tmp_path):
    times = {"time_centered": (CENTERED[0], {"units": NOON}), "time_instant": INSTANT}
    fields = {"T": ([1, 3], {"coordinates": "time_centered"}), "plain": ([1, 3], {})}
    path = nemo(tmp_path / "a.nc", times, fields)
    for variables in (("plain",), ("T",), ("plain", "T"), ("time_instant",)):
        assert read(path, *variables).sample_at(START).times == (utc(2000, 1, 1, 12),)


# spec: T2.3
def test_an_axis_that_can_not_be_decoded_names_variable_units_and_what_else_has_dates(tmp_path):
    counter = {"time_counter": ([1, 2], {"units": "day as %Y%m%d.%f"}), "time_centered": CENTERED}
    path = nemo(tmp_path / "a.nc", counter, {"T": ([1, 3], {})})
    with pytest.raises(TimeAxisError, match=r"day as %Y.*dates in \['time_centered'\]") as caught:
        read(path, "T").sample_at(START)
    assert (caught.value.variable, caught.value.file) == ("time_counter", str(path))
    path = nemo(tmp_path / "b.nc", {"time_counter": ([1, 2], {})}, {"T": ([1, 3], {})})
    with pytest.raises(TimeAxisError, match="there are no units") as caught:
        read(path, "T").sample_at(START)
    assert caught.value.variable == "time_counter"


@pytest.fixture
def scalars(tmp_path):
    """Files of one record each, dated by a scalar that counts from the file's own day."""
    for day in range(3):
        with netCDF4.Dataset(tmp_path / f"2000010{day + 1}.nc", "w") as file:
            file.createDimension("x", 2)
            time = file.createVariable("time", "f4", ())
            time.units = f"days since 2000-01-0{day + 1}"
            time[...] = 0.5
            file.createVariable("T", "i4", ("x",))[:] = [day, day + 10]
    return tmp_path / "%Y%m%d.nc"


NOONS = {day: (utc(2000, 1, 1 + day, 12) - utc(1970, 1, 1)).total_seconds() for day in range(3)}
SECONDS = {"units": "seconds since 1970-01-01", "calendar": "standard"}
DAILY = {"time_dim": "time", "file_period": "P1D", "end": START + 3 * DAY, "start": utc(2000, 1, 1, 12)}


# spec: T2.1, V6.3, V7.1
def test_a_scalar_that_dates_is_no_field_unless_named(scalars):
    t = utc(2000, 1, 2, 12)
    sample = read(scalars, **DAILY).sample_at(t)
    assert (sample.variable_names(), sample.coord_names(), sample.times) == (["T"], [], (t,))
    sample = read(scalars, "time", "T", **DAILY).sample_at(t)  # as stored
    assert sample.variable_names() == ["time", "T"]
    assert (sample["time"].data, sample["time"].attrs) == (0.5, {"units": "days since 2000-01-02"})


# spec: V7.2, V7.3
@pytest.mark.parametrize("variables", [(), ("T",), ("time", "T"), ("T", "time")])
@pytest.mark.parametrize("group", [False, True])
def test_a_bracket_has_one_time_coordinate_whatever_each_file_counts_from(scalars, variables, group):
    source = read(scalars, *variables, records_per_sample=2, **DAILY)
    t = utc(2000, 1, 2, 12)
    assert source.array_shape("time") == (2,)
    if group:
        with PrefetchGroup({"a": source}, workers=1) as ahead:
            ahead.start("forward")
            ahead.take(0)
            sample = ahead.take(1)["a"].data
    else:
        sample = source.sample_at(t)
    assert sample.variable_names() == list(variables or ("T",))
    assert sample["T"].data.tolist() == [[1, 11], [2, 12]]
    time = sample["time"]
    assert (time.dims, time.dtype, time.attrs) == (("time",), np.float64, SECONDS)
    assert time.data.tolist() == [NOONS[1], NOONS[2]]
    assert ("time" in sample.coords) == ("time" not in variables)


# spec: V7.2
def test_a_time_coordinate_along_records_that_is_named_comes_out_as_without_naming(tmp_path):
    path = nemo(tmp_path / "a.nc", {"time_centered": CENTERED}, {"T": ([1, 3], {})})
    for variables in (("T",), ("T", "time_centered"), ()):
        time = read(path, *variables, records_per_sample=2, start=utc(2000, 1, 1, 12)).sample_at(
            utc(2000, 1, 1, 12)
        )["time_centered"]
        assert time.data.tolist() == [NOONS[0], NOONS[2]]
        assert (time.dims, time.attrs) == (("time_counter",), SECONDS)
    single = read(path, "time_centered").sample_at(START)["time_centered"]
    assert (single.data, single.attrs["units"]) == (43200, NOON)


# spec: V7.2
def test_other_times_of_the_records_are_stacked_where_both_files_count_alike_and_else_left_out(tmp_path):
    for day in range(3):
        counter = {"time_counter": ([day], {"units": "days since 2000-01-01"})}
        valid = {"valid": ([6.0], {"units": f"hours since 2000-01-0{max(day, 1)}"})}  # alike in the first two
        nemo(
            tmp_path / f"2000010{day + 1}.nc", {**counter, **valid},
            {"T": ([day], {"coordinates": "valid"})}, records=1,
        )  # fmt: skip
    source = read(tmp_path / "%Y%m%d.nc", "T", file_period="P1D", records_per_sample=2)
    alike, apart = source.sample_at(START), source.sample_at(START + DAY)
    assert alike["valid"].data.tolist() == [6, 6]
    assert alike["valid"].attrs == {"units": "hours since 2000-01-01"}
    assert sorted(apart.coord_names()) == ["time_counter"]
    named = read(tmp_path / "%Y%m%d.nc", "T", "valid", file_period="P1D", records_per_sample=2)
    with pytest.raises(EarthSciIOError, match=r"hours since 2000-01-01.*hours since 2000-01-02"):
        named.sample_at(START + DAY)


def test_a_field_that_has_the_name_of_the_time_dimension_but_not_its_shape_stays_a_field(tmp_path):
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("time", 2)
        file.createDimension("x", 2)
        file.createVariable("time", "f8", ("time", "x"))[:] = [[1, 2], [3, 4]]
    source = provider(tmp_path / "a.nc", START, "P1D", variables=("time",), records_per_sample=2)
    assert source.sample_at(START)["time"].data.tolist() == [[1, 2], [3, 4]]
