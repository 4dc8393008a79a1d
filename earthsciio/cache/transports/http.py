"""``http:`` and ``https:`` URLs, over `requests`: patient with the network, strict about bytes and secrets.

One fetch is as many requests as it takes. Each continues where the last one stopped (``Range`` with
``If-Range``), so that bytes of two versions of a file never mix; a server that ignores or refuses the range
is read from the start again. Redirects are followed by hand, because each hop must be given the credentials
of its own host and of no other.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter

from earthsciio.cache.auth import basic_of_url, credentials_for, may_follow, netrc_headers, without_userinfo
from earthsciio.cache.manifest import as_validator
from earthsciio.cache.redact import redact
from earthsciio.cache.times import parse_http_date
from earthsciio.errors import AuthError, EarthSciIOError, SourceNotFound, TransportError

from . import FetchRequest, FetchResult, Sink
from .encodings import Damaged, codings, undo
from .retry import Passing, RetryPolicy, persist

__all__ = ["HttpTransport"]

_PIECE = 1 << 20
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MAX_REDIRECTS = 20
_SETTLED = timedelta(seconds=60)
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
# Sizes of up to 18 digits: what is longer is no file, and may be too long for an int.
_LENGTH = re.compile(r"[0-9]{1,18}")
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)")
_LEGAL_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_LEGAL_VALUE = re.compile(r"(?:[\x21-\x7e][\t\x20-\x7e\x80-\xff]*)?")
# A file stored compressed, and served under its own name as "encoded", is wanted as it is stored.
_STORED_ENCODINGS = {"gzip": (".gz", ".tgz"), "x-gzip": (".gz", ".tgz"), "br": (".br",), "zstd": (".zst",)}


@dataclass(slots=True)
class _Progress:
    """What is known of the bytes in the sink, from one attempt to the next."""

    request: FetchRequest
    sink: Sink
    etag: str | None = None
    last_modified: str | None = None
    length: int | None = None
    resumable: bool = False
    settled: bool = False

    @property
    def validator(self) -> str | None:
        """What ``If-Range`` may name: a strong etag, else a modification time that was settled by then."""
        if self.etag is not None and not self.etag.startswith("W/"):
            return self.etag
        return self.last_modified if self.settled else None

    def restart(self) -> None:
        self.sink.restart()
        self.etag = self.last_modified = self.length = None
        self.resumable = self.settled = False

    def headers(self) -> dict[str, str]:
        """Return the headers that ask for what is still missing."""
        headers = {"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": "earthsciio"}
        first, last = self.request.byte_range or (0, None)
        if self.sink.size and self.resumable and self.validator is not None:
            headers["If-Range"] = self.validator
            headers["Range"] = f"bytes={first + self.sink.size}-{'' if last is None else last}"
            return headers
        self.restart()
        if last is not None:
            headers["Range"] = f"bytes={first}-{last}"
        if self.request.etag is not None:
            headers["If-None-Match"] = self.request.etag
        if self.request.last_modified is not None:
            headers["If-Modified-Since"] = self.request.last_modified
        return headers

    def result(self) -> FetchResult:
        return FetchResult(etag=self.etag, last_modified=self.last_modified, length=self.length)


class HttpTransport:
    """Fetches over HTTP; connections and cookies are shared by all threads.

    Environment variables for proxies and certificates are those `requests` knows. A program that needs other
    settings registers its own, as in ``transport_registry.register("https", lambda: HttpTransport(...))``.

    Parameters
    ----------
    connect_timeout : float
        Seconds to wait for a connection.
    idle_timeout : float
        Seconds a transfer may stand still; there is no limit to a transfer that moves.
    retry : RetryPolicy
        When to try again.
    sleep : callable
        Waits the given seconds.
    """

    def __init__(
        self,
        *,
        connect_timeout: float = 15.0,
        idle_timeout: float = 60.0,
        retry: RetryPolicy | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._timeout = (connect_timeout, idle_timeout)
        self._retry = retry or RetryPolicy()
        self._sleep = sleep
        self._session = requests.Session()
        adapter = HTTPAdapter(pool_connections=32, pool_maxsize=64)
        self._session.mount("http://", adapter)
        self._session.mount("https://", adapter)
        _guard_logs()

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def fetch(self, request: FetchRequest, sink: Sink) -> FetchResult:
        """Write the bytes of a URL, or of a range of it, into ``sink``.

        Raises
        ------
        SourceNotFound
            404 or 410.
        AuthError
            401 or 403, or credentials that can't be sent.
        TransportError
            Anything else, after the retries that make sense.
        """
        progress = _Progress(request, sink)
        return persist(lambda: self._attempt(progress), request, sink, self._retry, self._sleep)

    # -- one attempt --------------------------------------------------------------------------------------

    def _attempt(self, progress: _Progress) -> FetchResult:
        response = self._send(progress.request, progress.headers())
        with response:
            if response.status_code == 304 and progress.request.conditional:
                return FetchResult(not_modified=True)
            if response.status_code in {200, 206}:
                return self._receive(response, progress)
            if response.status_code == 416 and progress.sink.size:
                progress.restart()
                raise Passing(TransportError("the server refused to resume", file=_name(progress.request)))
            raise _refusal(response, progress.request)

    def _receive(self, response: requests.Response, progress: _Progress) -> FetchResult:
        """Take in a body: a whole file, the wanted range of it, or what was missing of either."""
        encodings = _encodings(response, progress.request)
        skip = _accept(response, progress, encoded=bool(encodings))
        pieces = _body(response, encodings, progress.request)
        sink = progress.sink
        while progress.length is None or sink.size < progress.length:
            piece = _next_of(pieces, progress.request)
            if not piece:
                break
            if skip:
                skip, piece = max(0, skip - len(piece)), piece[skip:]
            if progress.length is not None:
                piece = piece[: progress.length - sink.size]
            if piece:
                sink.write(piece)
        if progress.length is not None and sink.size < progress.length:
            # The connection closed early, or the server sent less of the range than was asked for.
            text = f"the body ended after {sink.size} of {progress.length} bytes"
            raise Passing(TransportError(text, file=_name(progress.request)))
        return progress.result()

    def _send(self, request: FetchRequest, headers: dict[str, str]) -> requests.Response:
        """Send one GET, following redirects; each hop gets the credentials of its host only."""
        url = request.url
        for _ in range(_MAX_REDIRECTS):
            failure: EarthSciIOError | Passing
            try:
                response = self._get(url, headers | _credentials(url, request))
            except requests.exceptions.InvalidHeader as error:  # the server's: two lengths that differ
                failure = TransportError(f"a senseless answer: {str(error)[:200]}", file=_name(request))
            except ValueError:  # a port or an address that is none; the text would quote the URL
                failure = TransportError("not a URL that can be asked", file=_name(request))
            except requests.RequestException as error:
                failure = _connection_failure(error, request)
            else:
                if response.status_code not in _REDIRECTS or "Location" not in response.headers:
                    return response
                url = _redirected(response, url, request)
                continue
            raise failure
        raise TransportError(f"more than {_MAX_REDIRECTS} redirects", file=_name(request))

    def _get(self, url: str, headers: dict[str, str]) -> requests.Response:
        bare = without_userinfo(url)
        prepared = self._session.prepare_request(
            requests.Request("GET", bare, headers=headers, auth=_as_given)
        )
        settings: dict[str, Any] = dict(self._session.merge_environment_settings(bare, {}, True, None, None))
        return self._session.send(prepared, timeout=self._timeout, allow_redirects=False, **settings)


def _as_given(prepared: requests.PreparedRequest) -> requests.PreparedRequest:
    """Leave the headers alone: `requests` would put netrc's over ours."""
    return prepared


def _credentials(url: str, request: FetchRequest) -> dict[str, str]:
    """Return the credentials for one hop: those in its URL, else its realm's, else netrc's."""
    headers = (
        basic_of_url(url)
        or (basic_of_url(request.url) if may_follow(request.url, url) else {})
        or credentials_for(url, home=request.home, auth=request.auth)
        or netrc_headers(url, path=None)
    )
    if not all(map(_LEGAL_NAME.fullmatch, headers)) or not all(map(_LEGAL_VALUE.fullmatch, headers.values())):
        raise AuthError(
            "the credentials are no legal header value", file=_name(request), auth_realm=request.auth_realm
        )
    return headers


def _redirected(response: requests.Response, url: str, request: FetchRequest) -> str:
    location = response.headers["Location"]
    with suppress(UnicodeError):
        # A header is read as Latin-1; of a URL beyond ASCII the bytes are nearly always UTF-8.
        location = location.encode("latin-1").decode()
    try:
        with response:
            target = urljoin(without_userinfo(url), location)
        scheme = urlsplit(target).scheme
    except ValueError:
        raise _senseless("Location", location, request) from None
    if scheme not in {"http", "https"}:
        raise TransportError("redirected to what is not HTTP", file=_name(request), target=redact(target))
    return target


def _accept(response: requests.Response, progress: _Progress, *, encoded: bool) -> int:
    """Compare an answer with what is in the sink; return how many bytes of its body to skip."""
    first, last = progress.request.byte_range or (0, None)
    etag, modified = (as_validator(response.headers.get(name)) for name in ("ETag", "Last-Modified"))
    length = _length(response, progress.request)
    if response.status_code == 200:
        # The file from its start: asked for, changed since, or a server that ignores ranges.
        progress.restart()
        progress.settled = _is_settled(response)
        skip = first
        if encoded:
            length = None  # it is that of the encoded bytes; urllib3 sees to it that they all come
        if last is not None:
            if length is not None and last >= length:
                raise _short_of_range(progress.request, length)
            length = last + 1 - first
    else:
        begin, total = _content_range(response, progress)
        if progress.sink.size:
            # The rest may lack headers its beginning had; where both say something, it must agree.
            changed = _differ(etag, progress.etag) or _differ(modified, progress.last_modified)
            if last is None:
                changed |= None not in (total, progress.length) and total != progress.length
                total = progress.length if total is None else total
            etag, modified = etag or progress.etag, modified or progress.last_modified
        else:
            changed = False
            progress.settled = _is_settled(response)
        if begin != first + progress.sink.size or changed:
            progress.restart()
            raise Passing(
                TransportError(
                    "the file changed, or the server sent another range", file=_name(progress.request)
                )
            )
        if last is None and total is None:
            progress.restart()
            raise Passing(TransportError("a part of a file, of unknown length", file=_name(progress.request)))
        if last is not None and total is not None and last >= total:
            raise _short_of_range(progress.request, total)
        length = last + 1 - first if last is not None else total
        skip = 0
    progress.etag, progress.last_modified, progress.length = etag, modified, length
    progress.resumable = not encoded
    return skip


def _is_settled(response: requests.Response) -> bool:
    """Whether the modification time tells versions apart: it counts whole seconds (RFC 9110, 8.8.2.2)."""
    modified, sent = (parse_http_date(response.headers.get(name)) for name in ("Last-Modified", "Date"))
    return modified is not None and sent is not None and sent - modified >= _SETTLED


def _length(response: requests.Response, request: FetchRequest) -> int | None:
    """Return the announced length of the body; None without one, or where chunks make it void."""
    text = response.headers.get("Content-Length")
    transfer = response.headers.get("Transfer-Encoding")
    if transfer is not None:
        if any(name.strip().lower() not in {"chunked", "identity"} for name in transfer.split(",")):
            raise _senseless("Transfer-Encoding", transfer, request)
        if "chunked" in transfer.lower():
            return None
    if text is None:
        return None
    # Passed over, it would leave a body of which nobody could say whether it is whole.
    said = {part.strip() for part in text.split(",")}  # said twice, it comes as a list
    if len(said) != 1 or not _LENGTH.fullmatch(value := said.pop()):
        raise _senseless("Content-Length", text, request)
    return int(value)


def _encodings(response: requests.Response, request: FetchRequest) -> tuple[str, ...]:
    """Return the encodings to undo; none of a file that is stored encoded, and wanted so."""
    header = response.headers.get("Content-Encoding", "")
    names = codings(header)
    path = urlsplit(response.url or "").path.lower()
    if not names or (len(names) == 1 and path.endswith(_STORED_ENCODINGS.get(names[0], ()))):
        return ()
    if response.headers.get("Content-Length", "").strip() == "0":
        return ()  # an empty file, which need not be encoded
    if response.status_code == 206:
        # Of which version, the stored or the encoded one, can't be told.
        raise TransportError("a part of an encoded file", file=_name(request), encoding=header)
    if undo(names, iter(())) is None:
        raise TransportError(
            f"an encoding that can't be undone, Content-Encoding: {header[:80]!r}", file=_name(request)
        )
    return names


def _senseless(header: str, value: str, request: FetchRequest) -> TransportError:
    shown = redact(value if len(value) <= 80 else f"{value[:77]}...")
    return TransportError(f"an answer with the senseless header {header}: {shown!r}", file=_name(request))


def _differ(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and one != other


def _content_range(response: requests.Response, progress: _Progress) -> tuple[int, int | None]:
    text = response.headers.get("Content-Range", "")
    match = _CONTENT_RANGE.fullmatch(text.strip())
    if match is not None:
        begin, end = int(match[1]), int(match[2])
        total = None if match[3] == "*" else int(match[3])
        if begin <= end and (total is None or end < total):
            return begin, total
    progress.restart()
    raise Passing(_senseless("Content-Range", text, progress.request))


def _short_of_range(request: FetchRequest, total: int) -> TransportError:
    return TransportError("the byte range ends after the file does", file=_name(request), size=total)


def _body(response: requests.Response, encodings: tuple[str, ...], request: FetchRequest) -> Iterator[bytes]:
    """Yield the pieces of a body, its encodings undone."""
    # One receive at a time: what arrived before a connection broke is kept.
    received = iter(lambda: _read(response, request), b"")
    return undo(encodings, received) or received


def _next_of(pieces: Iterator[bytes], request: FetchRequest) -> bytes:
    """Return the next piece of a body, none at its end."""
    try:
        return next(pieces, b"")
    except Damaged as error:
        failure = Passing(TransportError(str(error), file=_name(request)))
    raise failure


def _read(response: requests.Response, request: FetchRequest) -> bytes:
    raw: urllib3.HTTPResponse = response.raw
    try:
        return raw.read1(_PIECE, decode_content=False) or b""
    except (urllib3.exceptions.HTTPError, OSError) as error:
        if isinstance(error, urllib3.exceptions.ReadTimeoutError):
            text = "the transfer stood still for longer than the idle timeout"
        elif any(isinstance(part, urllib3.exceptions.IncompleteRead) for part in (error, *error.args)):
            text = "the connection closed before the body was complete"
        else:
            text = f"the transfer broke off: {redact(str(error))}"
        failure = Passing(TransportError(text, file=_name(request)))
    raise failure


def _refusal(response: requests.Response, request: FetchRequest) -> Exception:
    status = response.status_code
    about: dict[str, Any] = {"file": _name(request), "status": status}
    said = f"the server answered {status} {response.reason or ''}".rstrip()
    if status in {404, 410}:
        return SourceNotFound(said, **about)
    if status in {401, 403}:
        realm = request.auth_realm
        where = f"the credentials of realm {realm!r}" if realm and request.auth else "credentials"
        hint = f"Check {where}: Cache(auth={{realm: StaticHeaderAuth.bearer(...)}}) or netrc"
        if realm and request.auth is None:
            hint = f"No credentials are configured for realm {realm!r}; netrc was looked at. {hint}"
        return AuthError(said, auth_realm=realm, hint=hint, **about)
    error = TransportError(said, **about)
    if status in _PASSING:
        return Passing(error, _retry_after(response.headers.get("Retry-After")))
    return error


def _retry_after(text: str | None) -> float | None:
    """Read ``Retry-After``: seconds, or a date; None if it is neither."""
    if text is None:
        return None
    if re.fullmatch(r"\s*[0-9]+\s*", text):
        return min(float(text), 1e10)  # a number that can be told
    when = parse_http_date(text)
    return None if when is None else max(0.0, (when - datetime.now(UTC)).total_seconds())


def _connection_failure(error: requests.RequestException, request: FetchRequest) -> TransportError | Passing:
    failure = TransportError(f"no connection: {redact(str(error))}", file=_name(request))
    certificate = isinstance(error, requests.exceptions.SSLError)
    passing = isinstance(error, (requests.ConnectionError, requests.Timeout)) and not certificate
    return Passing(failure) if passing else failure


def _name(request: FetchRequest) -> str:
    return redact(request.url)


def _redact_record(record: logging.LogRecord) -> bool:
    """Take credentials out of a log record of a library below us: they log URLs."""
    if isinstance(record.args, tuple):
        record.args = tuple(redact(arg) if isinstance(arg, str) else arg for arg in record.args)
    return True


def _guard_logs() -> None:
    for name in ("urllib3.connectionpool", "urllib3.util.retry"):
        logging.getLogger(name).addFilter(_redact_record)  # adding it again changes nothing
