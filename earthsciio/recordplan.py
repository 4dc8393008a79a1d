"""How one record of a file is read through K Windows: worked out from metadata, before anything is allocated.

A :class:`RecordPlan` knows for every variable which chunks are read and what goes where, which arrays that
takes, and which records lie in the same chunks. Given the arrays, it says what to decode into them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from .contents import Variable
from .decode import ArrayRequest
from .decode.plan import ArrayPlan, plan_reads
from .errors import TooLarge
from .fields import Array, NativeField
from .memory import check_size
from .records import ChunkSpan, Keep, OutputSpec, RecordRef
from .selection import Points, Span
from .views import View

__all__ = ["RecordPlan", "VariablePlan"]

#: Per Window: fields or coordinates by name.
Fields = tuple[dict[str, NativeField], ...]


@dataclass(frozen=True, slots=True, eq=False)
class VariablePlan:
    """How one variable of a record is read.

    Attributes
    ----------
    variable : Variable
        Which.
    is_coord : bool
        Whether it is a coordinate.
    plan : ArrayPlan
        Its chunks, and what goes where.
    span : ChunkSpan or None
        Which records lie in its chunks; None for a variable without time.
    """

    variable: Variable
    is_coord: bool
    plan: ArrayPlan
    span: ChunkSpan | None


@dataclass(frozen=True, slots=True, eq=False)
class RecordPlan:
    """How one record is read.

    Attributes
    ----------
    record : RecordRef
        Which.
    view : View
        The file through the Windows.
    variables : tuple of VariablePlan
        Everything that is read with the record.
    """

    record: RecordRef
    view: View
    variables: tuple[VariablePlan, ...]

    @classmethod
    def of(cls, record: RecordRef, view: View, *, fields: bool) -> RecordPlan:
        """Plan a record's coordinates, and its fields if they are wanted.

        Raises
        ------
        TooLarge
            If that is more than can be planned, or held in memory.
        """
        contents = view.contents
        plans, asked = [], 0
        for name, variable in {**view.read_coords, **(contents.fields if fields else {})}.items():
            selectors = [_at_record(variable, axes[name], record.index) for axes in view.selected]
            asked += sum(math.prod(map(len, each)) for each in selectors) * variable.spec.out.itemsize
            check_size(asked, file=record.identity[0], variable=name)
            try:
                plan = plan_reads(variable.info.shape, variable.info.chunks, selectors)
            except TooLarge as error:
                error.file, error.variable = str(record.identity[0]), name
                raise
            plans.append(VariablePlan(variable, name not in contents.fields, plan, _span(variable, record)))
        return cls(record, view, tuple(plans))

    @property
    def path(self) -> str:
        """The file."""
        return str(self.record.identity[0])

    @property
    def windows(self) -> int:
        """How many Windows."""
        return len(self.view.selections)

    @property
    def time_axes(self) -> Mapping[str, int]:
        """Where a bracket puts the time dimension: :meth:`Contents.bracket_axes`."""
        return self.view.contents.bracket_axes()

    @property
    def outputs(self) -> tuple[OutputSpec, ...]:
        """The arrays to decode into, Windows innermost."""
        outputs: list[OutputSpec] = []
        for each in self.variables:
            variable = each.variable
            for window, shape in enumerate(each.plan.shapes):
                without = shape if self.record.index is None else variable.drop_time(shape)
                outputs.append(OutputSpec(window, variable.info.name, without, variable.spec.out))
        return tuple(outputs)

    @property
    def spans(self) -> set[ChunkSpan]:
        """Which records lie in the chunks that are read."""
        return {each.span for each in self.variables if each.span is not None}

    def fill(self, arrays: Iterable[Array], keep: Keep | None) -> tuple[Fields, Fields, list[ArrayRequest]]:
        """Say what to decode into arrays.

        Parameters
        ----------
        arrays : iterable of numpy.ndarray
            One per output, in their order.
        keep : Keep or None
            Which chunks a pool is to keep.

        Returns
        -------
        fields, coords : tuple of dict
            What the arrays are, per Window.
        requests : list of ArrayRequest
            Fill them.
        """
        following = iter(arrays)
        fields: Fields = tuple({} for _ in range(self.windows))
        coords: Fields = tuple({} for _ in range(self.windows))
        requests = []
        for each in self.variables:
            variable, axis = each.variable, each.variable.time_axis
            pinned = self.record.index is not None and axis is not None
            dims = variable.drop_time(variable.info.dims) if pinned else variable.info.dims
            outs = [next(following) for _ in range(self.windows)]
            for named, out in zip(coords if each.is_coord else fields, outs, strict=True):
                named[variable.info.name] = NativeField(out, dims, variable.attrs)
            full = [np.expand_dims(out, axis) for out in outs] if pinned and axis is not None else outs
            kept = each.span if keep is not None and each.span in keep.spans else False
            requests.append(ArrayRequest(variable.info, variable.spec, each.plan, tuple(full), kept))
        return fields, coords, requests


def _span(variable: Variable, record: RecordRef) -> ChunkSpan | None:
    """Give the records that lie in the same chunks of a variable as a record; None for one without time."""
    axis = variable.time_axis
    if axis is None or record.index is None:
        return None
    first = record.index - record.index % variable.info.chunks[axis]
    stop = min(first + variable.info.chunks[axis], variable.info.shape[axis])
    return ChunkSpan(record.identity, first, stop)


def _at_record(
    variable: Variable, axes: tuple[Span | Points, ...], index: int | None
) -> tuple[Span | Points, ...]:
    """Pin the time axis of a variable to one record."""
    axis = variable.time_axis
    if axis is None or index is None:
        return axes
    return (*axes[:axis], Span(index, index + 1), *axes[axis + 1 :])
