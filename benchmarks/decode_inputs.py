"""The files of the decode benchmark: fixed generators, chunks compressed once and written directly.

A level is a smooth wave plus noise, with the low bits of the mantissa cleared: how many decides how well
shuffle and deflate compress it. Six different levels are compressed by zlib and repeated, so that writing
takes seconds. The compression ratio of every file is measured and part of the results.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

__all__ = ["Input", "classic", "contiguous", "levels", "packed", "small_chunks"]

#: Different levels; the rest repeat them.
_DISTINCT = 6
#: (noise, bits of mantissa kept) by the compression ratio with deflate 1 and shuffle.
KINDS = {"0.35": (0.02, 12), "0.55": (0.3, 16)}


@dataclass(frozen=True)
class Input:
    """A file, its variables, and its stored over its decoded bytes."""

    path: Path
    variables: tuple[str, ...]
    shape: tuple[int, ...]
    ratio: float
    nbytes: int


def _fields(shape: tuple[int, int], kind: str, count: int = _DISTINCT) -> Iterator[np.ndarray]:
    noise, bits = KINDS[kind]
    rng = np.random.default_rng(2024)
    y, x = np.meshgrid(
        np.linspace(-np.pi / 2, np.pi / 2, shape[0]), np.linspace(0, 2 * np.pi, shape[1]), indexing="ij"
    )
    for level in range(count):
        field = (np.cos(y) * np.sin((3 + level) * x) * 20 + noise * rng.normal(size=shape)).astype("f4")
        field.view("u4")[...] &= np.uint32(0xFFFFFFFF) << np.uint32(23 - bits)
        yield field


def _encode(values: np.ndarray, shuffle: bool) -> bytes:
    raw = np.ascontiguousarray(values)
    if shuffle:
        raw = np.ascontiguousarray(raw.view("u1").reshape(-1, raw.itemsize).T)
    return zlib.compress(raw.tobytes(), 1)


def _finish(path: Path, variables: tuple[str, ...], shape: tuple[int, ...], nbytes: int) -> Input:
    with h5py.File(path) as file:
        stored = sum(file[name].id.get_storage_size() for name in variables)
    return Input(path, variables, shape, round(stored / nbytes, 3), nbytes)


def _scales(file: h5py.File, names: tuple[str, ...], shape: tuple[int, ...]) -> None:
    for name, size in zip(names, shape, strict=True):
        file[name] = np.arange(size, dtype="f8")
        file[name].make_scale(name)


def levels(folder: Path, kind: str, shuffle: bool, count: int) -> Input:
    """Write [1, count, 721, 1152] float32, a chunk per level, deflate 1: what a reanalysis looks like."""
    path = folder / f"levels-{kind}-{'shuffle' if shuffle else 'plain'}-{count}.nc"
    shape = (1, count, 721, 1152)
    if not path.exists():
        encoded = [_encode(field, shuffle) for field in _fields((721, 1152), kind)]
        with h5py.File(path, "w") as file:
            _scales(file, ("time", "lev", "lat", "lon"), shape)
            data = file.create_dataset(
                "v", shape, "<f4", chunks=(1, 1, 721, 1152), shuffle=shuffle, compression="gzip",
                compression_opts=1,
            )  # fmt: skip
            for axis, name in enumerate(("time", "lev", "lat", "lon")):
                data.dims[axis].attach_scale(file[name])
            data.attrs["_FillValue"] = np.float32(1e15)
            for level in range(count):
                data.id.write_direct_chunk((0, level, 0, 0), encoded[level % _DISTINCT])
    return _finish(path, ("v",), shape, 4 * int(np.prod(shape)))


def small_chunks(folder: Path) -> Input:
    """Write 5 variables of [8, 72, 46, 72] float32 in chunks of 13 KB: a coarse global run."""
    path = folder / "small.nc"
    shape = (8, 72, 46, 72)
    names = tuple(f"v{number}" for number in range(5))
    if not path.exists():
        encoded = [_encode(field, True) for field in _fields((46, 72), "0.55")]
        with h5py.File(path, "w") as file:
            _scales(file, ("time", "lev", "lat", "lon"), shape)
            for name in names:
                data = file.create_dataset(
                    name,
                    shape,
                    "<f4",
                    chunks=(1, 1, 46, 72),
                    shuffle=True,
                    compression="gzip",
                    compression_opts=1,
                )
                for axis, scale in enumerate(("time", "lev", "lat", "lon")):
                    data.dims[axis].attach_scale(file[scale])
                for record in range(shape[0]):
                    for level in range(shape[1]):
                        data.id.write_direct_chunk(
                            (record, level, 0, 0), encoded[(record + level) % _DISTINCT]
                        )
    return _finish(path, names, shape, 5 * 4 * int(np.prod(shape)))


def packed(folder: Path, count: int) -> Input:
    """Write [count, 721, 1440] int16 with scale, offset and fill, a chunk per record."""
    path = folder / f"packed-{count}.nc"
    shape = (count, 721, 1440)
    if not path.exists():
        rng = np.random.default_rng(2024)
        smooth = [field[:, :720] for field in _fields((721, 1440), "0.55")]
        encoded = []
        for field in smooth:
            wide = np.concatenate([field, field[:, ::-1]], axis=1)
            values = (wide * 1000 + rng.integers(-8, 8, wide.shape)).astype("<i2")
            values[rng.integers(0, 721, 500), rng.integers(0, 1440, 500)] = -32767
            encoded.append(_encode(values, True))
        with h5py.File(path, "w") as file:
            _scales(file, ("time", "lat", "lon"), shape)
            data = file.create_dataset(
                "v", shape, "<i2", chunks=(1, 721, 1440), shuffle=True, compression="gzip", compression_opts=1
            )
            for axis, scale in enumerate(("time", "lat", "lon")):
                data.dims[axis].attach_scale(file[scale])
            data.attrs.update(
                scale_factor=np.float64(0.001), add_offset=np.float64(273.15), _FillValue=np.int16(-32767)
            )
            for record in range(count):
                data.id.write_direct_chunk((record, 0, 0), encoded[record % _DISTINCT])
    return _finish(path, ("v",), shape, 2 * int(np.prod(shape)))


def contiguous(folder: Path, count: int) -> Input:
    """Write [1, count, 721, 1152] big-endian float32 in one piece."""
    path = folder / f"contiguous-{count}.h5"
    shape = (1, count, 721, 1152)
    if not path.exists():
        fields = list(_fields((721, 1152), "0.55"))
        with h5py.File(path, "w") as file:
            data = file.create_dataset("v", shape, ">f4")
            for level in range(count):
                data[0, level] = fields[level % _DISTINCT]
    return _finish(path, ("v",), shape, 4 * int(np.prod(shape)))


def classic(folder: Path, count: int) -> Input:
    """Write the same as a classic NetCDF file."""
    from scipy.io import netcdf_file

    path = folder / f"classic-{count}.nc"
    shape = (1, count, 721, 1152)
    if not path.exists():
        fields = list(_fields((721, 1152), "0.55"))
        with netcdf_file(path, "w", version=2) as file:
            for name, size in zip(("time", "lev", "lat", "lon"), shape, strict=True):
                file.createDimension(name, size)
            data = file.createVariable("v", ">f4", ("time", "lev", "lat", "lon"))
            data[:] = np.array([[fields[level % _DISTINCT] for level in range(count)]])
    return Input(path, ("v",), shape, 1.0, 4 * int(np.prod(shape)))
