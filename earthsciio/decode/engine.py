"""The fast path: which arrays take it, one batch over all that do, and errors that say what was wrong."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from earthsciio.errors import DecodeError
from earthsciio.formats.base import OpenFile
from earthsciio.formats.encoded import EncodedFile, as_encoded

from . import native
from . import tables as t
from .abort import AbortToken
from .batch import Batch, Task, build_batch, refusal
from .codecs import FOREIGN_CALLBACK, program
from .options import DecodeOptions
from .pool import ChunkKey, ChunkPool, Claim
from .reference import ArrayRequest, BadChunk
from .threads import decode_threads, run_batch

__all__ = ["Decoded", "decode", "prepare"]


@dataclass(frozen=True, slots=True)
class Decoded:
    """What the fast path did."""

    bytes_read: int = 0
    chunks: int = 0
    reused: int = 0
    bad_chunks: tuple[BadChunk, ...] = ()


def prepare(file: OpenFile, request: ArrayRequest) -> Task | str:
    """Give the task that decodes an array fast, or the reason why it can't be."""
    known = as_encoded(file)
    if known is None:
        return "the format has no fast path"
    reason = refusal(request)
    if reason is not None:
        return reason
    encoded = known.encoded(request.info)
    if isinstance(encoded, str):
        return encoded
    steps = program(encoded)
    return steps if isinstance(steps, str) else Task(request, encoded, steps)


def decode(file: EncodedFile, tasks: Sequence[Task], abort: AbortToken, options: DecodeOptions) -> Decoded:
    """Decode tasks of one file on the codec threads.

    Raises
    ------
    DecodeError
        For the first bad chunk among those that were looked at.
    Cancelled
        If `abort` was set.
    """
    spare_bad = options.on_bad_chunk == "nan"
    with file.descriptor() as descriptor:
        batch = build_batch(tasks, os.fstat(descriptor).st_size, options.verify == "prefix", decode_threads())

        def run(part: Batch) -> None:
            run_batch(part, native.table(FOREIGN_CALLBACK), descriptor, abort.word, spare_bad)
            abort.check()

        if options.pool is not None and any(task.request.keep for task in tasks):
            reused = _run_pooled(batch, options, options.pool, abort, run)
        else:
            reused = 0
            run(batch)
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
    return Decoded(batch.read_nbytes, len(batch.items) - reused, reused, tuple(bad))


def _run_pooled(
    batch: Batch, options: DecodeOptions, pool: ChunkPool, abort: AbortToken, run: Callable[[Batch], None]
) -> int:
    """Run a batch whose chunks a pool keeps: load what it has not, then take what others were loading.

    Gives the number of chunks that did not have to be decoded.
    """
    keeps = np.array([bool(task.request.keep) for task in batch.tasks])[batch.items[:, t.ARRAY]]
    pooled = np.flatnonzero(keeps & (batch.items[:, t.KIND] == t.STORED))
    held: list[Claim] = []
    reused = 0
    turn, rest = pooled, np.setdiff1d(np.arange(len(batch.items)), pooled)
    try:
        while True:
            wanted = [(_pool_key(batch, int(i)), int(batch.items[i, t.RAW])) for i in turn]
            claims = pool.claim(wanted, options.next_use)
            held += claims
            for index, claim in zip(turn, claims, strict=True):
                if claim.data is not None:
                    batch.hold(int(index), claim.data, resident=not claim.loads, shuffled=claim.shuffled)
                    reused += not claim.loads
            waiting = np.array([claim.waits for claim in claims], dtype=bool)
            now = np.concatenate([turn[~waiting], rest]).astype(np.int64)
            try:
                batch.run_part(np.sort(now), run)
            finally:
                for index, claim in zip(turn, claims, strict=True):
                    if claim.loads and batch.outcomes[index, t.CODE] == t.OK:
                        pool.publish(claim, shuffled=bool(batch.outcomes[index, t.KEPT_SHUFFLED]))
            failed = (batch.outcomes[:, t.CODE] != t.OK) & (batch.outcomes[:, t.CODE] != t.UNTOUCHED)
            if not waiting.any() or (failed.any() and options.on_bad_chunk == "raise"):
                return reused
            turn, rest = turn[waiting], np.empty(0, dtype=np.int64)
            pool.wait([claim for claim in claims if claim.waits], abort)
    finally:
        pool.release(held)


def _pool_key(batch: Batch, index: int) -> ChunkKey:
    request = batch.tasks[batch.items[index, t.ARRAY]].request
    return ChunkKey(request.keep, request.info.key or request.info.name, batch.chunk(index), True)


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
