"""One advisory lock per blob, so that one process of a node downloads it and the others wait for it.

Where ``flock`` works the kernel frees the lock of a dead process at once. Where it fails, or succeeds for
everybody (some network file systems), a lease takes its place: a marker file whose holder renews it, and
which others may take once it has stayed unrenewed for :data:`LEASE_SECONDS`, whatever host the holder was
on. So a dead holder never blocks anybody for longer than that.

Beside the lock its holder keeps a note: who it is, for those who wait, and the one file it stages into, so
that the next holder, or a later process, removes what a killed one left behind. At rest there are no
notes.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, Protocol

from earthsciio.errors import CacheStoreError
from earthsciio.regular import read_regular

from .keys import is_key
from .syscalls import SYS, create_exclusive, storing, unlink_if_there, write_all
from .times import format_time

if TYPE_CHECKING:
    from filelock import BaseFileLock

__all__ = [
    "LEASE_SECONDS",
    "Abort",
    "Held",
    "Holder",
    "LockKind",
    "hold",
    "lock_path",
    "probe_lock_kind",
    "sleep",
    "sweep",
]

LockKind = Literal["flock", "lease"]

#: How long a lease stays its holder's after the last renewal.
LEASE_SECONDS = 30.0

_POLL_SECONDS = 0.05
_REPORT_AFTER_SECONDS = 5.0
_LONGEST_NOTE = 1 << 16
_STAGING_NAME = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.part")
_log = logging.getLogger("earthsciio.cache")


class Abort(Protocol):
    """Lets a wait or a transfer be given up; :class:`earthsciio.decode.abort.AbortToken` is one."""

    def check(self) -> None:
        """Raise if the work is no longer wanted."""


def sleep(seconds: float, abort: Abort | None, nap: Callable[[float], None] = time.sleep) -> None:
    """Sleep, in naps short enough that an abort is noticed between them."""
    if abort is None:
        nap(seconds)
        return
    while seconds > 0:
        abort.check()
        nap(min(seconds, 0.2))
        seconds -= 0.2
    abort.check()


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lock, as its note says."""

    host: str
    pid: int
    since: str
    staging: str

    def __post_init__(self) -> None:
        # A note may be anybody's work, and `staging` becomes part of a path.
        if not _STAGING_NAME.fullmatch(self.staging):
            raise ValueError(f"{self.staging!r} is not the name of a staging file")

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


def lock_path(directory: str, key: str) -> str:
    """Return the path of the lock file of ``key``."""
    return f"{directory}/{key}.lock"


def probe_lock_kind(path: str) -> LockKind:
    """Find out whether ``flock`` excludes, on the lock file ``path`` itself.

    Two descriptors ask for the same lock: only a refusal (of the first, by somebody else; of the second, by
    the first) proves that locks work here.
    """
    import fcntl

    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with storing(path), ExitStack() as opened:
        descriptors = []
        for _ in range(2):
            descriptors.append(SYS.open(path, flags, 0o666))
            opened.callback(os.close, descriptors[-1])
        try:
            for descriptor in descriptors:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return "flock" if error.errno in {errno.EWOULDBLOCK, errno.EACCES} else "lease"
    return "lease"


class Held:
    """A lock in hand.

    Attributes
    ----------
    staging : str
        The path its holder may stage to, one file at a time; removed when the lock is given back.
    """

    __slots__ = ("_mine", "_note", "staging")

    def __init__(self, note: str, mine: Holder, staging: str) -> None:
        self.staging = staging
        self._note = note
        self._mine = mine

    def is_ours(self) -> bool:
        """Whether the lock is still held: a lease may have been taken from a process that stood still."""
        return _read_note(self._note) == self._mine

    def check(self) -> None:
        """Raise CacheStoreError if the lock was taken over."""
        if not self.is_ours():
            raise CacheStoreError("another process took over the lock of this cache entry", file=self.staging)


@contextmanager
def hold(
    locks: str, temporary: str, key: str, *, kind: LockKind, timeout: float, abort: Abort | None = None
) -> Iterator[Held]:
    """Hold the lock of ``key``, after removing what a killed holder had staged.

    Parameters
    ----------
    locks, temporary : str
        Directories of the lock and of the staging files.
    key : str
        The blob's key.
    kind : {"flock", "lease"}
        How to lock.
    timeout : float
        Seconds to wait for a live holder.
    abort : Abort, optional
        Checked while waiting.

    Raises
    ------
    CacheStoreError
        If another holder kept the lock all that time (the error says who), or it can't be had.
    """
    lock = _lock(locks, key, kind)
    note = f"{locks}/{key}.holder"
    _acquire(lock, note, key, timeout, abort)
    try:
        with storing(note):
            if (dead := _read_note(note)) is not None:
                unlink_if_there(f"{temporary}/{dead.staging}")
            unlink_if_there(note)
            mine = Holder(
                host=os.uname().nodename,
                pid=os.getpid(),
                since=format_time(datetime.now(UTC)),
                staging=f"{uuid.uuid4()}.part",
            )
            _write_note(note, mine)
        held = Held(note, mine, f"{temporary}/{mine.staging}")
        try:
            yield held
        finally:
            _clean_up(held, note)
    finally:
        lock.release()


def sweep(locks: str, temporary: str, *, kind: LockKind) -> None:
    """Clean up after holders that died and whose blobs nobody has asked for since; the living are let be."""
    for name in os.listdir(locks):  # noqa: PTH208
        key = name.removesuffix(".holder")
        if key != name and is_key(key):
            with suppress(CacheStoreError), hold(locks, temporary, key, kind=kind, timeout=0.0):
                pass  # taking the lock is all it needs


def _clean_up(held: Held, note: str) -> None:
    try:
        if held.is_ours():
            unlink_if_there(held.staging)
            unlink_if_there(note)
    except OSError as error:
        # Not the fetch's failure; the note stays, and tells whoever comes next what to remove.
        _log.warning("could not tidy up %s: %s", held.staging, error)


def _lock(directory: str, key: str, kind: LockKind) -> BaseFileLock:
    import filelock  # costs more than all of this package; a hit never needs it

    if kind == "flock":
        return filelock.FileLock(lock_path(directory, key), thread_local=False, fallback_to_soft=False)
    # A name of its own: where flock does nothing, a `.lock` file may lie about that means nothing.
    return filelock.SoftFileLease(
        f"{directory}/{key}.lease", lease_duration=LEASE_SECONDS, thread_local=False
    )


def _acquire(lock: BaseFileLock, note: str, key: str, timeout: float, abort: Abort | None) -> None:
    import filelock

    start = time.monotonic()
    reported = False
    while True:
        waited = time.monotonic() - start
        try:
            # Short turns, so that an abort is noticed between them.
            lock.acquire(timeout=max(0.0, min(0.2, timeout - waited)), poll_interval=_POLL_SECONDS)
        except filelock.Timeout:
            pass
        except OSError as error:
            raise CacheStoreError(f"the cache lock can't be had: {error}", key=key) from error
        else:
            return
        if abort is not None:
            abort.check()
        waited = time.monotonic() - start
        holder = _read_note(note) or "a process that left no note"
        if waited >= timeout:
            raise CacheStoreError(
                f"waited {waited:.0f} s for the cache lock held by {holder}",
                key=key,
                hint="If that process is stuck, stop it; the lock frees itself",
            )
        if not reported and waited >= _REPORT_AFTER_SECONDS:
            _log.info("waiting for cache entry %s, which %s is fetching", key[:12], holder)
            reported = True


def _read_note(path: str) -> Holder | None:
    try:
        return Holder(**json.loads(read_regular(path, _LONGEST_NOTE)))
    except (OSError, ValueError, TypeError, RecursionError):
        return None  # absent, being written, or torn by a crash: the holder staged nothing yet


def _write_note(path: str, holder: Holder) -> None:
    fd = create_exclusive(path)
    try:
        write_all(fd, json.dumps(asdict(holder)).encode())
    finally:
        os.close(fd)
