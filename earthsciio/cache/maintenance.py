"""Housekeeping of a local cache: what is in it, whether it is whole, and making room.

Safe beside running programs: a blob is removed under its lock, one that is being fetched is left alone, and a
file somebody has open stays readable until it is closed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from earthsciio.errors import CacheStoreError

from .manifest import Manifest
from .store import LocalStore, StoredBlob
from .syscalls import unlink_if_there
from .times import time_of_file

__all__ = ["CacheItem", "Problem", "damage", "items", "prune", "verify"]

#: A staging file that no lock holder names is removed once it has not changed for this many seconds.
STRAY_SECONDS = 86400.0


@dataclass(frozen=True, slots=True)
class CacheItem:
    """One blob of a cache.

    Parameters
    ----------
    key : str
        Its key.
    path : pathlib.Path
        Its file.
    size : int
        Bytes.
    manifest : Manifest or None
        What is known about it.
    fetched : datetime
        When it was fetched, by its manifest, else by the file's time; aware UTC.
    """

    key: str
    path: Path
    size: int
    manifest: Manifest | None
    fetched: datetime


@dataclass(frozen=True, slots=True)
class Problem:
    """Something :func:`verify` found.

    Parameters
    ----------
    key : str
        Of the blob.
    path : pathlib.Path
        The file concerned.
    what : str
        What is wrong with it, in words.
    serious : bool
        Whether the bytes are wrong; otherwise the next fetch or :func:`prune` settles it.
    """

    key: str
    path: Path
    what: str
    serious: bool


def items(store: LocalStore) -> Iterator[CacheItem]:
    """Iterate over the blobs of a store, by key; :func:`damage` tells of those that can't be looked at."""
    for key in store.stored_keys():
        with suppress(CacheStoreError, FileNotFoundError):  # removed meanwhile
            if (blob := store.find(key)) is not None:
                yield _item(key, blob)


def damage(store: LocalStore) -> Iterator[Problem]:
    """Look at every entry of a store without reading the blobs; yields what can't be used, and why."""
    for key in store.stored_keys():
        yield from _damage(store, key)


def verify(store: LocalStore) -> Iterator[Problem]:
    """Read every blob of a store and compare it with its manifest; yields what does not agree."""
    for key in store.stored_keys():
        damaged = list(_damage(store, key))
        yield from damaged
        if not any(problem.serious for problem in damaged):
            yield from _disagreement(store, key, damaged)


def _damage(store: LocalStore, key: str) -> Iterator[Problem]:
    try:
        store.find(key)
        found = store.damage(key)
    except CacheStoreError as error:
        yield Problem(key, Path(error.file or store.manifest_path(key)), str(error), serious=True)
    else:
        for path, what in found.items():
            yield Problem(key, Path(path), what, serious=False)


def _disagreement(store: LocalStore, key: str, damaged: Sequence[Problem]) -> Iterator[Problem]:
    blob = store.find(key)
    if blob is None or blob.manifest is None:
        if not damaged:
            path = Path(store.manifest_path(key)) if blob is None else blob.path
            what = "a manifest without its blob" if blob is None else "a blob without a readable manifest"
            yield Problem(key, path, what, serious=False)
    elif blob.manifest.bytes not in {None, blob.size}:
        what = f"{blob.size} bytes, where the manifest says {blob.manifest.bytes}"
        yield Problem(key, blob.path, what, serious=True)
    elif (digest := blob.digest()) is None:
        if blob.path.exists():  # not removed meanwhile
            yield Problem(key, blob.path, "bytes that can't be read", serious=True)
    elif blob.manifest.sha256_content not in {None, digest}:
        yield Problem(key, blob.path, "other bytes than the manifest's digest says", serious=True)


def prune(
    store: LocalStore,
    *,
    older_than: timedelta | None = None,
    max_bytes: int | None = None,
    source: str | None = None,
    dry_run: bool = False,
) -> list[CacheItem]:
    """Remove blobs, and tidy up what crashes left behind.

    Parameters
    ----------
    store : LocalStore
        The cache.
    older_than : timedelta, optional
        Remove what was fetched longer ago.
    max_bytes : int, optional
        Then remove the oldest until the whole cache is no larger.
    source : str, optional
        Only touch blobs of this source; alone, it removes them all.
    dry_run : bool, optional
        Remove nothing.

    Returns
    -------
    list of CacheItem
        What was (or would be) removed, oldest first. What is being fetched right now is left alone.
    """
    everything = sorted(items(store), key=lambda item: item.fetched)
    total = sum(item.size for item in everything)
    now = datetime.now(UTC)
    chosen = []
    for item in everything:
        if source is not None and (item.manifest is None or item.manifest.source_loader != source):
            continue
        too_old = older_than is not None and now - item.fetched > older_than
        too_much = max_bytes is not None and total > max_bytes
        if too_old or too_much or (source is not None and older_than is None and max_bytes is None):
            chosen.append(item)
            total -= item.size
    if dry_run:
        return chosen
    impatient = store.with_lock_timeout(0.0)
    removed = [item for item in chosen if _remove(impatient, item.key)]
    _tidy(impatient)
    return removed


def _item(key: str, blob: StoredBlob) -> CacheItem:
    fetched = blob.manifest.fetched if blob.manifest is not None else None
    if fetched is None:
        fetched = time_of_file(blob.path.stat().st_mtime)
    return CacheItem(key, blob.path, blob.size, blob.manifest, fetched)


def _remove(store: LocalStore, key: str) -> bool:
    with suppress(CacheStoreError), store.claim(key) as claim:
        claim.remove()
        return True
    return False


def _tidy(store: LocalStore) -> None:
    """Remove manifests without blob, and staging files whose holder is dead or never wrote its note."""
    for key in store.stored_keys():
        with suppress(CacheStoreError):
            if store.find(key) is None:
                _remove(store, key)
    for note in (store.root / "v1/locks").glob("*.holder"):
        with suppress(CacheStoreError), store.claim(note.stem):
            pass  # whoever takes the lock of a dead holder cleans up after it
    for path in (store.root / "v1/tmp").glob("*"):
        with suppress(OSError):  # gone, or not to be removed
            if time.time() - path.stat().st_mtime > STRAY_SECONDS:
                unlink_if_there(str(path))
