"""What a source delivers from one file: which variables are fields and coordinates, and how they decode.

Worked out once per version of a file, from its metadata alone, by spec/values.md rule 9 and the time rules
of spec/time.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .decode.values import ValueOptions, ValueSpec, value_spec
from .errors import FileFormatError, NotATimeAxis, Unsupported, VariableNotFound
from .formats.base import ArrayInfo, OpenFile, Reader
from .source import SourceTemporal
from .timeaxis import TimeAxis
from .timecoordinate import find_time_coordinate, named_words, read_time_axis, refuse_other_time_dimension

__all__ = ["Contents", "Variable", "read_contents"]

_VALID_BOUNDS = ("valid_range", "valid_min", "valid_max")


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
        """The attributes that decoding did not use up, and that still hold for what comes out."""
        spec = self.spec
        used = set(spec.used)
        reread = "_Unsigned" in used and spec.native.kind != spec.stored.kind
        if spec.packed or reread or spec.low is not None or spec.high is not None:
            used.update(_VALID_BOUNDS)  # in terms of what is stored, or applied
        return {name: value for name, value in self.info.attrs.items() if name not in used}

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
        By on-disk name; fields in the order of the declaration, else of the file. The time coordinate of a
        DISCRETE source is not among them, unless the declaration names it as a field.
    sizes : mapping of str to int
        Length of every dimension of theirs.
    time_name : str
        Name of the time coordinate: the file's, else that of the time dimension; empty for a CONST source,
        or where another variable has that name.
    axis : TimeAxis or None
        Its records; None if the file has no time coordinate.
    records : int or None
        Length of the time dimension; None if the file has none, and is one record as a whole.
    left_out : mapping of str to str
        Coordinates that nobody named and that can't be delivered, and why.
    """

    identity: tuple[Any, ...]
    fields: Mapping[str, Variable]
    coords: Mapping[str, Variable]
    sizes: Mapping[str, int]
    time_name: str
    axis: TimeAxis | None
    records: int | None
    left_out: Mapping[str, str]

    def dims(self, of: Mapping[str, Variable]) -> dict[str, tuple[str, ...]]:
        """Give the file-order dimensions of variables."""
        return {name: variable.info.dims for name, variable in of.items()}

    def bracket_axes(self) -> dict[str, int]:
        """Say where a bracket puts the time dimension.

        Where the file has it, and first in every field of a file that is one record as a whole. Not in the
        time coordinate, which a bracket does not stack but makes.
        """
        if self.records is None:
            axes = dict.fromkeys(self.fields, 0)
        else:
            every = {**self.coords, **self.fields}
            axes = {name: each.time_axis for name, each in every.items() if each.time_axis is not None}
        axes.pop(self.time_name, None)
        return axes


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
    names = list(variables) or _data_variables(file)
    for name in names:
        if name not in arrays:
            raise VariableNotFound(
                f"there is no variable {name!r}", file=path, variable=name, hint=f"There are {list(arrays)}"
            )
    options = ValueOptions(reader.precision, reader.mask_valid_range, reader.default_fill)
    time_dim = None if temporal is None else temporal.time_dim

    def variable(name: str) -> Variable:
        info = arrays[name]
        info.check_readable(path)
        if info.unsupported:
            raise Unsupported(
                f"{info.unsupported}, which can't be delivered",
                file=path, variable=name, hint="List the variables you want in the source's `variables`",
            )  # fmt: skip
        spec = value_spec(name, info.dtype, info.attrs, options)
        return Variable(info, spec, info.dims.index(time_dim) if time_dim in info.dims else None)

    time_name = None if time_dim is None else find_time_coordinate(arrays, names, time_dim, path)
    fields = {name: variable(name) for name in names if variables or name != time_name}
    carried = [set(field.info.dims) for field in fields.values()]
    wanted = [
        name for name in _coordinate_names(arrays, fields)
        if name not in fields and name != time_name and _is_carried(arrays[name], carried)
    ]  # fmt: skip
    left_out = {name: str(arrays[name].unsupported) for name in wanted if arrays[name].unsupported}
    coords = {name: variable(name) for name in wanted if name not in left_out}
    sizes = _sizes({**coords, **fields}, path)
    axis = None
    if temporal is not None and time_name is not None:
        own = temporal.cadence.calendar
        try:
            axis = read_time_axis(file, time_name, temporal.time_dim, reader, options, own, path)
        except NotATimeAxis:
            if temporal.outside != "cycle":  # a climatology may number its records without dating them
                raise
    # whichever variable carries it, whether it is delivered or not
    lengths = (info.shape[info.dims.index(time_dim)] for info in arrays.values() if time_dim in info.dims)
    records = next(lengths, None)
    if time_dim is not None and time_name is None and records is None:
        refuse_other_time_dimension(arrays, fields, time_dim, path)
    if time_name is None:
        time_name = "" if time_dim is None or time_dim in {**fields, **coords} else time_dim
    return Contents(identity, fields, coords, sizes, time_name, axis, records, left_out)


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


def _coordinate_names(arrays: Mapping[str, ArrayInfo], of: Mapping[str, Any]) -> list[str]:
    """Name the coordinates of variables, in file order: by dimension and by ``coordinates`` attribute."""
    named = {word for name in of for word in named_words(arrays[name], "coordinates")}
    dims = {dim for name in of for dim in arrays[name].dims}
    return [
        name
        for name, info in arrays.items()
        if name in named or (name in dims and (name in info.dims or info.damaged))
    ]


def _data_variables(file: OpenFile) -> list[str]:
    """Name the variables that are neither coordinates nor their bounds nor grid mappings."""
    arrays = file.arrays
    helpers: set[str] = set(_coordinate_names(arrays, arrays))
    for info in arrays.values():
        for attribute in ("bounds", "climatology", "grid_mapping"):
            helpers.update(named_words(info, attribute))
    return [name for name in arrays if name in file.own and name not in helpers]


def _is_carried(info: ArrayInfo, carried: list[set[str]]) -> bool:
    return any(dims.issuperset(info.dims) for dims in carried)
