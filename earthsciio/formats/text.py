"""Text out of files: character arrays and encoded strings become arrays of str."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from earthsciio.errors import DecodeError
from earthsciio.fields import Array

__all__ = ["decode_strings", "join_characters"]


def join_characters(characters: Array, attrs: Mapping[str, Any], variable: str) -> Array:
    """Join single characters along the last axis.

    Parameters
    ----------
    characters : numpy.ndarray
        Dtype S1, shape (..., length).
    attrs : mapping
        The variable's attributes; ``_Encoding`` names the encoding, UTF-8 by default.
    variable : str
        For messages.

    Returns
    -------
    numpy.ndarray
        Object array of str, shape (...); trailing NULs are padding.
    """
    length = characters.shape[-1]
    if length == 0 or characters.size == 0:
        return np.full(characters.shape[:-1], "", dtype=object)
    joined = np.ascontiguousarray(characters).view(f"S{length}").reshape(characters.shape[:-1])
    return decode_strings(joined, attrs, variable)


def decode_strings(values: Array, attrs: Mapping[str, Any], variable: str) -> Array:
    """Decode an array of byte strings (fixed-length or object) to an object array of str."""
    encoding = str(attrs.get("_Encoding", "utf-8"))
    decoded = np.empty(values.shape, dtype=object)
    flat = decoded.reshape(-1)
    try:
        for position, value in enumerate(values.reshape(-1).tolist()):
            flat[position] = value if isinstance(value, str) else (value or b"").decode(encoding)
    except (UnicodeDecodeError, LookupError) as error:
        raise DecodeError(
            f"text is not {encoding}: {error}", variable=variable,
            hint="Name its encoding in the variable's attribute _Encoding, in the file ('latin-1'), or "
            "leave it out of `variables`",
        ) from error  # fmt: skip
    return decoded
