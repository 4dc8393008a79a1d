"""Samples from decoded records: brackets stacked, grids compared, buffers written in place."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .errors import FileFormatError
from .fields import Array, NativeDataset, NativeField
from .records import Allocate, DecodedRecord

__all__ = ["bracket", "check_same_grid", "write_in_place"]


def bracket(
    first: Mapping[str, NativeField],
    second: Mapping[str, NativeField],
    time_axes: Mapping[str, int],
    time_dim: str,
    allocate: Allocate,
) -> dict[str, NativeField]:
    """Stack two records of each variable along its time axis; what has none is the first record's."""
    stacked: dict[str, NativeField] = {}
    for name, one in first.items():
        axis = time_axes.get(name)
        if axis is None:
            stacked[name] = one
            continue
        other = second[name]
        shape = (*one.shape[:axis], 2, *one.shape[axis:])
        out: Array = allocate(shape, np.promote_types(one.dtype, other.dtype))
        halves = np.moveaxis(out, axis, 0)
        halves[0], halves[1] = one.data, other.data
        stacked[name] = NativeField(out, (*one.dims[:axis], time_dim, *one.dims[axis:]), one.attrs)
    return stacked


def check_same_grid(first: DecodedRecord, second: DecodedRecord, window: int) -> None:
    """Refuse a bracket over two files whose coordinates differ in any bit."""
    if first.record.identity == second.record.identity:
        return
    ours, theirs = first.coords[window], second.coords[window]
    for name, one in ours.items():
        if name in first.time_axes or not one.dims:
            continue
        other = theirs.get(name)
        if other is None or one.dtype != other.dtype or one.data.tobytes() != other.data.tobytes():
            files = [str(record.record.identity[0]) for record in (first, second)]
            raise FileFormatError(
                f"the coordinate {name!r} differs from that of {files[1]}, so the two can't form a bracket",
                file=files[0], variable=name, hint="Declare series on different grids as two sources",
            )  # fmt: skip


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
