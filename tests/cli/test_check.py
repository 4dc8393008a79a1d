"""``earthsciio check``: what it finds, and what its exit code says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from earthsciio.cli import main


@pytest.fixture
def check(capsys):
    def check(path: Path, *options: str) -> tuple[int, dict]:
        code = main(["check", str(path), "--json", *options])
        return code, json.loads(capsys.readouterr().out)

    return check


def edit(path: Path, before: str, after: str) -> Path:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))
    return path


def test_a_sound_case_is_reported_whole_and_ends_with_0(check, case):
    code, report = check(case)
    assert code == 0
    assert report["ok"] is True
    wind, mask = report["sources"]
    assert (wind["kind"], wind["calendar"], wind["anchors"], wind["files"]) == ("DISCRETE", "standard", 8, 2)
    assert (wind["start"], wind["end"]) == ("2000-01-01 00:00:00", "2000-01-03 00:00:00")
    assert [Path(file["url"]).name for file in wind["opened"]] == ["u.20000101.nc", "u.20000102.nc"]
    assert [(file["records"], file["expected"], file["found"]) for file in wind["opened"]] == [(4, 4, 4)] * 2
    assert wind["opened"][1]["span"] == ["2000-01-02 00:00:00", "2000-01-02 18:00:00"]
    assert wind["opened"][0]["sizes"] == {"time": 4, "lat": 3, "lon": 4}
    assert wind["fields"] == [
        {"name": "u", "dims": ["time", "lat", "lon"], "shape": [2, 2, 4], "dtype": "float64"}
    ]
    # two records of 2 x 4 float64, the bracket of them, and its two times; all epochs share lat and lon
    assert wind["bytes_per_epoch"] == 2 * (2 * 4) * 8 + 2 * (2 * 4) * 8 + 2 * 8
    assert report["bytes_per_epoch"] == wind["bytes_per_epoch"]
    assert (mask["kind"], mask["calendar"], mask["opened"][0]["records"]) == ("CONST", None, 1)
    assert mask["fields"] == [{"name": "mask", "dims": ["lat", "lon"], "shape": [3, 4], "dtype": "int8"}]


def test_a_missing_last_file_is_a_problem_that_names_it(check, case, tmp_path):
    (tmp_path / "u.20000102.nc").unlink()
    code, report = check(case)
    assert code == 1
    wind, mask = report["sources"]
    assert (wind["ok"], mask["ok"]) == (False, True)
    assert any("u.20000102.nc" in problem for problem in wind["problems"])
    assert wind["fields"], "the first file is still described"


def test_records_that_are_not_there_are_counted_and_the_first_is_named(check, case):
    edit(case, "frequency: PT6H", "frequency: PT3H")
    code, report = check(case)
    assert code == 1
    (problem,) = [text for text in report["sources"][0]["problems"] if "20000101" in text]
    assert "4 of 8 records are there, none for 2000-01-01 03:00:00" in problem
    assert "2000-01-01 00:00:00 to 2000-01-01 18:00:00" in problem


def test_a_missing_file_between_the_first_and_the_last_is_a_problem_told_once(
    check, case, tmp_path, write_day
):
    edit(case, "end: 2000-01-03", "end: 2000-01-04")
    write_day(tmp_path / "u.20000103.nc", 3, range(0, 24, 6))
    (tmp_path / "u.20000102.nc").unlink()
    code, report = check(case)
    assert code == 1
    assert report["sources"][0]["problems"] == [f"1 of 3 files not there: {tmp_path / 'u.20000102.nc'}"]


def test_of_many_missing_files_the_first_and_the_last_are_named(check, case, tmp_path):
    edit(case, "end: 2000-01-03", "end: 2000-02-01")
    for day in (1, 2):
        (tmp_path / f"u.200001{day:02d}.nc").unlink()
    (problem,) = check(case)[1]["sources"][0]["problems"]
    assert problem.startswith("31 of 31 files not there: ")
    for day in ("01", "02", "31"):
        assert f"u.200001{day}.nc" in problem
    assert "u.20000103.nc" not in problem


def test_a_file_that_can_not_be_had_is_told_once(check, case, tmp_path):
    edit(case, "url: u.%Y%m%d.nc", "url: https://example.invalid/%Y%m%d.nc")
    with case.open("a") as file:
        file.write(f"cache: {{root: {tmp_path / 'cache'}}}\n")
    _, report = check(case, "--offline")
    problems = report["sources"][0]["problems"]
    assert [day in text for text, day in zip(problems, ("20000101", "20000102"), strict=True)] == [True] * 2


def test_a_last_record_without_successor_is_a_warning_that_says_what_to_declare(check, case):
    _, report = check(case)
    (text,) = report["sources"][0]["warnings"]
    assert "nothing follows the record of 2000-01-02 18:00:00" in text
    assert "`end: 2000-01-03 06:00:00`" in text
    with case.open("a") as file:
        file.write("time: {end: 2000-01-02T18:00}\n")
    assert check(case)[1]["sources"][0]["warnings"] == []


def test_files_of_another_calendar_are_a_warning(check, case, tmp_path, write_day):
    write_day(tmp_path / "u.20000101.nc", 1, range(0, 24, 6), calendar="proleptic_gregorian")
    edit(case, "records_per_sample: 2", "calendar: standard")
    assert check(case)[1]["sources"][0]["warnings"] == []
    (tmp_path / "u.20000102.nc").unlink()  # which may still be open
    write_day(tmp_path / "u.20000102.nc", 2, range(0, 24, 6), calendar="360_day")
    code, report = check(case)
    (text,) = report["sources"][0]["warnings"]
    assert "the files are of calendar 360_day, the source of standard" in text
    assert code == 0


def test_records_between_the_anchors_are_a_warning(check, case):
    edit(case, "frequency: PT6H", "frequency: PT12H")
    code, report = check(case)
    (text,) = report["sources"][0]["warnings"]
    assert text.startswith("2 of 4 records serve no anchor, but follow in brackets")
    assert code == 0


def test_what_is_selected_is_said_as_it_was_understood(check, case):
    edit(case, "{lat: {slice: [1, 3]}}", "{lat: {slice: [0, 3, 2]}, lon: [0, 3]}")
    source = check(case)[1]["sources"][0]
    assert source["selects"] == {"lat": "2 of 3: 0 to 2, in steps of 2", "lon": "2 of 4: 0, 3"}
    assert "lon: [0, 3] are two indices; a range is {slice: [0, 3]}" in source["warnings"]


def test_a_budget_below_one_epoch_is_a_warning(check, case):
    with case.open("a") as file:
        file.write("prefetch: {max_bytes: 271}\n")
    code, report = check(case)
    assert report["bytes_per_epoch"] == 272
    assert "max_bytes is 271 B, an epoch takes 272 B" in report["warnings"][0]
    assert code == 0


def test_a_window_outside_the_file_is_a_problem(check, case):
    code, report = check(edit(case, "[1, 3]", "[1, 4]"))
    assert code == 1
    assert any("out of range" in text and "lat" in text for text in report["sources"][0]["problems"])


def test_the_case_s_time_is_what_is_looked_at(check, case, tmp_path):
    (tmp_path / "u.20000102.nc").unlink()
    with case.open("a") as file:
        file.write("time: {start: 2000-01-01T05:00, end: 2000-01-01T18:00}\n")
    code, report = check(case)
    assert code == 0
    wind = report["sources"][0]
    # the records of 00, 06 and 12 h are in force then
    assert (wind["anchors"], wind["files"], wind["opened"][0]["expected"]) == (3, 1, 3)


def test_a_case_that_asks_for_times_its_source_does_not_have_is_refused(case, capsys):
    with case.open("a") as file:
        file.write("time: {start: 2000-01-01, end: 2000-01-04}\n")
    assert main(["check", str(case)]) == 2
    assert "after source 'wind', at 2000-01-03" in capsys.readouterr().err


def test_sources_of_different_calendars_are_a_problem_of_the_case(check, case):
    edit(case, "  mask: {", "  other: {temporal: {start: 2000-01-01, frequency: PT6H, calendar: noleap}, ")
    edit(case, "variables: [mask]", "variables: [u]")
    code, report = check(case)
    assert code == 1
    assert all(source["ok"] for source in report["sources"])
    assert "wind standard, other noleap" in report["problems"][0]


def test_a_source_without_end_is_a_warning(check, case):
    edit(case, " end: 2000-01-03,", "")
    code, report = check(case)
    assert code == 0
    wind = report["sources"][0]
    assert (wind["end"], wind["anchors"]) == (None, None)
    assert "no end is declared" in wind["warnings"][0]
    assert wind["opened"][0]["expected"] == 4


def test_doubts_of_the_library_are_listed_as_warnings(check, case):
    edit(case, "start: 2000-01-01,", "start: 1999-12-31T23:00,")
    edit(case, "file_period: P1D, end: 2000-01-03", "end: 2000-01-01T18:00")
    edit(case, "url: u.%Y%m%d.nc", "url: u.20000101.nc")
    code, report = check(case)
    assert code == 0
    assert any("declare start=" in text for text in report["sources"][0]["warnings"])


def test_irregular_series_and_files_that_are_one_record(check, case, tmp_path):
    import netCDF4

    for day in (1, 2):
        with netCDF4.Dataset(tmp_path / f"one.{day}.nc", "w") as file:
            file.createDimension("x", 3)
            file.createVariable("t", "f4", ("x",))[:] = day
    case.write_text(
        "sources:\n"
        "  one: {format: netcdf, url: one.%-d.nc, temporal: {start: 2000-01-01, frequency: P1D,\n"
        "        file_period: P1D, end: 2000-01-03, records_per_sample: 2}}\n"
        "  wind: {format: netcdf, url: u.%Y%m%d.nc, temporal: {start: 1999-12-31, frequency: records,\n"
        "         end: 2000-01-02}}\n"
    )
    edit(case, "u.%Y%m%d.nc", "u.20000101.nc")
    code, report = check(case)
    assert report["sources"][0]["problems"] == []
    assert report["sources"][1]["problems"] == []
    assert code == 0
    one, wind = report["sources"]
    assert one["fields"] == [{"name": "t", "dims": ["time", "x"], "shape": [2, 3], "dtype": "float64"}]
    assert [(file["expected"], file["found"]) for file in one["opened"]] == [(1, 1), (1, 1)]
    assert (wind["anchors"], wind["opened"][0]["found"]) == (4, 4)


def test_offline_looks_at_local_files_only(check, case, tmp_path):
    edit(case, "url: u.20000101.nc", "url: https://example.invalid/x.nc")
    with case.open("a") as file:
        file.write("cache: {root: cache}\n")
    code, report = check(case, "--offline")
    assert code == 1
    assert report["sources"][0]["ok"]
    assert "not in the cache, and offline" in report["sources"][1]["problems"][0]


def test_the_plain_report_says_it_all_too(case, capsys, tmp_path):
    assert main(["check", str(case)]) == 0
    out = capsys.readouterr().out
    for text in (
        "wind", "4 of 4, 4 of 4", "delivers u (time 2, lat 2, lon 4) float64", "selects lat 2 of 3: 1 to 2",
        "all is well, with 1 warning",
    ):  # fmt: skip
        assert text in out
    (tmp_path / "u.20000102.nc").unlink()
    assert main(["check", str(case)]) == 1
    out = capsys.readouterr().out
    assert "PROBLEM" in out
    assert "u.20000102.nc" in out
    assert "all is well" not in out


def test_a_wrong_file_is_one_line_on_stderr_and_ends_with_2(case, capsys):
    assert main(["check", str(edit(case, "format: netcdf\n", "formt: netcdf\n"))]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("earthsciio: error: unknown key 'formt'")
    assert "line=3" in line
    assert "case.yaml" in line
