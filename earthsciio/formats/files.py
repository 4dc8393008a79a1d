"""Open files, shared: metadata is read once per version of a file, and few descriptors stay open.

Every provider of the process that reads one file with equal options shares one :class:`OpenFile`. A version
is known by what ``reader.identity`` says of it; a file that was replaced is opened anew, and whoever still
reads the old one is told. At most :data:`MAX_OPEN` idle files keep a descriptor, so that a series of any
length can be walked under a small ``ulimit -n``.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from earthsciio.errors import FileFormatError
from earthsciio.forks import abandon, in_child
from earthsciio.regular import special_kind

from .base import OpenFile, Reader

__all__ = ["MAX_KNOWN", "MAX_OPEN", "Lease", "close_idle", "lease"]

#: Files whose metadata is remembered.
MAX_KNOWN = 128
#: Idle files that keep their descriptor.
MAX_OPEN = 8


@dataclass(slots=True, eq=False)
class _Entry:
    """One version of one file as one reader sees it."""

    identity: tuple[Any, ...]
    loading: threading.Lock = field(default_factory=threading.Lock)  # no child has it
    file: OpenFile | None = None
    users: int = 0


@dataclass(frozen=True, slots=True)
class Lease:
    """A file in use: its arrays and reads, and which version it is."""

    file: OpenFile
    identity: tuple[Any, ...]


_lock = threading.Lock()
_entries: OrderedDict[tuple[Reader, str], _Entry] = OrderedDict()


def _begin_anew() -> None:
    """Open every file anew in a forked child: threads of its parent were in the midst of using these."""
    global _lock, _entries
    abandon(_entries)
    _lock, _entries = threading.Lock(), OrderedDict()


in_child(sys.modules[__name__], lambda _: _begin_anew())


@contextmanager
def lease(reader: Reader, path: str) -> Iterator[Lease]:
    """Use a file: opened, or found open, for the time of the ``with`` block.

    Raises
    ------
    FileFormatError
        What ``reader.open`` raises; a failed open is not remembered.
    """
    identity = reader.identity(path)
    key = (reader, path)
    with _lock:
        entry = _entries.get(key)
        if entry is None or entry.identity != identity:
            replaced, entry = entry, _Entry(identity)
            _entries[key] = entry
        else:
            replaced = None
        _entries.move_to_end(key)
        entry.users += 1
    try:
        if replaced is not None and replaced.file is not None:
            replaced.file.close()
        with entry.loading:
            if entry.file is None:
                if (kind := special_kind(path)) is not None:  # a reader might wait for ever for a FIFO
                    raise FileFormatError(f"not a file but a {kind}", file=path)
                entry.file = reader.open(path)
            file = entry.file
        yield Lease(file, identity)
    finally:
        with _lock:
            entry.users -= 1
            if entry.file is None and _entries.get(key) is entry and not entry.users:
                del _entries[key]
            idle = [(k, e) for k, e in _entries.items() if not e.users and e.file is not None]
            closing = idle[: max(len(idle) - MAX_OPEN, 0)]
            forgotten = closing[: max(len(_entries) - MAX_KNOWN, 0)]
            for known, _ in forgotten:
                del _entries[known]
        for _, idle_entry in closing:
            if idle_entry.file is not None:
                idle_entry.file.close()


def close_idle() -> None:
    """Close the descriptors of files nobody is using; what is known of them stays known."""
    with _lock:
        idle = [entry.file for entry in _entries.values() if not entry.users and entry.file is not None]
    for file in idle:
        file.close()
