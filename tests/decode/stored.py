"""Makes files of every kind the engine must read, and reads them both ways."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from earthsciio.decode import ArrayRequest, DecodeOptions, DecodeReport, decode_arrays
from earthsciio.decode.abort import AbortToken
from earthsciio.decode.plan import plan_reads
from earthsciio.decode.reference import decode_reference
from earthsciio.decode.values import ValueOptions, value_spec
from earthsciio.formats import NetCDFReader, OpenFile
from earthsciio.selection import Points, Span

Selectors = list[list[Span | Points]]

PLAIN_VALUES = ValueOptions()
PLAIN_OPTIONS = DecodeOptions()
#: Keyword arguments of h5py's create_dataset, by a short name.
FILTERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "deflate": {"compression": "gzip", "compression_opts": 1},
    "shuffle": {"shuffle": True},
    "both": {"compression": "gzip", "compression_opts": 1, "shuffle": True},
    "fletcher": {"fletcher32": True},
    "all": {"compression": "gzip", "compression_opts": 1, "shuffle": True, "fletcher32": True},
    "lzf": {"compression": "lzf", "shuffle": True},
}
DTYPES = [f"{order}{kind}" for kind in ("i2", "i4", "i8", "u2", "u4", "u8", "f4", "f8") for order in "<>"]
DTYPES += ["i1", "u1", "?"]


def open_file(path: Path) -> OpenFile:
    return NetCDFReader().open(str(path))


def request(
    file: OpenFile, name: str, selectors: Selectors, options: ValueOptions = PLAIN_VALUES, order: str = "C"
) -> ArrayRequest:
    """Ask for one array; outputs are poisoned, and laid out in `order`: C, F, or S (strided views)."""
    info = file.arrays[name]
    spec = value_spec(name, info.dtype, info.attrs, options)
    plan = plan_reads(info.shape, info.chunks, selectors)
    return ArrayRequest(info, spec, plan, tuple(_output(shape, spec.out, order) for shape in plan.shapes))


def _output(shape: tuple[int, ...], dtype: np.dtype[Any], order: str) -> np.ndarray:
    if order == "S" and shape:
        padded = np.full(tuple(2 * size + 1 for size in reversed(shape)), 77, dtype=dtype)
        return padded[
            tuple(slice(2 * size - 1, None, -2) if size else slice(0, 0) for size in reversed(shape))
        ].T
    return np.full(shape, 77, dtype=dtype, order="F" if order == "F" else "C")


@dataclass
class Both:
    fast: list[bytes]
    slow: list[bytes]
    report: DecodeReport


def read_both(
    file: OpenFile,
    wanted: list[tuple[str, Selectors]],
    values: ValueOptions = PLAIN_VALUES,
    order: str = "C",
    options: DecodeOptions = PLAIN_OPTIONS,
) -> Both:
    """Decode by the engine and by the reference path, to bytes."""
    fast = [request(file, name, selectors, values, order) for name, selectors in wanted]
    slow = [request(file, name, selectors, values) for name, selectors in wanted]
    report = decode_arrays(file, fast, AbortToken(), options)
    decode_reference(file, slow, AbortToken())
    return Both(
        [out.tobytes() for each in fast for out in each.outs],
        [out.tobytes() for each in slow for out in each.outs],
        report,
    )


def read_fast(file: OpenFile, wanted: list[tuple[str, Selectors]]) -> list[bytes]:
    """Decode by the engine alone, to bytes."""
    requests = [request(file, name, selectors) for name, selectors in wanted]
    decode_arrays(file, requests, AbortToken())
    return [out.tobytes() for each in requests for out in each.outs]


def read_slow(file: OpenFile, wanted: list[tuple[str, Selectors]]) -> list[bytes]:
    """Decode by the reference path alone, to bytes."""
    requests = [request(file, name, selectors) for name, selectors in wanted]
    decode_reference(file, requests, AbortToken())
    return [out.tobytes() for each in requests for out in each.outs]


def everything(file: OpenFile, name: str) -> Selectors:
    return [[Span(0, size) for size in file.arrays[name].shape]]


def random_selectors(rng: np.random.Generator, shape: tuple[int, ...]) -> list[Span | Points]:
    chosen: list[Span | Points] = []
    for size in shape:
        kind = rng.integers(6)
        if kind <= 2 or size == 0:
            start = int(rng.integers(0, size + 1))
            stop = int(rng.integers(start, size + 1))
            chosen.append(Span(0, size) if kind == 0 else Span(start, stop, int(rng.integers(1, 4))))
        elif kind == 3:  # wrap around
            start, count = int(rng.integers(size)), int(rng.integers(1, size + 1))
            chosen.append(Points((start + np.arange(count)) % size))
        else:
            chosen.append(Points(rng.integers(0, size, int(rng.integers(0, 12)))))
    return chosen


def random_values(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Give values of which some repeat, some are extreme, and some are NaN with payloads or -0.0."""
    native = dtype.newbyteorder("=")
    if native.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if native.kind == "f":
        values = (rng.integers(-50, 50, shape) / 4).astype(native)
        bits = values.view(f"u{native.itemsize}").reshape(-1)
        odd = rng.integers(0, max(values.size, 1), values.size // 6)
        quiet = 0x7FC00000 if native.itemsize == 4 else 0x7FF8000000000000
        signalling = 0x7FA00000 if native.itemsize == 4 else 0x7FF4000000000000
        bits[odd] = rng.choice([quiet | 5, signalling | 3, 1 << (8 * native.itemsize - 1)], len(odd))
        return values.astype(dtype) if dtype.isnative else values.byteswap().view(dtype)
    return rng.integers(-40 if native.kind == "i" else 0, 40, shape).astype(dtype)


def random_attributes(rng: np.random.Generator, dtype: np.dtype[Any]) -> dict[str, Any]:
    native = dtype.newbyteorder("=")
    attrs: dict[str, Any] = {}
    if native.kind == "b":
        return attrs
    if rng.integers(2):
        attrs["_FillValue"] = native.type(rng.choice([0, 3, 7]))
    if rng.integers(3) == 0:
        attrs["missing_value"] = np.array([1, 2, 3], dtype=native)
    if native.kind == "f" and rng.integers(3) == 0:
        attrs["missing_value"] = native.type(np.nan)
    if rng.integers(2):
        attrs["scale_factor"] = rng.choice([np.float32(0.1), np.float64(0.013)])
    if rng.integers(2):
        attrs["add_offset"] = rng.choice([np.float32(273.15), np.float64(-1.7)])
    if rng.integers(3) == 0:
        attrs["valid_range"] = np.array([2, 30], dtype=native)
    if native.kind in "iu" and native.itemsize < 8 and rng.integers(4) == 0:  # wider ones are then inexact
        attrs["_Unsigned"] = "true" if native.kind == "i" else "false"
    return attrs


def random_dataset(
    rng: np.random.Generator, file: h5py.File, name: str, filters: str, dtype: np.dtype[Any]
) -> None:
    """Write a dataset of random rank, shape, chunks, values and attributes; some chunks stay unwritten."""
    rank = int(rng.integers(1, 5))
    shape = tuple(int(size) for size in rng.integers(1, 14, rank))
    chunks = tuple(int(rng.integers(1, size + 2)) for size in shape)
    dataset = file.create_dataset(
        name,
        shape,
        dtype,
        chunks=chunks,
        maxshape=(None,) * rank,
        fillvalue=rng.integers(0, 2),
        **FILTERS[filters],
    )
    if rng.integers(4):
        dataset[...] = random_values(rng, shape, dtype)
    else:
        part = tuple(slice(0, int(rng.integers(0, size + 1))) for size in shape)
        dataset[part] = random_values(rng, dataset[part].shape, dtype)
    dataset.attrs.update(random_attributes(rng, dtype))
