"""The reference decode: chunk by chunk through the format's own reader, in NumPy.

Exact and slow. It is the oracle the engine is tested against, and the fallback for what the engine does not
know; each fallback is counted with its reason.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from earthsciio.errors import DecodeError, EarthSciIOError
from earthsciio.fields import Array
from earthsciio.formats.base import ArrayInfo, OpenFile

from .abort import AbortToken
from .options import PLAIN, DecodeOptions
from .plan import ArrayPlan
from .pool import ChunkKey, Claim
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
    reused: int = 0
    bad_chunks: tuple[BadChunk, ...] = ()


def decode_reference(
    file: OpenFile, requests: Sequence[ArrayRequest], abort: AbortToken, options: DecodeOptions = PLAIN
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
    options : DecodeOptions
        What to do about bad chunks, and which pool keeps chunks.

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
    chunks = _Chunks(file, abort, options)
    bad: list[BadChunk] = []
    try:
        for request in requests:
            for read in request.plan:
                abort.check()
                try:
                    raw = chunks.get(request, read.chunk)
                except DecodeError as error:
                    if options.on_bad_chunk != "nan" or request.spec.out.kind != "f":
                        raise
                    bad.append(BadChunk(request.info.name, read.chunk, str(error)))
                    for placement in read.placements:
                        request.outs[placement.window][placement.target()] = np.nan
                    continue
                try:
                    for placement in read.placements:
                        # "...": an array also where there are no axes, and its element put in, not the array
                        share = raw[(*placement.source(), ...)]
                        out = request.outs[placement.window]
                        out[(*placement.target(), ...)] = request.spec.convert(share)
                except EarthSciIOError as error:
                    error.chunk = read.chunk
                    raise
    finally:
        chunks.release()
    return ReferenceCounts(chunks.nbytes, chunks.count, chunks.reused, tuple(bad))


class _Chunks:
    """The stored elements of chunks: from the file, or from a pool that is left what it keeps."""

    def __init__(self, file: OpenFile, abort: AbortToken, options: DecodeOptions) -> None:
        self.nbytes = self.count = self.reused = 0
        self._file = file
        self._abort = abort
        self._pool, self._next_use = options.pool, options.next_use
        self._held: list[Claim] = []

    def get(self, request: ArrayRequest, chunk: tuple[int, ...]) -> Array:
        info = request.info
        if self._pool is None or not request.keep or info.dtype.hasobject:
            return self._read(info, chunk)
        shape = [box.stop - box.start for box in info.chunk_box(chunk)]
        key = ChunkKey(request.keep, info.key or info.name, chunk, encoded=False)
        wanted = [(key, math.prod(shape) * info.dtype.itemsize)]
        (claim,) = self._pool.claim(wanted, self._next_use)
        while claim.waits:
            self._pool.wait([claim], self._abort)
            (claim,) = self._pool.claim(wanted, self._next_use)
        self._held.append(claim)
        if claim.data is None:
            return self._read(info, chunk)
        kept = claim.data.view(info.dtype).reshape(shape)
        if claim.loads:
            kept[...] = self._read(info, chunk)
            self._pool.publish(claim, shuffled=False)
        else:
            self.reused += 1
        return kept

    def release(self) -> None:
        if self._pool is not None:
            self._pool.release(self._held)

    def _read(self, info: ArrayInfo, chunk: tuple[int, ...]) -> Array:
        self.count += 1
        raw = self._file.read_chunk(info, chunk)
        self.nbytes += raw.nbytes
        return raw
