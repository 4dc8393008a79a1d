"""Decoding through the zarr library: its codecs, our bytes.

The library gets the metadata document that was read when the file was opened, and a store whose only duty
is to hand out chunk objects; so what counts as absent is decided by us, and metadata are never read twice.
Importing this module imports zarr.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, TypeAlias

import zarr
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import StorePath

__all__ = ["Fetch", "open_array"]

#: Key, first byte (negative: from the end) and end, to bytes; None if there is no such object.
Fetch: TypeAlias = Callable[[str, int, int | None], bytes | None]


def open_array(metadata: Mapping[str, Any], path: str, fetch: Fetch) -> zarr.Array[Any]:
    """Give the library's view of an array.

    Parameters
    ----------
    metadata : mapping
        The array's metadata document (of version 2: the ``.zarray``).
    path : str
        Where it is in the store.
    fetch : callable
        Gives the bytes of chunk objects; called on threads of the library's.

    Raises
    ------
    Exception
        Whatever the library says of a codec, type or document it does not know.
    """
    document: Any = dict(metadata)
    return zarr.Array(zarr.AsyncArray(metadata=document, store_path=StorePath(_ChunkStore(fetch), path)))


def _bounds(request: ByteRequest | None) -> tuple[int, int | None]:
    match request:
        case None:
            return 0, None
        case RangeByteRequest(start, end):
            return start, end
        case OffsetByteRequest(offset):
            return offset, None
        case SuffixByteRequest(suffix):
            return -suffix, None
    raise TypeError(f"unknown byte range {request!r}")


class _ChunkStore(Store):
    """A store of chunk objects: read-only, no listing, errors passed through."""

    supports_writes = False
    supports_deletes = False
    supports_listing = False

    def __init__(self, fetch: Fetch) -> None:
        super().__init__(read_only=True)
        self._fetch = fetch

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        data = await asyncio.to_thread(self._fetch, key, *_bounds(byte_range))
        return None if data is None else prototype.buffer.from_bytes(data)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    async def exists(self, key: str) -> bool:
        raise NotImplementedError(key)

    async def set(self, key: str, value: Buffer) -> None:
        raise NotImplementedError(key)

    async def delete(self, key: str) -> None:
        raise NotImplementedError(key)

    def list(self) -> AsyncIterator[str]:
        raise NotImplementedError

    def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        raise NotImplementedError(prefix)

    def list_dir(self, prefix: str) -> AsyncIterator[str]:
        raise NotImplementedError(prefix)
