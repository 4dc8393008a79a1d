"""Classic NetCDF files: CDF-1, CDF-2 (64-bit offset) and CDF-5.

The header says where every variable lies; elements are big-endian and uncompressed, so a read is one
``pread``. Layout and padding rules follow the "NetCDF Classic Format Specification" (Unidata, appendix B of
the NetCDF User's Guide). A file shorter than its header promises is refused when it is opened: the bytes
that are missing would otherwise come out as values.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from earthsciio.errors import DecodeError, FileFormatError
from earthsciio.fields import Array

from .base import ArrayInfo, virtual_chunks
from .descriptor import Descriptor
from .encoded import EncodedArray, PieceIndex
from .text import join_characters

__all__ = ["ClassicFile", "Placed"]

_DIMENSIONS, _VARIABLES, _ATTRIBUTES = 10, 11, 12
_STREAMING = 0xFFFFFFFF
_CHAR = 2
_TYPES = {
    1: np.dtype("i1"), 2: np.dtype("S1"), 3: np.dtype(">i2"), 4: np.dtype(">i4"), 5: np.dtype(">f4"),
    6: np.dtype(">f8"), 7: np.dtype("u1"), 8: np.dtype(">u2"), 9: np.dtype(">u4"), 10: np.dtype(">i8"),
    11: np.dtype(">u8"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a variable's elements lie.

    Attributes
    ----------
    begin : int
        Byte offset of the first element.
    record : int or None
        Bytes from one record to the next, for a record variable.
    shape : tuple of int
        Stored extent, records and string length included.
    """

    begin: int
    record: int | None
    shape: tuple[int, ...]


class ClassicFile:
    """An open classic file.

    Parameters
    ----------
    path : str
        The file.

    Raises
    ------
    FileFormatError
        If the header is damaged or the file is shorter than it says.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor = Descriptor(path)
        size = self._descriptor.size
        with Path(path).open("rb") as stream:
            header = _Header(path, stream.read(min(size, 1 << 16)), size)
            try:
                header.parse()
            except _Short:
                stream.seek(0)
                header = _Header(path, stream.read(), size)
                try:
                    header.parse()
                except _Short:
                    raise FileFormatError(
                        "truncated inside its header", file=path, hint="Fetch it again"
                    ) from None
        self.placed = header.placed
        self._arrays = header.arrays

    @property
    def arrays(self) -> Mapping[str, ArrayInfo]:
        """Every variable, in file order."""
        return self._arrays

    @property
    def own(self) -> frozenset[str]:
        """All of them: a classic file has no groups."""
        return frozenset(self._arrays)

    def read_chunk(self, info: ArrayInfo, chunk: tuple[int, ...]) -> Array:
        """Read the elements of one piece; see :class:`~earthsciio.formats.base.OpenFile`."""
        placed = self.placed[info.name]
        box = [part.indices(size) for part, size in zip(info.chunk_box(chunk), info.shape, strict=True)]
        is_text = info.dtype.kind == "O"
        stored = np.dtype("S1") if is_text else info.dtype
        shape = tuple(stop - start for start, stop, _ in box) + (placed.shape[len(box) :])
        raw: Array = np.empty(shape, dtype=stored)
        if raw.size:
            self._pread(raw, self._offset(placed, [start for start, _, _ in box], stored), info)
        if not is_text:
            return raw
        # characters without a string-length dimension are strings of one
        return join_characters(raw if len(placed.shape) > len(box) else raw[..., None], info.attrs, info.name)

    def _offset(self, placed: Placed, first: list[int], dtype: np.dtype[Any]) -> int:
        first = first + [0] * (len(placed.shape) - len(first))
        offset, inner = placed.begin, dtype.itemsize
        for axis in reversed(range(len(placed.shape))):
            if axis == 0 and placed.record is not None:
                return offset + first[0] * placed.record
            offset += first[axis] * inner
            inner *= placed.shape[axis]
        return offset

    def _pread(self, into: Array, offset: int, info: ArrayInfo) -> None:
        target = into.reshape(-1).view(np.uint8)
        with self._descriptor.use() as descriptor:
            done = 0
            while done < len(target):
                count = os.preadv(descriptor, [target[done:].data], offset + done)
                if count == 0:
                    raise DecodeError(
                        "the file ends inside the variable; it changed after it was opened",
                        file=self.path,
                        variable=info.name,
                        byte_range=(offset, offset + len(target)),
                        hint="Fetch it again",
                    )
                done += count

    def descriptor(self) -> AbstractContextManager[int]:
        """Lend a descriptor; see :class:`~earthsciio.formats.encoded.EncodedFile`."""
        return self._descriptor.use()

    def encoded(self, info: ArrayInfo) -> EncodedArray | str:
        """Say where an array's bytes lie; see :class:`~earthsciio.formats.encoded.EncodedFile`."""
        if info.dtype.kind == "O":
            return "text"
        placed = self.placed[info.name]
        strides = [info.dtype.itemsize]
        for size in reversed(placed.shape[1:]):
            strides.append(strides[-1] * size)
        strides = strides[len(placed.shape) - 1 :: -1] if placed.shape else []
        if placed.record is not None:
            strides[0] = placed.record
        index = PieceIndex(placed.begin, tuple(strides), info.shape, info.chunks, info.dtype.itemsize)
        # a classic file has all its elements: nothing in it is ever unwritten
        return EncodedArray(
            info.dtype, info.shape, info.chunks, (), bytes(info.dtype.itemsize), index, pieces=True
        )

    def close(self) -> None:
        """Close the descriptor; the next read opens it again."""
        self._descriptor.close()


class _Short(Exception):
    """The header goes on past the bytes read so far."""


@dataclass(frozen=True, slots=True)
class _Variable:
    name: str
    dimids: tuple[int, ...]
    attrs: dict[str, Any]
    kind: int
    begin: int


class _Header:
    """A cursor over the header's bytes."""

    def __init__(self, path: str, data: bytes, file_size: int) -> None:
        self.path = path
        self.data = data
        self.file_size = file_size
        self.position = 4
        version = data[3]
        self.count_width = 8 if version == 5 else 4
        self.offset_width = 4 if version == 1 else 8
        self.arrays: dict[str, ArrayInfo] = {}
        self.placed: dict[str, Placed] = {}

    def parse(self) -> None:
        records = self._integer(self.count_width)
        dims = self._dimensions()
        self._attributes()
        variables = self._variables(len(dims))
        self._place(records, dims, variables)

    def _bad(self, what: str) -> FileFormatError:
        return FileFormatError(f"damaged classic header: {what}", file=self.path, byte=self.position)

    def _bytes(self, count: int) -> bytes:
        if count > self.file_size:
            raise FileFormatError("truncated or damaged: its header runs past its end", file=self.path)
        if self.position + count > len(self.data):
            raise _Short
        taken = self.data[self.position : self.position + count]
        self.position += count
        return taken

    def _integer(self, width: int) -> int:
        return int.from_bytes(self._bytes(width), "big")

    def _count(self) -> int:
        return self._integer(self.count_width)

    def _padded(self, count: int) -> bytes:
        return self._bytes(count + (-count) % 4)[:count]

    def _name(self) -> str:
        try:
            return self._padded(self._count()).decode("utf-8")
        except UnicodeDecodeError:
            raise self._bad("a name is not UTF-8") from None

    def _list(self, tag: int) -> int:
        found, count = self._integer(4), self._count()
        if found not in (0, tag) or (found == 0 and count):
            raise self._bad(f"tag {found} where {tag} was expected")
        return count

    def _dimensions(self) -> list[tuple[str, int]]:
        return [(self._name(), self._count()) for _ in range(self._list(_DIMENSIONS))]

    def _type(self) -> int:
        kind = self._integer(4)
        if kind not in _TYPES:
            raise self._bad(f"unknown type {kind}")
        return kind

    def _attributes(self) -> dict[str, Any]:
        attrs: dict[str, Any] = {}
        for _ in range(self._list(_ATTRIBUTES)):
            name, kind, count = self._name(), self._type(), self._count()
            raw = self._padded(count * _TYPES[kind].itemsize)
            if kind == _CHAR:
                attrs[name] = raw.decode("utf-8", "replace").rstrip("\0")
            else:
                values = np.frombuffer(raw, dtype=_TYPES[kind]).astype(_TYPES[kind].newbyteorder("="))
                attrs[name] = values[0] if count == 1 else values
        return attrs

    def _variables(self, dims: int) -> list[_Variable]:
        variables = []
        for _ in range(self._list(_VARIABLES)):
            name = self._name()
            dimids = tuple(self._count() for _ in range(self._count()))
            if any(dimid >= dims for dimid in dimids):
                raise self._bad(f"variable {name!r} names a dimension there is not")
            attrs, kind = self._attributes(), self._type()
            self._count()  # vsize: redundant, and wrong above 4 GiB
            variables.append(_Variable(name, dimids, attrs, kind, self._integer(self.offset_width)))
        return variables

    def _place(self, records: int, dims: list[tuple[str, int]], variables: list[_Variable]) -> None:
        """Lay the variables out; the first dimension of a record variable is the one of length 0."""

        def is_record(variable: _Variable) -> bool:
            return bool(variable.dimids) and dims[variable.dimids[0]][1] == 0

        def slab(variable: _Variable) -> int:
            lengths = [dims[dimid][1] for dimid in variable.dimids[is_record(variable) :]]
            return math.prod(lengths) * _TYPES[variable.kind].itemsize

        recorded = [variable for variable in variables if is_record(variable)]
        # a lone record variable is not padded to four bytes between records
        padding = 1 if len(recorded) == 1 else 4
        stride = sum(slab(variable) + (-slab(variable)) % padding for variable in recorded)
        if records == _STREAMING and self.count_width == 4:
            first = min((variable.begin for variable in recorded), default=0)
            records = (self.file_size - first) // stride if stride else 0
        for variable in variables:
            record = stride if is_record(variable) else None
            shape = tuple(dims[dimid][1] for dimid in variable.dimids)
            if record is not None:
                shape = (records, *shape[1:])
            end = variable.begin + (
                slab(variable) if record is None else (records - 1) * stride + slab(variable)
            )
            if (record is None or records) and end > self.file_size:
                raise FileFormatError(
                    f"truncated: variable {variable.name!r} ends at byte {end}, the file at {self.file_size}",
                    file=self.path, variable=variable.name, hint="Fetch it again",
                )  # fmt: skip
            self.placed[variable.name] = Placed(variable.begin, record, shape)
            self.arrays[variable.name] = _info(
                variable, [dims[dimid][0] for dimid in variable.dimids], shape, record
            )


def _info(variable: _Variable, names: list[str], shape: tuple[int, ...], record: int | None) -> ArrayInfo:
    dtype = _TYPES[variable.kind]
    dims = tuple(names)
    if variable.kind == _CHAR:
        dtype = np.dtype(object)
        if len(dims) > (record is not None):  # the record dimension is never the string length
            dims, shape = dims[:-1], shape[:-1]
    leading = 0 if record is None else 1
    chunks = (1,) * leading + virtual_chunks(shape[leading:], max(dtype.itemsize, 1))
    return ArrayInfo(variable.name, dims, shape, dtype, variable.attrs, chunks, key=variable.name)
