"""NetCDF-4 and plain HDF5 files through h5py: exact, complete, and serial.

h5py holds one lock around everything it does, so this is the reference and the fallback, not the fast path.
The NetCDF-4 conventions on top of HDF5 are read here once per file: dimension scales, dimensions without a
variable, unlimited dimensions that some variables are shorter than, enums, strings, groups that see their
parents' dimensions. netCDF-C is never called: it is not thread-safe, and a model beside us may use it.
"""

from __future__ import annotations

import itertools
import os
import posixpath
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from earthsciio.errors import DecodeError, EarthSciIOError, FileFormatError, SelectionError, Unsupported
from earthsciio.fields import Array
from earthsciio.forks import in_child, new_rlock

from .base import ArrayInfo, virtual_chunks
from .descriptor import Descriptor
from .encoded import EncodedArray, TableIndex
from .hdf5_chunks import describe, filled
from .hdf5_sources import check_sources
from .text import decode_strings, join_characters

if TYPE_CHECKING:
    import h5py

__all__ = ["Hdf5File", "open_h5py"]

T = TypeVar("T")
_PHONY = "phony_dim_"
#: What h5py raises on damaged metadata and data.
_H5PY_ERRORS = (OSError, RuntimeError, KeyError, ValueError, TypeError, MemoryError, OverflowError)
_BOOKKEEPING = frozenset(
    {
        "CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS", "_Netcdf4Dimid",
        "_Netcdf4Coordinates", "_nc3_strict", "_NCProperties", "_NCCOPY", "_nc4_quantize",
    }
)  # fmt: skip
_NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable"
_NOT_A_COORDINATE = "_nc4_non_coord_"


def open_h5py(path: str) -> h5py.File:
    """Open an HDF5 file for reading, or say why not in the library's own terms.

    Raises
    ------
    FileFormatError
        If it is not HDF5, empty, truncated, or locked by a writer.
    """
    import h5py

    try:
        return h5py.File(path, "r", rdcc_nbytes=0)
    except FileNotFoundError:
        raise
    except _H5PY_ERRORS as error:
        text = str(error)
        if "unable to lock file" in text:
            raise FileFormatError(
                f"can't be opened for reading: {text}",
                file=path,
                hint="Another process holds a lock on it; wait for it, or set HDF5_USE_FILE_LOCKING=FALSE "
                "in the environment before the program starts",
            ) from error
        raise FileFormatError(
            f"not a readable HDF5 file: {text}", file=path, hint="It may be truncated; fetch it again"
        ) from error


class Hdf5File:
    """An open NetCDF-4 or HDF5 file.

    Parameters
    ----------
    path : str
        The file.
    group : str, optional
        Path of the group to read; its parents' dimensions and coordinates stay visible.

    Raises
    ------
    FileFormatError
        If the file can't be read.
    SelectionError
        If there is no such group.
    """

    def __init__(self, path: str, group: str | None = None) -> None:
        self.path = path
        self._lock = new_rlock(self)
        self._handle: h5py.File | None = None
        in_child(self, Hdf5File._forget_handle)
        self._descriptor = Descriptor(path)  # before h5py looks: what it finds belongs to this version
        self._encoded: dict[str, EncodedArray | str] = {}
        try:
            with self._lock:
                scan = _Scan(self._file(), group or "/", path)
                self._arrays, self._own = scan.arrays, frozenset(scan.own)
                self._stored_shape = scan.stored_shape
        except EarthSciIOError:
            raise
        except _H5PY_ERRORS as error:
            raise FileFormatError(
                f"damaged HDF5 metadata: {error}", file=path, hint="Fetch it again"
            ) from error
        finally:
            self.close()

    @property
    def arrays(self) -> Mapping[str, ArrayInfo]:
        """The group's variables, then those of its parents that it does not shadow."""
        return self._arrays

    @property
    def own(self) -> frozenset[str]:
        """Names of the group's own variables."""
        return self._own

    def _file(self) -> h5py.File:
        if self._handle is None:
            handle = open_h5py(self.path)
            try:
                self._descriptor.verify(handle.id.get_vfd_handle())
            except DecodeError:
                handle.close()
                raise
            self._handle = handle
        return self._handle

    def close(self) -> None:
        """Close handle and descriptor; the next read opens them again."""
        self._descriptor.close()
        with self._lock:
            if self._handle is not None:
                self._handle.close()
                self._handle = None

    def _forget_handle(self) -> None:
        """Close the handle of the process that this one was forked from, without giving up its file lock.

        The lock belongs to what both processes' descriptors stand for, so another file takes its place first.
        No thread was inside HDF5 at the fork: h5py sees to that.
        """
        handle, self._handle = self._handle, None
        if handle:
            nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            os.dup2(nothing, handle.id.get_vfd_handle(), inheritable=False)
            os.close(nothing)
            handle.close()

    def descriptor(self) -> AbstractContextManager[int]:
        """Lend a descriptor; see :class:`~earthsciio.formats.encoded.EncodedFile`."""
        return self._descriptor.use()

    def encoded(self, info: ArrayInfo) -> EncodedArray | str:
        """Say where an array's bytes lie; see :class:`~earthsciio.formats.encoded.EncodedFile`."""
        with self._lock:
            found = self._encoded.get(info.key)
            if found is None:
                try:
                    found = describe(self._file()[info.key], info)
                    if self._file().userblock_size and not self._agrees(info, found):
                        found = "user block"
                except _H5PY_ERRORS as error:
                    found = f"its layout can't be read: {error}"
                self._encoded[info.key] = found
            return found

    def _agrees(self, info: ArrayInfo, encoded: EncodedArray | str) -> bool:
        """Whether offsets count from the start of the file; HDF5 releases differ where a user block is."""
        if isinstance(encoded, str) or encoded.pieces or not isinstance(encoded.index, TableIndex):
            return True
        entries = encoded.index.entries
        if len(entries.offsets) == 0:
            return True
        number, origin = int(encoded.index.keys[0]), []
        for count, length in zip(reversed(encoded.index.grid), reversed(encoded.chunks), strict=True):
            number, coordinate = divmod(number, count)
            origin.append(coordinate * length)
        _, stored = self._file()[info.key].id.read_direct_chunk(tuple(reversed(origin)))
        with self.descriptor() as descriptor:
            return os.pread(descriptor, int(entries.sizes[0]), int(entries.offsets[0])) == bytes(stored)

    def read_chunk(self, info: ArrayInfo, chunk: tuple[int, ...]) -> Array:
        """Read the elements of one chunk; see :class:`~earthsciio.formats.base.OpenFile`."""
        info.check_readable(self.path)
        box = info.chunk_box(chunk)
        try:
            with self._lock:
                dataset = self._file()[info.key]
                raw = self._read_box(dataset, info, box)
        except EarthSciIOError:
            raise
        except _H5PY_ERRORS as error:
            raise self._explain(info, chunk, error) from error
        if info.dtype.kind != "O":
            return raw
        if raw.dtype.kind == "S" and raw.dtype.itemsize == 1 and raw.ndim > len(info.shape):
            return join_characters(raw, info.attrs, info.name)
        return decode_strings(raw, info.attrs, info.name)

    def _read_box(self, dataset: h5py.Dataset, info: ArrayInfo, box: tuple[slice, ...]) -> Array:
        stored_shape = self._stored_shape[info.name]
        inside = tuple(
            slice(part.start, min(part.stop, size)) for part, size in zip(box, stored_shape, strict=False)
        )
        string_length = stored_shape[len(box) :]
        shape = tuple(part.stop - part.start for part in box) + string_length
        whole = inside + tuple(slice(0, length) for length in string_length)
        if tuple(dataset.shape or ()) != stored_shape:  # its file is the same, but not those it is made of
            raise DecodeError(
                f"has the shape {dataset.shape} by now, not {stored_shape}: files it is made of came or went",
                file=self.path, variable=info.name,
                hint="Bring them back, or touch this file, so that it is looked at again",
            )  # fmt: skip
        check_sources(dataset, whole, self.path, info.name)
        if any(part.stop <= part.start for part in whole) or not _is_written(dataset, whole):
            return filled(dataset, shape)
        part = np.asarray(dataset[whole] if dataset.ndim else dataset[()])
        if part.shape == shape:
            return part
        # shorter on disk than an unlimited dimension: the rest is storage fill
        padded = filled(dataset, shape)
        padded[tuple(slice(0, length) for length in part.shape)] = part
        return padded

    def _explain(self, info: ArrayInfo, chunk: tuple[int, ...], error: Exception) -> EarthSciIOError:
        """Tell a filter that is not there from bytes that are wrong."""
        from h5py import h5z

        try:
            with self._lock:
                plist = self._file()[info.key].id.get_create_plist()
                codes = [plist.get_filter(position) for position in range(plist.get_nfilters())]
                absent = [(code, name) for code, _, _, name in codes if not h5z.filter_avail(code)]
        except _H5PY_ERRORS:
            absent = []
        if absent:
            code, name = absent[0][0], absent[0][1].decode("utf-8", "replace")
            return Unsupported(
                f"needs the HDF5 filter {code} ({name or 'unnamed'}), which is not here",
                file=self.path,
                variable=info.name,
                chunk=chunk,
                filter=code,
                hint="Install and import hdf5plugin",
            )
        return DecodeError(
            f"can't be read: {error}", file=self.path, variable=info.name, chunk=chunk,
            hint="The file is damaged; fetch it again",
        )  # fmt: skip


def _is_written(dataset: h5py.Dataset, box: tuple[slice, ...]) -> bool:
    """Whether any element of the box has storage (HDF5 itself may hand out stale memory where none has)."""
    import h5py

    plist = dataset.id.get_create_plist()
    layout = plist.get_layout()
    if layout == h5py.h5d.CHUNKED:
        origin = tuple(
            (part.start // length) * length for part, length in zip(box, dataset.chunks, strict=True)
        )
        steps = [
            range(start, part.stop, n) for start, part, n in zip(origin, box, dataset.chunks, strict=True)
        ]
        first = tuple(step[0] for step in steps)
        if all(len(step) == 1 for step in steps):
            return dataset.id.get_chunk_info_by_coord(first).byte_offset is not None
        return bool(dataset.id.get_num_chunks())
    if layout == h5py.h5d.CONTIGUOUS and not plist.get_external_count():
        return dataset.id.get_offset() is not None
    return True


class _Scan:
    """Reads a file's metadata once: which arrays there are, and their dimensions.

    Dimensions are known by the HDF5 path of their scale, since a group may shadow a parent's name. A dataset
    that is too odd or too damaged for any of the steps is noted with the reason, and the others are read.
    """

    def __init__(self, file: h5py.File, group: str, path: str) -> None:
        self.file = file
        self.path = path
        self.phony: dict[tuple[int, bool], list[str]] = {}
        self.phony_count = 0
        self.stored_shape: dict[str, tuple[int, ...]] = {}
        self.arrays: dict[str, ArrayInfo] = {}
        self.own: list[str] = []
        self.damaged: dict[str, str] = {}
        self.levels: dict[str, dict[str, h5py.Dataset]] = {}
        self._walk()
        group = self._find_group(group)
        self.by_dimid = {dimid: path for path, dimid in self._of_each(_dimid).items() if dimid is not None}
        self.scales = self._of_each(self._scales)
        # netCDF numbers nameless axes in the order of their datasets, of which one is not known here
        self.phony_name = _PHONY if self.damaged.keys() <= self.scales.keys() else "unnumbered_dim_"
        self.lengths = self._unlimited_lengths()
        self._collect(group)

    @contextmanager
    def _noting_damage(self, path: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - h5py and NumPy raise anything on what is odd or damaged
            self.damaged.setdefault(path, f"its metadata can't be read: {error}")

    def _walk(self) -> None:
        """List the groups, root first, and their datasets in the order they were created, else by name.

        Link by link: HDF5's own walk crashes on some damaged files. Groups are those reached by hard links,
        each once; what lies in another file, behind an external link, is none of this one's.
        """
        import h5py

        here = h5py.h5o.get_info(self.file.id)
        seen = {here.addr}
        found = ["/"]
        for level in found:  # grows as it goes
            group, datasets = self.file[level], self.levels.setdefault(level, {})
            for name in map(_decoded, group):
                path = posixpath.join(level, name)
                with self._noting_damage(path):
                    link = group.get(name, getlink=True)
                    is_hard = link is None or isinstance(link, h5py.HardLink)  # None: raises by this name
                    item = group[name] if is_hard else _behind_soft_link(group, name, link)
                    if not isinstance(item, (h5py.Group, h5py.Dataset)):
                        continue
                    info = h5py.h5o.get_info(item.id)
                    if info.fileno != here.fileno:
                        continue
                    if isinstance(item, h5py.Dataset):
                        datasets[path] = item
                    elif is_hard and info.addr not in seen:
                        seen.add(info.addr)
                        found.append(path)

    def _find_group(self, name: str) -> str:
        """Give the path of a group under which it was listed; it may have others, by links."""
        import h5py

        group = posixpath.normpath(posixpath.join("/", name))
        if group in self.levels:
            return group
        try:
            item = self.file.get(group)
        except _H5PY_ERRORS:
            item = None
        if isinstance(item, h5py.Group):
            wanted = h5py.h5o.get_info(item.id)
            for level in self.levels:
                info = h5py.h5o.get_info(self.file[level].id)
                if (info.fileno, info.addr) == (wanted.fileno, wanted.addr):
                    return level
        where = " in this file, but behind an external link" if isinstance(item, h5py.Group) else ""
        raise SelectionError(
            f"there is no group {group!r}{where}", file=self.path, hint=f"There are {sorted(self.levels)}"
        )

    def _of_each(self, step: Callable[[h5py.Dataset, str], T]) -> dict[str, T]:
        """Take a step for every dataset that is not known to be damaged."""
        results: dict[str, T] = {}
        for path, dataset in itertools.chain(*(level.items() for level in self.levels.values())):
            if path not in self.damaged:
                with self._noting_damage(path):
                    results[path] = step(dataset, path)
        return results

    def _collect(self, group: str) -> None:
        taken: dict[str, str] = {}  # dimension name -> scale path, the innermost group's
        level = group
        while True:
            for path, dataset in self.levels[level].items():
                if path not in self.damaged:
                    with self._noting_damage(path):
                        self._take(path, dataset, taken, is_own=level == group)
            for path in self.damaged:
                name = posixpath.basename(path).removeprefix(_NOT_A_COORDINATE)
                if posixpath.dirname(path) == level and name not in self.arrays:
                    self._add_damaged(name, path, is_own=level == group)
            if level == "/":
                break
            level = posixpath.dirname(level)

    def _take(self, path: str, dataset: h5py.Dataset, taken: dict[str, str], *, is_own: bool) -> None:
        name = posixpath.basename(path).removeprefix(_NOT_A_COORDINATE)
        scales = self.scales[path]
        if name in self.arrays or _only_dimension(dataset):
            return
        dims = [
            posixpath.basename(scale) if scale.startswith("/") else scale.replace(_PHONY, self.phony_name)
            for scale in scales
        ]
        named = list(zip(dims, scales, strict=True))
        if not is_own and any(taken.get(dim, scale) != scale for dim, scale in named):
            return
        self._add(name, path, dataset, dims)
        if is_own:
            self.own.append(name)
        taken.update((dim, scale) for dim, scale in named if dim not in taken)

    def _add(self, name: str, path: str, dataset: h5py.Dataset, dims: list[str]) -> None:
        stored = tuple(dataset.shape or ())
        shape = tuple(
            max(size, self.lengths.get(scale, 0)) if limit is None else size
            for size, scale, limit in zip(stored, self.scales[path], dataset.maxshape or stored, strict=True)
        )
        dtype, unsupported = _element_type(dataset)
        attrs = _attributes(dataset)
        chunks = dataset.chunks or virtual_chunks(shape, max(dtype.itemsize, 1))
        if not unsupported and _is_characters(dataset) and dims and dataset.maxshape[-1] is not None:
            dims, shape, chunks = dims[:-1], shape[:-1], chunks[:-1]
        if not dataset.chunks and not unsupported:
            self._check_extent(dataset)
        self.arrays[name] = ArrayInfo(name, tuple(dims), shape, dtype, attrs, chunks, unsupported, key=path)
        self.stored_shape[name] = stored

    def _add_damaged(self, name: str, path: str, *, is_own: bool) -> None:
        self.arrays[name] = ArrayInfo.unreadable(name, path, self.damaged[path])
        if is_own:
            self.own.append(name)

    def _check_extent(self, dataset: h5py.Dataset) -> None:
        offset = dataset.id.get_offset()
        if offset is not None and not dataset.external:
            stored, size = dataset.id.get_storage_size(), self.file.id.get_filesize()
            end = offset + stored
            if end > size or stored < dataset.size * dataset.id.get_type().get_size():
                raise ValueError(f"its {dataset.size} elements end at byte {end}, the file at {size}")

    def _unlimited_lengths(self) -> dict[str, int]:
        """Length of every unlimited dimension: that of the longest variable along it."""
        lengths: dict[str, int] = {}

        def note(dataset: h5py.Dataset, path: str) -> None:
            if dataset.maxshape is not None and None in dataset.maxshape:
                axes = zip(self.scales[path], dataset.shape, dataset.maxshape, strict=True)
                for scale, size, limit in axes:
                    if limit is None:
                        lengths[scale] = max(lengths.get(scale, 0), size)

        self._of_each(note)
        return lengths

    def _scales(self, dataset: h5py.Dataset, path: str) -> list[str]:
        """Name each axis by the path of its dimension scale."""
        attrs = dataset.attrs
        rank = len(dataset.shape or ())
        if "_Netcdf4Coordinates" in attrs and rank > 1:
            dimids = [int(dimid) for dimid in attrs["_Netcdf4Coordinates"]]
            if len(dimids) != rank or not self.by_dimid.keys() >= set(dimids):
                raise ValueError(f"its dimensions {dimids} are not in the file")
            return [self.by_dimid[dimid] for dimid in dimids]
        if _text(attrs.get("CLASS")) == "DIMENSION_SCALE" and rank == 1:
            return [path]
        scales: list[str] = []
        listed = attrs.get("DIMENSION_LIST", [()] * rank)
        limits = dataset.maxshape or ()
        for references, size, limit in zip(listed, dataset.shape or (), limits, strict=True):
            known = self._by_reference(references[0]) if len(references) else None
            scales.append(known or self._phony(size, limit is None, scales))
        return scales

    def _by_reference(self, reference: Any) -> str | None:
        import h5py

        name = h5py.h5r.get_name(reference, self.file.id)
        return None if name is None else name.decode("utf-8", "surrogateescape")

    def _phony(self, size: int, unlimited: bool, taken: list[str]) -> str:
        """Name an axis without a scale as netCDF does: by its length, but never twice in one variable."""
        names = self.phony.setdefault((size, unlimited), [])
        free = next((name for name in names if name not in taken), None)
        if free is None:
            free = f"{_PHONY}{self.phony_count}"
            self.phony_count += 1
            names.append(free)
        return free


def _behind_soft_link(group: h5py.Group, name: str, link: Any) -> Any:
    """Open what a soft link leads to; None for links of other kinds, and where it leads nowhere."""
    import h5py

    try:
        return group.get(name) if isinstance(link, h5py.SoftLink) else None
    except _H5PY_ERRORS:  # round in a circle, or through something that is not there
        return None


def _dimid(dataset: h5py.Dataset, path: str) -> int | None:  # noqa: ARG001 - as other steps
    """Give netCDF's number of a dimension; None for what is none."""
    attrs = dataset.attrs
    return int(attrs["_Netcdf4Dimid"]) if "_Netcdf4Dimid" in attrs and "CLASS" in attrs else None


def _decoded(name: str | bytes) -> str:
    """Give a name as text; h5py gives one that is not UTF-8 as bytes, and opens nothing by it."""
    return name if isinstance(name, str) else name.decode("utf-8", "backslashreplace")


def _text(value: Any) -> str:
    """Give a text attribute; "" for anything else."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return text if isinstance(text, str) else ""


def _only_dimension(dataset: h5py.Dataset) -> bool:
    return _text(dataset.attrs.get("NAME")).startswith(_NO_VARIABLE)


def _is_characters(dataset: h5py.Dataset) -> bool:
    return bool(dataset.dtype.kind == "S" and dataset.dtype.itemsize == 1)


def _element_type(dataset: h5py.Dataset) -> tuple[np.dtype[Any], str | None]:
    """Give the stored dtype (object for text) and, where elements can't be delivered, why."""
    import h5py

    try:
        dtype = dataset.dtype
    except TypeError as error:
        return np.dtype("V1"), f"holds a type that NumPy does not have ({error})"
    if dataset.shape is None:
        return dtype, "holds nothing (a null dataspace)"
    base = h5py.check_enum_dtype(dtype)
    if dtype.kind in "iufbc":
        return (np.dtype(dtype.str) if base else dtype), None
    if dtype.kind == "S" or h5py.check_string_dtype(dtype) is not None:
        return np.dtype(object), None
    if h5py.check_ref_dtype(dtype) is not None:
        return dtype, "holds references"
    if h5py.check_vlen_dtype(dtype) is not None:
        return dtype, "holds variable-length arrays"
    return dtype, "holds a compound type" if dtype.fields else "holds an opaque type"


def _attributes(dataset: h5py.Dataset) -> dict[str, Any]:
    attrs: dict[str, Any] = {}
    for name in dataset.attrs:
        if name not in _BOOKKEEPING:
            try:
                attrs[name] = _plain(dataset.attrs[name])
            except _H5PY_ERRORS:
                continue  # a type h5py has no NumPy form for: no rule of ours reads such attributes
    return attrs


def _plain(value: Any) -> Any:
    """Give an attribute as text, a list of text, a NumPy scalar or a 1-D array."""
    import h5py

    if isinstance(value, h5py.Empty):
        return "" if value.dtype.kind in "SO" else np.empty(0, dtype=value.dtype)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "SO":
            texts = [
                v.decode("utf-8", "replace") if isinstance(v, bytes) else v
                for v in value.reshape(-1).tolist()
            ]
            return texts[0] if len(texts) == 1 else texts
        value = value.astype(value.dtype.newbyteorder("="))
        return value.reshape(-1)[0] if value.size == 1 else value
    return value
