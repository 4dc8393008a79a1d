"""Declarations: what a source is called, where its files are, and how its times run. Frozen; nothing more.

A :class:`DataSource` opens nothing. Without `temporal` it is CONST: one file, read whole, once. With a
:class:`SourceTemporal` it is DISCRETE: a series of records found by the cadence the declaration gives. A
:class:`StandIn` says what serves where a file of the series does not exist; without one that is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, TypeAlias

import cftime

from .cadence import Cadence, Calendar, Duration, Outside
from .calendars import calendar as get_calendar
from .errors import DeclarationError
from .fields import Time
from .selection import parse_selection

__all__ = ["DataSource", "SourceTemporal", "StandIn", "UrlTemplate", "parse_time"]

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
class StandIn:
    """What serves where a file of a series does not exist.

    Only that is stood in for: not a record that an existing file lacks, and not a file that can't be had.
    With both, the source serves what is not held any more.

    Parameters
    ----------
    hold : timedelta or str, optional
        The last sample before, for at most this long after its anchor (``P2D``).
    source : DataSource, optional
        Another source of the same variables on the same grid; a climatology is one that cycles.

    Raises
    ------
    DeclarationError
        If neither is given.
    """

    hold: timedelta | str | Duration | None = None
    source: DataSource | None = None

    def __post_init__(self) -> None:
        if self.hold is None and self.source is None:
            raise DeclarationError("what stands in for a missing file is `hold`, `source`, or both")
        if self.hold is not None:
            object.__setattr__(self, "hold", Duration.parse(self.hold))

    def holds(self, calendar: Calendar, anchor: int, until: int) -> bool:
        """Whether the sample of one anchor may still serve another."""
        return self.hold is not None and calendar.add(anchor, Duration.parse(self.hold)) >= until


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
    missing : StandIn, optional
        What serves where a file does not exist; an error if None.

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
    missing: StandIn | None = None
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
        if self.missing is not None:
            _check_missing(self.missing, cadence)
        object.__setattr__(self, "cadence", cadence)

    @property
    def brackets(self) -> bool:
        """Whether a sample is a record and its successor."""
        return self.records_per_sample == 2


def _check_missing(missing: StandIn, cadence: Cadence) -> None:
    """Refuse what could never stand in, or would change the anchors."""
    if not cadence.is_read:
        raise DeclarationError("frequency='records' takes its anchors from the files, so none may be missing")
    if cadence.outside == "cycle":
        raise DeclarationError(
            "a series with outside='cycle' serves all years, so none of its files may be missing"
        )
    if missing.hold is None:
        return
    if cadence.files is None:
        raise DeclarationError("nothing can be held for a source without file_period: it has one file")
    if not missing.holds(cadence.calendar, cadence.anchor(0), cadence.anchor(1)):
        raise DeclarationError("a sample can't be held for less than one step of frequency")


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
        if self.stand_in is not None:
            self._check_stand_in(self.stand_in)

    def _check_stand_in(self, other: DataSource) -> None:
        """Refuse a source whose samples could not be taken for this one's."""
        ours, theirs = self.temporal, other.temporal
        assert ours is not None
        wrong = None
        if theirs is None:
            wrong = "it has no times; a climatology is a source with outside='cycle'"
        elif other.variables != self.variables:
            wrong = f"it declares the variables {other.variables}, not {self.variables}"
        elif theirs.cadence.calendar.name != ours.cadence.calendar.name:
            wrong = f"its calendar is {theirs.cadence.calendar.name}, not {ours.cadence.calendar.name}"
        elif theirs.brackets != ours.brackets:
            wrong = "only one of the two has records_per_sample=2"
        elif _select(other) not in (None, _select(self)):
            wrong = "it is read through the selection of the source it stands in for, and declares another"
        elif self.name in (each.name for each in other.chain()):
            wrong = "it has the same name, or is stood in for by one that has"
        if wrong is not None:
            raise DeclarationError(f"{other.name!r} can't stand in for {self.name!r}: {wrong}")

    @property
    def stand_in(self) -> DataSource | None:
        """The source that stands in for missing files, if one does."""
        missing = None if self.temporal is None else self.temporal.missing
        return None if missing is None else missing.source

    def chain(self) -> Iterator[DataSource]:
        """Iterate over this source, what stands in for it, what stands in for that, and so on."""
        source: DataSource | None = self
        while source is not None:
            yield source
            source = source.stand_in

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


def _select(source: DataSource) -> object:
    """Give the selection a source declares, in one form."""
    select = source.reader_kwargs.get("select")
    return None if select is None else parse_selection(select)
