"""Fetching: hits without lock or network, offline that never looks outside, sources, checksums, mirrors."""

import errno
import os
import pickle
import socket
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import cftime
import pytest

import earthsciio.cache.cache as cache_module
from earthsciio.cache import (
    Cache,
    FetchResult,
    FilePeriod,
    LocalStore,
    Manifest,
    cache_key,
    range_keyed_url,
    sha256_bytes,
    transport_registry,
)
from earthsciio.cache.store import StoredBlob
from earthsciio.cache.validity import Verdict, closed_at, judge
from earthsciio.errors import (
    BackendNotRegistered,
    CacheMiss,
    CacheStoreError,
    Cancelled,
    FetchError,
    IntegrityError,
    SourceNotFound,
    TransportError,
)
from earthsciio.events import Fetched, Receiving


@pytest.fixture
def source(tmp_path) -> Path:
    path = tmp_path / "source.nc"
    path.write_bytes(b"0123456789" * 1000)
    return path


@pytest.fixture
def cache(tmp_path) -> Cache:
    return Cache(root=tmp_path / "cache", offline=False)


class Scripted:
    """A transport that answers from a table and remembers what it was asked."""

    def __init__(self, answers: dict[str, object]) -> None:
        self.answers = answers
        self.asked = []

    def fetch(self, request, sink) -> FetchResult:
        self.asked.append(request)
        answer = self.answers[request.url]
        if callable(answer):
            answer = answer(request)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, FetchResult):
            return answer
        sink.write(answer)
        return FetchResult(etag='"v1"', length=len(answer))

    def close(self) -> None:
        pass


@pytest.fixture
def scripted(monkeypatch):
    """Register a scripted transport as scheme ``test``."""

    def register(answers: dict[str, object]) -> Scripted:
        transport = Scripted(answers)
        monkeypatch.setattr(
            transport_registry, "_factories", {**transport_registry._factories, "test": lambda: transport}
        )
        return transport

    return register


# -- file: URLs and local paths --------------------------------------------------------------------------


def test_first_fetch_downloads_and_the_second_is_a_hit(cache, source):
    first = cache.fetch(source.as_uri())
    assert (first.status, first.path.read_bytes()) == ("downloaded", source.read_bytes())
    second = cache.fetch(source.as_uri())
    assert second.status == "hit"
    assert (second.path, second.manifest) == (first.path, first.manifest)


# spec: C4.1
def test_a_static_source_is_never_asked_again(cache, source):
    entry = cache.fetch(source.as_uri())
    source.unlink()
    assert cache.fetch(source.as_uri()).path == entry.path


# spec: C5.6, P3.6
def test_a_plain_path_is_read_in_place(cache, source, monkeypatch):
    entry = cache.fetch(str(source))
    assert (entry.path, entry.status, entry.manifest.bytes) == (source, "hit", 10000)
    assert not cache.store.root.exists()
    monkeypatch.setenv("HOME", str(source.parent))
    assert cache.fetch("~/source.nc").path == source
    with pytest.raises(FileNotFoundError, match=r"nowhere\.nc"):
        cache.fetch(str(source.parent / "nowhere.nc"))


@pytest.mark.parametrize("form", ["file://{}", "file:{}", "file://localhost{}", "FILE://{}"])
def test_every_spelling_of_a_file_url_goes_through_the_cache(cache, source, form):
    assert cache.fetch(form.format(source)).path.read_bytes() == source.read_bytes()


def test_file_urls_are_percent_decoded(cache, tmp_path):
    odd = tmp_path / "a b#c?d%.nc"
    odd.write_bytes(b"odd")
    assert cache.fetch(odd.as_uri()).path.read_bytes() == b"odd"


def test_a_byte_range_is_a_blob_of_its_own(cache, source):
    entry = cache.fetch(range_keyed_url(source.as_uri(), 3, 12))
    assert entry.path.read_bytes() == b"3456789012"
    assert entry.key == cache_key(source.as_uri() + "#bytes=3-12")
    with pytest.raises(TransportError, match="ends after"):
        cache.fetch(range_keyed_url(source.as_uri(), 9990, 10000))


def test_an_empty_file_is_a_file(cache, tmp_path):
    (tmp_path / "empty").touch()
    assert cache.fetch((tmp_path / "empty").as_uri()).path.read_bytes() == b""


def test_what_is_no_file_is_an_error(cache, tmp_path):
    with pytest.raises(SourceNotFound, match="nowhere"):
        cache.fetch("file:///nowhere/at/all.nc")
    with pytest.raises(TransportError, match="not a regular file"):
        cache.fetch(tmp_path.as_uri())
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TransportError, match="not a regular file"):
        cache.fetch((tmp_path / "pipe").as_uri())
    with pytest.raises(TransportError, match="another host"):
        cache.fetch("file://elsewhere/a.nc")


def test_an_unknown_scheme_suggests_one(cache):
    with pytest.raises(BackendNotRegistered, match=r"'fiel'.*Did you mean 'file'"):
        cache.fetch("fiel:///a.nc")


def test_a_failed_fetch_leaves_nothing_behind(cache, tmp_path):
    with pytest.raises(SourceNotFound):
        cache.fetch((tmp_path / "missing.nc").as_uri())
    left = [path for path in cache.store.root.rglob("*") if path.is_file()]
    assert [path.suffix for path in left] == [".lock"]


# -- hits and offline ------------------------------------------------------------------------------------


@pytest.fixture
def nothing_outside(monkeypatch):
    """Forbid sockets, name resolution, transports and locks."""

    def forbidden(*arguments: object, **keywords: object) -> None:
        raise AssertionError(f"went outside: {arguments} {keywords}")

    monkeypatch.setattr(socket, "socket", forbidden)
    monkeypatch.setattr(socket, "create_connection", forbidden)
    monkeypatch.setattr(socket, "getaddrinfo", forbidden)
    monkeypatch.setattr(cache_module.transport_registry, "_factories", {})
    monkeypatch.setattr(LocalStore, "claim", forbidden)


# spec: C3.1, C4.2
def test_hits_and_offline_take_no_lock_build_no_transport_and_open_no_socket(
    tmp_path, source, cache, request
):
    entry = cache.fetch(source.as_uri())
    request.getfixturevalue("nothing_outside")
    for offline in (True, False):
        again = Cache(root=tmp_path / "cache", offline=offline)
        assert again.fetch(source.as_uri()).path == entry.path
    stale = FilePeriod(end=None)
    assert Cache(root=tmp_path / "cache", offline=True).fetch(source.as_uri(), temporal=stale).status == "hit"


# spec: C4.2
def test_offline_miss_names_url_and_key(tmp_path, nothing_outside):
    url = "https://example.org/2020/a.nc"
    with pytest.raises(CacheMiss, match=r"example\.org/2020") as caught:
        Cache(root=tmp_path, offline=True).fetch(url)
    assert caught.value.resolved_url == url
    assert caught.value.key == cache_key(url)
    assert isinstance(caught.value, FileNotFoundError)
    assert list(tmp_path.iterdir()) == []


# spec: C4.2
def test_offline_misses_a_file_url_too(tmp_path, source, nothing_outside):
    with pytest.raises(CacheMiss):
        Cache(root=tmp_path / "cache", offline=True).fetch(source.as_uri())


@pytest.mark.parametrize(
    ("value", "offline"),
    [("1", True), ("true", True), ("YES", True), ("", False), ("0", False), ("no", False), ("2", False)],
)
def test_offline_by_environment(tmp_path, monkeypatch, value, offline):
    monkeypatch.setenv("EARTHSCI_OFFLINE", value)
    assert Cache(root=tmp_path).offline is offline
    assert Cache(root=tmp_path, offline=not offline).offline is not offline


# spec: C1.6
def test_offline_a_blob_without_manifest_is_there(tmp_path, source, cache):
    entry = cache.fetch(source.as_uri())
    (cache.store.root / "v1/meta" / f"{entry.key}.json").unlink()
    again = Cache(root=cache.store.root, offline=True).fetch(source.as_uri())
    assert again.status == "hit"
    assert again.manifest == Manifest(url=source.as_uri(), bytes=10000)


# spec: C4.2
def test_offline_bytes_known_to_be_others_are_refused(cache, source):
    cache.fetch(source.as_uri())
    offline = Cache(root=cache.store.root, offline=True)
    with pytest.raises(IntegrityError, match="declared for them"):
        offline.fetch(source.as_uri(), expected_checksum="0" * 64)
    right = sha256_bytes(source.read_bytes())
    assert offline.fetch(source.as_uri(), expected_checksum=right).status == "hit"


def test_lookup_says_what_offline_would_find(cache, source):
    assert cache.lookup(source.as_uri()) is None
    entry = cache.fetch(source.as_uri())
    assert cache.lookup(source.as_uri()).path == entry.path
    assert cache.lookup(str(source)).path == source
    assert cache.lookup(str(source) + "x") is None


# -- validity --------------------------------------------------------------------------------------------

T0 = datetime(2024, 5, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def verdict(temporal=None, checksum=None, now=T0, size=4, **fields):
    manifest = Manifest(**{"url": "u", "bytes": 4, "fetched_at": "2024-04-20T00:00:00Z", **fields})
    blob = StoredBlob(Path("/nowhere"), size, manifest)
    return judge(blob, checksum=checksum, temporal=temporal, since=now, now=now, ttl=DAY)


# spec: C4.1
def test_declared_checksum_decides_before_anything_else():
    right, wrong = "a" * 64, "b" * 64
    period = FilePeriod(end=None)
    assert verdict(checksum=right, temporal=period, sha256_content=right, etag="x") is Verdict.USE
    assert verdict(checksum=wrong, sha256_content=right) is Verdict.FETCH


# spec: C4.1
@pytest.mark.parametrize(
    "end",
    [
        datetime(2024, 4, 19, tzinfo=UTC),
        datetime(2024, 4, 19),  # noqa: DTZ001 - naive means UTC
        "2024-04-19",
        "2024-04-19T23:00:00Z",
        cftime.DatetimeNoLeap(2024, 4, 19),
        cftime.Datetime360Day(2024, 2, 30),
    ],
)
def test_a_period_closed_when_fetched_needs_no_network(end):
    assert verdict(temporal=FilePeriod(end=end), etag="x") is Verdict.USE


# spec: C4.1
def test_a_period_that_closed_after_the_fetch_is_asked_about():
    period = FilePeriod(end=datetime(2024, 4, 25, tzinfo=UTC))  # fetched on the 20th, now is May
    assert verdict(temporal=period, etag="x") is Verdict.ASK
    assert verdict(temporal=period, last_modified="x") is Verdict.ASK
    assert verdict(temporal=period) is Verdict.FETCH
    assert verdict(temporal=period, fetched_at=None) is Verdict.USE


# spec: C4.1
def test_an_open_period_without_validators_lives_for_its_ttl():
    period = FilePeriod(end=None)
    assert verdict(temporal=period, fetched_at="2024-04-30T13:00:00Z") is Verdict.USE
    assert verdict(temporal=period, fetched_at="2024-04-30T11:00:00Z") is Verdict.FETCH
    assert verdict(temporal=period, fetched_at="yesterday") is Verdict.FETCH


# spec: C4.1
def test_bytes_confirmed_while_we_waited_are_fresh():
    assert verdict(temporal=FilePeriod(end=None), etag="x", fetched_at="2024-05-01T12:00:00Z") is Verdict.USE


# spec: C1.6
def test_a_blob_of_another_size_than_its_manifest_says_is_fetched_again():
    assert verdict(size=5) is Verdict.FETCH


def test_closed_at_reads_every_kind_of_time():
    assert closed_at(FilePeriod(end=cftime.Datetime360Day(2001, 2, 30, 6))) == datetime(
        2001, 3, 2, 6, tzinfo=UTC
    )
    assert closed_at(FilePeriod(end=None)) is None


# spec: C5.6
def test_unchanged_file_is_not_copied_again_and_a_changed_one_is(cache, source):
    period = FilePeriod(end=None)
    first = cache.fetch(source.as_uri(), temporal=period)
    meta = cache.store.root / "v1/meta" / f"{first.key}.json"
    meta.write_text(meta.read_text().replace(first.manifest.fetched_at, "2020-01-01T00:00:00Z"))
    again = cache.fetch(source.as_uri(), temporal=period)
    assert again.status == "not_modified"
    assert again.manifest.fetched > datetime(2024, 1, 1, tzinfo=UTC)

    source.write_bytes(b"changed")
    meta.write_text(meta.read_text().replace(again.manifest.fetched_at, "2020-01-01T00:00:00Z"))
    with first.path.open("rb") as held:
        changed = cache.fetch(source.as_uri(), temporal=period)
        assert (changed.status, changed.path.read_bytes()) == ("downloaded", b"changed")
        assert held.read() == b"0123456789" * 1000  # an open file keeps the bytes it was opened with


# -- integrity -------------------------------------------------------------------------------------------


def test_wrong_checksum_is_refused_and_nothing_committed(cache, source):
    with pytest.raises(IntegrityError, match="declared checksum"):
        cache.fetch(source.as_uri(), expected_checksum="0" * 64)
    assert cache.lookup(source.as_uri()) is None
    assert list((cache.store.root / "v1/tmp").iterdir()) == []


# spec: C1.6
def test_a_blob_without_manifest_is_adopted_if_its_checksum_is_declared(cache, source):
    entry = cache.fetch(source.as_uri())
    (cache.store.root / "v1/meta" / f"{entry.key}.json").unlink()
    right = sha256_bytes(source.read_bytes())
    source.unlink()
    assert cache.fetch(source.as_uri(), expected_checksum=right).status == "hit"


def test_verify_heals_rotten_bytes_online_and_refuses_them_offline(cache, source):
    entry = cache.fetch(source.as_uri())
    rotten = bytearray(source.read_bytes())
    rotten[77] ^= 1
    entry.path.write_bytes(rotten)
    assert cache.fetch(source.as_uri()).status == "hit"
    with pytest.raises(IntegrityError, match="of their manifest"):
        Cache(root=cache.store.root, offline=True, verify=True).fetch(source.as_uri())
    healed = Cache(root=cache.store.root, offline=False, verify=True).fetch(source.as_uri())
    assert (healed.status, healed.path.read_bytes()) == ("downloaded", source.read_bytes())


def test_a_wrong_length_is_refused(cache, scripted):
    def short(request):
        return FetchResult(length=7)

    scripted({"test://h/a": short})
    with pytest.raises(IntegrityError, match="another length"):
        cache.fetch("test://h/a")


# -- mirrors ---------------------------------------------------------------------------------------------


def test_mirrors_are_tried_in_order_and_the_canonical_url_is_kept(cache, scripted):
    transport = scripted(
        {
            "test://one/a": TransportError("down"),
            "test://two/a": SourceNotFound("gone"),
            "test://three/a": b"bytes",
            "test://four/a": b"other",
        }
    )
    entry = cache.fetch("test://one/a", mirrors=["test://two/a", "test://three/a", "test://four/a"])
    assert entry.path.read_bytes() == b"bytes"
    assert [request.url for request in transport.asked] == ["test://one/a", "test://two/a", "test://three/a"]
    assert {request.home for request in transport.asked} == {"test://one/a"}
    assert entry.key == cache_key("test://one/a")
    assert entry.manifest.url == "test://one/a"
    assert entry.manifest.etag is None  # another server's validators mean nothing to the canonical one


def test_a_mirror_with_other_bytes_is_passed_over(cache, scripted):
    scripted({"test://one/a": b"wrong", "test://two/a": b"right"})
    entry = cache.fetch("test://one/a", mirrors=["test://two/a"], expected_checksum=sha256_bytes(b"right"))
    assert entry.path.read_bytes() == b"right"


def test_when_all_locations_fail_the_error_tells_of_each(cache, scripted):
    scripted({"test://one/a": SourceNotFound("gone"), "test://two/a": TransportError("down")})
    with pytest.raises(SourceNotFound, match=r"2 locations.*gone.*; down"):
        cache.fetch("test://one/a", mirrors=["test://two/a"])


# spec: C4.1
def test_not_modified_without_the_blob_asks_once_more_unconditionally(cache, scripted):
    def vanish(request):
        if not request.conditional:
            return b"again"
        next((cache.store.root / "v1/blobs").rglob("*.bin")).unlink()
        return FetchResult(not_modified=True)

    transport = scripted({"test://one/a": b"first"})
    entry = cache.fetch("test://one/a")
    age(cache, entry)
    transport.answers["test://one/a"] = vanish
    again = cache.fetch("test://one/a", temporal=FilePeriod(end=None))
    assert (again.status, again.path.read_bytes()) == ("downloaded", b"again")
    assert [request.conditional for request in transport.asked] == [False, True, False]


def test_not_modified_to_an_unconditional_request_is_an_error(cache, scripted):
    scripted({"test://one/a": FetchResult(not_modified=True)})
    with pytest.raises(TransportError, match="unconditional"):
        cache.fetch("test://one/a")


def age(cache: Cache, entry) -> None:
    meta = cache.store.root / "v1/meta" / f"{entry.key}.json"
    meta.write_text(meta.read_text().replace(entry.manifest.fetched_at, "2020-01-01T00:00:00Z"))


# -- site caches -----------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path, source):
    """A site-wide cache that holds the source and may not be written."""
    root = tmp_path / "site"
    Cache(root=root, offline=False).fetch(source.as_uri())
    for path in [root, *root.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield root
    for path in [root, *root.rglob("*")]:
        path.chmod(0o755)


# spec: C4.3
@pytest.mark.parametrize("offline", [True, False])
def test_a_site_cache_is_searched_after_the_private_one(tmp_path, source, site, offline):
    private = Cache(root=tmp_path / "private", site_roots=[tmp_path / "none", site], offline=offline)
    entry = private.fetch(source.as_uri())
    assert entry.status == "hit"
    assert entry.path.is_relative_to(site)
    assert not (tmp_path / "private").exists()


# spec: C4.3
def test_what_the_site_lacks_goes_to_the_private_cache(tmp_path, source, site, monkeypatch):
    monkeypatch.setenv("EARTHSCI_SITE_CACHE", f"{site}{os.pathsep}{tmp_path / 'none'}")
    private = Cache(root=tmp_path / "private", offline=False)
    other = tmp_path / "other.nc"
    other.write_bytes(b"other")
    assert private.fetch(other.as_uri()).path.is_relative_to(tmp_path / "private")
    assert private.fetch(source.as_uri()).path.is_relative_to(site)


# spec: C4.3
def test_a_stale_site_entry_is_confirmed_in_place_or_shadowed(tmp_path, source, scripted):
    site = Cache(root=tmp_path / "site", offline=False)
    transport = scripted({"test://one/a": b"first"})
    entry = site.fetch("test://one/a")
    age(site, entry)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "site").rglob("*")}
    private = Cache(root=tmp_path / "private", site_roots=[tmp_path / "site"], offline=False)

    transport.answers["test://one/a"] = FetchResult(not_modified=True)
    confirmed = private.fetch("test://one/a", temporal=FilePeriod(end=None))
    assert (confirmed.status, confirmed.path) == ("not_modified", entry.path)

    transport.answers["test://one/a"] = b"second"
    changed = private.fetch("test://one/a", temporal=FilePeriod(end=None))
    assert (changed.status, changed.path.read_bytes()) == ("downloaded", b"second")
    assert changed.path.is_relative_to(tmp_path / "private")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "site").rglob("*")} == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_an_unwritable_cache_says_so(tmp_path, source):
    (tmp_path / "cache").mkdir(mode=0o555)
    with pytest.raises(CacheStoreError, match="Permission denied"):
        Cache(root=tmp_path / "cache", offline=False).fetch(source.as_uri())


# -- manners ---------------------------------------------------------------------------------------------


def test_threads_that_want_one_file_fetch_it_once(cache, scripted):
    gate = threading.Event()

    def slow(request):
        gate.wait(30)
        return b"bytes" * 1000

    transport = scripted({"test://one/a": slow})
    entries = []
    threads = [threading.Thread(target=lambda: entries.append(cache.fetch("test://one/a"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join(60)
    assert len(transport.asked) == 1
    assert sorted(entry.status for entry in entries) == ["downloaded"] + ["hit"] * 7
    assert {entry.path.read_bytes() for entry in entries} == {b"bytes" * 1000}


def test_listeners_are_told_of_each_fetch(tmp_path, source):
    events = []
    cache = Cache(root=tmp_path / "cache", offline=False, listeners=[events.append])
    cache.fetch(source.as_uri())
    cache.fetch(source.as_uri())
    came = [event for event in events if isinstance(event, Receiving)]
    assert [(event.url, event.nbytes) for event in came][-1] == (source.as_uri(), 10000)
    events = [event for event in events if event not in came]
    assert all(isinstance(event, Fetched) for event in events)
    assert [(event.url, event.status, event.nbytes) for event in events] == [
        (source.as_uri(), "downloaded", 10000),
        (source.as_uri(), "hit", 10000),
    ]


def test_an_abort_ends_a_transfer_between_pieces(cache, tmp_path):
    class Abort:
        checks = 0

        def check(self):
            self.checks += 1
            if self.checks == 2:
                raise Cancelled("no longer wanted")

    big = tmp_path / "big"
    big.write_bytes(bytes(5 << 20))
    with pytest.raises(Cancelled):
        cache.fetch(big.as_uri(), abort=Abort())
    assert list((cache.store.root / "v1/tmp").iterdir()) == []
    assert cache.fetch(big.as_uri()).status == "downloaded"


def test_a_cache_pickles_without_its_connections(cache, source):
    cache.fetch(source.as_uri())
    copy = pickle.loads(pickle.dumps(cache))
    assert copy.fetch(source.as_uri()).status == "hit"
    assert copy.store.root == cache.store.root


def test_store_and_root_exclude_each_other(tmp_path):
    with pytest.raises(ValueError, match="not both"):
        Cache(LocalStore(tmp_path), root=tmp_path)
    with pytest.raises(BackendNotRegistered, match="Did you mean 'local'"):
        Cache(root=tmp_path, store_name="locale")


def test_errors_are_the_ones_plain_callers_catch(cache, tmp_path):
    with pytest.raises(OSError, match="no such file"):
        cache.fetch((tmp_path / "missing").as_uri())
    assert issubclass(SourceNotFound, FetchError)


def test_importing_the_cache_imports_no_network_and_no_lock_library():
    code = (
        "import sys, earthsciio.cache; "
        "heavy = {'requests', 'urllib3', 'obstore', 'filelock', 'platformdirs', 'xarray', 'scipy'}; "
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# -- network file systems --------------------------------------------------------------------------------


def test_a_stale_file_handle_counts_as_changed(cache, source, monkeypatch):
    entry = cache.fetch(source.as_uri())
    real = os.stat
    stale = iter([True])

    def stat(path, *arguments, **keywords):
        if str(path) == str(entry.path) and next(stale, False):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return real(path, *arguments, **keywords)

    monkeypatch.setattr(os, "stat", stat)
    again = cache.fetch(source.as_uri())
    assert (again.status, again.path) == ("hit", entry.path)  # looked at again under the lock
    assert next(stale, None) is None
