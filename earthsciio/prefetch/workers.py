"""Threads that end: joined on close, and no reason for a program that forgot to close not to exit.

The threads are daemons, so that they can't keep the interpreter alive. But a daemon that is inside C code
when the interpreter goes away takes the process down or hangs it, so at exit every crew is told to stop
and given a moment: running decodes look at their abort word more often than that.
"""

from __future__ import annotations

import atexit
import itertools
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Final

__all__ = ["Crew"]

#: Seconds that exit waits for threads in all; they need 0.2 s unless they are inside code that can't stop.
EXIT_PATIENCE: Final = 2.0

_crews: weakref.WeakSet[Crew] = weakref.WeakSet()
_numbers = itertools.count()


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
        self._threads: dict[str, threading.Thread] = {}
        _crews.add(self)

    def ensure(self, name: str, target: Callable[[], None]) -> None:
        """Start a thread of that name unless it is running."""
        thread = self._threads.get(name)
        if thread is None or not thread.is_alive():
            thread = threading.Thread(target=target, name=f"prefetch-{self._number}-{name}", daemon=True)
            self._threads[name] = thread
            thread.start()

    @property
    def forked(self) -> bool:
        """Whether this is a forked child, in which the threads don't exist."""
        return os.getpid() != self._pid

    def stop(self) -> None:
        """Make the threads end soon; a forked child has none, and must not wait for what they held."""
        if not self.forked:
            self._stop()

    def join(self, until: float | None = None) -> None:
        """Wait for the threads to end, but not past the time `until` (``time.monotonic``)."""
        for thread in self._threads.values():
            if thread is not threading.current_thread():
                thread.join(None if until is None else max(0.0, until - time.monotonic()))


def _stop_all(crews: Iterable[Crew], patience: float) -> None:
    ours = [crew for crew in crews if not crew.forked]
    for crew in ours:
        crew.stop()
    until = time.monotonic() + patience
    for crew in ours:
        crew.join(until)


# `atexit` runs after the program's own threads have ended, so a group that one of them uses works to its end
atexit.register(lambda: _stop_all(list(_crews), EXIT_PATIENCE))
