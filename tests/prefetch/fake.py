"""A source in memory whose every step can be held, made to fail, and is written down."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from earthsciio.decode.abort import AbortToken
from earthsciio.errors import TimeBeforeStart, TimePastEnd
from earthsciio.fields import NativeDataset, NativeField, Time
from earthsciio.prefetch import PrefetchGroup
from earthsciio.records import DecodedRecord, OutputSpec, RecordLayout, RecordRef, Resolved

T0 = datetime(2020, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def hours(n: float) -> datetime:
    """The time n hours after the first anchor."""
    return T0 + n * HOUR


class FakeSource:
    """Records at a regular step. The value of record i, Window w is ``values(i, w)``.

    Parameters
    ----------
    n : int
        Anchors, ``step`` hours apart, the first `offset` hours after T0.
    bracket : bool
        Whether a sample is made of a record and its successor.
    size : int
        float64 values per record and Window.
    cycle : bool
        Whether the series repeats every ``n * step`` hours, for ever.
    hold : bool
        Whether the first and last record serve all times before and after.
    """

    is_const = False
    calendar = "standard"
    select: Any = None

    def __init__(
        self,
        n: int,
        *,
        step: float = 1,
        offset: float = 0,
        bracket: bool = False,
        size: int = 8,
        cycle: bool = False,
        hold: bool = False,
        open_ended: bool = False,
        salt: int = 0,
    ) -> None:
        self.n, self.step, self.offset, self.size, self.salt = n, step * HOUR, hours(offset), size, salt
        self.bracket, self.cycle, self.hold, self.open_ended = bracket, cycle, hold, open_ended
        self.calls: list[tuple[str, Any]] = []
        self.failing: dict[Any, BaseException] = {}  # by record index, ("resolve", j), ("fetch", j) ...
        self.gates: dict[Any, threading.Event] = {}
        self.reached: dict[Any, threading.Event] = {}
        self.latency: Callable[[int], None] | None = None
        self.aliases: dict[int, int] = {}  # anchors that are made of another one's record
        self._lock = threading.Lock()
        self._blocked: list[threading.Event] = []  # the gate of each thread that is held at one
        self.running = 0
        self.most_running = 0

    # Control.

    @property
    def blocked(self) -> int:
        """Threads held at a gate that is still shut."""
        return sum(not gate.is_set() for gate in list(self._blocked))

    def gate(self, where: Any) -> threading.Event:
        """Hold decoding of record `where` until the event is set."""
        self.gates[where] = threading.Event()
        self.reached[where] = threading.Event()
        return self.gates[where]

    def wait_until_reached(self, where: Any) -> None:
        assert self.reached[where].wait(20), f"nothing came to {where}"

    def decoded(self) -> list[int]:
        """Indices of the records decoded, in the order in which they were begun."""
        return [what for kind, what in self.calls if kind == "decode"]

    def called(self, kind: str) -> list[Any]:
        return [what for name, what in self.calls if name == kind]

    def _enter(self, kind: str, what: Any, abort: AbortToken | None = None) -> None:
        with self._lock:
            self.calls.append((kind, what))
        where = what if kind == "decode" else (kind, what)
        if where in self.reached:
            self.reached[where].set()
        gate = self.gates.get(where)
        if gate is not None and not gate.is_set():
            self._blocked.append(gate)
            try:
                while not gate.wait(0.002):
                    if abort is not None:
                        abort.check()
            finally:
                self._blocked.remove(gate)
        if where in self.failing:
            raise self.failing[where]

    # What it declares.

    @property
    def end(self) -> Time | None:
        return None if self.cycle or self.hold or self.open_ended else self.offset + self.n * self.step

    def first_anchor(self) -> Time | None:
        return None if self.cycle or self.hold else self.offset

    def anchor(self, j: int) -> datetime:
        return self.offset + j * self.step

    def index(self, t: Time) -> int:
        j = (t - self.offset) // self.step
        if self.cycle:
            return j
        if self.hold:
            return min(max(j, 0), self.n - 1)
        if j < 0:
            raise TimeBeforeStart("no data yet")
        if j >= self.n:
            raise TimePastEnd("no data any more")
        return j

    def anchor_at(self, t: Time) -> Time:
        return self.anchor(self.index(t))

    def anchors(self, lo: Time, hi: Time) -> list[Time]:
        first, last = -((self.offset - lo) // self.step), -((self.offset - hi) // self.step)
        if not self.cycle:
            first, last = max(first, 0), min(last, self.n)
        return [self.anchor(j) for j in range(first, last)]

    def series_index(self, anchors: Sequence[Time]) -> Sequence[int]:
        return [self.index(anchor) % self.n for anchor in anchors]

    def refresh_times(self) -> list[Time]:
        return [self.anchor(j) for j in range(self.n)]

    # What it does.

    def ref(self, i: int) -> RecordRef:
        return RecordRef("mem:" + str(i // 4), (i // 4,), i % 4, self.anchor(i))

    def resolve(self, t: Time, abort: AbortToken | None = None) -> Resolved:
        j = self.index(t)
        self._enter("resolve", j, abort)
        own = self.aliases.get(j, j)
        following = own + 1 if self.cycle else min(own + 1, self.n - 1)
        steps = [own, following] if self.bracket else [own]
        return Resolved(
            self.anchor(j),
            tuple(self.ref(i % self.n) for i in steps),
            tuple(self.anchor(i) for i in steps),
        )

    def record(self, ref: RecordRef) -> int:
        return ref.identity[0] * 4 + (ref.index or 0)

    def values(self, i: int, window: int = 0) -> np.ndarray[Any, Any]:
        return np.arange(self.size, dtype=np.float64) + 1000 * i + 1e6 * window + 1e9 * self.salt

    def measure(self, record: RecordRef, windows: Sequence[Any]) -> RecordLayout:
        self._enter("measure", self.record(record))
        f8 = np.dtype(np.float64)
        return RecordLayout(
            tuple(OutputSpec(w, "v", (self.size,), f8) for w in range(len(windows))), len(windows)
        )

    def assembly_nbytes(self, resolved: Resolved, layouts: Sequence[RecordLayout]) -> int:
        return sum(layout.nbytes for layout in layouts) if self.bracket else 0

    def decode_record(
        self, record: RecordRef, layout: RecordLayout, allocate: Any, abort: AbortToken, keep: Any = None
    ) -> DecodedRecord:
        i = self.record(record)
        with self._lock:
            self.running += 1
            self.most_running = max(self.most_running, self.running)
        try:
            fields = []
            outputs = [allocate(output.shape, output.dtype) for output in layout.outputs]
            for output in outputs:
                output[...] = -1.0
            self._enter("decode", i, abort)
            if self.latency is not None:
                self.latency(i)
            abort.check()
            for w, output in enumerate(outputs):
                output[...] = self.values(i, w)
                fields.append({"v": NativeField(output, ("x",), {"units": "1"})})
            return DecodedRecord(record, tuple(fields), tuple({} for _ in fields), bytes_read=10)
        finally:
            with self._lock:
                self.running -= 1

    def assemble(
        self, resolved: Resolved, records: Sequence[DecodedRecord], allocate: Any
    ) -> tuple[NativeDataset, ...]:
        datasets = []
        for w in range(len(records[0].fields)):
            parts = [record.fields[w]["v"] for record in records]
            if self.bracket:
                data = allocate((2, self.size), np.dtype(np.float64))
                np.stack([part.data for part in parts], out=data)
                field = NativeField(data, ("time", "x"), parts[0].attrs)
            else:
                field = parts[0]
            datasets.append(NativeDataset({"v": field}, {}, resolved.times))
        return tuple(datasets)

    def fetch_ahead(self, t: Time, windows: Sequence[Any] = (None,), abort: AbortToken | None = None) -> None:
        self._enter("fetch", self.index(t), abort)

    # The oracle.

    def expected(self, t: Time, window: int = 0) -> np.ndarray[Any, Any]:
        """What ``sample_at(t)`` must hold, without any of the above."""
        j = bisect_right([self.anchor(j) for j in range(self.n)], t) - 1 if not self.cycle else self.index(t)
        j = self.aliases.get(max(j, 0), max(j, 0))
        own = self.values(j % self.n, window)
        if not self.bracket:
            return own
        following = (j + 1) % self.n if self.cycle else min(j + 1, self.n - 1)
        return np.stack([own, self.values(following, window)])

    @property
    def nbytes(self) -> int:
        """Bytes of one record."""
        return 8 * self.size


def quiet(group: PrefetchGroup, *sources: FakeSource) -> None:
    """Return when every thread of a group waits, for something to do or at a gate of these sources."""
    engine, crew = group._engine, group._crew
    assert engine is not None
    assert crew is not None
    for _ in range(20_000):
        with engine.lock:
            alive = [thread for thread in crew.threads if thread.is_alive()]
            waiting = engine.changes.waiting  # those that were called have left
            if waiting + sum(source.blocked for source in sources) >= len(alive):
                return
        threading.Event().wait(0.001)
    raise AssertionError("the group never came to rest")


def values(sample: Any, window: int | None = None) -> Any:
    """The array of a sample of a FakeSource."""
    return (sample.data if window is None else sample.data[window])["v"].data
