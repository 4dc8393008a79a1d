"""``file:`` URLs: a copy of a local file into the cache, as from any other source."""

from __future__ import annotations

import os
from collections.abc import Callable
from email.utils import format_datetime
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from earthsciio.cache.absence import is_path_absent
from earthsciio.cache.times import time_of_file
from earthsciio.errors import SourceNotFound, SourceUnclear, TransportError
from earthsciio.regular import open_regular

from . import FetchRequest, FetchResult, Sink

__all__ = ["FileTransport", "path_of"]

T = TypeVar("T")
_PIECE = 1 << 20


class FileTransport:
    """Copies local files; size and modification time serve as validators."""

    def fetch(self, request: FetchRequest, sink: Sink) -> FetchResult:
        """Copy the file, or its byte range, into ``sink``.

        Raises
        ------
        SourceNotFound
            If there is no such file.
        TransportError
            If it is no regular file, can't be read, has not all of the range, or changes while it is read.
        """
        path = path_of(request.url)
        descriptor = _reading(path, open_regular, path)
        try:
            before = os.fstat(descriptor)
            etag = _etag(before)
            if request.etag == etag:
                return FetchResult(not_modified=True)
            first, last = request.byte_range or (0, before.st_size - 1)
            if last >= before.st_size:
                raise TransportError(
                    "the byte range ends after the file does", file=path, last=last, size=before.st_size
                )
            os.lseek(descriptor, first, os.SEEK_SET)
            length = last + 1 - first
            while sink.size < length:
                piece = _reading(path, os.read, descriptor, min(_PIECE, length - sink.size))
                if not piece:
                    break
                sink.write(piece)
            if _etag(os.fstat(descriptor)) != etag:
                raise TransportError("the file changed while it was copied", file=path)
        finally:
            os.close(descriptor)
        return FetchResult(
            etag=etag,
            last_modified=format_datetime(time_of_file(before.st_mtime), usegmt=True),
            length=length,
        )

    def close(self) -> None:
        """Nothing is kept open."""


def path_of(url: str) -> str:
    """Return the path a ``file:`` URL means.

    Raises
    ------
    TransportError
        If it names another host.

    Examples
    --------
    >>> path_of("file:///data/my%20winds.nc")
    '/data/my winds.nc'
    """
    parts = urlsplit(url)
    if parts.netloc not in {"", "localhost"}:
        raise TransportError("a file: URL of another host", file=url, hint="Write file:///absolute/path")
    return unquote(parts.path)


def _etag(status: os.stat_result) -> str:
    return f'"{status.st_size:x}-{status.st_mtime_ns:x}"'


def _reading(path: str, call: Callable[..., T], *arguments: object) -> T:
    try:
        return call(*arguments)
    except FileNotFoundError:
        kind = SourceNotFound if is_path_absent(path) else SourceUnclear
        raise kind("no such file", file=path) from None
    except OSError as error:
        raise TransportError(f"can't be read: {error.strerror}", file=path) from error
    except ValueError as error:  # a zero byte, or half a surrogate pair
        raise TransportError(f"not a path: {error}", file=path) from None
