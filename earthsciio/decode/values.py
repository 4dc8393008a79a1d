"""From stored elements to values: the rules of spec/values.md, decided once per variable.

:func:`value_spec` reads a variable's dtype and attributes and settles everything that can be settled before
an element is seen: how the bits are read, what is missing, how to unpack, and the dtype that comes out. That
dtype depends on the declaration and the file alone, never on the Window or the values.
:meth:`ValueSpec.convert` is the exact, slow reference in NumPy; the engine's kernels do the same per element
and are tested against it, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from earthsciio.errors import DecodeError

if TYPE_CHECKING:
    from earthsciio.fields import Array

__all__ = ["DEFAULT_FLOAT_FILL", "ValueOptions", "ValueSpec", "value_spec"]

#: The value the NetCDF format gives unwritten floats (NC_FILL_FLOAT and NC_FILL_DOUBLE of netcdf.h).
DEFAULT_FLOAT_FILL = 9.9692099683868690e36

_BOUNDS = ("valid_range", "valid_min", "valid_max")


@dataclass(frozen=True, slots=True)
class ValueOptions:
    """The reader options that change values.

    Attributes
    ----------
    precision : {"float64", "source"}
        Width of floats that come out.
    mask_valid_range : bool
        Whether ``valid_range``, ``valid_min`` and ``valid_max`` mask.
    default_fill : bool
        Whether floats without a fill attribute take the NetCDF default fill as missing.
    """

    precision: str = "float64"
    mask_valid_range: bool = False
    default_fill: bool = True


@dataclass(frozen=True, slots=True)
class ValueSpec:
    """How the stored elements of one variable become values.

    Attributes
    ----------
    stored : numpy.dtype
        As on disk, byte order included.
    native : numpy.dtype
        The same width in native order, with the signedness that ``_Unsigned`` asks for.
    out : numpy.dtype
        What comes out.
    masked : tuple
        Stored values that mean missing, as scalars of `native`; NaN is in `mask_nan`.
    mask_nan : bool
        Whether NaN means missing.
    low, high : scalar or None
        Inclusive bounds in stored space, as scalars of `native`.
    scale, offset : float or None
        Unpacking; None where the attribute is absent or an identity on floats.
    used : frozenset of str
        Attributes that decoding used up.
    warnings : tuple of str
        What was ignored, and why.
    """

    variable: str
    stored: np.dtype[Any]
    native: np.dtype[Any]
    out: np.dtype[Any]
    masked: tuple[Any, ...] = ()
    mask_nan: bool = False
    low: Any = None
    high: Any = None
    scale: float | None = None
    offset: float | None = None
    used: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()

    @property
    def masks(self) -> bool:
        """Whether any element can come out missing."""
        return bool(self.masked) or self.mask_nan or self.low is not None or self.high is not None

    @property
    def packed(self) -> bool:
        """Whether elements are unpacked."""
        return self.scale is not None or self.offset is not None

    def convert(self, raw: Array) -> Array:
        """Convert stored elements.

        Parameters
        ----------
        raw : numpy.ndarray
            Elements of dtype `stored` (or `native`'s width in any order), any shape.

        Returns
        -------
        numpy.ndarray
            Same shape, dtype `out`, native byte order; missing is NaN.

        Raises
        ------
        DecodeError
            If a 64-bit integer that must become float64 has no exact float64.
        """
        if self.stored.kind == "O":
            return raw
        native = raw.astype(raw.dtype.newbyteorder("="), copy=False).view(self.native)
        if self.out == self.native and not self.masks and not self.packed:
            return native
        missing = self.missing(native)
        # what a file holds may overflow or be a signalling NaN: that is its value, not an event
        with np.errstate(all="ignore"):
            values = native.astype(np.float64)
            if self.native.kind in "iu" and self.native.itemsize == 8:
                self._check_exact(native, values, missing)
            if self.scale is not None:
                values *= self.scale
            if self.offset is not None:
                values += self.offset
            if self.native.kind == "f" and self.out == self.native and not self.packed:
                values = native.copy()  # the stored bits, NaN payloads included
            result = values.astype(self.out, copy=False)
        if missing is not None:
            result[missing] = np.nan
        return result

    def missing(self, native: Array) -> Array | None:
        """Give where elements (dtype `native`) are missing, as bool; None if none can be."""
        if not self.masks:
            return None
        missing = np.zeros(native.shape, dtype=bool)
        for value in self.masked:
            missing |= native == value
        if self.mask_nan:
            missing |= np.isnan(native)
        if self.low is not None:
            missing |= native < self.low
        if self.high is not None:
            missing |= native > self.high
        return missing

    def _check_exact(self, native: Array, values: Array, missing: Array | None) -> None:
        # 2**63 and 2**64 are floats that no int64 or uint64 holds: comparing there would overflow
        limit = 2.0 ** (63 if self.native.kind == "i" else 64)
        safe = values < limit
        exact = safe & (np.where(safe, values, 0.0).astype(self.native) == native)
        if missing is not None:
            exact |= missing
        if not exact.all():
            value = native[~exact].ravel()[0]
            raise DecodeError(
                f"the integer {value} has no exact float64",
                variable=self.variable,
                hint="Its attributes make floats of 64-bit integers; leave it out of `variables`",
            )


def value_spec(
    variable: str, dtype: np.dtype[Any], attrs: Mapping[str, Any], options: ValueOptions = ValueOptions()
) -> ValueSpec:
    """Settle how a variable's stored elements become values.

    Parameters
    ----------
    variable : str
        On-disk name, for messages.
    dtype : numpy.dtype
        Stored element type; object for text.
    attrs : mapping
        The variable's attributes as stored: text, scalars or 1-D arrays.
    options : ValueOptions
        The reader's.

    Returns
    -------
    ValueSpec

    Raises
    ------
    DecodeError
        If ``scale_factor`` or ``add_offset`` is not one number.
    """
    stored = np.dtype(dtype)
    if stored.kind in "Oc":
        return ValueSpec(variable, stored, stored.newbyteorder("="), stored.newbyteorder("="))
    if stored.kind == "b":
        return ValueSpec(variable, stored, np.dtype(np.int8), np.dtype(np.int8))
    reader = _Attributes(variable, attrs, _native(stored, attrs), stored)
    is_float = reader.native.kind == "f"

    masks = reader.masks("_FillValue") + reader.masks("missing_value")
    is_netcdf_float = is_float and reader.native.itemsize in (4, 8)
    if is_netcdf_float and options.default_fill and "_FillValue" not in reader.used:
        masks.append(reader.native.type(DEFAULT_FLOAT_FILL))
    low = high = None
    if options.mask_valid_range:
        low, high = reader.bounds()
    scale, offset = reader.number("scale_factor"), reader.number("add_offset")
    if is_float and (scale is None or scale == 1.0) and (offset is None or offset == 0.0):
        scale = offset = None

    masked = tuple(dict.fromkeys(mask for mask in masks if not np.isnan(mask)))
    mask_nan = any(np.isnan(mask) for mask in masks)
    packed = scale is not None or offset is not None
    if is_float or packed or masks or low is not None or high is not None:
        out = reader.float_out(packed) if options.precision == "source" else np.dtype(np.float64)
    else:
        out = reader.native
    return ValueSpec(
        variable, stored, reader.native, out, masked, mask_nan, low, high, scale, offset,
        frozenset(reader.used), tuple(reader.warnings),
    )  # fmt: skip


def _native(stored: np.dtype[Any], attrs: Mapping[str, Any]) -> np.dtype[Any]:
    """Apply ``_Unsigned`` to the native form of a dtype."""
    native = stored.newbyteorder("=")
    unsigned = str(_text(attrs.get("_Unsigned"))).lower()
    if stored.kind == "i" and unsigned == "true":
        return np.dtype(f"u{stored.itemsize}")
    if stored.kind == "u" and unsigned == "false":
        return np.dtype(f"i{stored.itemsize}")
    return native


def _text(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.reshape(-1)[0]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _flat(value: Any) -> Array:
    """Give an attribute as a 1-D array; what has no such form, as the lists JSON can hold, as text."""
    try:
        return np.asarray(value).reshape(-1)
    except ValueError:
        return np.asarray([str(value)])


class _Attributes:
    """Reads attributes in the terms of a variable's dtype, noting what was used and what was ignored."""

    def __init__(
        self, variable: str, attrs: Mapping[str, Any], native: np.dtype[Any], stored: np.dtype[Any]
    ) -> None:
        self.variable = variable
        self.attrs = attrs
        self.native = native
        self.stored = stored
        self.used: set[str] = {"_Unsigned"} & set(attrs)
        self.warnings: list[str] = []

    def masks(self, name: str) -> list[Any]:
        """Give the stored values an attribute masks."""
        found = [
            scalar for value in self._values(name) if (scalar := self._to_native(name, value)) is not None
        ]
        if found:
            self.used.add(name)
        return found

    def bounds(self) -> tuple[Any, Any]:
        """Give the inclusive bounds the valid_* attributes set."""
        pair: list[Any] = [None, None]
        span = self._values("valid_range")
        if len(span) == 2:
            pair = [self._to_native("valid_range", value) for value in span]
        elif span:
            self._ignore("valid_range", span, "is not a pair")
        for side, name in enumerate(("valid_min", "valid_max")):
            for value in self._values(name)[:1]:
                pair[side] = self._to_native(name, value)
        return pair[0], pair[1]

    def number(self, name: str) -> float | None:
        """Give a packing attribute as float64."""
        if name not in self.attrs:
            return None
        values = _flat(self.attrs[name])
        if values.size != 1 or values.dtype.kind not in "iuf":
            raise DecodeError(
                f"{name} is {_plain(self.attrs[name])}, not one number", variable=self.variable,
                hint="Correct the attribute in the file, or leave the variable out of `variables`",
            )  # fmt: skip
        self.used.add(name)
        return float(values[0])

    def float_out(self, packed: bool) -> np.dtype[Any]:
        """Give the dtype of floats under ``precision="source"``."""
        if self.native.kind == "f":
            return np.dtype(np.float64) if packed else self.native
        parameters = [_flat(self.attrs[n]).dtype for n in ("scale_factor", "add_offset") if n in self.attrs]
        single = all(p.kind == "f" and p.itemsize == 4 for p in parameters)
        return np.dtype(np.float32 if packed and single and self.native.itemsize <= 2 else np.float64)

    def _values(self, name: str) -> list[Any]:
        if name not in self.attrs:
            return []
        values = _flat(self.attrs[name])
        if values.dtype.kind not in "iufb":
            self._ignore(name, self.attrs[name], "is not a number")
            return []
        return list(values)

    def _to_native(self, name: str, value: Any) -> Any:
        """Give an attribute value as a scalar of the variable's dtype; None where there is none."""
        native = self.native
        if native.kind == "f":
            with np.errstate(over="ignore"):
                scalar = native.type(value)
            if np.isinf(scalar) and not np.isinf(value):
                return self._ignore(name, value, f"does not fit {native}")
            return scalar
        if value.dtype.kind == "f" and not (np.isfinite(value) and value == np.floor(value)):
            return self._ignore(name, value, f"is no {native}")
        exact = int(value)
        info = np.iinfo(native)
        if info.min <= exact <= info.max:
            return native.type(exact)
        # under _Unsigned the attribute may stand in the stored, other signedness: same bits
        stored = np.iinfo(self.stored.newbyteorder("="))
        if native.kind != self.stored.kind and stored.min <= exact <= stored.max:
            return native.type(
                exact % (1 << (8 * native.itemsize))
                if native.kind == "u"
                else exact - (1 << (8 * native.itemsize))
            )
        return self._ignore(name, value, f"does not fit {native}")

    def _ignore(self, name: str, value: Any, why: str) -> None:
        self.warnings.append(f"{self.variable}: {name} = {_plain(value)} {why}; ignored")


def _plain(value: Any) -> str:
    """Spell an attribute for people: numbers without their NumPy types."""
    if isinstance(value, list) or (isinstance(value, np.ndarray) and value.ndim):
        return f"[{', '.join(map(_plain, value))}]"
    return str(value) if isinstance(value, np.number) else repr(value)
