"""The codec threads: one pool per process, shared by every decode that is going on.

At most :func:`decode_threads` threads are inside compiled code at any time. A caller lends its own thread to
its own job, unless it is the main thread: that one only waits, since signals are handled there and nowhere
else. Helpers join whichever job has the fewest threads. What a thread needs to work, its buffers
and its decompressor, is a :class:`Workspace`; there are as many as threads may work, so taking one is also
what keeps the number down. Helpers are daemons, and told to stop when the interpreter exits.

The main thread may be interrupted anywhere (Ctrl-C), again and again. So it takes the lock only by ``with``,
which nothing cuts in two, and waits without it; and a job keeps alive all memory that it is about, so that a
helper writes to no other's, even if nobody could wait for it to end.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from earthsciio.errors import Cancelled, DeclarationError

from . import jit, native
from . import tables as t
from .batch import Batch
from .changes import Changes

__all__ = ["decode_threads", "default_decode_threads", "run_batch", "set_decode_threads"]

#: Decoded bytes after which a thread looks whether another job needs it more. Not often: beside a busy
#: interpreter, getting the GIL back takes 5 ms.
_BUDGET = 256 << 20
#: Seconds after which a job that only waits looks at its abort word.
_LOOK_S = 0.1
#: Buffers larger than this are given back after the job that needed them.
_KEPT_NBYTES = 64 << 20
#: What launchers set to the number of ranks on this node.
_LOCAL_RANKS = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "PALS_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE")


class Workspace:
    """One thread's buffers and decompressor."""

    __slots__ = ("_buffers", "_fixed", "row")

    def __init__(self) -> None:
        self.row = np.zeros(t.WORKSPACE_COLUMNS, dtype=np.int64)
        self._buffers: dict[int, npt.NDArray[np.uint8]] = {}
        sizes = {
            t.CALL: 8 * t.CALL_COLUMNS, t.AXES: 8 * t.AXIS_COLUMNS * (t.MAX_RANK + 2),
            t.SPAN: 8 * t.SPAN_COLUMNS, t.SCRATCH: t.SCRATCH_NBYTES,
        }  # fmt: skip
        self._fixed = {
            column: _aligned(np.zeros(nbytes + 64, dtype=np.uint8)) for column, nbytes in sizes.items()
        }
        for column, (_, address) in self._fixed.items():
            self.row[column] = address
        self.row[t.DECOMPRESSOR] = native.decompressor()

    def fit(self, batch: Batch) -> None:
        """Have room for every chunk of a batch."""
        needs = {
            t.ENCODED: batch.encoded_nbytes,
            t.DECODED: batch.decoded_room,
            t.SPARE: batch.spare_nbytes,
        }
        for column, nbytes in needs.items():
            held = self._buffers.get(column)
            if nbytes and (held is None or len(held) < nbytes + 64):
                self._buffers.pop(column, None)
                self._buffers[column], self.row[column] = _aligned(native.SEAM.allocate(nbytes + 64))

    def trim(self) -> None:
        """Give large buffers back."""
        if sum(len(buffer) for buffer in self._buffers.values()) > _KEPT_NBYTES:
            self._buffers.clear()
            for column in (t.ENCODED, t.DECODED, t.SPARE):
                self.row[column] = 0

    @property
    def address(self) -> int:
        """Where the row is."""
        return int(self.row.__array_interface__["data"][0])


def _aligned(buffer: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.uint8], int]:
    address = int(buffer.__array_interface__["data"][0])
    return buffer, -(-address // 64) * 64


@dataclass(slots=True, eq=False)
class _Job:
    """A batch being decoded."""

    batch: Batch
    row: npt.NDArray[np.int64]
    abort: npt.NDArray[np.int32]
    threads: int = 0
    error: BaseException | None = None
    lasting: Any = None  # what the row refers to beside the batch

    @property
    def address(self) -> int:
        return int(self.row.__array_interface__["data"][0])

    @property
    def control(self) -> int:
        return int(self.batch.shared[t.CONTROL])

    def has_work(self) -> bool:
        """Whether a thread that joined now would find a chunk to claim."""
        return bool(
            self.batch.shared[t.CURSOR] < len(self.batch.gangs)
            and self.control != t.STOP
            and not self.abort[0]
        )

    def stop(self) -> None:
        self.batch.shared[t.CONTROL] = t.STOP


class _Pool:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.changes = Changes()
        self.limit = 0  # not settled yet
        self.working = 0
        self.idle: list[Workspace] = []
        self.jobs: list[_Job] = []
        self.helpers: dict[int, threading.Thread] = {}
        self.closing = False

    def run(self, job: _Job) -> None:
        """See a job through; the calling thread works on it too, unless it is the main thread."""
        works = threading.current_thread() is not threading.main_thread()
        try:
            with self.lock:
                if self.closing:
                    raise Cancelled("the interpreter is exiting")
                self.limit = self.limit or default_decode_threads()
                self.jobs.append(job)
                self._start_helpers(min(self.limit, len(job.batch.gangs)) - works)
                self.changes.announce()
            while (ticket := self._take_part(job, works)) is not None:
                ticket.acquire(timeout=_LOOK_S)  # nobody announces that an abort word is set
        except BaseException:
            job.stop()
            raise
        finally:
            self._leave(job)
        if job.error is not None:
            raise job.error

    def _take_part(self, job: _Job, works: bool) -> threading.Lock | None:
        """Work on a job until there is nothing to do on it now, and give a ticket; None when it is done."""
        with self.lock:
            while job.has_work():
                if not works or self.working >= self.limit:
                    self._ask_for_turn(job)
                    return self.changes.ticket()
                self._work(job)
        return None

    def _leave(self, job: _Job) -> None:
        """Wait until no thread writes to the job's memory any more, whatever interrupts."""
        interrupt: BaseException | None = None
        while True:
            try:
                with self.lock:
                    if not job.threads:
                        self._forget_done()
                        self.changes.announce()
                        break
                    ticket = self.changes.ticket()
                ticket.acquire()
            except BaseException as error:  # noqa: BLE001 - raised again below
                interrupt = error
                job.stop()
        if interrupt is not None:
            raise interrupt

    def _forget_done(self) -> None:
        """Forget the jobs on which nobody works any more; one may have been left behind by an interrupt."""
        self.jobs = [job for job in self.jobs if job.threads or job.has_work()]

    def _work(self, job: _Job) -> None:
        """Decode chunks of a job. The lock is held on entry and on return, not in between.

        Not for the main thread: an interrupt would find the lock neither held nor free.
        """
        self.working += 1
        job.threads += 1
        workspace = self.idle.pop() if self.idle else None
        if job.control == t.YIELD:
            job.batch.shared[t.CONTROL] = t.GO
        self.lock.release()
        try:
            if workspace is None:
                workspace = Workspace()
            workspace.fit(job.batch)
            jit.batch_loop()(job.address, workspace.address, _BUDGET)
            workspace.trim()
        except BaseException as error:  # noqa: BLE001 - raised in the job's own thread
            job.error = job.error or error
            job.stop()
        finally:
            self.lock.acquire()
            if workspace is not None:
                self.idle.append(workspace)
            self.working -= 1
            job.threads -= 1
            self._forget_done()
            self.changes.announce()

    def _ask_for_turn(self, job: _Job) -> None:
        """Make a job with several threads let go of them, if this one has none."""
        if job.threads == 0:
            crowded = max(self.jobs, key=lambda other: other.threads)
            if crowded.threads > 1 and crowded.control == t.GO:
                crowded.batch.shared[t.CONTROL] = t.YIELD

    def _pick(self) -> _Job | None:
        waiting = [job for job in self.jobs if job.has_work()]
        if not waiting or self.working >= self.limit:
            return None
        return min(waiting, key=lambda job: job.threads)

    def _start_helpers(self, wanted: int) -> None:
        for number in range(wanted):
            known = self.helpers.get(number)
            if known is None or not known.is_alive():  # an interrupt may have kept it from starting
                name = f"earthsciio-decode-{number}"
                helper = threading.Thread(target=self._help, name=name, args=(number,), daemon=True)
                self.helpers[number] = helper
                helper.start()

    def _help(self, number: int) -> None:
        while True:
            with self.lock:
                if self.closing or number >= self.limit:
                    return
                job = self._pick()
                if job is None:
                    ticket = self.changes.ticket()
                else:
                    self._work(job)
            if job is None:
                ticket.acquire()
            del job  # a thread that waits keeps no memory of others alive

    def set_limit(self, limit: int) -> None:
        with self.lock:
            self.limit = limit
            for number in [number for number in self.helpers if number >= limit]:
                del self.helpers[number]  # it sees that its number is too high, and ends
            del self.idle[limit:]
            self.changes.announce()

    def close(self) -> None:
        """End the helpers; what is being decoded is abandoned."""
        with self.lock:
            self.closing = True
            for job in self.jobs:
                job.error = job.error or Cancelled("the interpreter is exiting")
                job.stop()
            self.changes.announce()
            helpers = list(self.helpers.values())
        for helper in helpers:
            with contextlib.suppress(RuntimeError):  # it never started
                helper.join(timeout=5.0)


_pool = _Pool()


def _start_afresh() -> None:
    """Forget the parent's threads, which a forked child does not have."""
    global _pool  # noqa: PLW0603 - there is one pool per process
    limit = _pool.limit
    _pool = _Pool()
    _pool.limit = limit


def _close() -> None:
    _pool.close()  # whichever is the pool by then


atexit.register(_close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_afresh)


def run_batch(batch: Batch, table: npt.NDArray[np.int64], descriptor: int, abort: Any, go_on: bool) -> None:
    """Decode a batch on the process's codec threads; returns when none of them uses its memory any more.

    Parameters
    ----------
    batch : Batch
        What to decode; its ``outcomes`` tell afterwards how each chunk ended.
    table : numpy.ndarray
        From :func:`earthsciio.decode.native.table`.
    descriptor : int
        Of the file.
    abort : numpy.ndarray
        The caller's abort word, shape (1,), int32.
    go_on : bool
        Whether a bad chunk leaves the others to be decoded.

    Raises
    ------
    Cancelled
        If the interpreter exits. A set abort word only makes this return early.
    MemoryError
        If a thread can't have its buffers.
    """
    if len(batch.items):
        _pool.run(_Job(batch, batch.job_row(table, descriptor, abort, go_on), abort, lasting=table))


def decode_threads() -> int:
    """Say how many threads decode at most."""
    return _pool.limit or default_decode_threads()


def set_decode_threads(count: int) -> None:
    """Set how many threads of this process decode at most.

    Parameters
    ----------
    count : int
        At least 1. Decodes in progress keep the threads they have.
    """
    if count < 1:
        raise DeclarationError(f"{count} decode threads: at least one is needed")
    _pool.set_limit(count)


def default_decode_threads(ranks: int | None = None) -> int:
    """Give the cores this process may use: its affinity mask, shared out among the ranks that have the same.

    Ranks that a launcher bound to cores of their own keep all of theirs; a quota of the cgroup is respected.

    Parameters
    ----------
    ranks : int, optional
        Ranks of this node that decode; by default all that the launcher says it started.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if ranks is None:
        ranks = next(
            (int(os.environ[name]) for name in _LOCAL_RANKS if os.environ.get(name, "").isdigit()), 1
        )
    machine = os.cpu_count() or 1
    if cores * ranks > machine:  # masks overlap
        cores = cores // max(ranks, 1)
    return max(1, min(cores, _quota()))


def _quota() -> int:
    """Give the cores that the cgroup's quota lets this process use."""
    try:
        with open("/sys/fs/cgroup/cpu.max") as stream:  # noqa: PTH123 - read at the first decode only
            quota, period = stream.read().split()[:2]
        return max(1, round(int(quota) / int(period)))
    except (OSError, ValueError):
        return 1 << 20
