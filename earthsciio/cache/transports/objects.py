"""``s3:``, ``gs:`` and ``az:`` URLs, over `obstore` (extra ``cloud``).

``s3://bucket/key``, ``gs://bucket/key``, ``az://container/blob`` (account from the environment). Requests
are signed if the environment holds credentials of the provider, and anonymous otherwise: nobody waits for a
metadata service that isn't there. An object is read in parts, each tied to the etag of the first, so that a
transfer that stands still ends in time, goes on where it stopped, and never mixes two versions.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import format_datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from earthsciio.cache.redact import redact
from earthsciio.errors import AuthError, SourceNotFound, TransportError, Unsupported
from earthsciio.forks import new_lock

from . import FetchRequest, FetchResult, Sink
from .retry import Passing, RetryPolicy, persist

__all__ = ["ObjectTransport"]

T = TypeVar("T")
_PART = 32 << 20
_PIECE = 1 << 20
_PART_SECONDS = 300

_CREDENTIALS: Final = {
    "s3": (
        "AWS_ACCESS_KEY_ID",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    ),
    "gs": (
        "GOOGLE_SERVICE_ACCOUNT",
        "GOOGLE_SERVICE_ACCOUNT_PATH",
        "GOOGLE_SERVICE_ACCOUNT_KEY",
        "GOOGLE_APPLICATION_CREDENTIALS",
    ),
    "az": (
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_ACCESS_KEY",
        "AZURE_STORAGE_SAS_KEY",
        "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_STORAGE_TOKEN",
        "AZURE_CLIENT_SECRET",
        "AZURE_CLIENT_ID",
        "AZURE_FEDERATED_TOKEN_FILE",
    ),
}
_PREFIX: Final = {"s3": "AWS", "gs": "GOOGLE", "az": "AZURE"}
_STATUS = re.compile(r"status code: (\d{3} [A-Za-z -]*[A-Za-z])")


class ObjectTransport:
    """Fetches objects of a cloud's store.

    Parameters
    ----------
    retry : RetryPolicy
        When to try again.
    sleep : callable
        Waits the given seconds.
    """

    def __init__(
        self, *, retry: RetryPolicy | None = None, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        try:
            import obstore
        except ImportError:
            raise Unsupported(
                "s3:, gs: and az: URLs need the package obstore", hint="Install earthsci-forcing[cloud]"
            ) from None
        self._obstore = obstore
        self._retry = retry or RetryPolicy()
        self._sleep = sleep
        self._lock = new_lock(self)
        self._stores: dict[tuple[str, str], Any] = {}

    def close(self) -> None:
        """Forget the stores, and with them their connections."""
        with self._lock:
            self._stores.clear()

    def fetch(self, request: FetchRequest, sink: Sink) -> FetchResult:
        """Write the bytes of an object, or of a range of it, into ``sink``.

        Raises
        ------
        SourceNotFound
            No such object.
        AuthError
            The store refuses.
        TransportError
            Anything else, after the retries that make sense.
        """
        scheme, _, rest = request.url.partition("://")
        bucket, _, path = rest.partition("/")
        store = self._store(scheme.lower(), bucket, request)
        read = _Reading(self._obstore, store, path, request, sink)
        return persist(read.attempt, request, sink, self._retry, self._sleep)

    def _store(self, scheme: str, bucket: str, request: FetchRequest) -> Any:
        with self._lock:
            if (scheme, bucket) not in self._stores:
                self._stores[scheme, bucket] = _guarded(request, lambda: _open_store(scheme, bucket))
            return self._stores[scheme, bucket]


@dataclass(slots=True)
class _Reading:
    """One object on its way into a sink, over as many attempts as it takes."""

    obstore: Any
    store: Any
    path: str
    request: FetchRequest
    sink: Sink
    etag: str | None = None

    def attempt(self) -> FetchResult:
        request, sink = self.request, self.sink
        meta = _guarded(request, lambda: self.obstore.head(self.store, self.path))
        etag, size = meta["e_tag"], meta["size"]
        modified = format_datetime(meta["last_modified"], usegmt=True)
        if request.conditional and (etag or modified) == (request.etag or request.last_modified):
            return FetchResult(not_modified=True)
        if etag is None or etag != self.etag:
            sink.restart()
            self.etag = etag
        first, last = request.byte_range or (0, size - 1)
        if last >= size:
            raise TransportError("the byte range ends after the object does", file=_name(request), size=size)
        length = last + 1 - first
        while sink.size < length:
            begin = first + sink.size
            self._part(begin, min(last + 1, begin + _PART))
        return FetchResult(etag=etag, last_modified=modified, length=length)

    def _part(self, begin: int, end: int) -> None:
        options: dict[str, Any] = {"range": (begin, end)}
        if self.etag is not None:
            options["if_match"] = self.etag
        before = self.sink.size
        answer = _guarded(self.request, lambda: self.obstore.get(self.store, self.path, options=options))
        stream = iter(answer.stream(_PIECE))
        while (piece := _guarded(self.request, lambda: next(stream, None))) is not None:
            self.sink.write(memoryview(piece))
        if self.sink.size == before:
            raise Passing(TransportError("the store sent nothing", file=_name(self.request)))


def _guarded(request: FetchRequest, call: Callable[[], T]) -> T:
    """Call into obstore; its errors become ours, without what their texts quote from the wire."""
    from obstore import exceptions

    try:
        return call()
    except FileNotFoundError:
        failure: Exception = SourceNotFound("the store has no such object", file=_name(request))
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        failure = AuthError(
            f"the store refuses: {_told(error)}",
            file=_name(request),
            hint="Credentials are taken from the environment; without any the request is anonymous",
        )
    except exceptions.PreconditionError:
        failure = Passing(TransportError("the object changed while it was read", file=_name(request)))
    except exceptions.GenericError as error:
        refused = TransportError(f"the store failed: {_told(error)}", file=_name(request))
        status = _STATUS.search(str(error))
        final = status is not None and status[1][0] == "4" and status[1][:3] not in {"408", "429"}
        failure = refused if final else Passing(refused)
    except (exceptions.BaseError, ValueError) as error:
        failure = TransportError(f"the store failed: {_told(error)}", file=_name(request))
    raise failure


def _told(error: Exception) -> str:
    status = _STATUS.search(str(error))
    return status[1] if status else redact(str(error).partition("\n")[0])[:200]


def _name(request: FetchRequest) -> str:
    return redact(request.url)


def _open_store(scheme: str, bucket: str) -> Any:
    from obstore import store

    signed = any(os.environ.get(name) for name in _CREDENTIALS[scheme])
    if scheme == "gs":
        signed = signed or Path("~/.config/gcloud/application_default_credentials.json").expanduser().exists()
    plain = os.environ.get(f"{_PREFIX[scheme]}_ALLOW_HTTP", "").lower() in {"1", "true", "yes"}
    options: dict[str, Any] = {
        "client_options": {"connect_timeout": "15s", "timeout": f"{_PART_SECONDS}s", "allow_http": plain},
        "retry_config": {"max_retries": 0},  # we do it, with an eye on the bytes
    }
    if not signed:
        options["skip_signature"] = True
    kinds = {"s3": store.S3Store, "gs": store.GCSStore, "az": store.AzureStore}
    return kinds[scheme](bucket, **options)
