"""Rules 9, 10 and 12 of values: which coordinates a sample carries, and what groups see."""

import h5py
import netCDF4
import numpy as np
import pytest
from inputs import assert_values, hdf5, netcdf, one, read, values

from earthsciio import SelectionError, VariableNotFound


@pytest.fixture
def curvilinear(tmp_path):
    variables = {
        "lev": (("lev",), np.array([1, 2], "i4"), {"units": "1"}),
        "x": (("x",), np.array([10, 20, 30], "i2"), {"scale_factor": 0.5}),
        "lon": (("y", "x"), np.arange(6, dtype="f4").reshape(2, 3), {"bounds": "lon_bnds"}),
        "lon_bnds": (("y", "x", "n"), np.zeros((2, 3, 2)), {}),
        "height": ((), np.float32(2), {}),
        "crs": ((), np.int32(0), {"grid_mapping_name": "latitude_longitude"}),
        "t": (
            ("lev", "y", "x"),
            np.zeros((2, 2, 3), "f4"),
            {"coordinates": "lon height absent", "grid_mapping": "crs"},
        ),
        "area": (("y",), np.ones(2), {}),
    }
    return netcdf(tmp_path / "a.nc", variables)


# spec: V6.1
def test_coordinates_are_named_like_a_dimension_or_by_the_coordinates_attribute(curvilinear):
    found = read(curvilinear, "t")
    assert found.coord_names() == ["lev", "x", "lon", "height"]
    assert found.variable_names() == ["t"]


# spec: V6.2
def test_coordinates_are_carried_only_where_a_field_carries_their_dimensions(curvilinear):
    assert read(curvilinear, "area").coord_names() == []
    assert read(curvilinear, "area", "t").coord_names() == ["lev", "x", "lon", "height"]


# spec: V6.2
def test_coordinates_keep_the_rules_of_values(curvilinear):
    found = read(curvilinear, "t")
    assert_values(found["x"].data, [5, 10, 15])
    assert_values(found["lev"].data, [1, 2], np.int32)
    assert found["height"].shape == ()
    assert found["height"].data == 2
    assert read(curvilinear, "t", precision="source")["lon"].dtype == np.float32


# spec: V6.3
def test_bounds_and_grid_mappings_are_read_only_when_named(curvilinear):
    assert read(curvilinear).variable_names() == ["t", "area"]
    found = read(curvilinear, "t", "lon_bnds", "crs")
    assert found.variable_names() == ["t", "lon_bnds", "crs"]
    assert found["crs"].data == 0


# spec: V6.3
def test_a_coordinate_may_be_asked_for_as_a_field(curvilinear):
    found = read(curvilinear, "lon")
    assert found.variable_names() == ["lon"]
    assert found.coord_names() == ["x"]


# spec: P1.4
def test_fields_come_in_the_order_declared_else_in_that_of_the_file(curvilinear):
    assert read(curvilinear, "t", "area").variable_names() == ["t", "area"]
    assert read(curvilinear, "area", "t").variable_names() == ["area", "t"]
    with netCDF4.Dataset(curvilinear.with_name("b.nc"), "w") as file:
        for name in ("z", "a", "m"):
            file.createVariable(name, "f4", ())[...] = 1
    assert read(curvilinear.with_name("b.nc")).variable_names() == ["z", "a", "m"]


# spec: P1.4
def test_an_absent_variable_is_a_key_error_that_lists_what_there_is(curvilinear):
    with pytest.raises(VariableNotFound, match=r"'q'.*a\.nc.*'area'") as caught:
        read(curvilinear, "q")
    assert isinstance(caught.value, KeyError)


# spec: S2.6
def test_a_window_cuts_coordinates_of_any_rank(curvilinear):
    found = read(curvilinear, "t", window={"dims": {"x": [2, 0], "y": (1, 2)}})
    assert found["lon"].data.tolist() == [[5, 3]]
    assert found["x"].data.tolist() == [15, 5]
    assert found["lev"].shape == (2,)
    assert found["lon"].attrs == read(curvilinear, "t")["lon"].attrs


# spec: V7.5
def test_the_time_coordinate_of_a_whole_file_is_raw(tmp_path):
    attrs = {"units": "hours since 1900-01-01", "calendar": "noleap"}
    path = netcdf(
        tmp_path / "a.nc",
        {"time": (("time",), np.array([6, 12], "i4"), attrs), "v": (("time",), [1.0, 2.0], {})},
    )
    found = read(path)
    assert_values(found["time"].data, [6, 12], np.int32)
    assert found["time"].attrs == attrs
    assert found.times == ()


def test_a_two_dimensional_coordinate_variable_keeps_its_dimensions(tmp_path):
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("y", 2)
        file.createDimension("x", 3)
        file.createVariable("x", "f4", ("y", "x"))[:] = np.arange(6).reshape(2, 3)
        file.createVariable("v", "f4", ("y", "x"))[:] = 1
    found = read(tmp_path / "a.nc", "v")
    assert found["x"].dims == ("y", "x")
    assert found["x"].data.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_dimension_and_a_variable_of_one_name_that_do_not_belong_together_are_kept_apart(tmp_path):
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("y", 2)
        file.createDimension("x", 3)
        file.createVariable("x", "f4", ("y",))[:] = [1, 2]  # stored as _nc4_non_coord_x
        file.createVariable("v", "f4", ("y", "x"))[:] = 1
    found = read(tmp_path / "a.nc")
    assert found.variable_names() == ["x", "v"]
    assert found["x"].data.tolist() == [1, 2]
    assert found["v"].dims == ("y", "x")


# Dimensions without scales


# spec: V8.8
def test_axes_without_a_scale_are_named_as_netcdf_names_them(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["a"] = np.zeros((3, 3))
        file["b"] = np.zeros((4, 3))
        file["c"] = np.zeros(5)
        file.create_dataset("u", data=np.zeros((3, 4)), maxshape=(None, 4))
    found = read(tmp_path / "a.h5")
    with netCDF4.Dataset(tmp_path / "a.h5") as file:
        assert {name: found[name].dims for name in found} == {
            name: variable.dimensions for name, variable in file.variables.items()
        }


def test_scales_attached_with_h5py_name_the_axes(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["lat"] = np.arange(2.0)
        file["lat"].make_scale("latitude")
        file["v"] = np.zeros((2, 3))
        file["v"].dims[0].attach_scale(file["lat"])
    found = read(tmp_path / "a.h5")
    assert found["v"].dims[0] == "lat"
    assert found.coord_names() == ["lat"]


# Groups


@pytest.fixture
def grouped(tmp_path):
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        for dim, size in (("x", 3), ("y", 2)):
            file.createDimension(dim, size)
        file.createVariable("x", "f8", ("x",))[:] = [1, 2, 3]
        file.createVariable("top", "f8", ("x",))[:] = 0
        child = file.createGroup("model/run")
        child.createVariable("v", "f8", ("y", "x"))[:] = np.arange(6).reshape(2, 3)
        child.createVariable("y", "f8", ("y",))[:] = [10, 20]
        other = file.createGroup("other")
        other.createDimension("x", 4)
        other.createVariable("w", "f8", ("x",))[:] = 5
    return tmp_path / "a.nc"


# spec: V8.7
@pytest.mark.parametrize("group", ["model/run", "/model/run", "/model/run/"])
def test_a_group_sees_the_dimensions_and_coordinates_of_its_parents(grouped, group):
    found = read(grouped, group=group)
    assert found.variable_names() == ["v"]
    assert found["v"].dims == ("y", "x")
    assert found["x"].data.tolist() == [1, 2, 3]
    assert found["y"].data.tolist() == [10, 20]


# spec: V8.7
def test_a_group_that_has_a_dimension_of_its_own_does_not_take_the_parent_s_coordinate(grouped):
    found = read(grouped, group="other")
    assert found["w"].shape == (4,)
    assert found.coord_names() == []


def test_the_root_does_not_see_into_its_groups(grouped):
    assert read(grouped).variable_names() == ["top"]
    with pytest.raises(VariableNotFound):
        values(grouped, "v")


# spec: V8.7
def test_a_group_that_is_not_there_is_an_error_that_lists_the_groups(grouped):
    with pytest.raises(SelectionError, match=r"/modle.*a\.nc.*/model/run"):
        read(grouped, group="modle")


def test_a_classic_file_has_no_groups(tmp_path):
    path = one(tmp_path / "a.nc", [1], dtype="i4", format="NETCDF3_CLASSIC")
    with pytest.raises(ValueError, match=r"no group.*a\.nc"):
        read(path, group="g")
    assert values(path, group="/").tolist() == [1]


def test_a_name_in_an_attribute_that_is_no_text_is_ignored(tmp_path):
    path = hdf5(tmp_path / "a.h5", np.arange(3.0), {"coordinates": 5, "grid_mapping": np.array([1, 2])})
    assert values(path).tolist() == [0, 1, 2]
