"""Calendars and durations: time as exact integers.

Inside the library an *instant* is an ``int``: microseconds since 1970-01-01T00:00:00 in one CF calendar, so
that comparing and adding times is exact in every calendar, and an axis of a million stamps is one int64
array. A :class:`Calendar` turns instants into datetimes and back and knows its own months; a
:class:`Duration` is a step of either fixed length or whole months. Times go from one calendar to another by
their components (year, month, day, time of day), and :func:`carry` says what becomes of the days that only
one of the two has. Whatever takes an ``int`` here and says so takes an int64 array as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from typing import Any, ClassVar, Final, Protocol, TypeAlias, TypeVar

import cftime
import numpy as np
from numpy.typing import NDArray

from .errors import DeclarationError, TimeAxisError
from .fields import Time

__all__ = ["DAY", "SECOND", "Calendar", "Duration", "IntArray", "calendar", "carry"]

IntArray: TypeAlias = NDArray[np.int64]
Ints = TypeVar("Ints", int, IntArray)

SECOND: Final = 1_000_000
DAY: Final = 86_400 * SECOND


# Day numbers. Each rule counts the days of its calendar from 0000-01-01, years numbered astronomically
# (..., -1, 0, 1, ...), with integer arithmetic that works on numbers and arrays alike.


class _Rule(Protocol):
    def month_length(self, year: Ints, month: Ints) -> Ints: ...
    def day(self, year: Ints, month: Ints, day: Ints) -> Ints: ...
    def civil(self, day: Ints) -> tuple[Ints, Ints, Ints]: ...


class _RomanMonths:
    """Months of 31, 28 or 29, 31, ... days; `leaps` counts the leap years in ``[0, year)``."""

    def __init__(self, leaps: Callable[[Any], Any]) -> None:
        self._leaps = leaps

    def _year_start(self, year: Any) -> Any:
        return 365 * year + self._leaps(year)

    def _before_month(self, year: Any, month: Any) -> Any:
        # (367 m - 362) // 12 are the days before month m in a year whose February has 30
        leap = self._leaps(year + 1) - self._leaps(year)
        return (367 * month - 362) // 12 - (month > 2) * (2 - leap)

    def month_length(self, year: Any, month: Any) -> Any:
        return self._before_month(year, month + 1) - self._before_month(year, month)

    def day(self, year: Any, month: Any, day: Any) -> Any:
        return self._year_start(year) + self._before_month(year, month) + day - 1

    def civil(self, day: Any) -> Any:
        year = day * 400 // self._year_start(400)  # right, or one off
        year = year + (self._year_start(year + 1) <= day) - (self._year_start(year) > day)
        in_year = day - self._year_start(year)
        february_30 = (in_year >= self._before_month(year, 3)) * (61 - self._before_month(year, 3))
        month = (12 * (in_year + february_30) + 373) // 367
        return year, month, in_year - self._before_month(year, month) + 1


class _ThirtyDayMonths:
    """Twelve months of 30 days."""

    def month_length(self, year: Any, month: Any) -> Any:
        return 30 + 0 * (year + month)

    def day(self, year: Any, month: Any, day: Any) -> Any:
        return 360 * year + 30 * (month - 1) + day - 1

    def civil(self, day: Any) -> Any:
        year, in_year = day // 360, day % 360
        return year, in_year // 30 + 1, in_year % 30 + 1


_GREGORIAN: Final = _RomanMonths(lambda year: (year + 3) // 4 - (year + 99) // 100 + (year + 399) // 400)
_JULIAN: Final = _RomanMonths(lambda year: (year + 3) // 4)


class _JulianThenGregorian:
    """CF's standard calendar: Julian to 1582-10-04, and the day after that is the Gregorian 1582-10-15."""

    first_gregorian: ClassVar[int] = _GREGORIAN.day(1582, 10, 15)
    julian_ahead: ClassVar[int] = _GREGORIAN.day(1582, 10, 15) - _JULIAN.day(1582, 10, 5)

    def month_length(self, year: Any, month: Any) -> Any:
        gregorian = year * 12 + month > 1582 * 12 + 9
        julian, new = _JULIAN.month_length(year, month), _GREGORIAN.month_length(year, month)
        return julian + gregorian * (new - julian)

    def day(self, year: Any, month: Any, day: Any) -> Any:
        new = _GREGORIAN.day(year, month, day)
        gregorian = new >= self.first_gregorian
        old = _JULIAN.day(year, month, day) + self.julian_ahead
        old = old - (old >= self.first_gregorian) * (old - self.first_gregorian + 1)  # the ten days dropped
        return old + gregorian * (new - old)

    def civil(self, day: Any) -> Any:
        gregorian = day >= self.first_gregorian
        old, new = _JULIAN.civil(day - self.julian_ahead), _GREGORIAN.civil(day)
        return tuple(o + gregorian * (n - o) for o, n in zip(old, new, strict=True))


_RULES: Final[dict[str, _Rule]] = {
    "standard": _JulianThenGregorian(),
    "proleptic_gregorian": _GREGORIAN,
    "julian": _JULIAN,
    "noleap": _RomanMonths(lambda year: 0 * year),
    "all_leap": _RomanMonths(lambda year: year),
    "360_day": _ThirtyDayMonths(),
}
_EPOCH: Final = {name: rule.day(1970, 1, 1) for name, rule in _RULES.items()}
_ALIASES: Final = {"gregorian": "standard", "365_day": "noleap", "366_day": "all_leap", "360": "360_day"}


def calendar(name: str | None) -> Calendar:
    """Give the calendar of that CF name.

    Parameters
    ----------
    name : str or None
        A CF calendar name in any case; None is ``"standard"``, as CF says. ``"360"`` is taken for 360_day.

    Raises
    ------
    TimeAxisError
        If no calendar has that name.
    """
    lower = "standard" if name is None else str(name).strip().lower()
    canonical = _ALIASES.get(lower, lower)
    if canonical not in _RULES:
        known = ", ".join(sorted({*_RULES, *_ALIASES}))
        raise TimeAxisError(f"unknown calendar {name!r}", hint=f"There are {known}")
    return Calendar(canonical)


@dataclass(frozen=True, slots=True)
class Calendar:
    """A CF calendar; get one from :func:`calendar`. Calendars of equal name are equal.

    Attributes
    ----------
    name : str
        Canonical: standard, proleptic_gregorian, julian, noleap, all_leap or 360_day.
    """

    name: str

    def __post_init__(self) -> None:
        if self.name not in _RULES:
            raise TimeAxisError(f"{self.name!r} is no canonical calendar name")

    @property
    def is_standard(self) -> bool:
        """Whether its times are Python datetimes (else cftime ones)."""
        return self.name in {"standard", "proleptic_gregorian"}

    @property
    def has_year_zero(self) -> bool:
        """Whether year 0 comes before year 1 (else year -1 does)."""
        return self.name not in {"standard", "julian"}

    def exists(self, year: int, month: int, day: int) -> bool:
        """Whether that date exists; `year` is astronomical (year 0 is 1 BC)."""
        if not (1 <= month <= 12 and day >= 1):
            return False
        return self.civil(self.day_number(year, month, day)) == (year, month, day)

    def day_number(self, year: Ints, month: Ints, day: Ints) -> Ints:
        """Days from 1970-01-01 to a date, numbers or int64 arrays; one that doesn't exist: the day before it.

        Years are astronomical, months 1 to 12, days from 1.
        """
        rule = _RULES[self.name]
        length = rule.month_length(year, month)
        return rule.day(year, month, day - (day > length) * (day - length)) - _EPOCH[self.name]

    def civil(self, day_number: Ints) -> tuple[Ints, Ints, Ints]:
        """Year (astronomical), month and day of days since 1970-01-01, numbers or int64 arrays."""
        return _RULES[self.name].civil(day_number + _EPOCH[self.name])

    def instant(self, t: Time | date) -> int:
        """Give the instant that has the components of `t`.

        Parameters
        ----------
        t : datetime.datetime, datetime.date or cftime.datetime
            A naive datetime is UTC, an aware one is converted, a date is its midnight. A time of another
            calendar keeps its components; a date that does not exist here becomes the last existing day
            before it, at the same time of day.

        Returns
        -------
        int
            Microseconds since 1970-01-01 in this calendar.
        """
        if isinstance(t, datetime):
            if t.tzinfo is not None:
                t = t.astimezone(UTC)
        elif isinstance(t, date):
            return self.day_number(t.year, t.month, t.day) * DAY
        elif not isinstance(t, cftime.datetime):
            raise TypeError(f"a time is a datetime or a cftime.datetime, not {t!r}")
        year = int(t.year)
        if year < 0 and not getattr(t, "has_year_zero", True):
            year += 1
        in_day = ((t.hour * 60 + t.minute) * 60 + t.second) * SECOND + t.microsecond
        return self.day_number(year, int(t.month), int(t.day)) * DAY + int(in_day)

    def time(self, instant: int) -> Time:
        """Give the datetime of an instant.

        Returns
        -------
        datetime.datetime or cftime.datetime
            Aware UTC for the standard calendars; a day of theirs that Python's calendar lacks (Feb 29 of
            the years 100 to 1500) comes out as the day before it.

        Raises
        ------
        TimeAxisError
            If its year is not one that datetimes of this calendar can have.
        """
        year, month, day, hour, minute, second, microsecond = self._fields(instant)
        first = 1 if self.is_standard or not self.has_year_zero else year
        last = 9999 if self.is_standard else year
        if not first <= year <= last:
            raise TimeAxisError(f"no datetime can have the year {year}", calendar=self.name)
        if self.is_standard:
            day = min(day, _GREGORIAN.month_length(year, month))
            return datetime(year, month, day, hour, minute, second, microsecond, tzinfo=UTC)
        return cftime.datetime(year, month, day, hour, minute, second, microsecond, calendar=self.name)

    def text(self, instant: int) -> str:
        """Write an instant for people, also one too far away to be a datetime."""
        year, month, day, hour, minute, second, microsecond = self._fields(instant)
        fraction = f".{microsecond:06d}" if microsecond else ""
        return f"{year:04d}-{month:02d}-{day:02d} {hour:02d}:{minute:02d}:{second:02d}{fraction}"

    def _fields(self, instant: int) -> tuple[int, int, int, int, int, int, int]:
        days, in_day = divmod(int(instant), DAY)
        seconds, microsecond = divmod(in_day, SECOND)
        return *self.civil(days), seconds // 3600, seconds // 60 % 60, seconds % 60, microsecond

    def add_months(self, instant: Ints, months: Ints) -> Ints:
        """Move instants (numbers or int64 arrays) by whole months; a missing day becomes the one before."""
        year, month, day = self.civil(instant // DAY)
        month = year * 12 + month - 1 + months
        return self.day_number(month // 12, month % 12 + 1, day) * DAY + instant % DAY

    def add(self, instant: int, duration: Duration, k: int = 1) -> int:
        """Give ``instant + k * duration``; with months the day is clipped once, not k times."""
        if duration.months:
            return self.add_months(instant, k * duration.months)
        return instant + k * duration.microseconds


def carry(stamps: IntArray, image: Callable[[IntArray], IntArray]) -> tuple[IntArray, IntArray]:
    """Carry a series of instants into other days: another calendar's, or another year's.

    Times of day stay. Where the target lacks a day (Feb 29 in noleap, Feb 30), that day falls on the last
    existing day before it, and its stamps are left out if that day has its own. Where the target has a day
    the source lacks, it repeats the day before it, if the series has stamps day by day there; a coarser
    series simply goes on across it. The result is strictly increasing if `stamps` is.

    Parameters
    ----------
    stamps : numpy.ndarray
        int64 instants, strictly increasing.
    image : callable
        Maps day numbers (int64 arrays) to day numbers, non-decreasing.

    Returns
    -------
    carried : numpy.ndarray
        int64 instants, strictly increasing.
    source : numpy.ndarray
        int64; ``carried[i]`` is the image of ``stamps[source[i]]``.
    """
    days, in_day = np.divmod(stamps, DAY)
    targets = image(days)
    first_on_target = np.searchsorted(targets, targets)
    source = np.flatnonzero(days == days[first_on_target])
    copies = [targets[source] * DAY + in_day[source]]
    sources = [source]

    missing = (image(days + 1) - targets - 1)[source]  # target days between this one and the next day's image
    candidates = np.flatnonzero(missing > 0)
    near = days[source[candidates]]
    daily = np.isin(near - 1, days) | np.isin(near + 1, days)
    repeated = source[candidates[daily]]
    missing = missing[candidates[daily]]
    for later in range(1, int(missing.max(initial=0)) + 1):
        again = repeated[missing >= later]
        copies.append((targets[again] + later) * DAY + in_day[again])
        sources.append(again)

    carried = np.concatenate(copies)
    order = np.argsort(carried, kind="stable")
    return carried[order], np.concatenate(sources)[order]


_ISO_DURATION: Final = re.compile(
    r"P(?:(?P<Y>\d+)Y)?(?:(?P<M>\d+)M)?(?:(?P<W>\d+(?:[.,]\d+)?)W)?(?:(?P<D>\d+(?:[.,]\d+)?)D)?"
    r"(?:T(?=\d)(?:(?P<h>\d+(?:[.,]\d+)?)H)?(?:(?P<m>\d+(?:[.,]\d+)?)M)?(?:(?P<s>\d+(?:[.,]\d+)?)S)?)?"
)
_LENGTH: Final = {"W": 7 * DAY, "D": DAY, "h": 3600 * SECOND, "m": 60 * SECOND, "s": SECOND}


@dataclass(frozen=True, slots=True)
class Duration:
    """A positive step: whole calendar months, or a fixed number of microseconds.

    Attributes
    ----------
    months, microseconds : int
        One of them is positive, the other is 0.

    Raises
    ------
    DeclarationError
        If both are given, neither is, or one is negative.
    """

    months: int = 0
    microseconds: int = 0

    def __post_init__(self) -> None:
        if self.months and self.microseconds:
            raise DeclarationError(
                "a duration is either years and months or weeks, days and less, not both",
                hint="Months have no fixed length, so their sum with days has no single meaning",
            )
        if self.months < 0 or self.microseconds < 0 or not (self.months or self.microseconds):
            raise DeclarationError("a duration must be positive")

    @classmethod
    def parse(cls, value: Duration | timedelta | str) -> Duration:
        """Read a duration.

        Parameters
        ----------
        value : timedelta, str or Duration
            A string is ISO 8601: ``PnYnMnWnDTnHnMnS``. Fractions of weeks and less are taken if they are
            whole microseconds.

        Raises
        ------
        DeclarationError
            If it is no duration, not positive, or mixes months with days or less.
        """
        if isinstance(value, Duration):
            return value
        if isinstance(value, timedelta):
            return cls(microseconds=value // timedelta(microseconds=1))
        found = _ISO_DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
        if found is None or found.lastgroup is None:
            raise DeclarationError(
                f"{value!r} is no duration", hint="Give a timedelta, or ISO 8601 such as PT3H, P1D or P1M"
            )
        parts = {name: Fraction(text.replace(",", ".")) for name, text in found.groupdict("0").items()}
        microseconds = sum(parts[name] * length for name, length in _LENGTH.items())
        if microseconds.denominator != 1:
            raise DeclarationError(f"the duration {value!r} is not a whole number of microseconds")
        return cls(months=int(12 * parts["Y"] + parts["M"]), microseconds=int(microseconds))

    def isoformat(self) -> str:
        """Write it as ISO 8601; :meth:`parse` reads it back."""
        if self.months:
            years, months = divmod(self.months, 12)
            return "P" + (f"{years}Y" if years else "") + (f"{months}M" if months else "")
        days, rest = divmod(self.microseconds, DAY)
        seconds, fraction = divmod(rest, SECOND)
        hours, minutes, seconds = seconds // 3600, seconds // 60 % 60, seconds % 60
        clock = (f"{hours}H" if hours else "") + (f"{minutes}M" if minutes else "")
        if fraction:
            clock += f"{seconds}.{fraction:06d}".rstrip("0") + "S"
        elif seconds:
            clock += f"{seconds}S"
        return "P" + (f"{days}D" if days else "") + (f"T{clock}" if clock else "")
