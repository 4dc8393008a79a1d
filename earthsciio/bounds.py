"""Windows from degrees: which indices of a coordinate axis lie inside bounds.

Axes are as files have them: latitude from north or from south, longitude in either convention, single
precision, unevenly spaced, with or without a cyclic point. Membership is decided by bisection with a
tolerance of a thousandth of the local spacing, so that a bound that meant a grid point gets it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import SelectionError
from .selection import Span, Window, _as_selector

__all__ = ["window_from_bounds"]

_TOLERANCE = 1e-3
_CIRCLE = 360.0


def window_from_bounds(coords: Mapping[str, Any], bounds: Mapping[str, tuple[float, float]]) -> Window:
    """Select the points of 1-D coordinates that lie inside bounds, both ends included.

    Parameters
    ----------
    coords : mapping of str to array or NativeField
        Coordinates by dimension name: ``provider.coords``, a dataset's ``coords``, or plain arrays of
        shape ``(n,)`` in degrees.
    bounds : mapping of str to (float, float)
        Lower and upper bound per dimension, in either order for all but longitudes. Of a longitude the
        first is the western edge, so ``(350, 10)`` and ``(-10, 10)`` are the same 20 degrees.

    Returns
    -------
    Window
        A slice where the points are neighbours in file order; for a longitude that wraps, indices from
        west to east. A cyclic point (0 and 360) is taken once.

    Raises
    ------
    SelectionError
        If a coordinate is missing, not 1-D or not monotonic, or no point lies inside.
    """
    dims: dict[str, Any] = {}
    for dim, (first, second) in bounds.items():
        if dim not in coords:
            raise SelectionError(f"no coordinate {dim!r}", hint=f"There are {list(coords)}")
        coordinate = coords[dim]
        axis = np.asarray(getattr(coordinate, "data", coordinate), dtype=np.float64)
        if axis.ndim != 1 or not np.all(np.isfinite(axis)):
            raise SelectionError(
                f"coordinate {dim!r} of shape {axis.shape} is no axis: 1-D and finite is needed"
            )
        if _is_longitude(dim, getattr(coordinate, "attrs", {})):
            dims[dim] = _longitudes(axis, float(first), float(second))
        else:
            dims[dim] = _between(dim, axis, *sorted((float(first), float(second))))
        if len(dims[dim]) == 0:
            raise SelectionError(
                f"no point of {dim!r} lies in [{first}, {second}]",
                hint=f"The axis runs from {axis.min()} to {axis.max()}" if axis.size else "The axis is empty",
            )
    return Window(dims)


def _is_longitude(dim: str, attrs: Mapping[str, Any]) -> bool:
    # CF section 4.2: a longitude is known by its units or standard name; a plain array by its name
    units = str(attrs.get("units", "")).replace("_", "").lower()
    if (
        units in {"degreeseast", "degreeeast", "degreese", "degreee"}
        or attrs.get("standard_name") == "longitude"
    ):
        return True
    return (not units and dim.lower().startswith("lon")) or dim.lower() in {"lon", "longitude"}


def _spacing(axis: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Give the distance of each point to its nearest neighbour on a sorted axis."""
    if len(axis) < 2:
        return np.ones(len(axis))
    steps = np.abs(np.diff(axis))
    nearest: npt.NDArray[np.float64] = np.minimum(
        np.concatenate([steps[:1], steps]), np.concatenate([steps, steps[-1:]])
    )
    return nearest


def _between(dim: str, axis: npt.NDArray[np.float64], low: float, high: float) -> Span:
    descending = len(axis) > 1 and axis[0] > axis[-1]
    rising = axis[::-1] if descending else axis
    if np.any(np.diff(rising) <= 0):
        raise SelectionError(f"coordinate {dim!r} is not monotonic")
    slack = _TOLERANCE * _spacing(rising)
    start = int(np.searchsorted(rising + slack, low, side="left"))
    stop = max(int(np.searchsorted(rising - slack, high, side="right")), start)
    return Span(len(axis) - stop, len(axis) - start) if descending else Span(start, stop)


def _longitudes(axis: npt.NDArray[np.float64], west: float, east: float) -> Any:
    width = _CIRCLE if east - west >= _CIRCLE else (east - west) % _CIRCLE
    order = np.argsort((axis - west) % _CIRCLE, kind="stable")
    offset = ((axis - west) % _CIRCLE)[order]
    steps = np.diff(np.concatenate([offset, offset[:1] + _CIRCLE])) if len(axis) > 1 else np.array([_CIRCLE])
    distinct = steps[steps > 1e-6]
    slack = _TOLERANCE * (float(distinct.min()) if distinct.size else 1.0)
    # a point a hair west of the western edge has an offset of almost a full circle
    offset = np.where(offset > _CIRCLE - slack, offset - _CIRCLE, offset)
    order, offset = order[np.argsort(offset, kind="stable")], np.sort(offset, kind="stable")
    inside = offset <= width + slack
    order, offset = order[inside], offset[inside]
    if len(offset):
        again = np.concatenate([[False], np.diff(offset) <= slack])
        again[-1] |= len(offset) > 1 and offset[-1] - offset[0] >= _CIRCLE - slack
        order = order[~again]
    return _as_selector(order)
