"""``earthsciio inspect``: what is in a file, as it would come out."""

from __future__ import annotations

import pytest

from earthsciio.cli import main


@pytest.fixture
def inspect(capsys):
    def inspect(*arguments: object) -> str:
        assert main(["inspect", *map(str, arguments)]) == 0
        return capsys.readouterr().out

    return inspect


def cells(out: str, variable: str) -> list[str]:
    (line,) = [
        line for line in out.splitlines() if line.removeprefix("* ").split("  ")[0].strip() == variable
    ]
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_a_file_is_listed_with_dims_chunks_dtypes_and_time_span(inspect, case, tmp_path):
    out = inspect(tmp_path / "u.20000101.nc")
    assert "dimensions: time 4, lat 3, lon 4" in out
    assert "time: time: 4 records from 2000-01-01 00:00:00 to 2000-01-01 18:00:00 (standard)" in out
    assert cells(out, "u") == [
        "u", "time 4, lat 3, lon 4", "1, 3, 4", "<i2", "float64", "m/s", "eastward [bold]wind"
    ]  # fmt: skip
    assert cells(out, "mask")[3:5] == ["|i1", "int8"]


def test_reader_options_decide_what_comes_out(inspect, case, tmp_path):
    out = inspect(tmp_path / "u.20000101.nc", "--option", "precision=source")
    assert cells(out, "lat")[4] == "float32"


def test_attributes_are_listed_on_request(inspect, case, tmp_path):
    assert "scale_factor" not in inspect(tmp_path / "u.20000101.nc")
    assert "  scale_factor = 0.5" in inspect(tmp_path / "u.20000101.nc", "--attributes").replace(
        "np.float64(0.5)", "0.5"
    )


def test_the_first_file_of_a_source_is_shown_with_what_it_delivers_marked(inspect, case):
    out = inspect(case, "wind")
    assert "source wind (netcdf)" in out
    assert "u.20000101.nc" in out
    assert "* u " in out
    assert "* mask" not in out
    assert "time: time: 4 records" in out
    both = inspect(case)
    assert "source wind" in both
    assert "source mask" in both
    assert "* mask" in both


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("case.yaml", "wnd"), "Did you mean 'wind'"),
        (("nope.nc",), "no such file"),
        (("nope.yaml",), "no such file"),
        (("case.yaml.txt", "--format", "netcdf"), "neither NetCDF nor HDF5"),
        (("u.20000101.nc", "--format", "netcfd"), "Did you mean 'netcdf'"),
        (("u.20000101.nc", "--option", "presicion=source"), "Did you mean 'precision'"),
        (("u.20000101.nc", "--option", "precision"), "takes NAME=VALUE"),
    ],
)
def test_errors_are_one_line_and_end_with_2(case, tmp_path, capsys, monkeypatch, arguments, says):
    (tmp_path / "case.yaml.txt").write_text("no data")
    monkeypatch.chdir(tmp_path)
    assert main(["inspect", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert len(err.splitlines()) == 1
