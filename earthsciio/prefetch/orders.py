"""Orders: the epochs a consumer will take, one by one, known before it starts.

Everything a group does ahead of its consumer follows from the order: what to decode next, what to keep for
later, what to drop. A sweep forward or in reverse is one word; an adjoint that replays parts of the
forward sweep from checkpoints gets its order from the schedule it follows.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from earthsciio.errors import DeclarationError, OrderError, Unsupported

__all__ = ["Order", "OrderLike", "as_index", "as_order", "revolve"]

OrderLike: TypeAlias = "Literal['forward', 'reverse'] | Iterable[int] | Order"
_SPELLING: Final = "Give 'forward', 'reverse' or the epochs one by one, by their indices in boundaries()"


def as_index(value: object, what: str = "an epoch") -> int:
    """Read an epoch or a slot.

    Raises
    ------
    OrderError
        If it is no integer.
    """
    if not isinstance(value, bool):
        with suppress(TypeError):
            return operator.index(value)  # type: ignore[arg-type]  # it raises for what has no index
    raise OrderError(f"{what} is an integer, not {value!r}", hint="Epochs and slots count from 0")


@dataclass(frozen=True, slots=True)
class Order:
    """Epochs in the order in which they will be taken.

    Attributes
    ----------
    epochs : tuple of int
        Indices into ``boundaries()``; repeats are allowed.

    Raises
    ------
    OrderError
        If one is not an integer, or negative.
    """

    epochs: tuple[int, ...]

    def __post_init__(self) -> None:
        epochs = tuple(as_index(epoch) for epoch in self.epochs)
        if any(epoch < 0 for epoch in epochs):
            raise OrderError(f"there is no epoch {min(epochs)}: epochs count from 0", hint=_SPELLING)
        object.__setattr__(self, "epochs", epochs)

    def __len__(self) -> int:
        return len(self.epochs)

    def __iter__(self) -> Iterator[int]:
        return iter(self.epochs)

    def __getitem__(self, slot: int) -> int:
        return self.epochs[slot]

    @classmethod
    def from_schedule(
        cls, schedule: Iterable[Any], step_to_epoch: Sequence[int] | Callable[[int], int]
    ) -> Order:
        """Read the order off a checkpoint schedule.

        Every forward and reverse action takes the epochs its steps lie in, one after the other; steps of
        one action that follow each other within an epoch take it once.

        Parameters
        ----------
        schedule : iterable of actions
            A fresh ``checkpoint_schedules`` schedule; iterating uses it up. Read until its first
            ``EndReverse``, or its end. One that learns its number of steps only when the forward sweep is
            done (``max_n`` None) is told ``len(step_to_epoch)``.
        step_to_epoch : sequence of int, or callable
            The epoch of each model step.

        Returns
        -------
        Order

        Raises
        ------
        DeclarationError
            If the schedule goes on for as many steps as there are, and `step_to_epoch` doesn't say how many.
        """
        if callable(step_to_epoch):
            epoch_of, n_steps = step_to_epoch, getattr(schedule, "max_n", None)
        else:
            epoch_of, n_steps = step_to_epoch.__getitem__, len(step_to_epoch)
        epochs: list[int] = []
        for action in schedule:
            # by name and args: `==` between these actions raises, and the package is optional
            name = type(action).__name__
            if name == "EndReverse":
                break
            if name not in {"Forward", "Reverse"}:
                continue
            first, stop = action.args[:2] if name == "Forward" else (action.args[1], action.args[0])
            if stop == sys.maxsize or (n_steps is not None and stop > n_steps):
                if n_steps is None:
                    raise DeclarationError(
                        f"{type(schedule).__name__} steps on without end",
                        hint="Give step_to_epoch as a sequence, one epoch per step",
                    )
                stop = n_steps
            taken = [epoch_of(step) for step in range(first, stop)]
            if name == "Reverse":
                taken.reverse()
            epochs += [e for i, e in enumerate(taken) if i == 0 or e != taken[i - 1]]
            if name == "Forward" and stop == n_steps and getattr(schedule, "max_n", n_steps) is None:
                schedule.finalize(n_steps)  # type: ignore[attr-defined]  # one whose max_n is None has it
        return cls(tuple(epochs))


def revolve(n_epochs: int, snapshots: int) -> Order:
    """Give the order of an adjoint sweep by Revolve (Griewank and Walther, 2000), one step per epoch.

    Parameters
    ----------
    n_epochs : int
        Epochs of the forward sweep.
    snapshots : int
        States that are kept at any time.

    Raises
    ------
    Unsupported
        If the package ``checkpoint-schedules`` is not installed.
    """
    try:
        from checkpoint_schedules import Revolve
    except ImportError as error:
        raise Unsupported(
            "revolve() needs the package checkpoint-schedules", hint="pip install checkpoint-schedules"
        ) from error
    return Order.from_schedule(Revolve(n_epochs, snapshots), range(n_epochs))


def as_order(order: OrderLike, n_epochs: int) -> Order:
    """Spell an order out for a group of `n_epochs` epochs.

    Raises
    ------
    OrderError
        If it is no order, or names an epoch the group doesn't have.
    """
    if isinstance(order, str):
        if order not in {"forward", "reverse"}:
            raise OrderError(
                f"an order is 'forward', 'reverse' or a list of epochs, not {order!r}", hint=_SPELLING
            )
        spelled = Order(tuple(range(n_epochs) if order == "forward" else range(n_epochs - 1, -1, -1)))
    else:
        spelled = order if isinstance(order, Order) else Order(tuple(order))
    if len(spelled) and max(spelled) >= n_epochs:
        raise OrderError(
            f"there is no epoch {max(spelled)}: the group has {n_epochs}, counted from 0", hint=_SPELLING
        )
    return spelled
