"""What a read returns: named arrays with their dimensions and attributes, nothing more.

A :class:`NativeField` is one variable in the file's own dimension order and units; a
:class:`NativeDataset` is the fields of one sample with the coordinates they carry and the stamps of the
records they were decoded from. Neither knows files, windows or providers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import cftime
import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import xarray

__all__ = ["NativeDataset", "NativeField", "Time", "to_xarray"]

Array: TypeAlias = npt.NDArray[Any]
#: An aware UTC ``datetime`` for standard calendars, a ``cftime.datetime`` for the others.
Time: TypeAlias = datetime | cftime.datetime


class NativeField:
    """One variable.

    Parameters
    ----------
    data : numpy.ndarray
        Values; ``data.ndim == len(dims)``. Missing values of float fields are NaN.
    dims : sequence of str
        Dimension names, in the order of the axes of `data`.
    attrs : mapping, optional
        The attributes of the variable on disk, less those that decoding used up.
    """

    __slots__ = ("attrs", "data", "dims")

    def __init__(
        self, data: Array, dims: tuple[str, ...] | list[str], attrs: Mapping[str, Any] | None = None
    ) -> None:
        self.data = data
        self.dims = tuple(dims)
        self.attrs: dict[str, Any] = dict(attrs or {})
        if data.ndim != len(self.dims):
            raise ValueError(f"{data.ndim} axes, but dims {self.dims}")

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis."""
        return self.data.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self.data.dtype

    def __repr__(self) -> str:
        sizes = ", ".join(f"{dim}: {size}" for dim, size in zip(self.dims, self.shape, strict=True))
        return f"<NativeField ({sizes}) {self.dtype}>"


class NativeDataset:
    """The fields of one sample and the coordinates they carry.

    Parameters
    ----------
    variables : mapping of str to NativeField
        The fields, keyed by their on-disk names.
    coords : mapping of str to NativeField, optional
        The coordinates, keyed likewise.
    times : sequence of datetime or cftime.datetime, optional
        Stamps of the records behind the sample: one, two for a bracket, none for a constant.
    """

    # a PrefetchGroup that has let go of a sample finds it again as long as the consumer holds it
    __slots__ = ("__weakref__", "_coords", "_variables", "times")

    def __init__(
        self,
        variables: Mapping[str, NativeField],
        coords: Mapping[str, NativeField] | None = None,
        times: tuple[Time, ...] | list[Time] = (),
    ) -> None:
        self._variables = dict(variables)
        self._coords = dict(coords or {})
        self.times: tuple[Time, ...] = tuple(times)

    @property
    def variables(self) -> Mapping[str, NativeField]:
        """The fields by name (a read-only view)."""
        return MappingProxyType(self._variables)

    @property
    def coords(self) -> Mapping[str, NativeField]:
        """The coordinates by name (a read-only view)."""
        return MappingProxyType(self._coords)

    def __getitem__(self, name: str) -> NativeField:
        found = self._variables.get(name, self._coords.get(name))
        if found is None:
            raise KeyError(f"no field or coordinate {name!r}; there are {[*self._variables, *self._coords]}")
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._variables or name in self._coords

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)

    def variable_names(self) -> list[str]:
        """Names of the fields."""
        return list(self._variables)

    def coord_names(self) -> list[str]:
        """Names of the coordinates."""
        return list(self._coords)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays; an array that stands twice counts once."""
        arrays = {id(f.data): f.data.nbytes for f in (*self._variables.values(), *self._coords.values())}
        return sum(arrays.values())

    def __repr__(self) -> str:
        times = [str(time) for time in self.times]
        return f"<NativeDataset {self._variables} coords={list(self._coords)} times={times}>"


def to_xarray(dataset: NativeDataset) -> xarray.Dataset:
    """Convert to an ``xarray.Dataset`` (needs xarray) that shares the arrays.

    Parameters
    ----------
    dataset : NativeDataset
        What a provider or group returned.

    Returns
    -------
    xarray.Dataset
        Same names, dims and attributes; nothing is decoded or renamed.
    """
    import xarray as xr

    def variables(
        fields: Mapping[str, NativeField],
    ) -> dict[str, tuple[tuple[str, ...], Array, dict[str, Any]]]:
        return {name: (field.dims, field.data, field.attrs) for name, field in fields.items()}

    return xr.Dataset(variables(dataset.variables), coords=variables(dataset.coords))
