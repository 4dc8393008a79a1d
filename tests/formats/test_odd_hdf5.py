"""One odd or damaged object of an HDF5 file is an error for who asks for it, and for nobody else."""

import warnings
from datetime import UTC, datetime

import h5py
import numpy as np
import pytest
from h5py import h5d, h5s, h5t

from earthsciio import (
    DataSource,
    EarthSciIOWarning,
    FileFormatError,
    NetCDFReader,
    Provider,
    SelectionError,
    SourceTemporal,
    TimeAxisError,
    Unsupported,
    VariableNotFound,
)


def read(path, *variables, **options):
    return Provider(DataSource("s", "netcdf", str(path), variables, reader_kwargs=options)).materialize()


def written(path, odd):
    with h5py.File(path, "w") as file:
        file["fine"] = np.arange(3.0)
        odd(file)
    return path


def typed(kind):
    return lambda file: h5d.create(file.id, b"odd", kind, h5s.create_simple((3,)))


def with_attributes(shape, scale=False, **attrs):
    def write(file):
        file["odd"] = np.zeros(shape)
        if scale:
            file["odd"].make_scale("odd")
        for name, value in attrs.items():
            file["odd"].attrs[name] = value

    return write


# spec: V4.8
@pytest.mark.parametrize(
    ("odd", "error"),
    [
        (typed(h5t.UNIX_D32LE), Unsupported),
        (with_attributes(3, DIMENSION_LIST=np.zeros(5)), FileFormatError),
        (with_attributes(3, DIMENSION_LIST=3), FileFormatError),
        (with_attributes(3, scale=True, _Netcdf4Dimid="x"), FileFormatError),
        (with_attributes(3, scale=True, _Netcdf4Dimid=[1, 2]), FileFormatError),
        (with_attributes((2, 3), _Netcdf4Coordinates=[7, 8]), FileFormatError),
        (with_attributes((2, 3), _Netcdf4Coordinates="x"), FileFormatError),
    ],
    ids=["time type", "list of numbers", "number", "text as id", "two ids", "no such ids", "text as ids"],
)
def test_what_is_odd_is_refused_by_name_and_the_others_are_read(tmp_path, odd, error):
    path = written(tmp_path / "a.h5", odd)
    assert read(path, "fine")["fine"].data.tolist() == [0, 1, 2]
    with pytest.raises(error, match=r"a\.h5.*variable=odd.*`variables`"):
        read(path, "odd")
    with pytest.raises(error, match="variable=odd"):  # all includes it: nothing is left out in silence
        read(path)


@pytest.mark.parametrize(
    "odd",
    [
        with_attributes(3, NAME=h5py.Empty("f4")),
        with_attributes(3, NAME=10**9),
        with_attributes(3, CLASS=[1, 2]),
        with_attributes(3, CLASS=h5py.Empty("S1")),
        with_attributes(3, units=np.zeros(1, [("a", "i4")])),
    ],
)
def test_attributes_of_no_meaning_do_no_harm(tmp_path, odd):
    path = written(tmp_path / "a.h5", odd)
    assert read(path)["odd"].data.tolist() == [0, 0, 0]


def test_names_that_are_not_utf_8(tmp_path):
    path = written(
        tmp_path / "a.h5",
        lambda file: h5d.create(file.id, b"\xff\xfe", h5t.NATIVE_FLOAT, h5s.create_simple((3,))),
    )
    assert read(path, "fine")["fine"].data.tolist() == [0, 1, 2]
    with pytest.raises(FileFormatError, match="variable=") as caught:
        read(path, r"\xff\xfe")
    assert str(caught.value).isascii()


def test_a_dataset_whose_object_header_is_damaged(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file["fine"], file["odd"] = np.arange(3.0), np.arange(4.0)
        place = h5py.h5o.get_info(file["odd"].id).addr
    with path.open("r+b") as raw:
        raw.seek(place)
        assert raw.read(4) == b"OHDR"
        raw.seek(place)
        raw.write(b"gone")
    assert read(path, "fine")["fine"].data.tolist() == [0, 1, 2]
    with pytest.raises(FileFormatError, match=r"a\.h5.*variable=odd"):
        read(path, "odd")


def test_elements_behind_the_end_of_the_file_are_those_of_one_variable(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=("earliest", "v108")) as file:
        file["fine"] = np.arange(3.0)
        file["odd"] = np.full(3, 5.0)
        offset = file["odd"].id.get_offset()
    data = path.read_bytes()
    field = offset.to_bytes(8, "little") + (24).to_bytes(8, "little")
    assert data.count(field) == 1
    path.write_bytes(data.replace(field, (1 << 40).to_bytes(8, "little") + (24).to_bytes(8, "little")))
    assert read(path, "fine")["fine"].data.tolist() == [0, 1, 2]
    with pytest.raises(FileFormatError, match=r"a\.h5, variable=odd"):
        read(path, "odd")


# Coordinates and times


@pytest.fixture
def with_odd_coordinate(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["v"] = np.arange(3.0)
        file["v"].attrs["coordinates"] = "odd wrong"
        file["odd"] = np.zeros(1, [("a", "i4")])[0]
        with_attributes(3, DIMENSION_LIST=3)(file.create_group("g"))
        file.move("g/odd", "wrong")
    return tmp_path / "a.h5"


# spec: V6.1
def test_a_coordinate_that_can_not_be_delivered_is_left_out_with_a_warning(with_odd_coordinate):
    provider = Provider(DataSource("s", "netcdf", str(with_odd_coordinate), ("v",)))
    with pytest.warns(EarthSciIOWarning) as caught:
        found = provider.materialize()
    assert found["v"].data.tolist() == [0, 1, 2]
    assert list(found.coord_names()) == []
    texts = sorted(str(warning.message) for warning in caught)
    assert len(texts) == 2
    assert "odd holds a compound type" in texts[0]
    assert "wrong its metadata can't be read" in texts[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        provider.materialize()
    with pytest.raises(Unsupported, match="variable=odd"):
        read(with_odd_coordinate, "v", "odd")


@pytest.mark.parametrize("name", ["phony_dim_0", "time", "date"])
def test_what_may_date_the_records_and_is_damaged_is_an_error_and_not_counted_past(tmp_path, name):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        v = file.create_dataset("v", data=np.arange(3.0))
        file[name] = np.arange(3.0)
        file[name].attrs["units"] = "days since 2000-01-01"
        file[name].attrs["DIMENSION_LIST"] = 3
        if name == "date":
            v.attrs["coordinates"] = "date"
            file["other"] = np.arange(3.0)
            file["other"].attrs["units"] = "hours since 1990-01-01"
    dim = "phony_dim_0"
    when = SourceTemporal(start="2000-01-01", frequency="P1D", file_period=None, time_dim=dim)
    provider = Provider(DataSource("s", "netcdf", str(tmp_path / "a.h5"), ("v",), when))
    with pytest.raises(TimeAxisError, match=f"'{name}' may date the records"):
        provider.refresh(datetime(2000, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize("outside", ["error", "cycle"])
@pytest.mark.parametrize("others", [("reftime",), ("time",), ()], ids=str)
def test_a_damaged_variable_is_not_passed_over_for_another_date(tmp_path, others, outside):
    """Whatever else there is: units along another, an index named like the dimension, or nothing."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["time"] = np.arange(3.0)
        file["time"].make_scale("time")
        if others != ("time",):
            file.move("time", "t")
        for name in ("v", "valid_time", *(name for name in others if name != "time")):
            file[name] = np.arange(3.0)
            file[name].dims[0].attach_scale(file["time" if others == ("time",) else "t"])
        for name in ("valid_time", *(name for name in others if name != "time")):
            file[name].attrs["units"] = "months since 2000-01-01"
        file["valid_time"].attrs["standard_name"] = "time"
        del file["valid_time"].attrs["DIMENSION_LIST"]
        file["valid_time"].attrs["DIMENSION_LIST"] = 3
    when = SourceTemporal(
        start="2000-01-01", frequency="P1M", end="2001-01-01", outside=outside,
        time_dim="time" if others == ("time",) else "t",
    )  # fmt: skip
    provider = Provider(DataSource("s", "netcdf", str(tmp_path / "a.h5"), ("v",), when))
    with pytest.raises(TimeAxisError, match="'valid_time' may date the records"):
        provider.refresh(datetime(2000, 1, 1, tzinfo=UTC))


def test_a_damaged_coordinate_of_a_dimension_is_left_out_with_a_warning(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["lat"] = np.arange(3.0)
        file["lat"].make_scale("lat")
        file["v"] = np.arange(3.0)
        file["v"].dims[0].attach_scale(file["lat"])
        file["lat"].attrs["_Netcdf4Dimid"] = "x"
    with pytest.warns(EarthSciIOWarning, match="lat its metadata can't be read"):
        found = read(tmp_path / "a.h5", "v")
    assert found["v"].data.tolist() == [0, 1, 2]
    assert list(found.coord_names()) == []


def test_nameless_dimensions_beside_a_damaged_variable_have_no_numbers_to_rely_on(tmp_path):
    for name, odd in (("whole", False), ("odd", True)):
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file["a"], file["v"] = np.zeros(5), np.arange(35.0).reshape(7, 5)
            if odd:
                file["a"].attrs["DIMENSION_LIST"] = 3

    def select(name):
        source = DataSource("s", "netcdf", str(tmp_path / f"{name}.h5"), ("v",))
        return Provider(source).with_window({"dims": {"phony_dim_0": {"slice": [0, 2]}}}).materialize()

    assert select("whole")["v"].shape == (7, 2)
    with pytest.raises(SelectionError, match=r"phony_dim_0.*unnumbered_dim_0"):
        select("odd")
    assert read(tmp_path / "odd.h5", "v")["v"].shape == (7, 5)


# Links


@pytest.fixture
def linked(tmp_path):
    """Groups in a circle, and links of every kind, to what is there and what is not."""
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["g/v"] = np.full(3, 99.0)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["fine"] = np.arange(3.0)
        group = file.create_group("g")
        group["v"] = np.arange(4.0)
        group["root"], group["self"] = file["/"], group
        group["up"] = h5py.SoftLink("/")
        for name, target in (
            ("alias", "/g/v"), ("galias", "/g"), ("nowhere", "/none"), ("one", "/two"), ("two", "/one"),
            ("through", "/other/v"), ("broken", "/gone/v"),
        ):  # fmt: skip
            file[name] = h5py.SoftLink(target)
        file["other"] = h5py.ExternalLink("other.h5", "/g")
        file["gone"] = h5py.ExternalLink("gone.h5", "/g")
        file["circle"] = h5py.ExternalLink("a.h5", "/circle")
    return tmp_path / "a.h5"


def test_links_of_every_kind_neither_hang_nor_kill(linked):
    arrays = NetCDFReader().open(str(linked)).arrays
    assert sorted(arrays) == ["alias", "fine"]
    assert read(linked, "alias")["alias"].data.tolist() == [0, 1, 2, 3]
    assert read(linked, "fine")["fine"].data.tolist() == [0, 1, 2]


# spec: V8.7
@pytest.mark.parametrize("group", ["g", "galias", "g/self", "g/self/self", "g/up/g", "g/root/galias"])
def test_a_group_is_found_by_each_of_its_paths(linked, group):
    assert read(linked, "v", group=group)["v"].data.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("group", ["other", "gone", "circle", "one", "nowhere", "fine"])
def test_a_group_that_is_not_in_this_file_is_an_error_that_lists_those_there_are(linked, group):
    with pytest.raises(SelectionError, match=r"there is no group.*a\.h5.*\['/', '/g'\]"):
        read(linked, group=group)


def test_a_dataset_of_another_file_is_never_read_from_this_one(linked):
    with pytest.raises(VariableNotFound):
        read(linked, "through")


def test_deeply_nested_groups(tmp_path):
    path = written(tmp_path / "a.h5", lambda file: file.create_group("/".join(["d"] * 300)))
    assert read(path)["fine"].data.tolist() == [0, 1, 2]
