"""HTTP over a real loopback server: what it does to us, and what we do then."""

import gzip
import logging
import threading
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from earthsciio.cache import Cache, FilePeriod, range_keyed_url, sha256_bytes, transport_registry
from earthsciio.cache.transports.http import HttpTransport
from earthsciio.cache.transports.retry import RetryPolicy
from earthsciio.errors import AuthError, Cancelled, IntegrityError, SourceNotFound, TransportError

DATA = bytes(range(256)) * 1200  # 300 kB, every piece of it different from its neighbours
OPEN = FilePeriod(end=None)


@pytest.fixture
def naps(monkeypatch) -> list[float]:
    """Register an impatient transport: 1 s idle timeout, pauses recorded instead of slept."""
    taken: list[float] = []

    def build() -> HttpTransport:
        return HttpTransport(connect_timeout=5, idle_timeout=1, sleep=taken.append)

    factories = {**transport_registry._factories, "http": build}
    monkeypatch.setattr(transport_registry, "_factories", factories)
    return taken


@pytest.fixture
def cache(tmp_path, naps):
    with Cache(root=tmp_path / "cache", offline=False) as cache:
        yield cache


def left_over(cache: Cache) -> list:
    return list((cache.store.root / "v1/tmp").iterdir())


def age(cache: Cache, entry) -> None:
    meta = cache.store.root / "v1/meta" / f"{entry.key}.json"
    meta.write_text(meta.read_text().replace(entry.manifest.fetched_at, "2020-01-01T00:00:00Z"))


# -- the good days ---------------------------------------------------------------------------------------


def test_a_file_is_streamed_into_the_cache_with_its_validators(server, cache, naps):
    url = server.serve("/a.nc", DATA)
    entry = cache.fetch(url)
    assert (entry.status, entry.path.read_bytes()) == ("downloaded", DATA)
    assert entry.manifest.etag == '"v1"'
    assert entry.manifest.last_modified == "Tue, 14 Nov 2023 22:13:20 GMT"
    assert cache.fetch(url).status == "hit"
    assert len(server.requests) == 1
    assert naps == []


def test_connections_are_kept_for_the_next_file(server, cache):
    for number in range(5):
        cache.fetch(server.serve(f"/{number}.nc", DATA))
    assert len(server.requests) == 5
    assert server.connections == 1


def test_an_empty_file_and_one_without_length(server, cache):
    assert cache.fetch(server.serve("/empty", b"")).path.read_bytes() == b""

    def chunked(handler):
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for begin in range(0, len(DATA), 100_000):
            piece = DATA[begin : begin + 100_000]
            handler.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        handler.wfile.write(b"0\r\n\r\n")
        return True

    server.faults["/chunked"].append(chunked)
    assert cache.fetch(server.url("/chunked")).path.read_bytes() == DATA


def test_a_byte_range_fetches_only_that(server, cache):
    url = server.serve("/a.nc", DATA)
    entry = cache.fetch(range_keyed_url(url, 1000, 1099))
    assert entry.path.read_bytes() == DATA[1000:1100]
    assert server.asked("/a.nc")[0]["range"] == "bytes=1000-1099"


def test_a_byte_range_from_a_server_that_ignores_it(server, cache):
    url = server.serve("/a.nc", DATA)
    server.faults["/a.nc"].append(lambda handler: handler.answer(200, {"ETag": '"v1"'}, DATA))
    assert cache.fetch(range_keyed_url(url, 1000, 1099)).path.read_bytes() == DATA[1000:1100]
    with pytest.raises(TransportError, match="ends after the file does"):
        cache.fetch(range_keyed_url(url, 0, len(DATA)))


def test_conditional_get_confirms_or_replaces(server, cache):
    url = server.serve("/a.nc", DATA)
    entry = cache.fetch(url, temporal=OPEN)
    age(cache, entry)
    again = cache.fetch(url, temporal=OPEN)
    assert (again.status, again.path) == ("not_modified", entry.path)
    assert server.asked("/a.nc")[1]["if-none-match"] == '"v1"'
    age(cache, again)
    server.serve("/a.nc", b"new", '"v2"')
    changed = cache.fetch(url, temporal=OPEN)
    assert (changed.status, changed.path.read_bytes(), changed.manifest.etag) == (
        "downloaded",
        b"new",
        '"v2"',
    )


def test_304_with_the_blob_gone_asks_once_more_unconditionally(server, cache):
    url = server.serve("/a.nc", DATA)
    entry = cache.fetch(url, temporal=OPEN)
    age(cache, entry)
    server.faults["/a.nc"].append(lambda handler: bool(entry.path.unlink()))  # between question and answer
    again = cache.fetch(url, temporal=OPEN)
    assert (again.status, again.path.read_bytes()) == ("downloaded", DATA)
    assert ["if-none-match" in asked for asked in server.asked("/a.nc")] == [False, True, False]


def test_a_blob_deleted_beside_its_manifest_is_fetched_unconditionally(server, cache):
    url = server.serve("/a.nc", DATA)
    cache.fetch(url, temporal=OPEN).path.unlink()
    assert cache.fetch(url, temporal=OPEN).path.read_bytes() == DATA
    assert "if-none-match" not in server.asked("/a.nc")[1]


# -- encodings -------------------------------------------------------------------------------------------


# spec: C5.1
def test_we_ask_for_bytes_as_they_are_stored(server, cache):
    cache.fetch(server.serve("/a.nc", DATA))
    assert server.asked("/a.nc")[0]["accept-encoding"] == "identity"


# spec: C5.1
def test_a_server_that_compresses_all_the_same_is_undone(server, cache):
    packed = gzip.compress(DATA)
    server.faults["/a.nc"].append(lambda handler: handler.answer(200, {"Content-Encoding": "gzip"}, packed))
    assert cache.fetch(server.url("/a.nc")).path.read_bytes() == DATA


# spec: C5.1
def test_a_file_stored_compressed_stays_compressed(server, cache):
    packed = gzip.compress(DATA)
    server.faults["/a.nc.gz"].append(
        lambda handler: handler.answer(200, {"Content-Encoding": "x-gzip"}, packed)
    )
    assert cache.fetch(server.url("/a.nc.gz")).path.read_bytes() == packed


# -- statuses --------------------------------------------------------------------------------------------


# spec: C5.3
@pytest.mark.parametrize(
    ("status", "kind"), [(404, SourceNotFound), (410, SourceNotFound), (403, AuthError), (401, AuthError)]
)
def test_final_answers_are_not_asked_for_again(server, cache, naps, status, kind):
    server.faults["/a.nc"].append(lambda handler: handler.answer(status))
    with pytest.raises(kind, match=f"{status}.*a.nc"):
        cache.fetch(server.url("/a.nc"))
    assert len(server.requests) == 1
    assert naps == []
    assert left_over(cache) == []


def test_an_unknown_answer_is_an_error(server, cache):
    server.faults["/a.nc"].append(lambda handler: handler.answer(418))
    with pytest.raises(TransportError, match="418"):
        cache.fetch(server.url("/a.nc"))


def test_a_server_in_trouble_is_asked_again_with_growing_pauses(server, cache, naps):
    url = server.serve("/a.nc", DATA)
    for status in (500, 503, 502):
        server.faults["/a.nc"].append(lambda handler, status=status: handler.answer(status))
    assert cache.fetch(url).path.read_bytes() == DATA
    assert len(naps) == 3
    for pause, longest in zip(naps, (0.5, 1.0, 2.0), strict=True):
        assert longest / 2 <= pause <= longest


def test_a_server_that_stays_in_trouble_is_given_up(server, cache, naps):
    server.faults["/a.nc"].extend([lambda handler: handler.answer(500)] * 9)
    with pytest.raises(TransportError, match=r"500.*5 attempts") as caught:
        cache.fetch(server.url("/a.nc"))
    assert (caught.value.status, caught.value.file) == (500, server.url("/a.nc"))
    assert str(caught.value).count(TransportError.hint) == str(caught.value).count("file=") == 1
    assert len(server.requests) == 5


# spec: C5.2
def test_retry_after_is_respected(server, cache, naps):
    url = server.serve("/a.nc", DATA)
    server.faults["/a.nc"].append(lambda handler: handler.answer(429, {"Retry-After": "17"}))
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    server.faults["/a.nc"].append(lambda handler: handler.answer(503, {"Retry-After": later}))
    server.faults["/a.nc"].append(lambda handler: handler.answer(503, {"Retry-After": "soon"}))
    assert cache.fetch(url).path.read_bytes() == DATA
    assert naps[0] == 17
    assert 40 < naps[1] <= 60
    assert naps[2] <= 2


def test_a_server_that_asks_for_too_much_patience_is_given_up(server, cache):
    server.faults["/a.nc"].append(lambda handler: handler.answer(429, {"Retry-After": "86400"}))
    with pytest.raises(TransportError, match="86400 s"):
        cache.fetch(server.url("/a.nc"))


# spec: C5.2
def test_pauses_grow_to_a_cap_and_are_random():
    policy = RetryPolicy(base_seconds=1, cap_seconds=10)
    for failures, longest in ((1, 1), (2, 2), (4, 8), (5, 10), (50, 10)):
        pauses = {policy.pause(failures) for _ in range(50)}
        assert longest / 2 <= min(pauses) < max(pauses) <= longest
    with pytest.raises(ValueError, match="at least one attempt"):
        RetryPolicy(attempts=0)


# -- bodies that stop ------------------------------------------------------------------------------------


# spec: C5.2
def test_a_truncated_body_is_resumed_where_it_stopped(server, cache):
    url = server.serve("/a.nc", DATA)
    server.faults["/a.nc"].append(lambda handler: handler.cut(100_000))
    entry = cache.fetch(url)
    assert entry.path.read_bytes() == DATA
    assert entry.manifest.sha256_content == sha256_bytes(DATA)
    second = server.asked("/a.nc")[1]
    assert (second["range"], second["if-range"]) == ("bytes=100000-", '"v1"')


def test_a_body_truncated_again_and_again_goes_on_as_long_as_it_moves(server, cache):
    url = server.serve("/a.nc", DATA)

    def a_little(handler):
        begin = int(handler.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
        handler.send_response(206 if begin else 200)
        if begin:
            handler.send_header("Content-Range", f"bytes {begin}-{len(DATA) - 1}/{len(DATA)}")
        handler.send_header("ETag", '"v1"')
        handler.send_header("Content-Length", str(len(DATA) - begin))
        handler.end_headers()
        handler.wfile.write(DATA[begin : begin + 20_000])
        handler.close_connection = True
        return True

    server.faults["/a.nc"].extend([a_little] * 12)
    assert cache.fetch(url).path.read_bytes() == DATA


# spec: C5.2
def test_a_body_that_never_gets_further_is_given_up(server, cache):
    url = server.serve("/a.nc", DATA, etag=None)
    server.faults["/a.nc"].extend([lambda handler: handler.cut(0)] * 9)
    with pytest.raises(TransportError, match=r"closed before the body was complete.*5 attempts"):
        cache.fetch(url)
    assert left_over(cache) == []


# spec: C5.3
def test_a_stalled_body_ends_by_the_idle_timeout_and_is_resumed(server, cache):
    url = server.serve("/a.nc", DATA)
    gate = threading.Event()

    def stall(handler):
        handler.cut(50_000)
        handler.wfile.flush()
        gate.wait(30)  # keeps the connection open, and silent
        return True

    server.faults["/a.nc"].append(stall)
    try:
        assert cache.fetch(url).path.read_bytes() == DATA
    finally:
        gate.set()
    assert server.asked("/a.nc")[1]["range"] == "bytes=50000-"


def test_resume_with_an_ignored_range_starts_over(server, cache):
    url = server.serve("/a.nc", DATA)
    server.faults["/a.nc"].append(lambda handler: handler.cut(100_000))
    server.faults["/a.nc"].append(lambda handler: handler.answer(200, {"ETag": '"v1"'}, DATA))
    assert cache.fetch(url).path.read_bytes() == DATA


def test_resume_of_a_file_that_changed_never_mixes_versions(server, cache):
    new = bytes(reversed(DATA))
    url = server.serve("/a.nc", DATA)

    def cut_and_change(handler):
        handler.cut(100_000)
        return bool(server.serve("/a.nc", new, '"v2"'))

    server.faults["/a.nc"].append(cut_and_change)
    entry = cache.fetch(url)
    assert entry.path.read_bytes() == new
    assert entry.manifest.etag == '"v2"'


def test_a_server_that_resumes_another_version_is_caught(server, cache):
    new = bytes(reversed(DATA))
    url = server.serve("/a.nc", DATA)

    def careless(handler):  # ignores If-Range
        server.serve("/a.nc", new, '"v2"')
        headers = {"ETag": '"v2"', "Content-Range": f"bytes 100000-{len(new) - 1}/{len(new)}"}
        return handler.answer(206, headers, new[100_000:])

    server.faults["/a.nc"].append(lambda handler: handler.cut(100_000))
    server.faults["/a.nc"].append(careless)
    assert cache.fetch(url).path.read_bytes() == new


def test_a_resumed_answer_of_another_total_starts_over(server, cache):
    new = bytes(reversed(DATA)) + b"longer"
    url = server.serve("/a.nc", DATA)

    def other_length(handler):  # with no validator that would tell
        server.serve("/a.nc", new, '"v2"')
        headers = {"Content-Range": f"bytes 100000-{len(new) - 1}/{len(new)}"}
        return handler.answer(206, headers, new[100_000:])

    server.faults["/a.nc"].append(lambda handler: handler.cut(100_000))
    server.faults["/a.nc"].append(other_length)
    assert cache.fetch(url).path.read_bytes() == new


def test_a_resumed_answer_without_total_must_reach_the_announced_length(server, cache):
    url = server.serve("/a.nc", DATA)

    def short(handler):
        headers = {"ETag": '"v1"', "Content-Range": "bytes 100000-100099/*"}
        return handler.answer(206, headers, DATA[100_000:100_100])

    server.faults["/a.nc"].append(lambda handler: handler.cut(100_000))
    server.faults["/a.nc"].append(short)
    assert cache.fetch(url).path.read_bytes() == DATA


def test_a_part_that_nobody_asked_for_is_not_the_file(server, cache):
    url = server.serve("/a.nc", DATA)
    headers = {"Content-Range": "bytes 0-999/*"}
    server.faults["/a.nc"].append(lambda handler: handler.answer(206, headers, DATA[:1000]))
    assert cache.fetch(url).path.read_bytes() == DATA


# spec: C5.2
def test_without_validators_a_transfer_is_not_resumed_but_restarted(server, cache):
    url = server.serve("/a.nc", DATA, etag='W/"weak"')
    server.faults["/a.nc"].append(lambda handler: handler.cut(100_000, {"Last-Modified": ""}))
    assert cache.fetch(url).path.read_bytes() == DATA
    assert "range" not in server.asked("/a.nc")[1]


@pytest.mark.parametrize("content_range", [None, "bytes 5-9/300", "pages 1-2/3"])
def test_a_partial_answer_to_another_question_starts_over(server, cache, content_range):
    url = server.serve("/a.nc", DATA)
    server.faults["/a.nc"].append(lambda handler: handler.cut(100_000))
    headers = {"Content-Range": content_range} if content_range else {}
    server.faults["/a.nc"].append(lambda handler: handler.answer(206, headers, b"xxxxx"))
    assert cache.fetch(url).path.read_bytes() == DATA


def test_a_refused_range_starts_over(server, cache):
    url = server.serve("/a.nc", DATA)
    server.faults["/a.nc"].append(lambda handler: handler.cut(100_000))
    server.faults["/a.nc"].append(lambda handler: handler.answer(416))
    assert cache.fetch(url).path.read_bytes() == DATA


def test_wrong_bytes_are_refused_by_their_checksum(server, cache):
    url = server.serve("/a.nc", DATA)
    with pytest.raises(IntegrityError, match="declared checksum"):
        cache.fetch(url, expected_checksum=sha256_bytes(b"other"))
    assert left_over(cache) == []


def test_a_dead_port_is_a_transport_error_after_retries(cache, naps):
    with pytest.raises(TransportError, match="no connection") as caught:
        cache.fetch("http://127.0.0.1:9/a.nc")
    assert len(naps) == 4
    assert caught.value.__context__ is None


def test_an_abort_ends_the_wait_between_attempts(server, cache):
    class Abort:
        def check(self):
            if server.requests:
                raise Cancelled("no longer wanted")

    server.faults["/a.nc"].extend([lambda handler: handler.answer(503)] * 9)
    with pytest.raises(Cancelled):
        cache.fetch(server.url("/a.nc"), abort=Abort())
    assert len(server.requests) == 1


# -- redirects -------------------------------------------------------------------------------------------


def test_redirects_are_followed_and_the_canonical_url_kept(server, cache):
    server.serve("/there/a.nc", DATA)
    server.faults["/a.nc"].append(lambda handler: handler.answer(302, {"Location": "/there/a.nc"}))
    entry = cache.fetch(server.url("/a.nc"))
    assert entry.path.read_bytes() == DATA
    assert entry.manifest.url == server.url("/a.nc")


def test_redirects_in_a_circle_and_out_of_http_are_errors(server, cache):
    server.faults["/a.nc"].extend([lambda handler: handler.answer(302, {"Location": "/a.nc"})] * 30)
    with pytest.raises(TransportError, match="20 redirects"):
        cache.fetch(server.url("/a.nc"))
    server.faults["/b.nc"].append(lambda handler: handler.answer(302, {"Location": "file:///etc/passwd"}))
    with pytest.raises(TransportError, match="not HTTP"):
        cache.fetch(server.url("/b.nc"))


def test_a_mirror_takes_over_from_a_dead_host(server, cache):
    mirror = server.serve("/mirror/a.nc", DATA)
    entry = cache.fetch("http://127.0.0.1:9/a.nc", mirrors=[mirror])
    assert entry.path.read_bytes() == DATA
    assert entry.manifest.url == "http://127.0.0.1:9/a.nc"
    assert entry.manifest.etag is None


def test_log_records_say_what_happened(server, cache, caplog):
    caplog.set_level(logging.INFO, "earthsciio.cache")
    cache.fetch(server.serve("/a.nc", DATA))
    assert f"fetched {server.url('/a.nc')}: 307200 bytes" in caplog.text


@pytest.mark.parametrize("url", ["http://h:port/a", "http://[::1/a", "http:///a", "http://"])
def test_what_is_no_url_is_a_transport_error(cache, url):
    with pytest.raises(TransportError):
        cache.fetch(url)
