"""Samples from decoded records: brackets stacked, grids compared, buffers written in place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .errors import FileFormatError
from .fields import Array, NativeDataset, NativeField
from .records import Allocate, DecodedRecord
from .timecoordinate import has_time_units

__all__ = ["bracket", "check_same_grid", "unshared", "write_in_place"]


def bracket(
    first: DecodedRecord, second: DecodedRecord, window: int, time_dim: str, allocate: Allocate
) -> tuple[dict[str, NativeField], dict[str, NativeField]]:
    """Stack the fields, and the coordinates, of two records along time; what has no time is the first's.

    Raises
    ------
    FileFormatError
        If the two files store a variable in ways that don't fit into one array.
    """
    files = (str(first.record.identity[0]), str(second.record.identity[0]))

    def stacked(ours: Mapping[str, NativeField], theirs: Mapping[str, NativeField]) -> dict[str, NativeField]:
        fields = dict(ours)
        for name, one in ours.items():
            axis = first.time_axes.get(name)
            if axis is not None:
                dtype = _dtype_of_both(name, one, theirs.get(name), *files)
                out: Array = allocate((*one.shape[:axis], 2, *one.shape[axis:]), dtype)
                halves = np.moveaxis(out, axis, 0)
                # "...": text may come without axes
                halves[0, ...], halves[1, ...] = one.data, theirs[name].data
                fields[name] = NativeField(out, (*one.dims[:axis], time_dim, *one.dims[axis:]), one.attrs)
        return fields

    coords, other_coords = first.coords[window], second.coords[window]
    # times of each file's own reckoning: the bracket's time coordinate stands for them
    apart = {name for name in first.time_axes if _counts_apart(coords.get(name), other_coords.get(name))}
    return (
        stacked(first.fields[window], second.fields[window]),
        stacked({name: one for name, one in coords.items() if name not in apart}, other_coords),
    )


def _counts_apart(one: NativeField | None, other: NativeField | None) -> bool:
    """Whether a coordinate that has one value per record counts from another date in each file."""
    if one is None or other is None or one.dims:
        return False
    return has_time_units(one.attrs) and has_time_units(other.attrs) and _units(one) != _units(other)


def _units(field: NativeField) -> str:
    return str(field.attrs.get("units", "")).strip()


def _dtype_of_both(
    name: str, one: NativeField, other: NativeField | None, path: str, other_path: str
) -> np.dtype[Any]:
    """Give the dtype that holds both halves of a bracket; an error if they don't go together."""
    if other is None or other.dims != one.dims or other.shape != one.shape:
        theirs = "is not there" if other is None else f"has {_extent(other)}"
        raise FileFormatError(
            f"{name!r} has {_extent(one)}, but {theirs} in {other_path}, so the two can't form a bracket",
            file=path, variable=name, hint="Declare series of different layout as two sources",
        )  # fmt: skip
    if _units(one) != _units(other):
        raise FileFormatError(
            f"the units are {_units(one)!r}, but {_units(other)!r} in {other_path}, "
            "so the two can't form a bracket",
            file=path, variable=name,
            hint="Nothing is converted: declare series of different units as two sources",
        )  # fmt: skip
    try:
        return _common_dtype(one, other)
    except TypeError as error:
        raise FileFormatError(
            f"{_kind(one)} here and {_kind(other)} in {other_path} don't fit into one array: {error}",
            file=path, variable=name, hint="Declare series of different types as two sources",
        ) from None  # fmt: skip


def _extent(field: NativeField) -> str:
    sizes = ", ".join(f"{dim} {size}" for dim, size in zip(field.dims, field.shape, strict=True))
    return f"dimensions ({sizes})"


def _kind(field: NativeField) -> str:
    return "text" if field.dtype.kind == "O" else str(field.dtype)


def _common_dtype(one: NativeField, other: NativeField) -> np.dtype[Any]:
    """Give the dtype that holds the values of both, or a TypeError that says which it doesn't hold."""
    dtype = np.promote_types(one.dtype, other.dtype)
    for field in (one, other):
        if field.dtype == dtype:
            continue
        if dtype.kind == "O":
            raise TypeError("text and numbers have no common type")
        if field.dtype.kind in "iu" and dtype.kind in "fc":
            _check_exact(field.data)
    return dtype


def _check_exact(values: Array) -> None:
    """Refuse integers that are no float64; only those of 64 bits can be."""
    floats = values.astype(np.float64)
    # 2**63 and 2**64 are floats that no int64 or uint64 holds: converting them back would overflow
    safe = floats < 2.0 ** (8 * values.dtype.itemsize - (values.dtype.kind == "i"))
    inexact = values[np.where(safe, floats, 0).astype(values.dtype) != values]
    if inexact.size:
        raise TypeError(f"the integer {inexact.flat[0]} has no exact float64")


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
