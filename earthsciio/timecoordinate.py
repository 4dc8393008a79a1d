"""Which variable of a file dates its records, and the time axis that it holds.

It is named like the time dimension, or lies along it and has units of time: spec/time.md, section 2. What
dates a field depends on the file and on that field, never on what else is delivered, so that two sources
of the same file can't disagree about the time of a record.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

import numpy as np

from .calendars import Calendar
from .decode.abort import AbortToken
from .decode.plan import plan_reads
from .decode.reference import ArrayRequest, decode_reference
from .decode.values import ValueOptions, ValueSpec, value_spec
from .errors import TimeAxisError, TooLarge
from .fields import Array
from .formats.base import ArrayInfo, OpenFile, Reader
from .selection import Span
from .timeaxis import TimeAxis, decode_axis

__all__ = [
    "find_time_coordinate",
    "has_time_units",
    "named_words",
    "read_time_axis",
    "refuse_other_time_dimension",
]

#: Records that a time axis may have, which is read whole: every second of two years.
MOST_RECORDS = 1 << 26

Arrays = Mapping[str, ArrayInfo]


def named_words(info: ArrayInfo, attribute: str) -> list[str]:
    """List the variables that an attribute names."""
    value = info.attrs.get(attribute)
    return value.replace(":", " ").split() if isinstance(value, str) else []


def find_time_coordinate(arrays: Arrays, wanted: Collection[str], time_dim: str, path: str) -> str | None:
    """Find the variable that dates the records of a file.

    One named like the dimension that has no units at all is a mere index, if another dates the records.

    Parameters
    ----------
    arrays : mapping of str to ArrayInfo
        Every variable of the file.
    wanted : collection of str
        Those that are to be delivered.
    time_dim : str
        The dimension that holds records.
    path : str
        For errors.

    Returns
    -------
    str or None
        Its name; None if the file has none.

    Raises
    ------
    TimeAxisError
        If there are several, the fields disagree, or a variable that it could be can't be read.
    """
    namesake = arrays.get(time_dim)
    _refuse_damaged([time_dim], arrays, path)
    if namesake is not None and namesake.dims not in ((time_dim,), ()):
        namesake = None
    if namesake is not None and "units" in namesake.attrs:
        return time_dim
    _refuse_damaged(arrays, arrays, path)  # any could be another that dates them
    dated = _dated(arrays, time_dim)
    if not dated:
        return None if namesake is None else time_dim
    found: dict[str, str] = {}
    # without a field to ask, any variable will do that names none
    for name in [n for n in wanted if n not in dated and time_dim in arrays[n].dims] or dated[:1]:
        several = _that_date(arrays, dated, name)
        if len(several) > 1:
            raise TimeAxisError(
                f"several variables could date the records along {time_dim!r}: {several}",
                file=path, variable=name,
                hint="Name one of them in the field's `coordinates` attribute, in the files",
            )  # fmt: skip
        found.setdefault(several[0], name)
    if len(found) > 1:
        fields = " and ".join(f"{name!r} by {time!r}" for time, name in found.items())
        raise TimeAxisError(
            f"the fields of one source are dated by several variables: {fields}",
            file=path, hint="Declare them as sources of their own",
        )  # fmt: skip
    return next(iter(found))


def _refuse_damaged(names: Iterable[str], arrays: Arrays, path: str) -> None:
    """Refuse to date records without a variable that may be the one to do it: nobody can tell what it is."""
    for name in names:
        if name in arrays and arrays[name].damaged:
            raise TimeAxisError(
                f"{name!r} may date the records, but {arrays[name].unsupported}",
                file=path, variable=name, hint="Fetch the file again",
            )  # fmt: skip


def _that_date(arrays: Arrays, dated: list[str], field: str) -> list[str]:
    """Give those that could date a field, told apart by three signs, one after the other."""
    signs = (
        named_words(arrays[field], "coordinates"),
        [name for name in dated if arrays[name].attrs.get("standard_name") == "time"],
        [word for info in arrays.values() for word in named_words(info, "coordinates")],
    )
    for sign in signs:
        if len(dated) > 1:
            dated = [name for name in dated if name in sign] or dated
    return dated


def _dated(arrays: Arrays, time_dim: str) -> list[str]:
    """List the 1-D variables along a dimension that have units of time."""
    return [name for name, info in arrays.items() if info.dims == (time_dim,) and has_time_units(info.attrs)]


def has_time_units(attrs: Mapping[str, object]) -> bool:
    """Whether a variable counts from a date, by its attributes."""
    return " since " in str(attrs.get("units", "")).lower()


def refuse_other_time_dimension(arrays: Arrays, wanted: Collection[str], time_dim: str, path: str) -> None:
    """Refuse to take all records of a file for one, where only their dimension has another name.

    Raises
    ------
    TimeAxisError
        If a dimension of the wanted variables is dated.
    """
    carried = {dim for name in wanted for dim in arrays[name].dims}
    for name, info in arrays.items():
        if len(info.dims) == 1 and info.dims[0] in carried and has_time_units(info.attrs):
            raise TimeAxisError(
                f"there is no dimension {time_dim!r}, but {name!r} dates records along {info.dims[0]!r}",
                file=path, variable=name, hint=f"Declare time_dim={info.dims[0]!r}",
            )  # fmt: skip


def read_time_axis(
    file: OpenFile, name: str, time_dim: str, reader: Reader, options: ValueOptions, own: Calendar, path: str
) -> TimeAxis:
    """Read and decode the time coordinate of a file.

    Parameters
    ----------
    file, path
        The open file, and its name for errors.
    name, time_dim : str
        The time coordinate, and the dimension that it dates.
    reader, options
        The reader's options.
    own : Calendar
        The source's.

    Raises
    ------
    TimeAxisError
        If it can't be decoded.
    """
    info = file.arrays[name]
    try:
        return _decoded(file, info, reader, options, own, path)
    except TimeAxisError as error:
        others = [other for other in _dated(file.arrays, time_dim) if other != name]
        if others:
            error.hint = f"{error.hint}. There are dates in {others}, too"
        raise


def _decoded(
    file: OpenFile, info: ArrayInfo, reader: Reader, options: ValueOptions, own: Calendar, path: str
) -> TimeAxis:
    records = math.prod(info.shape)
    if records > MOST_RECORDS:
        raise TimeAxisError(
            f"{records} records are more than {MOST_RECORDS} in one file", file=path, variable=info.name,
            hint="A time axis is read whole. If there should be fewer, the file is damaged",
        )  # fmt: skip
    raw: Array = np.empty(info.shape, dtype=info.dtype.newbyteorder("="))
    if info.unsupported or raw.dtype.kind not in "iuf":
        raise TimeAxisError(
            f"the time coordinate holds {info.dtype}, not numbers", file=path, variable=info.name
        )
    try:
        plan = plan_reads(info.shape, info.chunks, [[Span(0, size) for size in info.shape]])
    except TooLarge as error:
        raise TimeAxisError(f"the time axis can't be read: {error}", file=path, variable=info.name) from None
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
        variable=info.name,
        valid=None if missing is None else ~missing,
        sort=reader.sort_time,
        months_opt_in=reader.whole_months,
    )
