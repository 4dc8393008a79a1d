"""The seam between a sweep and where its forcing comes from.

A sweep, or a user's own driver, sees only this protocol; behind it may be a PrefetchGroup on this rank, a
reader rank that sends, or memory shared by a node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from earthsciio.prefetch.samples import EpochSample

__all__ = ["EpochOrder", "Forcing"]

EpochOrder: TypeAlias = Literal["forward", "reverse"] | Sequence[int]


class Forcing(Protocol):
    """Samples of this rank's Window, epoch by epoch, in a declared order.

    On several ranks every method is collective: all ranks call it with the same arguments, from the main
    thread. An error on one rank is raised on all of them.
    """

    def start(self, order: EpochOrder) -> None:
        """Declare the epochs that will be taken, in order; drops a previous order."""
        ...

    def take(self, k: int) -> EpochSample:
        """Give epoch `k`, the next of the order. Its arrays are read-only and valid until ``release(k)``."""
        ...

    def release(self, k: int) -> None:
        """Give the arrays of ``take(k)`` back; they must not be read afterwards."""
        ...

    def close(self) -> None:
        """Stop and free everything; the forcing can't be used afterwards."""
        ...
