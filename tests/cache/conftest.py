"""A real HTTP server on the loopback interface that misbehaves on demand."""

import http.server
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from email.utils import formatdate

import pytest

LAST_MODIFIED = formatdate(1_700_000_000, usegmt=True)


class Loopback(http.server.ThreadingHTTPServer):
    """Serves ``files``; before that, plays the ``faults`` queued for a path, one per request."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.etags: dict[str, str | None] = {}
        self.faults: dict[str, deque[Callable[[_Handler], bool]]] = defaultdict(deque)
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.commands: list[str] = []
        self.connections = 0

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.server_port}{path}"

    def serve(self, path: str, data: bytes, etag: str | None = '"v1"') -> str:
        self.files[path] = data
        self.etags[path] = etag
        return self.url(path)

    def asked(self, path: str) -> list[dict[str, str]]:
        return [headers for asked, headers in self.requests if asked == path]

    def get_request(self):
        self.connections += 1
        return super().get_request()

    def handle_error(self, request, client_address) -> None:
        pass  # clients that hang up are part of the tests


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Loopback

    def log_message(self, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.server.commands.append(f"{self.command} {path}")
        self.server.requests.append((path, {name.lower(): value for name, value in self.headers.items()}))
        faults = self.server.faults[path]
        if faults and faults.popleft()(self):
            return
        if path not in self.server.files:
            self.answer(404)
            return
        data, etag = self.server.files[path], self.server.etags[path]
        validators = {"Last-Modified": LAST_MODIFIED, **({"ETag": etag} if etag else {})}
        if etag and self.headers.get("If-None-Match") == etag:
            self.answer(304, validators)
            return
        if self.headers.get("If-Match", etag) != etag:
            self.answer(412, validators)
            return
        span = self.headers.get("Range")
        if span and self.headers.get("If-Range", etag) in {etag, LAST_MODIFIED}:
            first, _, last = span.removeprefix("bytes=").partition("-")
            begin, end = int(first), min(int(last or len(data) - 1), len(data) - 1)
            if begin >= len(data):
                self.answer(416)
                return
            validators["Content-Range"] = f"bytes {begin}-{end}/{len(data)}"
            self.answer(206, validators, data[begin : end + 1])
            return
        self.answer(200, validators, data)

    def do_HEAD(self) -> None:
        self.do_GET()

    def answer(self, status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> bool:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status != 304:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        return True

    def cut(self, sent: int, headers: dict[str, str] | None = None) -> bool:
        """Announce the whole file, send the beginning, hang up."""
        path = self.path.partition("?")[0]
        data, etag = self.server.files[path], self.server.etags[path]
        self.send_response(200)
        validators = {"Last-Modified": LAST_MODIFIED, **({"ETag": etag} if etag else {})}
        for name, value in {**validators, **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[:sent])
        self.wfile.flush()
        self.close_connection = True
        return True


@pytest.fixture
def server() -> Iterator[Loopback]:
    loopback = Loopback()
    thread = threading.Thread(target=loopback.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield loopback
    loopback.shutdown()
    thread.join()
    loopback.server_close()


@pytest.fixture(autouse=True)
def own_environment(monkeypatch, tmp_path_factory):
    """Keep the user's netrc, proxies and caches out of the tests."""
    empty = tmp_path_factory.mktemp("home") / "netrc"
    empty.touch()
    monkeypatch.setenv("NETRC", str(empty))
    for name in ("EARTHSCI_OFFLINE", "EARTHSCI_SITE_CACHE", "EARTHSCIDATADIR"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "*")
