"""The files a source is made of, listed before anybody has looked for them.

One :class:`SourceFile` says all the cache needs to bring a file in. Providers list theirs from the
declaration alone (:meth:`Provider.files <earthsciio.provider.Provider.files>`), and whoever fetches, a read,
``prefetch`` or the warmer, fetches by that list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import urlsplit

from .cache import CacheEntry, FilePeriod
from .cache.cache import Cache
from .cache.locks import Abort
from .errors import DeclarationError
from .source import DataSource

__all__ = ["SourceFile", "is_local_path", "merge"]

#: How a URL begins, as urlsplit reads it, which takes some paths amiss; one letter is a drive.
_SCHEME: Final = re.compile(r"[\x00-\x20]*[A-Za-z][A-Za-z0-9+.-]+:")


def is_local_path(url: str) -> bool:
    """Whether a URL is a plain path, read in place rather than through the cache.

    Raises
    ------
    DeclarationError
        If it is neither a path nor a URL.
    """
    if _SCHEME.match(url) is None:  # none, or a drive letter
        return True
    try:
        urlsplit(url)
    except ValueError as error:
        raise DeclarationError(f"{url!r} is no URL: {error}") from error
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """One file of a source.

    Parameters
    ----------
    source : str
        Name of the source.
    url : str
        Its canonical URL, or a local path.
    start : int or None
        Start of its period, an instant of the source's calendar; None of a CONST source.
    period : FilePeriod or None
        When its contents are final; None of a CONST source, whose file never changes.
    mirrors : tuple of str
        Other URLs of the same bytes, in order.
    auth_realm : str or None
        Which credentials fetch it.
    checksum : str or None
        The SHA-256 its bytes must have.
    may_be_absent : bool
        Whether something stands in for it if it does not exist.
    """

    source: str
    url: str
    start: int | None = None
    period: FilePeriod | None = None
    mirrors: tuple[str, ...] = ()
    auth_realm: str | None = None
    checksum: str | None = None
    may_be_absent: bool = False

    @classmethod
    def of(cls, source: DataSource, start: int | None) -> SourceFile:
        """Give the file of a source whose period starts at `start`."""
        at, period, may_be_absent = None, None, False
        if start is not None:
            assert source.temporal is not None
            cadence = source.temporal.cadence
            at = cadence.calendar.time(start)
            closes = cadence.next_file_start(start) if cadence.files is not None else cadence.end
            period = FilePeriod(None if closes is None else cadence.calendar.time(closes))
            may_be_absent = source.temporal.missing is not None
        return cls(
            source=source.name,
            url=source.resolve_url(at),
            start=start,
            period=period,
            mirrors=source.resolve_mirrors(at),
            auth_realm=source.auth_realm,
            may_be_absent=may_be_absent,
        )

    @property
    def in_place(self) -> bool:
        """Whether it is a local path, which no cache holds."""
        return is_local_path(self.url)

    def fetch(self, cache: Cache, *, abort: Abort | None = None, settle: float | None = None) -> CacheEntry:
        """Bring it into a cache, or find it there; errors and options are those of ``Cache.fetch``."""
        return cache.fetch(
            self.url,
            source_loader=self.source,
            auth_realm=self.auth_realm,
            temporal=self.period,
            expected_checksum=self.checksum,
            mirrors=self.mirrors,
            abort=abort,
            settle=settle,
            may_be_absent=self.may_be_absent,
        )


def merge(files: Iterable[SourceFile]) -> list[SourceFile]:
    """List files of several sources, each URL once: constants first, then as their periods begin.

    A URL that is constant for one source and of a period for another is of that period: it may change. One
    that must exist for any of them must exist.
    """
    merged: dict[str, SourceFile] = {}
    for file in files:
        known = merged.get(file.url, file)
        chosen = file if known.period is None and file.period is not None else known
        merged[file.url] = replace(chosen, may_be_absent=known.may_be_absent and file.may_be_absent)
    return sorted(merged.values(), key=lambda file: (file.start is not None, file.start or 0))
