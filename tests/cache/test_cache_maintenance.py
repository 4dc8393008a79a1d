"""Housekeeping: what is there, whether it is whole, making room; and the record of what a run used."""

import doctest
import importlib
import json
import os
import threading
from datetime import timedelta

import pytest

from earthsciio.cache import Cache, FilePeriod, LocalStore, cache_key, sha256_bytes
from earthsciio.cache.maintenance import items, prune, verify


@pytest.fixture
def cache(tmp_path) -> Cache:
    """Three files: ``a`` (10 bytes, fetched 2001), ``b`` (20, 2002), ``c`` (30, 2003, of another source)."""
    cache = Cache(root=tmp_path / "cache", offline=False)
    for number, (name, source) in enumerate([("a", "winds"), ("b", "winds"), ("c", "rain")], start=1):
        path = tmp_path / f"{name}.nc"
        path.write_bytes(name.encode() * 10 * number)
        entry = cache.fetch(path.as_uri(), source_loader=source)
        meta = cache.store.root / "v1/meta" / f"{entry.key}.json"
        meta.write_text(meta.read_text().replace(entry.manifest.fetched_at, f"200{number}-01-01T00:00:00Z"))
    return cache


def names(removed) -> list[str]:
    return [item.manifest.url.rpartition("/")[2] for item in removed]


def test_items_lists_every_blob(cache):
    found = sorted(items(cache.store), key=lambda item: item.fetched)
    assert names(found) == ["a.nc", "b.nc", "c.nc"]
    assert [item.size for item in found] == [10, 20, 30]
    assert [item.fetched.year for item in found] == [2001, 2002, 2003]
    assert list(items(LocalStore(cache.store.root / "nowhere"))) == []


def test_verify_tells_rot_from_unfinished_business(cache, tmp_path):
    assert list(verify(cache.store)) == []
    by_name = {names([item])[0]: item for item in items(cache.store)}
    by_name["a.nc"].path.write_bytes(b"x" * 10)
    by_name["b.nc"].path.write_bytes(b"x")
    by_name["c.nc"].path.unlink()
    (cache.store.root / "v1/blobs/ab").mkdir(exist_ok=True)
    orphan = "ab" * 32
    (cache.store.root / f"v1/blobs/ab/{orphan}.nc").write_bytes(b"orphan")
    found = {problem.key: problem for problem in verify(cache.store)}
    assert "digest" in found[by_name["a.nc"].key].what
    assert "1 bytes, where the manifest says 20" in found[by_name["b.nc"].key].what
    assert "without its blob" in found[by_name["c.nc"].key].what
    assert "without a readable manifest" in found[orphan].what
    assert {key: problem.serious for key, problem in found.items()} == {
        by_name["a.nc"].key: True,
        by_name["b.nc"].key: True,
        by_name["c.nc"].key: False,
        orphan: False,
    }


def test_verify_reports_what_leads_out_of_the_cache(cache, tmp_path):
    item = next(items(cache.store))
    item.path.unlink()
    item.path.symlink_to(tmp_path / "a.nc")
    assert ["symbolic link" in problem.what for problem in verify(cache.store)] == [True]


@pytest.mark.parametrize(
    ("criteria", "removed"),
    [
        ({}, []),
        ({"older_than": timedelta(days=1)}, ["a.nc", "b.nc", "c.nc"]),
        ({"older_than": timedelta(days=100_000)}, []),
        ({"max_bytes": 60}, []),
        ({"max_bytes": 59}, ["a.nc"]),
        ({"max_bytes": 30}, ["a.nc", "b.nc"]),
        ({"max_bytes": 0}, ["a.nc", "b.nc", "c.nc"]),
        ({"source": "winds"}, ["a.nc", "b.nc"]),
        ({"source": "rain", "max_bytes": 30}, ["c.nc"]),
        ({"source": "snow"}, []),
    ],
)
def test_prune_removes_the_oldest_by_its_criteria(cache, criteria, removed):
    assert names(prune(cache.store, **criteria, dry_run=True)) == removed
    assert len(list(items(cache.store))) == 3
    assert names(prune(cache.store, **criteria)) == removed
    assert len(list(items(cache.store))) == 3 - len(removed)
    assert list(verify(cache.store)) == []


def test_prune_leaves_alone_what_is_being_fetched(cache):
    item = min(items(cache.store), key=lambda item: item.fetched)
    inside, done = threading.Event(), threading.Event()

    def hold():
        with cache.store.claim(item.key):
            inside.set()
            done.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait(30)
    try:
        assert names(prune(cache.store, max_bytes=0)) == ["b.nc", "c.nc"]
    finally:
        done.set()
        thread.join()
    assert item.path.exists()


def test_prune_tidies_up_after_crashes(cache):
    root = cache.store.root
    key = cache_key("https://example.org/dead.nc")
    staging = "01234567-89ab-cdef-0123-456789abcdef.part"
    (root / "v1/tmp" / staging).write_bytes(b"half")
    note = {"host": "h", "pid": 1, "since": "2020-01-01T00:00:00Z", "staging": staging}
    (root / f"v1/locks/{key}.holder").write_text(json.dumps(note))
    (root / "v1/tmp/old.part").write_bytes(b"old")
    os.utime(root / "v1/tmp/old.part", (0, 0))
    (root / "v1/tmp/young.part").write_bytes(b"young")
    next(items(cache.store)).path.unlink()
    prune(cache.store)
    assert [path.name for path in (root / "v1/tmp").iterdir()] == ["young.part"]
    assert list((root / "v1/locks").glob("*.holder")) == []
    assert len(list((root / "v1/meta").iterdir())) == 2


def test_provenance_names_each_content_a_run_used(tmp_path):
    source = tmp_path / "a.nc"
    source.write_bytes(b"one")
    cache = Cache(root=tmp_path / "cache", offline=False)
    url = source.as_uri()
    cache.fetch(url)
    cache.fetch(url)
    cache.fetch(str(source))
    source.write_bytes(b"two")
    os.utime(source, (0, 0))
    entry = cache.fetch(url, temporal=FilePeriod(end=None), expected_checksum=sha256_bytes(b"two"))
    records = json.loads(json.dumps(cache.provenance()))
    assert [(record["url"], record["sha256_content"]) for record in records] == [
        (url, sha256_bytes(b"one")),
        (str(source), None),
        (url, sha256_bytes(b"two")),
    ]
    assert records[2]["key"] == cache_key(url)
    assert records[2]["fetched_at"] == entry.manifest.fetched_at


@pytest.mark.parametrize(
    "name",
    ["registry", "cache.keys", "cache.redact", "cache.auth", "cache.cache", "cache.transports.file"],
)
def test_docstring_examples_are_right(name):
    module = importlib.import_module(f"earthsciio.{name}")
    assert doctest.testmod(module).failed == 0
