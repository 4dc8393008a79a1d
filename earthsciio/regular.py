"""Opening paths that somebody else made: regular files only, and without waiting.

Opening a FIFO waits for whoever writes to it, perhaps for ever; a device may do anything. Neither holds a
file of ours, whatever its name says.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

__all__ = ["NOT_REGULAR", "kind_of", "open_regular", "read_regular", "special_kind"]

#: The error numbers that say that a path is no regular file (and no link to one).
NOT_REGULAR: Final = frozenset({errno.EISDIR, errno.ENXIO, errno.ENODEV, errno.ELOOP})

_KINDS: Final = (
    (stat.S_ISDIR, "directory"),
    (stat.S_ISFIFO, "FIFO"),
    (stat.S_ISSOCK, "socket"),
    (stat.S_ISCHR, "device"),
    (stat.S_ISBLK, "device"),
)


def open_regular(path: str | os.PathLike[str]) -> int:
    """Open a regular file for reading; returns the descriptor.

    Raises
    ------
    OSError
        If it can't be opened; its ``errno`` is of :data:`NOT_REGULAR` if it is no regular file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket; the system's text speaks of devices
            raise OSError(errno.ENXIO, "not a regular file but a socket", str(path)) from None
        raise
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            code = errno.EISDIR if stat.S_ISDIR(mode) else errno.ENODEV
            raise OSError(code, f"not a regular file but a {_name_of(mode)}", str(path))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_regular(path: str | os.PathLike[str], limit: int) -> bytes:
    """Return the bytes of a regular file; of one longer than ``limit``, the first ``limit + 1``.

    Raises
    ------
    OSError
        As :func:`open_regular`.
    """
    with os.fdopen(open_regular(path), "rb") as stream:
        return stream.read(limit + 1)


def special_kind(path: str | os.PathLike[str]) -> str | None:
    """Return what is at a path, in a word, unless that is a regular file, a directory, or nothing."""
    try:
        return kind_of(os.stat(path).st_mode)  # noqa: PTH116
    except (OSError, ValueError):
        return None


def kind_of(mode: int) -> str | None:
    """Return what a file of this ``st_mode`` is, in a word, unless it is a regular file or a directory."""
    return None if stat.S_ISREG(mode) or stat.S_ISDIR(mode) else _name_of(mode)


def _name_of(mode: int) -> str:
    return next((name for is_kind, name in _KINDS if is_kind(mode)), "something else")
