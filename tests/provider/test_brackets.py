"""Two records put together: units and types that go together, the last of a series (spec/values.md, 7)."""

import warnings

import netCDF4
import numpy as np
import pytest
from series_files import DAY, HOUR, dated, first, provider, utc

from earthsciio import EarthSciIOWarning, FileFormatError, PrefetchGroup

START = utc(2020, 1, 1)


@pytest.fixture
def pair(tmp_path):
    """Write ``v(time)`` of two daily files, and give a source of brackets over them."""

    def write(one, other, *, coordinates="", **attrs):
        for day, (dtype, value, units) in enumerate((one, other)):
            path = tmp_path / f"2020010{day + 1}.nc"
            path.unlink(missing_ok=True)
            with netCDF4.Dataset(path, "w") as file:
                file.createDimension("time", 1)
                time = file.createVariable("time", "f8", ("time",))
                time.units = "days since 2020-01-01"
                time[:] = day
                v = file.createVariable("v", dtype, ("time",))
                v.setncatts({"serial": day, **attrs, **({} if units is None else {"units": units})})
                v[:] = np.array([value], object if dtype is str else dtype)
                if coordinates:
                    file.createVariable("w", "f8", ("time",)).coordinates = coordinates
        return provider(
            tmp_path / "%Y%m%d.nc", START, "P1D", variables=("w" if coordinates else "v",),
            file_period="P1D", end=START + 2 * DAY, records_per_sample=2,
        )  # fmt: skip

    return write


# spec: V7.6
@pytest.mark.parametrize(("ours", "theirs"), [("K", "degC"), ("K", None), (None, "K")])
@pytest.mark.parametrize("coordinates", ["", "v"])
def test_halves_in_different_units_are_an_error_naming_both_files_and_the_variable(
    pair, tmp_path, ours, theirs, coordinates
):
    source = pair(("f4", 280, ours), ("f4", 7, theirs), coordinates=coordinates)
    with pytest.raises(FileFormatError, match=rf"{ours or ''}.*{theirs or ''}.*20200102\.nc") as caught:
        source.sample_at(START)
    assert (caught.value.variable, caught.value.file) == ("v", str(tmp_path / "20200101.nc"))
    assert caught.value.epoch == "2020-01-01 00:00:00"
    assert source.sample_at(START + DAY).times == (START + DAY, START + DAY)  # one file, one unit
    with PrefetchGroup({"a": source}) as group:
        group.start("forward")
        with pytest.raises(FileFormatError, match="units"):
            group.take(0)


# spec: V7.6
def test_other_attributes_of_a_bracket_are_those_of_its_first_record(pair):
    source = pair(("f4", 280, "K"), ("f4", 281, " K "), long_name="air")
    field = source.sample_at(START)["v"]
    assert field.attrs == {"serial": 0, "long_name": "air", "units": "K"}
    assert field.data.tolist() == [280, 281]


# spec: V7.4
@pytest.mark.parametrize(
    ("one", "other", "dtype", "values"),
    [
        (("i8", 2**53), ("f8", 0.5), "f8", [2.0**53, 0.5]),
        (("i1", -1), ("u1", 200), "i2", [-1, 200]),
        (("u8", 2**60), ("i8", -1), "f8", [2.0**60, -1.0]),
        (("i8", -(2**63)), ("f8", 0.5), "f8", [-(2.0**63), 0.5]),
    ],
)
def test_halves_of_different_types_become_the_common_one(pair, one, other, dtype, values):
    field = pair((*one, None), (*other, None)).sample_at(START)["v"]
    assert (field.dtype, field.data.tolist()) == (np.dtype(dtype), values)


# spec: V7.4
@pytest.mark.parametrize(
    ("one", "other", "number"),
    [
        (("i8", 2**53 + 1), ("f8", 0.5), 2**53 + 1),
        (("f8", 0.5), ("i8", -(2**53) - 1), -(2**53) - 1),
        (("u8", 2**64 - 1), ("i8", 5), 2**64 - 1),  # rounds to 2^64, which no uint64 is
        (("i8", 2**63 - 1), ("f8", 0.5), 2**63 - 1),
    ],
)
def test_an_integer_that_the_common_type_does_not_hold_is_an_error_that_says_all(
    pair, tmp_path, one, other, number
):
    source = pair((*one, None), (*other, None))
    with pytest.raises(FileFormatError, match=rf"20200102\.nc.*the integer {number} ") as caught:
        source.sample_at(START)
    assert (caught.value.variable, caught.value.file) == ("v", str(tmp_path / "20200101.nc"))
    assert caught.value.epoch == "2020-01-01 00:00:00"


# spec: V7.4
def test_text_beside_numbers_is_called_text(pair):
    with pytest.raises(FileFormatError, match=r"text here and float64 in .*20200102\.nc"):
        pair((str, "x", None), ("f8", 0.5, None)).sample_at(START)


# spec: T4.3
def test_a_record_without_a_successor_before_the_end_is_bracketed_with_itself(tmp_path):
    for day in range(2):
        stamp = START + day * DAY
        dated(tmp_path / f"{stamp:%Y%m%d}.nc", np.arange(24) + 24 * day, np.arange(24) + 24 * day)
    daily = {"file_period": "P1D", "records_per_sample": 2}
    # the last daily anchor has hourly successors before the end
    source = provider(tmp_path / "%Y%m%d.nc", START, "P1D", end=START + 2 * DAY, **daily)
    assert first(source.sample_at(START + DAY)) == [24, 25]
    # the record of the anchor at `end` is there, and is no successor: in the same file, and in the next
    for hours in (12, 24):
        source = provider(tmp_path / "%Y%m%d.nc", START, "PT1H", end=START + hours * HOUR, **daily)
        assert first(source.sample_at(START + (hours - 2) * HOUR)) == [hours - 2, hours - 1]
        assert first(source.sample_at(START + (hours - 1) * HOUR)) == [hours - 1, hours - 1]


# spec: T4.3
def test_so_is_one_whose_stamp_lies_after_its_anchor(tmp_path):
    dated(tmp_path / "20200101.nc", np.arange(24) + 0.5, np.arange(24))
    source = provider(
        tmp_path / "%Y%m%d.nc", START, "PT1H", file_period="P1D", end=START + 12 * HOUR, records_per_sample=2
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EarthSciIOWarning)
        assert first(source.sample_at(START + 10 * HOUR)) == [10, 11]
        assert first(source.sample_at(START + 11 * HOUR)) == [11, 11]  # 12:30 is the record of 12:00


# spec: T4.3
def test_later_files_without_records_leave_a_record_with_itself(tmp_path):
    dated(tmp_path / "20200101.nc", [0], [0])
    dated(tmp_path / "20200102.nc", [], [])
    source = provider(
        tmp_path / "%Y%m%d.nc", START, "P1D", file_period="P1D", end=START + 2 * DAY, records_per_sample=2
    )
    assert first(source.sample_at(START)) == [0, 0]
