"""Sources from YAML: what they become, and what is said of what can't be right."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from pathlib import Path

import cftime
import pytest

from earthsciio import DataSource, SourceTemporal, Window
from earthsciio.declare import dump_sources, load_case, load_sources
from earthsciio.errors import DeclarationError, SourceNotDeclared
from earthsciio.selection import AxesSelection

FULL = """\
vars:
  root: ${TEST_ROOT:-/data}
  stream: fp
sources:
  wind:
    format: netcdf
    url: "{root}/{stream}/%Y/%m/{name}.%Y%m%d.nc4"
    variables: [U, V]
    mirrors: ["https://example.org/{stream}/%Y%m%d.nc4"]
    auth_realm: earthdata
    options: {precision: source, mask_valid_range: true}
    window:
      lat: {slice: [120, 218]}
      lon: {indices: [1150, 1151, 0, 1]}
      lev: [0, 5]
      ens: all
    temporal:
      start: 2019-07-01T01:30
      frequency: PT3H
      file_period: P1D
      end: 2020-07-01
      time_dim: Times
      records_per_sample: 2
      outside: hold
  mask:
    format: netcdf
    url: mask.nc
"""


@pytest.fixture
def load(tmp_path):
    def load(text: str, name: str = "sources.yaml") -> dict[str, DataSource]:
        path = tmp_path / name
        path.write_text(text)
        return load_sources(path)

    return load


# spec: P6.1
def test_a_full_declaration_equals_the_same_in_python(load, tmp_path, monkeypatch):
    monkeypatch.delenv("TEST_ROOT", raising=False)
    sources = load(FULL)
    wind = DataSource(
        name="wind",
        format="netcdf",
        url="/data/fp/%Y/%m/wind.%Y%m%d.nc4",
        variables=("U", "V"),
        temporal=SourceTemporal(
            start=datetime(2019, 7, 1, 1, 30, tzinfo=UTC),
            frequency="PT3H",
            file_period="P1D",
            end=datetime(2020, 7, 1, tzinfo=UTC),
            time_dim="Times",
            records_per_sample=2,
            outside="hold",
        ),
        mirrors=("https://example.org/fp/%Y%m%d.nc4",),
        auth_realm="earthdata",
        reader_kwargs={
            "precision": "source",
            "mask_valid_range": True,
            "select": Window({"lat": (120, 218), "lon": [1150, 1151, 0, 1], "lev": [0, 5], "ens": "all"}),
        },
    )
    assert list(sources) == ["wind", "mask"]
    assert sources["wind"].temporal.cadence == wind.temporal.cadence
    for name in ("url", "variables", "mirrors", "auth_realm", "reader_kwargs", "format", "name"):
        assert getattr(sources["wind"], name) == getattr(wind, name)
    assert (
        sources["wind"].resolve_url(datetime(2019, 7, 4, tzinfo=UTC)) == "/data/fp/2019/07/wind.20190704.nc4"
    )
    assert sources["mask"] == DataSource("mask", "netcdf", str(tmp_path / "mask.nc"))


# spec: P6.3
def test_a_name_that_is_not_declared_is_answered_with_the_nearest(load, tmp_path):
    sources = load(FULL)
    assert isinstance(sources, dict)
    for known in (sources, pickle.loads(pickle.dumps(sources))):
        with pytest.raises(KeyError, match="Did you mean 'wind'\\? There are: wind, mask") as caught:
            known["wnid"]
        assert caught.value.file == str(tmp_path / "sources.yaml")
        assert known.get("wnid") is None
        assert "wnid" not in known
    case = load_case(tmp_path / "sources.yaml")
    with pytest.raises(SourceNotDeclared, match="Did you mean 'mask'"):
        case.providers()["masc"]


def test_paths_are_relative_to_the_file_not_to_the_working_folder(load, tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    text = "sources: {{m: {{format: netcdf, url: {}}}}}"
    for written, expected in {
        "../x.nc": f"{tmp_path}/../x.nc",
        "~/x.nc": str(Path.home() / "x.nc"),
        "/x.nc": "/x.nc",
        "file:///x.nc": "file:///x.nc",
        "s3://bucket/x.nc": "s3://bucket/x.nc",
    }.items():
        assert load(text.format(written))["m"].url == expected


def test_a_percent_sign_in_the_folder_is_no_directive(tmp_path):
    folder = tmp_path / "run%d"
    folder.mkdir()
    path = folder / "s.yaml"
    path.write_text(
        "sources:\n"
        "  a: {format: netcdf, url: x%Y.nc,\n"
        "      temporal: {start: 2019-01-01, frequency: P1D, file_period: P1Y}}\n"
        "  b: {format: netcdf, url: x.nc, temporal: {start: 2019-01-01, frequency: P1D}}\n"
        "  c: {format: netcdf, url: x.nc}\n"
    )
    sources = load_sources(path)
    day = datetime(2019, 1, 1, tzinfo=UTC)
    assert sources["a"].resolve_url(day) == f"{folder}/x2019.nc"
    assert sources["b"].resolve_url(day) == f"{folder}/x.nc"
    assert sources["c"].resolve_url() == f"{folder}/x.nc"


# spec: P6.3
def test_templates_know_name_variable_and_vars_the_source_s_own_first(load):
    sources = load(
        "vars: {root: /a, n: 1}\n"
        "sources:\n"
        "  u: {format: netcdf, url: '{root}/{n}/{name}_{variable}_{{x}}.nc', variables: [uwnd]}\n"
        "  v: {format: netcdf, url: '{root}/{n}.nc', vars: {root: /b}}\n"
    )
    assert [source.url for source in sources.values()] == ["/a/1/u_uwnd_{x}.nc", "/b/1.nc"]


def test_times_are_read_in_the_declared_calendar(load):
    text = (
        "sources: {{m: {{format: netcdf, url: x.nc, temporal: "
        "{{start: {}, frequency: P1D, end: 2000-03-01, calendar: {}}}}}}}"
    )
    temporal = load(text.format("2000-02-30", "360_day"))["m"].temporal
    assert temporal.start == cftime.datetime(2000, 2, 30, calendar="360_day")
    assert temporal.end == cftime.datetime(2000, 3, 1, calendar="360_day")
    with pytest.raises(DeclarationError, match="no time '2000-02-30' in the calendar noleap") as caught:
        load(text.format("2000-02-30", "noleap"))
    assert caught.value.key == "sources.m.temporal.start"


def test_an_irregular_series_keeps_its_word(load):
    source = load(
        "sources: {m: {format: netcdf, url: x.nc, temporal: {start: 2000-01-01, frequency: records}}}"
    )["m"]
    assert source.temporal.frequency == "records"
    assert not source.temporal.cadence.is_read


def test_a_positional_selection_may_stand_as_the_option_select(load):
    source = load(
        "sources: {m: {format: netcdf, url: x.nc, options: {select: {axes: [all, {slice: [0, 3]}]}}}}"
    )["m"]
    assert isinstance(source.reader_kwargs["select"], AxesSelection)
    assert source.reader_kwargs["select"].wire() == {"axes": ["all", {"slice": [0, 3]}]}


HEAD = "sources:\n  wind:\n    format: netcdf\n    url: x.nc\n"
TIME = "    temporal:\n      start: 2000-01-01\n      frequency: P1D\n"


# spec: P1.3, P6.2
@pytest.mark.parametrize(
    ("text", "line", "key", "says"),
    [
        (HEAD + "    formt: x\n", 5, "sources.wind.formt", "unknown key 'formt'.*Did you mean 'format'"),
        (HEAD + TIME + "      outsde: hold\n", 8, "sources.wind.temporal.outsde", "Did you mean 'outside'"),
        (HEAD + TIME + "      outside: cycel\n", 8, "sources.wind.temporal.outside", "Did you mean 'cycle'"),
        (HEAD + "sorces: {}\n", 5, "sorces", "Did you mean 'sources'"),
        ("vars: {}\n", 1, None, "'sources' is missing"),
        ("sources:\n  a:\n    format: netcdf\n", 2, "sources.a", "'url' is missing"),
        ("sources:\n  a: {format: netcf, url: x}\n", 2, "sources.a.format", "Did you mean 'netcdf'"),
        (
            HEAD + "    options:\n      presicion: source\n",
            6,
            "sources.wind.options.presicion",
            "'precision'",
        ),
        (HEAD + "    options:\n      precision: half\n", 6, "sources.wind.options.precision", "not 'half'"),
        (
            HEAD + "    variables: U\n",
            5,
            "sources.wind.variables",
            r"expected a list, got the text 'U'.*\[U\]",
        ),
        (
            HEAD + "    variables: [U, 7]\n",
            5,
            "sources.wind.variables[1]",
            "expected text, got the number 7.*quotes",
        ),
        (HEAD + "    variables: [U, U]\n", 2, "sources.wind", "names a variable twice"),
        (HEAD + "    temporal: P1D\n", 5, "sources.wind.temporal", "expected a mapping, got the text 'P1D'"),
        (
            HEAD + "    temporal: {start: 1970, frequency: P1D}\n",
            5,
            "sources.wind.temporal.start",
            "in quotes",
        ),
        (HEAD + TIME + "      end: soon\n", 8, "sources.wind.temporal.end", "'soon' is no time"),
        (HEAD + TIME + "      end: 1999-01-01\n", 5, "sources.wind.temporal", "end must be after start"),
        (HEAD + TIME + "      file_period: 1D\n", 8, "sources.wind.temporal.file_period", "no duration"),
        (HEAD + TIME + "      calendar: mayan\n", 8, "sources.wind.temporal.calendar", "unknown calendar"),
        (
            HEAD + TIME + "      records_per_sample: 3\n",
            8,
            "sources.wind.temporal.records_per_sample",
            "1 or 2",
        ),
        (
            HEAD + TIME + "      records_per_sample: true\n",
            8,
            "sources.wind.temporal.records_per_sample",
            "1 or 2",
        ),
        (
            HEAD + "    window:\n      lat: {slice: [3]}\n",
            6,
            "sources.wind.window.lat",
            "of 'lat': a slice is",
        ),
        (HEAD + "    window:\n      lat: 3\n", 6, "sources.wind.window.lat", "can't read the selector 3"),
        (
            HEAD + "    window: {x: all}\n    options: {select: {dims: {}}}\n",
            6,
            "sources.wind.options.select",
            "both",
        ),
        (HEAD + "    mirrors:\n      - '{base}/x'\n", 6, "sources.wind.mirrors[0]", "what {base} stands for"),
        (HEAD.replace("x.nc", "'{nam}.nc'"), 4, "sources.wind.url", "Did you mean 'name'"),
        (HEAD.replace("x.nc", "'a}b'"), 4, "sources.wind.url", "a single '}'"),
        (HEAD.replace("x.nc", "{root}"), 4, "sources.wind.url", "expected text, got a mapping.*quotes"),
        (HEAD.replace("x.nc", "http://[h/x.nc"), 4, "sources.wind.url", "is no URL: Invalid IPv6"),
        (HEAD + "    mirrors: ['http://[h/x.nc']\n", 5, "sources.wind.mirrors[0]", "is no URL: Invalid IPv6"),
        (HEAD.replace("x.nc", ""), 4, "sources.wind.url", "expected text, got nothing"),
        (
            "vars: {a: [1]}\nsources: {}\n",
            1,
            "vars.a",
            "expected text or a whole number or a number, got a list",
        ),
        ("sources: []\n", 1, "sources", "expected a mapping, got a list"),
    ],
)
def test_errors_name_file_line_and_key_and_say_what_to_do(load, text, line, key, says):
    with pytest.raises(DeclarationError, match=says) as caught:
        load(text)
    assert isinstance(caught.value, ValueError)
    assert caught.value.file.endswith("sources.yaml")
    assert (caught.value.line, caught.value.key) == (line, key)
    assert caught.value.file.endswith("sources.yaml")
    assert f"line={line}" in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_what_is_dumped_loads_as_the_same(load, tmp_path):
    sources = load(FULL)
    sources["days"] = load(
        "sources: {m: {format: netcdf, url: https://x.org/%Y.nc, temporal: "
        "{start: 2000-02-30T06:00:00.5, frequency: P1DT30M, calendar: 360_day, end: 2000-05-01}}}"
    )["m"]
    sources["days"] = DataSource("days", "netcdf", "x", temporal=sources["days"].temporal)
    sources["days"] = DataSource("days", "netcdf", "/x", temporal=sources["days"].temporal)
    path = tmp_path / "elsewhere" / "dumped.yaml"
    path.parent.mkdir()
    text = dump_sources(sources, path)
    assert path.read_text() == text
    assert load_sources(path) == sources
    assert dump_sources(load_sources(path)) == text


def test_text_that_yaml_would_take_for_something_else_survives_a_round_trip(tmp_path):
    names = (
        "no",
        "1e3",
        "1:30",
        "2000-01-01",
        "null",
        "~",
        "0x10",
        "${HOME}",
        "a: b",
        " x",
        "%Y",
        "true",
        "é",
    )
    source = DataSource("s", "netcdf", "https://x.org/{braces}/${HOME}/%Y", names)
    path = tmp_path / "s.yaml"
    dump_sources({"s": source}, path)
    assert load_sources(path) == {"s": source}


def test_sources_made_in_python_are_dumped_with_the_same_meaning(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = DataSource(
        "s",
        "netcdf",
        "data/%Y.nc",
        temporal=SourceTemporal(
            cftime.datetime(2000, 2, 20, 12, calendar="360_day"), "PT6H", file_period="P1Y"
        ),
        reader_kwargs={"select": {"axes": ["all", {"indices": [3, 1]}]}},
    )
    path = tmp_path / "sub" / "s.yaml"
    path.parent.mkdir()
    dump_sources({"s": source}, path)
    (back,) = load_sources(path).values()
    assert Path(back.resolve_url(datetime(2001, 1, 1, tzinfo=UTC))) == tmp_path / "data/2001.nc"
    assert back.temporal.cadence == source.temporal.cadence
    assert back.reader_kwargs["select"].wire() == source.reader_kwargs["select"]


def test_what_yaml_can_t_hold_is_refused():
    with pytest.raises(DeclarationError, match="is a function"):
        dump_sources({"s": DataSource("s", "netcdf", lambda _: "x.nc")})
    with pytest.raises(DeclarationError, match="can't be written"):
        dump_sources({"s": DataSource("s", "netcdf", "/x.nc", reader_kwargs={"group": object()})})
