"""The warmer: brings every file a run needs into the cache, before the run, from where there is a network.

:func:`files_of_case` lists what a case needs, :func:`warm` fetches it on a few threads,
:func:`warm_stand_ins` fetches what stands in for files that turned out not to exist, and
:func:`offline_faults` looks at the result as a compute node will: an offline cache, and every file opened for
its metadata through the case's Window. All of it may be stopped at any moment, and started again: what is in
the cache is complete, and the rest is fetched.
"""

from __future__ import annotations

import heapq
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from .cache import Cache
from .cache.absence import says_absent
from .cache.cache import FetchStatus
from .declare import Case
from .decode.abort import AbortToken
from .errors import Cancelled, DeclarationError, EarthSciIOError, IntegrityError, SourceNotFound
from .fields import Time
from .filelist import SourceFile
from .provider import Provider
from .records import RecordRef
from .selection import SelectionLike
from .series import FileSeries
from .source import DataSource

__all__ = [
    "Clip",
    "Patience",
    "StoodIn",
    "Warmed",
    "clip_of_case",
    "files_of_case",
    "launched_as",
    "offline_faults",
    "warm",
    "warm_stand_ins",
]

#: From when to when; None for as long as there are data.
Clip = tuple[Time | None, Time | None]

#: Rank and size of a job, as launchers tell them: Hydra (MPICH, Intel), Open MPI, MVAPICH, PALS, srun. Not
#: SLURM_NTASKS, which a batch script that runs alone sees too, beside a SLURM_PROCID of 0.
_RANKS = (
    ("PMI_RANK", "PMI_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("PALS_RANKID", "PALS_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)
#: Seconds that an interrupt waits for transfers to notice; one that stands still is left to die.
_LEAVE_S = 5.0
#: A local file that has not been modified for this many seconds is not being written.
_WRITTEN_S = 3600.0


def launched_as(environ: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """Give this process's rank and the number of ranks by the launcher's environment; (0, 1) without one."""
    for rank, size in _RANKS:
        try:
            found = int(environ[rank]), int(environ[size])
        except (KeyError, ValueError):
            continue
        if 0 <= found[0] < found[1]:
            return found
    return 0, 1


def files_of_case(
    case: Case,
    sources: Iterable[str] = (),
    *,
    start: Time | None = None,
    end: Time | None = None,
) -> dict[str, list[SourceFile]]:
    """List the files a run of a case needs, by source; opens nothing.

    A case that names a model runs where all its sources have data, so only files of that time are listed;
    the sources of any other file are listed each by itself.

    Parameters
    ----------
    case : Case
        The declaration.
    sources : iterable of str, optional
        Only these sources.
    start, end : datetime or cftime.datetime, optional
        Instead of the case's own time.

    Raises
    ------
    DeclarationError
        If nothing ends the time of a source.
    """
    chosen = {name: case.sources[name] for name in (tuple(sources) or case.sources)}
    clip = clip_of_case(case, start=start, end=end)
    for name, source in chosen.items():
        if source.temporal is not None and source.temporal.cadence.end is None and clip[1] is None:
            raise DeclarationError(
                f"nothing ends the time of source {name!r}", file=case.file,
                hint="Declare its end or the case's, or say until when (--end)",
            )  # fmt: skip
    offline = Cache(offline=True)  # listing asks no cache
    listed: dict[str, list[SourceFile]] = {}
    for name, source in chosen.items():
        try:
            listed[name] = Provider(source, offline, clip).files()
        except EarthSciIOError as error:
            error.context.setdefault("source", name)
            raise
    return listed


def clip_of_case(case: Case, *, start: Time | None = None, end: Time | None = None) -> Clip:
    """Give the time whose files :func:`files_of_case` lists."""
    clip = (case.clip[0] if start is None else start, case.clip[1] if end is None else end)
    return clip if case.model is None else _common(case.sources.values(), clip)


def _common(sources: Iterable[DataSource], clip: Clip) -> Clip:
    """Clip to the time in which every source has data: from the latest start to the earliest end."""
    cadences = [each.temporal.cadence for each in sources if each.temporal is not None]
    if not cadences:
        return clip
    own = cadences[0].calendar
    los, his = ([] if t is None else [own.instant(t)] for t in clip)
    los += [cadence.start for cadence in cadences if cadence.outside == "error"]
    his += [c.end for c in cadences if c.outside == "error" and c.end is not None]
    return (own.time(max(los)) if los else None), (own.time(min(his)) if his else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How to wait for files that have not appeared yet.

    Parameters
    ----------
    wait : float
        Seconds, from the start of warming, until a file that is not there is given up.
    poll : float
        Seconds between two looks for it.
    settle : float
        A file that may still be written must look the same after this many seconds; one with a declared
        checksum must have it.
    """

    wait: float
    poll: float = 30.0
    settle: float = 10.0

    def __post_init__(self) -> None:
        if self.wait < 0 or self.poll <= 0 or self.settle < 0:
            raise ValueError("waiting takes wait >= 0, poll > 0 and settle >= 0 seconds")


@dataclass(frozen=True, slots=True)
class Warmed:
    """What became of one file.

    Attributes
    ----------
    file : SourceFile
        Which.
    status : str
        ``hit``, ``downloaded``, ``not_modified``, ``in_place`` (a local path that is there), ``absent`` (it
        does not exist, and something stands in), or ``failed``.
    nbytes : int
        Its size.
    seconds : float
        How long it took.
    error : EarthSciIOError or None
        Why it failed.
    """

    file: SourceFile
    status: FetchStatus | Literal["in_place", "absent", "failed"]
    nbytes: int = 0
    seconds: float = 0.0
    error: EarthSciIOError | None = None


def warm(
    files: Sequence[SourceFile],
    cache: Cache,
    *,
    jobs: int = 4,
    patience: Patience | None = None,
    done: Callable[[Warmed], None] | None = None,
    waiting: Callable[[SourceFile], None] | None = None,
) -> list[Warmed]:
    """Bring files into a cache, several at a time.

    A file that can't be had stops no other. Ctrl-C ends the transfers, and is raised again when they have
    ended; what was committed stays.

    Parameters
    ----------
    files : sequence of SourceFile
        Fetched in this order.
    cache : Cache
        Where to.
    jobs : int
        Files in flight.
    patience : Patience, optional
        Wait for files that are not there; without it they fail.
    done : callable, optional
        Is told of each file, on the thread that fetched it, one at a time.
    waiting : callable, optional
        Is told once of each file that is waited for.

    Returns
    -------
    list of Warmed
        In the order of `files`.
    """
    if jobs < 1:
        raise ValueError(f"a warmer has at least one job, not {jobs}")
    return _Run(files, cache, patience, done, waiting).run(jobs)


class _Run:
    """One warming: a queue of files with the time each is due, and threads that work on it."""

    def __init__(
        self,
        files: Sequence[SourceFile],
        cache: Cache,
        patience: Patience | None,
        done: Callable[[Warmed], None] | None,
        waiting: Callable[[SourceFile], None] | None,
    ) -> None:
        self._files = files
        self._cache = cache
        self._patience = patience
        self._done = done
        self._waiting = waiting
        self._abort = AbortToken()
        self._changed = threading.Condition()
        self._due = [(0.0, index) for index in range(len(files))]  # a heap
        self._results: dict[int, Warmed] = {}
        self._waited_for: set[int] = set()
        self._looks: dict[int, tuple[int, int]] = {}
        self._failure: BaseException | None = None
        self._deadline = time.monotonic() + (0.0 if patience is None else patience.wait)

    def run(self, jobs: int) -> list[Warmed]:
        threads = [
            threading.Thread(target=self._work, name=f"warm-{n}", daemon=True)
            for n in range(min(jobs, len(self._files)))
        ]
        try:
            for thread in threads:
                thread.start()
            with self._changed:  # an interrupted join would take a running thread for one that has ended
                while len(self._results) < len(self._files) and not self._abort.is_set():
                    self._changed.wait()
        finally:
            self._stop()
            until = time.monotonic() + _LEAVE_S
            for thread in threads:
                if thread.ident is not None:
                    thread.join(max(0.0, until - time.monotonic()))
        if self._failure is not None:
            raise self._failure
        return [self._results[index] for index in range(len(self._files))]

    def _stop(self) -> None:
        self._abort.set()
        with self._changed:
            self._changed.notify_all()

    def _work(self) -> None:
        try:
            while (index := self._next()) is not None:
                self._handle(index)
        except Cancelled:
            pass
        except BaseException as error:  # noqa: BLE001 - not of the library: raised where `warm` was called
            self._failure = error
            self._stop()

    def _next(self) -> int | None:
        """Wait for a file that is due; None when there is none left."""
        with self._changed:
            while len(self._results) < len(self._files) and not self._abort.is_set():
                pause = self._due[0][0] - time.monotonic() if self._due else None
                if pause is not None and pause <= 0:
                    return heapq.heappop(self._due)[1]
                self._changed.wait(pause)
        return None

    def _handle(self, index: int) -> None:
        file, start = self._files[index], time.monotonic()
        try:
            warmed = self._attempt(index, file)
        except EarthSciIOError as error:
            if isinstance(error, Cancelled) and self._abort.is_set():
                raise
            if self._may_come(file, error):
                assert self._patience is not None
                poll = time.monotonic() + self._patience.poll
                self._again(index, min(poll, self._deadline))
                return
            absent = file.may_be_absent and says_absent(error)
            warmed = Warmed(file, "absent") if absent else Warmed(file, "failed", error=error)
        if warmed is None:
            assert self._patience is not None
            self._again(index, time.monotonic() + self._patience.settle)
            return
        with self._changed:
            self._results[index] = replace(warmed, seconds=time.monotonic() - start)
            if self._done is not None:
                self._done(self._results[index])
            self._changed.notify_all()

    def _attempt(self, index: int, file: SourceFile) -> Warmed | None:
        """Fetch a file; None for a local one that may still be written."""
        entry = file.fetch(
            self._cache,
            abort=self._abort,
            settle=None if self._patience is None else self._patience.settle,
        )
        if file.in_place and not self._at_rest(index, file, entry.path):
            return None
        return Warmed(file, "in_place" if file.in_place else entry.status, entry.manifest.bytes or 0)

    def _at_rest(self, index: int, file: SourceFile, path: Path) -> bool:
        """Whether a local file is complete: old, of the right checksum, or unchanged since the last look."""
        if self._patience is None or file.checksum is not None:
            return True
        status = path.stat()
        look = status.st_size, status.st_mtime_ns
        before, self._looks[index] = self._looks.get(index), look
        return time.time() - status.st_mtime > _WRITTEN_S or before == look

    def _may_come(self, file: SourceFile, error: EarthSciIOError) -> bool:
        """Whether a file that failed is to be waited for: not there yet, or not yet what it will be."""
        if self._patience is None or time.monotonic() >= self._deadline:
            return False
        return isinstance(error, SourceNotFound) or (
            file.checksum is not None and isinstance(error, IntegrityError)
        )

    def _again(self, index: int, due: float) -> None:
        with self._changed:
            heapq.heappush(self._due, (due, index))
            if index not in self._waited_for:
                self._waited_for.add(index)
                if self._waiting is not None:
                    self._waiting(self._files[index])
            self._changed.notify_all()


@dataclass(frozen=True, slots=True)
class StoodIn:
    """A file that does not exist, and what serves instead.

    Attributes
    ----------
    source : str
        The source it is missing from.
    url : str
        Where it is not.
    stand_ins : tuple of str
        URLs of the files whose records stand in.
    error : EarthSciIOError or None
        Why they don't, if so.
    """

    source: str
    url: str
    stand_ins: tuple[str, ...] = ()
    error: EarthSciIOError | None = None


def warm_stand_ins(
    source: DataSource, absent: Iterable[SourceFile], cache: Cache, clip: Clip, *, jobs: int = 4
) -> list[StoodIn]:
    """Bring in what stands in for files of a source that do not exist: finds every sample that needs them.

    Parameters
    ----------
    source : DataSource
        The source.
    absent : iterable of SourceFile
        Of it; what a sample needs besides is found out on the way.
    cache : Cache
        Where to.
    clip : (start, end)
        Only samples of this time count.
    jobs : int
        Samples in the making.

    Returns
    -------
    list of StoodIn
        In the order of `absent`; a file that no sample needs is left out.
    """
    series, abort = FileSeries.of(source, cache), AbortToken()
    provider = Provider(source, cache, clip)
    found: dict[str, StoodIn] = {}

    def resolve(file: SourceFile, t: Time) -> StoodIn:
        try:
            records = series.resolve(t, abort).records
        except EarthSciIOError as error:
            return StoodIn(source.name, file.url, error=error)
        return StoodIn(source.name, file.url, tuple(record.url for record in records))

    needing = [(file, t) for file in absent for t in provider.needing({file.start})]
    pool = ThreadPoolExecutor(jobs, thread_name_prefix="warm")
    try:
        for one in pool.map(resolve, *zip(*needing, strict=True)) if needing else ():
            known = found.setdefault(one.url, one)
            urls = tuple(dict.fromkeys((*known.stand_ins, *one.stand_ins)))
            found[one.url] = replace(known, stand_ins=urls, error=known.error or one.error)
    finally:
        abort.set()
        pool.shutdown(cancel_futures=True)
    return list(found.values())


def offline_faults(
    source: DataSource,
    files: Iterable[SourceFile],
    cache: Cache,
    window: SelectionLike | None = None,
    clip: Clip = (None, None),
) -> dict[str, EarthSciIOError]:
    """Look at files of a source as a process without network will: found offline, and opened for metadata.

    Where a file does not exist and something stands in, the samples that need it are looked at instead.

    Parameters
    ----------
    source : DataSource
        The source.
    files : iterable of SourceFile
        Of it.
    cache : Cache
        Where they should be; nothing is fetched.
    window : Window or wire dict, optional
        What will be read of them.
    clip : (start, end)
        Only samples of this time count.

    Returns
    -------
    dict of str to EarthSciIOError
        What will be raised, by URL; empty if the source is ready.
    """
    offline = cache.without_network()
    offline.verify = False
    provider = Provider(source, offline, clip)
    bound = provider if window is None else provider.with_window(window)
    series = FileSeries.of(source, offline)
    faults: dict[str, EarthSciIOError] = {}
    for file in files:
        try:
            if series.is_there(file.start):
                _check(series, bound, file)
                continue
            for t in provider.needing({file.start}):
                for record in series.resolve(t).records:
                    bound.measure(record, (None,))
        except EarthSciIOError as error:
            faults[file.url] = error
    return faults


def _check(series: FileSeries, provider: Provider, file: SourceFile) -> None:
    url, path = series.locate(file.start)
    with series.open(path, url) as (_, contents):
        record = RecordRef(url, contents.identity, 0 if contents.records else None, None)
    provider.measure(record, (None,))
