"""Compiled code when it is first needed, once per machine.

Numba keeps what it compiled on disk, beside this package or in the user's cache folder. A file lock makes
processes that start together compile once: one compiles, the others load. Nothing here runs at import.
"""

from __future__ import annotations

import functools
import hashlib
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from earthsciio.errors import Unsupported
from earthsciio.forks import Uncut

__all__ = ["JitStats", "batch_loop", "converter", "jit_stats", "loader", "scatterer", "verifier"]

#: Seconds to wait for another process that is compiling; then this one compiles too.
_PATIENCE = 300.0


@dataclass(frozen=True, slots=True)
class JitStats:
    """What compilation cost this process.

    Attributes
    ----------
    compiled, loaded : int
        Functions compiled here, and functions found compiled on disk.
    seconds : float
        Time spent on either.
    """

    compiled: int = 0
    loaded: int = 0
    seconds: float = 0.0


_whole = Uncut()
_stats = JitStats()


def jit_stats() -> JitStats:
    """Say what compilation cost this process so far."""
    return _stats


def batch_loop() -> Callable[[int, int, int], int]:
    """Give the compiled batch loop; see :func:`earthsciio.decode.kernels.make_batch_loop`."""
    with _whole():
        loop: Callable[[int, int, int], int] = _batch_loop()
        return loop


def loader(width: int) -> int:
    """Give the address of a loader; see :func:`earthsciio.decode.elements.make_loader`."""
    with _whole():
        return int(_loader(width).address)


def converter(native: np.dtype[Any], out: np.dtype[Any]) -> int:
    """Give the address of a converter; see :func:`earthsciio.decode.elements.make_converter`."""
    with _whole():
        return int(_converter(native, out).address)


def scatterer(width: int) -> int:
    """Give the address of a scatterer; see :func:`earthsciio.decode.elements.make_scatterer`."""
    with _whole():
        return int(_scatterer(width).address)


def verifier() -> int:
    """Give the address of the checksum's verifier; see :func:`earthsciio.decode.elements.make_verifier`."""
    with _whole():
        return int(_verifier().address)


@functools.cache
def _batch_loop() -> Any:
    from .kernels import make_batch_loop

    return _make(lambda: make_batch_loop(_version()), lambda loop: sum(loop.stats.cache_hits.values()))


@functools.cache
def _loader(width: int) -> Any:
    from .elements import make_loader

    return _make(lambda: make_loader(width, _version()), lambda made: made.cache_hits)


@functools.cache
def _converter(native: np.dtype[Any], out: np.dtype[Any]) -> Any:
    from .elements import make_converter

    return _make(lambda: make_converter(native, out, _version()), lambda made: made.cache_hits)


@functools.cache
def _scatterer(width: int) -> Any:
    from .elements import make_scatterer

    return _make(lambda: make_scatterer(width, _version()), lambda made: made.cache_hits)


@functools.cache
def _verifier() -> Any:
    from .elements import make_verifier

    return _make(lambda: make_verifier(_version()), lambda made: made.cache_hits)


@functools.cache
def _version() -> int:
    """Tell this code from any other: numba would take a function for current when another file changed."""
    digest = hashlib.sha256()
    for name in ("tables.py", "intrinsics.py", "elements.py", "kernels.py"):
        digest.update(Path(__file__).with_name(name).read_bytes())
    return int.from_bytes(digest.digest()[:7], "big") + 1


def _make(build: Callable[[], Any], hits: Callable[[Any], int]) -> Any:
    global _stats  # noqa: PLW0603 - written under _whole only
    if _whole.is_cut:
        raise Unsupported(
            "kernels can't be compiled or loaded here: this process was forked while another thread did so",
            hint="Fork before the first read or after it, or start the process by spawn",
        )
    start = time.perf_counter()
    with _one_process():
        made = build()
    loaded = int(hits(made) > 0)
    _stats = JitStats(
        _stats.compiled + 1 - loaded, _stats.loaded + loaded, _stats.seconds + time.perf_counter() - start
    )
    return made


@contextmanager
def _one_process() -> Iterator[None]:
    """Hold off the other processes of this user; do without where there can be no lock."""
    import filelock
    from numba import config

    folders = [Path(__file__).parent / "__pycache__", Path(tempfile.gettempdir())]
    if config.CACHE_DIR:
        folders.insert(0, Path(config.CACHE_DIR))
    for folder in folders:
        lock = filelock.FileLock(folder / f"earthsciio-jit-{_user()}.lock", timeout=_PATIENCE)
        try:
            lock.acquire()
        except filelock.Timeout:
            break
        except OSError:
            continue
        try:
            yield
        finally:
            lock.release()
        return
    yield


def _user() -> int:
    import os

    return os.getuid() if hasattr(os, "getuid") else 0
