"""The system calls through which the cache changes a disk: one table, so that tests can make any fail.

Everything that writes goes through :data:`SYS`, and nothing else does; the crash tests replace its entries
to kill the process, or to return ENOSPC, before or after each call in turn. The helpers below are what the
calls are for: whole writes, durable directories.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from earthsciio.errors import CacheStoreError, EarthSciIOError

__all__ = [
    "SYS",
    "SystemCalls",
    "create_exclusive",
    "make_directory",
    "storing",
    "sync_directory",
    "unlink_if_there",
    "write_all",
]

Buffer = bytes | bytearray | memoryview


@dataclass(slots=True)
class SystemCalls:
    """The replaceable calls; each has the signature of its namesake in :mod:`os`."""

    open: Callable[[str, int, int], int] = os.open
    write: Callable[[int, Buffer], int] = os.write
    ftruncate: Callable[[int, int], None] = os.ftruncate
    fsync: Callable[[int], None] = os.fsync
    close: Callable[[int], None] = os.close
    replace: Callable[[str, str], None] = os.replace
    unlink: Callable[[str], None] = os.unlink
    mkdir: Callable[[str], None] = os.mkdir
    rmdir: Callable[[str], None] = os.rmdir


SYS = SystemCalls()

# What a file system without directory fsync answers; there is nothing to make durable then.
_NO_DIRECTORY_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP})


def create_exclusive(path: str) -> int:
    """Create ``path``, which must not exist, and return a descriptor to write; permissions follow umask."""
    return SYS.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def write_all(fd: int, data: Buffer) -> None:
    """Write all of ``data``; one ``write`` may take less than it is given."""
    view = memoryview(data).cast("B")
    while view:
        view = view[SYS.write(fd, view) :]


def sync_directory(path: str) -> None:
    """Make the names in a directory survive a power cut."""
    fd = SYS.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, 0)
    try:
        SYS.fsync(fd)
    except OSError as error:
        if error.errno not in _NO_DIRECTORY_SYNC:
            raise
    finally:
        SYS.close(fd)


def make_directory(path: str) -> None:
    """Make a directory and its parents, durably; one that exists is left alone."""
    if os.path.isdir(path):  # noqa: PTH112 - strings all the way down: this is the hot path of a commit
        return
    parent = os.path.dirname(path)  # noqa: PTH120
    if parent != path:
        make_directory(parent)
    try:
        SYS.mkdir(path)
    except FileExistsError:
        return  # another process was quicker
    sync_directory(parent)


def unlink_if_there(path: str) -> None:
    """Remove a file, or an empty directory in its place; one that is not there is what was wanted."""
    with suppress(FileNotFoundError):
        if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
            SYS.rmdir(path)
        else:
            SYS.unlink(path)


@contextmanager
def storing(path: str) -> Iterator[None]:
    """Turn what the file system refuses into the cache's own error, which keeps the errno."""
    try:
        yield
    except EarthSciIOError:
        raise
    except OSError as error:
        refused = CacheStoreError(f"the cache can't be written: {error.strerror or error}", file=path)
        refused.errno = error.errno
        raise refused from error
