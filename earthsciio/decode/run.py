"""The one call everything above makes: fill these outputs from that file, and say how it went.

Each array takes the fast path if the file can say where its bytes lie and compiled code knows its filters
and types; else the reference path, which gives the same values, and the report says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from earthsciio.formats.base import OpenFile
from earthsciio.formats.encoded import as_encoded

from . import native
from .abort import AbortToken
from .batch import Task
from .engine import Decoded, decode, prepare
from .options import PLAIN, DecodeOptions
from .reference import ArrayRequest, BadChunk, decode_reference

__all__ = ["DecodeOptions", "DecodeReport", "decode_arrays"]


@dataclass(frozen=True, slots=True)
class DecodeReport:
    """How a decode went.

    Attributes
    ----------
    bytes_read : int
        Bytes of stored elements that were read.
    chunks : int
        Chunks that were decoded.
    reused : int
        Chunks that the pool had.
    fallbacks : tuple of (str, str)
        Variable and reason, for each array that did not take the fast path.
    backend : str
        What inflated the chunks; "reference" where nothing took the fast path.
    bad_chunks : tuple of BadChunk
        Chunks whose cells are NaN because they could not be read.
    """

    bytes_read: int
    chunks: int = 0
    reused: int = 0
    fallbacks: tuple[tuple[str, str], ...] = ()
    backend: str = "reference"
    bad_chunks: tuple[BadChunk, ...] = ()


def decode_arrays(
    file: OpenFile,
    requests: Sequence[ArrayRequest],
    abort: AbortToken,
    options: DecodeOptions = PLAIN,
) -> DecodeReport:
    """Fill the outputs of every request, by the fast path where there is one.

    Parameters
    ----------
    file : OpenFile
        Holds the arrays.
    requests : sequence of ArrayRequest
        What to decode.
    abort : AbortToken
        Looked at before every chunk.
    options : DecodeOptions
        What to do about bad chunks.

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
    tasks: list[Task] = []
    slow: list[ArrayRequest] = []
    fallbacks: list[tuple[str, str]] = []
    for request in requests:
        task = prepare(file, request)
        if isinstance(task, Task):
            tasks.append(task)
        else:
            slow.append(request)
            fallbacks.append((request.info.name, task))
    fast = Decoded()
    known = as_encoded(file)
    if tasks and known is not None:
        fast = decode(known, tasks, abort, options)
    counts = decode_reference(file, slow, abort, options)
    return DecodeReport(
        fast.bytes_read + counts.bytes_read,
        fast.chunks + counts.chunks,
        fast.reused + counts.reused,
        tuple(fallbacks),
        native.backend() if tasks else "reference",
        fast.bad_chunks + counts.bad_chunks,
    )
