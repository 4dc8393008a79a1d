"""The warmer: what is listed, fetched, waited for and given up, and what offline will make of it."""

from __future__ import annotations

import os
import threading
from email.utils import formatdate
from pathlib import Path

import netCDF4
import pytest

from earthsciio import DataSource, Provider, SourceTemporal
from earthsciio.cache import Cache, FilePeriod, cache_key, sha256_bytes
from earthsciio.errors import CacheMiss, DeclarationError, FetchError, IntegrityError, SourceNotFound
from earthsciio.events import Event, Receiving
from earthsciio.filelist import SourceFile, merge
from earthsciio.warm import Patience, launched_as, offline_faults, warm

SOON = Patience(wait=60, poll=0.001, settle=0.001)


@pytest.fixture
def cache(tmp_path) -> Cache:
    return Cache(root=tmp_path / "cache", offline=False)


def series(url: str, **temporal) -> DataSource:
    given = {"start": "2000-01-01", "frequency": "PT6H", "file_period": "P1D", "end": "2000-01-04"}
    return DataSource("wind", "netcdf", url, ("u",), SourceTemporal(**{**given, **temporal}))


def listed(source: DataSource, *window: str | None) -> list[str]:
    files = Provider(source, Cache(offline=True)).files(window or None)
    return [file.url.rpartition("/")[2] for file in files]


def write(path: Path, day: int, size: int = 4) -> bytes:
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        file.createDimension("x", size)
        time = file.createVariable("time", "f8", ("time",))
        time.units = f"hours since 2000-01-{day:02d}"
        time[:] = [0, 6, 12, 18]
        file.createVariable("u", "f4", ("time", "x"))[:] = day
    return path.read_bytes()


# -- what is listed ----------------------------------------------------------------------------------------


# spec: C6.1
def test_files_are_those_behind_the_samples_of_a_time_and_the_successor_of_the_last():
    url = "https://example.org/%Y%m%d.nc"
    assert listed(series(url)) == ["20000101.nc", "20000102.nc", "20000103.nc"]
    assert listed(series(url), "2000-01-02", "2000-01-03") == ["20000102.nc"]
    # in force at the start is the anchor of 18 h of the day before
    assert listed(series(url, start="1999-12-31T18:00"), "2000-01-02", "2000-01-02T06:00") == ["20000101.nc"]
    pairs = series(url, records_per_sample=2)
    assert listed(pairs, "2000-01-02", "2000-01-03") == ["20000102.nc", "20000103.nc"]
    assert listed(pairs, "2000-01-02", "2000-01-02T18:00") == ["20000102.nc"]
    cycle = series(url, start="2000-01-01", end="2001-01-01", file_period="P1M", outside="cycle")
    assert listed(cycle, "2010-12-31", "2011-01-02") == ["20001201.nc", "20000101.nc"]
    assert listed(DataSource("mask", "netcdf", "https://example.org/mask.nc")) == ["mask.nc"]


# spec: C6.1
def test_an_irregular_series_lists_all_its_files_and_opens_none():
    source = series("https://example.invalid/%Y%m%d.nc", frequency="records")
    assert listed(source, "2000-01-02", "2000-01-03") == ["20000101.nc", "20000102.nc", "20000103.nc"]


def test_a_file_says_all_the_cache_needs():
    source = DataSource(
        "wind", "netcdf", "https://example.org/%Y%m%d.nc", (), series("x").temporal,
        mirrors=("https://mirror.org/%Y%m%d.nc",), auth_realm="portal",
    )  # fmt: skip
    file = Provider(source, Cache(offline=True)).files(("2000-01-02", "2000-01-03"))[0]
    assert (file.source, file.url) == ("wind", "https://example.org/20000102.nc")
    assert (file.mirrors, file.auth_realm) == (("https://mirror.org/20000102.nc",), "portal")
    assert str(file.period.end) == "2000-01-03 00:00:00+00:00"
    assert not file.in_place
    assert SourceFile(source="s", url="/data/a.nc").in_place


def test_merged_lists_have_each_url_once_constants_first_and_the_period_of_whoever_has_one():
    period = FilePeriod("2000-01-02")
    late, early = (SourceFile(source="a", url=str(n), start=n, period=period) for n in (2, 1))
    const, same = (SourceFile(source="b", url=url) for url in ("mask", "1"))
    assert merge([late, same, early, const]) == [const, early, late]


# -- what is fetched ---------------------------------------------------------------------------------------


def files_of(urls: list[str], **about) -> list[SourceFile]:
    return [SourceFile(source="wind", url=url, **about) for url in urls]


# spec: C6.2
def test_files_come_in_parallel_and_a_second_run_only_hits(server, cache):
    urls = [server.serve(f"/{n}.nc", bytes([n]) * 1000) for n in range(12)]
    told = []
    results = warm(files_of(urls), cache, jobs=3, done=told.append)
    assert [(each.file.url, each.status, each.nbytes) for each in results] == [
        (url, "downloaded", 1000) for url in urls
    ]
    assert sorted(each.file.url for each in told) == sorted(urls)
    assert {each.status for each in warm(files_of(urls), cache)} == {"hit"}
    assert len(server.requests) == 12


# spec: C6.2
def test_jobs_are_files_in_flight(server, cache):
    inside, three, gate = threading.Semaphore(0), threading.Event(), threading.Event()

    def hold(handler):
        inside.release()
        gate.wait(60)
        return False

    urls = [server.serve(f"/{n}.nc", b"x") for n in range(6)]
    for n in range(6):
        server.faults[f"/{n}.nc"].append(hold)
    run = threading.Thread(target=lambda: warm(files_of(urls), cache, jobs=3))
    run.start()
    try:
        for _ in range(3):
            assert inside.acquire(timeout=60)
        three.set()
        assert len(server.requests) == 3
    finally:
        gate.set()
        run.join()
    assert len(server.requests) == 6


# spec: C6.2
def test_a_file_that_cannot_be_had_stops_no_other(server, cache, tmp_path):
    urls = [server.serve("/a.nc", b"a"), server.url("/none.nc"), server.serve("/b.nc", b"b")]
    results = warm(files_of([*urls, str(tmp_path / "none.nc")]), cache, jobs=1)
    assert [each.status for each in results] == ["downloaded", "failed", "downloaded", "failed"]
    assert isinstance(results[1].error, SourceNotFound)
    assert isinstance(results[3].error, FileNotFoundError)


def test_local_files_are_looked_at_where_they_are(cache, tmp_path):
    (tmp_path / "a.nc").write_bytes(b"abc")
    (result,) = warm(files_of([str(tmp_path / "a.nc")]), cache)
    assert (result.status, result.nbytes) == ("in_place", 3)
    assert not (tmp_path / "cache").exists()


def test_declared_checksums_are_those_of_local_files_too(cache, tmp_path):
    (tmp_path / "a.nc").write_bytes(b"abc")
    right, wrong = sha256_bytes(b"abc"), sha256_bytes(b"other")
    path = str(tmp_path / "a.nc")
    assert warm(files_of([path], checksum=right), cache)[0].status == "in_place"
    assert isinstance(warm(files_of([path], checksum=wrong), cache)[0].error, IntegrityError)


def test_an_error_that_is_not_the_library_s_is_raised(server, cache):
    def broken(_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        warm(files_of([server.serve(f"/{n}.nc", b"x") for n in range(4)]), cache, done=broken)


def test_listeners_hear_of_bytes_as_they_come(server, tmp_path):
    events: list[Event] = []
    data = os.urandom(3_000_000)
    with Cache(root=tmp_path, offline=False, listeners=[events.append]) as cache:
        cache.fetch(server.serve("/a.nc", data))
    came = [event.nbytes for event in events if isinstance(event, Receiving)]
    assert came == sorted(came)
    assert came[-1] == len(data)


# -- what is waited for ------------------------------------------------------------------------------------


# spec: C6.3
def test_a_file_that_has_not_appeared_is_waited_for_and_holds_no_other_up(server, cache):
    asked = []

    def not_yet(handler):
        asked.append(1)
        if len(asked) == 3:
            server.serve("/late.nc", b"late")
        return handler.answer(404)

    server.faults["/late.nc"].extend([not_yet] * 3)
    urls = [server.url("/late.nc"), server.serve("/there.nc", b"there")]
    waits, told = [], []
    results = warm(files_of(urls), cache, jobs=1, patience=SOON, waiting=waits.append, done=told.append)
    assert [each.status for each in results] == ["downloaded", "downloaded"]
    assert [file.url for file in waits] == [urls[0]]
    assert [each.file.url for each in told] == urls[::-1]


# spec: C6.3
def test_waiting_ends_and_says_what_is_missing(server, cache):
    (result,) = warm(files_of([server.url("/never.nc")]), cache, patience=Patience(wait=0, poll=1))
    assert isinstance(result.error, SourceNotFound)
    refused = server.serve("/secret.nc", b"x")
    server.faults["/secret.nc"].append(lambda handler: handler.answer(403))
    (result,) = warm(files_of([refused]), cache, patience=SOON)  # no reason to wait
    assert result.status == "failed"


# spec: C6.4
def test_a_file_that_grows_while_it_is_fetched_is_never_committed(server, cache, tmp_path):
    versions = [b"half", b"half and more", b"half and more, whole"]
    blobs = []

    def grows(number):
        def answer(handler):
            blobs.extend((tmp_path / "cache/v1/blobs").glob("*/*"))
            tag = f'"v{number}"'
            if handler.headers.get("If-None-Match") == tag:
                return handler.answer(304, {"ETag": tag})
            stamp = {"ETag": tag, "Last-Modified": formatdate(usegmt=True)}
            return handler.answer(200, stamp, versions[number])

        return answer

    # fetched, and already larger when asked again; fetched anew, and larger again; fetched, and confirmed
    server.faults["/a.nc"].extend(map(grows, [0, 1, 1, 2, 2, 2]))
    (result,) = warm(files_of([server.url("/a.nc")]), cache, patience=SOON)
    assert (result.status, blobs, len(server.requests)) == ("downloaded", [], 6)
    assert cache.lookup(result.file.url).path.read_bytes() == versions[2]


# spec: C6.4
def test_without_validators_the_bytes_are_compared(server, cache):
    def plain(data):
        return lambda handler: handler.answer(200, {}, data)

    server.faults["/a.nc"].extend(map(plain, [b"a", b"ab", b"ab", b"ab"]))
    (result,) = warm(files_of([server.url("/a.nc")]), cache, patience=SOON)
    assert (result.status, len(server.requests)) == ("downloaded", 4)
    assert cache.lookup(result.file.url).path.read_bytes() == b"ab"


# spec: C6.4
def test_an_old_file_and_one_of_a_declared_checksum_are_taken_at_once(server, cache):
    old = server.serve("/old.nc", b"old")  # last modified in 2023
    server.faults["/new.nc"].append(lambda handler: handler.answer(200, {}, b"new"))
    files = [
        *files_of([old]),
        *files_of([server.url("/new.nc")], checksum=sha256_bytes(b"new")),
    ]
    assert [each.status for each in warm(files, cache, patience=SOON)] == ["downloaded"] * 2
    assert len(server.requests) == 2


# spec: C6.4
def test_bytes_that_do_not_have_the_declared_checksum_yet_are_waited_for(server, cache):
    server.serve("/a.nc", b"whole")
    server.faults["/a.nc"].append(lambda handler: handler.answer(200, {}, b"wh"))
    file = files_of([server.url("/a.nc")], checksum=sha256_bytes(b"whole"))
    assert warm(file, cache, patience=SOON)[0].status == "downloaded"
    assert isinstance(
        warm(files_of([server.url("/a.nc")], checksum=sha256_bytes(b"x")), cache)[0].error, IntegrityError
    )


# spec: C6.4
def test_a_local_file_is_there_once_two_looks_agree(cache, tmp_path, monkeypatch):
    path = tmp_path / "a.nc"
    path.write_bytes(b"a")
    looks = []
    real = Path.stat

    def grows(self, **options):
        if self == path:
            looks.append(1)
            if len(looks) == 4:
                path.write_bytes(b"a longer one")
        return real(self, **options)

    monkeypatch.setattr(Path, "stat", grows)
    (result,) = warm(files_of([str(path)]), cache, patience=SOON)
    assert (result.status, result.nbytes) == ("in_place", 12)
    assert len(looks) == 6  # two per attempt: seen, grown, and the same again
    looks.clear()
    os.utime(path, (0, 0))
    warm(files_of([str(path)]), cache, patience=SOON)
    assert len(looks) <= 2 + 2


def test_patience_is_checked():
    for wrong in ({"wait": -1}, {"wait": 1, "poll": 0}, {"wait": 1, "settle": -1}):
        with pytest.raises(ValueError, match="waiting takes"):
            Patience(**wrong)
    with pytest.raises(ValueError, match="at least one job"):
        warm([], Cache(offline=True), jobs=0)


# -- offline, and ranks ------------------------------------------------------------------------------------


# spec: C6.5
def test_offline_faults_are_what_a_run_without_network_would_raise(server, cache, tmp_path):
    url = server.url("/%Y%m%d.nc")
    for day in (1, 2, 3):
        server.serve(f"/200001{day:02d}.nc", write(tmp_path / "x.nc", day))
    source = series(url)
    files = Provider(source, cache).files()
    assert {type(error) for error in offline_faults(source, files, cache).values()} == {CacheMiss}
    asked = len(server.requests)
    warm(files[:2], cache)
    assert list(offline_faults(source, files, cache)) == [files[2].url]
    warm(files, cache)
    assert offline_faults(source, files, cache) == {}
    assert list(offline_faults(source, files, cache, {"dims": {"x": {"slice": [0, 9]}}})) == [
        file.url for file in files
    ]
    cache.lookup(files[0].url).path.write_bytes(b"no file of that format")
    faults = offline_faults(source, files, cache)
    assert list(faults) == [files[0].url]
    assert isinstance(faults[files[0].url], OSError)
    assert len(server.requests) == asked + 3
    assert cache.offline is False


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, (0, 1)),
        ({"PMI_RANK": "2", "PMI_SIZE": "4"}, (2, 4)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3", "PMIX_RANK": "1"}, (1, 3)),
        ({"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8"}, (5, 8)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "64"}, (0, 1)),  # a batch script, which runs alone
        ({"PMI_RANK": "4", "PMI_SIZE": "4"}, (0, 1)),
        ({"PMI_RANK": "x", "PMI_SIZE": "4"}, (0, 1)),
    ],
)
def test_ranks_are_known_by_the_launcher_s_environment(environ, expected):
    assert launched_as(environ) == expected


# -- provenance --------------------------------------------------------------------------------------------


# spec: C6.6
def test_provenance_has_files_read_in_place_with_size_time_and_digest(tmp_path, cache):
    data = write(tmp_path / "20000101.nc", 1)
    os.utime(tmp_path / "20000101.nc", (1_000_000_000, 1_000_000_000))
    provider = Provider(series(str(tmp_path / "%Y%m%d.nc")), cache)
    first = provider.refresh_times()[0]
    provider.sample_at(first)
    provider.sample_at(first)
    path = str(tmp_path / "20000101.nc")
    expected = {
        "source": "wind",
        "url": path,
        "key": cache_key(path),
        "sha256_content": None,
        "bytes": len(data),
        "fetched_at": None,
        "modified": "2001-09-09T01:46:40.000000Z",
        "stand_ins": [],
    }
    assert cache.provenance() == [expected]
    assert cache.provenance(digest=True) == [{**expected, "sha256_content": sha256_bytes(data)}]
    (tmp_path / "20000101.nc").write_bytes(b"replaced")
    assert cache.provenance(digest=True) == [expected]
    (tmp_path / "20000101.nc").unlink()
    assert cache.provenance(digest=True) == [expected]


# spec: C6.6
def test_provenance_of_fetched_files_is_complete(server, cache):
    url = server.serve("/a.nc", b"bytes")
    entry = cache.fetch(url, source_loader="wind")
    assert cache.provenance() == [
        {
            "source": "wind",
            "url": url,
            "key": cache_key(url),
            "sha256_content": sha256_bytes(b"bytes"),
            "bytes": 5,
            "fetched_at": entry.manifest.fetched_at,
            "modified": None,
            "stand_ins": [],
        }
    ]
    assert cache.without_network().provenance() == []


def test_a_case_without_end_is_refused_with_what_to_do(tmp_path):
    with pytest.raises(DeclarationError, match="end"):
        Provider(series("https://example.org/x.nc", end=None), Cache(offline=True)).files()


def test_a_directory_store_on_the_network_is_refused_when_it_is_listed():
    source = DataSource("rain", "zarr", "https://example.org/rain.zarr")
    with pytest.raises(NotImplementedError, match="many objects"):
        Provider(source, Cache(offline=True)).files()
    assert issubclass(SourceNotFound, FetchError)
