"""Files of a series that do not exist: an error, or what the declaration says, and never without a word."""

import json
import threading
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from series_files import DAY, HOUR, daily_files, dated, first, utc

from earthsciio import (
    Cache,
    DataSource,
    DeclarationError,
    EarthSciIOWarning,
    FileFormatError,
    MissingFile,
    PrefetchGroup,
    Provider,
    RecordNotFound,
    SourceTemporal,
    StandIn,
    TimePastEnd,
    cache_key,
)
from earthsciio.events import Substituted

pytestmark = pytest.mark.filterwarnings("ignore:.*does not exist:earthsciio.EarthSciIOWarning")
START, END = utc(2020, 1, 1), utc(2020, 1, 6)


def source(url, name="wind", *, missing=None, variables=("v",), options=None, **temporal):
    given = {"start": START, "frequency": "PT3H", "file_period": "P1D", "end": END, **temporal}
    times = SourceTemporal(given.pop("start"), given.pop("frequency"), missing=missing, **given)
    return DataSource(name, "netcdf", str(url), variables, times, reader_kwargs=options or {})


@pytest.fixture
def days(tmp_path):
    """Five daily files whose records count 0, 1, 2, ... from 2020-01-01 by 3 h; gives a way to lose some."""
    url = daily_files(tmp_path / "wind", 5)

    def lose(*lost):
        for day in lost:
            (tmp_path / "wind" / f"202001{day:02d}.nc").unlink()
        return url

    return lose


@pytest.fixture
def other(tmp_path):
    """The same five days from elsewhere: 100, 101, 102, ..."""
    for day in range(5):
        stamp = START + day * DAY
        hours = np.arange(8) * 3 + 24 * day
        dated(tmp_path / "other" / f"{stamp:%Y%m%d}.nc", hours, 100 + day * 8 + np.arange(8))
    return tmp_path / "other" / "%Y%m%d.nc"


def anchors(first_hour=0, stop_hour=120):
    return [START + hour * HOUR for hour in range(first_hour, stop_hour, 3)]


# -- an error, unless declared -----------------------------------------------------------------------------


# spec: T6.1
def test_a_missing_file_is_an_error_that_names_it_unless_something_stands_in(days):
    with pytest.raises(MissingFile, match=r"20200103\.nc") as caught:
        Provider(source(days(3))).sample_at(utc(2020, 1, 3))
    assert isinstance(caught.value, FileNotFoundError)


# spec: T6.1
@pytest.mark.parametrize("kind", ["hold", "source", "both"])
def test_nothing_but_a_missing_file_is_stood_in_for(days, other, tmp_path, kind):
    elsewhere = source(other, "other")
    missing = {
        "hold": StandIn(hold="P5D"), "source": StandIn(source=elsewhere), "both": StandIn("P5D", elsewhere),
    }[kind]  # fmt: skip
    provider, path = Provider(source(days(), missing=missing)), tmp_path / "wind" / "20200103.nc"
    whole = path.read_bytes()

    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FileFormatError, match=r"20200103\.nc"):
        provider.sample_at(utc(2020, 1, 3))
    path.write_bytes(b"")
    with pytest.raises(FileFormatError, match=r"20200103\.nc"):
        provider.sample_at(utc(2020, 1, 3))
    dated(path, 48 + np.arange(4) * 3, np.arange(4) + 16)  # only its morning
    with pytest.raises(RecordNotFound, match=r"20200103\.nc"):
        provider.sample_at(utc(2020, 1, 3, 12))
    path.unlink()
    path.symlink_to(tmp_path / "storage that is away" / "20200103.nc")
    with pytest.raises(MissingFile, match=r"20200103\.nc"):
        provider.sample_at(utc(2020, 1, 3))
    path.unlink()
    path.mkdir()
    with pytest.raises(FileFormatError, match=r"20200103\.nc"):
        provider.sample_at(utc(2020, 1, 3))


# spec: T6.1
def test_a_folder_behind_a_link_that_leads_nowhere_may_hold_the_file(tmp_path, days):
    url = days()
    (tmp_path / "link").symlink_to(tmp_path / "wind", target_is_directory=True)
    away = source(tmp_path / "link" / "%Y%m%d.nc", missing=StandIn(hold="P5D"))
    provider = Provider(away)
    assert first(provider.sample_at(utc(2020, 1, 2))) == 8
    (tmp_path / "wind").rename(tmp_path / "moved")
    with pytest.raises(MissingFile):
        provider.sample_at(utc(2020, 1, 3))
    assert url.parent == tmp_path / "wind"


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        (StandIn, "hold.*source"),
        (lambda: source("x", frequency="records", missing=StandIn("P1D")), "records"),
        (
            lambda: source("x", end="2021-01-01", outside="cycle", missing=StandIn("P1D")),
            "cycle",
        ),
        (lambda: source("x", file_period=None, missing=StandIn("P1D")), "file_period"),
        (lambda: source("x", missing=StandIn("PT2H59M")), "less than one step"),
        (lambda: source("x", missing=StandIn("soon")), "soon"),
        (lambda: source("x", missing=StandIn(source=DataSource("c", "netcdf", "c.nc", ("v",)))), "no times"),
        (lambda: source("x", missing=StandIn(source=source("y", "y", variables=("w",)))), "variables"),
        (lambda: source("x", missing=StandIn(source=source("y", "y", calendar="noleap"))), "calendar"),
        (lambda: source("x", missing=StandIn(source=source("y", "y", records_per_sample=2))), "records_per"),
        (
            lambda: source(
                "x", missing=StandIn(source=source("y", "y", options={"select": {"dims": {"x": [0]}}}))
            ),
            "selection",
        ),
        (lambda: source("x", missing=StandIn(source=source("y", "wind"))), "name"),
        (
            lambda: source(
                "x", missing=StandIn(source=source("y", "y", missing=StandIn(source=source("z", "wind"))))
            ),
            "name",
        ),
    ],
)  # fmt: skip
# spec: T6.6
def test_what_could_not_stand_in_is_refused_when_declared(declared, said):
    with pytest.raises(DeclarationError, match=said):
        declared()


# spec: T6.6
def test_the_same_selection_may_be_declared_twice():
    select = {"select": {"dims": {"x": {"slice": [0, 1]}}}}
    twin = source("y", "y", options=select)
    assert source("x", options=select, missing=StandIn(source=twin)).stand_in is twin


def test_a_selection_that_both_declare_is_applied_once(days, other):
    select = {"select": {"dims": {"x": [1]}}}
    twin = source(other, "other", options=select)
    provider = Provider(source(days(3), options=select, missing=StandIn(source=twin)))
    assert [provider.sample_at(utc(2020, 1, day))["v"].data.tolist() for day in (2, 3)] == [[8.5], [116.5]]


# -- held --------------------------------------------------------------------------------------------------


# spec: T6.2
def test_the_last_sample_before_is_held_over_the_gap_and_the_next_file_taken_up(days):
    provider = Provider(source(days(3), missing=StandIn(hold="P1D")))
    assert [first(provider.sample_at(t)) for t in anchors(42, 78)] == [
        14, 15, *[15] * 8, 24, 25,
    ]  # fmt: skip
    held = provider.sample_at(utc(2020, 1, 3, 13, 30))
    assert held.times == (utc(2020, 1, 2, 21),)
    last = provider.sample_at(utc(2020, 1, 2, 21))
    assert (held["v"].data.tolist(), held["v"].attrs) == (last["v"].data.tolist(), last["v"].attrs)
    assert held.coord_names() == last.coord_names()
    assert provider.anchor_at(utc(2020, 1, 3, 13, 30)) == utc(2020, 1, 3, 12)
    assert provider.resolve(utc(2020, 1, 3, 13, 30)).anchor == utc(2020, 1, 3, 12)


# spec: T6.2
@pytest.mark.parametrize("limit", [3, 6, 20, 21, 24, 27, 48])
def test_it_is_held_for_as_long_as_declared_and_not_a_step_longer(days, limit):
    provider = Provider(source(days(3, 4), missing=StandIn(hold=limit * HOUR)))
    last = utc(2020, 1, 2, 21)
    for t in anchors(48, 96):
        if t - last <= limit * HOUR:
            assert first(provider.sample_at(t)) == 15
        else:
            with pytest.raises(MissingFile, match=f"{t:%Y%m%d}.*close enough before: hold longer") as caught:
                provider.sample_at(t)
            assert caught.value.epoch == f"{t:%Y-%m-%d %H:%M:%S}"
    assert first(provider.sample_at(utc(2020, 1, 5))) == 32


# spec: T6.2
def test_calendar_months_hold_too(tmp_path):
    for month, value in ((1, 1), (2, 2), (4, 4)):
        dated(tmp_path / f"{month:02d}.nc", [0], [value], units=f"days since 2020-{month:02d}-01")
    times = {"frequency": "P1M", "file_period": "P1M", "end": "2020-05-01"}
    provider = Provider(source(tmp_path / "%m.nc", missing=StandIn(hold="P1M"), **times))
    assert [first(provider.sample_at(utc(2020, m, 15))) for m in (1, 2, 3, 4)] == [1, 2, 2, 4]
    days = source(tmp_path / "%m.nc", missing=StandIn(hold="P31D"), **times)
    assert first(Provider(days).sample_at(utc(2020, 3, 15))) == 2  # February has 29


# spec: T6.2
def test_nothing_is_held_from_before_start_or_after_the_gap(days):
    provider = Provider(source(days(1), missing=StandIn(hold="P5D")))
    with pytest.raises(MissingFile, match=r"20200101\.nc"):
        provider.sample_at(START)
    assert first(provider.sample_at(utc(2020, 1, 2))) == 8
    late = Provider(source(days(2), start=utc(2020, 1, 2), missing=StandIn(hold="P5D")))
    with pytest.raises(MissingFile, match=r"20200102\.nc"):
        late.sample_at(utc(2020, 1, 2))


# spec: T6.2
def test_outside_the_span_the_sample_at_its_end_is_held_as_any_other(days):
    url = days(5)
    provider = Provider(source(url, outside="hold", missing=StandIn(hold="P1D")))
    assert first(provider.sample_at(utc(2020, 2, 1))) == 31
    with pytest.raises(TimePastEnd):
        Provider(source(url, missing=StandIn(hold="P1D"))).sample_at(utc(2020, 2, 1))


# spec: T6.2
def test_files_without_a_time_coordinate_are_held_too(tmp_path):
    for day in (1, 3):
        dated(tmp_path / f"202001{day:02d}.nc", [], [8 * day, 8 * day + 1], time=None)
    provider = Provider(source(tmp_path / "%Y%m%d.nc", frequency="PT12H", missing=StandIn(hold="P1D")))
    read = [provider.sample_at(START + n * 12 * HOUR) for n in range(6)]
    assert [first(sample) for sample in read] == [8, 9, 9, 9, 24, 25]
    assert [sample.times[0].hour for sample in read] == [0, 12, 12, 12, 0, 12]


# spec: T6.3
def test_a_held_bracket_is_the_last_record_twice_and_nothing_leads_across_the_gap(days):
    provider = Provider(source(days(3), records_per_sample=2, missing=StandIn(hold="P1D")))
    read = {t: provider.sample_at(t) for t in anchors(42, 78)}
    assert [first(sample) for sample in read.values()] == [
        [14, 15], *[[15, 15]] * 9, [24, 25], [25, 26],
    ]  # fmt: skip
    last = utc(2020, 1, 2, 21)
    assert read[last].times == read[utc(2020, 1, 3, 12)].times == (last, last)
    seconds = read[utc(2020, 1, 3)]["time"].data.tolist()
    assert seconds == [last.timestamp()] * 2


# spec: T6.3
def test_a_held_bracket_of_a_file_finer_than_the_cadence_is_the_last_that_it_had(days):
    provider = Provider(source(days(3), frequency="PT12H", records_per_sample=2, missing=StandIn(hold="P1D")))
    read = [provider.sample_at(START + n * 12 * HOUR) for n in range(3, 7)]
    assert [first(sample) for sample in read] == [[12, 13], [12, 13], [12, 13], [24, 25]]
    assert read[1].times == (utc(2020, 1, 2, 12), utc(2020, 1, 2, 15))


# -- another source ----------------------------------------------------------------------------------------


# spec: T6.4
def test_another_source_serves_the_anchor_with_its_own_stamps(days, other):
    provider = Provider(source(days(3), missing=StandIn(source=source(other, "other"))))
    assert [first(provider.sample_at(t)) for t in anchors(45, 75)] == [15, *range(116, 124), 24]
    assert provider.sample_at(utc(2020, 1, 3, 13, 30)).times == (utc(2020, 1, 3, 12),)


# spec: T6.4
def test_what_stands_in_depends_on_the_anchor_not_on_the_time_asked_for(days, tmp_path):
    dated(tmp_path / "hourly.nc", np.arange(120), np.arange(120) + 1000)
    hourly = source(tmp_path / "hourly.nc", "hourly", frequency="PT1H", file_period=None)
    provider = Provider(source(days(3), missing=StandIn(source=hourly)))
    for minutes in (0, 60, 179):
        sample = provider.sample_at(utc(2020, 1, 3, 6) + minutes * HOUR / 60)
        assert (first(sample), sample.times) == (1054, (utc(2020, 1, 3, 6),))


# spec: T6.4
def test_a_bracket_is_of_one_source_even_where_only_its_second_file_is_missing(days, other):
    elsewhere = source(other, "other", records_per_sample=2)
    provider = Provider(source(days(3), records_per_sample=2, missing=StandIn(source=elsewhere)))
    assert [first(provider.sample_at(t)) for t in anchors(42, 78, )] == [
        [14, 15], [115, 116], *[[n, n + 1] for n in range(116, 124)], [24, 25], [25, 26],
    ]  # fmt: skip
    assert provider.sample_at(utc(2020, 1, 3)).times == (utc(2020, 1, 3), utc(2020, 1, 3, 3))


def write_climatology(path, **options):
    stamps = [(utc(2010, month, 1) - utc(2010, 1, 1)) / HOUR for month in range(1, 13)]
    return dated(path, stamps, np.arange(1, 13), units="hours since 2010-01-01", **options)


def climatology(path, **temporal):
    cycle = {"start": "2010-01-01", "end": "2011-01-01", "frequency": "P1M", "file_period": None}
    return source(path, "climatology", outside="cycle", **{**cycle, **temporal})


# spec: T6.4
def test_a_climatology_stands_in_as_of_the_year_asked_for(days, tmp_path):
    mean = climatology(write_climatology(tmp_path / "mean.nc"))
    provider = Provider(source(days(3), missing=StandIn(source=mean)))
    read = [provider.sample_at(t) for t in anchors(45, 75)]
    assert [first(sample) for sample in read] == [15, *[1] * 8, 24]
    assert read[1].times == (utc(2020, 1, 1),)
    pairs = climatology(tmp_path / "mean.nc", records_per_sample=2)
    gone = source(
        tmp_path / "none" / "%Y%m%d.nc", end="2021-01-01", records_per_sample=2,
        missing=StandIn(source=pairs),
    )  # fmt: skip
    december = Provider(gone).sample_at(utc(2020, 12, 30, 7))
    assert first(december) == [12, 1]
    assert december.times == (utc(2020, 12, 1), utc(2021, 1, 1))


# spec: T6.4
def test_brackets_name_the_time_dimension_as_the_source_does_whoever_serves(days, tmp_path):
    import netCDF4

    with netCDF4.Dataset(tmp_path / "mean.nc", "w") as file:
        file.createDimension("month", 12)
        file.createDimension("x", 2)
        months = file.createVariable("month", "f8", ("month",))
        months.units = "days since 2010-01-01"
        months[:] = [(utc(2010, month, 1) - utc(2010, 1, 1)).days for month in range(1, 13)]
        file.createVariable("x", "f8", ("x",))[:] = [10, 20]
        file.createVariable("v", "f8", ("month", "x"))[:] = np.arange(1, 13)[:, None] * [1, 1]
    mean = climatology(tmp_path / "mean.nc", time_dim="month", records_per_sample=2)
    provider = Provider(source(days(3), records_per_sample=2, missing=StandIn(source=mean)))
    own, theirs = (provider.sample_at(t) for t in (utc(2020, 1, 2), utc(2020, 1, 3)))
    assert first(theirs) == [1, 2]
    assert own["v"].dims == theirs["v"].dims == ("time", "x")
    assert own["v"].shape == theirs["v"].shape == provider.array_shape("v")


# spec: T6.5
def test_with_both_the_source_serves_what_is_not_held_any_more(days, other):
    both = StandIn(hold="PT6H", source=source(other, "other"))
    provider = Provider(source(days(1, 3, 4), missing=both))
    assert [first(provider.sample_at(t)) for t in anchors(0, 102)] == [
        *range(100, 108), *range(8, 16), 15, 15, *range(118, 132), 32, 33,
    ]  # fmt: skip


# spec: T6.5
def test_a_stand_in_may_be_stood_in_for(days, other, tmp_path):
    mean = climatology(write_climatology(tmp_path / "mean.nc"))
    (other.parent / "20200104.nc").unlink()
    second = source(other, "other", missing=StandIn(source=mean))
    cache = Cache(root=tmp_path / "cache", offline=False)
    provider = Provider(source(days(3, 4), missing=StandIn(source=second)), cache)
    read = [provider.sample_at(t) for t in anchors(69, 99)]
    assert [first(sample) for sample in read] == [123, *[1] * 8, 32]
    folders = wind, elsewhere = tmp_path / "wind", other.parent
    told = [(each[0], Path(each[1])) for each in provider.resolve(utc(2020, 1, 4)).missing]
    assert told == [("wind", wind / "20200104.nc"), ("other", elsewhere / "20200104.nc")]
    assert sum("20200104.nc" in record["url"] for record in provider.cache.provenance()) == len(folders)
    names = [
        provider.resolve(t).records[0].source for t in (utc(2020, 1, 2), utc(2020, 1, 3), utc(2020, 1, 4))
    ]
    assert names == [None, "other", "climatology"]


# spec: T6.5
def test_where_the_stand_in_can_not_serve_its_own_error_is_raised_and_says_why_it_was_asked(days, other):
    (other.parent / "20200103.nc").unlink()
    provider = Provider(source(days(3), missing=StandIn(source=source(other, "other"))))
    with pytest.raises(MissingFile, match=r"other/20200103\.nc") as caught:
        provider.sample_at(utc(2020, 1, 3))
    assert any("wind/20200103.nc" in note for note in caught.value.__notes__)


# -- the grid ----------------------------------------------------------------------------------------------


# spec: T6.7
@pytest.mark.parametrize("own_first", [True, False])
@pytest.mark.parametrize("x", [[190, 200], [10, 20.02]])
def test_a_source_on_another_grid_does_not_stand_in_whichever_is_met_first(days, tmp_path, x, own_first):
    mean = climatology(write_climatology(tmp_path / "mean.nc", x=x))
    provider = Provider(source(days(3), missing=StandIn(source=mean)))
    order = [utc(2020, 1, 2), utc(2020, 1, 3)]
    provider.sample_at(order[not own_first])
    with pytest.raises(FileFormatError, match=r"'x'.*mean\.nc|'x'.*2020") as caught:
        provider.sample_at(order[own_first])
    assert "mean.nc" in str(caught.value)
    assert "202001" in str(caught.value)


# spec: T6.7
def test_coordinates_may_differ_by_rounding(days, tmp_path):
    x = np.array([10, 20], "f4") * (1 + 1e-6)
    mean = climatology(write_climatology(tmp_path / "mean.nc", x=x))
    assert first(Provider(source(days(3), missing=StandIn(source=mean))).sample_at(utc(2020, 1, 3))) == 1


# spec: T6.7
@pytest.mark.parametrize("dims", [("time", "y", "x"), ("time", "x2")])
def test_a_source_of_other_dimensions_does_not_stand_in(days, tmp_path, dims):
    import netCDF4

    with netCDF4.Dataset(tmp_path / "mean.nc", "w") as file:
        for dim in dims:
            file.createDimension(dim, {"time": 12}.get(dim, 2))
        time = file.createVariable("time", "f8", ("time",))
        time.units = "days since 2010-01-01"
        time[:] = [(utc(2010, month, 1) - utc(2010, 1, 1)).days for month in range(1, 13)]
        file.createVariable("v", "f8", dims)[:] = 0
    provider = Provider(source(days(3), missing=StandIn(source=climatology(tmp_path / "mean.nc"))))
    provider.sample_at(utc(2020, 1, 2))
    with pytest.raises(FileFormatError, match=r"'v' has the dimensions.*20200102\.nc.*mean\.nc"):
        provider.sample_at(utc(2020, 1, 3))


# -- decided once ------------------------------------------------------------------------------------------


# spec: T6.8
def test_a_file_that_turns_up_changes_no_value_of_a_provider_that_missed_it(days, tmp_path):
    declared = source(days(3), missing=StandIn(hold="P1D"))
    provider = Provider(declared)
    windowed = provider.with_window({"dims": {"x": [1]}})
    assert first(provider.sample_at(utc(2020, 1, 3, 12))) == 15
    dated(tmp_path / "wind" / "20200103.nc", 48 + np.arange(8) * 3, np.arange(8) + 16)
    for t in anchors(48, 72):
        assert first(provider.sample_at(t)) == 15
        assert first(windowed.sample_at(t)) == 15.5
    assert first(Provider(declared).sample_at(utc(2020, 1, 3, 12))) == 20


# spec: T6.8
def test_a_file_that_vanishes_is_an_error_for_a_provider_that_had_it(days, tmp_path):
    provider = Provider(source(days(), missing=StandIn(hold="P1D")))
    assert first(provider.sample_at(utc(2020, 1, 3))) == 16
    (tmp_path / "wind" / "20200103.nc").unlink()
    with pytest.raises(MissingFile, match=r"20200103\.nc"):
        provider.sample_at(utc(2020, 1, 3, 3))


# spec: T6.8
def test_values_depend_neither_on_order_nor_on_threads(days, other):
    both = StandIn(hold="PT12H", source=source(other, "other", records_per_sample=2))
    declared, times = source(days(1, 3, 4), missing=both, records_per_sample=2), anchors(0, 120)
    forward = Provider(declared)
    expected = {t: forward.sample_at(t) for t in times}
    backward, shared, found = Provider(declared), Provider(declared), {}

    def read(mine):
        for t in mine:
            found[t] = shared.sample_at(t)

    threads = [threading.Thread(target=read, args=(times[n::4],)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for t in reversed(times):
        for sample in (backward.sample_at(t), found[t]):
            assert sample.times == expected[t].times
            assert sample["v"].data.tobytes() == expected[t]["v"].data.tobytes()


# -- through everything that reads -------------------------------------------------------------------------


def test_windows_buffers_coordinates_and_shapes_are_as_ever(days, other, tmp_path):
    elsewhere = source(other, "other", records_per_sample=2)
    provider = Provider(
        source(days(1, 3), records_per_sample=2, missing=StandIn(hold="PT3H", source=elsewhere))
    )
    assert provider.array_shape("v") == (2, 2)  # of the first day, which is the other's
    assert provider.array_shape("time") == (2,)
    assert provider.coords["x"].data.tolist() == [10, 20]
    assert first(provider.materialize()) == [100, 101]
    window = {"dims": {"x": [1]}}
    for t in (START, utc(2020, 1, 2, 21), utc(2020, 1, 3), utc(2020, 1, 3, 12), utc(2020, 1, 4)):
        whole = provider.sample_at(t)
        left, right = provider.sample_windows_at(t, [{"dims": {"x": [0]}}, window])
        assert left["v"].data.tolist() == whole["v"].data[:, :1].tolist()
        assert right["v"].data.tolist() == whole["v"].data[:, 1:].tolist()
        assert provider.with_window(window).sample_at(t)["v"].data.tolist() == right["v"].data.tolist()
        buffers = provider.refresh(t)
        assert buffers["v"].data.tolist() == whole["v"].data.tolist()
        assert provider.coords["time"].data is buffers.coords["time"].data


def epochs_of(order):
    return {"forward": range(40), "reverse": range(39, -1, -1)}[order] if isinstance(order, str) else order


# spec: T6.8
@pytest.mark.parametrize("order", ["forward", "reverse", [20, 16, 17, 3, 16, 30]])
@pytest.mark.parametrize("pairs", [None, 2])
def test_a_group_gives_what_the_provider_gives_in_any_order(days, other, order, pairs):
    both = StandIn(hold="PT12H", source=source(other, "other", records_per_sample=pairs))
    declared = source(days(1, 3, 4), missing=both, records_per_sample=pairs)
    plain, windows = Provider(declared), [{"dims": {"x": [1]}}, {"dims": {}}]
    with PrefetchGroup({"wind": Provider(declared)}, windows=windows, workers=2, depth=3) as group:
        times = group.boundaries()
        group.start(order)
        for k in epochs_of(order):
            sample = group.take(k)["wind"]
            for data, expected in zip(sample.data, plain.sample_windows_at(times[k], windows), strict=True):
                assert data.times == expected.times
                assert data["v"].data.tobytes() == expected["v"].data.tobytes()
            assert sample.anchor == times[k]


# spec: T6.8
@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_a_group_decodes_a_held_record_once_and_reads_no_file_again(days, order):
    declared = source(days(3, 4), missing=StandIn(hold="P5D"))
    with PrefetchGroup({"wind": Provider(declared)}) as group:
        group.start(order)
        for k in epochs_of(order):
            group.take(k)
        assert group.stats().records_decoded == 24


def test_a_record_that_stands_in_is_not_the_same_as_one_of_the_source_itself(days, other):
    provider = Provider(source(days(3), missing=StandIn(source=source(other, "other"))))
    theirs = provider.resolve(utc(2020, 1, 3)).records[0]
    own = Provider(source(other, "other")).resolve(utc(2020, 1, 3)).records[0]
    assert (theirs.url, theirs.identity, theirs.index) == (own.url, own.identity, own.index)
    assert theirs != own
    held = Provider(source(other.parent.parent / "wind" / "%Y%m%d.nc", missing=StandIn(hold="P1D")))
    assert held.resolve(utc(2020, 1, 3)).records == held.resolve(utc(2020, 1, 2, 21)).records


# spec: P3.5
def test_prefetch_goes_past_a_missing_file_and_brings_what_stands_in(days, other, tmp_path):
    from datetime import datetime

    def at(folder):
        return lambda t: (tmp_path / folder / datetime.strftime(t, "%Y%m%d.nc")).as_uri()

    def declared(name, folder, missing=None):
        plain = source("x", name, missing=missing)
        return DataSource(name, "netcdf", at(folder), ("v",), plain.temporal)

    days(3)
    cache = Cache(root=tmp_path / "cache", offline=False)
    provider = Provider(declared("wind", "wind", StandIn(source=declared("other", "other"))), cache)
    assert provider.prefetch(("2020-01-03", "2020-01-04T06:00")) == 2
    kept = {path.name for path in (tmp_path / "cache" / "v1" / "blobs").rglob("*.nc")}
    wanted = [tmp_path / "other" / "20200103.nc", tmp_path / "wind" / "20200104.nc"]
    assert kept == {f"{cache_key(path.as_uri())}.nc" for path in wanted}
    offline = Provider(provider.loader, Cache(root=tmp_path / "cache", offline=True))
    assert [first(offline.sample_at(t)) for t in anchors(48, 78)] == [*range(116, 124), 24, 25]


# -- never silent ------------------------------------------------------------------------------------------


# spec: T6.9, C6.6
def test_each_missing_file_is_told_once_with_what_stands_in(days, tmp_path):
    told = []
    cache = Cache(root=tmp_path / "cache", offline=False, listeners=[told.append])
    provider = Provider(source(days(2, 3, 5), missing=StandIn(hold="P5D")), cache)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for each in (provider, provider.with_window({"dims": {"x": [0]}})):
            for t in anchors():
                each.sample_at(t)
    texts = [str(each.message) for each in caught if each.category is EarthSciIOWarning]
    folder = tmp_path / "wind"
    assert len(texts) == 3
    for text, (missing, held) in zip(texts, (("02", "01"), ("03", "01"), ("05", "04")), strict=True):
        assert f"{folder}/202001{missing}.nc does not exist" in text
        assert f"{folder}/202001{held}.nc stands in" in text
    assert {each.filename for each in caught} == {__file__}

    pairs = {f"{folder}/202001{a}.nc": f"{folder}/202001{b}.nc" for a, b in zip(("02", "03", "05"), ("01", "01", "04"), strict=True)}  # fmt: skip # noqa: E501
    events = [event for event in told if isinstance(event, Substituted)]
    assert {event.url: event.stand_ins for event in events} == {url: (other,) for url, other in pairs.items()}
    assert len(events) == 3
    assert {event.source for event in events} == {"wind"}

    records = json.loads(json.dumps(cache.provenance()))
    missing = [record for record in records if record["stand_ins"]]
    assert missing == [
        {
            "source": "wind", "url": url, "key": cache_key(url), "sha256_content": None, "bytes": None,
            "fetched_at": None, "modified": None, "stand_ins": [other],
        }
        for url, other in pairs.items()
    ]  # fmt: skip
    assert Counter(record["url"] for record in records if not record["stand_ins"]) == Counter(
        f"{folder}/202001{day}.nc" for day in ("01", "04")
    )


# spec: T6.9
def test_a_group_tells_as_a_provider_does(days, tmp_path):
    cache = Cache(root=tmp_path / "cache", offline=False)
    provider = Provider(source(days(3), missing=StandIn(hold="P1D")), cache)

    def sweep():
        with PrefetchGroup({"wind": provider}) as group:
            group.start("reverse")
            for k in epochs_of("reverse"):
                group.take(k)

    with pytest.warns(EarthSciIOWarning, match=r"20200103\.nc does not exist") as caught:
        sweep()
    assert len(caught) == 1
    assert [record["url"][-11:] for record in cache.provenance() if record["stand_ins"]] == ["20200103.nc"]


# spec: T6.9
def test_all_that_stood_in_for_a_file_is_listed(days, tmp_path, other):
    cache = Cache(root=tmp_path / "cache", offline=False)
    both = StandIn(hold="PT6H", source=source(other, "other"))
    provider = Provider(source(days(3), missing=both), cache)
    for t in anchors(48, 72):
        provider.sample_at(t)
    (missing,) = [record for record in cache.provenance() if record["stand_ins"]]
    assert missing["stand_ins"] == [str(other.parent / "20200103.nc"), str(tmp_path / "wind" / "20200102.nc")]
