"""What the files hold, from netCDF4 without any of its conversions, decoded here; and when, from cftime.

Written from spec/values.md and spec/time.md; nothing of the library is used, so that nothing of it can agree
with itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import cftime
import netCDF4
import numpy as np
from catalogue import Series

__all__ = ["Expected", "FileTruth", "bracket", "read_file"]

#: What cftime can't read, said otherwise.
_UNITS = {"days since Jan 1, 2000": "days since 2000-01-01"}
_DEFAULT_FILL = 9.969209968386869e36
_SECONDS = "seconds since 1970-01-01"

#: Dimensions and values of a variable.
Array = tuple[tuple[str, ...], np.ndarray]


@dataclass(frozen=True, slots=True)
class Expected:
    """What a sample must be: fields in order, coordinates, and the stamps of its records."""

    fields: dict[str, Array]
    coords: dict[str, Array]
    stamps: tuple[cftime.datetime, ...] = ()


@dataclass(frozen=True, slots=True)
class FileTruth:
    """A file, decoded whole.

    Attributes
    ----------
    path : Path
        The file.
    whole : Expected
        All of it, the time coordinate as stored.
    time_dim, dated_by : str
        The dimension of records, and what dates them.
    stamps : tuple of cftime.datetime
        Of its records; none in a CONST file.
    """

    path: Path
    whole: Expected
    time_dim: str
    dated_by: str
    stamps: tuple[cftime.datetime, ...]

    def record(self, index: int) -> Expected:
        """Give one record."""

        def at(variables: dict[str, Array]) -> dict[str, Array]:
            return {name: self._at(array, index) for name, array in variables.items()}

        coords = {name: array for name, array in self.whole.coords.items() if name != self.dated_by}
        return Expected(at(self.whole.fields), at(coords), (self.stamps[index],))

    def _at(self, array: Array, index: int) -> Array:
        dims, data = array
        if self.time_dim not in dims:
            return array
        axis = dims.index(self.time_dim)
        # "..." keeps text without dimensions an array
        return (*dims[:axis], *dims[axis + 1 :]), data[(*(slice(None),) * axis, index, ...)]


def bracket(first: FileTruth, index: int, second: FileTruth, following: int) -> Expected:
    """Give two records as a bracket."""
    one, other = first.record(index), second.record(following)

    def stacked(name: str, mine: Array, its: Array, *, field: bool) -> Array:
        whole_file = not any(first.time_dim in dims for dims, _ in first.whole.fields.values())
        dims = {**first.whole.fields, **first.whole.coords}[name][0]
        if first.time_dim not in dims and not (field and whole_file):
            return mine
        axis = dims.index(first.time_dim) if first.time_dim in dims else 0
        joined = np.stack([mine[1], its[1]], axis)
        return (*mine[0][:axis], first.time_dim, *mine[0][axis:]), joined

    fields = {n: stacked(n, array, other.fields[n], field=True) for n, array in one.fields.items()}
    coords = {n: stacked(n, array, other.coords[n], field=False) for n, array in one.coords.items()}
    stamps = (*one.stamps, *other.stamps)
    seconds = [cftime.date2num(stamp, _SECONDS, stamp.calendar) for stamp in stamps]
    named = fields if first.dated_by in fields else coords  # spec: V7.2
    named[first.dated_by] = (first.time_dim,), np.array(seconds, dtype="f8")
    return Expected(fields, coords, stamps)


def read_file(series: Series, path: Path) -> FileTruth:
    """Read and decode one file of a series."""
    with netCDF4.Dataset(path) as file:
        fields = {name: _decoded(file[name]) for name in series.variables}
        coords = {name: _decoded(file[name]) for name in _coordinates(file, series.variables)}
        stamps = () if series.is_const else _stamps(file[series.dated_by])
        return FileTruth(path, Expected(fields, coords), series.time_dim, series.dated_by, stamps)


def _coordinates(file: netCDF4.Dataset, fields: tuple[str, ...]) -> list[str]:
    """Name the variables named like a dimension, and those that fields name, where a field spans them."""
    named = {word for name in fields for word in getattr(file[name], "coordinates", "").split()}
    spanned = [set(file[name].dimensions) for name in fields]
    return [
        name
        for name, variable in file.variables.items()
        if (name in named or name in variable.dimensions)
        and name not in fields
        and any(dims.issuperset(variable.dimensions) for dims in spanned)
    ]


def _decoded(variable: netCDF4.Variable) -> Array:
    variable.set_auto_maskandscale(False)
    raw = np.asarray(variable[...])
    if variable.dtype is str:
        return variable.dimensions, raw.astype(object)
    raw = raw.astype(raw.dtype.newbyteorder("="))
    attrs = {name: variable.getncattr(name) for name in variable.ncattrs()}
    masks = [attrs[name] for name in ("_FillValue", "missing_value") if name in attrs]
    if raw.dtype.kind == "f" and "_FillValue" not in attrs:
        masks.append(_DEFAULT_FILL)
    if raw.dtype.kind in "iu" and not masks and not {"scale_factor", "add_offset"} & set(attrs):
        return variable.dimensions, raw
    values = raw.astype("f8")
    if "scale_factor" in attrs:
        values = values * float(attrs["scale_factor"])
    if "add_offset" in attrs:
        values = values + float(attrs["add_offset"])
    missing = np.isin(raw, np.array(masks, raw.dtype)) | np.isnan(values)
    return variable.dimensions, np.where(missing, np.nan, values)


def _stamps(variable: netCDF4.Variable) -> tuple[cftime.datetime, ...]:
    variable.set_auto_maskandscale(False)
    numbers = np.atleast_1d(np.asarray(variable[...]))
    numbers = numbers.astype("i8" if numbers.dtype.kind == "i" else "f8")
    units = _UNITS.get(variable.units, variable.units)
    calendar = getattr(variable, "calendar", "standard")
    return tuple(cftime.num2date(numbers, units, calendar, only_use_cftime_datetimes=True))
