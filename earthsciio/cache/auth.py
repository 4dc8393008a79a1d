"""Credentials: which request gets which headers, and no way for them to be seen.

A realm is a name; the cache maps it to an :class:`Auth`. What an auth gives goes to the host of the canonical
URL, and to hosts the auth itself names, never to a mirror's or a redirect's host because of where it was sent
from. Representations and manifests hold the realm's name only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable
from urllib.parse import urlsplit

__all__ = ["Auth", "NetrcAuth", "StaticHeaderAuth", "credentials_for", "same_origin"]

_DEFAULT_PORTS = {"http": 80, "https": 443}


@runtime_checkable
class Auth(Protocol):
    """Gives the credentials of one realm; called from many threads."""

    hosts: tuple[str, ...] | None
    """Host names the credentials are for; None: the host of the canonical URL."""

    def headers(self, url: str) -> Mapping[str, str]:
        """Return the headers that let a request to ``url`` in."""


class StaticHeaderAuth:
    """The same headers for every request.

    Parameters
    ----------
    headers : mapping of str to str
        Names and (secret) values.
    hosts : iterable of str, optional
        Host names to send them to; default: the host of the canonical URL only.

    Examples
    --------
    >>> StaticHeaderAuth.bearer("not to be seen")
    StaticHeaderAuth(Authorization=***)
    """

    __slots__ = ("_headers", "hosts")

    def __init__(self, headers: Mapping[str, str], *, hosts: Iterable[str] | None = None) -> None:
        self._headers = dict(headers)
        self.hosts = None if hosts is None else tuple(host.lower() for host in hosts)

    @classmethod
    def bearer(cls, token: str, *, hosts: Iterable[str] | None = None) -> StaticHeaderAuth:
        """Send ``Authorization: Bearer <token>``."""
        return cls({"Authorization": f"Bearer {token}"}, hosts=hosts)

    @classmethod
    def header(cls, name: str, value: str, *, hosts: Iterable[str] | None = None) -> StaticHeaderAuth:
        """Send one header, as data portals with API keys want."""
        return cls({name: value}, hosts=hosts)

    def headers(self, url: str) -> Mapping[str, str]:  # noqa: ARG002 - the protocol's
        """Return the headers, whatever the URL."""
        return dict(self._headers)

    def __repr__(self) -> str:
        return f"StaticHeaderAuth({', '.join(f'{name}=***' for name in self._headers)})"


class NetrcAuth:
    """User and password from a netrc file, by host.

    Without any realm the user's own netrc is looked at anyway; this is for another file.

    Parameters
    ----------
    path : path
        The file.
    """

    __slots__ = ("hosts", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.hosts = None

    def headers(self, url: str) -> Mapping[str, str]:
        """Return basic authentication for the host of ``url``; nothing if the file has no entry for it."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"NetrcAuth({self.path!r})"


def same_origin(one: str, other: str) -> bool:
    """Whether two URLs have the same scheme, host and port."""
    return _origin(one) == _origin(other)


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _DEFAULT_PORTS.get(parts.scheme)


def credentials_for(url: str, *, home: str, auth: Auth | None) -> dict[str, str]:
    """Return the headers ``auth`` gives to a request to ``url`` that serves the canonical URL ``home``."""
    if auth is None:
        return {}
    trusted = same_origin(url, home) if auth.hosts is None else urlsplit(url).hostname in auth.hosts
    return dict(auth.headers(url)) if trusted else {}
