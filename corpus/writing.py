"""Writes the input files of cases: stored elements and attributes exactly as given, nothing converted.

NetCDF files are written by netCDF-C, plain HDF5 ones by h5py. Zarr stores are written here object by object,
from the text of the format's two specifications, so that a case may hold what no library would write.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import h5py
import netCDF4
import numpy as np

__all__ = ["Array", "Form", "Variables", "crc32c", "csv", "hdf5", "netcdf", "shard", "zarr2", "zarr3"]

Form: TypeAlias = Literal["NETCDF4", "NETCDF3_CLASSIC", "NETCDF3_64BIT_DATA"]
#: Dimensions (a string of words), stored elements, attributes.
Variables: TypeAlias = Mapping[str, tuple[str, Any, Mapping[str, Any]]]


def netcdf(
    path: Path,
    variables: Variables,
    *,
    form: Form = "NETCDF3_CLASSIC",
    unlimited: Sequence[str] = (),
    storage: Mapping[str, Mapping[str, Any]] | None = None,
    extra: Callable[[netCDF4.Dataset], None] | None = None,
) -> None:
    """Write a NetCDF file.

    Parameters
    ----------
    path : Path
        The file.
    variables : Variables
        What is in it.
    form : str
        netCDF4's name of the format.
    unlimited : sequence of str
        Dimensions without a fixed length.
    storage : mapping
        Per variable, netCDF4's ``createVariable`` options.
    extra : callable, optional
        Writes what this function can't.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with netCDF4.Dataset(path, "w", format=form) as file:
        for dims, values, _ in variables.values():
            for dim, size in zip(dims.split(), np.shape(values), strict=True):
                if dim not in file.dimensions:
                    file.createDimension(dim, None if dim in unlimited else size)
        for name, (dims, values, attrs) in variables.items():
            elements = np.asarray(values)
            kind = str if elements.dtype.kind == "O" else elements.dtype
            options = dict((storage or {}).get(name, {}))
            options.setdefault("fill_value", attrs.get("_FillValue"))
            variable = file.createVariable(name, kind, dims.split(), **options)
            variable.set_auto_maskandscale(False)
            variable.set_auto_chartostring(False)
            variable.setncatts({key: value for key, value in attrs.items() if key != "_FillValue"})
            if elements.size:
                variable[...] = elements
        if extra is not None:
            extra(file)


def hdf5(path: Path, write: Callable[[h5py.File], None]) -> None:
    """Write an HDF5 file with h5py."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        write(file)


def csv(path: Path, lines: Sequence[str]) -> None:
    """Write a table."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


#: An array of a store: dimensions, elements, attributes, chunk extent, more of its document.
Array: TypeAlias = tuple[str, Any, Mapping[str, Any], Sequence[int], Mapping[str, Any]]


def _document(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _chunks(values: np.ndarray[Any, Any], extent: Sequence[int], fill: Any) -> dict[tuple[int, ...], Any]:
    """Cut into full-size chunks; those at the edge are filled up."""
    cut = {}
    for index in np.ndindex(*(-(-size // length) for size, length in zip(values.shape, extent, strict=True))):
        part = values[tuple(slice(i * n, (i + 1) * n) for i, n in zip(index, extent, strict=True))]
        chunk = np.full(tuple(extent), fill, values.dtype)
        chunk[tuple(slice(0, n) for n in part.shape)] = part
        cut[index] = chunk
    return cut


def zarr2(
    root: Path,
    arrays: Mapping[str, Array],
    *,
    absent: Sequence[str] = (),
    poisoned: Callable[[str], bool] = lambda _: False,
) -> None:
    """Write a store of version 2; chunks are zlib-compressed where the document says so.

    Parameters
    ----------
    root : Path
        The directory.
    arrays : mapping
        What is in it; the last entry of each overrides keys of its ``.zarray``.
    absent : sequence of str
        Chunk objects that are not written.
    poisoned : callable
        Says of a key (``"name/0.1"``) whether its object holds rubbish.
    """
    _document(root / ".zgroup", {"zarr_format": 2})
    for name, (dims, elements, attrs, extent, more) in arrays.items():
        values = np.asarray(elements)
        document: dict[str, Any] = {
            "zarr_format": 2, "shape": list(values.shape), "chunks": list(extent), "dtype": values.dtype.str,
            "compressor": None, "filters": None, "fill_value": None, "order": "C", **more,
        }  # fmt: skip
        _document(root / name / ".zarray", {k: v for k, v in document.items() if not k.startswith("_")})
        _document(root / name / ".zattrs", {"_ARRAY_DIMENSIONS": dims.split(), **attrs})
        separator = document.get("_separator", document.get("dimension_separator", "."))
        fill = 0 if document["fill_value"] is None else document["fill_value"]
        for index, chunk in _chunks(values, extent, fill).items():
            key = f"{name}/{separator.join(map(str, index)) or '0'}"
            if key in absent:
                continue
            data = chunk.tobytes(order=document["order"])
            if document["compressor"]:
                data = zlib.compress(data, 0)  # stored blocks: the same bytes from every zlib
            _write(root / key, b"poison" if poisoned(key) else data)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def zarr3(
    root: Path,
    arrays: Mapping[str, Array],
    *,
    absent: Sequence[str] = (),
    poisoned: Callable[[str], bool] = lambda _: False,
) -> None:
    """Write a store of version 3, uncompressed; see :func:`zarr2`. ``fill_value`` is 0 if not given.

    An entry ``_inner`` in an array's last mapping makes shards: the extent of their inner chunks. Keys of
    inner chunks are those of the shard and ``#``, the position in it (``"v/c/0#1"``).
    """
    _document(root / "zarr.json", {"zarr_format": 3, "node_type": "group", "attributes": {}})
    for name, (dims, elements, attrs, extent, more) in arrays.items():
        values = np.asarray(elements)
        fill = more.get("fill_value", 0)
        inner = more.get("_inner")
        bytes_codec = {"name": "bytes", "configuration": {"endian": "little"}}
        codecs: list[dict[str, Any]] = [bytes_codec if values.dtype.itemsize > 1 else {"name": "bytes"}]
        if inner:
            index_codecs = [bytes_codec, {"name": "crc32c"}]
            configuration = {
                "chunk_shape": list(inner), "codecs": [*codecs, {"name": "crc32c"}],
                "index_codecs": index_codecs, "index_location": "end",
            }  # fmt: skip
            codecs = [{"name": "sharding_indexed", "configuration": configuration}]
        document = {
            "zarr_format": 3, "node_type": "array", "shape": list(values.shape),
            "data_type": values.dtype.name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(extent)}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": fill, "codecs": codecs, "attributes": dict(attrs), "dimension_names": dims.split(),
        }  # fmt: skip
        document |= {key: value for key, value in more.items() if not key.startswith("_")}
        _document(root / name / "zarr.json", document)
        for index, chunk in _chunks(values, extent, fill).items():
            key = "/".join([name, "c", *map(str, index)])
            if inner:
                keep = {
                    number: b"poison" if poisoned(f"{key}#{number}") else _checked(part.tobytes())
                    for number, part in enumerate(_chunks(chunk, inner, fill).values())
                    if f"{key}#{number}" not in absent
                }
                count = int(np.prod([n // m for n, m in zip(extent, inner, strict=True)]))
                data = shard(keep, count)
            else:
                data = chunk.tobytes()
            if key not in absent:
                _write(root / key, b"poison" if poisoned(key) else data)


def shard(parts: Mapping[int, bytes], count: int) -> bytes:
    """Put inner chunks together: their bytes, then (offset, length) of each, then the index's checksum."""
    body, index = b"", b""
    for number in range(count):
        if number in parts:
            index += struct.pack("<QQ", len(body), len(parts[number]))
            body += parts[number]
        else:
            index += b"\xff" * 16
    return body + _checked(index)


def _checked(data: bytes) -> bytes:
    return data + struct.pack("<I", crc32c(data))


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli), bit by bit: RFC 3720, appendix B.4."""
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = (register >> 1) ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF
