"""The unit of decode: one record of one file, in the shape its consumers asked for.

A provider *resolves* a time to the records behind its sample, *measures* a record (metadata only, exact),
*decodes* it into buffers somebody else allocates, and *assembles* the sample. ``refresh`` does the four in
a row; a :class:`~earthsciio.prefetch.PrefetchGroup` does them on workers, decodes a record that two
samples share once, and accounts for every byte before it exists. The :class:`RecordSource` protocol is all
it knows of a provider.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .decode.abort import AbortToken
    from .decode.pool import ChunkPool
    from .fields import Array, NativeDataset, NativeField, Time
    from .selection import AxesSelection, Window

__all__ = [
    "Allocate",
    "ChunkSpan",
    "DecodedRecord",
    "Keep",
    "OutputSpec",
    "RecordLayout",
    "RecordRef",
    "RecordSource",
    "Resolved",
    "SpanUse",
    "new_array",
]


class Allocate(Protocol):
    """Gives the memory a decode writes into: C-contiguous, native byte order, contents undefined."""

    def __call__(self, shape: tuple[int, ...], dtype: np.dtype[Any], /) -> Array:
        """Allocate one array."""
        ...


def new_array(shape: tuple[int, ...], dtype: np.dtype[Any], /) -> Array:
    """Allocate fresh memory; the default :class:`Allocate`."""
    return np.empty(shape, dtype=dtype)


@dataclass(frozen=True, slots=True)
class RecordRef:
    """A stored record. Equal references mean the same bytes on disk.

    Attributes
    ----------
    url : str
        The file it is in, as declared.
    identity : tuple
        What tells one version of that file from another: (path, inode, size, mtime in ns).
    index : int or None
        Position on the file's time dimension; None for a file without one.
    stamp : datetime or cftime.datetime or None
        The record's time as the file gives it, in the source's calendar. Not part of equality.
    source : str or None
        Name of the source that stands in with it; None for a record of the source itself.
    """

    url: str
    identity: tuple[Any, ...]
    index: int | None
    stamp: Time | None = field(compare=False)
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Resolved:
    """What the sample of one anchor is made of.

    Attributes
    ----------
    anchor : datetime or cftime.datetime
        The anchor, in the year asked for.
    records : tuple of RecordRef
        One record, or two for a bracket (the same one twice where it degenerates).
    times : tuple
        The stamps the sample reports; they differ from the records' own under ``outside="cycle"``.
    missing : tuple of (str, str)
        Sources and URLs of the files that do not exist, and that these records stand in for.
    """

    anchor: Time
    records: tuple[RecordRef, ...]
    times: tuple[Time, ...]
    missing: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """One array a record decode writes: which Window, which variable, and its exact size."""

    window: int
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Exact size in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class ChunkSpan:
    """Records of one version of a file that lie in the same stored chunks: ``[first, stop)``."""

    identity: tuple[Any, ...]
    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class SpanUse:
    """How many anchors of a source take records of a span: those around the anchor of one of its records.

    Attributes
    ----------
    span : ChunkSpan
        Where the record's chunks lie.
    before, after : int
        Anchors before and after the record's own.
    """

    span: ChunkSpan
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Keep:
    """Stored chunks that a decode takes from a pool, or leaves there.

    Attributes
    ----------
    pool : ChunkPool
        Keeps them.
    spans : frozenset of ChunkSpan
        Which; what lies in other spans is decoded and forgotten.
    next_use : float
        When they are needed next; infinity for never.
    """

    pool: ChunkPool
    spans: frozenset[ChunkSpan]
    next_use: float


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """Everything a record decode will write, known before it starts.

    Attributes
    ----------
    outputs : tuple of OutputSpec
        In the order in which the decode asks its allocator for them.
    plan : object
        The provider's own; opaque to others.
    spans : tuple of SpanUse
        Where the stored chunks lie that the decode reads, and who else reads them.
    """

    outputs: tuple[OutputSpec, ...]
    plan: Any = field(compare=False, repr=False)
    spans: tuple[SpanUse, ...] = ()

    @property
    def nbytes(self) -> int:
        """Exact bytes of all outputs."""
        return sum(output.nbytes for output in self.outputs)


@dataclass(frozen=True, slots=True)
class DecodedRecord:
    """A record in memory.

    Attributes
    ----------
    record : RecordRef
        Which.
    fields, coords : tuple of dict
        For each Window its fields and coordinates, without the time dimension.
    time_axes : mapping of str to int
        Where a bracket puts the time dimension, for the fields and coordinates that get one.
    time_name : str
        Name of the time coordinate of a bracket; empty for none.
    bytes_read : int
        Bytes of stored elements that were read.
    chunks, chunks_reused : int
        Stored chunks that were decoded, and those that a pool had decoded already.
    fallbacks : tuple of (str, str)
        Variable and reason, for each array that did not take the fast path.
    """

    record: RecordRef
    fields: tuple[dict[str, NativeField], ...]
    coords: tuple[dict[str, NativeField], ...]
    time_axes: Mapping[str, int] = field(default_factory=dict)
    time_name: str = "time"
    bytes_read: int = 0
    chunks: int = 0
    chunks_reused: int = 0
    fallbacks: tuple[tuple[str, str], ...] = ()


class RecordSource(Protocol):
    """What a PrefetchGroup needs of a provider.

    Every method but `refresh_times` may be called from any thread, from several at once. None reads or
    writes state that another call can see, caches of file metadata aside. Errors are those that
    ``refresh`` would raise.
    """

    @property
    def is_const(self) -> bool:
        """Whether the source has no time."""
        ...

    @property
    def calendar(self) -> str:
        """Canonical name of the calendar its times are in."""
        ...

    @property
    def select(self) -> Window | AxesSelection | None:
        """The selection it is bound to, if any."""
        ...

    @property
    def end(self) -> Time | None:
        """The time from which on it has no samples, from the declaration alone; opens nothing.

        The earlier of the time range's end and the declared ``end``; None if it has samples for ever: a
        source without end, or one that holds or cycles and has no time range.
        """
        ...

    def first_anchor(self) -> Time | None:
        """Give the first anchor of its time range; None if it has samples since ever (it holds or cycles)."""
        ...

    def anchor_at(self, t: Time) -> Time:
        """Give the anchor of ``sample_at(t)``. Errors are those of ``refresh(t)``."""
        ...

    def anchors(self, lo: Time, hi: Time) -> list[Time]:
        """Give the anchors in ``[lo, hi)``, ascending; a cycle's are in the years asked for."""
        ...

    def series_index(self, anchors: Sequence[Time]) -> Sequence[int]:
        """Give each of some of its anchors a number, the same to those that are made of the same records.

        From the declaration alone. Under ``outside="cycle"`` an anchor has the number of the declared one
        whose records it has; otherwise each has its own, and ``range(len(anchors))`` will do.
        """
        ...

    def refresh_times(self) -> list[Time]:
        """Give the anchors inside the provider's time range, ascending."""
        ...

    def resolve(self, t: Time, abort: AbortToken | None = None) -> Resolved:
        """Find the records behind ``sample_at(t)``; opens files for metadata. `abort` ends a download."""
        ...

    def measure(self, record: RecordRef, windows: Sequence[Window | None]) -> RecordLayout:
        """Plan the decode of a record through Windows (None: the provider's own); metadata only."""
        ...

    def assembly_nbytes(self, resolved: Resolved, layouts: Sequence[RecordLayout]) -> int:
        """Bytes that :meth:`assemble` will allocate on top of the records'; 0 where it copies nothing."""
        ...

    def decode_record(
        self,
        record: RecordRef,
        layout: RecordLayout,
        allocate: Allocate,
        abort: AbortToken,
        keep: Keep | None = None,
    ) -> DecodedRecord:
        """Decode one record; asks `allocate` once per output of `layout`, in its order."""
        ...

    def assemble(
        self, resolved: Resolved, records: Sequence[DecodedRecord], allocate: Allocate
    ) -> tuple[NativeDataset, ...]:
        """Put the sample of each Window together from its decoded records."""
        ...

    def fetch_ahead(
        self, t: Time, windows: Sequence[Window | None] = (None,), abort: AbortToken | None = None
    ) -> None:
        """Bring the files behind ``sample_at(t)`` into the cache, and what Windows need of them into memory.

        Decodes nothing. `abort` ends a download.
        """
        ...
