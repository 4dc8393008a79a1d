"""The blob cache: every file a source is made of, downloaded once per node, on disk in a documented format.

:class:`Cache` is the way in. Underneath, one idea per module: :mod:`.keys` names blobs, :mod:`.manifest`
describes them, :mod:`.validity` says when one may be used, :mod:`.store` and :mod:`.locks` keep them whole
among crashing processes, :mod:`.transports` brings them, :mod:`.auth` and :mod:`.redact` keep credentials
to themselves, :mod:`.syscalls` is where tests break things. Importing this package opens nothing and needs
no network library.
"""

from __future__ import annotations

from .auth import Auth, NetrcAuth, StaticHeaderAuth
from .cache import Cache, CacheEntry, store_registry
from .keys import cache_key, range_keyed_url, sha256_bytes, sha256_file
from .locks import Abort
from .manifest import Manifest
from .store import LocalStore, Store
from .transports import FetchRequest, FetchResult, Sink, Transport, transport_registry
from .validity import FilePeriod, Temporal

__all__ = [
    "Abort",
    "Auth",
    "Cache",
    "CacheEntry",
    "FetchRequest",
    "FetchResult",
    "FilePeriod",
    "LocalStore",
    "Manifest",
    "NetrcAuth",
    "Sink",
    "StaticHeaderAuth",
    "Store",
    "Temporal",
    "Transport",
    "cache_key",
    "range_keyed_url",
    "sha256_bytes",
    "sha256_file",
    "store_registry",
    "transport_registry",
]
