"""One descriptor per open file, lent to whoever reads, given up when told to and nobody is reading."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from earthsciio.errors import DecodeError
from earthsciio.forks import in_child, new_lock

__all__ = ["Descriptor"]


class Descriptor:
    """A file's descriptor, opened at the first use.

    Parameters
    ----------
    path : str
        The file. Which version of it is settled now: another one is refused later, since what is known of
        the old one's layout would give nonsense.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._version = _version(os.stat(path))  # noqa: PTH116 - the same call as fstat below
        self._lock = new_lock(self)
        self._number: int | None = None
        self._users = 0
        self._closing = False
        in_child(self, Descriptor._forget)

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._version[1]

    @contextmanager
    def use(self) -> Iterator[int]:
        """Lend the descriptor.

        Raises
        ------
        DecodeError
            If the file was replaced or changed since this object was made, or while the descriptor was lent:
            what was read may be a mixture then.
        """
        with self._lock:
            if self._number is None:
                self._number = self._open()
            self._users += 1
            self._closing = False
            number = self._number
        try:
            yield number
            self.verify(number)
        finally:
            with self._lock:
                self._users -= 1
                if self._closing and not self._users:
                    self._give_up()

    def close(self) -> None:
        """Close the descriptor, once nobody is using it; the next use opens it again."""
        with self._lock:
            self._closing = True
            if not self._users:
                self._give_up()

    def _open(self) -> int:
        number = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # it may be a FIFO by now
        try:
            self.verify(number)
        except DecodeError:
            os.close(number)
            raise
        return number

    def verify(self, number: int) -> None:
        """Raise DecodeError unless a descriptor is of the version of the file that is known here."""
        if _version(os.fstat(number)) != self._version:
            raise DecodeError(
                "the file was replaced or changed while in use", file=self.path, hint="Read it again"
            )

    def _forget(self) -> None:
        """Close what this process was forked with, unless it is in use; by whom is not known."""
        if not self._users:
            self._give_up()

    def _give_up(self) -> None:
        number, self._number = self._number, None  # first, since a fork may come in between
        if number is not None:
            os.close(number)


def _version(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns
