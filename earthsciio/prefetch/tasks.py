"""What the engine's work is made of: a sample's plan, the task that makes it, and what it waits for."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from earthsciio.decode.abort import AbortToken
from earthsciio.fields import NativeDataset
from earthsciio.records import (
    DecodedRecord,
    OutputSpec,
    RecordLayout,
    RecordRef,
    RecordSource,
    Resolved,
)

from .ledger import Reservation
from .reuse import Item
from .stats import Tally

if TYPE_CHECKING:
    from earthsciio.fields import Time
    from earthsciio.selection import Window

    from .timeline import Timeline

__all__ = [
    "Claim",
    "Failure",
    "Fetch",
    "Plan",
    "Settings",
    "Task",
    "Transform",
    "forget_frames",
    "make_plan",
    "transformed",
]


class Transform(Protocol):
    """Runs on the worker, once per decoded dataset: ``transform(key, dataset)``.

    It gives a dataset, or None if it has put the values into memory of the caller's own. It must be pure
    but for that; the arrays it gets are read-only. One whose result is not as large as its input has an
    attribute ``output_nbytes(key, outputs)``: the bytes of the result, from the arrays of the records
    behind the dataset.
    """

    def __call__(self, key: str, dataset: NativeDataset, /) -> NativeDataset | None:
        """Transform a dataset of member `key`."""
        ...


def transformed(transform: Transform, key: str, dataset: NativeDataset, anchor: Time) -> NativeDataset | None:
    """Run a transform; what it raises says for which sample."""
    try:
        return transform(key, dataset)
    except Exception as error:
        error.add_note(
            f"raised by the transform of member {key!r} at {anchor}; what it is given is read-only"
        )
        raise


@dataclass(slots=True)
class Plan:
    """What making a sample takes; `assembled` and `transformed` are bytes on top of the records'."""

    resolved: Resolved
    layouts: dict[RecordRef, RecordLayout]
    assembled: int
    transformed: int

    @property
    def extra(self) -> int:
        """Bytes on top of the records'."""
        return self.assembled + self.transformed


@dataclass(slots=True, eq=False)
class Claim:
    """A record that a sample in production decodes, and the others in production that wait for it."""

    waiting: list[Task] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Task:
    """One step of one sample: its planning, or its production if it has a plan."""

    item: Item
    slot: int
    tally: Tally
    plan: Plan | None = None
    reservation: Reservation | None = None
    token: AbortToken = field(default_factory=AbortToken)
    claims: dict[RecordRef, Claim] = field(default_factory=dict)
    inputs: dict[RecordRef, DecodedRecord] = field(default_factory=dict)
    failed: Exception | None = None  # what a record that it waited for raised
    orphaned: bool = False  # a record that it waited for was not tried
    waited: float = 0.0

    def give(self, decoded: DecodedRecord, marks: Mapping[int, int]) -> None:
        """Hand it a record that it needs."""
        if self.reservation is not None:  # else it has ended
            self.inputs[decoded.record] = decoded
            self.reservation.hold(marks, decoded)


@dataclass(frozen=True, slots=True, eq=False)
class Fetch:
    """Reading ahead for one sample."""

    item: Item
    token: AbortToken


@dataclass(frozen=True, slots=True)
class Failure:
    """An error of a sample, with the traceback it had before anybody raised it again."""

    error: Exception
    traceback: TracebackType | None


@dataclass(frozen=True, slots=True)
class Settings:
    """What a group was made with. Not `threaded`: everything happens inside ``take``."""

    windows: Mapping[str, tuple[Window | None, ...]]
    depth: int
    fetch_ahead: int
    threaded: bool
    transform: Transform | None


def make_plan(
    members: Mapping[str, RecordSource],
    timeline: Timeline,
    settings: Settings,
    item: Item,
    token: AbortToken,
) -> Plan:
    """Find the records behind the sample of an anchor, and measure them."""
    source, windows = members[item.key], settings.windows[item.key]
    resolved = source.resolve(timeline.anchors[item.key][item.anchor], token)
    layouts: dict[RecordRef, RecordLayout] = {}
    for record in resolved.records:
        token.check()
        if record not in layouts:
            layouts[record] = source.measure(record, windows)
    behind = [layouts[record] for record in resolved.records]
    assembled = source.assembly_nbytes(resolved, behind)
    return Plan(resolved, layouts, assembled, _transformed_nbytes(settings.transform, item.key, behind))


def _transformed_nbytes(transform: Transform | None, key: str, behind: list[RecordLayout]) -> int:
    if transform is None:
        return 0
    declared = getattr(transform, "output_nbytes", None)
    if declared is None:
        return sum(layout.nbytes for layout in behind)
    outputs: dict[int, list[OutputSpec]] = {}
    for layout in behind:
        for output in layout.outputs:
            outputs.setdefault(output.window, []).append(output)
    return sum(int(declared(key, tuple(specs))) for specs in outputs.values())


def forget_frames(error: BaseException) -> None:
    """Free what the frames of a stored error's traceback refer to: the buffers of the decode that failed."""
    seen: set[int] = set()
    chain: list[BaseException | None] = [error]
    while chain:
        link = chain.pop()
        if link is not None and id(link) not in seen:
            seen.add(id(link))
            traceback.clear_frames(link.__traceback__)
            chain += [link.__cause__, link.__context__]
