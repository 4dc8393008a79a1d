"""A file's own time axis: CF units decoded, records in order, and the record that serves an anchor.

:func:`decode_axis` turns the numbers, ``units`` and ``calendar`` of a time coordinate into a
:class:`TimeAxis` of instants in the source's calendar, exactly to the microsecond and the same on every
machine; :meth:`TimeAxis.find` is the one rule by which records are found. An axis that can't be decoded or
is out of order is an error that names the file: a guess here would be a wrong field a month later.
:func:`encode_times` writes the times of a bracket back as CF numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from . import calendars
from .calendars import DAY, SECOND, Calendar, IntArray, carry
from .errors import NotATimeAxis, TimeAxisError
from .fields import Array

__all__ = ["TimeAxis", "decode_axis", "encode_times"]

# Reference dates and offsets further away than this are refused, so that their sum can't overflow.
_FAR_YEARS: Final = 100_000
_FAR: Final = _FAR_YEARS * 366 * DAY

_UNITS: Final = {
    **dict.fromkeys(("microseconds", "microsecond", "microsecs", "microsec", "us", "µs", "μs"), 1),
    **dict.fromkeys(("milliseconds", "millisecond", "millisecs", "millisec", "msecs", "msec", "ms"), 1000),
    **dict.fromkeys(("seconds", "second", "secs", "sec", "s"), SECOND),
    **dict.fromkeys(("minutes", "minute", "mins", "min"), 60 * SECOND),
    **dict.fromkeys(("hours", "hour", "hrs", "hr", "h"), 3600 * SECOND),
    **dict.fromkeys(("days", "day", "d"), DAY),
    **dict.fromkeys(("weeks", "week"), 7 * DAY),
}
_NANOSECONDS: Final = frozenset({"nanoseconds", "nanosecond", "nanosecs", "nanosec", "ns"})
_MONTHS: Final = {"months": 1, "month": 1, "years": 12, "year": 12}
_MONTH_NAMES: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")

_SINCE: Final = re.compile(r"\s*(?P<unit>\S+)\s+since\s+(?P<date>.+?)\s*", re.IGNORECASE)
_CLOCK: Final = (
    r"(?:(?:\s*T\s*|\s+)(?P<hour>\d{1,2})(?::(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})(?:\.(?P<fraction>\d*))?)?)?)?"
    r"\s*(?:Z|UTC|GMT|(?P<sign>[+-])(?P<zone_hours>\d{1,2})(?::?(?P<zone_minutes>\d{2}))?)?"
)
_DATES: Final = tuple(
    re.compile(form + _CLOCK, re.IGNORECASE)
    for form in (
        r"(?P<year>[+-]?\d+)-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2}))?",
        r"(?P<month_name>[a-z]{3})[a-z]*\.?\s+(?P<day>\d{1,2}),?\s+(?P<year>\d+)",
        r"(?P<day>\d{1,2})[-\s](?P<month_name>[a-z]{3})[a-z]*\.?[-\s](?P<year>\d+)",
    )
)


@dataclass(frozen=True, slots=True, eq=False)
class TimeAxis:
    """The dated records of one file.

    Attributes
    ----------
    file : str
        The file, for errors.
    calendar : Calendar
        What the stamps count in: the source's calendar, which need not be the file's.
    stamps : numpy.ndarray
        int64 instants, strictly increasing, read-only.
    records : numpy.ndarray
        int64, same length: the index of each on the file's time dimension. Records without a date are not
        among them; one may come twice, where it stands for a day that the file's calendar lacks.
    """

    file: str
    calendar: Calendar
    stamps: IntArray
    records: IntArray
    _by_record: IntArray = field(init=False, repr=False)  # positions, sorted by record
    _sorted: IntArray = field(init=False, repr=False)  # the records at those

    def __post_init__(self) -> None:
        assert self.stamps.shape == self.records.shape
        assert (np.diff(self.stamps) > 0).all()
        self.stamps.flags.writeable = False
        self.records.flags.writeable = False
        object.__setattr__(self, "_by_record", np.argsort(self.records, kind="stable"))
        object.__setattr__(self, "_sorted", self.records[self._by_record])

    def __len__(self) -> int:
        return len(self.stamps)

    @property
    def span(self) -> tuple[int, int] | None:
        """First and last stamp; None if there is none."""
        return (int(self.stamps[0]), int(self.stamps[-1])) if len(self.stamps) else None

    def positions(self, first: int, stop: int) -> IntArray:
        """Give where records ``[first, stop)`` of the time dimension come among the dated ones, by record."""
        low, high = np.searchsorted(self._sorted, (first, stop))
        return self._by_record[low:high]

    def find(self, anchor: int, next_anchor: int, tolerance: int) -> int | None:
        """Find the record of an anchor.

        That is the stamp nearest to the anchor within the tolerance, else the earliest one after it in
        ``[anchor - tolerance, next_anchor - tolerance)``. (The earliest one of that range alone would be
        the day before's last record where a file is much finer than the cadence.)

        Returns
        -------
        int or None
            Its position in :attr:`stamps` and :attr:`records`; None if there is none.
        """
        first, after = np.searchsorted(self.stamps, [anchor - tolerance, anchor + tolerance + 1])
        stop = np.searchsorted(self.stamps, next_anchor - tolerance)
        near = self.stamps[first : min(after, stop)]
        if len(near):
            return int(first + np.argmin(np.abs(near - anchor)))
        return int(first) if first < stop else None


def decode_axis(
    values: Array,
    units: str | None,
    calendar: str | None,
    target: Calendar,
    *,
    file: str,
    variable: str | None = None,
    valid: NDArray[np.bool_] | None = None,
    sort: bool = False,
    months_opt_in: bool = False,
) -> TimeAxis:
    """Decode a time coordinate.

    Parameters
    ----------
    values : numpy.ndarray
        The stored numbers, 1-D (or one scalar), of any integer or float dtype.
    units : str or None
        CF: ``"<unit> since <date>"``.
    calendar : str or None
        The file's calendar; None is standard.
    target : Calendar
        The source's calendar. Stamps go into it by their components, see :func:`~.calendars.carry`.
    file, variable : str
        For errors.
    valid : numpy.ndarray, optional
        bool, shape of `values`; False where a stamp is fill. NaN never is valid.
    sort : bool
        Sort stamps that are out of order; duplicates stay an error.
    months_opt_in : bool
        Take months and years as whole calendar months in calendars where they have no fixed length.

    Raises
    ------
    NotATimeAxis
        If the units have no reference date.
    TimeAxisError
        If units, reference date, calendar or values can't be decoded, or stamps are not strictly increasing.
    """
    where: dict[str, Any] = {"file": file, "variable": variable, "units": units}
    try:
        source = calendars.calendar(calendar)
    except TimeAxisError as error:
        raise TimeAxisError(f"unknown calendar {calendar!r}", hint=error.hint, **where) from None
    numbers = np.atleast_1d(np.asarray(values))
    if numbers.ndim != 1 or numbers.dtype.kind not in "iuf":
        raise TimeAxisError(f"a time axis is 1-D and numeric, not {numbers.ndim}-D {numbers.dtype}", **where)
    dated = np.ones(numbers.shape, bool) if valid is None else np.atleast_1d(valid)
    records = np.flatnonzero(dated & ~np.isnan(numbers))
    stamps = _instants(numbers[records], units, source, months_opt_in, where)
    stamps, records = _in_order(stamps, records, source, sort, where)
    if source != target:
        stamps, kept = carry(stamps, lambda days: target.day_number(*source.civil(days)))
        records = records[kept]
    return TimeAxis(file, target, stamps, records)


def encode_times(instants: Sequence[int], own: Calendar) -> tuple[NDArray[np.float64], dict[str, str]]:
    """Write instants as a CF time coordinate.

    Returns
    -------
    values : numpy.ndarray
        float64 seconds since 1970-01-01 in `own`.
    attrs : dict
        ``units`` and ``calendar``.
    """
    values = np.asarray(instants, dtype=np.int64) / SECOND
    return values, {"units": "seconds since 1970-01-01", "calendar": own.name}


def _instants(
    numbers: Array, units: str | None, source: Calendar, months_opt_in: bool, where: dict[str, Any]
) -> IntArray:
    found = _SINCE.fullmatch(units) if isinstance(units, str) else None
    if found is None:
        raise NotATimeAxis(
            "these units do not date the records" if units else "there are no units to date the records",
            hint="CF units of time read '<unit> since <date>'; records without dates can only serve as a "
            "climatology that declares start, frequency and outside='cycle'",
            **where,
        )
    unit = found["unit"].lower()
    reference = _reference(found["date"], source, where)
    length = _UNITS.get(unit)
    if unit in {"common_year", "common_years"} and source.name == "noleap":
        length = 365 * DAY
    if unit in _NANOSECONDS:  # finer than an instant: rounded to the microsecond
        whole = numbers.dtype.kind != "f"
        numbers, length = ((numbers.astype(np.int64) + 500) // 1000 if whole else numbers / 1000), 1
    if unit in _MONTHS and source.name == "360_day":
        length = _MONTHS[unit] * 30 * DAY
    elif unit in _MONTHS and months_opt_in:
        return _whole_months(numbers, _MONTHS[unit], reference, source, where)
    elif unit in _MONTHS:
        raise TimeAxisError(
            f"{unit} have no fixed length in the calendar {source.name}",
            hint="The reader option whole_months=True takes whole calendar months, if that is what is meant",
            **where,
        )
    if length is None:
        raise TimeAxisError(f"unknown unit of time {unit!r}", **where)
    offsets = _scaled(numbers, length, where)
    return offsets + reference


def _scaled(numbers: Array, length: int, where: dict[str, Any]) -> IntArray:
    """Multiply by a unit's length in microseconds, rounding once, to the nearest microsecond.

    A float is first split into its whole and fractional units, both exact, so that the product keeps full
    precision without extended floats. What then lies within a microsecond of a whole second is that second.
    """
    _check_range(numbers, _FAR / length, where)
    whole: IntArray
    if numbers.dtype.kind != "f":
        whole = numbers.astype(np.int64)
        return whole * length
    numbers = numbers.astype(np.float64)
    whole = np.floor(numbers).astype(np.int64)
    part = (numbers - whole) * length
    rounded = np.rint(part)
    if length >= SECOND:
        second = np.rint(part / SECOND) * SECOND
        rounded = np.where(np.abs(part - second) < 1, second, rounded)
    return whole * length + rounded.astype(np.int64)


def _whole_months(
    numbers: Array, months: int, reference: int, source: Calendar, where: dict[str, Any]
) -> IntArray:
    day = source.civil(reference // DAY)[2]
    if day > 28:
        raise TimeAxisError(f"months from day {day} on, which not every month has", **where)
    _check_range(numbers, 12 * _FAR_YEARS / months, where)
    if (numbers != np.rint(numbers)).any():
        raise TimeAxisError("fractions of calendar months have no meaning", **where)
    steps = numbers.astype(np.int64) * months
    return source.add_months(np.full_like(steps, reference), steps)


def _check_range(numbers: Array, limit: float, where: dict[str, Any]) -> None:
    if len(numbers):
        lowest, highest = numbers.min().item(), numbers.max().item()
        if lowest < -limit or highest > limit:
            raise TimeAxisError("time values out of range", lowest=lowest, highest=highest, **where)


def _reference(text: str, source: Calendar, where: dict[str, Any]) -> int:
    """Read the date after "since", in any of the forms found in the wild, as an instant."""
    found = next((match for form in _DATES if (match := form.fullmatch(text))), None)
    if found is None:
        raise TimeAxisError(f"unreadable reference date {text!r}", **where)
    parts = found.groupdict()
    year, day = int(parts["year"]), int(parts["day"] or 1)
    if "month_name" in parts:
        month = 1 + [*_MONTH_NAMES, parts["month_name"].lower()].index(parts["month_name"].lower())
    else:
        month = int(parts["month"])
    if year <= 0 and not source.has_year_zero:
        if year == 0:
            raise TimeAxisError(f"the calendar {source.name} has no year 0", **where)
        year += 1
    hour, minute, second = (int(parts[name] or 0) for name in ("hour", "minute", "second"))
    on_the_clock = hour < 24 and minute < 60 and second < 60
    if abs(year) > _FAR_YEARS or not source.exists(year, month, day) or not on_the_clock:
        raise TimeAxisError(f"there is no {text!r} in the calendar {source.name}", **where)
    fraction = int((parts["fraction"] or "").ljust(6, "0")[:6])
    ahead = int(parts["zone_hours"] or 0) * 60 + int(parts["zone_minutes"] or 0)
    ahead = -ahead if parts["sign"] == "-" else ahead
    seconds = (hour * 60 + minute - ahead) * 60 + second
    return source.day_number(year, month, day) * DAY + seconds * SECOND + fraction


def _in_order(
    stamps: IntArray, records: IntArray, source: Calendar, sort: bool, where: dict[str, Any]
) -> tuple[IntArray, IntArray]:
    if sort:
        order = np.argsort(stamps, kind="stable")
        stamps, records = stamps[order], records[order]
    bad = np.flatnonzero(np.diff(stamps) <= 0)
    if len(bad):
        before, after = bad[0], bad[0] + 1
        twice = stamps[before] == stamps[after]
        raise TimeAxisError(
            "two records have the same time" if twice else "records out of order in time",
            index=int(records[after]),
            time=source.text(int(stamps[after])),
            previous_index=int(records[before]),
            previous_time=source.text(int(stamps[before])),
            hint=None if twice else "The reader option sort_time=True sorts them",
            **where,
        )
    return stamps, records
