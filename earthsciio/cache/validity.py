"""Whether a stored blob may be used as it is: one pure function, the first rule that applies decides.

1. A declared checksum: the bytes that have it are right, others are not.
2. Declared immutable: a static source, or a file whose period had ended when it was fetched.
3. The server's validators: ask it whether they still hold.
4. Age.

A blob without manifest is an unfinished commit, and never valid while it can be fetched again. (Offline
none of this is asked: what is there is used.)
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Protocol

from .store import StoredBlob
from .times import in_utc, parse_time

__all__ = ["FilePeriod", "Temporal", "Verdict", "closed_at", "judge"]

#: How far the clocks of machines that share a cache may disagree.
_SKEW = timedelta(minutes=5)
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class Temporal(Protocol):
    """What :meth:`Cache.fetch` needs to know of a file's place in time; a ``SourceTemporal`` will do."""

    @property
    def end(self) -> object:
        """When the contents are final: a datetime of any calendar, ISO text; None if never."""


@dataclass(frozen=True, slots=True)
class FilePeriod:
    """The period one file of a series covers.

    Parameters
    ----------
    end : datetime, cftime datetime, str or None
        Its end, exclusive; None: the source keeps changing the file.
    """

    end: object


class Verdict(Enum):
    """What to do about a blob."""

    USE = "use"
    ASK = "ask the source whether it changed"
    FETCH = "fetch"


def judge(
    blob: StoredBlob | None,
    *,
    checksum: str | None,
    temporal: Temporal | None,
    since: datetime,
    now: datetime,
    ttl: timedelta,
) -> Verdict:
    """Decide about ``blob``.

    Parameters
    ----------
    blob : StoredBlob or None
        What the store holds.
    checksum : str, optional
        The declared SHA-256.
    temporal : Temporal, optional
        None: a static source, which never changes.
    since : datetime
        When the caller began to ask: bytes confirmed since then (by whoever held the lock) are fresh.
    now : datetime
        The time.
    ttl : timedelta
        How long bytes without validators are good.
    """
    if blob is None:
        return Verdict.FETCH
    manifest = blob.manifest
    if checksum is not None:
        stored = manifest.sha256_content if manifest is not None and _describes(blob) else None
        return Verdict.USE if (stored or blob.digest()) == checksum else Verdict.FETCH
    if manifest is None or not _describes(blob):
        return Verdict.FETCH
    fetched = manifest.fetched
    if fetched is not None and fetched > now + _SKEW:
        fetched = _LONG_AGO  # some clock was wrong, and the time says nothing
    if temporal is None or _was_closed(closed_at(temporal), fetched, now):
        return Verdict.USE
    if fetched is not None and fetched >= since.replace(microsecond=0):
        return Verdict.USE
    if manifest.etag or manifest.last_modified:
        return Verdict.ASK
    return Verdict.USE if fetched is not None and now - fetched < ttl else Verdict.FETCH


def closed_at(temporal: Temporal) -> datetime | None:
    """Return the end of a file's period as aware UTC; None if it never closes."""
    end = temporal.end
    if end is None:
        return None
    if isinstance(end, str):
        return parse_time(end)
    if isinstance(end, datetime):
        return in_utc(end)
    # cftime: by components; a day that exists in no Gregorian month is at most two days after its 28th
    year, month, day = (int(getattr(end, name)) for name in ("year", "month", "day"))
    first = datetime(min(max(year, 1), 9999), month, 1, tzinfo=UTC)
    return first + timedelta(days=day - 1, hours=int(getattr(end, "hour", 0)))


def _describes(blob: StoredBlob) -> bool:
    """Whether the manifest can be that of these bytes."""
    assert blob.manifest is not None
    return blob.manifest.bytes is None or blob.manifest.bytes == blob.size


def _was_closed(end: datetime | None, fetched: datetime | None, now: datetime) -> bool:
    # A file fetched before its period was over may have been incomplete then, however long ago that was.
    return end is not None and end <= (now if fetched is None else fetched)
