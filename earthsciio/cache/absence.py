"""Files that do not exist: what says so for sure, and the notes a cache keeps of it.

Where a declaration lets something stand in for a missing file, an error that *may* mean that is not enough: a
server that is down, a refusal, a damaged file must stay errors. :func:`says_absent` draws the line, the same
for every transport. A process without network can't ask at all, and a file that is not in its cache may
merely not have been warmed; so whoever learned online that a file is absent leaves a note, and offline only
that counts. Notes lie beside ``v1``, in a folder of their own: format v1 knows nothing of them.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from earthsciio.errors import SourceNotFound, SourceUnclear

from .redact import redact
from .store import LocalStore
from .syscalls import (
    SYS,
    create_exclusive,
    make_directory,
    storing,
    sync_directory,
    unlink_if_there,
    write_all,
)
from .times import format_time

__all__ = ["AbsenceNotes", "is_path_absent", "says_absent"]

SCHEMA: Final = "earthsciio/absence/v1"


def says_absent(error: BaseException) -> bool:
    """Whether an error says that a file does not exist, rather than that it can't be had.

    A transport says so with ``SourceNotFound`` (404, 410, no such object, no such path), and the cache passes
    it on as ``SourceUnclear`` where that is not the whole story.
    """
    return isinstance(error, SourceNotFound) and not isinstance(error, SourceUnclear)


def is_path_absent(path: str) -> bool:
    """Whether there is nothing at a local path; behind a link that leads nowhere there may be something.

    Raises
    ------
    OSError
        If the file system can't tell.
    """
    try:
        os.stat(path)  # noqa: PTH116 - a path as it is declared
    except FileNotFoundError:
        absolute = Path(path).absolute()
        nearest = next(p for p in (absolute, *absolute.parents) if os.path.lexists(p))
        return not nearest.is_symlink()
    return False


class AbsenceNotes:
    """The notes of one store.

    A note is there or not; what is written in it is for people.

    Parameters
    ----------
    store : LocalStore
        Whose root they are under.
    """

    __slots__ = ("_store",)

    def __init__(self, store: LocalStore) -> None:
        self._store = store

    def __contains__(self, key: str) -> bool:
        path = self._path(key)
        if not os.path.lexists(path):
            return False
        self._store.refuse_escape(path)
        return True

    def add(self, key: str, url: str, source_loader: str | None) -> None:
        """Note that a file does not exist; the caller holds the lock of its key.

        Raises
        ------
        CacheStoreError
            If the disk does not take it.
        """
        if key in self:
            return
        about = {
            "schema": SCHEMA,
            "url": redact(url),
            "source_loader": source_loader,
            "noted_at": format_time(datetime.now(UTC)),
        }
        path = self._path(key)
        folder = os.path.dirname(path)  # noqa: PTH120
        with storing(path):
            make_directory(folder)
            self._store.refuse_escape(folder)
            fd = create_exclusive(path)
            try:
                write_all(fd, (json.dumps(about, indent=2) + "\n").encode())
                SYS.fsync(fd)
            finally:
                SYS.close(fd)
            sync_directory(folder)

    def remove(self, key: str) -> None:
        """Forget it, if it was noted; the caller holds the lock of the key.

        Raises
        ------
        CacheStoreError
            If the disk does not let go of it.
        """
        path = self._path(key)
        if os.path.lexists(path):
            with storing(path):
                unlink_if_there(path)
                sync_directory(os.path.dirname(path))  # noqa: PTH120

    def _path(self, key: str) -> str:
        self._store.manifest_path(key)  # refuses what is no key
        return f"{self._store.root}/absent/{key}.json"
