"""The reference decode: chunk by chunk through the format's own reader, in NumPy.

Exact and slow. It is the oracle the engine is tested against, and the fallback for what the engine does not
know; each fallback is counted with its reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from earthsciio.errors import EarthSciIOError
from earthsciio.fields import Array
from earthsciio.formats.base import ArrayInfo, OpenFile

from .abort import AbortToken
from .plan import ArrayPlan
from .values import ValueSpec

__all__ = ["ArrayRequest", "decode_reference"]


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
    """

    info: ArrayInfo
    spec: ValueSpec
    plan: ArrayPlan
    outs: tuple[Array, ...]


def decode_reference(file: OpenFile, requests: Sequence[ArrayRequest], abort: AbortToken) -> int:
    """Fill the outputs of every request.

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
    int
        Bytes of stored elements that were read.

    Raises
    ------
    DecodeError
        If stored bytes can't be read; the outputs are then unspecified.
    Cancelled
        If `abort` was set.
    """
    nbytes = 0
    for request in requests:
        for read in request.plan:
            abort.check()
            raw = file.read_chunk(request.info, read.chunk)
            nbytes += raw.nbytes
            try:
                for placement in read.placements:
                    share = raw[(*placement.source(), ...)]  # an array also where there are no axes
                    request.outs[placement.window][placement.target()] = request.spec.convert(share)
            except EarthSciIOError as error:
                error.chunk = read.chunk
                raise
    return nbytes
