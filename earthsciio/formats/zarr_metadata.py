"""What a Zarr store says of itself: groups, arrays, dimensions, types, fill. JSON in, ArrayInfo out.

Versions 2 and 3 of the format keep the same facts in different documents; here they meet. Consolidated
metadata, where a store has it, is believed as other readers believe it. Nothing of this needs the zarr
library, so that a store with a codec or type that nobody has here can still be looked at.
"""

from __future__ import annotations

import base64
import json
import reprlib
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from earthsciio.errors import FileFormatError, SelectionError

from .base import ArrayInfo
from .zarr_objects import Objects, names_under

__all__ = ["Hierarchy", "StoredArray", "read_group"]

_V3_TYPES = {
    **{name: name for name in ("bool", "float16", "float32", "float64", "complex64", "complex128")},
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "string": "O",
}
#: Attributes that carry the conventions of a writer, not facts about the data.
_BOOKKEEPING = frozenset({"_ARRAY_DIMENSIONS", "_nczarr_array", "_nczarr_attr", "_NCZARR_ATTR"})
#: What the zarr library is told of a version 2 array; writers add keys of their own.
_V2_KEYS = (
    "zarr_format", "shape", "chunks", "dtype", "compressor", "filters", "fill_value", "order",
    "dimension_separator",
)  # fmt: skip
_TIME_UNITS = {
    "W": "weeks", "D": "days", "h": "hours", "m": "minutes", "s": "seconds", "ms": "milliseconds",
    "us": "microseconds", "ns": "nanoseconds",
}  # fmt: skip
_DAMAGED = "The store may be half written or damaged"
_NOT_A_TIME = np.iinfo(np.int64).min
_WORDS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


@dataclass(frozen=True, slots=True)
class StoredArray:
    """An array of a store.

    Attributes
    ----------
    info : ArrayInfo
        What the rest of the library sees.
    metadata : mapping
        The array's metadata document, for the zarr library.
    document : str
        Key of the object that describes it.
    string_length : bool
        Whether the array has one more axis on disk, along which characters are joined.
    must_exist : bool
        Whether an absent chunk is an error, since nothing says what it would hold.
    """

    info: ArrayInfo
    metadata: Mapping[str, Any] = field(repr=False)
    document: str
    string_length: bool
    must_exist: bool

    @property
    def other_separator(self) -> bool:
        """Whether version 2's habit of not saying how chunks are named could hide them."""
        return self.metadata["zarr_format"] == 2 and len(self.metadata["shape"]) > 1

    @property
    def outermost_codec(self) -> str:
        """Name of the codec that gave chunk objects their last form; ``""`` if none did."""
        if self.metadata["zarr_format"] == 3:
            return str(self.metadata["codecs"][-1].get("name", ""))
        codecs = [*(self.metadata.get("filters") or ()), self.metadata.get("compressor") or {}]
        return str(codecs[-1].get("id", ""))


class Hierarchy:
    """The metadata documents of a store.

    Parameters
    ----------
    objects : Objects
        The store's objects.
    file : str
        Its name, for messages.
    consolidated : bool or None
        Whether consolidated metadata are used; None if there are any.

    Raises
    ------
    FileFormatError
        If it is no Zarr group, or has no consolidated metadata where they are demanded.
    """

    def __init__(self, objects: Objects, file: str, consolidated: bool | None = None) -> None:
        self._objects = objects
        self.file = file
        self._known: dict[str, Any] | None = None
        self._consolidated_in = ""
        root = self._load("zarr.json")
        self.format = 2 if root is None else 3
        if consolidated is not False:
            if root is not None:
                self._known = self._inline(root)
                self._consolidated_in = "zarr.json"
            elif (summary := self._load(".zmetadata")) is not None:
                self._known = self._mapping(summary.get("metadata"), '"metadata" of .zmetadata')
                self._consolidated_in = ".zmetadata"
        if consolidated and self._known is None:
            raise FileFormatError("the store has no consolidated metadata", file=file)
        self._check_root()

    def _inline(self, root: dict[str, Any]) -> dict[str, Any] | None:
        """Give version 3's consolidated documents by key; None if there are none."""
        if root.get("consolidated_metadata") is None:
            return None
        holder = self._mapping(root["consolidated_metadata"], '"consolidated_metadata" of zarr.json')
        inline = self._mapping(holder.get("metadata"), '"consolidated_metadata/metadata" of zarr.json')
        return {**{f"{path}/zarr.json": node for path, node in inline.items()}, "zarr.json": root}

    def _mapping(self, value: Any, what: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise FileFormatError(
                f"{what} is {reprlib.repr(value)}, not a JSON object", file=self.file, hint=_DAMAGED
            )
        return value

    def _check_root(self) -> None:
        node = self.node("")
        if node is None:
            raise FileFormatError(
                "not a Zarr store: there is no zarr.json, .zgroup or .zmetadata", file=self.file,
                hint="Give the path of the store's root or of a group in it",
            )  # fmt: skip
        if node["node_type"] != "group":
            raise FileFormatError(
                "this is a Zarr array, not a group", file=self.file, hint="Give the path of its group"
            )

    def _load(self, key: str) -> dict[str, Any] | None:
        data = self._objects.read(key)
        if data is None:
            return None
        try:
            document = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise FileFormatError(f"{key} is not JSON: {error}", file=self.file, hint=_DAMAGED) from error
        return self._mapping(document, key)

    def _document(self, key: str) -> dict[str, Any] | None:
        if self._known is None:
            return self._load(key)
        return (
            self._mapping(self._known[key], f"{key!r} of {self._consolidated_in}")
            if key in self._known
            else None
        )

    def node(self, path: str) -> dict[str, Any] | None:
        """Give the metadata of a group or array in the shape of version 3; None if there is none.

        Raises
        ------
        FileFormatError
            If they don't say which of the two it is, in a version of the format that is known.
        """
        head = f"{path}/" if path else ""
        if self.format == 3:
            node = self._document(f"{head}zarr.json")
        else:
            node_type, document = "array", self._document(f"{head}.zarray")
            if document is None:
                node_type, document = "group", self._document(f"{head}.zgroup")
            attributes = self._document(f"{head}.zattrs")
            if document is None and attributes is None:
                return {"node_type": "group"} if self._known is not None and not path else None
            node = {"zarr_format": 2, **(document or {})} if node_type == "group" else {**(document or {})}
            node |= {"node_type": node_type, "attributes": attributes}
        if node is not None and (
            node.get("node_type") not in ("group", "array") or node.get("zarr_format") != self.format
        ):
            raise FileFormatError(
                f"{self.document_of(path)} describes {path or '/'!r} as no group or array of format "
                f"{self.format}: node_type {reprlib.repr(node.get('node_type'))}, "
                f"zarr_format {reprlib.repr(node.get('zarr_format'))}",
                file=self.file, hint=_DAMAGED,
            )  # fmt: skip
        return node

    def document_of(self, path: str) -> str:
        """Give the key of the object that describes an array."""
        if self._known is not None:
            return self._consolidated_in
        return f"{path}/{'zarr.json' if self.format == 3 else '.zarray'}".removeprefix("/")

    def children(self, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the nodes of a group, by name: a store keeps no order."""
        names = self._objects.names(path) if self._known is None else names_under(self._known, path)
        for name in sorted(names):
            if name.startswith((".", "__")) or name == "zarr.json":
                continue
            try:
                node = self.node(f"{path}/{name}" if path else name)
            except NotADirectoryError:
                continue  # a stray file
            if node is not None:
                yield name, node


def read_group(
    hierarchy: Hierarchy, group: str, fill_value_masks: bool | None
) -> tuple[list[StoredArray], int]:
    """Read the arrays of a group, and those of its parents that it sees.

    Parameters
    ----------
    hierarchy : Hierarchy
        The store.
    group : str
        Path without leading or trailing ``/``; ``""`` for the root.
    fill_value_masks : bool or None
        Whether a version 2 fill value masks; None for the rule of spec/values.md.

    Returns
    -------
    arrays : list of StoredArray
        The group's own by name, then its parents'.
    own : int
        How many are the group's own.

    Raises
    ------
    SelectionError
        If there is no such group.
    FileFormatError
        If the metadata of an array contradict themselves.
    """
    node = hierarchy.node(group)
    if node is None or node["node_type"] != "group":
        groups = [name for name, child in hierarchy.children("") if child["node_type"] == "group"]
        raise SelectionError(f"there is no group {group!r}", file=hierarchy.file, hint=f"There are {groups}")
    phony: dict[int, str] = {}
    lengths: dict[str, int] = {}  # of the dimensions seen so far, the innermost group's first
    arrays: dict[str, StoredArray] = {}
    own = 0
    parts = group.split("/") if group else []
    for depth in range(len(parts), -1, -1):
        level = "/".join(parts[:depth])
        drafts = [
            _Draft(hierarchy, f"{level}/{name}" if level else name, child, fill_value_masks)
            for name, child in hierarchy.children(level)
            if child["node_type"] == "array"
        ]
        shared = {dim for draft in drafts if not draft.characters for dim in draft.dims if dim is not None}
        for draft in drafts:
            stored = draft.finish(phony, shared)
            info = stored.info
            sizes = dict(zip(info.dims, info.shape, strict=True))
            inner = depth < len(parts)
            if info.name in arrays or (inner and any(lengths.get(d, n) != n for d, n in sizes.items())):
                continue  # shadowed, or over a dimension of the same name that is another one
            arrays[info.name] = stored
            own += not inner
        for stored in arrays.values():
            for dim, length in zip(stored.info.dims, stored.info.shape, strict=True):
                lengths.setdefault(dim, length)
    return list(arrays.values()), own


class _Draft:
    """One array on its way from JSON to :class:`StoredArray`."""

    def __init__(
        self, hierarchy: Hierarchy, path: str, node: dict[str, Any], fill_value_masks: bool | None
    ) -> None:
        self.file = hierarchy.file
        self.path = path
        self.node = node
        self.document = self.where = hierarchy.document_of(path)
        if self.document.endswith("/.zarray"):
            self.where = f"{self.document} or {path}/.zattrs"
        self.unsupported: str | None = None
        with self._damage():
            self._read(fill_value_masks)

    @contextmanager
    def _damage(self) -> Iterator[None]:
        """Say of whatever goes wrong with JSON that is not as it should be whose it is."""
        try:
            yield
        except Exception as error:
            lacking = f"{error} is not there" if isinstance(error, KeyError) else error
            raise FileFormatError(
                f"damaged metadata of {self.path!r} in {self.where}: {lacking}",
                file=self.file, variable=self.path, hint=_DAMAGED,
            ) from error  # fmt: skip

    def _read(self, fill_value_masks: bool | None) -> None:
        node = self.node
        is_v3 = node["zarr_format"] == 3
        self.attrs: dict[str, Any] = {} if node.get("attributes") is None else node["attributes"]
        if not isinstance(self.attrs, dict):
            raise TypeError(f"attributes are {reprlib.repr(self.attrs)}, not a JSON object")
        self.shape = _extents(node["shape"], "shape")
        self.chunks = self._chunks_v3() if is_v3 else _extents(node["chunks"], "chunks")
        if len(self.chunks) != len(self.shape):
            raise ValueError(f"{len(self.chunks)} chunk extents for {len(self.shape)} dimensions")
        if any(chunk == 0 < size for chunk, size in zip(self.chunks, self.shape, strict=True)):
            raise ValueError(f"chunks {self.chunks} have no extent")
        self.dims = self._dimensions()
        dtype = _type_v3(node["data_type"]) if is_v3 else _type_v2(node)
        if isinstance(dtype, str):
            self.unsupported, dtype = dtype, np.dtype("V1")
        self.dtype = dtype
        self.characters = self.dtype == np.dtype("S1")
        self.masks = None if is_v3 else self._mask(node.get("fill_value"), fill_value_masks)
        self.must_exist = not is_v3 and node.get("fill_value") is None

    def _chunks_v3(self) -> tuple[int, ...]:
        """Give the extent of what can be decoded alone: of a sharded array the inner chunk."""
        grid = self.node["chunk_grid"]
        if grid["name"] != "regular":
            self.unsupported = f"has a chunk grid of the kind {grid['name']!r}"
            return self.shape
        codecs = self.node["codecs"]
        if not isinstance(codecs, list) or not codecs:
            raise TypeError(f"codecs are {reprlib.repr(codecs)}, not a list of some")
        # beside other codecs the bytes of a shard can't be read in parts, nor its axes told apart
        sharded = len(codecs) == 1 and codecs[0]["name"] == "sharding_indexed"
        configuration = codecs[0]["configuration"] if sharded else grid["configuration"]
        return _extents(configuration["chunk_shape"], "chunk_shape")

    def _dimensions(self) -> tuple[str | None, ...]:
        """Give the names of the axes; None for one without."""
        names = self.node.get("dimension_names") or self.attrs.get("_ARRAY_DIMENSIONS")
        if names is None:
            for holder in (self.attrs.get("_nczarr_array"), self.node.get("_NCZARR_ARRAY")):
                paths = isinstance(holder, dict) and (
                    holder.get("dimension_references") or holder.get("dimrefs")
                )
                if paths:
                    names = [str(path).rpartition("/")[2] for path in paths]
        if names is None:
            return (None,) * len(self.shape)
        if not isinstance(names, list) or not all(name is None or isinstance(name, str) for name in names):
            raise TypeError(f"dimension names are {reprlib.repr(names)}, not a list of text")
        if len(names) != len(self.shape):
            raise ValueError(f"{len(self.shape)} dimensions, but names {reprlib.repr(names)}")
        return tuple(names)

    def _mask(self, fill: Any, masks: bool | None) -> Any:
        """Give the version 2 fill value where it stands for ``_FillValue``, else None."""
        value = _WORDS.get(fill, fill) if isinstance(fill, str) else fill
        if masks is False or isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        if masks is None and (value == 0 or "_FillValue" in self.attrs):
            return None
        return value

    def finish(self, phony: dict[int, str], shared: set[str]) -> StoredArray:
        """Settle what other arrays have a say in; see :meth:`_finish`."""
        with self._damage():
            return self._finish(phony, shared)

    def _finish(self, phony: dict[int, str], shared: set[str]) -> StoredArray:
        """Settle what other arrays have a say in: names of nameless axes, and which axis is string length.

        Parameters
        ----------
        phony : dict of int to str
            Names given so far, by length; one name per length, as netCDF does.
        shared : set of str
            Dimensions of arrays that don't hold characters.
        """
        dims, shape, chunks = list(self.dims), self.shape, tuple(max(size, 1) for size in self.chunks)
        string_length = self.characters and bool(dims) and dims[-1] not in shared
        if string_length:
            dims, shape, chunks = dims[:-1], shape[:-1], chunks[:-1]
        names = tuple(
            phony.setdefault(size, f"phony_dim_{len(phony)}") if dim is None else dim
            for dim, size in zip(dims, shape, strict=True)
        )
        dtype, attrs = self.dtype, _attributes(self.attrs, self.dtype)
        if self.masks is not None:
            attrs["_FillValue"] = np.asarray([*np.ravel(attrs.get("_FillValue", [])), self.masks])
        if dtype.kind in "Mm":
            attrs = {**_time_attributes(dtype), **attrs}
            dtype = np.dtype(np.int64).newbyteorder(dtype.byteorder)
        elif dtype.kind in "SU":
            dtype = np.dtype(object)
        name = self.path.rpartition("/")[2]
        info = ArrayInfo(name, names, shape, dtype, attrs, chunks, self.unsupported, key=self.path)
        metadata = self.node
        if self.node["zarr_format"] == 2:
            metadata = {key: self.node[key] for key in _V2_KEYS if key in self.node}
        return StoredArray(info, metadata, self.document, string_length, self.must_exist)


def _extents(values: Any, what: str) -> tuple[int, ...]:
    """Check the extents of an array or chunk: whole numbers, none negative."""
    if not isinstance(values, list) or any(type(value) is not int or value < 0 for value in values):
        raise ValueError(f"{what} is {reprlib.repr(values)}, not a list of extents")
    return tuple(values)


def _type_v2(node: Mapping[str, Any]) -> np.dtype[Any] | str:
    """Give the element type of a version 2 array, or why it can't be delivered."""
    if isinstance(node["dtype"], list):
        return "holds a compound type"
    if not isinstance(node["dtype"], str):
        raise TypeError(f"dtype is {reprlib.repr(node['dtype'])}, not text")
    dtype = np.dtype(node["dtype"])
    if dtype.kind == "O":
        filters = [codec.get("id") for codec in node.get("filters") or ()]
        return dtype if filters[:1] == ["vlen-utf8"] else f"holds Python objects (filters {filters})"
    return _deliverable(dtype)


def _type_v3(name: Any) -> np.dtype[Any] | str:
    """Give the element type of a version 3 array, or why it can't be delivered."""
    configuration = {}
    if isinstance(name, dict):
        name, configuration = name["name"], name.get("configuration", {})
    if name in _V3_TYPES:
        return np.dtype(_V3_TYPES[name])
    match name:
        case "fixed_length_utf32":
            return np.dtype(f"U{configuration['length_bytes'] // 4}")
        case "null_terminated_bytes":
            return np.dtype(f"S{configuration['length_bytes']}")
        case "numpy.datetime64" | "numpy.timedelta64":
            code = "M8" if name == "numpy.datetime64" else "m8"
            return _deliverable(
                np.dtype(f"{code}[{configuration.get('scale_factor', 1)}{configuration['unit']}]")
                if configuration["unit"] != "generic"
                else np.dtype(code)
            )
    return f"holds the type {name!r}"


def _deliverable(dtype: np.dtype[Any]) -> np.dtype[Any] | str:
    if dtype.kind in "Mm":
        unit, count = np.datetime_data(dtype)
        if unit not in _TIME_UNITS or count != 1:
            return f"holds times in units of {count} {unit!r}"
    elif dtype.kind == "V":
        return "holds an opaque type"
    elif dtype.kind == "f" and dtype.itemsize > 8:
        return f"holds {dtype}, which has another layout on other machines"
    return dtype


def _time_attributes(dtype: np.dtype[Any]) -> dict[str, Any]:
    """Say in CF's terms what NumPy's times mean: whole units since 1970, in a calendar without a gap."""
    units = _TIME_UNITS[np.datetime_data(dtype)[0]]
    attrs = {"_FillValue": np.int64(_NOT_A_TIME)}
    if dtype.kind == "m":
        return {**attrs, "units": units}
    return {**attrs, "units": f"{units} since 1970-01-01", "calendar": "proleptic_gregorian"}


def _attributes(stored: Mapping[str, Any], dtype: np.dtype[Any]) -> dict[str, Any]:
    """Give attributes as text, lists of text, NumPy scalars or 1-D arrays, as other formats have them."""
    attrs = {}
    for name, value in stored.items():
        if name in _BOOKKEEPING or value is None:
            continue
        encoded = name == "_FillValue" and isinstance(value, str) and dtype.kind == "f"
        attrs[name] = _decode_fill(value) if encoded else _plain(value)
    return attrs


def _plain(value: Any) -> Any:
    if isinstance(value, list) and value:
        if all(isinstance(item, str) for item in value):
            return value[0] if len(value) == 1 else list(value)
        if all(isinstance(item, (int, float)) for item in value):
            return np.asarray(value) if len(value) > 1 else np.asarray(value)[0]
    if isinstance(value, (int, float)):
        return np.asarray(value)[()]
    return value


def _decode_fill(text: str) -> Any:
    """Decode a float fill value that JSON could not hold: a word, or base64 of a little-endian double."""
    if text in _WORDS:
        return _WORDS[text]
    try:
        (value,) = struct.unpack("<d", base64.b64decode(text, validate=True))
    except (ValueError, struct.error):
        return text  # rule 2 warns of text and ignores it
    return value
