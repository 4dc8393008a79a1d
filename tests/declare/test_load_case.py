"""Cases from YAML, and the schema of the files."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime
from pathlib import Path

import cftime
import jsonschema
import pytest

from earthsciio import Window
from earthsciio.declare import json_schema, load_case, load_sources
from earthsciio.errors import DeclarationError
from earthsciio.settings import ByteSize
from earthsciio.yamltext import Document

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))
DAILY = "{start: 2000-01-01, frequency: P1D, calendar: 360_day}"
SOURCES = f"sources: {{a: {{format: netcdf, url: x.nc, temporal: {DAILY}}}}}\n"


@pytest.fixture
def load(tmp_path):
    def load(text: str):
        path = tmp_path / "summer.yaml"
        path.write_text(SOURCES + text)
        return load_case(path)

    return load


def test_everything_but_the_sources_has_a_default(load, tmp_path):
    case = load("")
    assert case.name == "summer"
    assert case.file == tmp_path / "summer.yaml"
    assert case.sources == load_sources(case.file)
    assert (case.clip, case.window, case.model, case.restart) == ((None, None), None, None, None)
    assert case.group_options() == {
        "depth": 2,
        "max_bytes": None,
        "fetch_ahead": None,
        "workers": 1,
        "executor": "thread",
        "spill_dir": None,
        "spill_bytes": None,
        "clip": None,
    }
    assert (case.scatter.mode, case.sweep.direction, case.sweep.snapshots) == ("auto", "forward", None)
    assert (case.grid.lat, case.grid.lon) == ("lat", "lon")
    assert (case.halo("lat"), case.halo("lon")) == ((1, 1), (1, 1))
    assert (case.is_periodic("lat"), case.is_periodic("lon")) == (False, True)


def test_a_full_case(load, tmp_path):
    case = load(
        "case: july\n"
        "time: {start: 2000-02-30, end: 2000-04-01T12:00}\n"
        "window: {lat: {slice: [0, 40]}}\n"
        "grid: {lat: latitude, lon: longitude, lev: level}\n"
        "partition: {halo: {latitude: 2, longitude: [1, 3]}, periodic: [], faces: {lat_edge: latitude}}\n"
        "prefetch: {depth: 0, max_bytes: 8GiB, workers: 4, fetch_ahead: 6,\n"
        "           spill_dir: spill, spill_bytes: 1.5 GB}\n"
        "cache: {root: cache, offline: true}\n"
        "scatter: {mode: node}\n"
        "model: {name: tracer, parameters: {step: 1e3, deep: {er: [1, no]}}}\n"
        "sweep: {direction: adjoint, snapshots: 8}\n"
        "restart: {file: here.npz, every: 5}\n"
        "output: {folder: out, plots: true}\n"
    )
    assert case.name == "july"
    assert case.clip == (
        cftime.datetime(2000, 2, 30, calendar="360_day"),
        cftime.datetime(2000, 4, 1, 12, calendar="360_day"),
    )
    assert case.window == Window({"lat": (0, 40)})
    assert (case.halo("latitude"), case.halo("longitude"), case.halo("other")) == ((2, 2), (1, 3), (0, 0))
    assert not case.is_periodic("longitude")
    assert case.partition.faces == {"lat_edge": "latitude"}
    options = case.group_options()
    assert (options["max_bytes"], options["spill_bytes"]) == (8 * 2**30, 1_500_000_000)
    assert options["clip"] == case.clip
    for path, name in [
        (case.prefetch.spill_dir, "spill"),
        (case.cache.root, "cache"),
        (case.restart.file, "here.npz"),
        (case.output.folder, "out"),
    ]:
        assert path == str(tmp_path / name)
    assert case.model.parameters == {"step": 1000.0, "deep": {"er": [1, "no"]}}
    assert pickle.loads(pickle.dumps(case)) == case


def test_providers_share_the_declared_cache(load, tmp_path):
    case = load("cache: {root: cache, offline: true}\n")
    providers = case.providers()
    assert list(providers) == ["a"]
    assert providers["a"].cache.offline
    assert str(tmp_path / "cache") in repr(providers["a"].cache)
    shared = case.open_cache()
    assert case.providers(shared)["a"].cache is shared


def test_clip_bounds_are_read_in_utc_for_standard_calendars(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("sources: {m: {format: netcdf, url: x.nc}}\ntime: {end: 2000-01-01}\n")
    assert load_case(path).clip == (None, datetime(2000, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [
        ("4096", 4096),
        ("4096B", 4096),
        ("4kb", 4000),
        ("4 KiB", 4096),
        ("1.5GiB", 3 * 2**29),
        ("0", 0),
        ("2TB", 2 * 10**12),
        ("9007199254740993 KiB", 9007199254740993 * 1024),
    ],
)
def test_sizes(load, text, bytes_):
    assert load(f"prefetch: {{max_bytes: {text}}}").prefetch.max_bytes == bytes_
    assert isinstance(load(f"prefetch: {{max_bytes: {text}}}").prefetch.max_bytes, ByteSize)


@pytest.mark.parametrize(
    ("text", "key", "says"),
    [
        ("prefetch: {max_bytes: 8G}", "prefetch.max_bytes", "'8G' is no size.*8GiB"),
        ("prefetch: {max_bytes: -1}", "prefetch.max_bytes", "no size"),
        ("prefetch: {max_bytes: true}", "prefetch.max_bytes", "no size|got true"),
        ("prefetch: {depth: -1}", "prefetch.depth", "expected 0 or more, got -1"),
        ("prefetch: {depth: 2.5}", "prefetch.depth", "expected a whole number, got the number 2.5"),
        ("prefetch: {dept: 2}", "prefetch.dept", "Did you mean 'depth'"),
        ("prefetch:", "prefetch", "expected a mapping, got nothing.*leave the key out"),
        ("sweep: {snapshots: 0}", "sweep.snapshots", "expected 1 or more"),
        ("sweep: adjoint", "sweep", "expected a mapping, got the text 'adjoint'"),
        ("sweep: {direction: forwards}", "sweep.direction", "Did you mean 'forward'"),
        ("sweep: {direction: backward}", "sweep.direction", r"'backward'.*\]\. There are: adjoint, forward"),
        ("cache: {offline: yes}", "cache.offline", "expected true or false, got the text 'yes'.*Write true"),
        ("scatter: {mode: nodes}", "scatter.mode", "Did you mean 'node'"),
        ("time: {start: 2001-01-31}", "time.start", "no time '2001-01-31' in the calendar 360_day"),
        ("time: {start: 2001-01-02, end: 2001-01-02}", "time.end", "after start"),
        ("partition: {halo: -1}", "partition.halo", "0 cells or more"),
        ("partition: {halo: {lat: [1, -2]}}", "partition.halo.lat", "0 cells or more"),
        ("partition: {halo: {lat: [1, 2, 3]}}", "partition.halo.lat", "a whole number or a list of 2"),
        ("window: {lat: [1.5]}", "window.lat", "not an integer"),
        ("window: {lat: '0:72'}", "window.lat", r"Write {slice: \[0, 72\]}"),
        ("window: {lat: 3}", "window.lat", r"Write {slice: \[start, stop\]}"),
        ("window: {lat: 3}", "window.lat", r"a list of indices \(\[3\]\)"),
        ("model: {name: tracer, window: {lev: 3}}", "model.window.lev", r"a list of indices \(\[3\]\)"),
        ("model: {name: tracer, window: [3]}", "model.window", "expected a mapping"),
        ("model: {parameters: {}}", "model", "'name' is missing"),
        ("output: {folder: '{nope}'}", "output.folder", "nothing says what {nope}"),
    ],
)
def test_errors_name_line_and_key(load, text, key, says):
    with pytest.raises(DeclarationError, match=says) as caught:
        load(text)
    assert (caught.value.line, caught.value.key) == (2, key)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_load_and_satisfy_the_schema(path):
    load_case(path)
    document = Document.read(path).data
    schema = json.loads(json.dumps(json_schema()))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(document, schema, cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"sources": {}, "extra": 1},
        {"sources": {"a": {"format": "netcdf"}}},
        {"sources": {"a": {"format": "netcdf", "url": "x", "window": {"lat": {"slice": [1]}}}}},
        {"sources": {}, "model": {"name": "tracer", "window": {"lev": 3}}},
        {"sources": {}, "prefetch": {"max_bytes": "8G"}},
        {"sources": {}, "prefetch": {"depth": -1}},
        {"sources": {}, "sweep": {"direction": "sideways"}},
    ],
)
def test_the_schema_refuses_what_loading_refuses(wrong, tmp_path):
    validator = jsonschema.Draft202012Validator(json.loads(json.dumps(json_schema())))
    assert not validator.is_valid(wrong)
    path = tmp_path / "wrong.yaml"
    path.write_text(json.dumps(wrong))
    with pytest.raises(DeclarationError):
        load_case(path)


def test_there_is_an_example():
    assert "ncep-winds.yaml" in [path.name for path in EXAMPLES]


def test_the_ncep_example_is_twelve_monthly_brackets_of_a_climatology(monkeypatch):
    monkeypatch.setenv("WINDS", "/winds")
    case = load_case(next(path for path in EXAMPLES if path.name == "ncep-winds.yaml"))
    assert [source.url for source in case.sources.values()] == ["/winds/uwnd_mean.nc", "/winds/vwnd_mean.nc"]
    for name, source in case.sources.items():
        assert source.variables == (name,)
        assert (source.temporal.brackets, source.temporal.outside) == (True, "cycle")
    months = case.providers()["uwnd"].anchors(*case.clip)
    assert months == [datetime(1970, month, 1, tzinfo=UTC) for month in range(1, 13)]


# spec: P6.5
@pytest.mark.parametrize(
    ("time", "key", "text"),
    [
        ("{start: 1999-12-30, end: 2000-02-01}", "time.start", "before source 'a', at 2000-01-01"),
        ("{end: 2000-03-02}", "time.end", "after source 'a', at 2000-03-01"),
    ],
)
def test_a_case_longer_than_a_source_is_refused(tmp_path, time, key, text):
    path = tmp_path / "long.yaml"
    path.write_text(SOURCES.replace("P1D,", "P1D, end: 2000-03-01,") + f"time: {time}\n")
    with pytest.raises(DeclarationError, match=text) as caught:
        load_case(path)
    assert (caught.value.context["key"], caught.value.context["line"]) == (key, 2)


@pytest.mark.parametrize("outside", ["hold", "cycle"])
def test_a_case_may_be_longer_than_a_source_that_goes_on(tmp_path, outside):
    path = tmp_path / "long.yaml"
    path.write_text(
        SOURCES.replace("P1D,", f"P1D, end: 2001-01-01, outside: {outside},") + "time: {end: 2004-01-01}\n"
    )
    assert load_case(path).clip[1].year == 2004
