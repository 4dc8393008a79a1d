"""Statistics of a group: what was decoded, what was reused, and how long the consumer waited.

A :class:`Tally` counts while the group runs; :class:`Stats` is what ``stats()`` hands out. The estimates
compare waiting with the rest: they need no reference run, and are as good as that allows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from earthsciio.records import DecodedRecord

__all__ = ["MemberStats", "Stats", "Tally"]


class _Row(Mapping[str, Any]):
    """A dataclass that can be read as a mapping too."""

    __slots__ = ()

    def __getitem__(self, name: str) -> Any:
        if name not in self._names():
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def _names(self) -> tuple[str, ...]:
        return tuple(column.name for column in fields(self))  # type: ignore[arg-type]  # subclasses are


@dataclass(frozen=True, slots=True)
class MemberStats(_Row):
    """Figures of one member.

    Attributes
    ----------
    decode_s : float
        Seconds that workers spent on it: finding records, decoding, assembling, transforming.
    records_decoded : int
        Records decoded.
    epochs_decoded : int
        Samples made, one per (member, anchor) and decode.
    reused : int
        Samples handed out that had been handed out before, since they were still there.
    evicted : int
        Records and samples let go of for lack of memory although the order needed them again.
    spilled : int
        Samples written to ``spill_dir``.
    bytes_in, bytes_out : int
        Stored bytes read, and bytes decoded from them.
    chunks_decoded, chunks_reused : int
        Stored chunks inflated, and those that were there from another record or member.
    fallbacks : mapping of (str, str) to int
        Decodes that did not take the fast path, by (variable, reason).
    """

    decode_s: float = 0.0
    records_decoded: int = 0
    epochs_decoded: int = 0
    reused: int = 0
    evicted: int = 0
    spilled: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    chunks_decoded: int = 0
    chunks_reused: int = 0
    fallbacks: Mapping[tuple[str, str], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stats(_Row):
    """Figures of a group; each is an attribute and an item.

    Attributes
    ----------
    overlap : bool
        Whether the group decodes while the consumer computes.
    takes : int
        Samples taken.
    waited_s : float
        Seconds the consumer spent in ``take``.
    peak_bytes : int
        The most bytes the group held at any time, by its account.
    au_est : float or None
        ``1 - waited / total``, the first take's wait excluded, from the first take's return to the last
        one's; None before the second take.
    hidden_est : float or None
        ``1 - waited / decode``, the first take's wait and decode excluded; None where nothing was decoded.
    fetches_failed : int
        Read-aheads that failed (the decode then tried again).
    members : mapping of str to MemberStats
        Figures per member.
    decode_s, records_decoded, epochs_decoded, reused, evicted, spilled, fallbacks
        As in :class:`MemberStats`, for all members.
    bytes_in, bytes_out, chunks_decoded, chunks_reused
        As well.
    """

    overlap: bool
    takes: int
    waited_s: float
    peak_bytes: int
    au_est: float | None
    hidden_est: float | None
    fetches_failed: int
    decode_s: float
    records_decoded: int
    epochs_decoded: int
    reused: int
    evicted: int
    spilled: int
    bytes_in: int
    bytes_out: int
    chunks_decoded: int
    chunks_reused: int
    fallbacks: Mapping[tuple[str, str], int]
    members: Mapping[str, MemberStats]


@dataclass(slots=True)
class _MemberTally:
    counts: Counter[str] = field(default_factory=Counter)
    decode_s: float = 0.0
    fallbacks: Counter[tuple[str, str]] = field(default_factory=Counter)

    def stats(self) -> MemberStats:
        return MemberStats(
            decode_s=self.decode_s, fallbacks=MappingProxyType(dict(self.fallbacks)), **self.counts
        )


class Tally:
    """Counts one order, or all of a group's life. The engine's lock protects it."""

    __slots__ = (
        "_first_decode_s",
        "_first_wait_s",
        "_last_return",
        "_members",
        "_span_s",
        "_takes",
        "_waited_s",
        "fetches_failed",
    )

    def __init__(self, keys: list[str]) -> None:
        self._members = {key: _MemberTally() for key in keys}
        self._takes = 0
        self._waited_s = 0.0
        self._first_wait_s = 0.0
        self._first_decode_s = 0.0
        self._span_s = 0.0
        self._last_return: float | None = None
        self.fetches_failed = 0

    def begin_order(self) -> None:
        """Note that the next take is the first of an order."""
        self._last_return = None

    def waited(self, seconds: float) -> None:
        """Count time spent in ``take``."""
        self._waited_s += seconds
        if self._last_return is None:
            self._first_wait_s += seconds

    def taken(self, now: float) -> None:
        """Count a take that returns at `now`."""
        self._takes += 1
        if self._last_return is not None:
            self._span_s += now - self._last_return
        self._last_return = now

    def worked(self, key: str, seconds: float, *, first: bool) -> None:
        """Count time spent on a sample; `first` if the first slot of an order needed it."""
        self._members[key].decode_s += seconds
        if first:
            self._first_decode_s += seconds

    def decoded(self, key: str, record: DecodedRecord, nbytes: int) -> None:
        """Count a decoded record of `nbytes`."""
        member = self._members[key]
        member.counts["records_decoded"] += 1
        member.counts["bytes_in"] += record.bytes_read
        member.counts["bytes_out"] += nbytes
        member.counts["chunks_decoded"] += record.chunks
        member.counts["chunks_reused"] += record.chunks_reused
        member.fallbacks.update(record.fallbacks)

    def count(self, key: str, name: str) -> None:
        """Add one to a figure of a member."""
        self._members[key].counts[name] += 1

    def stats(self, *, overlap: bool, peak_bytes: int) -> Stats:
        """Give the figures so far."""
        members = {key: tally.stats() for key, tally in self._members.items()}
        fallbacks: Counter[tuple[str, str]] = Counter()
        for tally in self._members.values():
            fallbacks.update(tally.fallbacks)
        decode_s = sum(member.decode_s for member in members.values())
        late_wait, late_decode = self._waited_s - self._first_wait_s, decode_s - self._first_decode_s

        def total(name: str) -> int:
            return sum(member[name] for member in members.values())

        return Stats(
            overlap=overlap,
            takes=self._takes,
            waited_s=self._waited_s,
            peak_bytes=peak_bytes,
            au_est=1 - late_wait / self._span_s if self._span_s > 0 else None,
            hidden_est=1 - late_wait / late_decode if late_decode > 0 else None,
            fetches_failed=self.fetches_failed,
            decode_s=decode_s,
            records_decoded=total("records_decoded"),
            epochs_decoded=total("epochs_decoded"),
            reused=total("reused"),
            evicted=total("evicted"),
            spilled=total("spilled"),
            bytes_in=total("bytes_in"),
            bytes_out=total("bytes_out"),
            chunks_decoded=total("chunks_decoded"),
            chunks_reused=total("chunks_reused"),
            fallbacks=MappingProxyType(dict(fallbacks)),
            members=MappingProxyType(members),
        )
