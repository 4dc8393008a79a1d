"""What names a blob: the SHA-256 of its resolved URL, exactly as it is spelled.

Nothing is normalized, so every implementation of the format, in any language, finds the same file. A byte
range of a URL is a blob of its own, named by the URL with ``#bytes=<first>-<last>`` appended.
"""

from __future__ import annotations

import hashlib
import os
import re
from os import PathLike

from earthsciio.errors import DeclarationError
from earthsciio.regular import open_regular

__all__ = [
    "cache_key",
    "is_key",
    "parse_checksum",
    "range_keyed_url",
    "sha256_bytes",
    "sha256_file",
    "split_range",
    "url_extension",
    "url_scheme",
]

_KEY = re.compile(r"[0-9a-f]{64}")
_RANGE = re.compile(r"(?P<url>.*)#bytes=(?P<first>[0-9]+)-(?P<last>[0-9]+)", re.DOTALL)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_PATH = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]+:(?://[^/?#]*)?)?([^?#]*)")
_EXTENSION = re.compile(r"[^/]\.([A-Za-z0-9]{1,8})$")


def sha256_bytes(data: bytes | bytearray | memoryview) -> str:
    """Return the SHA-256 of ``data`` as 64 lowercase hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: str | PathLike[str]) -> str:
    """Return the SHA-256 of a file's bytes as 64 lowercase hexadecimal digits.

    Raises
    ------
    OSError
        If the file can't be read, or is no regular file.
    """
    with os.fdopen(open_regular(path), "rb", buffering=0) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def cache_key(resolved_url: str) -> str:
    """Return the key of a URL: the SHA-256 of its UTF-8 bytes, in lowercase hexadecimal.

    Raises
    ------
    DeclarationError
        If it is no Unicode text, as a file name in another encoding.

    Examples
    --------
    >>> cache_key("https://example.org/a.nc")[:16]
    '71b27edcbb2a1703'
    """
    try:
        return sha256_bytes(resolved_url.encode())
    except UnicodeEncodeError:
        raise DeclarationError(
            "not a URL or path in Unicode",
            file=ascii(resolved_url),
            hint="Percent-encode it, or rename the file",
        ) from None


def is_key(text: str) -> bool:
    """Whether ``text`` has the form of a key: nothing else ever becomes part of a path."""
    return _KEY.fullmatch(text) is not None


def range_keyed_url(url: str, first: int, last: int) -> str:
    """Return the URL that names bytes ``first`` to ``last``, both included, of ``url``.

    Raises
    ------
    ValueError
        Unless ``0 <= first <= last``.

    Examples
    --------
    >>> range_keyed_url("https://example.org/a.nc", 0, 99)
    'https://example.org/a.nc#bytes=0-99'
    """
    if not 0 <= first <= last:
        raise ValueError(f"bytes {first}-{last} are no range: need 0 <= first <= last")
    return f"{url}#bytes={first}-{last}"


def split_range(resolved_url: str) -> tuple[str, tuple[int, int] | None]:
    """Split what :func:`range_keyed_url` joined: the URL to ask for, and the range of it, if any."""
    match = _RANGE.fullmatch(resolved_url)
    if match is None:
        return resolved_url, None
    first, last = int(match["first"]), int(match["last"])
    if last < first:
        raise DeclarationError(
            "a byte range that ends before it starts", file=match["url"], first=first, last=last
        )
    return match["url"], (first, last)


def url_scheme(text: str) -> str | None:
    """Return the lowercase scheme of a URL, or None for a plain local path."""
    match = _SCHEME.match(text)
    return match[1].lower() if match else None


def url_extension(resolved_url: str) -> str:
    """Return the file extension a person would expect: alphanumeric, ``"bin"`` where there is none."""
    path = _PATH.match(resolved_url)
    match = _EXTENSION.search(path[1]) if path else None
    return match[1] if match else "bin"


def parse_checksum(text: str) -> str:
    """Return the digest of a declared checksum, ``"<64 hex digits>"`` or ``"sha256:<64 hex digits>"``.

    Raises
    ------
    DeclarationError
        If it is anything else.
    """
    digest = text.strip().lower().removeprefix("sha256:")
    if not is_key(digest):
        raise DeclarationError(
            f"a checksum is 64 hexadecimal digits of SHA-256, with or without 'sha256:', not {text!r}"
        )
    return digest
