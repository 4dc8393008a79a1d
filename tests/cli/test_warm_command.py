"""``earthsciio warm`` from the outside: what it prints, what it exits with, and what it leaves."""

from __future__ import annotations

import http.server
import json
import os
import re
import signal
import subprocess
import sys
import threading
from functools import partial

import netCDF4
import numpy as np
import pytest

from earthsciio.cache import cache_key, sha256_file
from earthsciio.cli import main
from earthsciio.cli.progress import Bar, Lines, Meter
from earthsciio.errors import SourceNotFound
from earthsciio.events import Receiving
from earthsciio.filelist import SourceFile
from earthsciio.warm import Warmed

DAYS = ["/u.20000101.nc", "/u.20000102.nc", "/u.20000103.nc"]


class Server(http.server.ThreadingHTTPServer):
    """Serves a folder; notes what was asked for, holds a file half sent, brings one when it is asked for."""

    daemon_threads = True

    def __init__(self, folder) -> None:
        super().__init__(("127.0.0.1", 0), partial(_Handler, directory=str(folder)))
        self.asked: list[str] = []
        self.held: str | None = None
        self.half, self.gate = threading.Event(), threading.Event()
        self.late: dict[str, tuple[int, object]] = {}

    def handle_error(self, request, client_address) -> None:
        pass  # clients that are killed are part of the tests


class _Handler(http.server.SimpleHTTPRequestHandler):
    server: Server

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.server.asked.append(path)
        if path == self.server.held:
            self.server.held = None
            self.send_response(200)
            self.send_header("Content-Length", "1000000")
            self.end_headers()
            self.wfile.write(b"x" * 1000)
            self.wfile.flush()
            self.server.half.set()
            self.server.gate.wait(60)
            return
        count, bring = self.server.late.get(path, (0, None))
        if count:
            self.server.late[path] = count - 1, bring
            self.send_error(404)
            if count == 1:
                bring()
            return
        super().do_GET()


@pytest.fixture(autouse=True)
def own_environment(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("EARTHSCI", "PMI", "OMPI", "SLURM", "PALS", "MV2")) or "proxy" in name.lower():
            monkeypatch.delenv(name)
    monkeypatch.setenv("NO_PROXY", "*")


def write_day(path, day: int) -> None:
    with netCDF4.Dataset(path, "w") as file:
        for dim, length in {"time": None, "lat": 3, "lon": 4}.items():
            file.createDimension(dim, length)
        time = file.createVariable("time", "f8", ("time",))
        time.units = f"hours since 2000-01-{day:02d}"
        time[:] = [0, 6, 12, 18]
        file.createVariable("u", "f4", ("time", "lat", "lon"))[:] = np.full((4, 3, 4), day)
        file.createVariable("mask", "i1", ("lat", "lon"))[:] = 1


@pytest.fixture
def served(tmp_path):
    folder = tmp_path / "served"
    folder.mkdir()
    for day in (1, 2, 3):
        write_day(folder / f"u.200001{day:02d}.nc", day)
        os.utime(folder / f"u.200001{day:02d}.nc", (1_000_000_000, 1_000_000_000))
    return folder


@pytest.fixture
def server(served):
    own = Server(served)
    thread = threading.Thread(target=own.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield own
    own.gate.set()
    own.shutdown()
    thread.join()
    own.server_close()


@pytest.fixture
def case(tmp_path, server):
    """Two days of brackets from the server, so that the third day's file is needed too; and a local mask."""
    write_day(tmp_path / "mask.nc", 1)
    path = tmp_path / "case.yaml"
    path.write_text(
        "sources:\n"
        "  wind:\n"
        "    format: netcdf\n"
        f"    url: http://127.0.0.1:{server.server_port}/u.%Y%m%d.nc\n"
        "    variables: [u]\n"
        "    temporal: {start: 2000-01-01, frequency: PT6H, file_period: P1D, end: 2000-01-04,\n"
        "               records_per_sample: 2}\n"
        "  mask: {format: netcdf, url: mask.nc, variables: [mask]}\n"
        "time: {end: 2000-01-03}\n"
        "cache: {root: cache}\n"
    )
    return path


@pytest.fixture
def warm(capsys, case):
    def warm(*options: str) -> tuple[int, dict]:
        code = main(["warm", str(case), "--json", *options])
        return code, json.loads(capsys.readouterr().out)

    return warm


@pytest.fixture
def refused(capsys, case):
    """Run what is refused with code 2; gives the line on stderr."""

    def refused(*options: str) -> str:
        assert main(["warm", str(case), *options]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        return err

    return refused


def edit(path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


# spec: C6.1, C6.5
def test_a_warmed_case_is_ready_and_a_second_run_only_hits(warm, server, served, tmp_path):
    code, report = warm()
    assert code == 0
    assert (report["files"], report["downloaded"], report["in_place"], report["hits"]) == (4, 3, 1, 0)
    assert (report["offline_ready"], report["problems"], report["failed"]) == (True, [], 0)
    sizes = sum(path.stat().st_size for path in served.iterdir())
    assert report["downloaded_bytes"] == sizes
    assert report["bytes"] == sizes + (tmp_path / "mask.nc").stat().st_size
    for each in report["files_warmed"]:
        assert each["key"] == (cache_key(each["url"]) if each["source"] == "wind" else None)
    code, again = warm("--verify")
    assert (code, again["hits"], again["downloaded"]) == (0, 3, 0)
    assert sorted(server.asked) == DAYS


def test_verify_fetches_rotten_files_again(warm, served, tmp_path):
    warm()
    (blob,) = (tmp_path / "cache").glob(f"v1/blobs/*/{_key(warm, '20000102')}.nc")
    size = blob.stat().st_size
    blob.write_bytes(b"r" * size)
    assert warm()[1]["downloaded"] == 0
    assert warm("--verify")[1]["downloaded"] == 1
    assert sha256_file(blob) == sha256_file(served / "u.20000102.nc")


def _key(warm, day: str) -> str:
    (found,) = [each["key"] for each in warm("--dry-run")[1]["files"] if day in each["url"]]
    return found


def test_a_dry_run_lists_the_files_and_touches_nothing(warm, case, server, tmp_path, capsys):
    code, report = warm("--dry-run")
    assert code == 0
    assert [each["status"] for each in report["files"]] == ["in place"] + ["to fetch"] * 3
    assert server.asked == []
    assert not (tmp_path / "cache").exists()
    warm("--end", "2000-01-01T06:00")
    assert main(["warm", str(case), "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()[1:-1]] == ["in", "cached", "to", "to"]
    assert "4 files, 2 to fetch" in out


# spec: C6.2, C6.5
def test_a_file_that_cannot_be_had_is_named_and_the_others_come(case, served, capsys):
    (served / "u.20000102.nc").unlink()
    assert main(["warm", str(case)]) == 1
    out = capsys.readouterr().out
    assert re.search(r"failed  http://\S+/u.20000102.nc: the server answered 404", out)
    assert len([line for line in out.splitlines() if "u.20000102.nc" in line]) == 1
    assert out.splitlines()[-1] == "offline ready: no"
    assert "2 downloaded" in out
    assert "1 failed" in out


# spec: C6.5
def test_a_window_outside_the_files_is_found_before_the_run_finds_it(warm):
    code, report = warm("--window", "lat=0:9")
    assert code == 1
    assert report["failed"] == 0
    assert {each["source"] for each in report["problems"]} == {"wind", "mask"}
    assert all("lat" in each["error"] for each in report["problems"])
    assert warm("--window", "lat=0:2", "--window", "lon=3,0")[0] == 0


# spec: C6.1
def test_time_and_sources_can_be_said(warm, case, server, capsys):
    assert warm("--start", "2000-01-02", "--end", "2000-01-02T06:00")[1]["downloaded"] == 1
    assert server.asked == ["/u.20000102.nc"]
    assert main(["warm", str(case), "mask", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [each["source"] for each in report["files_warmed"]] == ["mask"]


# spec: C6.1
def test_a_case_with_a_model_needs_files_where_all_its_sources_have_data(warm, case):
    edit(
        case,
        "  mask: {",
        "  rain: {format: netcdf, url: mask.nc, variables: [u],\n"
        "         temporal: {start: 2000-01-02, frequency: PT6H, end: 2000-01-02T12:00}}\n  mask: {",
    )
    edit(case, "time: {end: 2000-01-03}", "time: {end: 2000-01-02T12:00}")
    assert len(warm("--dry-run")[1]["files"]) == 3
    with case.open("a") as file:
        file.write("model: {name: tracer}\n")
    files = [each["url"].rpartition("/")[2] for each in warm("--dry-run")[1]["files"]]
    assert sorted(files) == ["mask.nc", "u.20000102.nc"]


def test_what_makes_no_sense_is_refused_in_one_line(refused, case):
    assert "there is no source 'wnd'" in refused("wnd")
    late = refused("--start", "2001-01-01", "--end", "2001-01-02")
    assert "no data any more at this time" in late
    assert "source=wind" in late
    assert "no data are declared for that time: wind" in refused("--end", "1999-01-01")
    assert "--jobs" in refused("--jobs", "0")
    assert "'soon' is no time" in refused("--start", "soon")
    assert "no such list" in refused("--checksums", str(case.with_name("none")))
    edit(case, ", end: 2000-01-04", "")
    edit(case, "time: {end: 2000-01-03}\n", "")
    assert "--end" in refused()


@pytest.mark.parametrize(
    "options", [("--wait", "soon"), ("--window", "lat"), ("--window", "lat=a:b"), ("--jobs", "x")]
)
def test_arguments_of_the_wrong_form_say_which(case, capsys, options):
    with pytest.raises(SystemExit) as caught:
        main(["warm", str(case), *options])
    assert caught.value.code == 2
    assert f"argument {options[0]}" in capsys.readouterr().err


def test_a_list_of_checksums_is_kept_to(warm, served, tmp_path):
    right = {day: sha256_file(served / day[1:]) for day in DAYS}
    listed = tmp_path / "SHA256SUMS"
    listed.write_text("# days\n" + "".join(f"{digest}  .{day}\n" for day, digest in right.items()))
    edit(listed, "  ./", "  ")
    assert warm("--checksums", str(listed))[0] == 0
    edit(listed, right[DAYS[1]], "0" * 64)
    code, report = warm("--checksums", str(listed))
    assert (code, report["failed"], report["hits"]) == (1, 1, 2)
    (failed,) = [each for each in report["files_warmed"] if each["error"]]
    assert failed["url"].endswith("u.20000102.nc")
    assert "declared checksum" in failed["error"]


# spec: C6.3
def test_wait_waits_for_files_that_have_not_appeared(case, server, served, capsys):
    (served / "u.20000103.nc").rename(served / "hidden")
    bring = partial((served / "hidden").rename, served / "u.20000103.nc")
    server.late = {"/u.20000103.nc": (3, bring)}
    assert main(["warm", str(case), "--wait", "1h", "--poll", "0.001s", "--settle", "0"]) == 0
    out = capsys.readouterr().out
    assert len(re.findall(r"waiting for http://\S+/u.20000103.nc", out)) == 1
    assert "3 downloaded" in out
    assert server.asked.count("/u.20000103.nc") == 4


# spec: C6.2
def test_ctrl_c_ends_with_130_and_the_next_run_goes_on(case, server, tmp_path):
    server.held = "/u.20000102.nc"
    command = [sys.executable, "-m", "earthsciio", "warm", str(case), "--jobs", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert server.half.wait(60)
        child.send_signal(signal.SIGINT)
        server.gate.set()  # the transfer breaks off, and its thread sees the abort
        out, err = child.communicate(timeout=60)
    assert child.returncode == 130, err
    assert "Traceback" not in err
    assert "interrupted: 2 of 4 files are done; run it again to go on" in err
    assert "offline ready" not in out
    assert list((tmp_path / "cache/v1/tmp").iterdir()) == []
    assert main(["cache", "verify", "--root", str(tmp_path / "cache")]) == 0
    assert main(["warm", str(case)]) == 0
    assert server.asked.count("/u.20000101.nc") == 1


def test_a_warmer_that_is_killed_is_resumed(case, server, tmp_path):
    server.held = "/u.20000102.nc"
    command = [sys.executable, "-m", "earthsciio", "warm", str(case), "--jobs", "1"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as child:
        assert server.half.wait(60)
        child.kill()
        child.wait(60)
    server.gate.set()
    assert main(["warm", str(case)]) == 0
    assert server.asked.count("/u.20000101.nc") == 1
    assert list((tmp_path / "cache/v1/tmp").iterdir()) == []
    assert [path.suffix for path in (tmp_path / "cache/v1/locks").iterdir()] == [".lock"] * 3


# spec: C6.5
def test_offline_the_warmer_only_says_whether_all_is_there(warm, server, monkeypatch):
    monkeypatch.setenv("EARTHSCI_OFFLINE", "1")
    code, report = warm()
    assert (code, report["failed"], report["offline_ready"]) == (1, 3, False)
    assert server.asked == []
    monkeypatch.delenv("EARTHSCI_OFFLINE")
    warm()
    monkeypatch.setenv("EARTHSCI_OFFLINE", "1")
    assert warm()[0] == 0


def test_no_credential_of_a_url_is_shown(case, server, capsys):
    edit(case, "u.%Y%m%d.nc", "u.%Y%m%d.nc?token=s3cret")
    edit(case, "http://", "http://me:pa55@")
    for options in ([], ["--json"], ["--dry-run"], ["--dry-run", "--json"]):
        main(["warm", str(case), *options])
        out, err = capsys.readouterr()
        assert "REDACTED" in out
        assert not re.search("s3cret|pa55", out + err)


# spec: C6.2
def test_ranks_share_the_files(warm, server, monkeypatch):
    monkeypatch.setenv("PMI_SIZE", "3")
    seen = []
    for rank in range(3):
        monkeypatch.setenv("PMI_RANK", str(rank))
        code, report = warm()
        assert (code, report["rank"], report["ranks"], report["offline_ready"]) == (0, rank, 3, True)
        seen += [each["url"] for each in report["files_warmed"]]
    assert len(seen) == len(set(seen)) == 4
    assert sorted(server.asked) == DAYS


# spec: C6.2
@pytest.mark.mpiexec
def test_under_mpiexec_each_file_is_fetched_once_and_each_rank_reports(mpirun, case, server):
    done = mpirun(2, "earthsciio", "warm", case)
    assert done.returncode == 0, done.stderr
    assert sorted(server.asked) == DAYS
    for rank in (0, 1):
        assert f"rank {rank} of 2: offline ready: yes" in done.stdout


# -- what is shown -----------------------------------------------------------------------------------------


def test_a_terminal_gets_a_bar_on_stderr_and_a_log_gets_a_line_per_file(case, capsys, monkeypatch):
    assert main(["warm", str(case)]) == 0
    out, err = capsys.readouterr()
    assert [line[:5] for line in out.splitlines()[:4]] == [f"[{n}/4]" for n in (1, 2, 3, 4)]
    assert err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["warm", str(case)]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0].startswith("4 files, ")
    assert "files" in err


def test_rate_and_eta_count_bytes_on_their_way_and_files_to_come():
    now = [0.0]
    meter = Meter(4, clock=lambda: now[0])
    assert (meter.rate, meter.eta) == (None, None)

    def receive(url, nbytes):
        meter(Receiving(url=url, nbytes=nbytes))

    def finish(url, status, nbytes):
        meter.finished(Warmed(SourceFile(source="s", url=url), status, nbytes))

    receive("a", 0)
    now[0] = 2.0
    receive("a", 100)
    assert (meter.rate, meter.eta) == (50.0, None)
    finish("a", "downloaded", 100)
    assert meter.eta == 6.0  # three files of 100 bytes at 50 a second
    receive("b", 50)
    now[0] = 3.0
    assert (meter.received, meter.rate, meter.eta) == (150, 50.0, 5.0)
    receive("b", 10)  # it had to start again
    assert meter.received == 150
    finish("c", "hit", 100)
    assert meter.left == 2


def test_what_fails_or_is_waited_for_stands_above_the_bar(capsys):
    file = SourceFile(source="s", url="http://h/[bold]a.nc?key=s3cret")
    for kind in (Bar, Lines):
        show = kind(Meter(2))
        with show.shown():
            show.waiting(file)
            show.done(Warmed(file, "failed", error=SourceNotFound("no such file", file="a")))
            show.done(Warmed(file, "hit", 7))
        out, err = capsys.readouterr()
        text = err if kind is Bar else out
        assert "waiting for http://h/[bold]a.nc?key=REDACTED" in text
        assert "failed  http://h/[bold]a.nc?key=REDACTED: no such file" in text.replace("\n", " ")
        assert "s3cret" not in out + err
