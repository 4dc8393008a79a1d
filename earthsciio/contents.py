"""What a source delivers from one file: which variables are fields and coordinates, and how they decode.

Worked out once per version of a file, from its metadata alone, by spec/values.md rule 9 and the time rules
of spec/time.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .calendars import Calendar
from .decode.abort import AbortToken
from .decode.plan import plan_reads
from .decode.reference import ArrayRequest, decode_reference
from .decode.values import ValueOptions, ValueSpec, value_spec
from .errors import FileFormatError, NotATimeAxis, TimeAxisError, Unsupported, VariableNotFound
from .fields import Array
from .formats.base import ArrayInfo, OpenFile, Reader
from .selection import Span
from .source import SourceTemporal
from .timeaxis import TimeAxis, decode_axis

__all__ = ["Contents", "Variable", "read_contents"]


@dataclass(frozen=True, slots=True)
class Variable:
    """A field or coordinate of a file.

    Attributes
    ----------
    info : ArrayInfo
        The stored array.
    spec : ValueSpec
        How it decodes.
    time_axis : int or None
        Which axis holds records; None if none does.
    """

    info: ArrayInfo
    spec: ValueSpec
    time_axis: int | None

    @property
    def attrs(self) -> dict[str, Any]:
        """The attributes that decoding did not use up."""
        return {name: value for name, value in self.info.attrs.items() if name not in self.spec.used}

    def drop_time(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Leave the entry of the time axis out of a per-axis tuple."""
        axis = self.time_axis
        return values if axis is None else values[:axis] + values[axis + 1 :]


@dataclass(frozen=True, slots=True)
class Contents:
    """What a source delivers from one version of one file.

    Attributes
    ----------
    identity : tuple
        Which version of which file.
    fields, coords : mapping of str to Variable
        By on-disk name; fields in the order of the declaration, else of the file. The time coordinate is
        not among `coords` of a DISCRETE source.
    sizes : mapping of str to int
        Length of every dimension of theirs.
    time_name : str
        Name of the time coordinate: the file's, else that of the time dimension; empty for a CONST source.
    axis : TimeAxis or None
        Its records; None if the file has no time coordinate.
    records : int or None
        Length of the time dimension; None if the file has none, and is one record as a whole.
    """

    identity: tuple[Any, ...]
    fields: Mapping[str, Variable]
    coords: Mapping[str, Variable]
    sizes: Mapping[str, int]
    time_name: str
    axis: TimeAxis | None
    records: int | None

    def dims(self, of: Mapping[str, Variable]) -> dict[str, tuple[str, ...]]:
        """Give the file-order dimensions of variables."""
        return {name: variable.info.dims for name, variable in of.items()}

    def bracket_axes(self) -> dict[str, int]:
        """Say where a bracket puts the time dimension.

        Where the file has it, and first in every field of a file that is one record as a whole.
        """
        if self.records is None:
            return dict.fromkeys(self.fields, 0)
        every = {**self.coords, **self.fields}
        return {name: each.time_axis for name, each in every.items() if each.time_axis is not None}


def read_contents(
    file: OpenFile,
    identity: tuple[Any, ...],
    path: str,
    reader: Reader,
    variables: tuple[str, ...],
    temporal: SourceTemporal | None,
) -> Contents:
    """Work out what a source delivers from a file.

    Parameters
    ----------
    file, identity, path
        The open file, its version and its name.
    reader : Reader
        Its options decide how values come out.
    variables : tuple of str
        What the source declares; empty for all data variables.
    temporal : SourceTemporal or None
        How the source's times run; None for a CONST source.

    Raises
    ------
    VariableNotFound
        If a declared variable is not in the file.
    Unsupported
        If a variable to be delivered has a type that can't be.
    FileFormatError
        If two variables to be delivered disagree about a dimension's length.
    TimeAxisError
        If the time coordinate can't be decoded.
    """
    arrays = file.arrays
    names = variables or tuple(_data_variables(file))
    for name in names:
        if name not in arrays:
            raise VariableNotFound(
                f"there is no variable {name!r}", file=path, variable=name, hint=f"There are {list(arrays)}"
            )
    options = ValueOptions(reader.precision, reader.mask_valid_range, reader.default_fill)
    time_dim = None if temporal is None else temporal.time_dim

    def variable(name: str) -> Variable:
        info = arrays[name]
        if info.unsupported:
            raise Unsupported(
                f"{info.unsupported}, which can't be delivered",
                file=path, variable=name, hint="List the variables you want in the source's `variables`",
            )  # fmt: skip
        spec = value_spec(name, info.dtype, info.attrs, options)
        return Variable(info, spec, info.dims.index(time_dim) if time_dim in info.dims else None)

    fields = {name: variable(name) for name in names}
    time_name = None if time_dim is None else _time_coordinate(arrays, fields, time_dim, path)
    carried = [set(field.info.dims) for field in fields.values()]
    coords = {
        name: variable(name)
        for name in _coordinate_names(arrays, fields)
        if name not in fields and name != time_name and _is_carried(arrays[name], carried)
    }
    sizes = _sizes({**coords, **fields}, path)
    axis = None
    if temporal is not None and time_name is not None:
        try:
            axis = _time_axis(file, arrays[time_name], reader, options, temporal.cadence.calendar, path)
        except NotATimeAxis:
            if temporal.outside != "cycle":  # a climatology may number its records without dating them
                raise
    # whichever variable carries it, whether it is delivered or not
    lengths = (info.shape[info.dims.index(time_dim)] for info in arrays.values() if time_dim in info.dims)
    records = next(lengths, None)
    if time_dim is not None and time_name is None and records is None:
        _refuse_other_time_dimension(arrays, fields, time_dim, path)
    return Contents(identity, fields, coords, sizes, time_name or time_dim or "", axis, records)


def _sizes(variables: Mapping[str, Variable], path: str) -> dict[str, int]:
    """Give the length of every dimension; a store may hold two of them under one name."""
    sizes: dict[str, int] = {}
    for name, variable in variables.items():
        for dim, size in zip(variable.info.dims, variable.info.shape, strict=True):
            if sizes.setdefault(dim, size) != size:
                raise FileFormatError(
                    f"dimension {dim!r} has length {size}, but {sizes[dim]} in other variables",
                    file=path, variable=name, hint="It may be half written; else leave variables out",
                )  # fmt: skip
    return sizes


def _words(info: ArrayInfo, attribute: str) -> list[str]:
    value = info.attrs.get(attribute)
    return value.replace(":", " ").split() if isinstance(value, str) else []


def _coordinate_names(arrays: Mapping[str, ArrayInfo], of: Mapping[str, Any]) -> list[str]:
    """Name the coordinates of variables, in file order: by dimension and by ``coordinates`` attribute."""
    named = {word for name in of for word in _words(arrays[name], "coordinates")}
    dims = {dim for name in of for dim in arrays[name].dims}
    return [name for name, info in arrays.items() if name in named or (name in dims and name in info.dims)]


def _data_variables(file: OpenFile) -> list[str]:
    """Name the variables that are neither coordinates nor their bounds nor grid mappings."""
    arrays = file.arrays
    helpers: set[str] = set(_coordinate_names(arrays, arrays))
    for info in arrays.values():
        for attribute in ("bounds", "climatology", "grid_mapping"):
            helpers.update(_words(info, attribute))
    return [name for name in arrays if name in file.own and name not in helpers]


def _is_carried(info: ArrayInfo, carried: list[set[str]]) -> bool:
    return any(dims.issuperset(info.dims) for dims in carried)


def _time_coordinate(
    arrays: Mapping[str, ArrayInfo], fields: Mapping[str, Variable], time_dim: str, path: str
) -> str | None:
    """Find the variable that dates the records: named like the dimension, or with time units on it.

    One named like the dimension that has no units at all is a mere index, if another dates the records.
    """
    namesake = arrays.get(time_dim)
    if namesake is not None and namesake.dims not in ((time_dim,), ()):
        namesake = None
    if namesake is not None and "units" in namesake.attrs:
        return time_dim
    dated = [
        name
        for name, info in arrays.items()
        if info.dims == (time_dim,) and _is_dated(info) and name not in fields
    ]
    named = [word for field in fields.values() for word in _words(field.info, "coordinates")]
    preferred = [name for name in dated if name in named] or dated
    if len(preferred) > 1:
        standard = [name for name in preferred if arrays[name].attrs.get("standard_name") == "time"]
        preferred = standard or preferred
    if len(preferred) > 1:
        raise TimeAxisError(
            f"several variables could date the records along {time_dim!r}: {preferred}",
            file=path, hint="Name one of them in the fields' `coordinates` attribute",
        )  # fmt: skip
    if not preferred:
        return None if namesake is None else time_dim
    return preferred[0]


def _refuse_other_time_dimension(
    arrays: Mapping[str, ArrayInfo], fields: Mapping[str, Variable], time_dim: str, path: str
) -> None:
    """Refuse to take all records of a file for one, where only their dimension has another name."""
    carried = {dim for field in fields.values() for dim in field.info.dims}
    for name, info in arrays.items():
        if len(info.dims) == 1 and info.dims[0] in carried and _is_dated(info):
            raise TimeAxisError(
                f"there is no dimension {time_dim!r}, but {name!r} dates records along {info.dims[0]!r}",
                file=path, variable=name, hint=f"Declare time_dim={info.dims[0]!r}",
            )  # fmt: skip


def _is_dated(info: ArrayInfo) -> bool:
    return " since " in str(info.attrs.get("units", "")).lower()


def _time_axis(
    file: OpenFile, info: ArrayInfo, reader: Reader, options: ValueOptions, own: Calendar, path: str
) -> TimeAxis:
    raw: Array = np.empty(info.shape, dtype=info.dtype.newbyteorder("="))
    if info.unsupported or raw.dtype.kind not in "iuf":
        raise TimeAxisError(
            f"the time coordinate holds {info.dtype}, not numbers", file=path, variable=info.name
        )
    plan = plan_reads(info.shape, info.chunks, [[Span(0, size) for size in info.shape]])
    stored = ValueSpec(info.name, info.dtype, raw.dtype, raw.dtype)
    decode_reference(file, [ArrayRequest(info, stored, plan, (raw,))], AbortToken())
    spec = value_spec(info.name, info.dtype, info.attrs, options)
    native = raw.view(spec.native)
    missing = spec.missing(native)
    units, calendar = (info.attrs.get(name) for name in ("units", "calendar"))
    return decode_axis(
        spec.convert(raw) if spec.packed else native,
        units if isinstance(units, str) else None,
        None if calendar is None else str(calendar),
        own,
        file=path,
        valid=None if missing is None else ~missing,
        sort=reader.sort_time,
        months_opt_in=reader.whole_months,
    )
