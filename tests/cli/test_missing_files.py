"""Missing files from the command line: warmed with what stands in, ready offline, checked, written down."""

from __future__ import annotations

import json
import os

import netCDF4
import numpy as np
import pytest

from earthsciio import Cache, CacheMiss, EarthSciIOWarning, Provider, SourceTemporal
from earthsciio.cache import cache_key, transport_registry
from earthsciio.cache.transports.http import HttpTransport
from earthsciio.cli import main
from earthsciio.declare import dump_sources, json_schema, load_case, load_sources
from earthsciio.errors import DeclarationError, TransportError
from earthsciio.source import parse_time

pytestmark = pytest.mark.filterwarnings("ignore:.*does not exist:earthsciio.EarthSciIOWarning")


@pytest.fixture(autouse=True)
def own_environment(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("EARTHSCI", "PMI", "OMPI", "SLURM", "PALS", "MV2")) or "proxy" in name.lower():
            monkeypatch.delenv(name)
    monkeypatch.setenv("NO_PROXY", "*")

    def build() -> HttpTransport:
        return HttpTransport(sleep=lambda _: None)  # a server's 500 is asked again, without a pause

    factories = {**transport_registry._factories, "http": build}
    monkeypatch.setattr(transport_registry, "_factories", factories)


def write(path, first_hour, values, step=6):
    with netCDF4.Dataset(path, "w") as file:
        for dim, length in {"time": None, "lat": 3, "lon": 4}.items():
            file.createDimension(dim, length)
        time = file.createVariable("time", "f8", ("time",))
        time.units = "hours since 2000-01-01"
        time[:] = first_hour + step * np.arange(len(values))
        file.createVariable("u", "f4", ("time", "lat", "lon"))[:] = np.asarray(values)[:, None, None]
    return path.read_bytes()


@pytest.fixture
def serve(httpserver, tmp_path):
    """Serve days of a folder ``wind`` (values 10, 11, 12, 13 on day 1, ...) and say what others answer."""

    def serve(days, otherwise=404, folder="wind", add=0):
        for day in range(1, 6):
            data = write(tmp_path / "x.nc", 24 * (day - 1), np.arange(4) + 10 * day + add)
            handler = httpserver.expect_request(f"/{folder}/{day:02d}.nc")
            if day in days:
                handler.respond_with_data(data)
            else:
                handler.respond_with_data("", status=otherwise)
        return httpserver.url_for(f"/{folder}/%d.nc")

    return serve


@pytest.fixture
def case(tmp_path):
    """Write a case of days 1 to 4, in which the wind is read as pairs."""

    def case(url, missing, *, rest="", pairs=2):
        path = tmp_path / "case.yaml"
        path.write_text(
            "sources:\n"
            "  wind:\n"
            "    format: netcdf\n"
            f"    url: '{url}'\n"
            "    variables: [u]\n"
            "    temporal: {start: 2000-01-01, frequency: PT6H, file_period: P1D, end: 2000-01-05,\n"
            f"               records_per_sample: {pairs}, missing: {missing}}}\n"
            "time: {start: 2000-01-02, end: 2000-01-04}\n"
            "cache: {root: cache}\n" + rest
        )
        return path

    return case


STAND_INS = """\
stand_ins:
  other:
    format: netcdf
    url: '{url}'
    variables: [u]
    temporal: {{start: 2000-01-01, frequency: PT6H, file_period: P1D, end: 2000-01-05,
               records_per_sample: 2{more}}}
"""


@pytest.fixture
def warm(capsys):
    def warm(path, *options):
        code = main(["warm", str(path), "--json", *options])
        return code, json.loads(capsys.readouterr().out)

    return warm


def asked(httpserver, folder="wind"):
    return [request.path for request, _ in httpserver.log if request.path.startswith(f"/{folder}")]


def read(path, *, offline):
    case = load_case(path)
    with case.open_cache(offline=offline) as cache:
        provider = Provider(case.sources["wind"], cache, case.clip)
        return [provider.sample_at(t)["u"].data[:, 0, 0].tolist() for t in provider.refresh_times()]


# spec: C7.3
def test_held_a_run_is_ready_offline_and_gives_what_it_gives_online(serve, case, warm, httpserver):
    path = case(serve([1, 3, 4]), "{hold: P1D}")
    code, report = warm(path)
    url = httpserver.url_for("/wind/")
    assert (code, report["offline_ready"], report["problems"]) == (0, True, [])
    assert [(each["url"], each["status"]) for each in report["files_warmed"]] == [
        (f"{url}02.nc", "absent"),
        (f"{url}03.nc", "downloaded"),
        (f"{url}04.nc", "downloaded"),
    ]
    assert (report["absent"], report["failed"]) == (1, 0)
    assert report["stood_in"] == [
        {"source": "wind", "url": f"{url}02.nc", "stand_ins": [f"{url}01.nc"], "error": None}
    ]
    before = len(httpserver.log)
    offline = read(path, offline=True)
    assert len(httpserver.log) == before
    # the first day's 18 h over the second, then pairs of the third, and the fourth's first record
    assert offline == [[13, 13]] * 4 + [[30, 31], [31, 32], [32, 33], [33, 40]]
    assert read(path, offline=False) == offline


# spec: C7.3
def test_another_source_is_warmed_for_just_the_samples_that_need_it(serve, case, warm, httpserver):
    other = serve([1, 2, 3, 4, 5], folder="other", add=100)
    path = case(serve([1, 2, 4]), "{source: other}", rest=STAND_INS.format(url=other, more=""))
    code, report = warm(path)
    assert (code, report["offline_ready"]) == (0, True)
    # the pair at 18 h of the second day, those of the third, and the successor of its last
    assert sorted(set(asked(httpserver, "other"))) == ["/other/02.nc", "/other/03.nc", "/other/04.nc"]
    assert report["stood_in"][0]["stand_ins"] == [
        httpserver.url_for(f"/other/{day:02d}.nc") for day in (2, 3, 4)
    ]
    assert read(path, offline=True) == [
        [20, 21], [21, 22], [22, 23], [123, 130], [130, 131], [131, 132], [132, 133], [133, 140],
    ]  # fmt: skip
    kept = {path.stem for path in (path.parent / "cache" / "v1" / "blobs").rglob("*.nc")}
    assert cache_key(httpserver.url_for("/other/01.nc")) not in kept


# spec: C7.3
def test_a_climatology_is_warmed_if_it_is_needed_and_not_otherwise(serve, case, warm, httpserver, tmp_path):
    mean = write(tmp_path / "mean.nc", 0, np.arange(366) + 1000, step=24)
    httpserver.expect_request("/mean.nc").respond_with_data(mean)
    stand_ins = STAND_INS.format(url=httpserver.url_for("/mean.nc"), more=", outside: cycle")
    stand_ins = (
        stand_ins.replace("PT6H", "P1D").replace("file_period: P1D, ", "").replace("2000-01-05", "2001-01-01")
    )
    path = case(serve([1, 2, 4]), "{source: other}", rest=stand_ins)
    assert warm(path, "--end", "2000-01-02T18:00")[1]["absent"] == 0
    assert asked(httpserver, "mean") == []
    code, report = warm(path)
    assert (code, report["offline_ready"]) == (0, True)
    assert report["stood_in"][0]["stand_ins"] == [httpserver.url_for("/mean.nc")]
    assert read(path, offline=True)[3:] == [[1001, 1002], *[[1002, 1003]] * 4]


# spec: C7.3, T6.1
@pytest.mark.parametrize("status", [403, 500, 503])
def test_a_server_that_does_not_say_so_makes_no_file_absent(serve, case, warm, httpserver, status):
    path = case(serve([1, 3, 4], otherwise=status), "{hold: P1D}")
    code, report = warm(path)
    assert (code, report["offline_ready"], report["absent"], report["failed"]) == (1, False, 0, 1)
    assert f"{status}" in report["files_warmed"][0]["error"]
    with pytest.raises((TransportError, PermissionError)):
        read(path, offline=False)
    with pytest.raises(CacheMiss):
        read(path, offline=True)


# spec: C7.3
def test_what_was_never_warmed_is_not_absent_offline(serve, case):
    path = case(serve([1, 3, 4]), "{hold: P1D}")
    with pytest.raises(CacheMiss):
        read(path, offline=True)
    assert read(path, offline=False)[0] == [13, 13]
    assert read(path, offline=True)[0] == [13, 13]  # the run has left a note


# spec: T6.8
def test_a_run_asks_once_for_a_missing_file(serve, case, httpserver):
    read(case(serve([1, 3, 4]), "{hold: P1D}"), offline=False)
    assert asked(httpserver).count("/wind/02.nc") == 1


# spec: C7.3
def test_a_gap_too_long_to_be_held_is_not_ready(serve, case, warm, capsys):
    path = case(serve([1, 4]), "{hold: PT24H}")
    code, report = warm(path)
    assert (code, report["offline_ready"]) == (1, False)
    second, third = report["stood_in"]
    assert (second["error"], third["error"] is None) == (None, False)
    assert [problem["url"][-5:] for problem in report["problems"]] == ["03.nc"]
    assert main(["warm", str(path)]) == 1
    out = capsys.readouterr().out
    assert "02.nc does not exist; in its place: " in out
    assert "03.nc does not exist, and nothing stands in: " in out
    assert "offline ready: no" in out


# spec: C7.3
def test_a_file_that_turns_up_is_taken_up_again_by_the_next_warming(serve, case, warm, httpserver):
    path = case(serve([1, 3, 4]), "{hold: P1D}")
    warm(path)
    assert warm(path, "--dry-run")[1]["files"][0]["status"] == "absent"
    assert len(list(path.parent.glob("cache/absent/*"))) == 1
    httpserver.clear()
    serve([1, 2, 3, 4])
    code, report = warm(path)
    assert (code, report["absent"], report["stood_in"]) == (0, 0, [])
    assert not list(path.parent.glob("cache/absent/*"))
    assert read(path, offline=True)[:4] == [[20, 21], [21, 22], [22, 23], [23, 30]]


def test_the_summary_and_the_list_say_which_files_are_absent(serve, case, capsys):
    path = case(serve([1, 3, 4]), "{hold: P1D}")
    assert main(["warm", str(path)]) == 0
    out = capsys.readouterr().out
    assert "[1/3] absent  " in out or "absent  http" in out
    assert "; 1 absent; " in out
    assert "wind: http" in out
    assert "02.nc does not exist; in its place: " in out
    assert out.endswith("offline ready: yes\n")
    assert main(["warm", str(path), "--dry-run"]) == 0
    listed = capsys.readouterr().out
    assert [line.split()[0] for line in listed.splitlines() if "/02.nc" in line] == ["absent"]
    assert main(["cache", "ls", "--root", str(path.parent / "cache")]) == 0
    assert "3 files" in capsys.readouterr().out
    assert main(["cache", "verify", "--root", str(path.parent / "cache")]) == 0


def test_local_files_need_no_note(case, warm, tmp_path):
    for day in (1, 3, 4):
        write(tmp_path / f"{day:02d}.nc", 24 * (day - 1), np.arange(4) + 10 * day)
    path = case("%d.nc", "{hold: P1D}")
    code, report = warm(path)
    assert (code, report["absent"], report["in_place"], report["offline_ready"]) == (0, 1, 2, True)
    assert read(path, offline=True)[:5] == [[13, 13]] * 4 + [[30, 31]]
    assert not (tmp_path / "cache").exists()


def test_check_looks_at_the_samples_that_a_gap_of_local_files_concerns(case, tmp_path, capsys):
    def check(missing):
        code = main(["check", str(case("%d.nc", missing)), "--json"])
        (wind,) = json.loads(capsys.readouterr().out)["sources"]
        return (
            code,
            wind["problems"],
            [text for text in wind["warnings"] if "in " in text and "samples" in text],
        )

    for day in (1, 3, 4):
        write(tmp_path / f"{day:02d}.nc", 24 * (day - 1), np.arange(4) + 10 * day)
    code, problems, (told,) = check("{hold: P1D}")
    assert (code, problems) == (0, [])
    assert "02.nc does not exist: in 4 samples, 2000-01-02 00:00:00" in told
    assert "2000-01-02 18:00:00" in told
    assert "01.nc stand in" in told
    code, (problem,), told = check("{hold: PT12H}")
    assert (code, told) == (1, [])
    assert "02.nc" in problem
    assert "epoch=2000-01-02 12:00:00" in problem
    assert "hold longer" in problem


def test_two_ranks_warm_what_stands_in_for_their_share(serve, case, warm, monkeypatch):
    path = case(serve([1, 3, 4]), "{hold: P1D}")
    reports = []
    for rank in ("1", "0"):
        monkeypatch.setenv("PMI_RANK", rank)
        monkeypatch.setenv("PMI_SIZE", "2")
        reports.append(warm(path))
    assert [code for code, _ in reports] == [0, 0]
    assert [len(report["stood_in"]) for _, report in reports] == [0, 1]
    assert read(path, offline=True)[0] == [13, 13]


# -- declared in YAML --------------------------------------------------------------------------------------


# spec: P6.1, P6.4
def test_what_stands_in_is_declared_in_yaml_and_written_back(case, tmp_path):
    path = case("%d.nc", "{hold: P1DT6H, source: other}", rest=STAND_INS.format(url="other/%d.nc", more=""))
    loaded = load_case(path)
    wind, other = loaded.sources["wind"], loaded.stand_ins["other"]
    assert list(loaded.sources) == ["wind"]
    assert list(loaded.providers(Cache(offline=True))) == ["wind"]
    assert wind.stand_in is other
    assert isinstance(wind.temporal, SourceTemporal)
    assert wind.temporal.missing.hold.isoformat() == "P1DT6H"
    assert other.url == str(tmp_path / "other" / "%d.nc")
    written = dump_sources(loaded.sources, tmp_path / "again.yaml")
    assert "hold: P1DT6H" in written
    assert load_sources(tmp_path / "again.yaml") == loaded.sources
    assert load_case(tmp_path / "again.yaml").stand_ins == loaded.stand_ins
    with pytest.raises(DeclarationError, match="two sources have the name 'other'"):
        dump_sources({"wind": wind, "other": wind})


# spec: P6.4
def test_a_member_may_stand_in_for_another(case):
    path = case("%d.nc", "{source: other}", rest=STAND_INS.format(url="other/%d.nc", more=""))
    text = path.read_text().replace("stand_ins:\n", "").replace("time: {", "\ntime: {")
    head, _, tail = text.partition("\ntime: {")
    rest, _, other = tail.partition("  other:")
    path.write_text(f"{head}  other:{other}time: {{{rest}")
    loaded = load_case(path)
    assert list(loaded.sources) == ["wind", "other"]
    assert loaded.sources["wind"].stand_in is loaded.sources["other"]


# spec: P6.2, P6.4
@pytest.mark.parametrize(
    ("missing", "more", "said", "key"),
    [
        ("{source: othr}", "", "no source 'othr'.*Did you mean 'other'", "wind.temporal.missing.source"),
        ("{hold: P1D, until: P2D}", "", "unknown key 'until'", "wind.temporal.missing.until"),
        ("{hold: soon}", "", "'soon'", "wind.temporal.missing"),
        ("{}", "", "`hold`", "wind.temporal.missing"),
        ("{hold: PT1H}", "", "less than one step", "wind.temporal"),
        ("{source: wind}", "", "'wind' would stand in for itself", "wind.temporal.missing.source"),
        ("{source: other}", ", missing: {source: wind}", "'wind' would", "other.temporal.missing.source"),
        ("{source: other}", ", calendar: noleap", "'other' can't stand in for 'wind'.*noleap", "wind"),
    ],
)
def test_a_wrong_declaration_names_line_and_key(case, missing, more, said, key):
    path = case("%d.nc", missing, rest=STAND_INS.format(url="other/%d.nc", more=more))
    with pytest.raises(DeclarationError, match=said) as caught:
        load_case(path)
    assert f".{key}]" in str(caught.value)
    assert "line=" in str(caught.value)


# spec: P6.4
def test_a_name_is_a_source_or_a_stand_in(case):
    path = case("%d.nc", "{hold: P1D}", rest=STAND_INS.format(url="x.nc", more="").replace("other:", "wind:"))
    with pytest.raises(DeclarationError, match=r"already.*stand_ins\.wind"):
        load_case(path)


def test_the_schema_knows_it():
    schema = json_schema()
    assert set(schema["$defs"]["MissingSettings"]["properties"]) == {"hold", "source"}
    assert "missing" in schema["$defs"]["TemporalSettings"]["properties"]
    assert "stand_ins" in schema["$defs"]["FileSettings"]["properties"]


def test_check_tells_of_a_missing_first_file_and_looks_at_what_stands_in(serve, case, capsys):
    other = serve([1, 2, 3, 4], folder="other", add=100)
    stand_ins = STAND_INS.format(url=other, more="")
    path = case(serve([1, 3, 4]), "{source: other}", rest=stand_ins)
    assert main(["check", str(path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    wind, standing = report["sources"][0], report["stand_ins"][0]
    assert (report["ok"], wind["ok"], standing["ok"]) == (True, True, True)
    assert any("02.nc does not exist" in text and "other/02.nc" in text for text in wind["warnings"])
    assert wind["fields"][0]["shape"] == [2, 3, 4]
    assert report["bytes_per_epoch"] == wind["bytes_per_epoch"]
    assert main(["check", str(path)]) == 0
    assert "1 source and 1 to stand in" in capsys.readouterr().out
    path = case(serve([3, 4], folder="gone"), "{hold: P1D}")
    assert main(["check", str(path), "--json"]) == 1
    problems = json.loads(capsys.readouterr().out)["sources"][0]["problems"]
    assert any("02.nc" in problem for problem in problems)


def test_inspect_shows_a_source_that_has_stand_ins(case, tmp_path, capsys):
    write(tmp_path / "01.nc", 0, np.arange(4))
    path = case("%d.nc", "{source: other}", rest=STAND_INS.format(url="other/%d.nc", more=""))
    assert main(["inspect", str(path)]) == 0
    assert "* u" in capsys.readouterr().out


def test_a_run_warns(serve, case):
    run = load_case(case(serve([1, 3, 4]), "{hold: P1D}"))
    with run.open_cache(offline=False) as cache, pytest.warns(EarthSciIOWarning, match=r"02\.nc does not"):
        Provider(run.sources["wind"], cache).sample_at(parse_time("2000-01-02"))
