"""What a run was made of: each file it used, by what identifies its bytes, ready to be written as JSON.

A file that the run would have used, had it existed, is there too, with those that stood in for it.

A cached file is identified by its key and content digest. A file read in place has neither: its size and
modification time are noted when it is first used, and its digest can be worked out afterwards, if it is
still the same file.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from stat import S_ISREG
from typing import Any

from earthsciio.forks import new_lock

from .keys import cache_key, sha256_file
from .manifest import Manifest
from .redact import redact
from .times import time_of_file

__all__ = ["Provenance", "UsedFile"]


@dataclass(frozen=True, slots=True)
class UsedFile:
    """One version of one file.

    Parameters
    ----------
    source : str or None
        The data source that used it first.
    url : str
        Where it is from, without credentials; of a file read in place, its path.
    key : str
        Cache key of the URL.
    sha256_content : str or None
        Digest of its bytes, lowercase hexadecimal.
    bytes : int or None
        Size; None of a directory.
    fetched_at : str or None
        When the source last gave or confirmed it, RFC 3339; None of a file read in place.
    modified : str or None
        When a file read in place was last modified, RFC 3339 with microseconds.
    stand_ins : tuple of str
        Of a file that does not exist: the URLs of those that stood in for it. All else about it is None.
    """

    source: str | None
    url: str
    key: str
    sha256_content: str | None = None
    bytes: int | None = None
    fetched_at: str | None = None
    modified: str | None = None
    stand_ins: tuple[str, ...] = ()

    @classmethod
    def fetched(cls, key: str, manifest: Manifest, source: str | None) -> UsedFile:
        """Describe a file of the cache."""
        return cls(source, manifest.url, key, manifest.sha256_content, manifest.bytes, manifest.fetched_at)

    @classmethod
    def in_place(cls, path: str, source: str | None) -> UsedFile:
        """Describe a local file as it is now.

        Raises
        ------
        OSError
            If it is not there.
        """
        status = os.stat(os.path.expanduser(path))  # noqa: PTH111, PTH116 - as good as a Path
        size = status.st_size if S_ISREG(status.st_mode) else None
        modified = time_of_file(status.st_mtime).isoformat(timespec="microseconds")
        return cls(source, path, cache_key(path), None, size, None, modified.replace("+00:00", "Z"))

    @classmethod
    def absent(cls, url: str, source: str, stand_ins: Sequence[str]) -> UsedFile:
        """Describe a file that does not exist."""
        return cls(source, redact(url), cache_key(url), stand_ins=tuple(redact(each) for each in stand_ins))

    def with_digest(self) -> UsedFile:
        """Give it with the digest of a file read in place, unless that has changed or gone since."""
        if self.modified is None or self.bytes is None:
            return self
        path = Path(self.url).expanduser()
        try:
            digest = sha256_file(path)
            same = UsedFile.in_place(self.url, self.source) == self
        except OSError:
            return self
        return replace(self, sha256_content=digest) if same else self


class Provenance:
    """The files a cache has handed out, each version once, in the order of first use; for any thread."""

    __slots__ = ("__weakref__", "_lock", "_used")

    def __init__(self) -> None:
        self._lock = new_lock(self)
        self._used: dict[tuple[str | int | None, ...], UsedFile] = {}

    def note(self, file: UsedFile) -> None:
        """Add a file, unless this version of it is there."""
        version = (file.key, file.sha256_content, file.bytes, file.modified)
        with self._lock:
            known = self._used.setdefault(version, file)
            if known.fetched_at != file.fetched_at:  # confirmed meanwhile
                self._used[version] = replace(known, fetched_at=file.fetched_at)
            if known.stand_ins != file.stand_ins:
                every = sorted({*known.stand_ins, *file.stand_ins})
                self._used[version] = replace(known, stand_ins=tuple(every))

    def records(self, *, digest: bool = False) -> list[dict[str, Any]]:
        """Give the files as plain data; with `digest`, also read those that were used in place."""
        with self._lock:
            used = list(self._used.values())
        files = [file.with_digest() if digest else file for file in used]
        return [{**asdict(file), "stand_ins": list(file.stand_ins)} for file in files]
