"""What goes wrong inside the GIL-free path: typed errors, prompt ends, no crash."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import h5py
import numpy as np
import pytest
import stored

from earthsciio.decode import DecodeOptions, decode_arrays, native, set_decode_threads, threads
from earthsciio.decode.abort import AbortToken
from earthsciio.decode.values import ValueOptions
from earthsciio.errors import Cancelled, DecodeError
from earthsciio.selection import Span

RAW = ValueOptions("source", default_fill=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "v.h5"
    with h5py.File(path, "w") as file:
        values = np.arange(4000, dtype="f4").reshape(40, 100)
        file.create_dataset("v", data=values, chunks=(1, 100), compression=1, shuffle=True)
        file.create_dataset("plain", data=values, chunks=(1, 100))
    return path


@pytest.fixture(autouse=True)
def _threads() -> object:
    yield
    set_decode_threads(threads.default_decode_threads())


def read(path: Path, name: str, abort: AbortToken | None = None, **options: str) -> np.ndarray:
    file = stored.open_file(path)
    wanted = stored.request(file, name, stored.everything(file, name), RAW)
    decode_arrays(file, [wanted], abort or AbortToken(), DecodeOptions(**options))
    return wanted.outs[0]


def real_pread(descriptor: int, target: int, count: int, offset: int) -> int:
    data = os.pread(descriptor, count, offset)
    ctypes.memmove(target, data, len(data))
    return len(data)


def test_reads_that_stop_short_are_continued_and_interrupted_ones_repeated(path: Path) -> None:
    interrupted = []

    @native.PreadFunction
    def pread(descriptor: int, target: int, count: int, offset: int) -> int:
        if len(interrupted) % 3 == 0:
            interrupted.append(offset)
            ctypes.set_errno(errno.EINTR)
            return -1
        interrupted.append(offset)
        return real_pread(descriptor, target, max(count // 3, 1), offset)

    with native.replaced(pread=pread):
        for name in ("v", "plain"):
            assert read(path, name).reshape(-1).tolist() == list(range(4000))
    assert interrupted


@pytest.mark.parametrize("name", ["v", "plain"])
def test_a_failing_read_says_which_bytes_and_why(path: Path, name: str) -> None:
    @native.PreadFunction
    def pread(descriptor: int, target: int, count: int, offset: int) -> int:
        ctypes.set_errno(errno.EIO)
        return -1

    with (
        native.replaced(pread=pread),
        pytest.raises(DecodeError, match=r"Input/output error.*byte_range") as caught,
    ):
        read(path, name)
    assert caught.value.file == str(path)
    assert caught.value.variable == name
    assert caught.value.chunk is not None


def test_a_file_that_ends_inside_a_chunk_is_an_error(path: Path) -> None:
    @native.PreadFunction
    def pread(descriptor: int, target: int, count: int, offset: int) -> int:
        return 0

    with native.replaced(pread=pread), pytest.raises(DecodeError, match="the file ends inside the chunk"):
        read(path, "v")


def test_an_inflate_that_fails_is_an_error_of_its_chunk_alone(path: Path) -> None:
    lock, calls = threading.Lock(), []

    @native.InflateFunction
    def inflate(_state: int, source: int, count: int, target: int, room: int, _actual: int) -> int:
        with lock:
            calls.append(count)
            return 1

    with native.replaced(inflate=inflate):
        with pytest.raises(DecodeError, match="inflate"):
            read(path, "v")
        assert len(calls) <= threads.decode_threads()  # the others stop
        file = stored.open_file(path)
        wanted = stored.request(file, "v", stored.everything(file, "v"), RAW)
        report = decode_arrays(file, [wanted], AbortToken(), DecodeOptions(on_bad_chunk="nan"))
    assert len(report.bad_chunks) == 40
    assert np.isnan(wanted.outs[0]).all()


def test_memory_that_can_not_be_had_is_a_memory_error_and_leaves_the_pool_working(path: Path) -> None:
    def allocate(nbytes: int) -> np.ndarray:
        raise MemoryError(nbytes)

    with h5py.File(path, "a") as file:  # larger than any buffer a thread still holds
        file.create_dataset("large", data=np.zeros((1, 1 << 23)), chunks=(1, 1 << 23), compression=1)
    with native.replaced(allocate=allocate), pytest.raises(MemoryError):
        read(path, "large")
    assert read(path, "large").shape == (1, 1 << 23)


def test_an_abort_ends_the_batch_at_the_next_chunk(path: Path) -> None:
    token, seen = AbortToken(), []

    @native.PreadFunction
    def pread(descriptor: int, target: int, count: int, offset: int) -> int:
        seen.append(offset)
        token.set()
        return real_pread(descriptor, target, count, offset)

    with native.replaced(pread=pread), pytest.raises(Cancelled):
        read(path, "v", token)
    assert 1 <= len(seen) <= threads.decode_threads()


def test_an_abort_from_another_thread_is_prompt(tmp_path: Path) -> None:
    path = tmp_path / "big.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("v", data=np.zeros((400, 1 << 17), "f4"), chunks=(1, 1 << 17), compression=1)
    token, started, aborted = AbortToken(), threading.Event(), threading.Event()
    reads: list[int] = []
    ended: list[bool] = []

    @native.PreadFunction
    def pread(descriptor: int, target: int, count: int, offset: int) -> int:
        reads.append(offset)
        started.set()
        aborted.wait(60)
        return real_pread(descriptor, target, count, offset)

    def work() -> None:
        with pytest.raises(Cancelled):
            read(path, "v", token)
        ended.append(True)

    with native.replaced(pread=pread):
        worker = threading.Thread(target=work)
        worker.start()
        assert started.wait(60)
        token.set()
        aborted.set()
        worker.join(60)
    assert ended
    assert len(reads) <= threads.decode_threads()  # each thread ends with the chunk it was at


@pytest.mark.parametrize("count", [1, 2, 5])
def test_many_callers_share_the_threads_and_get_their_own_values(path: Path, count: int) -> None:
    set_decode_threads(count)
    file = stored.open_file(path)
    errors: list[BaseException] = []
    busy, most = [0], [0]
    lock = threading.Lock()

    @native.PreadFunction
    def pread(descriptor: int, target: int, size: int, offset: int) -> int:
        with lock:
            busy[0] += 1
            most[0] = max(most[0], busy[0])
        try:
            return real_pread(descriptor, target, size, offset)
        finally:
            with lock:
                busy[0] -= 1

    def work(number: int) -> None:
        try:
            for turn in range(6):
                first = (number * 5 + turn) % 39
                wanted = stored.request(file, "v", [[Span(first, 40), Span(number, 100)]], RAW)
                decode_arrays(file, [wanted], AbortToken())
                expected = np.arange(4000.0).reshape(40, 100)[first:, number:]
                assert np.array_equal(wanted.outs[0], expected)
        except BaseException as error:
            errors.append(error)

    with native.replaced(pread=pread):
        workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(100)
    assert errors == []
    assert most[0] <= count


def test_without_libdeflate_the_values_are_the_same_and_the_report_says_so(path: Path) -> None:
    script = f"""
from pathlib import Path
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from earthsciio.decode import native
native._candidates = lambda: iter(())
import stored
from earthsciio.decode import DecodeOptions
from earthsciio.selection import Span
file = stored.open_file(Path({str(path)!r}))
for options in (DecodeOptions(), DecodeOptions(verify="prefix")):
    both = stored.read_both(file, [("v", stored.everything(file, "v"))], options=options)
    assert both.fast == both.slow
    assert both.report.backend.startswith("python:"), both.report.backend
data = bytearray(Path({str(path)!r}).read_bytes())
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=100)


def test_a_program_that_forgets_everything_exits_at_once(path: Path) -> None:
    script = f"""
from pathlib import Path
import sys, threading
sys.path.insert(0, {str(Path(__file__).parent)!r})
import stored
from earthsciio.decode import decode_arrays
from earthsciio.decode.abort import AbortToken
file = stored.open_file(Path({str(path)!r}))
started = threading.Event()
def work():
    while True:
        decode_arrays(file, [stored.request(file, "v", stored.everything(file, "v"))], AbortToken())
        started.set()
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
started.wait(60)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=100, stderr=subprocess.DEVNULL)


def test_ctrl_c_on_the_main_thread_ends_a_decode(path: Path) -> None:
    script = f"""
from pathlib import Path
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import ctypes, os, signal, threading, time
import stored
from earthsciio.decode import decode_arrays, native, tables
from earthsciio.decode.abort import AbortToken
file = stored.open_file(Path({str(path)!r}))
wanted = stored.request(file, "v", stored.everything(file, "v"))
decode_arrays(file, [wanted], AbortToken())
lock = threading.Lock()
@native.PreadFunction
def pread(descriptor, target, count, offset):
    if lock.acquire(blocking=False):  # the first chunk: it is being read while the interrupt acts
        os.kill(os.getpid(), signal.SIGINT)
        while pool.jobs[0].control != tables.STOP:
            time.sleep(0.001)
    data = os.pread(descriptor, count, offset)
    ctypes.memmove(target, data, len(data))
    return len(data)
pool = sys.modules["earthsciio.decode.threads"]._pool
native.SEAM.pread = pread
try:
    decode_arrays(file, [wanted] * 50, AbortToken())
except KeyboardInterrupt:
    sys.exit(0)
sys.exit(4)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=100)
