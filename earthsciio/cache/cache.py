"""The cache itself: from a resolved URL to a local file, downloaded once per node and never half-written.

:meth:`Cache.fetch` looks in the private store, then in read-only site stores; a valid blob is returned at
once, without lock or network. Otherwise it takes the blob's lock, looks again (somebody may have fetched it
while it waited), and brings it in from the canonical URL or the first mirror that has it. Offline it only
looks: no transport is ever built, no socket opened, no lock taken, nothing written.
"""

from __future__ import annotations

import copy
import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal, Self

from earthsciio.errors import (
    CacheMiss,
    CacheStoreError,
    FetchError,
    IntegrityError,
    SourceNotFound,
    SourceUnclear,
    TransportError,
)
from earthsciio.events import Emitter, Fetched, Listener, Substituted
from earthsciio.forks import abandon, in_child, new_lock
from earthsciio.registry import Registry
from earthsciio.regular import kind_of

from .absence import AbsenceNotes, is_path_absent, says_absent
from .auth import Auth
from .keys import cache_key, parse_checksum, sha256_file, split_range, url_extension, url_scheme
from .locks import Abort, sleep
from .manifest import Manifest, as_validator
from .provenance import Provenance, UsedFile
from .redact import redact
from .sinks import Digest, Watched
from .store import Claim, LocalStore, Staging, Store, StoredBlob
from .times import format_time, parse_http_date
from .transports import FetchRequest, FetchResult, Sink, Transport, transport_registry
from .validity import Temporal, Verdict, judge

__all__ = ["Cache", "CacheEntry", "FetchStatus", "store_registry"]

FetchStatus = Literal["hit", "downloaded", "not_modified"]

store_registry: Final[Registry[Store]] = Registry("store")
store_registry.register("local", LocalStore)

_TRUE: Final = frozenset({"1", "true", "yes"})
#: A file that has not been modified for this long is not being written.
_WRITTEN: Final = timedelta(hours=1)
_log = logging.getLogger("earthsciio.cache")


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """A file that is there.

    Parameters
    ----------
    key : str
        The blob's key.
    path : pathlib.Path
        The local file: complete, and not to be written.
    manifest : Manifest
        What is known about it.
    status : {"hit", "downloaded", "not_modified"}
        How it came to be there.
    """

    key: str
    path: Path
    manifest: Manifest
    status: FetchStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """One call of fetch."""

    resolved_url: str
    key: str
    source_loader: str | None
    auth_realm: str | None
    temporal: Temporal | None
    checksum: str | None
    mirrors: tuple[str, ...]
    since: datetime
    abort: Abort | None
    settle: float | None
    may_be_absent: bool

    @property
    def extension(self) -> str:
        return url_extension(self.resolved_url)


class Cache:
    """A content-addressed cache of the files sources are made of.

    Safe from any thread and, on one file system, any process. Pickles without its connections and listeners.

    Parameters
    ----------
    store : Store, optional
        Where blobs are kept; default: ``store_registry.create(store_name, root=root)``.
    root : path, optional
        The directory of the default store; default ``$EARTHSCIDATADIR``, else the user's cache directory.
    store_name : str, optional
        Name of the store to build.
    offline : bool, optional
        Never touch the network; default: whether ``$EARTHSCI_OFFLINE`` is 1, true or yes.
    auth : Auth, or mapping of str to Auth, optional
        Credentials by realm; a single one serves every realm.
    verify : bool, optional
        Hash a blob on every hit, and fetch it again (offline: raise) if its bytes have rotted.
    site_roots : sequence of path, optional
        Read-only caches, searched in order after the store; default ``$EARTHSCI_SITE_CACHE``, a list of
        directories like ``$PATH``.
    ttl : float, optional
        Seconds for which a file of an open period, whose server gives no validators, is not asked for again.
    listeners : iterable of callable, optional
        Are told of each fetch (:class:`earthsciio.events.Fetched`).

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "winds.nc").write_bytes(b"winds")
    >>> cache = Cache(root=folder / "cache", offline=False)
    >>> entry = cache.fetch(f"file://{folder}/winds.nc")
    >>> entry.status, entry.path.read_bytes()
    ('downloaded', b'winds')
    >>> cache.fetch(f"file://{folder}/winds.nc").status
    'hit'
    """

    def __init__(
        self,
        store: Store | None = None,
        *,
        root: str | os.PathLike[str] | None = None,
        store_name: str = "local",
        offline: bool | None = None,
        auth: Auth | Mapping[str, Auth] | None = None,
        verify: bool = False,
        site_roots: Sequence[str | os.PathLike[str]] | None = None,
        ttl: float = 86400.0,
        listeners: Iterable[Listener] = (),
    ) -> None:
        if store is not None and root is not None:
            raise ValueError("a cache has a store or a root, not both")
        if site_roots is None:
            site_roots = [
                path for path in os.environ.get("EARTHSCI_SITE_CACHE", "").split(os.pathsep) if path
            ]
        self.store: Store = store_registry.create(store_name, root=root) if store is None else store
        self.sites: tuple[Store, ...] = tuple(LocalStore(path) for path in site_roots)
        self.offline = _offline_by_environment() if offline is None else offline
        self.verify = verify
        self._auth = auth
        self._ttl = timedelta(seconds=ttl)
        self._emit = Emitter(listeners)
        self._set_up()

    def _set_up(self) -> None:
        self._transports: dict[str, Transport] = {}
        self._lock = new_lock(self)
        self._provenance = Provenance()
        in_child(self, Cache._forget_connections)

    def _forget_connections(self) -> None:
        """Leave the connections to the process that this one was forked from."""
        abandon(self._transports)
        self._transports = {}

    def __repr__(self) -> str:
        return f"Cache({self.store!r}{', offline' if self.offline else ''})"

    def __getstate__(self) -> dict[str, Any]:
        dropped = {"_transports", "_lock", "_provenance", "_emit"}
        return {name: value for name, value in self.__dict__.items() if name not in dropped}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._emit = Emitter()
        self._set_up()

    def without_network(self) -> Cache:
        """Give the same cache as a process without network would see it, with a provenance of its own."""
        offline = copy.copy(self)  # as pickling has it: without connections and listeners
        offline.offline = True
        return offline

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back connections. The cache stays usable; the next download opens new ones."""
        with self._lock:
            transports, self._transports = self._transports, {}
        for transport in transports.values():
            transport.close()

    # -- the one call that matters ------------------------------------------------------------------------

    def fetch(
        self,
        resolved_url: str,
        *,
        source_loader: str | None = None,
        auth_realm: str | None = None,
        temporal: Temporal | None = None,
        expected_checksum: str | None = None,
        mirrors: Sequence[str] = (),
        abort: Abort | None = None,
        settle: float | None = None,
        may_be_absent: bool = False,
    ) -> CacheEntry:
        """Return the local file of a URL, bringing it in if need be.

        Parameters
        ----------
        resolved_url : str
            The canonical URL; its spelling is the key. A plain local path is returned as it is, uncached.
        source_loader : str, optional
            Name of the source, for the manifest.
        auth_realm : str, optional
            Name of the realm whose credentials to use.
        temporal : Temporal, optional
            Anything whose ``end`` says when the file's contents are final (:class:`FilePeriod`, a source's
            ``SourceTemporal``); None: a static source, which is never asked again.
        expected_checksum : str, optional
            The SHA-256 the bytes must have.
        mirrors : sequence of str, optional
            Other URLs of the same bytes, tried in order.
        abort : Abort, optional
            Checked while waiting and between pieces; what it raises ends the fetch.
        settle : float, optional
            The file may still be growing where it comes from: ask again after this many seconds, and commit
            only what two answers agree on. A file last modified over an hour ago, or of a declared checksum,
            is taken at once.
        may_be_absent : bool, optional
            Something stands in for the file if it does not exist: that it doesn't is noted in the cache, and
            offline what was noted is told as SourceNotFound, instead of CacheMiss.

        Returns
        -------
        CacheEntry
            Its file is complete and on disk.

        Raises
        ------
        CacheMiss
            Offline, and not there.
        SourceNotFound, AuthError, TransportError
            No location gave it; the error is that of the canonical URL. A file that did not settle counts as
            not found: it is not there yet.
        SourceUnclear
            A SourceNotFound that does not say that the file does not exist.
        IntegrityError
            The bytes don't have the declared checksum or length.
        CacheStoreError
            The cache can't be written, or its lock is not given back.
        BackendNotRegistered
            No transport for the URL's scheme.
        """
        start = time.perf_counter()
        if url_scheme(resolved_url) is None:
            entry = _in_place(resolved_url, expected_checksum)
            self.note_in_place(resolved_url, source_loader)
        else:
            wanted = _Wanted(
                resolved_url=resolved_url,
                key=cache_key(resolved_url),
                source_loader=source_loader,
                auth_realm=auth_realm,
                temporal=temporal,
                checksum=None if expected_checksum is None else parse_checksum(expected_checksum),
                mirrors=tuple(mirrors),
                since=datetime.now(UTC),
                abort=abort,
                settle=settle if expected_checksum is None else None,
                may_be_absent=may_be_absent,
            )
            entry = self._look(wanted) if self.offline else self._look_or_bring(wanted)
            self._provenance.note(UsedFile.fetched(entry.key, entry.manifest, source_loader))
        if self._emit:
            self._emit(
                Fetched(
                    url=redact(resolved_url),
                    status=entry.status,
                    nbytes=entry.manifest.bytes or 0,
                    seconds=time.perf_counter() - start,
                )
            )
        return entry

    def lookup(self, resolved_url: str) -> CacheEntry | None:
        """Return what :meth:`fetch` would find offline, or None; no network, no lock, whatever its age."""
        if url_scheme(resolved_url) is None:
            return _in_place(resolved_url) if Path(resolved_url).exists() else None
        key = cache_key(resolved_url)
        blob = self._find(key, url_extension(resolved_url))
        return None if blob is None else _entry(resolved_url, key, blob, "hit")

    def knows_absent(self, resolved_url: str) -> bool:
        """Whether it is noted that a file does not exist; no network, no lock, however old the note."""
        key = cache_key(resolved_url)
        return any(
            key in AbsenceNotes(store) for store in (self.store, *self.sites) if isinstance(store, LocalStore)
        )

    def note_substitute(self, source_loader: str, resolved_url: str, stand_ins: Sequence[str]) -> None:
        """Add to the provenance that a file does not exist and which others stand in; tell listeners."""
        self._provenance.note(UsedFile.absent(resolved_url, source_loader, stand_ins))
        if self._emit:
            told = tuple(redact(url) for url in stand_ins)
            self._emit(Substituted(source=source_loader, url=redact(resolved_url), stand_ins=told))

    def note_in_place(self, path: str, source_loader: str | None = None) -> None:
        """Add a local file that is read where it is to the provenance; nothing if it is not there."""
        with suppress(OSError):
            self._provenance.note(UsedFile.in_place(path, source_loader))

    def provenance(self, *, digest: bool = False) -> list[dict[str, Any]]:
        """Return what identifies each file this cache has handed out, in the order of first use; JSON-ready.

        Parameters
        ----------
        digest : bool
            Also read the files that were used in place, for their digests.

        Returns
        -------
        list of dict
            The fields of :class:`~earthsciio.cache.provenance.UsedFile`. A file that changed in the course of
            the run is there once with each content. A file read in place has ``modified`` instead of
            ``fetched_at``; its digest is None unless asked for, and if it has changed since it was used.
        """
        return self._provenance.records(digest=digest)

    # -- looking ------------------------------------------------------------------------------------------

    def _find(self, key: str, extension: str) -> StoredBlob | None:
        for store in (self.store, *self.sites):
            if (blob := store.find(key, extension)) is not None:
                return blob
        return None

    def _look(self, wanted: _Wanted) -> CacheEntry:
        """Find the blob offline: presence is validity, unless its bytes are known to be others."""
        blob = self._find(wanted.key, wanted.extension)
        if blob is None and wanted.may_be_absent and self.knows_absent(wanted.resolved_url):
            raise SourceNotFound("there was no such file when last asked", file=redact(wanted.resolved_url))
        if blob is None:
            raise CacheMiss(redact(wanted.resolved_url), wanted.key, damage=self._damage(wanted.key))
        stored = blob.manifest.sha256_content if blob.manifest is not None else None
        wrong = wanted.checksum is not None and (stored or blob.digest()) != wanted.checksum
        if wrong or (self.verify and _rotten(blob)):
            whose = "declared for them" if wrong else "of their manifest"
            raise IntegrityError(
                f"the cached bytes do not have the checksum {whose}",
                file=blob.path,
                hint="Fetch it again while the network is reachable",
            )
        return _entry(wanted.resolved_url, wanted.key, blob, "hit")

    def _damage(self, key: str) -> str | None:
        """Tell what is there of a blob, but can't be used."""
        stores = [store for store in (self.store, *self.sites) if isinstance(store, LocalStore)]
        told = [f"{path} is {what}" for store in stores for path, what in store.damage(key).items()]
        return "; ".join(told) or None

    def _judge(self, wanted: _Wanted) -> tuple[StoredBlob | None, Verdict]:
        """Find the first blob, in the order of the stores, and decide about it."""
        best: tuple[StoredBlob | None, Verdict] = (None, Verdict.FETCH)
        for store in (self.store, *self.sites):
            blob = store.find(wanted.key, wanted.extension)
            verdict = judge(
                blob,
                checksum=wanted.checksum,
                temporal=wanted.temporal,
                since=wanted.since,
                now=datetime.now(UTC),
                ttl=self._ttl,
            )
            if verdict is Verdict.USE and not (self.verify and blob is not None and _rotten(blob)):
                return blob, verdict
            if verdict is Verdict.ASK and best[1] is Verdict.FETCH:
                best = blob, verdict
        return best

    def _look_or_bring(self, wanted: _Wanted) -> CacheEntry:
        blob, verdict = self._judge(wanted)
        if verdict is Verdict.USE and blob is not None:
            return _entry(wanted.resolved_url, wanted.key, blob, "hit")
        with self.store.claim(wanted.key, abort=wanted.abort) as claim:
            blob, verdict = self._judge(wanted)
            if verdict is Verdict.USE and blob is not None:
                return _entry(wanted.resolved_url, wanted.key, blob, "hit")
            return self._bring(wanted, claim, blob if verdict is Verdict.ASK else None)

    # -- bringing in --------------------------------------------------------------------------------------

    def _bring(self, wanted: _Wanted, claim: Claim, stale: StoredBlob | None) -> CacheEntry:
        """Fetch from the first location that has it; ``stale`` is a blob the source may confirm."""
        failures: list[FetchError] = []
        for location in (wanted.resolved_url, *wanted.mirrors):
            try:
                return self._bring_from(location, wanted, claim, stale)
            except CacheStoreError:
                raise  # no other location will help
            except FetchError as error:
                _log.info("%s could not be fetched: %s", redact(location), error)
                failures.append(error)
        failure = _all_failed(wanted, failures, known=self._find(wanted.key, wanted.extension) is not None)
        if wanted.may_be_absent and says_absent(failure) and isinstance(self.store, LocalStore):
            AbsenceNotes(self.store).add(wanted.key, wanted.resolved_url, wanted.source_loader)
        raise failure

    def _bring_from(
        self, location: str, wanted: _Wanted, claim: Claim, stale: StoredBlob | None
    ) -> CacheEntry:
        canonical = location == wanted.resolved_url
        # Validators are those of the canonical server; another one's could agree by accident.
        known = stale.manifest if stale is not None and canonical else None
        sink = claim.stage(wanted.abort)
        result = self._transfer(location, wanted, known, sink)
        if result.not_modified and known is not None and stale is not None:
            blob = self._confirm(stale, known, wanted, claim)
            if blob is not None:
                return _entry(wanted.resolved_url, wanted.key, blob, "not_modified")
            # The blob vanished between the question and the answer: ask once more, unconditionally.
            sink.restart()
            result = self._transfer(location, wanted, None, sink)
        if wanted.settle is not None:
            self._see_it_settled(location, wanted, sink, result, wanted.settle)
        if result.not_modified:
            raise TransportError(
                '"not modified" is no answer to an unconditional request', file=redact(location)
            )
        _check(location, wanted, sink, result)
        previous = self.store.find(wanted.key, wanted.extension)
        manifest = Manifest(
            url=wanted.resolved_url,
            etag=as_validator(result.etag) if canonical else None,
            last_modified=as_validator(result.last_modified) if canonical else None,
            sha256_content=sink.sha256,
            bytes=sink.size,
            fetched_at=format_time(datetime.now(UTC)),
            source_loader=wanted.source_loader,
            auth_realm=wanted.auth_realm,
            extra=previous.manifest.extra if previous is not None and previous.manifest is not None else {},
        )
        blob = claim.commit(sink, manifest, wanted.extension)
        if isinstance(self.store, LocalStore):
            AbsenceNotes(self.store).remove(wanted.key)
        _log.info("fetched %s: %d bytes", redact(location), sink.size)
        return _entry(wanted.resolved_url, wanted.key, blob, "downloaded")

    def _see_it_settled(
        self, location: str, wanted: _Wanted, sink: Staging, result: FetchResult, pause: float
    ) -> None:
        """Ask again whether the bytes that came are all there will be."""
        if result.not_modified or _is_old(result.last_modified):
            return
        sleep(pause, wanted.abort)
        seen = Manifest(
            url=location, etag=as_validator(result.etag), last_modified=as_validator(result.last_modified)
        )
        second = Digest(wanted.abort)
        answer = self._transfer(location, wanted, seen, second)
        if not (answer.not_modified or (second.size, second.sha256) == (sink.size, sink.sha256)):
            raise SourceUnclear(
                "the file is still being written", file=redact(location), bytes=sink.size, settle=pause
            )

    def _transfer(self, location: str, wanted: _Wanted, known: Manifest | None, sink: Sink) -> FetchResult:
        url, byte_range = split_range(location)
        if byte_range is None:
            byte_range = split_range(wanted.resolved_url)[1]  # a mirror of a range may be named without it
        request = FetchRequest(
            url=url,
            home=wanted.resolved_url,
            byte_range=byte_range,
            etag=(known.etag or None) if known is not None else None,
            last_modified=(known.last_modified or None) if known is not None else None,
            auth=self._auth_of(wanted.auth_realm),
            auth_realm=wanted.auth_realm,
            abort=wanted.abort,
        )
        if self._emit:
            sink = Watched(sink, redact(wanted.resolved_url), self._emit)
        return self._transport(url).fetch(request, sink)

    def _confirm(
        self, stale: StoredBlob, known: Manifest, wanted: _Wanted, claim: Claim
    ) -> StoredBlob | None:
        """Note that the source confirmed ``stale``; None if it has vanished meanwhile."""
        blob = self.store.find(wanted.key, wanted.extension)
        if blob is None:
            return stale if stale.path.exists() else None  # a site's: confirmed, and not ours to write
        confirmed = replace(known, fetched_at=format_time(datetime.now(UTC)))
        claim.describe(confirmed)
        return replace(blob, manifest=confirmed)

    def _auth_of(self, realm: str | None) -> Auth | None:
        if realm is None or self._auth is None:
            return None
        return self._auth.get(realm) if isinstance(self._auth, Mapping) else self._auth

    def _transport(self, url: str) -> Transport:
        scheme = url_scheme(url) or "file"
        with self._lock:
            if scheme not in self._transports:
                self._transports[scheme] = transport_registry.create(scheme)
            return self._transports[scheme]


def _offline_by_environment() -> bool:
    return os.environ.get("EARTHSCI_OFFLINE", "").strip().lower() in _TRUE


def _in_place(path: str, checksum: str | None = None) -> CacheEntry:
    local = Path(path).expanduser()
    try:
        status = local.stat()
        special = kind_of(status.st_mode)
        wrong = special is None and checksum is not None and sha256_file(local) != parse_checksum(checksum)
    except FileNotFoundError as error:
        kind = SourceNotFound if is_path_absent(str(local)) else SourceUnclear
        raise kind("there is no such local file", file=local) from error
    except OSError as error:
        raise TransportError(f"the local file can't be read: {error.strerror}", file=local) from error
    except ValueError as error:  # a zero byte, or half a surrogate pair
        raise TransportError(f"not a path: {error}", file=local) from None
    if special is not None:
        raise TransportError(f"not a regular file but a {special}", file=local)
    if wrong:
        raise IntegrityError("the bytes do not have the declared checksum", file=local, declared=checksum)
    return CacheEntry(cache_key(path), local, Manifest(url=path, bytes=status.st_size), "hit")


def _is_old(last_modified: str | None) -> bool:
    """Whether a file was last modified so long ago that nobody writes it now, whatever the clocks say."""
    when = parse_http_date(last_modified)
    return when is not None and datetime.now(UTC) - when > _WRITTEN


def _entry(resolved_url: str, key: str, blob: StoredBlob, status: FetchStatus) -> CacheEntry:
    manifest = blob.manifest or Manifest(url=resolved_url, bytes=blob.size)
    return CacheEntry(key, blob.path, manifest, status)


def _rotten(blob: StoredBlob) -> bool:
    stored = blob.manifest.sha256_content if blob.manifest is not None else None
    return stored is not None and blob.digest() != stored


def _check(location: str, wanted: _Wanted, sink: Staging, result: FetchResult) -> None:
    """Compare what arrived with what the source announced and the caller declared."""
    if result.length is not None and sink.size != result.length:
        raise IntegrityError(
            "the source announced another length than it sent",
            file=redact(location),
            announced=result.length,
            received=sink.size,
        )
    if wanted.checksum is not None and sink.sha256 != wanted.checksum:
        raise IntegrityError(
            "the bytes do not have the declared checksum",
            file=redact(location),
            declared=wanted.checksum,
            received=sink.sha256,
        )


def _all_failed(wanted: _Wanted, failures: list[FetchError], *, known: bool) -> FetchError:
    """Return the canonical location's error; one that tried mirrors says what each of them answered.

    `known`: the cache holds an earlier version, so that a file which is not found has been withdrawn.
    """
    first = failures[0]
    kind = type(first)
    if says_absent(first) and (known or not all(map(says_absent, failures))):
        kind = SourceUnclear
    if len(failures) > 1:
        told = "; ".join(str(error) for error in failures)
        return kind(
            f"none of {len(failures)} locations gave the file: {told}", file=redact(wanted.resolved_url)
        )
    if kind is type(first):
        return first
    hint = "If the file is gone for good, remove the cached one (earthsciio cache prune)"
    return kind(f"the cache holds an earlier version, and now {first.args[0]}", file=first.file, hint=hint)
