"""Which record serves a time: over the seams of files, at both ends, in every calendar (spec/time.md)."""

import warnings
from datetime import datetime, timedelta, timezone

import cftime
import netCDF4
import numpy as np
import pytest
from series_files import DAY, HOUR, daily_files, dated, first, provider, utc

from earthsciio import (
    DeclarationError,
    EarthSciIOWarning,
    FileFormatError,
    MissingFile,
    Provider,
    RecordNotFound,
    TimeAxisError,
)

START = utc(2020, 1, 1)


# Files and their seams


# spec: T3.2
def test_a_record_is_found_in_the_file_whose_period_holds_its_anchor(tmp_path):
    plain = provider(daily_files(tmp_path, 3), START, "PT3H", file_period="P1D", end=START + 3 * DAY)
    for tick in [*range(24), *reversed(range(24))]:
        assert first(plain.sample_at(START + tick * 3 * HOUR)) == tick
        assert first(plain.sample_at(START + tick * 3 * HOUR + 2.9 * HOUR)) == tick


# spec: P2.2, T4.1
def test_a_bracket_reaches_over_the_seam(tmp_path):
    source = provider(
        daily_files(tmp_path, 3), START, "PT3H", file_period="P1D", end=START + 3 * DAY, records_per_sample=2
    )
    for tick in [*range(23), *reversed(range(23))]:
        sample = source.sample_at(START + tick * 3 * HOUR)
        assert first(sample) == [tick, tick + 1]
        assert sample.times == (START + tick * 3 * HOUR, START + (tick + 1) * 3 * HOUR)
    assert first(source.sample_at(START + 3 * DAY - HOUR)) == [23, 23]  # the last before the end


# spec: T3.3
def test_a_time_off_the_cadence_uses_the_record_in_force(tmp_path):
    path = dated(tmp_path / "201810.nc", np.arange(31), np.arange(1, 32), units="days since 2018-10-01")
    source = provider(tmp_path / "%Y%m.nc", utc(2018, 10, 1), "P1D", file_period="P1M", end=utc(2018, 11, 1))
    assert first(source.sample_at(utc(2018, 10, 31, 0, 2))) == 31
    assert path.exists()


# spec: T4.2
def test_an_empty_file_is_skipped_by_brackets_and_its_own_anchors_name_it(tmp_path):
    url = daily_files(tmp_path, 3, per_day=1)
    dated(tmp_path / "20200102.nc", [], [])
    source = provider(url, START, "P1D", file_period="P1D", end=START + 3 * DAY, records_per_sample=2)
    assert first(source.sample_at(START)) == [0, 2]
    with pytest.raises(RecordNotFound, match=r"20200102\.nc.*no records") as caught:
        source.sample_at(START + DAY)
    assert isinstance(caught.value, IndexError)


# spec: T4.2
def test_of_overlapping_files_each_serves_its_own_period(tmp_path):
    for day in range(2):
        values = np.arange(9) + 100 * day  # the ninth record is the first of the next day, with another value
        dated(tmp_path / f"2020010{day + 1}.nc", np.arange(9) * 3 + 24 * day, values)
    source = provider(
        tmp_path / "%Y%m%d.nc", START, "PT3H", file_period="P1D", end=START + 2 * DAY, records_per_sample=2
    )
    expected = [*range(8), *range(100, 108), 107]
    for order in (range(16), reversed(range(16))):
        for tick in order:
            assert first(source.sample_at(START + 3 * tick * HOUR)) == expected[tick : tick + 2]


# spec: P4.2, T4.3
def test_a_missing_file_is_an_error_of_its_own_samples_that_names_it(tmp_path):
    url = daily_files(tmp_path, 3)
    (tmp_path / "20200102.nc").unlink()
    source = provider(url, START, "PT3H", file_period="P1D", end=START + 3 * DAY, records_per_sample=2)
    assert first(source.sample_at(START)) == [0, 1]
    assert first(source.sample_at(START + 2 * DAY)) == [16, 17]
    for t in (START + DAY, START + DAY - HOUR):  # the second needs it as successor
        with pytest.raises(MissingFile, match=r"20200102\.nc") as caught:
            source.sample_at(t)
        assert caught.value.epoch in ("2020-01-02 00:00:00", "2020-01-01 21:00:00")  # the anchor in force


# spec: P4.2
def test_a_damaged_first_file_hurts_its_own_samples_only(tmp_path):
    url = daily_files(tmp_path, 2)
    (tmp_path / "20200101.nc").write_bytes(b"")
    source = provider(url, START, "PT3H", file_period="P1D", end=START + 2 * DAY)
    assert first(source.sample_at(START + DAY)) == 8
    with pytest.raises(FileFormatError, match=r"20200101\.nc"):
        source.sample_at(START)


# spec: T3.2
def test_a_file_without_the_record_of_an_anchor_names_anchor_file_and_span(tmp_path):
    dated(tmp_path / "a.nc", [0, 6], [0, 1])
    source = provider(tmp_path / "a.nc", START, "PT3H", end=START + DAY)
    with pytest.raises(
        RecordNotFound, match=r"a\.nc.*2020-01-01 03:00:00.*2020-01-01 00:00:00 to 2020-01-01 06"
    ):
        source.sample_at(START + 3 * HOUR)
    assert first(source.sample_at(START + 6 * HOUR)) == 1


# spec: V5.2
def test_units_packing_and_chunks_are_those_of_the_file_that_holds_the_record(tmp_path):
    for part, (scale, offset, since) in enumerate([(0.5, 10.0, "01T00"), (2.0, -5.0, "01T04")]):
        path = tmp_path / f"2020010100.{4 * part:02d}.nc"
        with netCDF4.Dataset(path, "w") as file:
            file.createDimension("time", 4)
            file.createDimension("x", 1)
            time = file.createVariable("time", "i4", ("time",))
            time.units = f"hours since 2020-01-{since}:00"
            time[:] = range(4)
            chunks = {"chunksizes": (4 - part, 1)} if part else {}
            v = file.createVariable("v", "i2", ("time", "x"), zlib=bool(part), **chunks)
            v.set_auto_maskandscale(False)
            v.scale_factor, v.add_offset = scale, offset
            v[:] = np.arange(4)[:, None]
    url = lambda t: str(tmp_path / f"2020010100.{t.hour:02d}.nc")
    source = provider(tmp_path, START, "PT1H", file_period="PT4H", end=START + 8 * HOUR, records_per_sample=2)
    object.__setattr__(source.loader, "url", url)
    expected = [10, 10.5, 11, 11.5, -5, -3, -1, 1, 1]
    for hour in [*range(8), *reversed(range(8))]:
        sample = source.sample_at(START + hour * HOUR)
        assert first(sample) == expected[hour : hour + 2]
        assert sample.times[0] == START + hour * HOUR
    assert sum(first(source.sample_at(START + 3.5 * HOUR))) / 2 == 3.25


# spec: T4.5
def test_a_differing_grid_is_an_error_naming_both_files(tmp_path):
    dated(tmp_path / "20200101.nc", [0], [0])
    dated(tmp_path / "20200102.nc", [24], [1], x=[10, np.nextafter(20, 21)])
    times = {"file_period": "P1D", "end": START + 2 * DAY}
    source = provider(tmp_path / "%Y%m%d.nc", START, "P1D", records_per_sample=2, **times)
    with pytest.raises(FileFormatError, match=r"(?s)'x'.*2020010[12]\.nc.*2020010[12]\.nc"):
        source.sample_at(START)
    single = provider(tmp_path / "%Y%m%d.nc", START, "P1D", **times)
    assert [first(single.sample_at(START + k * DAY)) for k in range(2)] == [0, 1]


# spec: P4.5
def test_a_dimension_of_another_size_is_an_error_naming_the_file(tmp_path):
    dated(tmp_path / "20200101.nc", [0], [0])
    with netCDF4.Dataset(tmp_path / "20200102.nc", "w") as file:
        file.createDimension("time", 1)
        file.createDimension("x", 3)
        time = file.createVariable("time", "f8", ("time",))
        time.units = "hours since 2020-01-01"
        time[:] = 24
        file.createVariable("v", "f8", ("time", "x"))[:] = 0
    source = provider(tmp_path / "%Y%m%d.nc", START, "P1D", file_period="P1D", end=START + 2 * DAY)
    with pytest.raises(FileFormatError, match=r"'x' has length 3, but 2.*20200101\.nc.*20200102\.nc"):
        source.sample_at(START + DAY)


# spec: T4.5
def test_text_coordinates_of_two_files_are_compared_as_text(tmp_path):
    for day in (1, 2):
        with netCDF4.Dataset(tmp_path / f"2020010{day}.nc", "w") as file:
            file.createDimension("time", 1)
            file.createDimension("station", 2)
            time = file.createVariable("time", "f8", ("time",))
            time.units = "days since 2020-01-01"
            time[:] = day - 1
            file.createVariable("station", str, ("station",))[:] = np.array(["Kiel", "Bonn"], object)
            file.createVariable("v", "f8", ("time", "station"))[:] = day
    source = provider(
        tmp_path / "%Y%m%d.nc", START, "P1D", file_period="P1D", end=START + 2 * DAY, records_per_sample=2
    )
    assert source.sample_at(START)["station"].data.tolist() == ["Kiel", "Bonn"]


# spec: V7.4
def test_a_bracket_of_integers_and_floats_is_float_and_refused_where_that_is_not_exact(tmp_path):
    def write(day, dtype, value):
        with netCDF4.Dataset(tmp_path / f"2020010{day}.nc", "w") as file:
            file.createDimension("time", 1)
            time = file.createVariable("time", "f8", ("time",))
            time.units = "days since 2020-01-01"
            time[:] = day - 1
            file.createVariable("v", dtype, ("time",))[:] = value

    write(1, "i8", 2**53)
    write(2, "f8", 0.5)
    times = {"file_period": "P1D", "end": START + 2 * DAY, "records_per_sample": 2}
    source = provider(tmp_path / "%Y%m%d.nc", START, "P1D", **times)
    assert source.sample_at(START)["v"].data.tolist() == [2.0**53, 0.5]
    (tmp_path / "20200101.nc").unlink()
    write(1, "i8", 2**53 + 1)
    with pytest.raises(FileFormatError, match="variable=v"):
        source.sample_at(START)


# Both ends


# spec: T5.1
def test_times_outside_are_errors_a_plain_caller_would_catch(tmp_path):
    source = provider(daily_files(tmp_path, 1), START, "PT3H", file_period="P1D", end=START + DAY)
    with pytest.raises(ValueError, match="2019-12-31 23:59:59"):
        source.refresh(START - timedelta(seconds=1))
    with pytest.raises(IndexError, match="2020-01-02"):
        source.refresh(START + DAY)
    assert first(source.refresh(START + DAY - timedelta(microseconds=1))) == 7


# spec: T5.2
@pytest.mark.parametrize("rank", [None, 1, 2])
def test_hold_keeps_the_nearest_record(tmp_path, rank):
    source = provider(
        daily_files(tmp_path, 1), START, "PT3H", file_period="P1D", end=START + DAY, outside="hold",
        records_per_sample=rank,
    )  # fmt: skip
    early, late = source.sample_at(utc(1990, 1, 1)), source.sample_at(utc(2050, 1, 1))
    if rank == 2:
        assert (first(early), first(late)) == ([0, 1], [7, 7])
    else:
        assert (first(early), first(late)) == (0, 7)


# spec: T4.3
def test_a_bracket_degenerates_at_the_last_record_of_a_source_without_file_periods(tmp_path):
    dated(tmp_path / "a.nc", [0, 3, 6], [0, 1, 2])
    source = provider(tmp_path / "a.nc", START, "PT3H", records_per_sample=2)
    sample = source.sample_at(START + 6 * HOUR)
    assert first(sample) == [2, 2]
    assert sample.times == (START + 6 * HOUR,) * 2
    assert sample["time"].data.tolist() == [1577836800 + 6 * 3600] * 2


# spec: T4.3
def test_the_successor_beyond_the_end_is_not_read(tmp_path):
    dated(tmp_path / "a.nc", [0, 3, 6], [0, 1, 2])
    source = provider(tmp_path / "a.nc", START, "PT3H", end=START + 6 * HOUR, records_per_sample=2)
    assert first(source.sample_at(START + 3 * HOUR)) == [1, 1]


# spec: T4.1
def test_the_tightest_pair_of_records_brackets_a_time_between_two_files(tmp_path):
    dated(tmp_path / "2019.nc", [354, 361], [-8, 0], units="days since 2019-01-01")
    dated(tmp_path / "2020.nc", [4, 11], [8, 16], units="days since 2020-01-01")
    source = provider(
        tmp_path / "%Y.nc",
        utc(2019, 1, 1),
        "records",
        file_period="P1Y",
        end=utc(2021, 1, 1),
        records_per_sample=2,
    )
    sample = source.sample_at(utc(2020, 1, 1))
    assert sample.times == (utc(2019, 12, 28), utc(2020, 1, 5))
    weight = (utc(2020, 1, 1) - sample.times[0]) / (sample.times[1] - sample.times[0])
    assert first(sample)[0] * (1 - weight) + first(sample)[1] * weight == 4.0


def test_blending_a_bracket_is_right_at_every_step_although_nothing_new_is_read(tmp_path):
    dated(tmp_path / "a.nc", [0, 3], [0, 3])
    source = provider(tmp_path / "a.nc", START, "PT3H", records_per_sample=2)
    for minutes in range(0, 180, 10):
        sample = source.refresh(START + timedelta(minutes=minutes))
        t = 1577836800 + 60 * minutes
        t0, t1 = sample["time"].data
        v0, v1 = first(sample)
        assert v0 + (v1 - v0) * (t - t0) / (t1 - t0) == pytest.approx(minutes / 60, abs=1e-15)


# Cycles


# spec: T5.3
def test_a_climatology_wraps_from_december_to_january(tmp_path):
    dated(tmp_path / "a.nc", range(12), range(1, 13), units="months since 2000-01-01", calendar="360_day")
    temporal = {"end": utc(2001, 1, 1), "outside": "cycle", "records_per_sample": 2}
    source = provider(tmp_path / "a.nc", utc(2000, 1, 1), "P1M", **temporal)
    for year in (1995, 2000, 2023):
        sample = source.sample_at(utc(year, 12, 15))
        assert first(sample) == [12, 1]
        assert sample.times == (utc(year, 12, 1), utc(year + 1, 1, 1))
        assert first(source.sample_at(utc(year, 7, 31))) == [7, 8]


# spec: T5.3
def test_monthly_files_of_one_year_serve_another(tmp_path):
    for month in range(1, 13):
        dated(tmp_path / f"2021{month:02d}.nc", [14], [month], units=f"days since 2021-{month:02d}-01")
    temporal = {"file_period": "P1M", "end": utc(2022, 1, 15), "outside": "cycle", "records_per_sample": 2}
    source = provider(tmp_path / "%Y%m.nc", utc(2021, 1, 15), "P1M", **temporal)
    sample = source.sample_at(utc(2023, 7, 20))
    assert first(sample) == [7, 8]
    assert sample.times == (utc(2023, 7, 15), utc(2023, 8, 15))
    assert first(source.sample_at(utc(2024, 1, 3))) == [12, 1]


# spec: T2.3
def test_a_climatology_without_dates_is_used_by_number_only_if_declared_to_cycle(tmp_path):
    dated(tmp_path / "a.nc", np.arange(12) + 0.5, range(1, 13), units="months")
    with pytest.raises(TimeAxisError, match=r"a\.nc"):
        provider(tmp_path / "a.nc", utc(2000, 1, 1), "P1M").sample_at(utc(2000, 5, 1))
    temporal = {"end": utc(2001, 1, 1), "outside": "cycle"}
    source = provider(tmp_path / "a.nc", utc(2000, 1, 1), "P1M", **temporal)
    assert [first(source.sample_at(utc(2023, month, 3))) for month in range(1, 13)] == list(range(1, 13))
    brackets = provider(tmp_path / "a.nc", utc(2000, 1, 1), "P1M", records_per_sample=2, **temporal)
    assert first(brackets.sample_at(utc(2023, 12, 31))) == [12, 1]


# The time axis of a file


# spec: T3.1
def test_stamps_may_lie_at_the_middle_of_the_interval(tmp_path):
    dated(tmp_path / "a.nc", [15.5, 45, 74.5], [1, 2, 3], units="days since 2001-01-01")
    source = provider(tmp_path / "a.nc", utc(2001, 1, 1), "P1M", end=utc(2001, 4, 1))
    assert [first(source.sample_at(utc(2001, month, 1))) for month in (1, 2, 3)] == [1, 2, 3]
    assert source.sample_at(utc(2001, 2, 5)).times == (utc(2001, 2, 15),)


def test_stamps_at_the_end_are_reached_by_declaring_start_one_step_later(tmp_path):
    dated(tmp_path / "a.nc", [3, 6, 9], [1, 2, 3])
    source = provider(tmp_path / "a.nc", START + 3 * HOUR, "PT3H")
    assert first(source.sample_at(START + 4 * HOUR)) == 1


# spec: T3.1
@pytest.mark.parametrize("hour", range(24))
def test_single_precision_stamps_are_found(tmp_path, hour):
    hours = np.arange(24) / 24 + 43645  # 2019-07-01, where float32 days are 337.5 s apart
    dated(tmp_path / "a.nc", hours.astype("f4"), range(24), units="days since 1900-01-01", dtype="f4")
    source = provider(tmp_path / "a.nc", utc(2019, 7, 1), "PT1H")
    assert first(source.sample_at(utc(2019, 7, 1, hour))) == hour


# spec: T3.1, T4.1
def test_files_finer_than_the_cadence_serve_their_first_record_and_their_next_one(tmp_path):
    dated(tmp_path / "a.nc", range(48), range(48))
    source = provider(tmp_path / "a.nc", START, "P1D", end=START + 2 * DAY)
    assert [first(source.sample_at(START + k * DAY)) for k in range(2)] == [0, 24]
    brackets = provider(tmp_path / "a.nc", START, "P1D", end=START + 2 * DAY, records_per_sample=2)
    assert first(brackets.sample_at(START + DAY)) == [24, 25]


# spec: T2.6
def test_an_axis_out_of_order_is_an_error_naming_file_and_index_unless_sorted(tmp_path):
    dated(tmp_path / "a.nc", [0, 6, 3], [0, 2, 1])
    with pytest.raises(TimeAxisError, match=r"a\.nc.*index=2"):
        provider(tmp_path / "a.nc", START, "PT3H").sample_at(START)
    source = provider(tmp_path / "a.nc", START, "PT3H", options={"sort_time": True}, records_per_sample=2)
    for order in ((0, 1, 2), (2, 1, 0)):
        for tick in order:
            assert first(source.sample_at(START + 3 * tick * HOUR)) == [tick, min(tick + 1, 2)]


# spec: T2.6
def test_duplicate_stamps_are_an_error_even_when_sorting(tmp_path):
    dated(tmp_path / "a.nc", [0, 3, 3], [0, 1, 2])
    for options in ({}, {"sort_time": True}):
        with pytest.raises(TimeAxisError, match=r"same time.*a\.nc"):
            provider(tmp_path / "a.nc", START, "PT3H", options=options).sample_at(START)


# spec: T2.6
def test_a_fill_or_nan_stamp_is_no_record(tmp_path):
    dated(tmp_path / "a.nc", [0, np.nan, 3], [0, 1, 2])
    source = provider(tmp_path / "a.nc", START, "PT3H", records_per_sample=2)
    assert first(source.sample_at(START)) == [0, 2]
    dated(tmp_path / "b.nc", [0, netCDF4.default_fillvals["f8"], 3], [0, 1, 2])
    source = provider(tmp_path / "b.nc", START, "PT3H", records_per_sample=2)
    assert first(source.sample_at(START)) == [0, 2]


# spec: T2.3
@pytest.mark.parametrize(
    ("units", "calendar"),
    [
        ("fortnights since 2020-01-01", None),
        ("hours since soon", None),
        ("hours", None),
        ("hours since 2020-01-01", "martian"),
    ],
)
def test_a_time_coordinate_that_can_not_be_decoded_is_an_error_never_a_fallback(tmp_path, units, calendar):
    dated(tmp_path / "a.nc", [0, 3], [0, 1], units=units, calendar=calendar)
    with pytest.raises(TimeAxisError, match=r"a\.nc"):
        provider(tmp_path / "a.nc", START, "PT3H").sample_at(START)


# spec: T2.4
def test_a_packed_time_axis_is_unpacked(tmp_path):
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("time", 3)
        time = file.createVariable("time", "i2", ("time",), fill_value=-1)
        time.set_auto_maskandscale(False)
        time.setncatts({"units": "days since 2019-12-31", "scale_factor": 0.125})
        time[:] = [8, -1, 9]
        file.createVariable("v", "f8", ("time",))[:] = [0, 1, 2]
    with netCDF4.Dataset(tmp_path / "a.nc") as file:
        stamps = cftime.num2pydate(file["time"][:].compressed(), "days since 2019-12-31")
    source = provider(tmp_path / "a.nc", START, "PT3H")
    for stamp, value in zip(stamps, (0, 2), strict=True):
        sample = source.sample_at(stamp)
        assert (sample["v"].data, sample.times) == (value, (utc(*stamp.timetuple()[:6]),))


# spec: T2.7
def test_a_file_without_any_time_coordinate_is_indexed_by_the_cadence(tmp_path):
    for day in range(2):
        dated(tmp_path / f"2020010{day + 1}.nc", [0] * 8, np.arange(8) + 8 * day, time=None)
    url = tmp_path / "%Y%m%d.nc"
    source = provider(url, START, "PT3H", file_period="P1D", end=START + 2 * DAY, records_per_sample=2)
    for tick in range(16):
        sample = source.sample_at(START + 3 * tick * HOUR)
        assert first(sample) == [tick, min(tick + 1, 15)]
        assert sample.times[0] == START + 3 * tick * HOUR
        assert sample["time"].shape == (2,)
    dated(tmp_path / "20200102.nc", [0] * 4, range(4), time=None)
    with pytest.raises(RecordNotFound, match=r"record 5.*with 4.*20200102\.nc"):
        provider(url, START, "PT3H", file_period="P1D").sample_at(START + DAY + 15 * HOUR)


# spec: T2.7
def test_all_records_of_a_file_are_never_taken_for_one_because_their_dimension_has_another_name(tmp_path):
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("valid_time", 24)
        time = file.createVariable("valid_time", "i4", ("valid_time",))
        time.units = "hours since 2020-01-01"
        time[:] = range(24)
        file.createVariable("v", "f8", ("valid_time",))[:] = range(24)
        file.createVariable("s", "f8", ())[...] = 5
    with pytest.raises(TimeAxisError, match=r"a\.nc.*time_dim='valid_time'"):
        provider(tmp_path / "a.nc", START, "P1D").sample_at(START)
    source = provider(tmp_path / "a.nc", START, "PT1H", time_dim="valid_time")
    assert source.sample_at(START + 7 * HOUR)["v"].data == 7
    static = provider(tmp_path / "a.nc", START, "P1D", variables=("s",))
    assert static.sample_at(START)["s"].data == 5


# spec: T2.1, V7.3
@pytest.mark.parametrize("rank", [None, 2])
def test_a_scalar_time_dates_the_one_record_of_a_file(tmp_path, rank):
    for day in range(3):
        with netCDF4.Dataset(tmp_path / f"2020010{day + 1}.nc", "w") as file:
            file.createDimension("x", 2)
            time = file.createVariable("time", "f8", ())
            time.units = "days since 2020-01-01"
            time[...] = day
            file.createVariable("v", "f8", ("x",))[:] = [day, day + 0.5]
    source = provider(
        tmp_path / "%Y%m%d.nc", START, "P1D", file_period="P1D", end=START + 3 * DAY, records_per_sample=rank
    )
    sample = source.sample_at(START + DAY)
    if rank is None:
        assert sample["v"].data.tolist() == [1, 1.5]
        assert source.array_shape("v") == (2,)
        assert "time" not in sample
    else:
        assert sample["v"].dims == ("time", "x")
        assert sample["v"].data.tolist() == [[1, 1.5], [2, 2.5]]
        assert source.array_shape("v") == (2, 2)
        assert sample["time"].dims == ("time",)


def _nemo(path, month):
    with netCDF4.Dataset(path, "w") as file:
        for dim, size in (("time_counter", None), ("y", 2), ("x", 2)):
            file.createDimension(dim, size)
        for name in ("nav_lat", "nav_lon"):
            file.createVariable(name, "f4", ("y", "x"))[:] = 1
        for name, value in (("time_centered", 14), ("time_instant", 30)):
            time = file.createVariable(name, "f8", ("time_counter",))
            time.units = f"days since 2000-{month:02d}-01"
            time[:] = [value]
        tos = file.createVariable("tos", "f4", ("time_counter", "y", "x"))
        tos.coordinates = "time_centered nav_lon nav_lat"
        tos[:] = np.full((1, 2, 2), month)


# spec: T2.1
def test_the_time_of_nemo_files_is_the_one_the_fields_name(tmp_path):
    for month in (1, 2):
        _nemo(tmp_path / f"2000{month:02d}.nc", month)
    source = provider(
        tmp_path / "%Y%m.nc", utc(2000, 1, 15), "P1M", variables=("tos",), time_dim="time_counter",
        file_period="P1M", end=utc(2000, 3, 15), records_per_sample=2,
    )  # fmt: skip
    sample = source.sample_at(utc(2000, 1, 20))
    assert sample["tos"].data[:, 0, 0].tolist() == [1, 2]
    assert sample.times == (utc(2000, 1, 15), utc(2000, 2, 15))
    assert sample["time_centered"].dims == ("time_counter",)
    assert sample["time_centered"].attrs == {"units": "seconds since 1970-01-01", "calendar": "standard"}
    assert sorted(sample.coord_names()) == ["nav_lat", "nav_lon", "time_centered"]


# spec: T2.1
def test_a_namesake_of_the_time_dimension_without_units_dates_nothing_where_another_variable_does(tmp_path):
    _nemo(tmp_path / "a.nc", 1)
    _nemo(tmp_path / "b.nc", 1)
    for name in ("a.nc", "b.nc"):  # as NEMO's grid files have it
        with netCDF4.Dataset(tmp_path / name, "a") as file:
            counter = file.createVariable("time_counter", "f8", ("time_counter",))
            counter.axis = "T"
            counter[:] = [7]
    with netCDF4.Dataset(tmp_path / "b.nc", "a") as file:
        for name in ("time_centered", "time_instant"):
            file[name].delncattr("units")

    def sample(name):
        how = {"variables": ("tos",), "time_dim": "time_counter"}
        return provider(tmp_path / name, utc(2000, 1, 15), "P1M", **how).sample_at(utc(2000, 1, 15))

    assert sample("a.nc").times == (utc(2000, 1, 15),)
    assert sample("a.nc")["time_counter"].data == 7  # a coordinate as any other
    # nothing else does, and no fallback
    with pytest.raises(TimeAxisError, match=r"no units.*b\.nc.*time_counter"):
        sample("b.nc")


# spec: T2.1
def test_two_variables_that_could_date_the_records_are_an_error_naming_both(tmp_path):
    _nemo(tmp_path / "a.nc", 1)
    with netCDF4.Dataset(tmp_path / "a.nc", "a") as file:
        file["tos"].coordinates = "nav_lon nav_lat"
    source = provider(tmp_path / "a.nc", utc(2000, 1, 15), "P1M", variables=("tos",), time_dim="time_counter")
    with pytest.raises(TimeAxisError, match=r"time_centered.*time_instant.*a\.nc"):
        source.sample_at(utc(2000, 1, 15))


# Irregular series


# spec: T3.4
def test_the_anchors_of_an_irregular_series_are_its_stamps(tmp_path):
    dated(tmp_path / "202001.nc", [0, 5, 11], [0, 1, 2], units="days since 2020-01-01")
    dated(tmp_path / "202002.nc", [3, 4], [3, 4], units="days since 2020-02-01")
    temporal = {"file_period": "P1M", "end": utc(2020, 3, 1)}
    source = provider(tmp_path / "%Y%m.nc", START, "records", **temporal)
    stamps = [utc(2020, 1, 1), utc(2020, 1, 6), utc(2020, 1, 12), utc(2020, 2, 4), utc(2020, 2, 5)]
    assert source.refresh_times() == stamps
    assert [first(source.sample_at(t + DAY / 2)) for t in stamps] == [0, 1, 2, 3, 4]
    brackets = provider(tmp_path / "%Y%m.nc", START, "records", records_per_sample=2, **temporal)
    assert [first(brackets.sample_at(t)) for t in stamps] == [[0, 1], [1, 2], [2, 3], [3, 4], [4, 4]]
    assert brackets.sample_at(utc(2020, 1, 20)).times == (utc(2020, 1, 12), utc(2020, 2, 4))


# spec: T3.4
def test_an_irregular_series_over_several_files_needs_an_end(tmp_path):
    with pytest.raises(DeclarationError, match="end"):
        provider(tmp_path / "%Y%m.nc", START, "records", file_period="P1M")


# spec: T5.1
def test_an_irregular_series_before_its_first_record_and_after_its_end(tmp_path):
    dated(tmp_path / "a.nc", [5, 11], [0, 1], units="days since 2020-01-01")
    source = provider(tmp_path / "a.nc", START, "records", end=utc(2020, 2, 1))
    with pytest.raises(ValueError, match="2020-01-02"):
        source.sample_at(utc(2020, 1, 2))
    assert first(source.sample_at(utc(2020, 1, 31))) == 1
    with pytest.raises(IndexError):
        source.sample_at(utc(2020, 2, 1))


# Calendars


def test_a_noleap_series_has_no_gap_at_the_end_of_february(tmp_path):
    dated(
        tmp_path / "a.nc",
        np.arange(365) + 0.5,
        np.arange(365),
        units="days since 1964-01-01",
        calendar="noleap",
    )
    start = cftime.datetime(1964, 1, 1, 12, calendar="noleap")
    source = provider(tmp_path / "a.nc", start, "P1D", records_per_sample=2)
    sample = source.sample_at(cftime.datetime(1964, 3, 1, calendar="noleap"))
    assert first(sample) == [58, 59]
    assert sample.times[1] - sample.times[0] == DAY
    assert sample.times[0] == cftime.datetime(1964, 2, 28, 12, calendar="noleap")
    assert sample["time"].attrs["calendar"] == "noleap"
    seconds = netCDF4.date2num(list(sample.times), "seconds since 1970-01-01", "noleap")
    assert sample["time"].data.tolist() == list(seconds)
    # a Gregorian model asks of the same source for a day that noleap has not
    assert first(source.sample_at(utc(1964, 2, 29, 13))) == [58, 59]


# spec: T2.5
def test_a_gregorian_source_over_noleap_files_repeats_feb_28(tmp_path):
    dated(
        tmp_path / "a.nc",
        np.arange(365) + 0.5,
        np.arange(365),
        units="days since 1964-01-01",
        calendar="noleap",
    )
    source = provider(tmp_path / "a.nc", utc(1964, 1, 1), "P1D", end=utc(1965, 1, 1))
    assert first(source.sample_at(utc(1964, 2, 28, 13))) == 58
    assert first(source.sample_at(utc(1964, 2, 29, 13))) == 58
    assert first(source.sample_at(utc(1964, 3, 1, 13))) == 59
    assert first(source.sample_at(utc(1964, 12, 31, 13))) == 364


# spec: T2.5
def test_a_noleap_source_over_gregorian_files_skips_feb_29(tmp_path):
    dated(tmp_path / "a.nc", np.arange(366), np.arange(366), units="days since 1964-01-01")
    start = cftime.datetime(1964, 1, 1, calendar="noleap")
    source = provider(tmp_path / "a.nc", start, "P1D", records_per_sample=2)
    sample = source.sample_at(cftime.datetime(1964, 2, 28, calendar="noleap"))
    assert first(sample) == [58, 60]


def test_files_are_named_by_the_source_s_calendar(tmp_path):
    dated(tmp_path / "0200" / "02.nc", [0, 29], [0, 29], units="days since 0200-02-01", calendar="360_day")
    start = cftime.datetime(200, 2, 1, calendar="360_day")
    source = provider(tmp_path / "%Y" / "%m.nc", start, "P1D", file_period="P1M")
    assert first(source.sample_at(cftime.datetime(200, 2, 30, calendar="360_day"))) == 29


# spec: T1.6
def test_aware_times_are_converted_and_naive_ones_are_utc(tmp_path):
    source = provider(daily_files(tmp_path, 1), START, "PT3H", file_period="P1D", end=START + DAY)
    east = timezone(3 * HOUR)
    naive = datetime(2020, 1, 1, 9)  # noqa: DTZ001 - that is the point
    assert first(source.sample_at(naive)) == 3
    assert first(source.sample_at(datetime(2020, 1, 1, 9, tzinfo=east))) == 2
    assert source.sample_at(naive).times == (utc(2020, 1, 1, 9),)


# What a sample carries


# spec: V7.1
@pytest.mark.parametrize("rank", [None, 1])
def test_single_records_drop_the_time_dimension_and_coordinate_and_nothing_else(tmp_path, rank):
    dated(tmp_path / "a.nc", [0, 3], [0, 1])
    source = provider(tmp_path / "a.nc", START, "PT3H", variables=(), records_per_sample=rank)
    sample = source.sample_at(START + 3 * HOUR)
    assert sample["v"].dims == ("x",)
    assert sample.coord_names() == ["x"]
    assert sample.times == (START + 3 * HOUR,)
    assert sample["static"].data.tolist() == [7, 8]


# spec: V7.2
def test_a_bracket_keeps_the_time_dimension_and_leaves_static_fields_alone(tmp_path):
    dated(tmp_path / "a.nc", [0, 3], [0, 1])
    source = provider(tmp_path / "a.nc", START, "PT3H", variables=(), records_per_sample=2)
    sample = source.sample_at(START)
    assert sample["v"].dims == ("time", "x")
    assert sample["static"].dims == ("x",)
    assert sample["time"].dtype == np.float64
    assert sample["time"].data.tolist() == [1577836800.0, 1577836800.0 + 3 * 3600]
    alone = provider(tmp_path / "a.nc", START, "PT3H", variables=("static",), records_per_sample=2)
    assert alone.sample_at(START)["static"].dims == ("x",)
    assert alone.array_shape("static") == (2,)


# spec: P2.1, V7.2
def test_the_time_dimension_may_stand_anywhere(tmp_path):
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        for dim, size in (("x", 2), ("t", 3), ("y", 4)):
            file.createDimension(dim, size)
        time = file.createVariable("t", "f8", ("t",))
        time.units = "hours since 2020-01-01"
        time[:] = range(3)
        raw = np.arange(24.0).reshape(2, 3, 4)
        file.createVariable("v", "f8", ("x", "t", "y"))[:] = raw
    single = provider(tmp_path / "a.nc", START, "PT1H", time_dim="t")
    assert np.array_equal(single.sample_at(START + HOUR)["v"].data, raw[:, 1])
    brackets = provider(tmp_path / "a.nc", START, "PT1H", time_dim="t", records_per_sample=2)
    sample = brackets.sample_at(START + HOUR)
    assert sample["v"].dims == ("x", "t", "y")
    assert np.array_equal(sample["v"].data, raw[:, 1:])
    assert sample["v"].data.flags.c_contiguous
    assert brackets.array_shape("v") == (2, 2, 4)


# spec: V7.1
def test_a_coordinate_that_varies_in_time_is_that_of_the_record(tmp_path):
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("time", None)
        time = file.createVariable("time", "f8", ("time",))
        time.units = "hours since 2020-01-01"
        time[:] = range(3)
        file.createVariable("p0", "f8", ("time",))[:] = [10, 20, 30]
        v = file.createVariable("v", "f8", ("time",))
        v.coordinates = "p0"
        v[:] = range(3)
    single = provider(tmp_path / "a.nc", START, "PT1H")
    assert single.sample_at(START + HOUR)["p0"].data == 20
    brackets = provider(tmp_path / "a.nc", START, "PT1H", records_per_sample=2)
    assert brackets.sample_at(START + HOUR)["p0"].data.tolist() == [20, 30]


# spec: T4.4
def test_a_bracket_that_starts_late_warns_once_and_names_the_start_to_declare(tmp_path):
    dated(tmp_path / "a.nc", [1.5, 4.5, 7.5], [0, 1, 2])
    source = provider(tmp_path / "a.nc", START, "PT3H", records_per_sample=2)
    with pytest.warns(EarthSciIOWarning, match="2020-01-01 01:30:00") as caught:
        source.sample_at(START)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        source.sample_at(START + 3 * HOUR)
        source.with_window({"dims": {}}).sample_at(START)
        provider(tmp_path / "a.nc", START, "PT3H").sample_at(START)  # single records are not brackets


# spec: P1.1
def test_opening_nothing_until_something_is_asked_for(tmp_path):
    source = provider(tmp_path / "never-there.nc", START, "PT3H", end=START + DAY, records_per_sample=2)
    assert len(source.refresh_times()) == 8
    assert source.anchor_at(START + 4 * HOUR) == START + 3 * HOUR
    assert isinstance(source.with_window({"dims": {"x": (0, 1)}}), Provider)
