"""The fast path: which arrays take it, one batch over all that do, and errors that say what was wrong."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from earthsciio.errors import DecodeError
from earthsciio.formats.base import OpenFile
from earthsciio.formats.encoded import EncodedFile

from . import native
from . import tables as t
from .abort import AbortToken
from .batch import Batch, Task, build_batch, refusal
from .codecs import FOREIGN_CALLBACK, program
from .reference import ArrayRequest, BadChunk
from .threads import run_batch

__all__ = ["Decoded", "decode", "prepare"]


@dataclass(frozen=True, slots=True)
class Decoded:
    """What the fast path did."""

    bytes_read: int = 0
    chunks: int = 0
    bad_chunks: tuple[BadChunk, ...] = ()


def prepare(file: OpenFile, request: ArrayRequest) -> Task | str:
    """Give the task that decodes an array fast, or the reason why it can't be."""
    if not isinstance(file, EncodedFile):
        return "the format has no fast path"
    reason = refusal(request)
    if reason is not None:
        return reason
    encoded = file.encoded(request.info)
    if isinstance(encoded, str):
        return encoded
    steps = program(encoded)
    return steps if isinstance(steps, str) else Task(request, encoded, steps)


def decode(
    file: EncodedFile, tasks: Sequence[Task], abort: AbortToken, *, on_bad_chunk: str, verify: str
) -> Decoded:
    """Decode tasks of one file on the codec threads.

    Raises
    ------
    DecodeError
        For the first bad chunk among those that were looked at.
    Cancelled
        If `abort` was set.
    """
    spare_bad = on_bad_chunk == "nan"
    with file.descriptor() as descriptor:
        batch = build_batch(tasks, os.fstat(descriptor).st_size, verify == "prefix")
        run_batch(batch, native.table(FOREIGN_CALLBACK), descriptor, abort.word, spare_bad)
    abort.check()
    bad: list[BadChunk] = []
    for index in _failures(batch):
        request = tasks[batch.items[index, t.ARRAY]].request
        chunk = batch.chunk(index)
        if batch.outcomes[index, t.CODE] == t.NOT_EXACT:
            _raise_inexact(file, request, chunk)
        error = _explain(file, batch, index)
        if not spare_bad or request.spec.out.kind != "f":
            raise error
        for placement in request.plan.placements(chunk):
            request.outs[placement.window][placement.target()] = np.nan
        bad.append(BadChunk(request.info.name, chunk, str(error)))
    return Decoded(batch.read_nbytes, len(batch.items), tuple(bad))


def _failures(batch: Batch) -> list[int]:
    """Give the chunks that failed, in the order of the request and of storage."""
    failed = np.flatnonzero((batch.outcomes[:, t.CODE] != t.OK) & (batch.outcomes[:, t.CODE] != t.UNTOUCHED))
    return sorted((int(i) for i in failed), key=lambda i: (int(batch.items[i, t.ARRAY]), batch.chunk(i)))


def _explain(file: EncodedFile, batch: Batch, index: int) -> DecodeError:
    """Say in words how a chunk failed."""
    item, (code, detail, _) = batch.items[index], batch.outcomes[index].tolist()
    offset, size, raw = int(item[t.OFFSET]), int(item[t.SIZE]), int(item[t.RAW])
    match code:
        case t.READ_FAILED:
            what = f"can't be read: {os.strerror(detail)}"
        case t.READ_SHORT:
            what = "the file ends inside the chunk"
        case t.INFLATE_FAILED:
            what = "does not inflate to its size, or fails its checksum" if size else "lies outside the file"
        case t.WRONG_LENGTH:
            what = f"holds {detail} bytes where {raw} belong" if size else "lies outside the file"
        case t.CHECKSUM_FAILED:
            what = "fails its Fletcher checksum"
        case t.TOO_LARGE:
            what = f"is said to hold {raw} bytes, more than its {size} stored bytes can become"
        case _:
            what = "is refused by its codec"
    return DecodeError(
        f"a chunk {what}",
        file=file.path,
        variable=batch.tasks[item[t.ARRAY]].request.info.name,
        chunk=batch.chunk(index),
        byte_range=(offset, offset + size),
        hint="The file is damaged; fetch it again",
    )


def _raise_inexact(file: EncodedFile, request: ArrayRequest, chunk: tuple[int, ...]) -> None:
    """Raise what the reference path says of an integer that no float64 holds."""
    raw = file.read_chunk(request.info, chunk)
    try:
        for placement in request.plan.placements(chunk):
            request.spec.convert(raw[(*placement.source(), ...)])
    except DecodeError as error:
        error.chunk = chunk
        raise
    raise DecodeError("an integer has no exact float64", variable=request.info.name, chunk=chunk)
