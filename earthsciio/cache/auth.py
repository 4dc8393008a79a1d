"""Credentials: which request gets which headers, and no way for them to be seen.

A realm is a name; the cache maps it to an :class:`Auth`. What an auth gives goes to the host of the canonical
URL, and to hosts the auth itself names, never to a mirror's or a redirect's host because of where it was sent
from. Representations and manifests hold the realm's name only.
"""

from __future__ import annotations

import base64
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit, urlunsplit

from earthsciio.errors import AuthError

__all__ = [
    "Auth",
    "NetrcAuth",
    "StaticHeaderAuth",
    "basic_of_url",
    "credentials_for",
    "may_follow",
    "netrc_headers",
    "without_userinfo",
]

_log = logging.getLogger("earthsciio.cache")

_DEFAULT_PORTS = {"http": 80, "https": 443}


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

    The user's own netrc is looked at anyway where a realm gives nothing; this is for another file.

    Parameters
    ----------
    path : path
        The file.
    hosts : iterable of str, optional
        Host names to send its entries to; default: the host of the canonical URL only.
    """

    __slots__ = ("hosts", "path")

    def __init__(self, path: str | os.PathLike[str], *, hosts: Iterable[str] | None = None) -> None:
        self.path = Path(path)
        self.hosts = None if hosts is None else tuple(host.lower() for host in hosts)

    def headers(self, url: str) -> Mapping[str, str]:
        """Return basic authentication for the host of ``url``; nothing if the file has no entry for it.

        Raises
        ------
        AuthError
            If the file can't be read.
        """
        return netrc_headers(url, path=self.path)

    def __repr__(self) -> str:
        return f"NetrcAuth({str(self.path)!r})"


def netrc_headers(url: str, *, path: Path | None) -> dict[str, str]:
    """Return basic authentication from a netrc file.

    Parameters
    ----------
    url : str
        Whose host to look up.
    path : pathlib.Path or None
        The file, which must be readable; None: ``$NETRC``, else ``~/.netrc``, if there.
    """
    import netrc

    chosen = path or Path(os.environ.get("NETRC") or "~/.netrc").expanduser()
    if path is None and not chosen.exists():
        return {}
    line: object = None
    try:
        entry = netrc.netrc(str(chosen)).authenticators(urlsplit(url).hostname or "")
    except netrc.NetrcParseError as error:
        line = error.lineno  # its text may quote a password
    except OSError as error:
        line = error.strerror
    else:
        return {} if entry is None else _basic(entry[0] or entry[1] or "", entry[2] or "")
    if path is not None:
        raise AuthError("the netrc file can't be read", file=chosen, line=line)
    _log.warning("the netrc file %s can't be read (line %s), and is not used", chosen, line)
    return {}


def basic_of_url(url: str) -> dict[str, str]:
    """Return basic authentication from ``user:password@`` in a URL."""
    parts = urlsplit(url)
    if parts.username is None:
        return {}
    return _basic(unquote(parts.username), unquote(parts.password or ""))


def without_userinfo(url: str) -> str:
    """Return a URL without ``user:password@``."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def may_follow(one: str, other: str) -> bool:
    """Whether credentials meant for URL ``one`` may go to ``other``.

    Only to the same scheme, host and port, or from a host's ``http`` to its own ``https``.
    """
    origin, target = _origin(one), _origin(other)
    return origin == target or (origin == ("http", target[1], 80) and target == ("https", origin[1], 443))


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _DEFAULT_PORTS.get(parts.scheme)


def credentials_for(url: str, *, home: str, auth: Auth | None) -> dict[str, str]:
    """Return the headers ``auth`` gives to a request to ``url`` that serves the canonical URL ``home``."""
    if auth is None:
        return {}
    trusted = may_follow(home, url) if auth.hosts is None else urlsplit(url).hostname in auth.hosts
    return dict(auth.headers(url)) if trusted else {}
