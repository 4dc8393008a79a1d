"""The timeline: when the epochs of a group begin, and which anchor of each member is in force in them.

Pure: it asks members for anchors, which come from their declarations, and opens nothing itself (a member
of ``frequency="records"`` reads its files' time axes to answer). Everywhere else an anchor of a member is
its index in :attr:`Timeline.anchors`, so that an order of a million slots is a few integer arrays.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from earthsciio import calendars
from earthsciio.errors import DeclarationError

if TYPE_CHECKING:
    from earthsciio.fields import Time
    from earthsciio.records import RecordSource

__all__ = ["Clip", "Timeline", "as_clip", "check_members", "lay_out"]

Clip: TypeAlias = "tuple[Time | None, Time | None]"
Indices: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Timeline:
    """Epochs of a group.

    Attributes
    ----------
    boundaries : tuple of datetime or cftime.datetime
        When each epoch begins, ascending. Epoch k is ``[boundaries[k], boundaries[k + 1])``.
    end : datetime or cftime.datetime
        When the last epoch ends.
    anchors : mapping of str to tuple
        Per member, its anchors that are in force in some epoch, ascending.
    of_epoch : mapping of str to numpy.ndarray
        Per member, int64 of shape ``(len(boundaries),)``: index into its anchors, per epoch.
    kinds : mapping of str to numpy.ndarray
        Per member, int64 of shape ``(len(anchors),)``: anchors of equal kind are made of the same records,
        as those of the same day of a cycle's years are.
    """

    boundaries: tuple[Time, ...]
    end: Time
    anchors: Mapping[str, tuple[Time, ...]]
    of_epoch: Mapping[str, Indices]
    kinds: Mapping[str, Indices]


def check_members(members: Mapping[str, RecordSource], clip: Clip) -> None:
    """Refuse what can't make a group, by what the members declare.

    Raises
    ------
    DeclarationError
        Naming the member that is constant or of another calendar; if there are no members; if nothing
        ends them.
    """
    if not members:
        raise DeclarationError("a group needs at least one member")
    leader = min(members)
    for key, member in sorted(members.items()):
        if member.is_const:
            raise DeclarationError(
                f"member {key!r} has no time", member=key, hint="Constants are read once: materialize() them"
            )
        if member.calendar != members[leader].calendar:
            raise DeclarationError(
                f"member {key!r} is in calendar {member.calendar}, member {leader!r} in "
                f"{members[leader].calendar}",
                member=key,
                hint="Declare the calendar of one of them; file stamps map into it by their components",
            )
    if clip[1] is None and all(member.end is None for member in members.values()):
        raise DeclarationError(
            "nothing ends the epochs of the group",
            members=sorted(members),
            hint="Give clip=(start, end); members that hold or cycle have samples for ever",
        )


def lay_out(members: Mapping[str, RecordSource], clip: Clip) -> Timeline:
    """Lay the epochs out: from the latest start to the earliest end, one per anchor of any member.

    Raises
    ------
    DeclarationError
        If nothing says when the first epoch begins, or there is no time between start and end.
    """
    starts = [t for t in (clip[0], *(m.first_anchor() for m in members.values())) if t is not None]
    ends = [t for t in (clip[1], *(m.end for m in members.values())) if t is not None]
    if not starts:
        raise DeclarationError(
            "nothing says when the first epoch of the group begins",
            members=sorted(members),
            hint="Give clip=(start, end); members that hold or cycle have samples since ever",
        )
    start, end = max(starts), min(ends)
    if start >= end:
        raise DeclarationError("the members have no time in common", start=str(start), end=str(end))
    inside = {key: member.anchors(start, end) for key, member in members.items()}
    boundaries = tuple(sorted({start, *(anchor for times in inside.values() for anchor in times)}))
    anchors: dict[str, tuple[Time, ...]] = {}
    of_epoch: dict[str, Indices] = {}
    kinds: dict[str, Indices] = {}
    for key, member in members.items():
        first = member.anchor_at(start)
        # a member that holds has its first anchor in force even before it
        anchors[key] = (first, *(anchor for anchor in inside[key] if anchor > first))
        of_epoch[key] = _in_force(anchors[key], boundaries)
        kinds[key] = np.unique(np.asarray(member.series_index(anchors[key])), return_inverse=True)[1]
    return Timeline(boundaries, end, anchors, of_epoch, kinds)


def _in_force(anchors: tuple[Time, ...], boundaries: tuple[Time, ...]) -> Indices:
    found = np.empty(len(boundaries), dtype=np.int64)
    at = 0
    for epoch, boundary in enumerate(boundaries):
        at = bisect_right(anchors, boundary, lo=at)
        found[epoch] = max(at - 1, 0)
    return found


def as_clip(clip: Clip | None, calendar: str) -> Clip:
    """Put the ends of a clip into the calendar of a group; a naive datetime is UTC.

    Raises
    ------
    DeclarationError
        If it is not a pair, or ends before it starts.
    """
    if clip is None:
        return None, None
    if len(clip) != 2:
        raise DeclarationError(f"a clip is a pair (start, end), not {clip!r}")
    own = calendars.calendar(calendar)
    lo, hi = (None if t is None else own.time(own.instant(t)) for t in clip)
    if lo is not None and hi is not None and lo >= hi:
        raise DeclarationError("a clip ends after it starts", start=str(lo), end=str(hi))
    return lo, hi
