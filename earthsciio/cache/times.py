"""Times as manifests, HTTP headers and file systems give them; what is none is None, never an exception.

All of them are somebody else's work: a year beyond 9999, an offset that leads out of the calendar, or plain
nonsense must not end a fetch that does not depend on it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

__all__ = ["format_time", "in_utc", "parse_http_date", "parse_time", "time_of_file"]


def format_time(when: datetime) -> str:
    """Return an aware time as RFC 3339 in UTC, to the second."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def in_utc(when: datetime) -> datetime | None:
    """Return a time, taken as UTC if it is naive, as aware UTC; None if the calendar ends before that."""
    try:
        return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
    except OverflowError:
        return None


def parse_time(text: str) -> datetime | None:
    """Read an RFC 3339 time as aware UTC, None if it is none."""
    try:
        return in_utc(datetime.fromisoformat(text))
    except ValueError:
        return None


def parse_http_date(text: str | None) -> datetime | None:
    """Read the date of an HTTP header as aware UTC, None if it is none."""
    try:
        return in_utc(parsedate_to_datetime(text or ""))
    except (ValueError, OverflowError, TypeError, IndexError):  # it has raised each of them on something
        return None


def time_of_file(seconds: float) -> datetime:
    """Return a file's time as aware UTC; one beyond the calendar as its nearest end."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.min.replace(tzinfo=UTC) if seconds < 0 else datetime.max.replace(tzinfo=UTC)
