"""What a forked child can't use as it inherits it, and gets anew.

Only the thread that called :func:`os.fork` lives on in the child. A lock that another one held stays locked
there for ever, and what it was changing stays half changed; a handle that both processes read through moves
under both. So locks of this package that outlive a call are made here (:func:`new_lock`), and whoever has
more to renew says how with :func:`in_child`. Work that can't be cut in two at all is done under an
:class:`Uncut`, which a fork waits for.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

__all__ = ["Uncut", "abandon", "in_child", "new_lock", "new_rlock"]

#: Seconds that a fork waits for the work of an :class:`Uncut`.
PATIENCE: Final = 60.0

T = TypeVar("T")


class _Renewal(weakref.ref[T]):
    """What to do in a child for an owner that still lives; known by itself, as owners may be unhashable."""

    __slots__ = ("renew",)

    renew: Callable[[T], object]

    __hash__ = object.__hash__
    __eq__ = object.__eq__


_renewals: set[_Renewal[Any]] = set()
_abandoned: list[object] = []


def in_child(owner: T, renew: Callable[[T], object]) -> None:
    """Have ``renew(owner)`` called in every forked child, if `owner` still lives.

    It runs before anything else of the child's, in no certain order, and must not wait for anything.
    `owner` must allow weak references; `renew` must not refer to it.
    """
    renewal = _Renewal(owner, _renewals.discard)
    renewal.renew = renew
    _renewals.add(renewal)


def new_lock(owner: object, name: str = "_lock") -> threading.Lock:
    """Give a lock, to be put into the attribute `name` of `owner`, which has another in every child.

    A thread that forks while it holds the lock goes on in the child: it gives back the one it took.
    """
    in_child(owner, lambda owner: setattr(owner, name, threading.Lock()))
    return threading.Lock()


def new_rlock(owner: object, name: str = "_lock") -> threading.RLock:
    """Give a lock that a thread may take several times; else as :func:`new_lock`."""
    in_child(owner, lambda owner: setattr(owner, name, threading.RLock()))
    return threading.RLock()


def abandon(inherited: object) -> None:
    """Keep what the parent made alive in this child: to clean it up could wait for one of its threads."""
    _abandoned.append(inherited)


class _Forking(threading.local):
    """Whether this thread, which is about to fork, has waited for the work to end; several may at once."""

    waited = False


class Uncut:
    """A lock around work that a fork must not cut in two; a fork waits for it, within reason.

    Attributes
    ----------
    is_cut : bool
        Whether this process was forked in the midst of it all the same, so that it can't be done here.
    """

    def __init__(self) -> None:
        self.is_cut = False
        self._lock = threading.RLock()
        self._forking = _Forking()
        self._awaited = False
        in_child(self, Uncut._in_child)

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Do such work, one thread at a time."""
        with self._lock:
            if not self._awaited and hasattr(os, "register_at_fork"):
                # as late as can be: what registers last is called first, before other packages have taken
                # locks that the work itself may need
                os.register_at_fork(before=self._before, after_in_parent=self._in_parent)
                self._awaited = True
            yield

    def _before(self) -> None:
        self._forking.waited = self._lock.acquire(timeout=PATIENCE)

    def _in_parent(self) -> None:
        if self._forking.waited:
            self._forking.waited = False
            self._lock.release()

    def _in_child(self) -> None:
        self._in_parent()
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._lock = threading.RLock()
            self.is_cut = True


def _renew_all() -> None:
    for renewal in list(_renewals):
        owner = renewal()
        if owner is not None:
            renewal.renew(owner)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
