"""What arguments may look like: durations, sizes, times, Windows, and lists of checksums."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

from earthsciio.cache.keys import parse_checksum
from earthsciio.errors import DeclarationError, EarthSciIOError, MissingFile
from earthsciio.selection import Window
from earthsciio.settings import ByteSize

__all__ = ["Checksums", "duration", "selector", "size", "window_of"]

T = TypeVar("T")
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?) ?(s|min|m|h|d|w)?")


def _argument(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Make the library's error one that argparse shows with the argument's name."""

    @wraps(parse)
    def argument(text: str) -> T:
        try:
            return parse(text)
        except EarthSciIOError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return argument


@_argument
def duration(text: str) -> timedelta:
    """Read ``90`` (seconds), ``90s``, ``15min``, ``6h``, ``30d``, ``2w``."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise DeclarationError(f"{text!r} is no duration", hint="Write 90s, 15min, 6h, 30d or 2w")
    return timedelta(seconds=float(found[1]) * _UNITS[found[2] or ""])


@_argument
def size(text: str) -> int:
    """Read ``500MB``, ``8GiB``, ``4096``."""
    return ByteSize.parse(int(text) if text.strip().isdigit() else text)


@_argument
def selector(text: str) -> tuple[str, Any]:
    """Read one dimension of a Window: ``lat=120:218``, ``lat=120:218:2``, ``lon=1150,1151,0``, ``lev=5``."""
    dim, equals, value = text.partition("=")
    bounds, indices = value.split(":"), value.split(",")
    if dim and equals and len(bounds) in (2, 3) and all(part.isdigit() for part in bounds):
        return dim, tuple(map(int, bounds))
    if dim and equals and all(part.isdigit() for part in indices):
        return dim, list(map(int, indices))
    raise DeclarationError(
        f"{text!r} is no part of a Window", hint="Write DIM=START:STOP[:STEP] or DIM=I,J,K"
    )


def window_of(selectors: Sequence[tuple[str, Any]] | None) -> Window | None:
    """Put dimensions together; None without any."""
    return Window(dict(selectors)) if selectors else None


class Checksums:
    """A list as ``sha256sum`` writes it: per line a digest, and a URL or the name of a file.

    Raises
    ------
    DeclarationError
        If a line is none, or a name has two digests.
    MissingFile
        If the list is not there.
    """

    def __init__(self, path: str) -> None:
        self._known: dict[str, str] = {}
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except FileNotFoundError as error:
            raise MissingFile("there is no such list of checksums", file=path) from error
        for number, line in enumerate(lines, 1):
            digest, _, name = line.strip().partition(" ")
            name = name.strip().removeprefix("*")
            if not digest or digest.startswith("#"):
                continue
            if not name or self._known.setdefault(name, parse_checksum(digest)) != parse_checksum(digest):
                raise DeclarationError(
                    "each line is a digest and a name, and each name has one digest", file=path, line=number
                )

    def of(self, url: str) -> str | None:
        """Give the digest listed for a URL, else for its last part; None if there is none."""
        return self._known.get(url) or self._known.get(url.rpartition("/")[2])
