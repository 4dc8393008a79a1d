"""Killed, or refused by the disk, at any moment: the next run completes, and nobody reads half a file."""

import errno
import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from earthsciio.cache import Cache, FilePeriod, cache_key, sha256_bytes, sha256_file
from earthsciio.cache.syscalls import SYS
from earthsciio.errors import CacheStoreError

HERE = Path(__file__).parent
CALLS = ("open", "write", "ftruncate", "fsync", "close", "replace", "unlink", "mkdir")


# -- kill -9 ---------------------------------------------------------------------------------------------


# spec: C2.1
@pytest.mark.parametrize("situation", ["download", "replace", "confirm"])
def test_kill_at_every_disk_call(tmp_path, situation):
    done = subprocess.run(
        [sys.executable, HERE / "crashing.py", tmp_path / "base", situation],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["faults"] == []
    for needed in ("open", "write", "fsync", "replace"):
        assert needed in report["calls"]


def start(root: Path, *urls: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, HERE / "fetching.py", root, *urls], stdout=subprocess.PIPE, text=True
    )


def test_eight_processes_download_each_url_once(tmp_path, server):
    urls = [server.serve(f"/{number}.nc", bytes([number]) * 200_000) for number in range(6)]
    children = [start(tmp_path / "cache", *urls) for _ in range(8)]
    answers = [
        json.loads(line) for child in children for line in child.communicate(timeout=100)[0].splitlines()
    ]
    assert [child.returncode for child in children] == [0] * 8
    assert len(answers) == 8 * len(urls)
    for number, url in enumerate(urls):
        mine = [answer for answer in answers if answer["url"] == url]
        assert {answer["sha256"] for answer in mine} == {sha256_bytes(bytes([number]) * 200_000)}
        assert sorted(answer["status"] for answer in mine) == ["downloaded"] + ["hit"] * 7
        assert len(server.asked(f"/{number}.nc")) == 1
    assert list((tmp_path / "cache/v1/tmp").iterdir()) == []


def test_a_holder_killed_half_way_is_replaced_at_once(tmp_path, server):
    data = os.urandom(500_000)
    url = server.serve("/a.nc", data)
    half, gate = threading.Event(), threading.Event()

    def stall(handler):
        handler.cut(250_000)
        half.set()
        gate.wait(60)
        return True

    server.faults["/a.nc"].append(stall)
    victim = start(tmp_path / "cache", url)
    try:
        assert half.wait(60)
        others = [start(tmp_path / "cache", url) for _ in range(3)]
        victim.kill()
        victim.communicate()
        answers = [json.loads(child.communicate(timeout=60)[0]) for child in others]
    finally:
        gate.set()
    assert {answer["sha256"] for answer in answers} == {sha256_bytes(data)}
    assert sorted(answer["status"] for answer in answers) == ["downloaded", "hit", "hit"]
    assert list((tmp_path / "cache/v1/tmp").iterdir()) == []
    assert [path.suffix for path in (tmp_path / "cache/v1/locks").iterdir()] == [".lock"]


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_kill_at_300_random_moments_of_warming(tmp_path, server):
    files = {f"/{number}.nc": os.urandom(2_000_000) for number in range(10)}
    urls = [server.serve(path, data) for path, data in files.items()]
    start(tmp_path / "cache", urls[0]).communicate(timeout=60)
    dice = random.Random(5)
    unfinished = 0
    for _ in range(300):
        child = start(tmp_path / "cache", *urls)
        child.stdout.readline()  # the first is a hit: imports are done, downloads begin
        time.sleep(dice.uniform(0.0, 0.3))
        child.kill()
        unfinished += len(child.communicate()[0].splitlines()) < len(urls) - 1
        stored = {path.stem: path for path in (tmp_path / "cache/v1/blobs").glob("*/*")}
        for blob in stored.values():
            assert blob.read_bytes() in files.values()
        assert len(list((tmp_path / "cache/v1/tmp").iterdir())) <= 1
        for url in dice.sample(urls[1:], 7):  # some to do again
            if blob := stored.get(cache_key(url)):
                blob.unlink()
    assert unfinished > 100
    last = start(tmp_path / "cache", *urls)
    answers = [json.loads(line) for line in last.communicate(timeout=120)[0].splitlines()]
    assert [answer["sha256"] for answer in answers] == [sha256_bytes(data) for data in files.values()]
    assert list((tmp_path / "cache/v1/tmp").iterdir()) == []


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_eight_processes_fifty_urls_from_a_slow_server(tmp_path, server):
    def slowly(handler):
        time.sleep(0.02)
        return False

    urls = [server.serve(f"/{number}.nc", os.urandom(500_000)) for number in range(50)]
    for number in range(50):
        server.faults[f"/{number}.nc"].append(slowly)
    children = [start(tmp_path / "cache", *urls) for _ in range(8)]
    answers = [
        json.loads(line) for child in children for line in child.communicate(timeout=500)[0].splitlines()
    ]
    assert len(answers) == 400
    assert len(server.requests) == 50
    for answer in answers:
        assert answer["sha256"] == sha256_bytes(server.files["/" + answer["url"].rpartition("/")[2]])


# -- a disk that refuses ---------------------------------------------------------------------------------


class Refusing:
    """Replaces the table's calls; the ``at``-th one (from 0) fails with ``code``, the rest work."""

    def __init__(self, monkeypatch, at: int = -1, code: int = errno.ENOSPC, *, torn: bool = False) -> None:
        self.made: list[str] = []
        for name in CALLS:
            monkeypatch.setattr(SYS, name, self._wrap(name, getattr(os, name), at, code, torn))

    def _wrap(self, name, real, at, code, torn):
        def call(*arguments):
            self.made.append(name)
            if len(self.made) - 1 == at:
                if torn and name == "write":
                    return real(arguments[0], arguments[1][: len(arguments[1]) // 2 or 1])
                raise OSError(code, os.strerror(code))
            return real(*arguments)

        return call


def fetch(base: Path):
    period = FilePeriod(end=None)
    return Cache(root=base / "cache", offline=False).fetch((base / "source.nc").as_uri(), temporal=period)


def offline(base: Path):
    return Cache(root=base / "cache", offline=True).fetch((base / "source.nc").as_uri())


def attempt(base: Path) -> CacheStoreError | None:
    try:
        fetch(base)
    except CacheStoreError as error:
        return error
    return None


def prepare(base: Path) -> bytes:
    """A cache with an entry that the next fetch replaces."""
    base.mkdir()
    (base / "source.nc").write_bytes(b"old")
    entry = fetch(base)
    meta = base / "cache/v1/meta" / f"{entry.key}.json"
    meta.write_text(meta.read_text().replace(entry.manifest.fetched_at, "2020-01-01T00:00:00Z"))
    new = b"new" * 600_000
    (base / "source.nc").write_bytes(new)
    return new


@pytest.fixture(scope="module")
def number_of_calls(tmp_path_factory) -> int:
    base = tmp_path_factory.mktemp("count") / "base"
    prepare(base)
    with pytest.MonkeyPatch.context() as patch:
        refusing = Refusing(patch)
        fetch(base)
        return len(refusing.made)


# spec: C2.1
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EACCES], ids=errno.errorcode.get)
def test_a_refusal_at_any_disk_call_leaves_a_good_cache(tmp_path, number_of_calls, code):
    refused = 0
    assert number_of_calls > 15
    for at in range(number_of_calls):
        base = tmp_path / str(at)
        new = prepare(base)
        with pytest.MonkeyPatch.context() as patch:
            Refusing(patch, at, code)
            refusal = attempt(base)
        if refusal is not None:
            refused += 1
            assert (refusal.errno, os.strerror(code) in str(refusal)) == (code, True)
        else:  # what failed was only tidying up
            assert offline(base).path.read_bytes() == new
        seen = offline(base)
        assert seen.path.read_bytes() in (b"old", new)
        assert seen.manifest.sha256_content in (None, sha256_file(seen.path))
        entry = fetch(base)
        assert entry.path.read_bytes() == new
        assert entry.manifest.sha256_content == sha256_file(entry.path)
        assert list((base / "cache/v1/tmp").iterdir()) == []
        (base / "other.nc").write_bytes(b"other")
        Cache(root=base / "cache", offline=False).fetch((base / "other.nc").as_uri())
        assert {path.suffix for path in (base / "cache/v1/locks").iterdir()} == {".lock"}
    assert refused > number_of_calls // 2


def test_a_write_that_takes_less_than_it_is_given_is_continued(tmp_path, number_of_calls):
    for at in range(number_of_calls):
        base = tmp_path / str(at)
        new = prepare(base)
        with pytest.MonkeyPatch.context() as patch:
            refusing = Refusing(patch, at, torn=True)
            refusal = attempt(base)
        if refusing.made[at] == "write":
            assert refusal is None
            assert offline(base).path.read_bytes() == new


def test_a_full_disk_is_told_with_its_errno_and_is_no_reason_to_try_mirrors(tmp_path, server, monkeypatch):
    url = server.serve("/a.nc", b"data")
    mirror = server.serve("/mirror.nc", b"data")

    def full(fd, data):
        if bytes(data[:1]) == b"{":
            return os.write(fd, data)  # the lock's note
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(SYS, "write", full)
    with (
        Cache(root=tmp_path, offline=False) as cache,
        pytest.raises(CacheStoreError, match="No space left") as caught,
    ):
        cache.fetch(url, mirrors=[mirror])
    assert caught.value.errno == errno.ENOSPC
    assert server.asked("/mirror.nc") == []
