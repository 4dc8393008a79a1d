"""Manifests and blobs that somebody else damaged: no crash, no hang, and the next fetch mends them."""

import json
import os
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from earthsciio import DataSource, Provider, format_registry
from earthsciio.cache import Cache, FilePeriod, LocalStore, Manifest, cache_key, sha256_bytes, sha256_file
from earthsciio.cache.maintenance import damage, items, prune, verify
from earthsciio.cache.times import time_of_file
from earthsciio.cli import main
from earthsciio.errors import (
    CacheMiss,
    CacheStoreError,
    DeclarationError,
    DecodeError,
    FileFormatError,
    SourceNotFound,
    TransportError,
)

pytestmark = pytest.mark.timeout(60)  # what is wrong here would hang

OPEN = FilePeriod(end=None)
RIGHT = sha256_bytes(b"right")


class Case:
    """One file of a source, and what the cache has of it."""

    def __init__(self, folder: Path) -> None:
        self.source = folder / "a.nc"
        self.source.write_bytes(b"right")
        self.url = self.source.as_uri()
        self.key = cache_key(self.url)
        self.root = folder / "cache"
        entry = self.online().fetch(self.url)
        self.blob, self.manifest = entry.path, self.root / f"v1/meta/{self.key}.json"
        self.document = json.loads(self.manifest.read_text())

    def online(self) -> Cache:
        return Cache(root=self.root, offline=False)

    def offline(self) -> Cache:
        return Cache(root=self.root, offline=True)

    def put(self, path: Path, what: object) -> None:
        """Put something in the place of a file; text, bytes, changed fields, or what is no file."""
        path.unlink()
        match what:
            case "FIFO":
                os.mkfifo(path)
            case "directory":
                path.mkdir()
            case "socket":
                here = Path.cwd()
                os.chdir(path.parent)  # its address must be short
                with socket.socket(socket.AF_UNIX) as address:
                    address.bind(path.name)
                os.chdir(here)
            case "loop":
                path.symlink_to(path.name)
            case dict():
                path.write_text(json.dumps(self.document | what))
            case bytes():
                path.write_bytes(what)
            case _:
                raise AssertionError(what)


@pytest.fixture
def case(tmp_path) -> Case:
    return Case(tmp_path)


SPECIAL = ["FIFO", "directory", "socket", "loop"]
BAD = [
    b"[" * 100_000,
    b'{"schema": "earthsciio/manifest/v1", "url": "u", "x": ' + b'{"a":' * 900 + b"1" + b"}" * 901,
    {"x": [[[]]] * 3, "y": json.loads("[" * 40 + "]" * 40)},
    {"bytes": 1e300},
    {"bytes": 10**400},
    {"bytes": True},
    {"bytes": -1},
    {"bytes": "5"},
    {"x": float("inf")},
    b'{"schema": "earthsciio/manifest/v1", "url": "u", "x": 1e999}',
    b'{"schema": "earthsciio/manifest/v1", "url": "u", "bytes": ' + b"9" * 10_000 + b"}",
    {"etag": 'a"\nX: y'},
    {"etag": '"€"'},
    {"etag": '"\0"'},
    {"etag": "x" * 10_000},
    {"etag": 3},
    {"last_modified": "Thu\r\n"},
    {"last_modified": []},
    {"sha256_content": "zz"},
    {"sha256_content": RIGHT.upper()},
    {"url": None},
    {"url": "\ud800"},
    {"x": "\udfff"},
    {"source_loader": {}},
    {"auth_realm": 1.5},
    {"fetched_at": 0},
    b"\xff\xfe\x00",
    b" " * (2 << 20),
]


def named(what: object) -> str:
    return repr(what)[:30]


# spec: C1.5
@pytest.mark.parametrize("what", [*SPECIAL, *BAD], ids=named)
def test_a_damaged_manifest_counts_as_missing(case, what):
    case.put(case.manifest, what)
    assert case.offline().fetch(case.url).path.read_bytes() == b"right"  # C1.6: a blob without manifest
    (found,) = verify(LocalStore(case.root))
    assert (found.path, found.serious) == (case.manifest, False)
    assert "manifest" in found.what
    assert len(found.what) < 300
    assert [item.manifest for item in items(LocalStore(case.root))] == [None]
    case.source.write_bytes(b"newer")
    entry = case.online().fetch(case.url)
    assert (entry.status, entry.path.read_bytes()) == ("downloaded", b"newer")
    assert case.offline().fetch(case.url).manifest == entry.manifest
    assert list(verify(LocalStore(case.root))) == []


@pytest.mark.parametrize("what", [*SPECIAL, *BAD], ids=named)
def test_a_damaged_manifest_without_blob_is_a_miss_that_says_so(case, what):
    case.put(case.manifest, what)
    case.blob.unlink()
    with pytest.raises(CacheMiss, match="manifest") as caught:
        case.offline().fetch(case.url)
    assert str(case.manifest) in str(caught.value)
    assert prune(LocalStore(case.root)) == []
    assert not os.path.lexists(case.manifest)
    with pytest.raises(CacheMiss) as caught:
        case.offline().fetch(case.url)
    assert caught.value.damage is None


@pytest.mark.parametrize("what", SPECIAL)
def test_what_is_no_file_in_the_place_of_a_blob_is_replaced(case, what):
    case.put(case.blob, what)
    with pytest.raises(CacheMiss, match=case.blob.name):
        case.offline().fetch(case.url)
    assert [problem.path for problem in damage(LocalStore(case.root))] == [case.blob]
    entry = case.online().fetch(case.url)
    assert (entry.path, entry.path.read_bytes()) == (case.blob, b"right")
    case.put(case.blob, what)
    prune(LocalStore(case.root))
    assert not os.path.lexists(case.blob)


def test_a_blob_of_another_extension_is_found_beside_what_is_no_file(case):
    (case.blob.parent / f"{case.key}.d").mkdir()
    case.blob.rename(case.blob.with_suffix(".netcdf"))
    assert case.offline().fetch(case.url).path.read_bytes() == b"right"


def test_a_directory_that_holds_something_is_left_alone_and_named(case):
    case.put(case.manifest, "directory")
    (case.manifest / "precious").touch()
    with pytest.raises(CacheStoreError, match="not empty") as caught:
        case.online().fetch(case.url)
    assert caught.value.file == str(case.manifest)
    prune(LocalStore(case.root), max_bytes=0)
    assert (case.manifest / "precious").exists()


def test_a_manifest_nobody_may_read_is_an_error_of_the_store(case, monkeypatch):
    def refuse(path, *rest, **also):
        if str(path) == str(case.manifest):
            raise PermissionError(13, "Permission denied", path)
        return real(path, *rest, **also)

    real = os.open
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(CacheStoreError, match="Permission denied"):
        case.online().fetch(case.url)
    assert ["Permission denied" in problem.what for problem in verify(LocalStore(case.root))] == [True]
    assert list(items(LocalStore(case.root))) == []


@pytest.mark.parametrize("what", ["FIFO", "directory", b"[" * 100_000], ids=named)
def test_a_damaged_note_of_a_lock_holder_is_replaced(case, what):
    note = case.root / f"v1/locks/{case.key}.holder"
    note.touch()
    case.put(note, what)
    case.source.write_bytes(b"newer")
    newer = sha256_bytes(b"newer")
    assert case.online().fetch(case.url, expected_checksum=newer).path.read_bytes() == b"newer"
    assert not os.path.lexists(note)


def test_unknown_fields_survive_unless_they_cannot_be_written(case):
    case.put(case.manifest, {"x": {"deep": [[1.5, None, "é"]]}})
    extra = case.offline().fetch(case.url).manifest.extra
    assert extra == {"x": {"deep": [[1.5, None, "é"]]}}


@pytest.mark.parametrize("fetched_at", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "soon"])
def test_a_time_beyond_the_calendar_is_no_time(case, fetched_at):
    case.put(case.manifest, {"fetched_at": fetched_at})
    assert case.online().fetch(case.url, temporal=OPEN).path.read_bytes() == b"right"
    assert len(list(items(LocalStore(case.root)))) == 1
    assert Manifest(url="u", fetched_at=fetched_at).fetched is None


# spec: C4.1
@pytest.mark.parametrize("etag", [True, False])
def test_a_manifest_from_the_future_vouches_for_nothing(case, etag):
    """A clock that was wrong once must not keep a file of an open period for years."""
    case.put(
        case.manifest,
        {"fetched_at": "2999-01-01T00:00:00Z", **({} if etag else {"etag": None, "last_modified": None})},
    )
    case.source.write_bytes(b"newer")
    for period in (OPEN, FilePeriod(end="2900-01-01T00:00:00Z")):
        entry = case.online().fetch(case.url, temporal=period)
        assert entry.path.read_bytes() == b"newer"
    assert entry.manifest.fetched < datetime.now(UTC) + timedelta(minutes=1)


@pytest.mark.parametrize("etag", ["unsendable\n", "\x01"])
def test_a_transport_that_gives_a_senseless_validator_is_not_asked_by_it(case, etag, monkeypatch):
    from earthsciio.cache.transports import FetchResult
    from earthsciio.cache.transports.file import FileTransport

    def fetch(self, request, sink):
        assert request.etag is None
        sink.write(b"right")
        return FetchResult(etag=etag, last_modified=etag, length=5)

    monkeypatch.setattr(FileTransport, "fetch", fetch)
    case.blob.unlink()
    entry = case.online().fetch(case.url, temporal=OPEN)
    assert (entry.manifest.etag, entry.manifest.last_modified) == (None, None)


# -- sources ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["FIFO", "socket"])
@pytest.mark.parametrize("checksum", [None, RIGHT])
def test_a_local_source_that_is_no_file_is_an_error(case, what, checksum):
    case.put(case.source, what)
    for url in (str(case.source), case.url):
        case.blob.unlink(missing_ok=True)
        with pytest.raises(TransportError, match="not a regular file") as caught:
            case.online().fetch(url, expected_checksum=checksum)
        assert not isinstance(caught.value, SourceNotFound)
        assert caught.value.file == str(case.source)
    with pytest.raises(OSError, match="not a regular file"):
        sha256_file(case.source)


@pytest.mark.parametrize("name", ["netcdf", "csv", "zarr"])
def test_a_reader_never_waits_for_a_fifo(tmp_path, name):
    from earthsciio.formats.files import lease

    path = tmp_path / "a.nc"
    os.mkfifo(path)
    with (
        pytest.raises(FileFormatError, match="FIFO") as caught,
        lease(format_registry.create(name), str(path)),
    ):
        pass
    assert caught.value.file == str(path)


@pytest.mark.parametrize("name", ["v/1", "v/.zarray", ".zgroup"])
def test_a_store_whose_object_is_a_fifo_is_an_error(tmp_path, name):
    import zarr

    group = zarr.open_group(tmp_path / "z", mode="w", zarr_format=2)
    array = group.create_array("v", shape=(4,), chunks=(2,), dtype="f4")
    array[:] = 1
    array.attrs["_ARRAY_DIMENSIONS"] = ["x"]
    (tmp_path / "z" / name).unlink()
    os.mkfifo(tmp_path / "z" / name)
    source = DataSource(name="s", format="zarr", url=str(tmp_path / "z"), variables=("v",))
    with pytest.raises((DecodeError, FileFormatError), match="FIFO"):
        Provider(source, Cache(root=tmp_path / "cache")).materialize()


@pytest.mark.parametrize("mtime", [10**12, -(10**12)])
def test_a_file_time_beyond_the_calendar_is_no_obstacle(case, mtime):
    assert time_of_file(mtime).year in {1, 9999}
    os.utime(case.source, (mtime, mtime))
    if case.source.stat().st_mtime != mtime:
        pytest.skip("the file system holds no such time")
    cache = case.online()
    case.blob.unlink()
    assert cache.fetch(case.url).path.read_bytes() == b"right"
    assert cache.fetch(str(case.source)).path == case.source
    assert len(cache.provenance(digest=True)) == 2
    os.utime(case.blob, (mtime, mtime))
    case.manifest.unlink()
    assert len(prune(LocalStore(case.root), older_than=timedelta(days=1), dry_run=True)) == (mtime < 0)


@pytest.mark.parametrize("name", ["/tmp/a\0b.nc", "/tmp/\ud800.nc"])
def test_a_path_that_is_none_is_a_transport_error(case, name):
    for url in (name, f"file://{name}", "file:///tmp/a%00b.nc"):
        with pytest.raises((TransportError, DeclarationError)):
            case.online().fetch(url)


# -- the command -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "what"),
    [
        *(("manifest", what) for what in [*SPECIAL, b"[" * 100_000, {"bytes": 10**400}]),
        *(("blob", what) for what in SPECIAL),
    ],
    ids=named,
)
@pytest.mark.parametrize("action", ["ls", "verify", "prune"])
def test_the_command_names_what_is_damaged(case, capsys, what, place, action):
    path = getattr(case, place)
    case.put(path, what)
    arguments = ["cache", action, "--root", str(case.root), *(["--dry-run"] if action == "prune" else [])]
    assert main(arguments) == 0
    told = capsys.readouterr()
    assert str(path) in told.out + told.err
    assert main([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    listed = document["problems" if action == "verify" else "damaged"]
    assert str(path) in [each["path"] for each in listed]
