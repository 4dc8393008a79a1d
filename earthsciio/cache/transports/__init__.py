"""How bytes come to the cache: one small protocol, and a registry of who speaks which URL scheme.

A transport is built once per cache and scheme, when the first blob has to be fetched, and called from many
threads at once. It writes into the sink it is given, and says what the source said about the bytes. It raises
:class:`~earthsciio.errors.TransportError`, ``SourceNotFound`` or ``AuthError``; what the sink raises passes
through it untouched. It retries and resumes as it sees fit; mirrors, checksums, locks and commits are not its
concern.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

from earthsciio.cache.auth import Auth
from earthsciio.cache.locks import Abort
from earthsciio.registry import Registry

__all__ = ["FetchRequest", "FetchResult", "Sink", "Transport", "transport_registry"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest:
    """What is asked of a transport.

    Parameters
    ----------
    url : str
        Where to fetch from: the canonical URL or a mirror's, without the fragment of a byte range.
    home : str
        The canonical URL, whose host the credentials belong to.
    byte_range : tuple of int, optional
        First and last byte wanted, both included.
    etag, last_modified : str, optional
        Validators: fetch only if they don't hold any more.
    auth : Auth, optional
        The realm's credentials.
    auth_realm : str, optional
        The realm's name, for error texts.
    abort : Abort, optional
        To be checked while waiting (the sink checks it at each write).
    """

    url: str = field(repr=False)
    home: str = field(repr=False)
    byte_range: tuple[int, int] | None = None
    etag: str | None = None
    last_modified: str | None = None
    auth: Auth | None = None
    auth_realm: str | None = None
    abort: Abort | None = None

    @property
    def conditional(self) -> bool:
        """Whether the answer "not modified" is welcome."""
        return self.etag is not None or self.last_modified is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResult:
    """What the source said.

    Parameters
    ----------
    not_modified : bool
        The validators hold; nothing was written.
    etag, last_modified : str, optional
        The validators of the bytes written.
    length : int, optional
        How many bytes there should be, if the source said so.
    """

    not_modified: bool = False
    etag: str | None = None
    last_modified: str | None = None
    length: int | None = None


class Sink(Protocol):
    """Where a transport puts bytes; one thread at a time."""

    @property
    def size(self) -> int:
        """Bytes written since the start, or the last restart."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append; may raise ``CacheStoreError``, or whatever the caller's abort raises."""

    def restart(self) -> None:
        """Forget what was written: other bytes follow."""


class Transport(Protocol):
    """Fetches URLs of its schemes; called from many threads at once."""

    def fetch(self, request: FetchRequest, sink: Sink) -> FetchResult:
        """Write the bytes of ``request`` into ``sink``, or find that they need not be fetched."""

    def close(self) -> None:
        """Give back connections; the transport is not used again."""


transport_registry: Final[Registry[Transport]] = Registry("transport")


def _file() -> Transport:
    from .file import FileTransport

    return FileTransport()


def _http() -> Transport:
    from .http import HttpTransport

    return HttpTransport()


def _objects() -> Transport:
    from .objects import ObjectTransport

    return ObjectTransport()


transport_registry.register("file", _file)
for _scheme in ("http", "https"):
    transport_registry.register(_scheme, _http)
for _scheme in ("s3", "gs", "az"):
    transport_registry.register(_scheme, _objects)
