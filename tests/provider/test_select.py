"""Selections: their forms, what they reach, and the errors of those that don't fit (spec/selection.md)."""

import pickle
import re

import netCDF4
import numpy as np
import pytest
from series_files import HOUR, provider, utc

from earthsciio import DataSource, Provider, SelectionError, SelectionRangeError, Window
from earthsciio.bounds import window_from_bounds
from earthsciio.selection import parse_selection

START = utc(2020, 1, 1)
FIELDS = ("t2m", "t3d", "u", "mask")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """2-D, 3-D and staggered fields in one file, with text."""
    path = tmp_path_factory.mktemp("select") / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        sizes = {"time": 2, "lev": 3, "lat": 4, "lon": 5, "lon_u": 6, "n": 3}
        for dim, size in sizes.items():
            file.createDimension(dim, size)
            if dim != "n":
                file.createVariable(dim, "f8", (dim,))[:] = np.arange(size) * 10.0
        file["time"].units = "hours since 2020-01-01"
        file["time"][:] = [0, 1]
        for name, dims in {
            "t2m": ("time", "lat", "lon"),
            "t3d": ("time", "lev", "lat", "lon"),
            "u": ("time", "lat", "lon_u"),
            "mask": ("lat", "lon"),
        }.items():
            shape = [sizes[dim] for dim in dims]
            chunks = [1 if dim == "time" else 2 for dim in dims]
            variable = file.createVariable(name, "f4", dims, chunksizes=chunks, zlib=True)
            variable[:] = np.arange(np.prod(shape)).reshape(shape)
        file.createVariable("names", "S1", ("lat", "n"))[:] = netCDF4.stringtochar(
            np.array(["a", "bb", "ccc", "d"], "S3")
        )
    return path


@pytest.fixture
def dated(path):
    return provider(path, START, "PT1H", variables=FIELDS)


def const(path, *variables):
    return Provider(DataSource("c", "netcdf", str(path), variables))


def cut(field, **wanted):
    """Slice a whole field by name, in NumPy."""
    data = field.data
    for axis, dim in enumerate(field.dims):
        if dim in wanted:
            data = np.take(data, wanted[dim], axis=axis)
    return data


# What a selection reaches


# spec: S1.1, S2.2
@pytest.mark.parametrize(
    ("selection", "indices"),
    [
        ({"lat": (1, 3)}, {"lat": [1, 2]}),
        ({"lat": (0, 4, 3), "lon": (1, 5, 2)}, {"lat": [0, 3], "lon": [1, 3]}),
        ({"lon": [4, 0, 0, 2]}, {"lon": [4, 0, 0, 2]}),
        ({"lev": "all", "lon": (5, 5)}, {"lon": []}),
        ({"lat": []}, {"lat": []}),
        ({"lat": (2, 2), "lon": []}, {"lat": [], "lon": []}),
        ({"lon_u": (5, 6), "lev": [2, 1, 0]}, {"lon_u": [5], "lev": [2, 1, 0]}),
        ({}, {}),
    ],
)
def test_a_selection_by_name_reaches_every_field_and_coordinate_that_carries_the_dimension(
    dated, selection, indices
):
    whole = dated.sample_at(START + HOUR)
    wanted = {dim: np.array(i, dtype=int) for dim, i in indices.items()}
    for form in (Window(selection), {"dims": selection}, Window(selection).wire()):
        found = dated.with_window(form).sample_at(START + HOUR)
        assert found.variable_names() == whole.variable_names()
        assert found.coord_names() == whole.coord_names()
        for name in [*found.variable_names(), *found.coord_names()]:
            expected = cut(whole[name], **wanted)
            assert found[name].data.dtype == expected.dtype
            assert found[name].data.shape == expected.shape
            assert np.array_equal(found[name].data, expected)
            assert found[name].attrs == whole[name].attrs
            assert found[name].dims == whole[name].dims


def test_the_last_face_of_a_staggered_field_is_its_own(path, dated):
    found = dated.with_window({"dims": {"lon_u": [5], "lon": [4]}}).sample_at(START)
    assert found["u"].data[:, 0].tolist() == [5, 11, 17, 23]
    assert found["lon_u"].data.tolist() == [50]
    assert found["t2m"].data[:, 0].tolist() == [4, 9, 14, 19]


# spec: S2.4
def test_a_selection_by_position_applies_to_fields_of_that_rank_and_to_coordinates(dated):
    axes = {"axes": ["all", {"slice": [0, 3]}, {"indices": [1, 0]}, "all"]}
    found = dated.with_window(axes).sample_at(START)
    whole = dated.sample_at(START)
    assert np.array_equal(found["t3d"].data, cut(whole["t3d"], lat=[1, 0]))
    assert found["lat"].data.tolist() == [10, 0]
    assert found["t2m"].shape == (4, 5)  # of another rank
    assert found["mask"].shape == (4, 5)


def test_text_is_selected_like_anything_else(path):
    found = const(path, "names").with_window({"dims": {"lat": [2, 0, 2]}}).materialize()
    assert found["names"].data.tolist() == ["ccc", "a", "ccc"]
    assert found["names"].dims == ("lat",)


# spec: S2.3
def test_a_constant_may_be_selected_along_time(path):
    found = const(path, "t2m").with_window({"dims": {"time": (1, 2)}}).materialize()
    assert found["t2m"].shape == (1, 4, 5)
    assert found["time"].data.tolist() == [1]


# spec: P2.7
def test_the_reader_option_select_is_a_window_of_the_source(path):
    options = {"select": {"dims": {"lat": [3, 0]}}}
    source = Provider(DataSource("c", "netcdf", str(path), ("mask",), reader_kwargs=options))
    assert source.materialize()["lat"].data.tolist() == [30, 0]
    assert source.array_shape("mask") == (2, 5)
    with pytest.raises(ValueError, match="already"):
        source.with_window({"dims": {}})


# Forms


# spec: S1.3, S2.1
@pytest.mark.parametrize(
    "selection",
    [
        {},
        {"dims": {}, "axes": []},
        {"window": {}},
        {"dims": [1]},
        {"axes": "all"},
        {"axes": {"lat": "all"}},
        {"dims": {"lat": "some"}},
        {"dims": {"lat": 3}},
        {"dims": {"lat": None}},
        {"dims": {"lat": (1,)}},
        {"dims": {"lat": (1, 2, 3, 4)}},
        {"dims": {"lat": (3, 1)}},
        {"dims": {"lat": (0, 4, 0)}},
        {"dims": {"lat": (4, 0, -1)}},
        {"dims": {"lat": {"slice": [0, 1], "indices": [0]}}},
        {"dims": {"lat": {"slice": 3}}},
        {"dims": {"lat": {"slice": [0, None]}}},
        {"dims": {"lat": {"indices": 3}}},
        {"dims": {"lat": {"range": [0, 1]}}},
        {"dims": {"lat": [0.5]}},
        {"dims": {"lat": [True, False]}},
        {"dims": {"lat": np.array([True, False])}},
        {"dims": {"lat": np.zeros((2, 2), int)}},
        {"dims": {7: "all"}},
        {"lat": (0, 2)},
        [("lat", (0, 2))],
        "all",
        None,
    ],
)
def test_a_selection_of_the_wrong_form_is_refused_before_anything_is_opened(tmp_path, selection):
    unopened = const(tmp_path / "never-there.nc")
    with pytest.raises(SelectionError) as caught:
        unopened.with_window(selection)
    assert isinstance(caught.value, ValueError)


# spec: S1.3
@pytest.mark.parametrize(
    "spec",
    [
        (3, 2), (0, 4, 0), (1,), (0, 1.5), [True], [1.5], [[1]], [None], 2, "0:2", None, slice(0, 2),
        {"slice": [3, 2]}, {"slice": 3}, {"indices": [1.5]}, {"indices": 3},
        {"slice": [0, 1], "indices": [0]},
    ],
)  # fmt: skip
def test_a_selector_that_can_not_be_read_is_named_as_given_with_its_dimension(spec):
    with pytest.raises(SelectionError, match=re.escape(f"can't read the selector {spec!r} of 'lat'")):
        Window({"lev": "all", "lat": spec})
    with pytest.raises(SelectionError, match=re.escape(f"can't read the selector {spec!r} of 'axis 1'")):
        parse_selection({"axes": ["all", spec]})


# spec: S1.3
@pytest.mark.parametrize(
    "spec",
    [
        (0, 5, 10**19), (0, 10**19), (10**19, 10**19 + 5), (-(10**19), 5), [10**19], [1, -(10**19)], [2**63],
        np.array([2**63], "u8"), range(0, 10**30, 10**29), range(10**19), {"slice": [0, 2**63]},
        {"indices": [10**400]}, (-(2**63), 2**63 - 1),
    ],
    ids=str,
)  # fmt: skip
def test_numbers_that_no_dimension_reaches_are_refused_when_the_selection_is_made(spec):
    with pytest.raises(SelectionError, match=r"can't read the selector .* of 'lat'"):
        Window({"lat": spec})


# spec: S1.3, S3.2, S3.3
def test_large_numbers_that_are_none_too_large_cost_no_memory(dated):
    far = Window({"lat": (2**61, 2**62)})
    assert len(far.selector("lat")) == 2**61
    assert far.origin == {"lat": 2**61}
    assert far.union(Window({"lat": (7, 2**61)})) == Window({"lat": (7, 2**62)})
    with pytest.raises(SelectionRangeError):
        far.grow({"lat": 1}, sizes={"lat": 4})
    with pytest.raises(SelectionError, match="more than can be listed"):
        far.union(Window({"lat": (0, 3)}))
    once = dated.with_window({"dims": {"lat": (1, 4, 2**61)}}).sample_at(START)
    assert once["lat"].data.tolist() == [10]


# spec: S3.4
@pytest.mark.parametrize("spec", [(0, 4, 2), [1, 3], []])
def test_a_selector_that_can_not_grow_is_named_as_given(spec):
    with pytest.raises(SelectionError, match=re.escape(f"can't grow {spec!r} of 'x'")):
        Window({"x": spec}).grow({"x": 1}, sizes={"x": 8})


def test_bounds_and_names_are_not_checked_before_a_file_is_there(tmp_path):
    const(tmp_path / "never-there.nc").with_window({"dims": {"no such dimension": (10**9, 10**9 + 1)}})


# spec: S1.1
def test_numpy_integers_and_ranges_are_indices(dated):
    for spec in (np.array([1, 3]), range(1, 4, 2), [np.int32(1), np.uint8(3)], {"indices": np.array([1, 3])}):
        found = dated.with_window({"dims": {"lat": spec}}).sample_at(START)
        assert found["lat"].data.tolist() == [10, 30]
    found = dated.with_window(Window({"lat": (np.int64(1), np.int64(4), np.int64(2))})).sample_at(START)
    assert found["lat"].data.tolist() == [10, 30]


# Errors of selections that don't fit


# spec: S1.2
@pytest.mark.parametrize(
    "spec", [(0, 10), (7, 9), [7], [-1], (-1, 2), (4, 5), (5, 5), [0, 4], {"slice": [0, 5, 9]}, [2**40]]
)
def test_out_of_range_names_dimension_length_and_selector(dated, path, spec):
    for source in (dated, const(path, "mask")):
        with pytest.raises(SelectionRangeError, match=r"a\.nc.*dim=lat.*length=4.*selector=") as caught:
            source.with_window({"dims": {"lat": spec}}).refresh(START)
        assert isinstance(caught.value, IndexError)
        assert caught.value.dim == "lat"
        assert caught.value.length == 4


# spec: S1.2
def test_out_of_range_is_raised_before_any_data_is_read(tmp_path, path):
    broken = tmp_path / "broken.nc"
    data = bytearray(path.read_bytes())
    import h5py

    with h5py.File(path) as file:
        for name in ("mask", "lat"):
            if file[name].chunks:
                chunk = file[name].id.get_chunk_info(0)
                data[chunk.byte_offset : chunk.byte_offset + chunk.size] = b"\0" * chunk.size
    broken.write_bytes(data)
    with pytest.raises(SelectionRangeError):
        const(broken, "mask").with_window({"dims": {"lon": (0, 6)}}).materialize()


# spec: S2.2
def test_an_unknown_dimension_lists_those_there_are(dated):
    with pytest.raises(
        SelectionError, match=r"'latitude'.*a\.nc.*'lev', 'lat', 'lon'|'latitude'.*'lat', 'lon'"
    ):
        dated.with_window({"dims": {"latitude": (0, 1)}}).sample_at(START)


# spec: S2.2
def test_a_dimension_only_a_coordinate_or_another_variable_carries_is_unknown(path):
    with pytest.raises(SelectionError, match="lon_u"):
        const(path, "mask").with_window({"dims": {"lon_u": "all"}}).materialize()


# spec: S2.3
@pytest.mark.parametrize("spec", ["all", (0, 1), [0]])
def test_naming_the_time_dimension_is_refused(dated, spec):
    with pytest.raises(SelectionError, match="time"):
        dated.with_window({"dims": {"time": spec}}).sample_at(START)


# spec: S2.4
def test_the_time_axis_by_position_must_be_all(dated):
    dated.with_window({"axes": ["all", "all", "all", "all"]}).sample_at(START)
    with pytest.raises(SelectionError, match="'time' must be 'all'"):
        dated.with_window({"axes": [[0], "all", "all", "all"]}).sample_at(START)


# spec: S2.5
def test_a_count_of_axes_no_field_has_is_an_error(dated):
    for axes in ([], ["all"], ["all"] * 5):
        with pytest.raises(SelectionError, match="axes matches no field"):
            dated.with_window({"axes": axes}).sample_at(START)


# spec: S2.5
def test_one_dimension_asked_for_two_selectors_by_position_is_an_error(dated):
    # t2m(time, lat, lon) and u(time, lat, lon_u) agree on lat; mask and others are of rank 2 and 4
    dated.with_window({"axes": ["all", [1, 2], [0, 1]]}).sample_at(START)


# spec: S2.5
def test_two_fields_whose_positions_contradict_each_other_are_an_error(tmp_path):
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("x", 2)
        file.createDimension("y", 2)
        file.createVariable("v", "f4", ("x", "y"))[:] = 1
        file.createVariable("w", "f4", ("y", "x"))[:] = 1
    with pytest.raises(SelectionError, match=r"two selectors for the dimension"):
        const(tmp_path / "a.nc").with_window({"axes": [[0], "all"]}).materialize()
    assert const(tmp_path / "a.nc").with_window({"axes": [[0], [0]]}).materialize()["w"].shape == (1, 1)


# spec: S2.5
def test_a_dimension_twice_in_a_field_takes_one_selector_twice(tmp_path):
    stored = np.arange(9).reshape(3, 3)
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("x", 3)
        file.createVariable("cov", "i4", ("x", "x"))[:] = stored
    source = const(tmp_path / "a.nc")
    for selector in ([0], [2, 0], (1, 3)):
        picked = stored[slice(*selector) if isinstance(selector, tuple) else selector]
        picked = picked[:, slice(*selector) if isinstance(selector, tuple) else selector]
        for selection in ({"axes": [selector, selector]}, {"dims": {"x": selector}}):
            assert source.with_window(selection).materialize()["cov"].data.tolist() == picked.tolist()
    with pytest.raises(SelectionError, match="two selectors for the dimension 'x'"):
        source.with_window({"axes": [[0], [1]]}).materialize()


# spec: P2.7
def test_a_second_selection_is_refused(dated):
    windowed = dated.with_window({"dims": {}})
    for call in (
        lambda: windowed.with_window({"dims": {}}),
        lambda: windowed.refresh(START, select={"dims": {}}),
        lambda: windowed.sample_windows_at(START, [Window()]),
    ):
        with pytest.raises(ValueError, match="already"):
            call()


# Window as a value


# spec: S3.1
def test_windows_are_frozen_hashable_printable_and_pickle():
    window = Window({"lat": (120, 218), "lon": [1150, 1151, 0, 1], "lev": "all", "x": (0, 9, 3)})
    same = Window(
        {"lon": {"indices": [1150, 1151, 0, 1]}, "lat": {"slice": [120, 218]}, "lev": "all", "x": (0, 9, 3)}
    )
    assert window == same
    assert hash(window) == hash(same)
    assert len({window, same}) == 1
    assert eval(repr(window)) == window
    assert pickle.loads(pickle.dumps(window)) == window
    assert parse_selection(window.wire()) == window
    assert dict(window) == {"lat": (120, 218), "lon": [1150, 1151, 0, 1], "lev": "all", "x": (0, 9, 3)}
    assert window != Window({"lat": (120, 218)})
    with pytest.raises((AttributeError, TypeError)):
        window.other = 1
    with pytest.raises(TypeError):
        window["lat"] = (0, 1)


# spec: S3.2
def test_shape_and_origin_say_what_a_window_selects():
    window = Window({"lat": (120, 218), "lon": [1150, 1151, 0, 1]})
    assert window.shape({"lev": 72, "lat": 721, "lon": 1152}) == (72, 98, 4)
    assert window.origin == {"lat": 120, "lon": 1150}
    assert Window({"lat": (3, 3), "lon": "all"}).origin == {"lat": 0, "lon": 0}
    assert Window({"x": (0, 10, 3)}).shape({"x": 10}) == (4,)
    with pytest.raises(IndexError):
        window.shape({"lat": 100})


# spec: S3.3
def test_union_holds_every_index_of_both_and_no_hull():
    one, other = Window({"lat": (0, 2), "lon": (0, 3)}), Window({"lat": (8, 10), "lon": (3, 5)})
    assert one.union(other) == Window({"lat": [0, 1, 8, 9], "lon": (0, 5)})
    assert one.union(Window({"lat": (1, 3)})) == Window({"lat": (0, 3), "lon": "all"})
    assert one.union(Window()) == Window({"lat": "all", "lon": "all"})
    assert Window({"x": [5, 1, 5]}).union(Window({"x": (2, 3)})) == Window({"x": [1, 2, 5]})


# spec: S3.4
def test_grow_adds_a_halo_that_stops_at_edges_and_wraps_where_periodic():
    sizes = {"lat": 10, "lon": 8}
    window = Window({"lat": (0, 4), "lon": (6, 8)})
    grown = window.grow({"lat": 1, "lon": 2}, sizes=sizes, periodic=("lon",))
    assert grown == Window({"lat": (0, 5), "lon": [4, 5, 6, 7, 0, 1]})
    assert window.grow({"lat": (0, 2)}, sizes=sizes) == Window({"lat": (0, 6), "lon": (6, 8)})
    assert window.grow({"lon": 3}, sizes=sizes)["lon"] == (3, 8)
    assert Window({"lon": [7, 0]}).grow({"lon": 1}, sizes=sizes, periodic=("lon",))["lon"] == [6, 7, 0, 1]
    assert Window().grow({"lat": 1}, sizes=sizes)["lat"] == "all"
    assert Window().grow({"lon": 1}, sizes=sizes, periodic=["lon"])["lon"] == [7, *range(8), 0]
    assert Window({"lon": (2, 4)}).grow({"lon": 0}, sizes=sizes, periodic=["lon"])["lon"] == (2, 4)


# spec: S3.4
@pytest.mark.parametrize(
    ("spec", "amount"), [((0, 8, 2), 1), ([0, 5], 1), ([7, 0], 1), ((3, 3), 1), ((2, 4), -1)]
)
def test_grow_refuses_what_has_no_neighbours(spec, amount):
    with pytest.raises(SelectionError):
        Window({"lon": spec}).grow({"lon": amount}, sizes={"lon": 8})


def test_grow_needs_the_size():
    with pytest.raises(SelectionError, match="size"):
        Window({"lon": (0, 1)}).grow({"lon": 1}, sizes={})


# Windows from degrees


LON = np.array([0.0, 90, 180, 270])


# spec: S3.5
@pytest.mark.parametrize(
    ("axis", "bounds", "expected"),
    [
        (LON, (-90, 90), [270, 0, 90]),
        (LON, (170, 190), [180]),
        (LON, (350, 10), [0]),
        (LON, (0, 360), [0, 90, 180, 270]),
        (LON, (-180, 180), [180, 270, 0, 90]),
        (LON - 180, (-90, 90), [-90, 0, 90]),
        (LON - 180, (170, 190), [-180]),
        (LON - 180, (350, 10), [0]),
        (LON - 180, (90, 270), [90, -180, -90]),
        (np.array([0.0, 90, 180, 270, 360]), (-90, 90), [270, 0, 90]),
        (np.array([0.0, 90, 180, 270, 360]), (0, 360), [0, 90, 180, 270]),
        (np.array([0.0, 90, 180, 270, 360]), (350, 10), [0]),
        (np.array([270.0, 180, 90, 0]), (-90, 90), [270, 0, 90]),
        (LON, (90, 90), [90]),
    ],
)
def test_longitudes_come_from_west_to_east_in_either_convention_and_once(axis, bounds, expected):
    window = window_from_bounds({"lon": axis}, {"lon": bounds})
    assert axis[np.arange(len(axis))[_index(window, "lon")]].tolist() == expected


def _index(window, dim):
    spec = window[dim]
    return slice(*spec) if isinstance(spec, tuple) else spec


# spec: S3.5
@pytest.mark.parametrize("axis", [[60.0, 50, 40], [40.0, 50, 60]])
@pytest.mark.parametrize("bounds", [(40, 60), (60, 40)])
def test_latitudes_are_found_whichever_way_axis_and_bounds_run(axis, bounds):
    assert Window.from_bounds({"lat": np.array(axis)}, lat=bounds) == Window({"lat": (0, 3)})
    assert Window.from_bounds({"lat": np.array(axis)}, lat=(45, 99)).shape({"lat": 3}) == (2,)


# spec: S3.5
def test_every_window_of_one_degree_on_a_single_precision_tenth_degree_axis_has_eleven_rows():
    lat = (np.arange(1801) / 10 - 90).astype("f4")
    for k in range(-900, 890, 7):
        window = Window.from_bounds({"lat": lat}, lat=(k / 10, k / 10 + 1))
        start, stop = window["lat"]
        assert (start, stop) == (k + 900, k + 911)
    start, stop = Window.from_bounds({"lat": lat}, lat=(-25.449999999999978, -25.35))["lat"]
    assert lat[start:stop].tolist() == [np.float32(-25.4)]


def test_a_single_precision_longitude_meets_a_double_bound():
    lon = (np.arange(3600) / 10).astype("f4")
    window = Window.from_bounds({"lon": lon}, lon=(0.1, 0.3))
    assert window["lon"] == (1, 4)


# spec: S3.5
def test_uneven_axes_work():
    gauss = np.degrees(np.arcsin(np.polynomial.legendre.leggauss(94)[0])).astype("f4")
    for low, high in ((-30, 30), (0, 90), (55.5, 57.5)):
        start, stop = Window.from_bounds({"lat": gauss}, lat=(low, high))["lat"]
        inside = np.flatnonzero((gauss >= low) & (gauss <= high))
        assert (start, stop) == (inside[0], inside[-1] + 1)


# spec: S3.6
def test_bounds_without_a_point_and_axes_that_are_none_are_errors():
    with pytest.raises(SelectionError, match="no point"):
        Window.from_bounds({"lat": np.array([0.0, 10])}, lat=(3, 4))
    with pytest.raises(SelectionError, match="no coordinate 'lat'"):
        Window.from_bounds({"y": np.array([0.0, 10])}, lat=(3, 4))
    with pytest.raises(SelectionError, match="1-D"):
        Window.from_bounds({"lat": np.zeros((2, 2))}, lat=(3, 4))
    with pytest.raises(SelectionError, match="monotonic"):
        Window.from_bounds({"lat": np.array([0.0, 10, 5])}, lat=(3, 4))


# spec: S3.5
def test_a_longitude_is_known_by_its_units_whatever_its_name(tmp_path):
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("i", 4)
        axis = file.createVariable("i", "f4", ("i",))
        axis.units = "degrees_east"
        axis[:] = LON
        file.createVariable("v", "f4", ("i",))[:] = [0, 1, 2, 3]
    source = const(tmp_path / "a.nc")
    found = source.with_window(Window.from_bounds(source.coords, i=(-90, 90))).materialize()
    assert found["v"].data.tolist() == [3, 0, 1]
    assert found["i"].data.tolist() == [270, 0, 90]
