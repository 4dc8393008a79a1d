"""Format v1: what we write has exactly the documented files and fields, and what others wrote is read."""

import hashlib
import json
import os
import pickle
import re
from pathlib import Path

import pytest

from earthsciio.cache import (
    Cache,
    LocalStore,
    Manifest,
    cache_key,
    range_keyed_url,
    sha256_bytes,
    sha256_file,
)
from earthsciio.cache.keys import parse_checksum, split_range, url_extension
from earthsciio.errors import CacheStoreError, DeclarationError

DOCUMENTED = [
    "schema",
    "url",
    "etag",
    "last_modified",
    "sha256_content",
    "bytes",
    "fetched_at",
    "source_loader",
    "auth_realm",
]


def write_v1(root: Path, url: str, data: bytes, ext: str = "nc", **fields: object) -> Path:
    """Write an entry by hand, as another implementation would; knows nothing of the code under test."""
    key = hashlib.sha256(url.encode("utf-8")).hexdigest()
    blob = root / "v1" / "blobs" / key[:2] / (f"{key}.{ext}" if ext else key)
    blob.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(data)
    meta = root / "v1" / "meta" / f"{key}.json"
    meta.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "schema": "earthsciio/manifest/v1",
        "url": url,
        "etag": None,
        "last_modified": None,
        "sha256_content": hashlib.sha256(data).hexdigest(),
        "bytes": len(data),
        "fetched_at": "2021-03-04T05:06:07Z",
        "source_loader": "by-hand",
        "auth_realm": None,
        **fields,
    }
    meta.write_text(json.dumps(document), encoding="utf-8")
    return blob


def files_below(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}


# Digests by `printf URL | sha256sum`.
# spec: C1.2
@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("https://example.org/a.nc", "71b27edcbb2a1703"),
        ("", "e3b0c44298fc1c14"),
    ],
)
def test_key_is_the_sha256_of_the_url_as_spelled(url, key):
    assert cache_key(url).startswith(key)
    assert re.fullmatch("[0-9a-f]{64}", cache_key(url))


# spec: C1.2
def test_urls_are_not_normalized():
    spellings = [
        "https://h/a b.nc",
        "https://h/a%20b.nc",
        "https://H/a b.nc",
        "https://h:443/a b.nc",
        "https://h/ä",
    ]
    assert len({cache_key(url) for url in spellings}) == len(spellings)
    assert cache_key("https://h/ä") == hashlib.sha256(b"https://h/\xc3\xa4").hexdigest()


# spec: C1.2
def test_byte_ranges_are_keyed_by_the_appended_range():
    url = range_keyed_url("https://example.org/a.nc", 0, 99)
    assert url == "https://example.org/a.nc#bytes=0-99"
    assert split_range(url) == ("https://example.org/a.nc", (0, 99))
    assert split_range("https://example.org/a.nc#part") == ("https://example.org/a.nc#part", None)
    with pytest.raises(ValueError, match="no range"):
        range_keyed_url("u", 5, 4)
    with pytest.raises(DeclarationError, match="ends before"):
        split_range("u#bytes=5-4")


# spec: C1.3
@pytest.mark.parametrize(
    ("url", "extension"),
    [
        ("https://example.org/a.nc", "nc"),
        ("https://example.org/a.tar.gz?x=b.nc#bytes=0-5", "gz"),
        ("https://example.org", "bin"),
        ("https://example.org/", "bin"),
        ("https://example.org/dir.d/file", "bin"),
        ("https://example.org/.hidden", "bin"),
        ("file:///a/b.nc4", "nc4"),
        ("https://example.org/a.%2e%2e%2f", "bin"),
    ],
)
def test_extension_is_alphanumeric_or_bin(url, extension):
    assert url_extension(url) == extension


def test_digests_agree_with_hashlib(tmp_path):
    data = os.urandom(3 << 20)
    (tmp_path / "f").write_bytes(data)
    assert sha256_file(tmp_path / "f") == sha256_bytes(data) == hashlib.sha256(data).hexdigest()


def test_checksums_may_name_their_algorithm_which_is_sha256():
    digest = "AB" * 32
    assert parse_checksum(f" sha256:{digest}") == parse_checksum(digest) == "ab" * 32
    with pytest.raises(DeclarationError, match="md5:1234"):
        parse_checksum("md5:1234")


# spec: C1.1, C1.4
def test_what_we_write_has_exactly_the_documented_files_and_fields(tmp_path):
    source = tmp_path / "winds of may.nc"
    source.write_bytes(b"wind" * 1000)
    root = tmp_path / "cache"
    url = source.as_uri()
    entry = Cache(root=root, offline=False).fetch(url, source_loader="winds", auth_realm="portal")

    key = hashlib.sha256(url.encode()).hexdigest()
    assert files_below(root) == {
        f"v1/blobs/{key[:2]}/{key}.nc",
        f"v1/meta/{key}.json",
        f"v1/locks/{key}.lock",
    }
    assert (root / "v1" / "tmp").is_dir()
    document = json.loads((root / "v1/meta" / f"{key}.json").read_text(encoding="utf-8"))
    assert list(document) == DOCUMENTED
    assert document["schema"] == "earthsciio/manifest/v1"
    assert document["url"] == url
    assert document["bytes"] == 4000
    assert document["sha256_content"] == hashlib.sha256(b"wind" * 1000).hexdigest()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", document["fetched_at"])
    assert document["source_loader"] == "winds"
    assert document["auth_realm"] == "portal"
    assert entry.key == key
    assert entry.path == root / f"v1/blobs/{key[:2]}/{key}.nc"
    assert entry.path.read_bytes() == b"wind" * 1000


# spec: C1.3
@pytest.mark.parametrize("ext", ["nc", "nc4", "tar.gz", "data", ""])
def test_entries_written_by_hand_are_read_whatever_their_extension(tmp_path, ext):
    url = "https://example.org/some/file.nc?day=3"
    blob = write_v1(tmp_path, url, b"by hand", ext)
    for offline in (True, False):
        entry = Cache(root=tmp_path, offline=offline).fetch(url)
        assert (entry.status, entry.path) == ("hit", blob)
        assert entry.manifest.source_loader == "by-hand"
        assert entry.manifest.fetched_at == "2021-03-04T05:06:07Z"


# spec: C1.4
def test_a_sparse_manifest_is_read(tmp_path):
    url = "https://example.org/a.nc"
    write_v1(tmp_path, url, b"data")
    meta = tmp_path / "v1/meta" / f"{cache_key(url)}.json"
    meta.write_text(json.dumps({"schema": "earthsciio/manifest/v1", "url": url}))
    entry = Cache(root=tmp_path, offline=False).fetch(url)
    assert entry.status == "hit"
    assert entry.manifest == Manifest(url=url)


# spec: C1.4
def test_unknown_fields_survive_a_rewrite(tmp_path):
    source = tmp_path / "a.nc"
    source.write_bytes(b"new")
    root = tmp_path / "cache"
    url = source.as_uri()
    write_v1(root, url, b"old", note={"by": "someone"}, revision=7)
    entry = Cache(root=root, offline=False).fetch(url, expected_checksum=sha256_bytes(b"new"))
    assert entry.status == "downloaded"
    document = json.loads((root / "v1/meta" / f"{cache_key(url)}.json").read_text())
    assert document["note"] == {"by": "someone"}
    assert document["revision"] == 7
    assert document["sha256_content"] == sha256_bytes(b"new")
    assert list(document)[: len(DOCUMENTED)] == DOCUMENTED


# spec: C1.3
def test_a_new_download_replaces_the_blob_under_the_name_it_had(tmp_path):
    source = tmp_path / "a.nc"
    source.write_bytes(b"new")
    root = tmp_path / "cache"
    blob = write_v1(root, source.as_uri(), b"old", "netcdf")
    entry = Cache(root=root, offline=False).fetch(source.as_uri(), expected_checksum=sha256_bytes(b"new"))
    assert entry.path == blob
    assert blob.read_bytes() == b"new"
    assert len(list((root / "v1/blobs").rglob("*.*"))) == 1


# spec: C1.5
@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"schema": "other/v2", "url": "u"}',
        '{"schema": "earthsciio/manifest/v1", "url": 3}',
    ],
)
def test_an_unreadable_manifest_counts_as_missing(tmp_path, text):
    source = tmp_path / "a.nc"
    source.write_bytes(b"right")
    root = tmp_path / "cache"
    write_v1(root, source.as_uri(), b"stale")
    (root / "v1/meta" / f"{cache_key(source.as_uri())}.json").write_text(text)
    assert Cache(root=root, offline=True).fetch(source.as_uri()).path.read_bytes() == b"stale"
    entry = Cache(root=root, offline=False).fetch(source.as_uri())
    assert (entry.status, entry.path.read_bytes()) == ("downloaded", b"right")


# spec: C1.3
def test_unfinished_names_are_not_taken_for_blobs(tmp_path):
    key = cache_key("https://example.org/a.nc")
    shard = tmp_path / "v1/blobs" / key[:2]
    shard.mkdir(parents=True)
    for name in (f"{key}.nc.part", f"{key}.tmp", f"{key}x.nc", f"{key}.n c", f"{key}.nc~"):
        (shard / name).write_bytes(b"?")
    (shard / f"{key}.d").mkdir()
    assert LocalStore(tmp_path).find(key, "nc") is None


def test_permissions_follow_the_umask(tmp_path):
    (tmp_path / "a.nc").write_bytes(b"x")
    url = (tmp_path / "a.nc").as_uri()
    before = os.umask(0o027)
    try:
        entry = Cache(root=tmp_path / "cache", offline=False).fetch(url)
    finally:
        os.umask(before)
    assert entry.path.stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "cache/v1/meta" / f"{entry.key}.json").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "cache/v1/tmp").stat().st_mode & 0o777 == 0o750


# spec: C1.7
def test_a_key_that_is_none_never_becomes_a_path(tmp_path):
    store = LocalStore(tmp_path)
    for key in ("../../etc/passwd", "A" * 64, "ab", "g" * 64, f"{'a' * 64}/"):
        with pytest.raises(CacheStoreError, match="not a cache key"):
            store.find(key)
        with pytest.raises(CacheStoreError, match="not a cache key"), store.claim(key):
            pass


# spec: C1.7
def test_symlinks_out_of_the_cache_are_refused(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    root = tmp_path / "cache"
    url = "https://example.org/a.nc"

    blob = write_v1(root, url, b"inside")
    blob.unlink()
    blob.symlink_to(outside / "secret")
    with pytest.raises(CacheStoreError, match="symbolic link"):
        Cache(root=root, offline=True).fetch(url)

    blob.unlink()
    blob.write_bytes(b"inside")
    meta = root / "v1/meta" / f"{cache_key(url)}.json"
    meta.unlink()
    meta.symlink_to(outside / "secret")
    with pytest.raises(CacheStoreError, match="symbolic link"):
        Cache(root=root, offline=True).fetch(url)


# spec: C1.7
@pytest.mark.parametrize("name", ["blobs", "meta", "locks", "tmp"])
def test_nothing_is_written_through_a_symlink_out_of_the_cache(tmp_path, name):
    (tmp_path / "a.nc").write_bytes(b"x")
    outside = tmp_path / "outside"
    outside.mkdir()
    root = tmp_path / "cache"
    (root / "v1").mkdir(parents=True)
    (root / "v1" / name).symlink_to(outside)
    with pytest.raises(CacheStoreError, match="symbolic link"):
        Cache(root=root, offline=False).fetch((tmp_path / "a.nc").as_uri())
    assert [path for path in outside.rglob("*") if path.is_file()] == []


def test_symlinks_within_the_cache_and_to_it_are_fine(tmp_path):
    root = tmp_path / "real"
    url = "https://example.org/a.nc"
    blob = write_v1(root, url, b"inside")
    blob.rename(root / "v1/elsewhere")
    blob.symlink_to(root / "v1/elsewhere")
    (tmp_path / "link").symlink_to(root)
    assert Cache(root=tmp_path / "link", offline=True).fetch(url).path.read_bytes() == b"inside"


def test_manifests_are_frozen_hashable_and_pickle():
    manifest = Manifest(url="u", bytes=3, extra={"more": [1]})
    assert pickle.loads(pickle.dumps(manifest)) == manifest
    assert hash(manifest) == hash(Manifest(url="u", bytes=3))
    with pytest.raises(AttributeError):
        manifest.url = "v"
    with pytest.raises(TypeError, match="etag"):
        Manifest(url="u", etag=3)
    with pytest.raises(ValueError, match="bytes"):
        Manifest(url="u", bytes=-1)


# spec: C1.1
def test_root_comes_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("EARTHSCIDATADIR", str(tmp_path / "there"))
    assert LocalStore().root == tmp_path / "there"
    monkeypatch.delenv("EARTHSCIDATADIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert LocalStore().root == tmp_path / "xdg/earthsciio"
