"""Declarations: what a source is called, where its files are, and how its times run. Frozen; nothing more.

A :class:`DataSource` opens nothing. Without `temporal` it is CONST: one file, read whole, once. With a
:class:`SourceTemporal` it is DISCRETE: a series of records found by the cadence the declaration gives.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, TypeAlias

import cftime

from .cadence import Cadence, Duration, Outside
from .calendars import calendar as get_calendar
from .errors import DeclarationError
from .fields import Time

__all__ = ["DataSource", "SourceTemporal", "UrlTemplate", "parse_time"]

#: A literal URL or path, a strftime template, or a function of the file's start time (None if CONST).
UrlTemplate: TypeAlias = str | Callable[[Time | None], str]

_DIRECTIVE = re.compile(r"%[-_0^#]?[aAbBcdDeFgGhHIjkKlmMpPrRsSTuUVwWxXyYzZ]")
_TIME = re.compile(
    r"(?P<Y>-?\d{4,})-(?P<m>\d\d)(?:-(?P<d>\d\d)"
    r"(?:[T ](?P<H>\d\d):(?P<M>\d\d)(?::(?P<S>\d\d)(?:\.(?P<f>\d{1,6}))?)?Z?)?)?"
)


def parse_time(value: Time | date | str, calendar: str | None = None) -> Time:
    """Read a time of a declaration.

    Parameters
    ----------
    value : datetime, date, cftime.datetime or str
        A string is ``YYYY-MM[-DD[THH:MM[:SS[.ffffff]]]][Z]``, in UTC.
    calendar : str, optional
        The calendar a string is in.

    Returns
    -------
    datetime.datetime or cftime.datetime
        Aware UTC for the standard calendars.

    Raises
    ------
    DeclarationError
        If it is no time, or no day of that calendar.
    """
    if isinstance(value, (datetime, cftime.datetime)):
        return value
    own = get_calendar(calendar)
    if isinstance(value, date):
        return own.time(own.instant(value))
    found = _TIME.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise DeclarationError(f"{value!r} is no time", hint="Write 2019-07-01 or 2019-07-01T12:00")
    year, month, day = int(found["Y"]), int(found["m"]), int(found["d"] or 1)
    clock = [int(found[part] or 0) for part in "HMS"]
    if not own.exists(year, month, day) or clock[0] > 23 or clock[1] > 59 or clock[2] > 59:
        raise DeclarationError(f"there is no time {value!r} in the calendar {own.name}")
    microsecond = int((found["f"] or "0").ljust(6, "0"))
    midnight = own.day_number(year, month, day) * 86_400_000_000
    return own.time(midnight + ((clock[0] * 60 + clock[1]) * 60 + clock[2]) * 1_000_000 + microsecond)


@dataclass(frozen=True, slots=True)
class SourceTemporal:
    """How the times of a source run.

    Parameters
    ----------
    start : datetime, cftime.datetime or str
        The first anchor, and the start of the first file. A naive datetime is UTC.
    frequency : timedelta or str
        Step between anchors: a timedelta, ISO 8601 (``PT3H``, ``P1M``), or ``"records"`` for an irregular
        series whose anchors are the files' own stamps.
    file_period : timedelta or str, optional
        Step between files; None if one file holds everything.
    end : datetime, cftime.datetime or str, optional
        No anchor lies at or after it.
    time_dim : str
        Name of the dimension that holds records.
    records_per_sample : {None, 1, 2}
        2 delivers brackets: a record and its successor.
    calendar : str, optional
        A CF calendar name; by default that of `start`, else standard.
    outside : {"error", "hold", "cycle"}
        What serves times before `start` and from `end` on.

    Raises
    ------
    DeclarationError
        If the parts contradict each other.
    """

    start: Time | str
    frequency: timedelta | str | Duration
    file_period: timedelta | str | Duration | None = None
    end: Time | str | None = None
    time_dim: str = "time"
    records_per_sample: int | None = None
    calendar: str | None = None
    outside: Outside = "error"
    cadence: Cadence = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.records_per_sample not in (None, 1, 2):
            raise DeclarationError(f"records_per_sample is None, 1 or 2, not {self.records_per_sample!r}")
        name = self.calendar if self.calendar is not None else getattr(self.start, "calendar", None)
        cadence = Cadence.declare(
            parse_time(self.start, name),
            self.frequency,
            self.file_period,
            end=None if self.end is None else parse_time(self.end, name),
            calendar=name,
            outside=self.outside,
        )
        if cadence.series is None and cadence.files is not None and cadence.end is None:
            raise DeclarationError("frequency='records' over several files needs an end")
        object.__setattr__(self, "cadence", cadence)

    @property
    def brackets(self) -> bool:
        """Whether a sample is a record and its successor."""
        return self.records_per_sample == 2


@dataclass(frozen=True, slots=True)
class DataSource:
    """A named source of fields.

    Parameters
    ----------
    name : str
        For messages, manifests and statistics.
    format : str
        A name in ``format_registry``.
    url : str or callable
        A literal URL or path, a strftime template (``.../%Y/%m/x.%Y%m%d.nc4``), or a function of the
        file's start time.
    variables : sequence of str
        On-disk names of the fields to deliver, in this order; empty for all data variables.
    temporal : SourceTemporal, optional
        Without it the source is CONST.
    mirrors : sequence of str or callable
        Other places of the same bytes, tried in order.
    auth_realm : str, optional
        Which credentials fetch it.
    reader_kwargs : mapping
        Options of the format's reader.
    """

    name: str
    format: str
    url: UrlTemplate
    variables: tuple[str, ...] = ()
    temporal: SourceTemporal | None = None
    mirrors: tuple[UrlTemplate, ...] = ()
    auth_realm: str | None = None
    reader_kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names: object = self.variables
        if isinstance(names, str):
            raise DeclarationError(f"variables is a sequence of names, not the string {names!r}")
        object.__setattr__(self, "variables", tuple(self.variables))
        object.__setattr__(self, "mirrors", tuple(self.mirrors))
        object.__setattr__(self, "reader_kwargs", dict(self.reader_kwargs))
        if len(set(self.variables)) != len(self.variables):
            raise DeclarationError(f"source {self.name!r} names a variable twice: {self.variables}")

    @property
    def is_const(self) -> bool:
        """Whether the source has no time."""
        return self.temporal is None

    def resolve_url(self, t: Time | None = None) -> str:
        """Give the URL of the file whose period starts at `t`."""
        return self._resolve(self.url, t)

    def resolve_mirrors(self, t: Time | None = None) -> tuple[str, ...]:
        """Give the mirrors of that file, in order."""
        return tuple(self._resolve(mirror, t) for mirror in self.mirrors)

    def _resolve(self, template: UrlTemplate, t: Time | None) -> str:
        if callable(template):
            return template(t)
        if t is None or not _DIRECTIVE.search(template):
            return template

        # directive by directive: what else a URL has percent signs for is not strftime's to read
        def expand(found: re.Match[str]) -> str:
            directive = found[0]
            if directive == "%Y":
                return f"{t.year:04d}"  # strftime pads the year on some platforms only
            return "%" if directive == "%%" else str(t.strftime(directive))

        return re.sub(f"%%|{_DIRECTIVE.pattern}", expand, template)
