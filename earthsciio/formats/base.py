"""The seam between a file format and everything else: an open file is a set of chunked arrays.

A *reader* is a format with its options; it opens a path and gives an :class:`OpenFile`, whose
:class:`ArrayInfo` entries say all there is to know of each array without reading one element. The rest of
the library never asks what format a file has. A third party adds a format by writing these two classes and
registering the reader; ``earthsciio.testing`` runs the conformance suite on it.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np

from earthsciio.errors import DeclarationError, FileFormatError
from earthsciio.fields import Array
from earthsciio.selection import parse_selection

__all__ = ["ArrayInfo", "OpenFile", "Reader", "file_identity", "virtual_chunks"]

#: Reads of arrays that are not stored in chunks are cut into pieces of about this many bytes.
_PIECE = 1 << 20


#: Types of options that a plain value can get wrong, by annotation.
_PLAIN_TYPES: dict[str, tuple[type, ...]] = {
    "bool": (bool,), "bool | None": (bool, type(None)), "str": (str,), "str | None": (str, type(None)),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """One stored array, without its elements.

    Attributes
    ----------
    name : str
        On-disk variable name; the key it is delivered under.
    dims : tuple of str
        Dimension names in file order. Text variables have lost their string-length dimension.
    shape : tuple of int
        Logical extent: the lengths of `dims`, which the stored data may fall short of.
    dtype : numpy.dtype
        Stored element type, byte order included; object for text.
    attrs : mapping
        Attributes as stored, less the format's own bookkeeping.
    chunks : tuple of int
        Extent of one chunk; for an unchunked layout the pieces it is read in.
    unsupported : str or None
        Why the elements can't be delivered (compound, opaque, ...); asking for them raises ``Unsupported``.
    key : str
        The format's own handle on the array (a path inside the file).
    damaged : bool
        Whether it is its metadata that can't be read: dimensions, type and attributes are then unknown, and
        `unsupported` says why; asking for the elements raises ``FileFormatError``.
    """

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    attrs: Mapping[str, Any] = field(repr=False)
    chunks: tuple[int, ...]
    unsupported: str | None = None
    key: str = ""
    damaged: bool = False

    @classmethod
    def unreadable(cls, name: str, key: str, reason: str) -> ArrayInfo:
        """Give what stands for an array whose metadata are damaged."""
        return cls(name, (), (), np.dtype("V1"), {}, (), reason, key, damaged=True)

    def check_readable(self, file: str) -> None:
        """Raise FileFormatError if its metadata are damaged."""
        if self.damaged:
            raise FileFormatError(
                f"{self.unsupported}",
                file=file, variable=self.name,
                hint="Fetch the file again, or list the variables you want in the source's `variables`",
            )  # fmt: skip

    def __post_init__(self) -> None:
        if not len(self.dims) == len(self.shape) == len(self.chunks):
            raise ValueError(
                f"{self.name}: dims {self.dims}, shape {self.shape} and chunks {self.chunks} differ in rank"
            )
        if any(size < 0 for size in self.shape):
            raise ValueError(f"{self.name}: shape {self.shape} is negative")
        if math.prod(self.shape) * max(self.dtype.itemsize, 8) >= 1 << 63:  # as many bytes have no address
            raise ValueError(f"{self.name}: shape {self.shape} is larger than any memory")
        if any(chunk < 1 for chunk in self.chunks):
            raise ValueError(f"{self.name}: chunks {self.chunks} must be positive")

    def chunk_box(self, chunk: tuple[int, ...]) -> tuple[slice, ...]:
        """Give the part of the array a chunk covers, clipped at the array's edge."""
        return tuple(
            slice(index * length, min((index + 1) * length, size))
            for index, length, size in zip(chunk, self.chunks, self.shape, strict=True)
        )


class OpenFile(Protocol):
    """An open file.

    Every method may be called from any thread, from several at once. What the file describes stays known
    after `close`, which only gives up what the operating system counts; the next read opens it again.
    """

    @property
    def arrays(self) -> Mapping[str, ArrayInfo]:
        """Every array that can be asked for by name, in file order."""
        ...

    @property
    def own(self) -> frozenset[str]:
        """Names of the arrays in the group that was asked for; the others are its parents'."""
        ...

    def read_chunk(self, info: ArrayInfo, chunk: tuple[int, ...]) -> Array:
        """Read the stored elements of one chunk.

        Parameters
        ----------
        info : ArrayInfo
            One of `arrays`.
        chunk : tuple of int
            Chunk index, inside the grid.

        Returns
        -------
        numpy.ndarray
            Shape of ``info.chunk_box(chunk)``, dtype ``info.dtype``. Elements never written are the
            array's storage fill.

        Raises
        ------
        DecodeError
            If the stored bytes can't be read or don't verify. Never fill, never zeros.
        """
        ...

    def close(self) -> None:
        """Give up descriptors and handles, once no read is using them."""
        ...


@dataclass(frozen=True, kw_only=True)
class Reader:
    """A format with its options: base of all readers, immutable, shared by threads.

    A subclass is a frozen dataclass whose fields are its options, on top of those every format has.

    Parameters
    ----------
    precision : {"float64", "source"}
        Width of floats that come out; "source" keeps single precision where the stored numbers have no more.
    mask_valid_range : bool
        Whether ``valid_range``, ``valid_min`` and ``valid_max`` mask.
    sort_time : bool
        Sort a time axis that is out of order, instead of refusing it.
    whole_months : bool
        Take "months since" and "years since" as calendar steps where months differ in length.
    select : Window or wire dict, optional
        A selection baked into the source.
    on_bad_chunk : {"raise", "nan"}
        What a chunk that can't be read or does not verify leads to: an error, or NaN in its cells alone.
        Integers and text have no NaN, and raise.
    verify : {"full", "prefix"}
        Check every checksum, or stop inflating a chunk behind the last element wanted, which skips its own.
    """

    precision: str = "float64"
    mask_valid_range: bool = False
    sort_time: bool = False
    whole_months: bool = False
    select: Any = None
    on_bad_chunk: str = "raise"
    verify: str = "full"

    #: Whether Windows are read without reading the rest.
    supports_selection: ClassVar[bool] = True
    #: Whether a source is a store of many objects rather than one file.
    store_backed: ClassVar[bool] = False
    #: Whether floats without a fill attribute take the NetCDF default fill as missing.
    default_fill: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for each in dataclasses.fields(self):
            kinds, value = _PLAIN_TYPES.get(str(each.type)), getattr(self, each.name)
            if kinds is not None and not isinstance(value, kinds):  # text that says "no" is true
                wanted = "true or false" if bool in kinds else "text"
                raise DeclarationError(f"{each.name} is {wanted}, not {value!r}")
        if self.precision not in ("float64", "source"):
            raise DeclarationError(f"precision is 'float64' or 'source', not {self.precision!r}")
        if self.on_bad_chunk not in ("raise", "nan"):
            raise DeclarationError(f"on_bad_chunk is 'raise' or 'nan', not {self.on_bad_chunk!r}")
        if self.verify not in ("full", "prefix"):
            raise DeclarationError(f"verify is 'full' or 'prefix', not {self.verify!r}")
        if self.select is not None:
            object.__setattr__(self, "select", parse_selection(self.select))  # hashable, as readers are

    def identity(self, path: str) -> tuple[Any, ...]:
        """Give what tells this version of a file or store from another.

        Called before every use of the file, so it has to be cheap: no element and no chunk is looked at.

        Returns
        -------
        tuple
            `path` first; hashable, and picklable.

        Raises
        ------
        OSError
            If there is no such file.
        """
        return file_identity(path)

    def fetchable(self, url: str) -> bool:  # noqa: ARG002 - formats of one file need not look
        """Whether the cache can hold what is at a URL: one file, not a store of many objects."""
        return True

    def open(self, path: str) -> OpenFile:
        """Open a file or store for reading.

        Raises
        ------
        FileFormatError
            If it is not of this format, empty or truncated; the text names the file.
        """
        raise NotImplementedError(f"{type(self).__name__} does not open {path}")


def file_identity(path: str) -> tuple[Any, ...]:
    """Give what tells this version of a plain file from another: (path, inode, size, mtime in ns)."""
    status = os.stat(path)  # noqa: PTH116 - as good as Path.stat, and called before every use
    return (path, status.st_ino, status.st_size, status.st_mtime_ns)


def virtual_chunks(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Cut an unchunked array into pieces of whole trailing dimensions, each of about a megabyte.

    Parameters
    ----------
    shape : tuple of int
        Extent of the array.
    itemsize : int
        Bytes per element.

    Returns
    -------
    tuple of int
        Extent of one piece; 1 along leading dimensions, positive everywhere.
    """
    chunks: list[int] = []
    room = max(_PIECE // max(itemsize, 1), 1)
    for size in reversed(shape):
        length = max(1, min(size, room))
        chunks.append(length)
        room = room // length if length == size else 1
    return tuple(reversed(chunks))
