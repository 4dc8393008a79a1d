"""Locks: the dead don't hold them, those who wait are told by whom, and where flock is no lock a lease is."""

import contextlib
import errno
import fcntl
import json
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import earthsciio.cache.locks as locks_module
from earthsciio.cache import Cache, LocalStore, cache_key
from earthsciio.cache.locks import Holder, hold, probe_lock_kind
from earthsciio.errors import CacheStoreError, Cancelled

KEY = cache_key("https://example.org/a.nc")


@pytest.fixture
def places(tmp_path) -> tuple[str, str]:
    for name in ("locks", "tmp"):
        (tmp_path / name).mkdir()
    return str(tmp_path / "locks"), str(tmp_path / "tmp")


def names(directory: str) -> list[str]:
    return [path.name for path in Path(directory).iterdir()]


@pytest.fixture
def short_lease(monkeypatch):
    monkeypatch.setattr(locks_module, "LEASE_SECONDS", 0.6)


# spec: C3.1
@pytest.mark.parametrize("kind", ["flock", "lease"])
def test_one_at_a_time(places, kind):
    inside = []
    most = []

    def work():
        for _ in range(3):
            with hold(*places, KEY, kind=kind, timeout=60):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert most == [1] * 12


# spec: C1.8, C3.3
@pytest.mark.parametrize("kind", ["flock", "lease"])
def test_waiting_says_whose_lock_it_is_and_ends(places, kind):
    with (
        hold(*places, KEY, kind=kind, timeout=5),
        pytest.raises(
            CacheStoreError, match=rf"held by process {os.getpid()} on .*, since 2\d\d\d-"
        ) as caught,
    ):
        in_thread(lambda: hold(*places, KEY, kind=kind, timeout=0.3))
    assert isinstance(caught.value, OSError)


def in_thread(make) -> None:
    """Enter and leave a context in another thread; raises what it raised."""
    caught: list[BaseException] = []

    def work():
        try:
            with make():
                pass
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    if caught:
        raise caught[0]


# spec: C3.3
def test_long_waiting_is_logged_with_the_holder(places, monkeypatch, caplog):
    monkeypatch.setattr(locks_module, "_REPORT_AFTER_SECONDS", 0.0)
    caplog.set_level(logging.INFO, "earthsciio.cache")
    with hold(*places, KEY, kind="flock", timeout=5), contextlib.suppress(CacheStoreError):
        in_thread(lambda: hold(*places, KEY, kind="flock", timeout=0.5))
    assert f"which process {os.getpid()} on" in caplog.text


def test_a_wait_can_be_aborted(places):
    class Abort:
        def check(self):
            raise Cancelled("no longer wanted")

    with hold(*places, KEY, kind="flock", timeout=5), pytest.raises(Cancelled):
        in_thread(lambda: hold(*places, KEY, kind="flock", timeout=60, abort=Abort()))


# spec: C3.2
@pytest.mark.parametrize("kind", ["flock", "lease"])
def test_a_killed_holder_blocks_nobody_and_its_staging_file_is_removed(places, kind, short_lease):
    code = (
        "import sys, os, signal\n"
        "import earthsciio.cache.locks as locks\n"
        "locks.LEASE_SECONDS = 0.6\n"
        f"with locks.hold(*sys.argv[1:3], {KEY!r}, kind={kind!r}, timeout=5) as held:\n"
        "    open(held.staging, 'w').write('half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code, *places], check=False, timeout=60)
    assert len(names(places[1])) == 1
    with hold(*places, KEY, kind=kind, timeout=20):
        assert names(places[1]) == []
    assert [name for name in names(places[0]) if not name.endswith(".lock")] == []


# spec: C3.2
def test_a_holder_whose_lease_was_taken_over_may_not_commit(places, short_lease):
    with hold(*places, KEY, kind="lease", timeout=5) as held:
        assert held.is_ours()
        note = Path(places[0]) / f"{KEY}.holder"
        document = json.loads(note.read_text())
        document["staging"] = "01234567-89ab-cdef-0123-456789abcdef.part"  # somebody else's by now
        note.write_text(json.dumps(document))
        with pytest.raises(CacheStoreError, match="took over"):
            held.check()
    assert note.exists()  # not ours to remove


# spec: C1.8
@pytest.mark.parametrize("staging", ["../../etc/passwd", "/etc/passwd", "x.part", ""])
def test_a_note_can_name_no_file_but_a_staging_file(places, staging):
    with pytest.raises(ValueError, match="staging file"):
        Holder(host="h", pid=1, since="now", staging=staging)
    victim = Path(places[0]).parent / "victim"
    victim.write_text("precious")
    (Path(places[0]) / f"{KEY}.holder").write_text(
        json.dumps({"host": "h", "pid": 1, "since": "", "staging": "../victim"})
    )
    with hold(*places, KEY, kind="flock", timeout=5):
        pass
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}'])
def test_a_torn_note_is_no_obstacle(places, text):
    (Path(places[0]) / f"{KEY}.holder").write_text(text)
    with hold(*places, KEY, kind="flock", timeout=5):
        pass


# -- where flock is no lock ------------------------------------------------------------------------------


def test_the_probe_believes_a_refusal_only(places, monkeypatch):
    assert probe_lock_kind(places[0] + "/x.lock") == "flock"
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    assert probe_lock_kind(places[0] + "/x.lock") == "lease"
    for code in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL):

        def failing(*_, code=code):
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(fcntl, "flock", failing)
        assert probe_lock_kind(places[0] + "/x.lock") == "lease"
    assert names(places[0]) == ["x.lock"]


# spec: C3.1
def test_a_cache_on_a_file_system_without_flock_downloads_once(tmp_path, monkeypatch, server):
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    url = server.serve("/a.nc", b"data" * 1000)
    with Cache(root=tmp_path / "cache", offline=False) as cache:
        assert cache.store.lock_kind(KEY) == "lease"
        threads = [threading.Thread(target=cache.fetch, args=(url,)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert cache.fetch(url).status == "hit"
    assert len(server.requests) == 1
    assert {path.suffix for path in (tmp_path / "cache/v1/locks").iterdir()} == {".lock"}
    assert list((tmp_path / "cache/v1/tmp").iterdir()) == []


def test_the_lock_kind_can_be_said(tmp_path):
    assert LocalStore(tmp_path, lock_kind="lease").lock_kind(KEY) == "lease"
    assert LocalStore(tmp_path).lock_kind(KEY) == "flock"
