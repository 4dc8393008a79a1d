"""Waiting for a change of what a lock protects, in a way that an interrupt can't spoil.

A ``threading.Condition`` lets go of its lock and takes it again in Python code, and an interrupt (Ctrl-C)
that lands there leaves the lock held for ever, or not held where it should be. Here nobody waits with the
lock, so that a plain ``with lock:`` is all that is ever done to it::

    while True:
        with lock:
            if there: ...
            ticket = changes.ticket()
        ticket.acquire()

A change is announced with the lock held or without; what changes without it has to be looked at after the
ticket was drawn.
"""

from __future__ import annotations

import contextlib
import threading

__all__ = ["Changes"]


class Changes:
    """Where threads wait for the next change.

    Attributes
    ----------
    ended : bool
        Whether nobody waits any more.
    """

    __slots__ = ("_tickets", "ended")

    def __init__(self) -> None:
        self._tickets: dict[threading.Lock, None] = {}
        self.ended = False

    @property
    def waiting(self) -> int:
        """Tickets drawn since the last announcement."""
        return len(self._tickets)

    def ticket(self) -> threading.Lock:
        """Give a lock that can be acquired, once, when a change was announced."""
        ticket = threading.Lock()
        ticket.acquire()
        self._tickets[ticket] = None
        if self.ended:
            self.announce()
        return ticket

    def announce(self) -> None:
        """Wake all that wait. Needs no lock, and may be cut short and called again."""
        for ticket in list(self._tickets):
            with contextlib.suppress(RuntimeError):  # another thread announces, too
                ticket.release()
            self._tickets.pop(ticket, None)  # not before: a ticket that is lost is never called

    def end(self) -> None:
        """From now on nobody waits."""
        self.ended = True
        self.announce()
