"""Arrays, attributes and samples as JSON that keeps every bit.

Numbers are JSON numbers where those are exact for every reader, and text where they may not be: integers
beyond 2**53, ``-0.0``, infinities and NaN, the latter with its bits (``"nan:7ff8000000000000"``) unless they
are those of the quiet NaN that stands for missing. Two samples are equal, bit for bit, if their JSON is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

__all__ = ["Json", "array", "attributes", "dataset", "field", "number"]

Json: TypeAlias = Any
_EXACT = 2**53
_QUIET = {2: 0x7E00, 4: 0x7FC00000, 8: 0x7FF8000000000000}


def number(value: Any) -> Json:
    """Write one number, NumPy scalar or text."""
    if isinstance(value, str):
        return value
    if isinstance(value, (complex, np.complexfloating)):
        width = np.asarray(value).real.dtype.type
        return [number(width(value.real)), number(width(value.imag))]
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return int(value) if abs(int(value)) <= _EXACT else str(int(value))
    if isinstance(value, (float, np.floating)):
        return _float(np.asarray(value))
    raise TypeError(f"no JSON for {value!r}")


def _float(value: np.ndarray[Any, Any]) -> Json:
    plain = float(value)
    if math.isnan(plain):
        bits = int.from_bytes(value.astype(value.dtype.newbyteorder("<")).tobytes(), "little")
        return "nan" if bits == _QUIET[value.itemsize] else f"nan:{bits:0{2 * value.itemsize}x}"
    if math.isinf(plain):
        return "inf" if plain > 0 else "-inf"
    if plain == 0 and math.copysign(1, plain) < 0:
        return "-0.0"
    return plain  # Python writes the shortest text that reads back as the same double


def array(values: Any) -> Json:
    """Write an array: dtype (``"text"`` for str), shape, and the elements in C order."""
    values = np.asarray(values)
    dtype = "text" if values.dtype.kind in "OU" else values.dtype.name
    elements = values.reshape(-1)
    items = elements.tolist() if dtype == "text" else list(elements)  # scalars keep their width, NaN its bits
    return {"dtype": dtype, "shape": list(values.shape), "data": [number(item) for item in items]}


def attributes(attrs: Mapping[str, Any]) -> Json:
    """Write attributes: text and lists of text as they are, numbers with their dtype."""
    return {name: _attribute(attrs[name]) for name in sorted(attrs)}


def _attribute(value: Any) -> Json:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return value
    values = np.asarray(value)
    data = [number(item) for item in values.reshape(-1)]
    return {"dtype": values.dtype.name, "data": data if values.ndim else data[0]}


def field(dims: Sequence[str], values: Any, attrs: Mapping[str, Any] | None = None) -> Json:
    """Write a field or coordinate."""
    return {"dims": list(dims), **array(values), "attrs": attributes(attrs or {})}


def dataset(
    times: Sequence[str], fields: Mapping[str, Json], coords: Mapping[str, Json] | None = None
) -> Json:
    """Write a sample; `fields` in their order, coordinates by name."""
    return {
        "times": list(times),
        "fields": [{"name": name, **written} for name, written in fields.items()],
        "coords": {name: (coords or {})[name] for name in sorted(coords or {})},
    }
