"""How ranks wait for each other, agree on errors, and die together.

Three rules of MPI codes that prefetch. A rank that waits must sleep, since a blocking call spins on a core
that a decode thread needs: every wait here polls a nonblocking request. An error on one rank must be known
to all before any data moves, since the others would wait for ever: :func:`agree`. And an exception that
nobody catches must end the whole job, from whatever thread it comes and whatever threads still live:
:func:`install_excepthooks`. MPI is called from the main thread only, ``Abort`` excepted.

A communicator of ``None`` stands for one rank without MPI; nothing here imports mpi4py then.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from earthsciio.errors import EarthSciIOError

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = [
    "RankError",
    "agree",
    "agreed",
    "broadcast",
    "end_job",
    "gather",
    "gather_objects",
    "install_excepthooks",
    "maximum",
    "pack_error",
    "receive",
    "share_objects",
    "unpack_error",
    "wait",
]

#: Seconds between the traceback and Abort: the launcher drops output it has not read when it kills the job.
_FLUSH_S = 0.2
#: Seconds that the others leave to the rank an agreed error comes from: it tells it, and ends the job.
_PATIENCE_S = 4.0
#: Seconds after which a process that Abort did not end is ended without MPI's help.
_ABORT_S = 5.0


_Result = TypeVar("_Result")


class RankError(EarthSciIOError, RuntimeError):
    """An error of another rank that could not be carried over as it is; the text holds its type and text."""

    raised_on: int


def wait(requests: MPI.Request | Sequence[MPI.Request], *, longest: float = 1e-3) -> None:
    """Wait until all requests are complete, asleep most of the time.

    The first pauses only yield the core, for what is about to arrive; they grow to `longest`.

    Parameters
    ----------
    requests : mpi4py.MPI.Request or sequence of them
        Nonblocking or started persistent requests.
    longest : float
        Longest pause between two polls, in seconds.
    """
    from mpi4py import MPI

    pending = [requests] if isinstance(requests, MPI.Request) else list(requests)
    _poll(lambda: MPI.Request.Testall(pending), longest)


def receive(comm: MPI.Comm, source: int, tag: int, *, longest: float = 1e-3) -> bytes:
    """Receive one message of bytes, however long; sleeps as :func:`wait` does."""
    from mpi4py import MPI

    status = MPI.Status()
    _poll(lambda: comm.Iprobe(source, tag, status), longest)
    buffer = np.empty(status.Get_count(MPI.BYTE), np.uint8)
    wait(comm.Irecv(buffer, source, tag), longest=longest)
    return buffer.tobytes()


def _poll(done: Callable[[], bool], longest: float) -> None:
    pause = 0.0
    while not done():
        time.sleep(pause)
        pause = min(longest, 1.2 * pause + 1e-6)


def agree(comm: MPI.Comm | None, error: Exception | None, rank: int | None = None) -> None:
    """Make an error of any rank the error of all; collective over `comm`.

    Call it where ranks are about to depend on each other, with the error this rank met or None. It costs one
    8-byte reduction where nobody failed. `rank`: this rank's number in the job, where `comm` is a part.

    Raises
    ------
    Exception
        Where any rank failed: on every rank the same, that of the lowest rank that failed. It arrives with
        its type, attributes and notes if it survives pickling, and as :class:`RankError` with its text
        otherwise. Every rank may catch it and go on.
    """
    if comm is None or comm.Get_size() == 1:
        if error is not None:
            raise error
        return
    place, size = comm.Get_rank(), comm.Get_size()
    failed = size - int(maximum(comm, np.array([0 if error is None else size - place]))[0])
    if failed == size:
        return
    mine = error is not None and place == failed
    parcel = pack_error(error, place if rank is None else rank) if error is not None and mine else None
    agreed = unpack_error(broadcast(comm, parcel, root=failed))
    if error is not None and mine and type(agreed) is type(error):
        raise error  # the original, for its traceback
    raise agreed from error


def agreed(comm: MPI.Comm | None, act: Callable[[], _Result], rank: int | None = None) -> _Result:
    """Do something on this rank, give its result, and make an error of any rank that of all; collective.

    `rank` as for :func:`agree`, whose errors it raises.
    """
    result, failure = None, None
    try:
        result = act()
    except Exception as error:  # noqa: BLE001 - whatever it is, all ranks must learn of it
        failure = error
    agree(comm, failure, rank)
    return cast("_Result", result)


def pack_error(error: Exception, rank: int) -> bytes:
    """Pickle an error to be raised on other ranks, and note on it which rank met it, unless it says so.

    What does not survive pickling travels as its type's name and its text.
    """
    if not hasattr(error, "raised_on"):  # it may have been agreed on before
        error.raised_on = rank  # type: ignore[attr-defined] # read by _abort
        error.add_note(f"raised on rank {rank}")
    try:
        pickled = pickle.dumps(error)
        again = pickle.loads(pickled)  # noqa: S301 - our own bytes
        inner = pickled if type(again) is type(error) and str(again) == str(error) else None
    except Exception:  # noqa: BLE001 - whatever fails in a foreign class means: it does not survive pickling
        inner = None
    return pickle.dumps((type(error).__qualname__, str(error), error.raised_on, inner))  # type: ignore[attr-defined] # set above


def unpack_error(parcel: bytes) -> Exception:
    """Give the error that :func:`pack_error` packed, or a :class:`RankError` with its text."""
    name, text, rank, inner = pickle.loads(parcel)  # noqa: S301 - sent by a rank of this job
    if inner is not None:
        carried: Exception = pickle.loads(inner)  # noqa: S301 - likewise
        return carried
    error = RankError(f"{name}: {text}")
    error.raised_on = rank
    return error


def maximum(comm: MPI.Comm | None, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Reduce an array to its element-wise maximum over ranks, on every rank; collective."""
    if comm is None:
        return values
    from mpi4py import MPI

    result = np.empty_like(values)
    wait(comm.Iallreduce(values, result, op=MPI.MAX))
    return result


def broadcast(comm: MPI.Comm | None, payload: bytes | None, *, root: int = 0) -> bytes:
    """Give every rank the bytes that `root` passes; the others pass None. Collective."""
    if comm is None:
        assert payload is not None
        return payload
    length = np.array([len(payload or b"")], dtype=np.int64)
    wait(comm.Ibcast(length, root=root))
    buffer = np.frombuffer(payload, np.uint8).copy() if payload else np.empty(int(length[0]), np.uint8)
    wait(comm.Ibcast(buffer, root=root))
    return buffer.tobytes()


def gather(comm: MPI.Comm | None, payload: bytes, *, root: int = 0) -> list[bytes] | None:
    """Collect bytes of every rank on `root`, by rank; None on the others. Collective."""
    if comm is None:
        return [payload]
    mine = np.frombuffer(payload, np.uint8)
    lengths = np.empty(comm.Get_size(), np.int64)
    wait(comm.Iallgather(np.array([mine.size], np.int64), lengths))
    if comm.Get_rank() != root:
        wait(comm.Igatherv(mine, None, root=root))
        return None
    joined = np.empty(int(lengths.sum()), np.uint8)
    wait(comm.Igatherv(mine, [joined, lengths], root=root))
    return [part.tobytes() for part in np.split(joined, np.cumsum(lengths)[:-1])]


def gather_objects(comm: MPI.Intracomm | None, value: Any) -> list[Any] | None:
    """Collect a value of every rank on rank 0, by rank; None on the others. Collective."""
    parcels = gather(comm, pickle.dumps(value))
    return None if parcels is None else [pickle.loads(parcel) for parcel in parcels]  # noqa: S301 - our ranks


def share_objects(comm: MPI.Intracomm | None, value: Any) -> list[Any]:
    """Collect a value of every rank on every rank, by rank. Collective."""
    values = gather_objects(comm, value)
    everywhere: list[Any] = pickle.loads(  # noqa: S301 - likewise
        broadcast(comm, None if values is None else pickle.dumps(values))
    )
    return everywhere


def install_excepthooks(comm: MPI.Comm, *, brief: str | None = None) -> Callable[[], None]:
    """End the whole job on an exception that nobody catches, on the main thread or any other.

    The rank's traceback is printed to stderr, then the job is aborted with exit code 1. Threads that are
    still alive don't delay it. An error that was agreed on is told by the rank it comes from. ``SystemExit``
    is no such exception; once a forcing was opened, :mod:`integrator.leaving` takes care of a rank that
    leaves alone.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm
        The job.
    brief : str, optional
        Name of the program: errors of this library are one line then, without a traceback.

    Returns
    -------
    callable
        Puts the previous hooks back.
    """
    previous = sys.excepthook, threading.excepthook

    def on_main(_kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
        _abort(comm, error.with_traceback(where), threading.main_thread().name, brief)

    def on_thread(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is None or issubclass(args.exc_type, SystemExit):
            return  # a thread may end itself, as Python's own hook has it
        _abort(comm, args.exc_value, args.thread.name if args.thread else "a thread", brief)

    def restore() -> None:
        sys.excepthook, threading.excepthook = previous

    sys.excepthook, threading.excepthook = on_main, on_thread
    return restore


def _abort(comm: MPI.Comm, error: BaseException, thread: str, brief: str | None) -> None:
    rank = comm.Get_rank()
    agreed_on = getattr(error, "raised_on", rank) != rank
    if agreed_on:
        time.sleep(_PATIENCE_S)  # it may have been caught where it comes from; then it is told here
    if brief is not None and isinstance(error, EarthSciIOError):
        text = f"{brief}: error: {' '.join(str(error).split())}\n"
    else:
        # only where it comes from it has a traceback worth reading
        lines = traceback.format_exception_only(error) if agreed_on else traceback.format_exception(error)
        text = f"rank {rank}, {thread}: uncaught exception, the job ends\n{''.join(lines)}"
    end_job(comm, text)


def end_job(comm: MPI.Comm, text: str, code: int = 1) -> None:
    """Say why, and abort the whole job."""
    # os._exit also works where Abort hangs; the launcher then notices a rank that died without MPI_Finalize
    watchdog = threading.Timer(_ABORT_S, os._exit, (code,))
    watchdog.daemon = True
    with contextlib.suppress(RuntimeError):  # at exit there may be no new threads any more
        watchdog.start()
    sys.stdout.flush()
    sys.stderr.write(text)  # in one piece, so that ranks don't mix their lines
    sys.stderr.flush()
    time.sleep(_FLUSH_S)
    comm.Abort(code)
