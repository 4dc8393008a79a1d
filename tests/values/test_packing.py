"""Rules 1 to 6 of values: signedness, masks, packing, and the dtype that comes out."""

import netCDF4
import numpy as np
import pytest
from inputs import EarthSciIOWarning, assert_values, hdf5, netcdf, one, read, same_bits, source, values

from earthsciio import DecodeError, Provider

F32 = np.float32


# Rule 1: _Unsigned


@pytest.fixture
def unsigned(tmp_path):
    attrs = {"_Unsigned": "true", "_FillValue": np.int16(-1), "scale_factor": F32(0.5)}
    attrs["valid_range"] = np.array([0, -6], "i2")
    return one(tmp_path / "a.nc", np.array([0, 1, 32767, -32768, -1, -5, -2, -6], "i2"), attrs)


# spec: V1.1
def test_unsigned_data_in_a_signed_type_is_reinterpreted_before_masking_and_scaling(unsigned):
    expected = [0, 0.5, 16383.5, 16384.0, None, 32765.5, 32767.0, 32765.0]
    assert_values(values(unsigned), expected)
    assert_values(values(unsigned, precision="source"), expected, F32)


# spec: V1.1
def test_bounds_are_reinterpreted_as_unsigned_too_and_mask_by_option_only(unsigned):
    found = values(unsigned, mask_valid_range=True, precision="source")
    assert_values(found, [0, 0.5, 16383.5, 16384.0, None, None, None, 32765.0], F32)


# spec: V1.1
def test_a_fill_already_written_as_unsigned_is_understood(tmp_path):
    attrs = {"_Unsigned": "true", "missing_value": np.uint8(255)}
    assert_values(values(one(tmp_path / "a.nc", np.array([0, -1, -2], "i1"), attrs)), [0, None, 254])


# spec: V1.1
def test_unsigned_false_on_an_unsigned_type_reads_it_as_signed(tmp_path):
    path = one(tmp_path / "a.nc", np.array([0, 127, 128, 255], "u1"), {"_Unsigned": "false"})
    assert_values(values(path), [0, 127, -128, -1], np.int8)
    path = one(
        tmp_path / "b.nc", np.array([1, 255], "u1"), {"_Unsigned": "false", "_FillValue": np.uint8(255)}
    )
    assert_values(values(path), [1, None])


def test_unsigned_without_masks_stays_an_integer(tmp_path):
    path = one(tmp_path / "a.nc", np.array([-1, 5], "i1"), {"_Unsigned": "true"}, format="NETCDF3_CLASSIC")
    assert_values(values(path), [255, 5], np.uint8)


# Rule 2: masks


# spec: V2.1
def test_masking_happens_before_scaling(tmp_path):
    path = one(
        tmp_path / "a.nc", np.array([100, 10, 1], "i2"), {"_FillValue": np.int16(10), "scale_factor": 0.1}
    )
    assert_values(values(path), [100 * 0.1, None, 1 * 0.1])


# spec: V2.1
def test_several_missing_values_mask_together_with_the_fill(tmp_path):
    attrs = {"_FillValue": np.int16(-999), "missing_value": np.array([-99, -98], "i2")}
    attrs |= {"scale_factor": 0.1, "add_offset": 10.0}
    path = one(tmp_path / "a.nc", np.array([-999, -99, -98, 0, 5], "i2"), attrs)
    assert_values(values(path), [None, None, None, 10.0, 10.5])


# spec: V2.2
def test_a_fill_is_compared_in_the_precision_of_the_data(tmp_path):
    raw = np.array([1, 1e37, 2], "f4")
    path = one(tmp_path / "a.nc", raw, {"_FillValue": F32(1e37), "missing_value": 1e37})
    assert_values(values(path), [1, None, 2])
    path = one(tmp_path / "b.nc", raw, {"missing_value": 1e37})
    assert_values(values(path), [1, None, 2])
    path = one(tmp_path / "c.nc", np.array([0.1, 0.2], "f4"), {"missing_value": 0.1})
    assert_values(values(path), [None, float(F32(0.2))])


# spec: V2.3
def test_a_nan_fill_masks_nan_even_stored_as_double_on_a_float(tmp_path):
    path = hdf5(tmp_path / "a.h5", np.array([1, np.nan, 3], "f4"), {"_FillValue": np.float64("nan")})
    assert_values(values(path), [1, None, 3])


# spec: V2.4
def test_the_hdf5_fill_property_fills_holes_and_never_masks(tmp_path):
    assert values(hdf5(tmp_path / "a.h5", np.float32(0.0))) == 0.0
    path = hdf5(tmp_path / "b.h5", np.array([7, 1, 7], "i4"), fillvalue=7)
    assert_values(values(path), [7, 1, 7], np.int32)


# spec: V2.2
@pytest.mark.parametrize(
    ("dtype", "attribute"),
    [
        ("i2", np.int32(70000)),
        ("u1", np.int16(-1)),
        ("i4", 0.5),
        ("i4", 1e30),
        ("i2", "missing"),
        ("i4", np.nan),
    ],
)
def test_a_missing_value_no_element_can_have_is_ignored_with_one_warning(tmp_path, dtype, attribute):
    path = one(tmp_path / "a.nc", [0, 1], {"missing_value": attribute}, dtype)
    provider = Provider(source(path))
    with pytest.warns(EarthSciIOWarning, match="v: missing_value") as caught:
        found = provider.sample_at(None)["v"].data
    assert len(caught) == 1
    assert_values(found, [0, 1], dtype)  # an ignored attribute does not make a float of an integer
    provider.sample_at(None)
    provider.with_window({"dims": {"x": (0, 1)}}).sample_at(None)  # the suite makes errors of warnings


# spec: V2.2
def test_a_whole_float_fill_on_an_integer_is_that_integer(tmp_path):
    path = one(tmp_path / "a.nc", [0, -1], {"missing_value": -1.0}, "i4")
    assert_values(values(path), [0, None])


# spec: V2.5
def test_bounds_mask_only_by_option(tmp_path):
    attrs = {"valid_min": np.int16(0), "valid_max": np.int16(10)}
    path = one(tmp_path / "a.nc", [-1, 0, 10, 11], attrs, "i2")
    assert_values(values(path), [-1, 0, 10, 11], np.int16)
    assert_values(values(path, mask_valid_range=True), [None, 0, 10, None])
    path = one(tmp_path / "b.nc", [-1, 0, 10, 11], {"valid_range": np.array([0, 10], "f4")}, "f4")
    assert_values(values(path), [-1, 0, 10, 11])
    assert_values(values(path, mask_valid_range=True), [None, 0, 10, None])


# spec: V2.5
def test_one_bound_alone_masks_one_side(tmp_path):
    path = one(tmp_path / "a.nc", [-1, 0, 99], {"valid_min": np.int16(0)}, "i2")
    assert_values(values(path, mask_valid_range=True), [None, 0, 99])


# spec: V2.2
def test_a_warning_is_given_once_per_provider_and_variable(tmp_path):
    path = netcdf(
        tmp_path / "a.nc",
        {name: ("x", np.zeros(2, "i2"), {"missing_value": "none"}) for name in ("a", "b")},
    )
    for _ in range(2):
        with pytest.warns(EarthSciIOWarning) as caught:
            read(path)
        assert len(caught) == 2


# Rule 3: unpacking


# spec: V3.1
def test_unpacking_rounds_twice_in_float64(tmp_path):
    raw = np.arange(-32768, 32767, 97, dtype="i2")
    scale, offset = 0.0012345678901234, 273.15
    path = one(tmp_path / "a.nc", raw, {"scale_factor": scale, "add_offset": offset})
    expected = np.array([float(float(r) * scale) + offset for r in raw.tolist()])
    assert same_bits(values(path), expected)


# spec: V3.1
def test_single_precision_parameters_are_widened_exactly(tmp_path):
    raw = np.arange(-300, 300, dtype="i2")
    scale, offset = F32(0.1), F32(273.15)
    path = one(tmp_path / "a.nc", raw, {"scale_factor": scale, "add_offset": offset})
    expected = raw.astype("f8") * float(scale) + float(offset)
    assert same_bits(values(path), expected)
    assert same_bits(values(path, precision="source"), expected.astype("f4"))


# spec: V3.2
def test_packing_attributes_may_be_arrays_of_one(tmp_path):
    path = hdf5(
        tmp_path / "a.h5", np.array([1, 2], "i2"), {"scale_factor": np.array([0.5]), "add_offset": [1]}
    )
    assert_values(values(path), [1.5, 2.0])


# spec: V3.1
def test_an_offset_or_a_scale_alone_is_enough(tmp_path):
    assert_values(values(one(tmp_path / "a.nc", [1, 2], {"add_offset": 0.5}, "i2")), [1.5, 2.5])
    assert_values(values(one(tmp_path / "b.nc", [1, 2], {"scale_factor": np.int32(3)}, "i2")), [3, 6])


# spec: V3.3
def test_an_identity_packing_is_none_on_floats_and_packing_on_integers(tmp_path):
    identity = {"scale_factor": F32(1), "add_offset": F32(0)}
    raw = np.array([-0.0, 1.5], "f4")
    found = values(one(tmp_path / "a.nc", raw, identity), precision="source")
    assert same_bits(found, raw)
    assert np.signbit(values(one(tmp_path / "b.nc", raw, identity))[0])  # -0.0 + 0.0 would be 0.0
    assert_values(values(one(tmp_path / "c.nc", [1, 2], identity, "i4")), [1, 2])
    assert_values(values(one(tmp_path / "d.nc", [1, 2], identity, "i2"), precision="source"), [1, 2], F32)


# spec: V3.2
def test_a_scale_that_is_no_number_names_variable_and_file(tmp_path):
    path = one(tmp_path / "a.nc", [1], {"scale_factor": "0.1"}, "i2")
    with pytest.raises(DecodeError, match=r"scale_factor.*a\.nc.*variable=v"):
        values(path)


def test_a_result_beyond_single_precision_is_infinite_without_noise(tmp_path):
    path = one(tmp_path / "a.nc", [0, 1000], {"scale_factor": F32(3e38)}, "i2")
    assert_values(values(path, precision="source"), [0, np.inf], F32)


# Rules 4 and 5: the dtype that comes out


# spec: V4.1, V4.4
@pytest.mark.parametrize(
    ("dtype", "attrs", "plain", "at_source"),
    [
        ("f4", {}, "f8", "f4"),
        ("f8", {}, "f8", "f8"),
        ("f4", {"_FillValue": F32(5)}, "f8", "f4"),
        ("f4", {"scale_factor": F32(2)}, "f8", "f8"),
        ("f4", {"scale_factor": 1.0, "add_offset": 0.0}, "f8", "f4"),
        ("i1", {"scale_factor": F32(2)}, "f8", "f4"),
        ("u2", {"scale_factor": F32(2), "add_offset": F32(1)}, "f8", "f4"),
        ("i2", {"scale_factor": 2.0}, "f8", "f8"),
        ("i2", {"scale_factor": F32(2), "add_offset": 1.0}, "f8", "f8"),
        ("i2", {"add_offset": F32(2), "_FillValue": np.int16(3)}, "f8", "f4"),
        ("i4", {"scale_factor": F32(2)}, "f8", "f8"),
        ("i2", {"scale_factor": np.int16(2)}, "f8", "f8"),
        ("i2", {"_FillValue": np.int16(3)}, "f8", "f8"),
        ("i2", {}, "i2", "i2"),
        ("u8", {}, "u8", "u8"),
        ("i4", {"valid_min": np.int32(0)}, "i4", "i4"),
    ],
)
def test_the_dtype_depends_on_declaration_and_file_alone(tmp_path, dtype, attrs, plain, at_source):
    path = one(tmp_path / "a.nc", [1, 2], attrs, dtype)
    for precision, expected in (("float64", plain), ("source", at_source)):
        for window in (None, {"dims": {"x": (0, 1)}}, {"dims": {"x": []}}):
            assert read(path, window=window, precision=precision)["v"].dtype == np.dtype(expected)


# spec: V4.1
def test_class_and_dtype_do_not_depend_on_the_values_in_the_window(tmp_path):
    path = one(tmp_path / "a.nc", np.array([1, 2, 5, 4], "f4"), {"_FillValue": F32(5)})
    for window, expected in (({"dims": {"x": (0, 2)}}, [1, 2]), (None, [1, 2, None, 4])):
        found = read(path, window=window)["v"].data
        assert type(found) is np.ndarray
        assert_values(found, expected)


# spec: V4.2
def test_integers_without_attributes_keep_their_type(tmp_path):
    for dtype in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"):
        info = np.iinfo(dtype)
        path = one(tmp_path / f"{dtype}.nc", [info.min, 0, info.max], dtype=dtype)
        assert_values(values(path), [info.min, 0, info.max], dtype)


# spec: V4.2
def test_an_integer_with_a_mask_is_float64_whether_or_not_a_masked_value_occurs(tmp_path):
    assert_values(values(one(tmp_path / "a.nc", [1, 2], {"_FillValue": np.int32(-1)}, "i4")), [1, 2])


# spec: V4.3
def test_a_64_bit_integer_that_float64_can_not_hold_is_an_error_naming_the_variable(tmp_path):
    attrs = {"missing_value": np.int64(-1)}
    big = 2**53 + 1
    path = one(tmp_path / "a.nc", [0, big], attrs, "i8")
    with pytest.raises(DecodeError, match=rf"{big}.*a\.nc.*variable=v"):
        values(path)
    assert_values(read(path, window={"dims": {"x": (0, 1)}})["v"].data, [0])
    path = one(tmp_path / "b.nc", [-(2**63), 2**53, -1], attrs, "i8")
    assert_values(values(path), [-(2.0**63), 2.0**53, None])
    path = one(tmp_path / "c.nc", [2**63 - 1], attrs, "i8")
    with pytest.raises(DecodeError):
        values(path)
    path = one(tmp_path / "d.nc", [2**63, 2**64 - 1], {"missing_value": np.uint64(2**64 - 1)}, "u8")
    assert_values(values(path), [2.0**63, None])
    path = one(tmp_path / "e.nc", [2**64 - 1], {"missing_value": np.uint64(0)}, "u8")
    with pytest.raises(DecodeError):
        values(path)


# spec: V4.3
def test_a_masked_integer_need_not_fit_float64(tmp_path):
    path = one(tmp_path / "a.nc", [1, 2**63 - 1], {"missing_value": np.int64(2**63 - 1)}, "i8")
    assert_values(values(path), [1, None])


# spec: V3.3, V4.4
def test_nan_payloads_and_negative_zero_survive(tmp_path):
    bits = np.array([0x7FC00123, 0xFFC00000, 0x80000000, 0x7F800000, 0x7FA00001], "u4")
    path = hdf5(tmp_path / "a.h5", bits.view("f4"))
    with np.errstate(all="ignore"):
        widened = bits.view("f4").astype("f8")
    assert same_bits(values(path), widened)
    assert same_bits(values(path, precision="source"), bits.view("f4"))
    bits = np.array([0x7FF8000000000123, 0x8000000000000000], "u8")
    assert same_bits(values(hdf5(tmp_path / "b.h5", bits.view("f8"))), bits.view("f8"))


# spec: V2.6
def test_half_precision_is_a_float_without_a_default_fill(tmp_path):
    raw = np.array([1, np.inf, -0.5], "f2")
    path = hdf5(tmp_path / "a.h5", raw)
    assert_values(values(path), [1, np.inf, -0.5])
    assert same_bits(values(path, precision="source"), raw)


# Rule 6: default fill


# spec: V2.6
@pytest.mark.parametrize("file_format", ["NETCDF4", "NETCDF3_CLASSIC"])
def test_elements_of_a_float_variable_that_nobody_wrote_are_missing(tmp_path, file_format):
    with netCDF4.Dataset(tmp_path / "a.nc", "w", format=file_format) as file:
        file.createDimension("x", 3)
        for name, dtype in (("v", "f4"), ("w", "f8")):
            file.createVariable(name, dtype, ("x",))[0] = 1.5
    assert_values(values(tmp_path / "a.nc", "v"), [1.5, None, None])
    assert_values(values(tmp_path / "a.nc", "w"), [1.5, None, None])


# spec: V2.6
def test_the_default_fill_of_integers_is_data(tmp_path):
    assert_values(values(one(tmp_path / "a.nc", [0, 254, 255], dtype="u1")), [0, 254, 255], np.uint8)
    fill = netCDF4.default_fillvals["i4"]
    assert_values(values(one(tmp_path / "b.nc", [fill, 1], dtype="i4")), [fill, 1], np.int32)


# spec: V2.6
def test_a_fill_of_its_own_replaces_the_default_one(tmp_path):
    default = F32(netCDF4.default_fillvals["f4"])
    path = one(tmp_path / "a.nc", np.array([default, -1], "f4"), {"_FillValue": F32(-1)})
    assert_values(values(path), [float(default), None])
    path = one(tmp_path / "b.nc", np.array([default, -1], "f4"), {"missing_value": F32(-1)})
    assert_values(values(path), [None, None])


# Rule 11, within one file here; across the files of a series in tests/provider


# spec: V5.1
def test_attributes_that_decoding_used_up_are_gone_and_others_stay(tmp_path):
    attrs = {"_FillValue": np.int16(-1), "units": "K", "valid_max": np.int16(9), "bounds": "v_bnds"}
    found = read(one(tmp_path / "a.nc", [1], attrs, "i2"))["v"].attrs
    assert found == {"units": "K", "valid_max": 9, "bounds": "v_bnds"}


# spec: V5.1
@pytest.mark.parametrize("option", [False, True])
@pytest.mark.parametrize(
    "attrs",
    [
        {"scale_factor": 0.1, "add_offset": 200.0, "valid_range": np.array([0, 1000], "i2")},
        {"scale_factor": 0.1, "valid_min": np.int16(0), "valid_max": np.int16(1000)},
        {"_Unsigned": "true", "valid_range": np.array([0, -2], "i2")},
        {"_Unsigned": "true", "_FillValue": np.int16(-1), "valid_max": np.int16(-2)},
    ],
)
def test_valid_bounds_do_not_stand_beside_values_they_do_not_bound(tmp_path, attrs, option):
    raw = np.array([0, 100, 5000, -3, -1 if "_FillValue" in attrs else -4], "i2")
    found = read(one(tmp_path / "a.nc", raw, attrs), mask_valid_range=option)["v"]
    assert found.attrs == {}
    with netCDF4.Dataset(tmp_path / "b.nc", "w") as file:  # who reads it back misses what is missing here
        file.createDimension("x", len(raw))
        copy = file.createVariable("v", found.dtype, ("x",), fill_value=False)
        copy.setncatts(found.attrs)
        copy[:] = found.data
    with netCDF4.Dataset(tmp_path / "b.nc") as file:
        again = file["v"][:]
    missing = np.isnan(found.data) if found.dtype.kind == "f" else np.zeros(len(raw), bool)
    np.testing.assert_array_equal(np.ma.getmaskarray(again) | np.isnan(np.ma.getdata(again)), missing)


# spec: V5.1
@pytest.mark.parametrize("dtype", ["i2", "f4"])
def test_valid_bounds_that_masked_are_used_up_and_stay_otherwise(tmp_path, dtype):
    attrs = {"valid_range": np.array([0, 10], dtype)}
    path = one(tmp_path / "a.nc", [-1, 5, 11], attrs, dtype)
    assert read(path)["v"].attrs["valid_range"].tolist() == [0, 10]
    masked = read(path, mask_valid_range=True)["v"]
    assert_values(masked.data, [None, 5, None])
    assert masked.attrs == {}


# spec: V1.1
@pytest.mark.parametrize("spelling", ["true", "True", "TRUE"])
def test_unsigned_is_read_in_any_case(tmp_path, spelling):
    path = one(tmp_path / "a.nc", np.array([-1, 5], "i2"), {"_Unsigned": spelling})
    assert_values(values(path), [65535, 5], np.uint16)
    opposite = {"true": "false", "True": "False", "TRUE": "FALSE"}[spelling]
    path = one(tmp_path / "b.nc", np.array([65535, 5], "u2"), {"_Unsigned": opposite})
    assert_values(values(path), [-1, 5], np.int16)


# spec: V2.2
def test_all_that_is_ignored_of_a_variable_is_one_warning_that_says_what_to_do(tmp_path):
    attrs = {"missing_value": np.array([1e6, 3.5, 1.0]), "_FillValue": np.int16(9)}
    said = r"missing_value = 1000000\.0 does .*missing_value = 3\.5 is .*correct the attribute"
    with pytest.warns(EarthSciIOWarning, match=said) as caught:
        assert_values(values(one(tmp_path / "a.nc", [1, 2, 9], attrs, "i2")), [None, 2, None])
    assert len(caught) == 1
    wrong = {"missing_value": np.float32(1e37), "valid_range": np.array([0, 5, -2], "i2")}
    said = r"missing_value = 1e\+37 does .*valid_range = \[0, 5, -2\] is no"
    with pytest.warns(EarthSciIOWarning, match=said):
        values(one(tmp_path / "b.nc", [1], wrong, "i2"), mask_valid_range=True)
    with pytest.raises(DecodeError, match=r"scale_factor is \[0\.1, 0\.2\], not one"):
        values(one(tmp_path / "c.nc", [1], {"scale_factor": np.array([0.1, 0.2])}, "i2"))
