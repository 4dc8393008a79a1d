"""The one call everything above makes: fill these outputs from that file, and say how it went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from earthsciio.formats.base import OpenFile

from .abort import AbortToken
from .reference import ArrayRequest, decode_reference

__all__ = ["DecodeReport", "decode_arrays"]


@dataclass(frozen=True, slots=True)
class DecodeReport:
    """How a decode went.

    Attributes
    ----------
    bytes_read : int
        Bytes of stored elements that were read.
    fallbacks : tuple of (str, str)
        Variable and reason, for each array that did not take the fast path.
    backend : str
        What inflated the chunks; "reference" where nothing took the fast path.
    """

    bytes_read: int
    fallbacks: tuple[tuple[str, str], ...] = ()
    backend: str = "reference"


def decode_arrays(file: OpenFile, requests: Sequence[ArrayRequest], abort: AbortToken) -> DecodeReport:
    """Fill the outputs of every request, by the fast path where there is one.

    Parameters
    ----------
    file : OpenFile
        Holds the arrays.
    requests : sequence of ArrayRequest
        What to decode.
    abort : AbortToken
        Looked at before every chunk.

    Returns
    -------
    DecodeReport
        What was read, and what fell back to the reference path and why.

    Raises
    ------
    DecodeError
        If stored bytes can't be read or don't verify; the outputs are then unspecified.
    Cancelled
        If `abort` was set.
    """
    return DecodeReport(decode_reference(file, requests, abort))
