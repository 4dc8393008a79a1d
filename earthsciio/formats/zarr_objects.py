"""The objects of a Zarr store: bytes by key, out of a directory or a zip file.

Zarr gives an object that is not there a meaning (the chunk is fill), so the one duty here is never to report
absent what merely could not be read. ``None`` means that the file system said there is no such name; a
directory or a dangling link of that name, a permission, a timeout or a short file is an error.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from earthsciio.errors import DecodeError, FileFormatError
from earthsciio.forks import abandon, in_child, new_lock
from earthsciio.regular import open_regular

from .base import file_identity

__all__ = ["DirectoryObjects", "Objects", "ZipObjects", "open_objects", "store_identity"]

#: Names of the objects that hold the metadata of arrays, and those that only groups have.
_ARRAY_DOCUMENTS = ("zarr.json", ".zarray", ".zattrs")
_GROUP_DOCUMENTS = (".zgroup", ".zmetadata")


class Objects(Protocol):
    """Bytes by key; keys are paths inside the store, with ``/``. Methods may be called from any thread."""

    def read(self, key: str, start: int = 0, stop: int | None = None) -> bytes | None:
        """Read bytes ``[start, stop)`` of an object, or its last ``-start`` bytes.

        Returns
        -------
        bytes or None
            None only if there is definitely no such object.

        Raises
        ------
        OSError
            If it can't be read, or is shorter than asked for.
        """
        ...

    def exists(self, key: str) -> bool:
        """Whether there is such an object; OSError where that can't be told."""
        ...

    def names(self, prefix: str) -> Iterator[str]:
        """Yield the names directly under a prefix, in no order; nothing where there is no such prefix."""
        ...

    def close(self) -> None:
        """Give up descriptors; the next read opens them again."""
        ...


def open_objects(path: str) -> Objects:
    """Open the store at a path.

    Raises
    ------
    FileFormatError
        If it is neither a directory nor a zip file.
    """
    if Path(path).is_dir():
        return DirectoryObjects(path)
    return ZipObjects(path)


class DirectoryObjects:
    """A store that is a directory; an object is a file of it.

    Parameters
    ----------
    root : str
        The directory.
    """

    def __init__(self, root: str) -> None:
        self.root = root

    def _path(self, key: str) -> Path:
        return Path(self.root, *key.split("/"))

    def read(self, key: str, start: int = 0, stop: int | None = None) -> bytes | None:
        """Read an object or a part of it; see :class:`Objects`."""
        path = self._path(key)
        try:
            with os.fdopen(open_regular(path), "rb", buffering=0) as stream:
                size = os.fstat(stream.fileno()).st_size
                first = size + start if start < 0 else start
                last = size if stop is None else stop
                if first < 0 or last > size:
                    raise DecodeError(f"{key} has {size} bytes, not {max(-start, last)}", file=self.root)
                stream.seek(first)
                return _read_exactly(stream, last - first, key)
        except FileNotFoundError:
            if path.is_symlink():  # a link to storage that is away is not an absent object
                raise
            return None

    def exists(self, key: str) -> bool:
        """Whether there is such an object; see :class:`Objects`."""
        try:
            self._path(key).stat()
        except FileNotFoundError:
            return False
        return True

    def names(self, prefix: str) -> Iterator[str]:
        """Yield the names under a prefix; see :class:`Objects`."""
        try:
            with os.scandir(self._path(prefix) if prefix else self.root) as entries:
                for entry in entries:
                    yield entry.name
        except (FileNotFoundError, NotADirectoryError):
            return

    def close(self) -> None:
        """Do nothing: every read opens and closes its file."""


def _read_exactly(stream: Any, count: int, key: str) -> bytes:
    parts = []
    while count > 0:
        part = stream.read(count)
        if not part:
            raise DecodeError(f"{key} ended while it was being read")
        parts.append(part)
        count -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


#: What zipfile and its decompressors raise on members that are damaged, encrypted or packed unusually.
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError)


class ZipObjects:
    """A store in one zip file. zipfile verifies the checksum of every object that is read whole.

    Parameters
    ----------
    path : str
        The file.

    Raises
    ------
    FileFormatError
        If it is no zip file.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = new_lock(self)
        self._archive: zipfile.ZipFile | None = None
        in_child(self, ZipObjects._forget_archive)
        with self._lock:
            self._names = frozenset(self._open().namelist())
        self.close()

    def _open(self) -> zipfile.ZipFile:
        if self._archive is None:
            try:
                self._archive = zipfile.ZipFile(self.path)
            except zipfile.BadZipFile as error:
                raise FileFormatError(
                    f"neither a directory nor a zip file: {error}", file=self.path,
                    hint="A Zarr store is a directory, or one zip file",
                ) from error  # fmt: skip
        return self._archive

    def _forget_archive(self) -> None:
        """Let go of what this process was forked with: its position in the file is the parent's too."""
        abandon(self._archive)
        self._archive = None

    def read(self, key: str, start: int = 0, stop: int | None = None) -> bytes | None:
        """Read an object or a part of it; see :class:`Objects`."""
        if key not in self._names:
            if any(name.startswith(f"{key}/") for name in self._names):
                raise IsADirectoryError(f"{key} is a directory")
            return None
        try:
            with self._lock:
                data = self._open().read(key)
        except _ZIP_ERRORS as error:
            raise OSError(f"{key} can't be read from the zip file: {error}") from error
        if -start > len(data) or (stop is not None and stop > len(data)):
            raise DecodeError(f"{key} has {len(data)} bytes, not {max(-start, stop or 0)}", file=self.path)
        return data[start:stop]

    def exists(self, key: str) -> bool:
        """Whether there is such an object."""
        return key in self._names

    def names(self, prefix: str) -> Iterator[str]:
        """Yield the names under a prefix; see :class:`Objects`."""
        yield from names_under(self._names, prefix)

    def close(self) -> None:
        """Close the file; the next read opens it again."""
        with self._lock:
            if self._archive is not None:
                self._archive.close()
                self._archive = None


def names_under(keys: Iterable[str], prefix: str) -> Iterator[str]:
    """Yield the distinct first components of keys under a prefix."""
    head = f"{prefix}/" if prefix else ""
    seen = set()
    for key in keys:
        name = key.removeprefix(head).partition("/")[0]
        if key.startswith(head) and name and name not in seen:
            seen.add(name)
            yield name


def store_identity(path: str, group: str) -> tuple[Any, ...]:
    """Give what tells this version of a store from another: (path, digest of its metadata's file status).

    A store that is written anew, a variable added, removed or resized, changed attributes and a new
    consolidation are all noticed, because each rewrites a metadata document. Chunks written in place are
    not: looking at them would cost more than reading them.

    Parameters
    ----------
    path : str
        The store.
    group : str
        The group that is read, ``""`` for the root; its documents and those of its parents count.

    Raises
    ------
    OSError
        If there is no such store.
    """
    root = Path(path)
    if not root.is_dir():
        return file_identity(path)
    parts = [part for part in group.split("/") if part]
    levels = [root.joinpath(*parts[:depth]) for depth in range(len(parts) + 1)]
    statuses: list[tuple[Any, ...]] = []
    for level in levels:
        try:
            with os.scandir(level) as entries:
                folders = sorted(entry.path for entry in entries if entry.is_dir())
        except FileNotFoundError:
            folders = []
        for folder in (str(level), *folders):
            for name in _ARRAY_DOCUMENTS if folder != str(level) else _ARRAY_DOCUMENTS + _GROUP_DOCUMENTS:
                try:
                    status = os.stat(f"{folder}/{name}")  # noqa: PTH116 - hundreds of them, before every use
                except (FileNotFoundError, NotADirectoryError):
                    continue
                statuses.append((folder, name, status.st_ino, status.st_size, status.st_mtime_ns))
    root.stat()
    digest = hashlib.blake2b(repr(statuses).encode(), digest_size=16)
    return (path, digest.hexdigest())
