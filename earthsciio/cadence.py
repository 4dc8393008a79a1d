"""When a source has data: its anchors, its file periods, and which anchor serves a given time.

A :class:`Cadence` is the declared rhythm of a source. The k-th anchor is ``start + k * frequency`` and the
j-th file begins at ``start + j * file_period``, each computed from ``start``, so that nothing drifts and no
file is opened to know them. Only ``frequency="records"`` takes its anchors from the files: the cadence is
given the stamps by whoever read them. :meth:`Cadence.place` finds the anchor in force at any time, before
``start`` and after ``end`` too, by the rule ``outside`` names. All times here are instants, the integers of
:mod:`earthsciio.calendars`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias

import cftime
import numpy as np

from . import calendars
from .calendars import DAY, Calendar, Duration, IntArray, calendar, carry
from .errors import DeclarationError, RecordNotFound, TimeBeforeStart, TimePastEnd
from .fields import Time

__all__ = ["FOREVER", "Cadence", "Calendar", "Duration", "Outside", "Placed", "Stamps", "Steps", "calendar"]

Outside: TypeAlias = Literal["error", "hold", "cycle"]

#: Later than every instant: when the last anchor of a series without ``end`` stops being in force.
FOREVER: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Steps:
    """Times at a regular step: ``start + k * step`` for every integer k, also below 0.

    Raises
    ------
    DeclarationError
        If the step is in months and `start` is on a day above 28, which not every month has.
    """

    calendar: Calendar
    start: int
    step: Duration

    def __post_init__(self) -> None:
        day = self.calendar.civil(self.start // DAY)[2]
        if self.step.months and day > 28:
            raise DeclarationError(
                f"a step of {self.step.isoformat()} can't start on day {day}: not every month has one",
                start=self.calendar.text(self.start),
                hint="Start on day 28 or earlier",
            )

    def at(self, k: int) -> int:
        """Give the k-th time."""
        return self.calendar.add(self.start, self.step, k)

    def index(self, instant: int) -> int:
        """Give the k of the last time at or before `instant`."""
        if not self.step.months:
            return (instant - self.start) // self.step.microseconds
        (year, month, _), (year_0, month_0, _) = map(self.calendar.civil, (instant // DAY, self.start // DAY))
        k = (12 * (year - year_0) + month - month_0) // self.step.months
        return k if self.at(k) <= instant else k - 1

    def between(self, first: int, stop: int) -> IntArray:
        """Give the times of k in ``[first, stop)``, as int64."""
        k = np.arange(first, max(first, stop), dtype=np.int64)
        if self.step.months:
            return self.calendar.add_months(np.full_like(k, self.start), k * self.step.months)
        return self.start + k * self.step.microseconds


class Stamps:
    """Times at no regular step: an explicit list, k counting from 0.

    Parameters
    ----------
    values : array_like of int64
        Instants, strictly increasing.
    """

    __slots__ = ("values",)

    def __init__(self, values: IntArray | list[int]) -> None:
        self.values: IntArray = np.array(values, dtype=np.int64)
        self.values.flags.writeable = False
        if self.values.ndim != 1 or (np.diff(self.values) <= 0).any():
            raise ValueError("the stamps of a series are strictly increasing")

    def at(self, k: int) -> int:
        """Give the k-th time; one past the last is :data:`FOREVER`."""
        if not 0 <= k <= len(self.values):
            raise IndexError(f"there is no stamp {k} among {len(self.values)}")
        return int(self.values[k]) if k < len(self.values) else FOREVER

    def index(self, instant: int) -> int:
        """Give the k of the last time at or before `instant`; -1 before the first."""
        return int(np.searchsorted(self.values, instant, side="right")) - 1

    def between(self, first: int, stop: int) -> IntArray:
        """Give the times of k in ``[first, stop)``, as int64."""
        return self.values[max(first, 0) : max(first, stop, 0)]


@dataclass(frozen=True, slots=True)
class Placed:
    """Which anchor serves a time.

    Attributes
    ----------
    k : int
        The anchor's index within the declared span: it says which record to read.
    anchor : int
        The anchor, in the year asked for: differs from the declared one under ``outside="cycle"`` only.
    cycles : int
        How many cycles after the declared span (negative: before).
    repeated : int
        Days since the anchor that this one repeats: 1 on a Feb 29 that the declared year lacks, else 0.
    """

    k: int
    anchor: int
    cycles: int = 0
    repeated: int = 0


@dataclass(frozen=True, slots=True)
class Cadence:
    """The declared rhythm of a source; build one with :meth:`declare`.

    Attributes
    ----------
    calendar : Calendar
        What its instants count in.
    start : int
        The first anchor, and the start of the first file.
    series : Steps, Stamps or None
        The anchors; None while those of ``frequency="records"`` are unread (see :meth:`with_stamps`).
    files : Steps or None
        The starts of the files; None for a source without file periods.
    end : int or None
        No anchor lies at or after it.
    outside : {"error", "hold", "cycle"}
        What serves times before `start` and from `end` on.

    Raises
    ------
    DeclarationError
        If `end` is not after `start`, `outside` is none of the three, or a cycle lacks an `end` a whole
        number of years after a `start` on day 28 or earlier.
    """

    calendar: Calendar
    start: int
    series: Steps | Stamps | None
    files: Steps | None = None
    end: int | None = None
    outside: Outside = "error"
    _cycle: Steps | None = field(init=False, repr=False, compare=False, default=None)
    _tables: dict[int, tuple[IntArray, IntArray]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        if self.end is not None and self.end <= self.start:
            raise DeclarationError(
                "end must be after start",
                start=self.calendar.text(self.start),
                end=self.calendar.text(self.end),
            )
        if self.outside not in {"error", "hold", "cycle"}:
            raise DeclarationError(f"outside is 'error', 'hold' or 'cycle', not {self.outside!r}")
        if self.outside == "cycle":
            object.__setattr__(self, "_cycle", self._years())

    def _years(self) -> Steps:
        """Give the cycle's starts: every ``end - start``, which must be whole years."""
        if self.end is None:
            raise DeclarationError("outside='cycle' needs an end: the series repeats every end - start")
        first, last = (self.calendar.civil(t // DAY) for t in (self.start, self.end))
        years = last[0] - first[0]
        if years < 1 or first[1:] != last[1:] or self.start % DAY != self.end % DAY:
            raise DeclarationError(
                "outside='cycle' needs an end a whole number of years after start",
                start=self.calendar.text(self.start),
                end=self.calendar.text(self.end),
            )
        return Steps(self.calendar, self.start, Duration(months=12 * years))

    @classmethod
    def declare(
        cls,
        start: Time,
        frequency: Duration | timedelta | str,
        file_period: Duration | timedelta | str | None = None,
        *,
        end: Time | None = None,
        calendar: str | None = None,
        outside: Outside = "error",
    ) -> Cadence:
        """Build the cadence of a declaration.

        Parameters
        ----------
        start, end : datetime or cftime.datetime
            First anchor, and the time no anchor reaches.
        frequency : timedelta, str or Duration
            The step between anchors, or ``"records"`` for an irregular series.
        file_period : timedelta, str or Duration, optional
            The step between files; None if there is one file.
        calendar : str, optional
            Default: that of `start`, else standard.
        outside : {"error", "hold", "cycle"}
            See the class.

        Raises
        ------
        DeclarationError
            If the parts don't fit together.
        TimeAxisError
            If the calendar is unknown.
        """
        if not isinstance(start, datetime | cftime.datetime):
            raise DeclarationError(f"start is a datetime or a cftime.datetime, not {start!r}")
        name = calendar if calendar is not None else getattr(start, "calendar", None)
        own = calendars.calendar(name)
        first = own.instant(start)
        return cls(
            calendar=own,
            start=first,
            series=None if frequency == "records" else Steps(own, first, Duration.parse(frequency)),
            files=None if file_period is None else Steps(own, first, Duration.parse(file_period)),
            end=None if end is None else own.instant(end),
            outside=outside,
        )

    def with_stamps(self, stamps: IntArray | list[int]) -> Cadence:
        """Give this cadence with these anchors; those before `start` or from `end` on are left out.

        Parameters
        ----------
        stamps : array_like of int64
            The stamps of the series, strictly increasing.
        """
        values = np.asarray(stamps, dtype=np.int64)
        stop = FOREVER if self.end is None else self.end
        return replace(self, series=Stamps(values[(values >= self.start) & (values < stop)]))

    # The declared span: anchors by index.

    @property
    def is_read(self) -> bool:
        """Whether the anchors are known (False: ``frequency="records"`` before :meth:`with_stamps`)."""
        return self.series is not None

    @property
    def _anchors(self) -> Steps | Stamps:
        if self.series is None:
            raise RuntimeError("frequency='records': the anchors are in the files, and not read yet")
        return self.series

    def anchor(self, k: int) -> int:
        """Give the k-th declared anchor."""
        return self._anchors.at(k)

    def index(self, instant: int) -> int:
        """Give the k of the last declared anchor at or before `instant`; negative before the first."""
        return self._anchors.index(instant)

    @property
    def last_index(self) -> int | None:
        """The k of the last anchor before `end`; None for a regular cadence without end."""
        if isinstance(self._anchors, Stamps):
            return len(self._anchors.values) - 1
        return None if self.end is None else self.index(self.end - 1)

    def next_anchor(self, k: int) -> int:
        """Give when the k-th declared anchor stops being in force.

        That is the next anchor; of an irregular series' last, `end` or else :data:`FOREVER`.
        """
        following = self.anchor(k + 1)
        return self.end if following == FOREVER and self.end is not None else following

    def tolerance(self, k: int) -> int:
        """How far before its anchor a record's stamp may lie: a 20th of the step there.

        0 in an irregular series, whose anchors are the stamps themselves.
        """
        return 0 if isinstance(self._anchors, Stamps) else (self.anchor(k + 1) - self.anchor(k)) // 20

    # Files.

    def file_start(self, instant: int) -> int:
        """Give the start of the file period that holds `instant`; `start` if there are none."""
        return self.start if self.files is None else self.files.at(self.files.index(instant))

    def next_file_start(self, instant: int) -> int | None:
        """Give the start of the file period after the one that holds `instant`; None if there are none."""
        return None if self.files is None else self.files.at(self.files.index(instant) + 1)

    def file_starts(self, lo: int, hi: int) -> list[int]:
        """Give the starts of the file periods that meet ``[lo, hi)``, ascending."""
        starts: list[int] = []
        if hi > lo and self.files is None:
            starts.append(self.start)
        elif hi > lo and self.files is not None:
            starts += self.files.between(self.files.index(lo), self.files.index(hi - 1) + 1).tolist()
        return starts

    # Any time.

    def place(self, instant: int) -> Placed:
        """Find the anchor in force at any instant.

        Under ``outside="cycle"`` the series repeats by calendar years: an anchor keeps its month, day and
        time of day in every year. In a year with a Feb 29 that the declared one lacks, a daily or finer
        series repeats the anchors of Feb 28 on it, and a coarser one goes on across it; a declared Feb 29
        is left out of the years without one (or falls on Feb 28, if that has no anchor).

        Raises
        ------
        TimeBeforeStart
            With ``outside="error"``, before `start`, or before the first record of an irregular series.
        TimePastEnd
            With ``outside="error"``, from `end` on.
        RecordNotFound
            If an irregular series has no record.
        """
        if isinstance(self.series, Stamps) and not len(self.series.values):
            raise RecordNotFound("the series has no record at all", epoch=self.calendar.text(instant))
        if self._cycle is not None:
            return self._place_in_cycle(instant)
        k = self.index(instant)
        if self.outside == "error":
            if k < 0 or instant < self.start:
                raise TimeBeforeStart(
                    "no data yet at this time",
                    epoch=self.calendar.text(instant),
                    start=self.calendar.text(self.anchor(0)),
                )
            if self.end is not None and instant >= self.end:
                raise TimePastEnd(
                    "no data any more at this time",
                    epoch=self.calendar.text(instant),
                    end=self.calendar.text(self.end),
                )
        elif self.outside == "hold":
            last = self.last_index
            k = max(k, 0) if last is None else min(max(k, 0), last)
        return Placed(k, self.anchor(k))

    def successor(self, placed: Placed) -> Placed | None:
        """Give the anchor after a placed one; None after the last before `end`, unless the series cycles."""
        if self._cycle is not None:
            return self._place_in_cycle(self._stop(placed))
        if self.last_index is not None and placed.k >= self.last_index:
            return None
        return Placed(placed.k + 1, self.anchor(placed.k + 1))

    def anchors(self, lo: int | None = None, hi: int | None = None) -> list[int]:
        """List the anchors in ``[lo, hi)``, ascending.

        Parameters
        ----------
        lo, hi : int, optional
            Default: `start` and `end`. Under ``outside="cycle"`` the anchors are those of the years asked
            for; otherwise there are none before `start` or from `end` on.

        Raises
        ------
        DeclarationError
            If neither `hi` nor `end` is given and the cadence is regular.
        """
        lo = self.start if lo is None else lo
        hi = self.end if hi is None else hi
        found: list[int] = []
        if self._cycle is not None:
            assert hi is not None
            for n in range(self._cycle.index(lo), self._cycle.index(hi - 1) + 1):
                times, _ = self._table(n)
                found += times[(times >= lo) & (times < hi)].tolist()
            return found
        last = self.last_index
        if hi is not None:
            before_hi = self.index(hi - 1)
            last = before_hi if last is None else min(last, before_hi)
        if last is None:
            raise DeclarationError("a list of anchors needs an end", start=self.calendar.text(self.start))
        found += self._anchors.between(max(self.index(lo - 1) + 1, 0), last + 1).tolist()
        return found

    def in_year_of(self, placed: Placed, stamp: int) -> int:
        """Carry a record's stamp from the declared span to where its anchor was placed.

        `stamp` is that of the anchor's own record, or of a later one before the next anchor; the result is
        the same date in the year asked for.
        """
        if self._cycle is None or not placed.cycles:
            return stamp
        early = self.anchor(placed.k) - stamp
        if early > 0:  # a stamp a hair before its anchor stays there, whatever day that is
            return placed.anchor - early
        months = placed.cycles * self._cycle.step.months
        return self.calendar.add_months(stamp, months) + placed.repeated * DAY

    # Cycles. A cycle's anchors are a table, made once: what leap years do to a series is then plain data.

    def _table(self, n: int) -> tuple[IntArray, IntArray]:
        """Give the anchors of the n-th cycle after the declared one, and the k of each."""
        table = self._tables.get(n)
        if table is None:
            assert self._cycle is not None
            assert self.last_index is not None
            months = n * self._cycle.step.months

            def in_cycle(days: IntArray) -> IntArray:
                return self.calendar.add_months(days * DAY, np.full_like(days, months)) // DAY

            times, ks = carry(self._anchors.between(0, self.last_index + 1), in_cycle)
            # where a cycle begins in the middle of Feb 28, a repeat of its morning belongs to neither cycle
            own = (times >= self._cycle.at(n)) & (times < self._cycle.at(n + 1))
            table = times[own], ks[own]
            if len(self._tables) >= 8:  # a sweep lives in one or two cycles at a time
                self._tables.clear()
            self._tables[n] = table
        return table

    def _place_in_cycle(self, instant: int) -> Placed:
        assert self._cycle is not None
        n = self._cycle.index(instant)
        times, ks = self._table(n)
        i = int(np.searchsorted(times, instant, side="right")) - 1
        if i < 0:  # before the first record of an irregular series: the last one of the cycle before
            n -= 1
            times, ks = self._table(n)
        k, anchor = int(ks[i]), int(times[i])
        moved = self.calendar.add_months(self.anchor(k), n * self._cycle.step.months)
        return Placed(k, anchor, n, (anchor - moved) // DAY)

    def _stop(self, placed: Placed) -> int:
        assert self._cycle is not None
        times, _ = self._table(placed.cycles)
        i = int(np.searchsorted(times, placed.anchor, side="right"))
        if i < len(times):
            return int(times[i])
        return int(self._table(placed.cycles + 1)[0][0])
