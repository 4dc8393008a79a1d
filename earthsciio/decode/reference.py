"""The reference decode: chunk by chunk through the format's own reader, in NumPy.

Exact and slow. It is the oracle the engine is tested against, and the fallback for what the engine does not
know; each fallback is counted with its reason.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from earthsciio.errors import DecodeError, EarthSciIOError
from earthsciio.fields import Array
from earthsciio.formats.base import ArrayInfo, OpenFile

from .abort import AbortToken
from .plan import ArrayPlan
from .values import ValueSpec

__all__ = ["ArrayRequest", "BadChunk", "ReferenceCounts", "decode_reference"]


@dataclass(frozen=True, slots=True, eq=False)
class ArrayRequest:
    """One stored array to decode through K Windows.

    Attributes
    ----------
    info : ArrayInfo
        The array.
    spec : ValueSpec
        How its elements become values.
    plan : ArrayPlan
        Which chunks, and what goes where.
    outs : tuple of numpy.ndarray
        Per Window the memory to fill, every element of it: shape ``plan.shapes[window]``, dtype
        ``spec.out``, any strides.
    keep : hashable
        Names the version of the file, if other requests will want other parts of the same chunks, so that a
        pool should keep them: requests with equal `keep` share the chunks of an array. False: keep nothing.
    """

    info: ArrayInfo
    spec: ValueSpec
    plan: ArrayPlan
    outs: tuple[Array, ...]
    keep: Hashable = False


@dataclass(frozen=True, slots=True)
class BadChunk:
    """A chunk that could not be read, and whose cells are NaN because the caller wanted it so."""

    variable: str
    chunk: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class ReferenceCounts:
    """What the reference path did."""

    bytes_read: int = 0
    chunks: int = 0
    bad_chunks: tuple[BadChunk, ...] = ()


def decode_reference(
    file: OpenFile, requests: Sequence[ArrayRequest], abort: AbortToken, on_bad_chunk: str = "raise"
) -> ReferenceCounts:
    """Fill the outputs of every request.

    Parameters
    ----------
    file : OpenFile
        Holds the arrays.
    requests : sequence of ArrayRequest
        What to decode.
    abort : AbortToken
        Looked at before every chunk.
    on_bad_chunk : {"raise", "nan"}
        Raise, or make NaN of the bad chunk's cells; integers and text have no NaN, and raise.

    Returns
    -------
    ReferenceCounts
        Bytes of stored elements and chunks that were read, and chunks that could not be.

    Raises
    ------
    DecodeError
        If stored bytes can't be read; the outputs are then unspecified.
    Cancelled
        If `abort` was set.
    """
    nbytes = chunks = 0
    bad: list[BadChunk] = []
    for request in requests:
        for read in request.plan:
            abort.check()
            chunks += 1
            try:
                raw = file.read_chunk(request.info, read.chunk)
            except DecodeError as error:
                if on_bad_chunk != "nan" or request.spec.out.kind != "f":
                    raise
                bad.append(BadChunk(request.info.name, read.chunk, str(error)))
                for placement in read.placements:
                    request.outs[placement.window][placement.target()] = np.nan
                continue
            nbytes += raw.nbytes
            try:
                for placement in read.placements:
                    # "...": an array also where there are no axes, and its element put in, not the array
                    share = raw[(*placement.source(), ...)]
                    request.outs[placement.window][(*placement.target(), ...)] = request.spec.convert(share)
            except EarthSciIOError as error:
                error.chunk = read.chunk
                raise
    return ReferenceCounts(nbytes, chunks, tuple(bad))
