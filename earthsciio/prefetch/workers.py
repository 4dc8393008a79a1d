"""Threads that end: joined on close, and no reason for a program that forgot to close not to exit.

The threads are daemons, so that they can't keep the interpreter alive. But a daemon that is inside C code
when the interpreter goes away takes the process down or hangs it, so at exit every crew is told to stop
and given a moment: running decodes look at their abort word more often than that.

A thread with nothing to do refers to nothing of its group: a group that nobody refers to is collected, in
whatever circle of transforms, listeners and tracebacks it stands, and that flips the :class:`Switch`.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from earthsciio.decode.abort import AbortToken
from earthsciio.decode.changes import Changes
from earthsciio.forks import new_rlock

__all__ = ["Crew", "Switch", "serve"]

#: Seconds that exit waits for threads in all; they need 0.2 s unless they are inside code that can't stop.
EXIT_PATIENCE: Final = 2.0

#: Seconds to wait for a thread of which it is unknown whether it will begin.
_DOUBT: Final = 1.0

E = TypeVar("E")

_crews: weakref.WeakSet[Crew] = weakref.WeakSet()
_numbers = itertools.count()


class Job(Protocol):
    """Something that threads do."""

    @property
    def token(self) -> AbortToken:
        """Aborts it."""
        ...


class Switch:
    """Ends the work of a group. Flipping it takes no lock: that may happen on any thread, at any moment.

    Attributes
    ----------
    closed : bool
        Whether it was flipped.
    busy : set
        What is being done now, aborted or not.
    changes : Changes
        Where those wait who have nothing to do.
    """

    __slots__ = ("busy", "changes", "closed")

    def __init__(self) -> None:
        self.closed = False
        self.busy: set[Job] = set()
        self.changes = Changes()

    def begin(self, job: Job) -> None:
        """Note that a job is being done."""
        self.busy.add(job)
        if self.closed:
            job.token.set()

    def flip(self) -> None:
        """Make all threads end soon. Does not block, and may be cut short and called again."""
        self.closed = True  # first: a job that begins now sees it, or is seen
        for job in list(self.busy):
            job.token.set()
        self.changes.end()


def serve(engine: Callable[[], E | None], switch: Switch, turn: Callable[[E], threading.Lock | None]) -> None:
    """Be a thread of an engine, of which it knows only how to find it, as long as there is one.

    Parameters
    ----------
    engine : weakref.ref
        Finds it.
    switch : Switch
        Ends this.
    turn : callable
        Does one thing, or gives a ticket for when there may be something to do.
    """
    while not switch.closed:
        here = engine()
        if here is None:
            return
        ticket = turn(here)
        del here
        if ticket is not None:
            ticket.acquire()


@dataclass(slots=True, eq=False)
class _Member:
    thread: threading.Thread
    end: Changes = field(default_factory=Changes)  # ended when it is through with its work
    begun: bool = False
    sure: bool = False  # whether it has begun or will; an interrupt may leave that unknown


class Crew:
    """The threads of one group.

    Parameters
    ----------
    stop : callable
        Makes the threads end soon: sets flags and tokens, wakes those that wait. Must not block.
    """

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._pid = os.getpid()
        self._number = next(_numbers)
        self._lock = new_rlock(self)
        self._by_name: dict[str, _Member] = {}
        self._members: list[_Member] = []  # those that were replaced, too
        self._over = False
        _crews.add(self)

    @property
    def threads(self) -> list[threading.Thread]:
        """Those that were started and not joined."""
        return [member.thread for member in list(self._members)]

    def ensure(self, name: str, target: Callable[..., None], *args: object) -> None:
        """Start a thread of that name unless it is running; none once the crew was joined."""
        with self._lock:
            known = self._by_name.get(name)
            if known is not None and not known.end.ended and (known.begun or known.sure):
                return
            if self._over:
                return

            def run() -> None:
                try:
                    with self._lock:  # if it was not sure, it may have been replaced
                        member.begun = self._by_name.get(name) is member
                    if member.begun:
                        target(*args)
                finally:
                    member.end.end()

            title = f"prefetch-{self._number}-{name}"
            member = _Member(threading.Thread(target=run, name=title, daemon=True))
            self._members.append(member)
            self._by_name[name] = member
            try:
                member.thread.start()
                member.sure = True
            except BaseException as error:
                if isinstance(error.__context__, KeyboardInterrupt):  # it waits by a Condition
                    raise error.__context__ from None
                raise

    @property
    def forked(self) -> bool:
        """Whether this is a forked child, in which the threads don't exist."""
        return os.getpid() != self._pid

    def stop(self) -> None:
        """Make the threads end soon; a forked child has none, and must not wait for what they held."""
        if not self.forked:
            self._stop()

    def is_current(self) -> bool:
        """Whether the calling thread is one of it."""
        return threading.current_thread() in self.threads

    def join(self, until: float | None = None) -> None:
        """Wait for the threads to end, but not past the time `until` (``time.monotonic``)."""
        with self._lock:
            self._over = True
            members = list(self._members)
        for member in members:
            if member.thread is threading.current_thread():
                continue
            seconds = -1.0 if until is None else max(0.0, until - time.monotonic())
            if not (member.sure or member.begun):
                self._forget(member)  # first: it is waited for once, however often that is interrupted
                member.end.ticket().acquire(timeout=_DOUBT if until is None else seconds)
            # not Thread.join alone: when it is interrupted, Python 3.11 takes the thread for ended
            elif member.end.ticket().acquire(timeout=seconds):
                member.thread.join()
                self._forget(member)

    def _forget(self, member: _Member) -> None:
        with contextlib.suppress(ValueError):  # somebody else joined it
            self._members.remove(member)


def _stop_all(crews: Iterable[Crew], patience: float) -> None:
    ours = [crew for crew in crews if not crew.forked]
    for crew in ours:
        crew.stop()
    until = time.monotonic() + patience
    for crew in ours:
        crew.join(until)


# `atexit` runs after the program's own threads have ended, so a group that one of them uses works to its end
atexit.register(lambda: _stop_all(list(_crews), EXIT_PATIENCE))
