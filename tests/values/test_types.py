"""Rules 7 and 8 of values: bool, enum, text, complex, and what can't be delivered."""

import h5py
import netCDF4
import numpy as np
import pytest
from inputs import assert_values, hdf5, read, same_bits, values

from earthsciio import DecodeError, Unsupported


# spec: V4.5
def test_bool_and_enum_come_out_as_their_base_integer(tmp_path):
    assert_values(values(hdf5(tmp_path / "a.h5", np.array([True, False, True]))), [1, 0, 1], np.int8)
    with netCDF4.Dataset(tmp_path / "b.nc", "w") as file:
        cloud = file.createEnumType("u1", "cloud", {"clear": 0, "stratus": 1, "missing": 255})
        file.createDimension("x", 3)
        file.createVariable("v", cloud, ("x",), fill_value=255)[:] = [0, 1, 0]
        file.createVariable("w", cloud, ("x",))[:] = [1, 1, 0]
    assert_values(values(tmp_path / "b.nc", "w"), [1, 1, 0], np.uint8)
    kind = h5py.enum_dtype({"A": -1, "B": 2}, basetype=">i4")
    path = hdf5(tmp_path / "c.h5", np.array([-1, 2], ">i4"), dtype=kind)
    assert_values(values(path), [-1, 2], np.int32)


# spec: V4.7
@pytest.mark.parametrize("file_format", ["NETCDF4", "NETCDF3_CLASSIC"])
def test_characters_are_joined_along_the_string_length(tmp_path, file_format):
    with netCDF4.Dataset(tmp_path / "a.nc", "w", format=file_format) as file:
        for dim, size in (("t", None), ("x", 2), ("n", 4)):
            file.createDimension(dim, size)
        words = netCDF4.stringtochar(np.array([["ab", "abcd"], ["", "x y"]], "S4"))
        file.createVariable("v", "S1", ("t", "x", "n"))[:] = words
        file.createVariable("w", "S1", ("x", "n"))[:] = words[0]
        file.createVariable("one", "S1", ())[...] = b"q"
        file.createVariable("flag", "S1", ("t",))[:] = np.array([b"a", b"b"])
    found = read(tmp_path / "a.nc")
    assert found["v"].dims == ("t", "x")
    assert found["v"].dtype == object
    assert found["v"].data.tolist() == [["ab", "abcd"], ["", "x y"]]
    assert found["w"].data.tolist() == ["ab", "abcd"]
    assert found["one"].data[()] == "q"
    assert type(found["one"].data[()]) is str
    assert found["flag"].dims == ("t",)  # a record dimension is never a string length
    assert found["flag"].data.tolist() == ["a", "b"]
    window = {"dims": {"t": [1, 0, 1], "x": (1, 2)}}
    assert read(tmp_path / "a.nc", "v", window=window)["v"].data.tolist() == [["x y"], ["abcd"], ["x y"]]


# spec: V4.6
def test_text_is_utf_8_unless_it_says_otherwise(tmp_path):
    path = hdf5(tmp_path / "a.h5", np.array(["Zürich".encode(), b"Bern"], "S8"))
    assert values(path).tolist() == ["Zürich", "Bern"]
    latin = np.array(["Zürich".encode("latin-1")], "S8")
    assert values(hdf5(tmp_path / "b.h5", latin, {"_Encoding": "latin-1"})).tolist() == ["Zürich"]
    with pytest.raises(DecodeError, match=r"c\.h5.*variable=v.*attribute _Encoding, in the file"):
        values(hdf5(tmp_path / "c.h5", latin))


# spec: V4.6
def test_strings_of_any_length_come_out_as_str_and_unwritten_ones_empty(tmp_path):
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("x", 3)
        file.createVariable("v", str, ("x",))[:2] = np.array(["ab", "çé" * 100], object)
        file.createVariable("w", str, ())[...] = "one"
    found = values(tmp_path / "a.nc")
    assert found.tolist() == ["ab", "çé" * 100, ""]
    assert {type(item) for item in found} == {str}
    assert values(tmp_path / "a.nc", "w").shape == ()
    assert type(values(tmp_path / "a.nc", "w")[()]) is str  # not an array in an array
    assert values(tmp_path / "a.nc", "w")[()] == "one"
    assert read(tmp_path / "a.nc", window={"dims": {"x": [1, 0]}})["v"].data.tolist() == ["çé" * 100, "ab"]


# spec: V8.1, V8.2
def test_strings_never_written_are_the_storage_fill(tmp_path):
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("t", None)
        file.createDimension("x", 2)
        file.createVariable("step", "i4", ("t",))[:] = [1, 2, 3]
        for name, dims in (("part", ("t", "x")), ("none", ("x",)), ("scalar", ())):
            file.createVariable(name, str, dims, fill_value=f"no {name} ç")
        file.createVariable("short", str, ("t",), fill_value="gone")[0] = "a"
        file["part"][1, 0] = "b"
    with netCDF4.Dataset(tmp_path / "a.nc") as file:
        for name in ("part", "none", "scalar", "short"):
            found = values(tmp_path / "a.nc", name)
            assert found.tolist() == np.asarray(file[name][...]).tolist(), name
            assert {type(item) for item in found.reshape(-1)} == {str}, name
    assert values(tmp_path / "a.nc", "short").tolist() == ["a", "gone", "gone"]
    assert values(tmp_path / "a.nc", "scalar")[()] == "no scalar ç"


# spec: V8.2
@pytest.mark.parametrize("chunks", [(2,), None])
def test_a_string_fill_of_plain_hdf5_is_that_of_the_dataset(tmp_path, chunks):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("utf", (4,), h5py.string_dtype(), chunks=chunks, fillvalue="çé")
        file.create_dataset("ascii", (4,), h5py.string_dtype("ascii"), chunks=chunks, fillvalue="abc")
        file.create_dataset("default", (4,), h5py.string_dtype(), chunks=chunks)
        if chunks:
            file["utf"][0] = file["ascii"][0] = file["default"][0] = "x"
    first = "x" if chunks else None
    for name, fill in (("utf", "çé"), ("ascii", "abc"), ("default", "")):
        assert values(tmp_path / "a.h5", name).tolist() == [first or fill, fill, fill, fill]


# spec: V2.8, V5.1
def test_text_and_complex_numbers_are_never_masked(tmp_path):
    attrs = {"_FillValue": b"ab", "missing_value": b"ab", "scale_factor": 2.0, "_Encoding": "latin-1"}
    found = read(hdf5(tmp_path / "a.h5", np.array([b"ab", b""], "S2"), attrs))["v"]
    assert found.data.tolist() == ["ab", ""]
    assert sorted(found.attrs) == sorted(attrs)
    raw = np.array([1 + 2j, -9], "c16")
    found = read(hdf5(tmp_path / "b.h5", raw, {"_FillValue": np.complex128(-9), "missing_value": -9.0}))["v"]
    assert same_bits(found.data, raw)
    assert sorted(found.attrs) == ["_FillValue", "missing_value"]


# spec: V4.5
@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_complex_numbers_are_unchanged(tmp_path, dtype):
    raw = np.array([1 + 2j, complex(np.nan, -0.0)], dtype)
    assert same_bits(values(hdf5(tmp_path / "a.h5", raw, chunks=(1,))), raw)


def _awkward(path):
    with h5py.File(path, "w") as file:
        file["compound"] = np.zeros(2, [("a", "i4"), ("b", "f8")])
        file["opaque"] = np.zeros(2, "V5")
        file["reference"] = np.array([file.ref], dtype=h5py.ref_dtype)
        file.create_dataset("vlen", (2,), h5py.vlen_dtype("i4"))
        file["null"] = h5py.Empty("f4")
        file["fine"] = [1.0, 2.0]
    return path


# spec: V4.8
@pytest.mark.parametrize("name", ["compound", "opaque", "reference", "vlen", "null"])
def test_what_can_not_be_delivered_is_unsupported_by_name(tmp_path, name):
    path = _awkward(tmp_path / "a.h5")
    with pytest.raises(Unsupported, match=rf"a\.h5.*variable={name}") as caught:
        values(path, name)
    assert isinstance(caught.value, NotImplementedError)


# spec: V4.8
def test_what_can_not_be_delivered_does_no_harm_unless_asked_for(tmp_path):
    assert_values(values(_awkward(tmp_path / "a.h5"), "fine"), [1, 2])
    with pytest.raises(Unsupported, match="variables"):  # of all data variables it is one
        read(tmp_path / "a.h5")


# spec: V4.8
def test_what_is_broken_does_no_harm_unless_asked_for(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("attribute", data=[1, 2]).attrs["scale_factor"] = "ten"
        damaged = file.create_dataset("damaged", data=np.arange(1000), chunks=(1000,), compression="gzip")
        file["fine"] = [1.0, 2.0]
        place = damaged.id.get_chunk_info(0).byte_offset
    with path.open("r+b") as raw:
        raw.seek(place)
        raw.write(b"rubbish")
    assert_values(values(path, "fine"), [1, 2])
    for name in ("attribute", "damaged"):
        with pytest.raises(DecodeError, match=rf"variable={name}"):
            values(path, name)
