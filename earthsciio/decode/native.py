"""The C functions the GIL-free code calls, in one table of addresses that tests can replace.

Compiled code holds no address: it calls what stands in :func:`table` at the start of a job. ``pread`` comes
from the C library; ``inflate`` from libdeflate, the one inside the imagecodecs wheel or the system's. Where
there is none, a callback into Python inflates with isal or zlib: the same values, slower, and
:func:`backend` says so. Memory for chunks and outputs of a job is asked from :data:`SEAM` too, so that a
test can make any of the three fail wherever it happens.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import importlib.util
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from earthsciio.forks import new_lock

from . import tables as t

__all__ = [
    "SEAM",
    "ForeignFunction",
    "InflateFunction",
    "PreadFunction",
    "Seam",
    "backend",
    "decompressor",
    "prefix_slack",
    "replaced",
    "table",
]

#: ``ssize_t pread(int, void *, size_t, off_t)``
PreadFunction = ctypes.CFUNCTYPE(
    ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64, use_errno=True
)
#: ``int inflate(state, source, count, target, room, actual)``, as libdeflate_zlib_decompress.
InflateFunction = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t,
    ctypes.c_void_p,
)  # fmt: skip
ForeignFunction = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t
)

_BAD_DATA, _SHORT_OUTPUT = 1, 2
_lock = new_lock(sys.modules[__name__])


@dataclass(slots=True)
class Seam:
    """What a test can put in the place of the real thing; None and the default stand for that.

    Attributes
    ----------
    pread, inflate : ctypes function pointer or None
        Of types :data:`PreadFunction` and :data:`InflateFunction`.
    allocate : callable
        Takes a number of bytes, gives a uint8 array.
    """

    pread: Any = None
    inflate: Any = None
    allocate: Callable[[int], npt.NDArray[np.uint8]] = lambda nbytes: np.empty(nbytes, dtype=np.uint8)


SEAM = Seam()


@contextmanager
def replaced(**entries: Any) -> Iterator[None]:
    """Replace entries of the seam for the time of a ``with`` block; for tests."""
    before = {name: getattr(SEAM, name) for name in entries}
    for name, value in entries.items():
        setattr(SEAM, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(SEAM, name, value)


def table(foreign: Any) -> npt.NDArray[np.int64]:
    """Give the table of addresses for one job.

    Parameters
    ----------
    foreign : ctypes function pointer
        The callback that decodes what has no C function here.
    """
    libc = _libc()
    addresses = np.zeros(t.TABLE_SIZE, dtype=np.int64)
    addresses[t.PREAD] = _address(SEAM.pread or libc.pread)
    addresses[t.ERRNO] = _address(
        getattr(libc, "__error" if sys.platform == "darwin" else "__errno_location")
    )
    addresses[t.INFLATE] = _address(SEAM.inflate or _backend().inflate)
    addresses[t.FOREIGN] = _address(foreign)
    return addresses


def backend() -> str:
    """Name what inflates: "libdeflate", or the Python module that stands in for it."""
    return _backend().name


def decompressor() -> int:
    """Give a libdeflate decompressor for one thread; 0 where libdeflate is not there.

    Raises
    ------
    MemoryError
        If it can't be had.
    """
    library = _backend().library
    if library is None:
        return 0
    state = library.libdeflate_alloc_decompressor()
    if not state:
        raise MemoryError("libdeflate has no decompressor left")
    return int(state)


def prefix_slack() -> int:
    """Bytes to inflate past a wanted prefix, so that it is written whole; 0 where prefixes can't be had."""
    return _backend().slack


@dataclass(frozen=True, slots=True)
class _Backend:
    name: str
    inflate: Any
    library: Any = None
    slack: int = 0


@functools.cache
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _address(function: Any) -> int:
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)


def _backend() -> _Backend:
    with _lock:
        return _find_backend()


@functools.cache
def _find_backend() -> _Backend:
    for path in _candidates():
        try:
            library = ctypes.CDLL(path)
            function = library.libdeflate_zlib_decompress
            library.libdeflate_alloc_decompressor.restype = ctypes.c_void_p
        except (OSError, AttributeError):
            continue
        return _Backend("libdeflate", function, library, _measure_slack(library))
    return _python_backend()


def _candidates() -> Iterator[str]:
    spec = importlib.util.find_spec("imagecodecs")
    if spec is not None and spec.origin is not None:
        beside = Path(spec.origin).parent
        for folder in (beside.with_name("imagecodecs.libs"), beside / ".dylibs"):
            yield from sorted(str(path) for path in folder.glob("libdeflate*"))
    yield from ("libdeflate.so.0", "libdeflate.so", "libdeflate.0.dylib", "libdeflate.dylib")


#: Longest stretch that one step of inflate writes: a stored block. A step that does not fit writes nothing.
_SLACK = 65536


def _measure_slack(library: Any) -> int:
    """Check that a full output holds the prefix; libdeflate does so, but does not promise it."""
    data = bytes(np.random.default_rng(0).integers(0, 4, 1 << 18, dtype=np.uint8))
    stored = zlib.compress(data, 0)
    state = library.libdeflate_alloc_decompressor()
    try:
        for packed in (zlib.compress(data, 1), stored):
            for wanted in (1, 100_000, 131_072):
                room = wanted + _SLACK
                target = ctypes.create_string_buffer(room)
                code = library.libdeflate_zlib_decompress(
                    ctypes.c_void_p(state), packed, ctypes.c_size_t(len(packed)), target,
                    ctypes.c_size_t(room), None,
                )  # fmt: skip
                if code != t.INFLATE_FULL or target.raw[:wanted] != data[:wanted]:
                    return 0
    finally:
        library.libdeflate_free_decompressor(ctypes.c_void_p(state))
    return _SLACK


def _python_backend() -> _Backend:
    module: Any = zlib
    with suppress(ImportError):
        module = importlib.import_module("isal.isal_zlib")

    def inflate(_state: int, source: int, count: int, target: int, room: int, _actual: int) -> int:
        stream = module.decompressobj()
        try:
            data = stream.decompress(ctypes.string_at(source, count), room)
            more = not stream.eof and bool(stream.decompress(stream.unconsumed_tail, 1))
        except Exception:  # noqa: BLE001 - each module has its own; C takes a code
            return _BAD_DATA
        ctypes.memmove(target, data, len(data))
        if len(data) < room or not (stream.eof or more):
            return _SHORT_OUTPUT if stream.eof else _BAD_DATA
        return t.INFLATE_FULL if more else 0

    return _Backend(f"python:{module.__name__}", InflateFunction(inflate), slack=1)
