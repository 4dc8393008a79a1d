"""The chunk pool: one load for all, room by the rule, and nothing left of a failure."""

from __future__ import annotations

import dataclasses
import math
import threading
from pathlib import Path

import h5py
import numpy as np
import pytest
import stored

from earthsciio.decode import ChunkPool, DecodeOptions, decode_arrays, native
from earthsciio.decode.abort import AbortToken
from earthsciio.errors import Cancelled, DecodeError
from earthsciio.selection import Span


def take(pool: ChunkPool, key: str, next_use: float | None = None, nbytes: int = 10) -> bool:
    """Use a chunk once; say whether the pool had it."""
    claims = pool.claim([(key, nbytes)], next_use)
    had = not claims[0].loads and claims[0].data is not None
    if claims[0].loads:
        pool.publish(claims[0], shuffled=False)
    pool.release(claims)
    return had


def test_the_chunk_used_longest_ago_goes_first() -> None:
    pool = ChunkPool(30)
    for key in "abcaD":
        take(pool, key)
    assert [take(pool, key) for key in "acD"] == [True, True, True]
    assert not take(pool, "b")


def test_the_chunk_needed_last_goes_first_where_the_order_is_known() -> None:
    pool = ChunkPool(30)
    for key, next_use in (("a", 9), ("b", 5), ("c", 7), ("d", 6)):
        take(pool, key, next_use)
    assert [take(pool, key, 8) for key in "bcd"] == [True, True, True]
    assert not take(pool, "a", 9)


def test_a_chunk_never_needed_again_is_not_kept() -> None:
    pool = ChunkPool(30)
    take(pool, "a", math.inf)
    assert pool.stats().nbytes == 0


def test_claimed_chunks_stay_and_what_has_no_room_is_not_kept() -> None:
    pool = ChunkPool(25)
    held = pool.claim([("a", 10), ("b", 10)])
    for claim in held:
        pool.publish(claim, shuffled=False)
    (none,) = pool.claim([("c", 10)])
    assert none.data is None
    assert not none.loads
    assert not none.waits
    (too_large,) = pool.claim([("d", 26)])
    assert too_large.data is None
    pool.release(held)
    assert not take(pool, "c")
    assert take(pool, "c")
    assert pool.stats().peak_nbytes == 20


def test_a_failed_load_leaves_the_chunk_to_the_next_request() -> None:
    pool = ChunkPool(100)
    (mine,) = pool.claim([("a", 10)])
    (other,) = pool.claim([("a", 10)])
    assert mine.loads
    assert other.waits
    pool.release([mine])
    pool.wait([other], AbortToken())
    pool.release([other])
    (again,) = pool.claim([("a", 10)])
    assert again.loads


def test_waiting_ends_when_aborted() -> None:
    pool, token = ChunkPool(100), AbortToken()
    pool.claim([("a", 10)])
    (other,) = pool.claim([("a", 10)])
    token.set()
    with pytest.raises(Cancelled):
        pool.wait([other], token)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "t.h5"
    with h5py.File(path, "w") as file:
        values = np.arange(16 * 30 * 40, dtype="f4").reshape(16, 30, 40)
        file.create_dataset("both", data=values, chunks=(8, 15, 40), compression=1, shuffle=True)
        file.create_dataset("plain", data=values, chunks=(8, 15, 40))
        file.create_dataset("deflate", data=values, chunks=(8, 15, 40), compression=1)
    return path


@pytest.mark.parametrize("name", ["both", "plain", "deflate"])
@pytest.mark.parametrize("verify", ["full", "prefix"])
def test_chunks_of_eight_records_are_decoded_once_for_all_of_them(path: Path, name: str, verify: str) -> None:
    file, pool = stored.open_file(path), ChunkPool(1 << 20)
    expected = np.arange(16 * 30 * 40.0).reshape(16, 30, 40)
    decoded = reused = 0
    for record in (3, 0, 1, 9, 7, 15, 8):
        wanted = stored.request(file, name, [[Span(record, record + 1), Span(2, 30, 3), Span(0, 40)]])
        kept = dataclasses.replace(wanted, keep=True)
        report = decode_arrays(file, [kept], AbortToken(), DecodeOptions(pool=pool, verify=verify))
        assert np.array_equal(wanted.outs[0][0], expected[record, 2:30:3])
        decoded, reused = decoded + report.chunks, reused + report.reused
    assert (decoded, reused) == (4, 10)


def test_requests_at_the_same_time_load_a_chunk_once(path: Path) -> None:
    file, pool = stored.open_file(path), ChunkPool(1 << 20)
    reads: list[int] = []
    lock, gate = threading.Lock(), threading.Barrier(6)
    errors: list[BaseException] = []

    @native.PreadFunction
    def pread(descriptor: int, target: int, count: int, offset: int) -> int:
        import ctypes
        import os

        with lock:
            reads.append(offset)
        data = os.pread(descriptor, count, offset)
        ctypes.memmove(target, data, len(data))
        return len(data)

    def work(record: int) -> None:
        try:
            gate.wait(60)
            wanted = stored.request(file, "both", [[Span(record, record + 1), Span(0, 30), Span(0, 40)]])
            kept = dataclasses.replace(wanted, keep=True)
            decode_arrays(file, [kept], AbortToken(), DecodeOptions(pool=pool))
            assert np.array_equal(wanted.outs[0].reshape(-1), np.arange(1200.0) + 1200 * record)
        except BaseException as error:
            errors.append(error)

    with native.replaced(pread=pread):
        workers = [threading.Thread(target=work, args=(record,)) for record in range(6)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(100)
    assert errors == []
    assert len(reads) == 2


def test_a_bad_chunk_fails_its_request_and_stays_out_of_the_pool(path: Path) -> None:
    with h5py.File(path) as opened:
        offset = opened["both"].id.get_chunk_info(0).byte_offset
    good = path.read_bytes()
    path.write_bytes(good[: offset + 5] + b"\xff\xff" + good[offset + 7 :])
    file, pool = stored.open_file(path), ChunkPool(1 << 20)
    wanted = dataclasses.replace(stored.request(file, "both", stored.everything(file, "both")), keep=True)
    with pytest.raises(DecodeError):
        decode_arrays(file, [wanted], AbortToken(), DecodeOptions(pool=pool))
    options = DecodeOptions(pool=pool, on_bad_chunk="nan")
    for _ in range(2):
        report = decode_arrays(file, [wanted], AbortToken(), options)
        assert [bad.chunk for bad in report.bad_chunks] == [(0, 0, 0)]
        assert np.isnan(wanted.outs[0]).sum() == 8 * 15 * 40
