"""The Zarr reader: stores of versions 2 and 3, in a directory or in one zip file.

A chunk is an object of its own, so a Window touches only the objects it needs; of a sharded array the
inner chunk is the unit, read by its byte range. The format gives an absent object a meaning, which makes one
rule vital: only an object that is definitely not there is fill, and only where the store says what fill is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

import numpy as np

from earthsciio.errors import DeclarationError, DecodeError, EarthSciIOError, FileFormatError, Unsupported
from earthsciio.fields import Array
from earthsciio.forks import new_lock

from .base import ArrayInfo, OpenFile, Reader
from .text import decode_strings, join_characters
from .zarr_metadata import Hierarchy, StoredArray, read_group
from .zarr_objects import open_objects, store_identity

if TYPE_CHECKING:
    import zarr

__all__ = ["ZarrFile", "ZarrReader"]


@dataclass(frozen=True, kw_only=True)
class ZarrReader(Reader):
    """Reads Zarr stores.

    Parameters
    ----------
    group : str, optional
        Path of the group whose arrays are read; root by default.
    fill_value_masks : bool, optional
        Whether the ``fill_value`` of a version 2 array masks. By default it does where it is neither 0 nor
        null and the array has no ``_FillValue``. That of version 3 never masks.
    consolidated : bool, optional
        Whether to use consolidated metadata; by default where there are any.
    **options
        Those of :class:`~earthsciio.formats.base.Reader`.
    """

    group: str | None = None
    fill_value_masks: bool | None = None
    consolidated: bool | None = None

    store_backed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("fill_value_masks", "consolidated"):
            if getattr(self, name) not in (None, True, False):
                raise DeclarationError(f"{name} is true, false or null, not {getattr(self, name)!r}")

    @property
    def _group(self) -> str:
        return (self.group or "").strip("/")

    def identity(self, path: str) -> tuple[Any, ...]:
        """Tell versions of a store apart by its metadata; see :func:`.zarr_objects.store_identity`."""
        return store_identity(path, self._group)

    def fetchable(self, url: str) -> bool:
        """Whether the store is in one file: the cache holds files."""
        return urlsplit(url).path.lower().endswith(".zip")

    def open(self, path: str) -> OpenFile:
        """Open a store; see :meth:`Reader.open <earthsciio.formats.base.Reader.open>`."""
        return ZarrFile(path, self._group, self.fill_value_masks, self.consolidated)


class ZarrFile:
    """An open Zarr store.

    Parameters
    ----------
    path : str
        The directory or zip file.
    group : str
        The group to read, ``""`` for the root; its parents' arrays stay visible.
    fill_value_masks, consolidated : bool or None
        See :class:`ZarrReader`.

    Raises
    ------
    FileFormatError
        If it is no Zarr store, or its metadata are damaged.
    SelectionError
        If there is no such group.
    """

    def __init__(
        self,
        path: str,
        group: str = "",
        fill_value_masks: bool | None = None,
        consolidated: bool | None = None,
    ) -> None:
        self.path = path
        self._lock = new_lock(self)
        self._objects = open_objects(path)
        self._opened: dict[str, zarr.Array[Any]] = {}
        self._names_checked: set[str] = set()
        try:
            hierarchy = Hierarchy(self._objects, path, consolidated)
            arrays, own = read_group(hierarchy, group, fill_value_masks)
        except EarthSciIOError:
            raise
        except OSError as error:
            raise FileFormatError(f"the store's metadata can't be read: {error}", file=path) from error
        finally:
            self._objects.close()
        self._stored = {stored.info.name: stored for stored in arrays}
        self._arrays = MappingProxyType({name: stored.info for name, stored in self._stored.items()})
        self._own = frozenset(stored.info.name for stored in arrays[:own])

    @property
    def arrays(self) -> Mapping[str, ArrayInfo]:
        """The group's arrays by name, then those of its parents that it does not shadow."""
        return self._arrays

    @property
    def own(self) -> frozenset[str]:
        """Names of the group's own arrays."""
        return self._own

    def close(self) -> None:
        """Give up descriptors; the next read opens them again."""
        self._objects.close()

    def read_chunk(self, info: ArrayInfo, chunk: tuple[int, ...]) -> Array:
        """Read the elements of one chunk; see :class:`~earthsciio.formats.base.OpenFile`."""
        stored = self._stored[info.name]
        box: tuple[Any, ...] = info.chunk_box(chunk)
        if stored.string_length:
            box = (*box, slice(None))
        array = self._open_array(stored)
        try:
            raw = np.asarray(array[box])
        except EarthSciIOError as error:
            error.chunk = chunk
            raise
        except Exception as error:  # a codec may raise anything; nothing is swallowed
            raise DecodeError(
                f"can't be decoded: {type(error).__name__}: {error}",
                file=self.path, variable=info.name, chunk=chunk, hint="The store is damaged; fetch it again",
            ) from error  # fmt: skip
        if stored.string_length:
            return join_characters(raw, info.attrs, info.name)
        if info.dtype.kind == "O":
            return decode_strings(raw, info.attrs, info.name)
        if raw.dtype.kind in "Mm":
            raw = raw.view(np.dtype(np.int64).newbyteorder(raw.dtype.byteorder))
        return np.ascontiguousarray(raw, dtype=info.dtype).reshape(raw.shape)

    def _open_array(self, stored: StoredArray) -> zarr.Array[Any]:
        """Give the library's view of an array, made at its first use."""
        from .zarr_library import open_array

        info = stored.info
        with self._lock:
            array = self._opened.get(info.name)
            if array is None:

                def fetch(key: str, start: int, stop: int | None) -> bytes | None:
                    return self._fetch(stored, key, start, stop)

                try:
                    array = open_array(stored.metadata, info.key, fetch)
                except Exception as error:
                    raise Unsupported(
                        f"the zarr library can't read it: {error}", file=self.path, variable=info.name,
                        hint="It may need a codec that is not installed",
                    ) from error  # fmt: skip
                self._opened[info.name] = array
        return array

    def _fetch(self, stored: StoredArray, key: str, start: int, stop: int | None) -> bytes | None:
        """Get the bytes of a chunk object; None only where there is none and fill may stand for it."""
        about: dict[str, Any] = {"file": self.path, "variable": stored.info.name}
        try:
            data = self._objects.read(key, start, stop)
            if data is None:
                self._check_hole(stored, key)
            elif not data:  # which the library takes for absent in places
                raise DecodeError(f"the chunk object {key!r} is empty")
            elif (start, stop) == (0, None) and stored.outermost_codec == "blosc":
                _check_blosc(data, key)
        except EarthSciIOError as error:
            error.file, error.variable = self.path, stored.info.name
            raise
        except Exception as error:
            raise DecodeError(
                f"the chunk object {key!r} can't be read: {error}", **about,
                hint="Only a chunk that is not there is fill; this one is there, or can't be told",
            ) from error  # fmt: skip
        return data

    def _check_hole(self, stored: StoredArray, key: str) -> None:
        """Refuse an absent chunk that may not mean fill."""
        if stored.must_exist:
            raise DecodeError(
                f"the chunk object {key!r} is absent, and the array's fill_value is null",
                hint="The array was never written completely",
            )
        if not self._objects.exists(stored.document):
            raise DecodeError(
                f"the chunk object {key!r} is absent, and so is {stored.document!r} that describes it by now",
                hint="The store was removed or is being replaced",
            )
        if stored.other_separator and stored.info.name not in self._names_checked:
            self._check_names(stored)
            self._names_checked.add(stored.info.name)

    def _check_names(self, stored: StoredArray) -> None:
        """Refuse an array whose chunks are all named by the separator that its metadata do not give."""
        separator = stored.metadata.get("dimension_separator") or "."
        rank = len(stored.metadata["shape"])
        flat, nested = re.compile(rf"\d+(\.\d+){{{rank - 1}}}"), re.compile(r"\d+")
        expected, other = (flat, nested) if separator == "." else (nested, flat)
        found = ""
        for name in self._objects.names(stored.info.key):
            if expected.fullmatch(name):
                return
            if other.fullmatch(name):
                found = name
        if found:
            raise DecodeError(
                f"no chunk is named with the separator {separator!r}, but there is {found!r}",
                hint=f'Put the right "dimension_separator" into {stored.info.key}/.zarray',
            )


def _check_blosc(data: bytes, key: str) -> None:
    """Refuse a Blosc frame that was cut short: the decoder reads what lies behind it in memory."""
    # the last field of its 16-byte header is the length of the frame (c-blosc, README_CHUNK_FORMAT)
    length = int.from_bytes(data[12:16], "little")
    if len(data) < 16 or length > len(data):
        raise DecodeError(f"the chunk object {key!r} is cut short: {len(data)} bytes of {length}")
