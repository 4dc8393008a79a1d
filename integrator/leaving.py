"""Leaving: a rank that goes while the others count on it ends the job, instead of letting them wait for ever.

Nothing in MPI tells a rank that another one has left: ``MPI_Finalize`` waits, and whoever waits for a sample
or a halo waits, too. An exception that nobody catches is :func:`integrator.ranks.install_excepthooks`'s;
here are the other ways out, ``sys.exit`` above all. At exit the ranks of every communicator that a forcing
was opened on meet in a barrier, as they will in ``MPI_Finalize``. A rank that leaves as it should waits there
for the others, however long they still compute. One that breaks off gives them a few seconds to do the same,
and then aborts the job.
"""

from __future__ import annotations

import atexit
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeAlias

from .ranks import end_job

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["Course", "closed", "opened"]

#: Seconds that a rank which breaks off gives the others to do so too.
PATIENCE_S = 5.0
#: Longest pause between two looks at the barrier, in seconds.
_PAUSE_S = 0.05


class Course(Protocol):
    """The epochs that a forcing is to give."""

    @property
    def pending(self) -> int | None:
        """The next epoch, which the other ranks will take, too; None where nothing is left to take."""
        ...


_Status: TypeAlias = "str | int | None"  # what sys.exit takes

_meetings: list[MPI.Intracomm] = []
_keyval: int | None = None
_courses: set[Course] = set()
_code: _Status = None


def opened(comm: MPI.Intracomm | None, course: Course) -> None:
    """Note that a forcing was opened; collective over `comm`."""
    global _keyval  # noqa: PLW0603 - one per process
    if comm is None or comm.Get_size() == 1:
        return
    from mpi4py import MPI

    if _keyval is None:
        _keyval = MPI.Comm.Create_keyval()
        sys.exit = _noting(sys.exit)
        atexit.register(_leave)
    if comm.Get_attr(_keyval) is None:  # one meeting per communicator, however many forcings
        _meetings.append(comm.Dup())
        comm.Set_attr(_keyval, True)
    _courses.add(course)


def closed(course: Course) -> None:
    """Note that a forcing was closed; one that is closed on the way out of ``sys.exit`` was broken off."""
    if not isinstance(sys.exc_info()[1], SystemExit):
        _courses.discard(course)


def _noting(leave: Callable[[_Status], NoReturn]) -> Any:
    """Wrap ``sys.exit``: what is called at exit can't learn the code in any other way."""

    def leave_and_note(status: _Status = None, /) -> NoReturn:
        global _code  # noqa: PLW0603 - the process has one
        if threading.current_thread() is threading.main_thread():  # others end only themselves
            _code = status
        leave(status)

    return leave_and_note


def _reason() -> str | None:
    """Say why this rank leaves before its time; None if it doesn't."""
    if getattr(sys, "last_value", None) is not None:
        return "was ended by the exception above"
    if _code not in (None, 0):
        return f"left by sys.exit({_code!r})"
    for course in _courses:
        if course.pending is not None:
            return f"left with epoch {course.pending} of its forcing still to take"
    return None


def _leave() -> None:
    from mpi4py import MPI

    if MPI.Is_finalized():
        return
    meetings = [meeting.Ibarrier() for meeting in _meetings]
    reason, began, pause = _reason(), time.monotonic(), 0.0
    while not MPI.Request.Testall(meetings):
        if reason is not None and time.monotonic() - began > PATIENCE_S:
            rank = MPI.COMM_WORLD.Get_rank()
            text = f"rank {rank} {reason}, and other ranks go on: the job ends\n"
            end_job(MPI.COMM_WORLD, text, _code if isinstance(_code, int) and _code else 1)
        time.sleep(pause)
        pause = min(_PAUSE_S, 1.2 * pause + 1e-6)
