"""Files that do not exist: which errors say so, the notes a cache keeps, and what offline makes of them."""

from __future__ import annotations

import json
import os

import pytest

from earthsciio.cache import Cache, FilePeriod, LocalStore, cache_key, transport_registry
from earthsciio.cache.absence import is_path_absent, says_absent
from earthsciio.cache.maintenance import items, prune, verify
from earthsciio.cache.syscalls import SYS
from earthsciio.cache.transports.http import HttpTransport
from earthsciio.errors import (
    AuthError,
    CacheMiss,
    CacheStoreError,
    FetchError,
    SourceNotFound,
    SourceUnclear,
)
from earthsciio.filelist import SourceFile, merge
from earthsciio.warm import Patience, warm

OPEN = FilePeriod(end=None)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache whose HTTP transport is impatient, and whose s3: URLs would lead to nobody."""

    def build() -> HttpTransport:
        return HttpTransport(connect_timeout=5, idle_timeout=1, sleep=lambda _: None)

    factories = {**transport_registry._factories, "http": build}
    monkeypatch.setattr(transport_registry, "_factories", factories)
    with Cache(root=tmp_path / "cache", offline=False) as cache:
        yield cache


def failure(cache: Cache, url: str, **options) -> FetchError:
    with pytest.raises(FetchError) as caught:
        cache.fetch(url, may_be_absent=True, **options)
    return caught.value


def noted(cache: Cache) -> list[str]:
    return sorted(path.name for path in (cache.store.root / "absent").glob("*"))


def refuse(server, path: str, status: int) -> str:
    server.faults[path].extend([lambda handler: handler.answer(status)] * 20)
    return server.url(path)


# -- which errors say so -----------------------------------------------------------------------------------


# spec: C7.1
@pytest.mark.parametrize("status", [404, 410])
def test_http_says_so_with_404_and_410(server, cache, status):
    assert says_absent(failure(cache, refuse(server, "/a.nc", status)))
    assert noted(cache) == [f"{cache_key(server.url('/a.nc'))}.json"]


# spec: C7.1
@pytest.mark.parametrize("status", [400, 401, 403, 408, 429, 451, 500, 502, 503, 504])
def test_no_other_answer_of_http_says_so(server, cache, status):
    error = failure(cache, refuse(server, "/a.nc", status))
    assert not says_absent(error)
    assert not isinstance(error, FileNotFoundError)
    assert noted(cache) == []


# spec: C7.1
def test_a_server_that_is_down_stalls_or_hangs_up_says_nothing(server, cache):
    server.serve("/a.nc", b"x" * 1000)
    server.faults["/a.nc"].extend([lambda handler: handler.cut(10)] * 20)
    assert not says_absent(failure(cache, server.url("/a.nc")))
    assert not says_absent(failure(cache, "http://127.0.0.1:9/a.nc"))
    assert not says_absent(failure(cache, "http://no.such.host.invalid/a.nc"))
    assert noted(cache) == []


# spec: C7.1
def test_bytes_that_are_others_than_declared_are_no_absence(server, cache):
    url = server.serve("/a.nc", b"x")
    assert not says_absent(failure(cache, url, expected_checksum="0" * 64))
    assert noted(cache) == []


# spec: C7.1
def test_file_urls_and_paths_say_so_if_there_is_nothing_at_the_path(cache, tmp_path):
    path = tmp_path / "a.nc"
    for spelled in (str(path), path.as_uri(), str(tmp_path / "no folder" / "a.nc")):
        assert says_absent(failure(cache, spelled))
    assert noted(cache) == [f"{cache_key(path.as_uri())}.json"]  # a path needs no note


# spec: C7.1
@pytest.mark.parametrize("what", ["link", "folder of a link", "folder", "file as folder", "refused"])
def test_a_path_that_leads_to_something_else_or_nowhere_says_nothing(cache, tmp_path, what, monkeypatch):
    path = tmp_path / "there" / "a.nc"
    path.parent.mkdir()
    if what == "link":
        path.symlink_to(tmp_path / "away" / "a.nc")
    elif what == "folder of a link":
        path.parent.rmdir()
        path.parent.symlink_to(tmp_path / "away")
        path = path.parent / "deeper" / "a.nc"
    elif what == "folder":
        path.mkdir()
        assert not says_absent(failure(cache, path.as_uri()))
        assert not is_path_absent(str(path))
        return
    elif what == "file as folder":
        path.parent.rmdir()
        path.parent.write_bytes(b"x")
    else:  # root may read anything: the system's answer is played
        known = os.stat

        def stat(name, *args, **kwargs):
            if str(name) == str(path):
                raise PermissionError(13, "Permission denied")
            return known(name, *args, **kwargs)

        monkeypatch.setattr(os, "stat", stat)
        assert not says_absent(failure(cache, str(path)))
        return
    for spelled in (str(path), path.as_uri()):
        assert not says_absent(failure(cache, spelled))
    assert noted(cache) == []


# spec: C7.1
def test_objects_say_so_if_the_store_has_none(server, cache, monkeypatch):
    objects = pytest.importorskip("earthsciio.cache.transports.objects")
    pytest.importorskip("obstore")
    for name in [name for name in os.environ if name.startswith(("AWS_", "GOOGLE_", "AZURE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url(""))
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    impatient = lambda: objects.ObjectTransport(sleep=lambda _: None)
    factories = {**transport_registry._factories, "s3": impatient}
    monkeypatch.setattr(transport_registry, "_factories", factories)
    assert says_absent(failure(cache, "s3://winds/none.nc"))
    for status in (403, 500, 503):
        refuse(server, f"/winds/{status}.nc", status)
        assert not says_absent(failure(cache, f"s3://winds/{status}.nc"))
    assert noted(cache) == [f"{cache_key('s3://winds/none.nc')}.json"]


# spec: C7.1
def test_every_mirror_must_say_so(server, cache):
    url, gone = server.url("/a.nc"), refuse(server, "/gone.nc", 410)
    down = refuse(server, "/down.nc", 503)
    unclear = failure(cache, url, mirrors=[gone, down])
    assert isinstance(unclear, SourceUnclear)
    assert not says_absent(unclear)
    assert "503" in str(unclear)
    assert isinstance(failure(cache, refuse(server, "/no.nc", 403), mirrors=[gone]), AuthError)
    assert noted(cache) == []
    assert says_absent(failure(cache, url, mirrors=[gone]))
    assert noted(cache) == [f"{cache_key(url)}.json"]
    copy = server.serve("/copy.nc", b"copy")
    assert cache.fetch(url, mirrors=[gone, copy], may_be_absent=True).path.read_bytes() == b"copy"


# spec: C7.1
@pytest.mark.parametrize("etag", ['"v1"', None])
def test_a_file_of_which_the_cache_holds_an_earlier_version_was_withdrawn(server, cache, etag):
    url = server.serve("/a.nc", b"first", etag=etag)
    entry = cache.fetch(url, temporal=OPEN)
    meta = cache.store.root / "v1" / "meta" / f"{entry.key}.json"
    meta.write_text(meta.read_text().replace(entry.manifest.fetched_at, "2020-01-01T00:00:00Z"))
    refuse(server, "/a.nc", 404)
    error = failure(cache, url, temporal=OPEN)
    assert isinstance(error, SourceUnclear)
    assert "earlier version" in str(error)
    assert noted(cache) == []
    assert cache.without_network().fetch(url, may_be_absent=True).path == entry.path


# spec: C7.1
def test_a_file_that_is_still_being_written_is_there(server, cache):
    url = server.url("/a.nc")
    headers = {}  # no date: it may be new
    server.faults["/a.nc"].append(lambda handler: handler.answer(200, headers, b"half"))
    server.faults["/a.nc"].append(lambda handler: handler.answer(200, headers, b"half and more"))
    error = failure(cache, url, settle=0.0)
    assert isinstance(error, SourceUnclear)
    assert "still being written" in str(error)
    assert noted(cache) == []


# -- notes -------------------------------------------------------------------------------------------------


# spec: C7.2
def test_a_note_lies_beside_the_format_and_shows_no_credentials(server, cache):
    url = server.url("/a.nc").replace("//", "//me:s3cret@") + "?token=s3cret&day=1"
    assert says_absent(failure(cache, url, source_loader="wind"))
    root = cache.store.root
    note = root / "absent" / f"{cache_key(url)}.json"
    assert list(root.rglob("*.json")) == [note]
    told = json.loads(note.read_text())
    assert list(told) == ["schema", "url", "source_loader", "noted_at"]
    assert told["schema"] == "earthsciio/absence/v1"
    assert told["source_loader"] == "wind"
    assert told["noted_at"].endswith("Z")
    assert "s3cret" not in note.read_text()
    assert not list((root / "v1").rglob("*.part"))
    assert not (root / "v1" / "blobs").exists()
    assert not (root / "v1" / "meta").exists()


# spec: C7.2
def test_nothing_is_noted_of_files_that_must_exist(server, cache):
    with pytest.raises(SourceNotFound):
        cache.fetch(server.url("/a.nc"))
    assert noted(cache) == []


# spec: C7.2
def test_offline_only_a_noted_absence_is_one(server, cache):
    known, unknown = server.url("/known.nc"), server.url("/unknown.nc")
    assert says_absent(failure(cache, known))
    asked = len(server.requests)
    offline = cache.without_network()
    assert says_absent(failure(offline, known))
    assert isinstance(failure(offline, unknown), CacheMiss)
    assert not says_absent(failure(offline, unknown))
    with pytest.raises(CacheMiss):
        offline.fetch(known)  # a source for which it must exist
    assert (cache.knows_absent(known), cache.knows_absent(unknown)) == (True, False)
    assert len(server.requests) == asked


# spec: C7.2
def test_online_a_note_keeps_nobody_from_asking_and_goes_when_the_file_comes(server, cache):
    url = server.url("/a.nc")
    assert says_absent(failure(cache, url))
    assert says_absent(failure(cache, url))
    assert len(server.asked("/a.nc")) == 2
    server.serve("/a.nc", b"late")
    assert cache.fetch(url, may_be_absent=True).status == "downloaded"
    assert noted(cache) == []
    assert cache.without_network().fetch(url, may_be_absent=True).path.read_bytes() == b"late"


# spec: C7.2
def test_a_note_of_a_site_cache_counts_and_a_blob_goes_before_any_note(server, cache, tmp_path):
    url, other = server.url("/a.nc"), server.url("/b.nc")
    assert says_absent(failure(cache, url))
    assert says_absent(failure(cache, other))
    own = Cache(root=tmp_path / "own", offline=False, site_roots=[cache.store.root])
    offline = own.without_network()
    assert says_absent(failure(offline, url))
    server.serve("/b.nc", b"came")
    own.fetch(other, may_be_absent=True)
    assert own.knows_absent(other)  # at the site, which is not ours to write
    assert offline.fetch(other, may_be_absent=True).path.read_bytes() == b"came"


# spec: C7.2
def test_housekeeping_knows_nothing_of_notes(server, cache):
    server.serve("/a.nc", b"a")
    cache.fetch(server.url("/a.nc"))
    assert says_absent(failure(cache, server.url("/b.nc")))
    store = LocalStore(cache.store.root)
    assert [item.size for item in items(store)] == [1]
    assert list(verify(store)) == []
    assert len(prune(store, max_bytes=0)) == 1
    assert list(items(store)) == []
    assert says_absent(failure(cache.without_network(), server.url("/b.nc")))


# spec: C7.2
def test_a_note_that_leads_out_of_the_cache_is_refused(server, cache, tmp_path):
    url = server.url("/a.nc")
    (tmp_path / "elsewhere").mkdir()
    cache.store.root.mkdir()
    (cache.store.root / "absent").symlink_to(tmp_path / "elsewhere")
    assert isinstance(failure(cache, url), CacheStoreError)
    assert not list((tmp_path / "elsewhere").iterdir())
    (tmp_path / "elsewhere" / f"{cache_key(url)}.json").write_text("{}")
    assert isinstance(failure(cache.without_network(), url), CacheStoreError)


def test_a_disk_that_takes_no_note_is_an_error(server, cache, monkeypatch):
    known = SYS.write

    def full(fd, data):
        if b"absence" in bytes(data):
            raise OSError(28, "No space left on device")
        return known(fd, data)

    url = server.url("/a.nc")
    monkeypatch.setattr(SYS, "write", full)
    error = failure(cache, url)
    assert isinstance(error, CacheStoreError)
    assert error.errno == 28


def test_a_store_of_a_third_party_keeps_no_notes(server, cache):
    class Wrapped:
        def __init__(self, store):
            self.find, self.claim = store.find, store.claim

    with Cache(Wrapped(cache.store), offline=False) as wrapped:
        assert says_absent(failure(wrapped, server.url("/a.nc")))
        assert not wrapped.knows_absent(server.url("/a.nc"))
        assert isinstance(failure(wrapped.without_network(), server.url("/a.nc")), CacheMiss)
    assert noted(cache) == []


# -- warmed ------------------------------------------------------------------------------------------------


# spec: C7.3, C6.3
def test_a_file_is_absent_only_when_it_was_waited_for_in_vain(server, cache):
    comes, never = server.url("/comes.nc"), server.url("/never.nc")

    def bring(handler):
        server.serve("/comes.nc", b"late")
        return handler.answer(404)

    server.faults["/comes.nc"].append(bring)
    files = [SourceFile(source="wind", url=url, may_be_absent=True) for url in (comes, never)]
    waited = []
    results = warm(files, cache, patience=Patience(wait=0.2, poll=0.01, settle=0.0), waiting=waited.append)
    assert [each.status for each in results] == ["downloaded", "absent"]
    assert [each.error for each in results] == [None, None]
    assert sorted(file.url for file in waited) == sorted([comes, never])
    assert noted(cache) == [f"{cache_key(never)}.json"]


# spec: C7.3
def test_a_file_that_one_source_must_have_is_not_absent_for_another(server, cache):
    url, start = server.url("/a.nc"), 0
    files = [SourceFile(source=name, url=url, start=start, may_be_absent=name == "a") for name in "ab"]
    for listed in (files, files[::-1]):
        assert [file.may_be_absent for file in merge(listed)] == [False]
        assert [each.status for each in warm(merge(listed), cache)] == ["failed"]
    assert noted(cache) == []
