"""Where blobs live: format v1 on a local file system, and the one way in.

Reading needs no lock: a final name appears only when its bytes are complete and on disk. Writing is done by
whoever holds the blob's lock, through the :class:`Claim` it is given: stage, fsync, rename, fsync the
directory, then the same for the manifest. A manifest that would describe other bytes is taken away before
the rename, so a crash at any moment leaves either an entry that is right, or a blob without manifest, which
counts as unfinished.

Names in the cache are made of keys only, and what leads out of the root, by symbolic link, is refused.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from earthsciio.errors import CacheStoreError
from earthsciio.forks import new_lock
from earthsciio.regular import NOT_REGULAR, read_regular

from .keys import is_key, sha256_file
from .locks import Abort, Held, LockKind, hold, lock_path, probe_lock_kind, sweep
from .manifest import Manifest
from .syscalls import (
    SYS,
    create_exclusive,
    make_directory,
    storing,
    sync_directory,
    unlink_if_there,
    write_all,
)

__all__ = ["Claim", "LocalStore", "Staging", "Store", "StoredBlob", "default_root"]

_EXTENSIONS = re.compile(r"(?:\.[A-Za-z0-9]{1,16})*")
_UNFINISHED = (".part", ".tmp")
_LONGEST_MANIFEST = 1 << 20
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESTALE})  # ESTALE: replaced on a server; look again


def default_root() -> Path:
    """Return ``$EARTHSCIDATADIR``, else ``earthsciio`` in the user's cache directory."""
    if configured := os.environ.get("EARTHSCIDATADIR"):
        return Path(configured)
    import platformdirs

    return Path(platformdirs.user_cache_dir()) / "earthsciio"


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """A blob that is there, complete.

    Parameters
    ----------
    path : pathlib.Path
        The file.
    size : int
        Its size in bytes.
    manifest : Manifest or None
        None where it is missing or unreadable: an unfinished commit, or a file somebody put there.
    """

    path: Path
    size: int
    manifest: Manifest | None

    def digest(self) -> str | None:
        """Return the SHA-256 of the bytes there are now, reading them all; None if they can't be read."""
        try:
            return sha256_file(self.path)
        except OSError:
            return None


class Staging:
    """The unique file a blob is written to before it has a name; hashes what goes through.

    A transport's sink: :meth:`write` appends, :meth:`restart` begins again. One thread at a time.
    """

    __slots__ = ("_abort", "_fd", "_hash", "path", "size")

    def __init__(self, path: str, abort: Abort | None = None) -> None:
        self.path = path
        self.size = 0
        self._abort = abort
        self._hash = hashlib.sha256()
        with storing(path):
            self._fd: int | None = create_exclusive(path)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append ``data``.

        Raises
        ------
        CacheStoreError
            If the disk does not take it.
        """
        assert self._fd is not None
        if self._abort is not None:
            self._abort.check()
        with storing(self.path):
            write_all(self._fd, data)
        self._hash.update(data)
        self.size += len(data)

    def restart(self) -> None:
        """Forget what was written."""
        assert self._fd is not None
        if self.size:
            with storing(self.path):
                SYS.ftruncate(self._fd, 0)
                os.lseek(self._fd, 0, os.SEEK_SET)
            self._hash = hashlib.sha256()
            self.size = 0

    @property
    def sha256(self) -> str:
        """SHA-256 of what was written so far."""
        return self._hash.hexdigest()

    def seal(self) -> None:
        """Bring the bytes to disk and close the file."""
        assert self._fd is not None
        with storing(self.path):
            SYS.fsync(self._fd)
            fd, self._fd = self._fd, None
            SYS.close(fd)

    def close(self) -> None:
        """Close the file, which is not going to be a blob."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)


class Claim(Protocol):
    """The right to write one blob, which the holder of its lock has."""

    def stage(self, abort: Abort | None = None) -> Staging:
        """Return the (empty) staging file."""

    def commit(self, staging: Staging, manifest: Manifest, extension: str) -> StoredBlob:
        """Make the staged bytes the blob, and describe them by ``manifest``."""

    def describe(self, manifest: Manifest) -> None:
        """Replace the manifest of the blob that is there."""

    def remove(self) -> None:
        """Remove manifest and blob."""


class Store(Protocol):
    """What a cache needs of a place for blobs; called from many threads at once."""

    def find(self, key: str, extension: str = "") -> StoredBlob | None:
        """Return the complete blob of ``key``, without any lock; None if there is none."""

    def claim(self, key: str, *, abort: Abort | None = None) -> AbstractContextManager[Claim]:
        """Wait for the lock of ``key`` and hold it."""


class LocalStore:
    """Format v1 below a directory of a local or network file system.

    Parameters
    ----------
    root : path, optional
        The directory above ``v1``; default :func:`default_root`. Made when first written to.
    lock_kind : {"flock", "lease"}, optional
        How blobs are locked; default: what a probe of the file system says. A Lustre mounted with
        ``localflock`` passes the probe though nodes don't see each other's locks: say "lease" there.
    lock_timeout : float, optional
        Seconds to wait for a *live* holder; a dead one is noticed at once, or after ``LEASE_SECONDS``.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        *,
        lock_kind: LockKind | None = None,
        lock_timeout: float = 7200.0,
    ) -> None:
        chosen = default_root() if root is None else Path(root)
        self.root = Path(os.path.realpath(chosen.expanduser()))
        self._root = str(self.root)
        self._lock_kind = lock_kind
        self._lock_timeout = lock_timeout
        self._probing = new_lock(self, "_probing")
        self._swept = False

    def __repr__(self) -> str:
        return f"LocalStore({self._root!r})"

    def with_lock_timeout(self, seconds: float) -> LocalStore:
        """Return the same place, with another patience for live lock holders."""
        return LocalStore(self.root, lock_kind=self._lock_kind, lock_timeout=seconds)

    def __getstate__(self) -> dict[str, object]:
        return {"root": self._root, "lock_kind": self._lock_kind, "lock_timeout": self._lock_timeout}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__init__(**state)  # type: ignore[misc]  # the constructor's own arguments

    # -- reading ------------------------------------------------------------------------------------------

    def find(self, key: str, extension: str = "") -> StoredBlob | None:
        """Return the complete blob of ``key``; any extension will do, ``extension`` is looked for first.

        Raises
        ------
        CacheStoreError
            If it, or its manifest, leads out of the cache, or can't be looked at.
        """
        path = self.blob_path(key, extension)
        if (size := self._size(path)) is None:
            return None
        return StoredBlob(Path(path), size, self.manifest(key))

    def manifest(self, key: str) -> Manifest | None:
        """Return the manifest of ``key``; None if there is none, or none that can be read as one."""
        found = self._manifest_or_damage(key)
        return found if isinstance(found, Manifest) else None

    def damage(self, key: str) -> dict[str, str]:
        """Return what there is of ``key`` that can't be used, and why: by path, in words.

        Raises
        ------
        CacheStoreError
            As :meth:`find`.
        """
        found = {}
        if isinstance(wrong := self._manifest_or_damage(key), str):
            found[self.manifest_path(key)] = f"a damaged manifest: {wrong}"
        for path in self.blob_names(key):
            if not os.path.isfile(path):  # noqa: PTH113
                found[path] = "not a regular file, in the place of one"
        return found

    def _manifest_or_damage(self, key: str) -> Manifest | str | None:
        """Return the manifest of ``key``, or why it is none; None if there is nothing in its place."""
        path = self.manifest_path(key)
        self.refuse_escape(path)
        try:
            data = read_regular(path, _LONGEST_MANIFEST)
        except OSError as error:
            if error.errno in _GONE:
                return None
            if error.errno in NOT_REGULAR:
                return error.strerror or "not a regular file"
            raise CacheStoreError(f"the cache can't be read: {error.strerror}", file=path) from error
        if len(data) > _LONGEST_MANIFEST:
            return f"more than {_LONGEST_MANIFEST} bytes"
        try:
            return Manifest.from_json(data)
        except (ValueError, TypeError) as error:
            return str(error)

    def stored_keys(self) -> Iterator[str]:
        """Iterate over the keys that have a blob or a manifest, sorted."""
        found = {name.partition(".")[0] for name in _names(f"{self._root}/v1/meta") if name.endswith(".json")}
        for shard in _names(f"{self._root}/v1/blobs"):
            found.update(name.partition(".")[0] for name in _names(f"{self._root}/v1/blobs/{shard}"))
        return iter(sorted(filter(is_key, found)))

    def _size(self, path: str) -> int | None:
        try:
            status = os.stat(path)  # noqa: PTH116
        except OSError as error:
            if error.errno in _GONE or error.errno in NOT_REGULAR:
                return None
            raise CacheStoreError(f"the cache can't be read: {error.strerror}", file=path) from error
        self.refuse_escape(path)
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def blob_names(self, key: str) -> Iterator[str]:
        """Iterate over the paths there are that a blob of ``key`` may have, sorted, whatever is there."""
        shard = self._shard(key)
        for name in sorted(_names(shard)):
            rest = name.removeprefix(key)
            if rest != name and _EXTENSIONS.fullmatch(rest) and not rest.endswith(_UNFINISHED):
                yield f"{shard}/{name}"

    def refuse_escape(self, path: str) -> None:
        """Raise CacheStoreError if ``path`` is not below the root once its symbolic links are followed."""
        step = self._root
        for name in path[len(step) + 1 :].split("/"):
            step = f"{step}/{name}"
            if os.path.islink(step):  # noqa: PTH114 - each hit does this
                break
        else:
            return
        real = os.path.realpath(path)
        if not real.startswith(self._root + os.sep):
            raise CacheStoreError(
                "a symbolic link leads out of the cache, and was not followed", file=path, target=real
            )

    def _shard(self, key: str) -> str:
        if not is_key(key):
            raise CacheStoreError(f"{key!r} is not a cache key: 64 lowercase hexadecimal digits")
        return f"{self._root}/v1/blobs/{key[:2]}"

    def manifest_path(self, key: str) -> str:
        """Return where the manifest of ``key`` is, or would be."""
        self._shard(key)
        return f"{self._root}/v1/meta/{key}.json"

    def blob_path(self, key: str, extension: str = "") -> str:
        """Return where the blob of ``key`` is, or, if it is nowhere yet, would be."""
        shard = self._shard(key)
        path = f"{shard}/{key}.{extension}" if extension else f"{shard}/{key}"
        if not os.path.isfile(path):  # noqa: PTH113 - nothing, or what is no blob
            path = next(filter(os.path.isfile, self.blob_names(key)), path)
        return path

    # -- writing ------------------------------------------------------------------------------------------

    @contextmanager
    def claim(self, key: str, *, abort: Abort | None = None) -> Iterator[Claim]:
        """Hold the lock of ``key``; what killed holders had staged is removed.

        Raises
        ------
        CacheStoreError
            If the lock can't be had, or the cache can't be written.
        """
        self._shard(key)
        locks, temporary = (self.directory(name) for name in ("locks", "tmp"))
        kind, timeout = self.lock_kind(key), self._lock_timeout
        if not self._swept:
            self._swept = True
            sweep(locks, temporary, kind=kind)
        with hold(locks, temporary, key, kind=kind, timeout=timeout, abort=abort) as held:
            claim = _LocalClaim(self, key, held)
            try:
                yield claim
            finally:
                claim.end()

    def lock_kind(self, key: str) -> LockKind:
        """Return how blobs are locked here; the file system is probed once, with the lock file of ``key``."""
        with self._probing:
            if self._lock_kind is None:
                self._lock_kind = probe_lock_kind(lock_path(self.directory("locks"), key))
            return self._lock_kind

    def directory(self, name: str) -> str:
        """Return the path of ``v1/<name>``, made if need be."""
        path = f"{self._root}/v1/{name}"
        with storing(path):
            make_directory(path)
        self.refuse_escape(path)
        return path


class _LocalClaim:
    """What the holder of a lock may do to its blob; the other half of :class:`LocalStore`."""

    def __init__(self, store: LocalStore, key: str, held: Held) -> None:
        self._store = store
        self._key = key
        self._held = held
        self._staging: Staging | None = None

    def stage(self, abort: Abort | None = None) -> Staging:
        if self._staging is None:
            self._staging = Staging(self._held.staging, abort)
        self._staging.restart()
        return self._staging

    def commit(self, staging: Staging, manifest: Manifest, extension: str) -> StoredBlob:
        staging.seal()
        self._staging = None
        path = self._store.blob_path(self._key, extension)
        shard = os.path.dirname(path)  # noqa: PTH120
        self._held.check()
        with storing(path):
            make_directory(shard)
            self._store.refuse_escape(shard)
            self._forget_manifest()
            if not os.path.isfile(path):  # noqa: PTH113 - a directory can't be replaced
                unlink_if_there(path)
            SYS.replace(self._held.staging, path)
            sync_directory(shard)
        self.describe(manifest)
        return StoredBlob(Path(path), staging.size, manifest)

    def describe(self, manifest: Manifest) -> None:
        path = self._store.manifest_path(self._key)
        staged = self._held.staging  # free again: the blob has its own name by now
        self._held.check()
        directory = self._store.directory("meta")
        with storing(path):
            if self._staging is not None:  # a transfer that turned out not to be needed
                self.end()
                unlink_if_there(staged)
            fd = create_exclusive(staged)
            try:
                write_all(fd, manifest.to_json().encode())
                SYS.fsync(fd)
            finally:
                SYS.close(fd)
            SYS.replace(staged, path)
            sync_directory(directory)

    def remove(self) -> None:
        with storing(self._store.manifest_path(self._key)):
            self._forget_manifest()
            for path in self._store.blob_names(self._key):
                self._store.refuse_escape(path)
                unlink_if_there(path)
                sync_directory(os.path.dirname(path))  # noqa: PTH120

    def end(self) -> None:
        if self._staging is not None:
            self._staging.close()
            self._staging = None

    def _forget_manifest(self) -> None:
        path = self._store.manifest_path(self._key)
        if os.path.lexists(path):
            with storing(path):
                unlink_if_there(path)
                sync_directory(os.path.dirname(path))  # noqa: PTH120


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208
    except OSError as error:
        if error.errno in _GONE:
            return []
        raise CacheStoreError(f"the cache can't be read: {error.strerror}", file=directory) from error
