"""A timeline of who decoded, waited and computed when, for chrome://tracing, Perfetto or speedscope.

A listener that writes the trace event format: one JSON object per line of an array, written as it happens,
so that the file of a run that was killed can still be opened (these viewers take an array without its end).
"""

from __future__ import annotations

import json
import os
from types import TracebackType
from typing import Any, Self

from earthsciio.events import (
    DecodeFinished,
    Event,
    Evicted,
    Fetched,
    FetchedAhead,
    OrderStarted,
    Submitted,
    Taken,
    Waited,
)
from earthsciio.forks import new_lock

__all__ = ["ChromeTrace"]


class ChromeTrace:
    """Writes the events of a group to a file.

    Times are microseconds of ``time.perf_counter``; a row is a thread. Between two takes the consumer's row
    shows what it did on its own, as "compute".

    Parameters
    ----------
    path : str or path
        The file; it is overwritten.
    process : int
        The number of the process in the timeline, such as an MPI rank.

    Examples
    --------
    >>> with ChromeTrace("trace.json") as trace:  # doctest: +SKIP
    ...     with PrefetchGroup(members, listeners=[trace]) as group:
    ...         sweep(group)
    """

    def __init__(self, path: str | os.PathLike[str], process: int = 0) -> None:
        self._file = open(path, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - closed by close()
        self._lock = new_lock(self)
        self._process = process
        self._rows: dict[str, int] = {}
        self._last_take: float | None = None
        self._separator = "["

    def __call__(self, event: Event) -> None:
        """Write an event."""
        with self._lock:
            if self._file.closed:
                return
            match event:
                case DecodeFinished():
                    name = f"{event.key} {event.record}"
                    self._span(event, name, "decode", event.seconds, nbytes=event.nbytes, error=event.error)
                case FetchedAhead():
                    name = f"fetch {event.key} {event.anchor}"
                    self._span(event, name, "fetch", event.seconds, error=event.error)
                case Fetched():
                    self._span(event, f"fetch {event.url}", "fetch", event.seconds, status=event.status)
                case Waited():
                    if self._last_take is not None:
                        busy = event.when - event.seconds - self._last_take
                        self._span(event, "compute", "compute", busy, end=event.when - event.seconds)
                    self._span(event, f"wait for epoch {event.epoch}", "wait", event.seconds)
                case Taken():
                    self._last_take = event.when
                    self._instant(event, f"take epoch {event.epoch}", slot=event.slot)
                case OrderStarted():
                    self._last_take = None
                    self._instant(event, f"start {event.slots} slots", first=event.first)
                case Submitted():
                    self._instant(event, f"submit {event.key} {event.anchor}", slot=event.slot)
                case Evicted():
                    self._instant(event, f"drop {event.key} {event.record}", nbytes=event.nbytes)
                case _:
                    pass

    def close(self) -> None:
        """End the file; events that come later are ignored."""
        with self._lock:
            if not self._file.closed:
                self._file.write("[]\n" if self._separator == "[" else "\n]\n")
                self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _span(
        self, event: Event, name: str, category: str, seconds: float, end: float | None = None, **args: Any
    ) -> None:
        start = (event.when if end is None else end) - seconds
        self._write(event.thread, name, args, ph="X", cat=category, ts=start * 1e6, dur=seconds * 1e6)

    def _instant(self, event: Event, name: str, **args: Any) -> None:
        self._write(event.thread, name, args, ph="i", s="t", ts=event.when * 1e6)

    def _write(self, thread: str, name: str, args: dict[str, Any], **what: Any) -> None:
        row = self._rows.get(thread)
        if row is None:
            row = self._rows[thread] = len(self._rows)
            self._line({"ph": "M", "name": "thread_name", "args": {"name": thread}, "tid": row})
        known = {key: value for key, value in args.items() if value is not None}
        self._line({"name": name, **what, "tid": row, "args": known})

    def _line(self, entry: dict[str, Any]) -> None:
        self._file.write(f"{self._separator}\n{json.dumps({**entry, 'pid': self._process})}")
        self._separator = ","
