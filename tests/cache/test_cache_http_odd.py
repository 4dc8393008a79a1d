"""HTTP answers that are not what they should be: cut short behind an encoding, or with senseless headers."""

import gzip
import random
import zlib
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from earthsciio.cache import (
    Cache,
    FilePeriod,
    StaticHeaderAuth,
    cache_key,
    range_keyed_url,
    transport_registry,
)
from earthsciio.cache.transports import FetchRequest, Sink
from earthsciio.cache.transports.http import HttpTransport
from earthsciio.errors import AuthError, EarthSciIOError, TransportError

DATA = random.Random(1).randbytes(150_000) + bytes(range(256)) * 600
OPEN = FilePeriod(end=None)


def packed_by_gzip(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)  # the names of tests are the same in every process


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


PACKED = {
    "gzip": packed_by_gzip(DATA),
    "x-gzip": packed_by_gzip(DATA[:1000]) + packed_by_gzip(DATA[1000:]),
    "deflate": zlib.compress(DATA),
    "Deflate": raw_deflate(DATA),
    "deflate, gzip": packed_by_gzip(zlib.compress(DATA)),
}


@pytest.fixture
def naps(monkeypatch) -> list[float]:
    taken: list[float] = []

    def build() -> HttpTransport:
        return HttpTransport(connect_timeout=5, idle_timeout=5, sleep=taken.append)

    monkeypatch.setattr(transport_registry, "_factories", {**transport_registry._factories, "http": build})
    return taken


@pytest.fixture
def cache(tmp_path, naps):
    with Cache(root=tmp_path / "cache", offline=False) as cache:
        yield cache


def whole(handler, headers, body) -> None:
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def chunked(handler, headers, body) -> None:
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    for begin in range(0, len(body), 100_000):
        piece = body[begin : begin + 100_000]
        handler.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
    handler.wfile.write(b"0\r\n\r\n")


def until_closed(handler, headers, body) -> None:
    handler.send_header("Connection", "close")
    handler.end_headers()
    handler.wfile.write(body)
    handler.close_connection = True


def saying(body: bytes, headers: dict[str, str], framing=whole, status: int = 200):
    """Make the answer of a server."""

    def answer(handler) -> bool:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        framing(handler, headers, body)
        return True

    return answer


FRAMINGS = [whole, chunked, until_closed]


# -- encodings -------------------------------------------------------------------------------------------


# spec: C5.1
@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("encoding", PACKED)
def test_an_encoded_body_is_undone(server, cache, encoding, framing):
    server.faults["/a.nc"].append(saying(PACKED[encoding], {"Content-Encoding": encoding}, framing))
    assert cache.fetch(server.url("/a.nc")).path.read_bytes() == DATA


# spec: C5.1
@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("encoding", PACKED)
@pytest.mark.parametrize("missing", [1, 9, 500])
def test_an_encoded_body_that_stops_early_is_never_a_file(server, cache, encoding, framing, missing):
    packed = PACKED[encoding]
    cut = saying(packed[: max(0, len(packed) - missing)], {"Content-Encoding": encoding}, framing)
    server.faults["/a.nc"].extend([cut] * 9)
    with pytest.raises(TransportError, match="ended before the encoding did") as caught:
        cache.fetch(server.url("/a.nc"))
    assert caught.value.file == server.url("/a.nc")
    assert cache.lookup(server.url("/a.nc")) is None
    server.faults["/a.nc"].clear()
    url = server.serve("/a.nc", DATA)
    server.faults["/a.nc"].append(cut)
    assert cache.fetch(url).path.read_bytes() == DATA  # once more, and it came whole


@pytest.mark.parametrize(
    ("encoding", "body", "framing"),
    [
        (encoding, body, framing)
        for encoding, body in (
            ("gzip", PACKED["gzip"] + b"and more"),
            ("gzip", PACKED["gzip"][:-8] + bytes(8)),
            ("gzip", PACKED["gzip"] + b"\x1f\x8b\x08"),
            ("gzip", DATA),
            ("gzip", b""),
            ("deflate", PACKED["deflate"] + b"and more"),
            ("deflate", PACKED["deflate"][:-4] + bytes(4)),
            ("deflate", b"\x78"),
        )
        for framing in FRAMINGS
        if body or framing is not whole  # an announced empty body is an empty file
    ],
)
def test_a_body_that_is_not_what_its_encoding_says_is_an_error(server, cache, encoding, body, framing):
    server.faults["/a.nc"].extend([saying(body, {"Content-Encoding": encoding}, framing)] * 9)
    with pytest.raises(TransportError, match="encoding"):
        cache.fetch(server.url("/a.nc"))


def test_an_announced_empty_body_is_an_empty_file(server, cache):
    server.faults["/a.nc"].append(saying(b"", {"Content-Encoding": "gzip"}))
    assert cache.fetch(server.url("/a.nc")).path.read_bytes() == b""


# spec: C5.1
@pytest.mark.parametrize("encoding", ["br", "zstd", "compress", "gzip, br", "what", "g²"])
def test_an_encoding_we_cannot_undo_is_refused_and_not_stored(server, cache, encoding):
    server.faults["/a.nc"].append(saying(b"packed", {"Content-Encoding": encoding}))
    with pytest.raises(TransportError, match="Content-Encoding"):
        cache.fetch(server.url("/a.nc"))
    assert len(server.requests) == 1


@pytest.mark.parametrize("encoding", ["", "identity", "none", "utf-8", "aws-chunked", "identity, binary"])
def test_what_is_no_encoding_leaves_the_body_alone(server, cache, encoding):
    server.faults["/a.nc"].append(saying(DATA, {"Content-Encoding": encoding}))
    assert cache.fetch(server.url("/a.nc")).path.read_bytes() == DATA


def test_a_range_of_a_file_that_comes_encoded_and_whole(server, cache):
    url = server.url("/a.nc")
    packed = saying(PACKED["gzip"], {"Content-Encoding": "gzip"})
    server.faults["/a.nc"].append(packed)
    first = len(PACKED["gzip"])  # the range lies beyond the length that is announced
    entry = cache.fetch(range_keyed_url(url, first, first + 99))
    assert entry.path.read_bytes() == DATA[first : first + 100]
    server.faults["/a.nc"].extend([packed] * 9)
    with pytest.raises(TransportError):
        cache.fetch(range_keyed_url(url, 0, len(DATA)))


def test_a_part_of_an_encoded_file_is_refused(server, cache):
    headers = {"Content-Encoding": "gzip", "Content-Range": "bytes 0-99/5000"}
    server.faults["/a.nc"].append(saying(PACKED["gzip"][:100], headers, status=206))
    with pytest.raises(TransportError, match="part of an encoded"):
        cache.fetch(range_keyed_url(server.url("/a.nc"), 0, 99))


def test_a_body_that_unpacks_enormously_is_taken_in_pieces(server, naps):
    largest = 0

    class Counting(Sink):
        size = 0

        def write(self, data):
            nonlocal largest
            largest = max(largest, len(data))
            self.size += len(data)

        def restart(self):
            self.size = 0

    bomb = gzip.compress(bytes(64 << 20))
    server.faults["/a.nc"].append(saying(bomb, {"Content-Encoding": "gzip"}))
    url, sink = server.url("/a.nc"), Counting()
    HttpTransport().fetch(FetchRequest(url=url, home=url), sink)
    assert sink.size == 64 << 20
    assert largest <= 1 << 20


# -- headers ---------------------------------------------------------------------------------------------

NO_NUMBERS = ["²", "-5", "1e3", "0x10", "+5", "9" * 40, "9" * 5000, "five", "1,2", "\x00"]


# spec: C5.7
@pytest.mark.parametrize("value", NO_NUMBERS)
def test_a_length_that_is_none_is_an_error(server, cache, value):
    def answer(handler):
        handler.send_response(200)
        handler.wfile.write(b"".join(handler._headers_buffer))
        handler._headers_buffer = []
        handler.wfile.write(b"Content-Length: " + value.encode("latin-1") + b"\r\n\r\n" + DATA)
        handler.close_connection = True
        return True

    server.faults["/a.nc"].extend([answer] * 9)
    with pytest.raises(TransportError, match="Content-Length") as caught:
        cache.fetch(server.url("/a.nc"))
    assert not isinstance(caught.value, AuthError)
    assert server.url("/a.nc") in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_length_said_twice_counts_once(server, cache):
    def answer(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(DATA)))
        handler.send_header("Content-Length", str(len(DATA)))
        handler.end_headers()
        handler.wfile.write(DATA)
        return True

    server.faults["/a.nc"].append(answer)
    assert cache.fetch(server.url("/a.nc")).path.read_bytes() == DATA


def test_a_length_beside_chunks_does_not_count(server, cache):
    server.faults["/a.nc"].append(saying(DATA, {"Content-Length": "1000"}, chunked))
    assert cache.fetch(server.url("/a.nc")).path.read_bytes() == DATA


def test_a_transfer_encoding_we_did_not_ask_for_is_refused(server, cache):
    def answer(handler):
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "gzip, chunked")
        handler.end_headers()
        piece = PACKED["gzip"]
        handler.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n0\r\n\r\n")
        return True

    server.faults["/a.nc"].append(answer)
    with pytest.raises(TransportError, match="Transfer-Encoding"):
        cache.fetch(server.url("/a.nc"))


# spec: C5.7
@pytest.mark.parametrize(
    "value",
    [
        "bytes ²-9/300",
        f"bytes 0-{'9' * 5000}/300",
        f"bytes 0-9/{'9' * 5000}",
        f"bytes {'9' * 50}-{'9' * 50}/{'9' * 50}",
        "bytes 9-0/300",
        "bytes 0-9/5",
        "bytes -9/300",
        "\xff",
    ],
)
def test_a_senseless_content_range_is_an_error(server, cache, value):
    server.faults["/a.nc"].extend([saying(DATA[:10], {"Content-Range": value}, status=206)] * 9)
    with pytest.raises(TransportError, match="Content-Range") as caught:
        cache.fetch(range_keyed_url(server.url("/a.nc"), 0, 9))
    assert len(str(caught.value)) < 500


NO_DATES = [
    "²",
    "-5",
    "Fri, 31 Dec 99999 23:59:59 GMT",
    "Fri, 31 Dec 0000 23:59:59 GMT",
    "Mon, 01 Jan 0001 00:00:00 +2359",
    "Fri, 31 Dec 9999 23:59:59 -2359",
    "Fri, 31 Dec 2027 23:59:59 +99999999999999999999",
    "Fri, 99 Dec 2027 99:99:99 GMT",
    "\xff\xfe",
    "\x85",
    "",
]


# spec: C5.2
@pytest.mark.parametrize("value", NO_DATES)
def test_a_senseless_retry_after_is_ignored(server, cache, naps, value):
    url = server.serve("/a.nc", DATA)
    server.faults["/a.nc"].append(saying(b"", {"Retry-After": value}, status=503))
    assert cache.fetch(url).path.read_bytes() == DATA
    assert len(naps) == 1
    assert naps[0] <= 0.5


@pytest.mark.parametrize("value", ["9" * 5000, "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_an_endless_retry_after_is_given_up(server, cache, value):
    server.faults["/a.nc"].append(saying(b"", {"Retry-After": value}, status=503))
    with pytest.raises(TransportError, match="asks to wait") as caught:
        cache.fetch(server.url("/a.nc"))
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("value", NO_DATES)
def test_a_senseless_modification_time_does_not_hurt(server, cache, value):
    url = server.url("/a.nc")
    server.faults["/a.nc"].extend([saying(DATA, {"Last-Modified": value, "Date": value})] * 2)
    assert cache.fetch(url, settle=0.0).path.read_bytes() == DATA
    server.faults["/a.nc"].clear()
    server.serve("/a.nc", DATA)
    meta = cache.store.root / "v1/meta" / f"{cache_key(url)}.json"
    fetched_at = cache.fetch(url).manifest.fetched_at
    meta.write_text(meta.read_text().replace(fetched_at, "2020-01-01T00:00:00Z"))
    assert cache.fetch(url, temporal=OPEN).path.read_bytes() == DATA


# spec: C5.7
@pytest.mark.parametrize("name", ["ETag", "Last-Modified"])
@pytest.mark.parametrize("value", ["a\x01b", "\x85", "x" * 9000])
def test_a_validator_that_cannot_be_sent_back_counts_as_none(server, tmp_path, naps, name, value):
    url = server.serve("/a.nc", DATA, etag=None)
    server.faults["/a.nc"].append(saying(DATA, {name: value}))
    with Cache(root=tmp_path / "cache", offline=False, ttl=timedelta(0).total_seconds()) as cache:
        entry = cache.fetch(url, temporal=OPEN)
        assert (entry.manifest.etag, entry.manifest.last_modified) == (None, None)
        meta = cache.store.root / "v1/meta" / f"{entry.key}.json"
        meta.write_text(meta.read_text().replace(entry.manifest.fetched_at, "2020-01-01T00:00:00Z"))
        assert cache.fetch(url, temporal=OPEN).path.read_bytes() == DATA


def test_an_etag_beyond_ascii_goes_back_as_it_came(server, cache):
    url = server.serve("/a.nc", DATA, etag='"\xfc\xe9"')
    entry = cache.fetch(url, temporal=OPEN)
    meta = cache.store.root / "v1/meta" / f"{entry.key}.json"
    meta.write_text(meta.read_text().replace(entry.manifest.fetched_at, "2020-01-01T00:00:00Z"))
    assert cache.fetch(url, temporal=OPEN).status == "not_modified"


@pytest.mark.parametrize(
    "target", ["http://[::1/a", "http://h:port/a", "http://\xff:80:80/", "//[", "http://"]
)
def test_a_redirect_to_what_is_no_url_is_an_error(server, cache, target):
    server.faults["/a.nc"].append(saying(b"", {"Location": target}, status=302))
    with pytest.raises(TransportError) as caught:
        cache.fetch(server.url("/a.nc"))
    assert server.url("/a.nc") in str(caught.value)


def test_a_redirect_in_utf8_is_followed(server, cache):
    server.serve("/donn%C3%A9es.nc", DATA)
    target = "/données.nc".encode().decode("latin-1")
    server.faults["/a.nc"].append(saying(b"", {"Location": target}, status=302))
    assert cache.fetch(server.url("/a.nc")).path.read_bytes() == DATA


@pytest.mark.parametrize("token", ["€", "a\nb", "a\r\nX: y", "a\x00"])
def test_credentials_that_are_no_header_are_an_auth_error(server, tmp_path, naps, token):
    cache = Cache(root=tmp_path, offline=False, auth={"r": StaticHeaderAuth.bearer(token)})
    with cache, pytest.raises(AuthError, match="no legal header value") as caught:
        cache.fetch(server.serve("/a.nc", DATA), auth_realm="r")
    assert token not in str(caught.value)


def test_whatever_a_server_says_is_ours_to_tell(server, cache):
    """Lines no server should send; each ends in one of our errors, or in the right bytes."""
    lines = [
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200\r\n\r\n",
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 99999 OK\r\n\r\n",
        b"\x00\x01\x02\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nabcde\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"f" * 40 + b"\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 70_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\xb2\r\nabc\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: \xff\xfe\x00\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 500 \xff\xfe\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 206 Partial\r\nContent-Range: bytes 0-\r\n\r\n",
        b"HTTP/1.1 416 No\r\nContent-Range: bytes */x\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 204 None\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\n\r\n",
        b"HTTP/1.1 401 No\r\nWWW-Authenticate: \xff\r\nContent-Length: 0\r\n\r\n",
    ]
    for number, line in enumerate(lines):

        def answer(handler, line=line):
            handler.wfile.write(line)
            handler.wfile.flush()
            handler.close_connection = True
            return True

        path = f"/{number}.nc"
        server.faults[path].extend([answer] * 9)
        empty = line == lines[1]  # a body that ends with the connection, and has nothing in it
        with nullcontext() if empty else pytest.raises(EarthSciIOError, match=f"/{number}.nc"):
            assert cache.fetch(server.url(path)).path.read_bytes() == b""


# -- versions --------------------------------------------------------------------------------------------


# spec: C5.2
@pytest.mark.parametrize(("age", "resumed"), [(0, False), (59, False), (61, True), (None, False)])
def test_a_time_too_fresh_to_tell_versions_apart_is_not_resumed_by(server, cache, age, resumed):
    """Two versions may be written within a second, and the first of them be half fetched by then."""
    other = DATA if resumed else bytes(reversed(DATA))
    modified = datetime(2026, 1, 1, tzinfo=UTC)
    headers = {"Last-Modified": format_datetime(modified, usegmt=True)}
    if age is not None:
        headers["Date"] = format_datetime(modified + timedelta(seconds=age), usegmt=True)

    def cut(handler):
        handler.send_response_only(200)
        for name, value in {**headers, "Content-Length": str(len(DATA))}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(DATA[:100_000])
        handler.close_connection = True
        return True

    def rest(handler):
        if "Range" not in handler.headers:
            return saying(other, headers)(handler)
        part = {**headers, "Content-Range": f"bytes 100000-{len(DATA) - 1}/{len(DATA)}"}
        return saying(other[100_000:], part, status=206)(handler)

    server.faults["/a.nc"].extend([cut, rest])
    got = cache.fetch(server.url("/a.nc")).path.read_bytes()
    assert ("range" in server.asked("/a.nc")[1]) == resumed
    assert got == other
