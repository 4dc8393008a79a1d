"""Samples from decoded records: brackets stacked, grids compared, buffers written in place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .errors import FileFormatError
from .fields import Array, NativeDataset, NativeField
from .records import Allocate, DecodedRecord

__all__ = ["bracket", "check_same_grid", "unshared", "write_in_place"]


def bracket(
    first: Mapping[str, NativeField],
    second: Mapping[str, NativeField],
    time_axes: Mapping[str, int],
    time_dim: str,
    allocate: Allocate,
) -> dict[str, NativeField]:
    """Stack two records of each variable along its time axis; what has none is the first record's.

    Raises
    ------
    FileFormatError
        If the two files store a variable in ways that don't fit into one array.
    """
    stacked: dict[str, NativeField] = {}
    for name, one in first.items():
        axis = time_axes.get(name)
        if axis is None:
            stacked[name] = one
            continue
        other = second.get(name)
        if other is None or other.dims != one.dims or other.shape != one.shape:
            raise FileFormatError(
                f"the two files of a bracket have {name!r} as {one!r} and {other!r}",
                variable=name, hint="Declare series of different layout as two sources",
            )  # fmt: skip
        shape = (*one.shape[:axis], 2, *one.shape[axis:])
        out: Array = allocate(shape, _common_dtype(name, one, other))
        halves = np.moveaxis(out, axis, 0)
        halves[0, ...], halves[1, ...] = one.data, other.data  # "...": text may come without axes
        stacked[name] = NativeField(out, (*one.dims[:axis], time_dim, *one.dims[axis:]), one.attrs)
    return stacked


def _common_dtype(name: str, one: NativeField, other: NativeField) -> np.dtype[Any]:
    """Give the dtype that holds the values of both; integers of 64 bits have none with other numbers."""
    dtype = np.promote_types(one.dtype, other.dtype)
    for field in (one, other):
        kinds = field.dtype.kind + dtype.kind
        fits = "O" not in kinds
        if kinds in ("if", "uf"):
            fits = np.array_equal(field.data.astype(dtype).astype(field.dtype), field.data)
        if field.dtype != dtype and not fits:
            raise FileFormatError(
                f"one file of a bracket has {one.dtype} values of {name!r}, the other {other.dtype}",
                variable=name, hint="Declare series of different types as two sources",
            )  # fmt: skip
    return dtype


def check_same_grid(first: DecodedRecord, second: DecodedRecord, window: int) -> None:
    """Refuse a bracket over two files whose coordinates differ in any bit."""
    if first.record.identity == second.record.identity:
        return
    ours, theirs = first.coords[window], second.coords[window]
    for name, one in ours.items():
        if name in first.time_axes or not one.dims:
            continue
        other = theirs.get(name)
        if other is None or not _same_bits(one.data, other.data):
            files = [str(record.record.identity[0]) for record in (first, second)]
            raise FileFormatError(
                f"the coordinate {name!r} differs from that of {files[1]}, so the two can't form a bracket",
                file=files[0], variable=name, hint="Declare series on different grids as two sources",
            )  # fmt: skip


def _same_bits(one: Array, other: Array) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return np.array_equal(one, other) if one.dtype.kind == "O" else one.tobytes() == other.tobytes()


def unshared(dataset: NativeDataset) -> NativeDataset:
    """Give a dataset whose coordinates are its own: those shared among samples are copied."""

    def own(field: NativeField) -> NativeField:
        return (
            field if field.data.flags.writeable else NativeField(field.data.copy(), field.dims, field.attrs)
        )

    coords = {name: own(field) for name, field in dataset.coords.items()}
    return NativeDataset(dataset.variables, coords, dataset.times)


def write_in_place(buffers: NativeDataset | None, sample: NativeDataset) -> NativeDataset:
    """Copy a sample into buffers where names, shapes and dtypes allow; adopt its arrays elsewhere."""

    def update(old: Mapping[str, NativeField], new: Mapping[str, NativeField]) -> dict[str, NativeField]:
        written = {}
        for name, field in new.items():
            held = old.get(name)
            if held is None or held.shape != field.shape or held.dtype != field.dtype:
                written[name] = field
                continue
            np.copyto(held.data, field.data)
            written[name] = NativeField(held.data, field.dims, field.attrs)
        return written

    if buffers is None:
        return sample
    return NativeDataset(
        update(buffers.variables, sample.variables), update(buffers.coords, sample.coords), sample.times
    )
