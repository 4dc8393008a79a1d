"""What the caller of a group may ask for, read and checked: numbers, Windows, where an order begins."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from earthsciio.errors import DeclarationError, OrderError, SelectionError
from earthsciio.records import RecordSource
from earthsciio.selection import Window, parse_selection

from .orders import Order, as_index

__all__ = ["WindowsLike", "at_least", "first_slot", "windows_of"]

WindowLike: TypeAlias = "Window | Mapping[str, Any]"
WindowsLike: TypeAlias = "Sequence[WindowLike] | Mapping[str, Sequence[WindowLike]]"


def at_least(least: int, name: str, value: int) -> int:
    """Give an integer parameter, or say what is wrong with it."""
    try:
        number = operator.index(value)
    except TypeError:
        raise DeclarationError(f"{name} is an integer, not {value!r}") from None
    if number < least:
        raise DeclarationError(f"{name} is at least {least}, not {number}")
    return number


def first_slot(order: Order, from_: int | None, at: int | None) -> int:
    """Give the slot at which an order begins, by the epoch there or by its number."""
    if from_ is not None and at is not None:
        raise OrderError("start() takes from_ or at, not both", hint="Begin at an epoch, or at a slot")
    if from_ is not None:
        epoch = as_index(from_)
        if epoch not in order.epochs:
            raise OrderError(
                f"the order takes no epoch {epoch}", epoch=epoch, hint="Begin at one that it takes"
            )
        return order.epochs.index(epoch)
    slot = 0 if at is None else as_index(at, "a slot")
    if not 0 <= slot <= len(order):
        raise OrderError(
            f"the order has no slot {slot}, but {len(order)}", slot=slot, hint="Slots count from 0"
        )
    return slot


def windows_of(
    members: Mapping[str, RecordSource], windows: WindowsLike | None
) -> dict[str, tuple[Window | None, ...]]:
    """Give every member's Windows; None stands for what the member itself selects."""
    if windows is None:
        return dict.fromkeys(members, (None,))
    if isinstance(windows, Window) or (isinstance(windows, Mapping) and set(windows) != set(members)):
        raise DeclarationError(
            "windows is a list of Windows, or one such list for every member",
            members=sorted(members),
            given=list(windows),
        )
    lists = dict(windows) if isinstance(windows, Mapping) else dict.fromkeys(members, windows)
    parsed: dict[str, tuple[Window | None, ...]] = {}
    for key, several in lists.items():
        if members[key].select is not None:
            raise SelectionError(
                f"member {key!r} has a selection already, and can't take Windows", member=key
            )
        selections = [parse_selection(window) for window in several]
        if not selections:
            raise DeclarationError(f"no Window for member {key!r}", member=key)
        wrong = [selection for selection in selections if not isinstance(selection, Window)]
        if wrong:
            raise SelectionError(
                f"a Window selects by name, {wrong[0].wire()} by position", member=key,
                hint='Give {"dims": {...}}, or a Window',
            )  # fmt: skip
        parsed[key] = tuple(selection for selection in selections if isinstance(selection, Window))
    return parsed
