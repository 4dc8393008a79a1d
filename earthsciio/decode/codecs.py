"""From a chunk's filters to the steps that undo them, and the codecs that live in Python.

Deflate, shuffle and Fletcher's checksum are undone by compiled code. Zstandard, LZ4, LZF, Blosc, szip and
bzip2 are undone by imagecodecs (or the standard library), called back once per chunk; imagecodecs releases
the GIL while it works. Any other filter is a reason to take the format's own library.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from earthsciio.forks import new_lock
from earthsciio.formats.encoded import EncodedArray, Filter

from . import tables as t
from .native import ForeignFunction

__all__ = ["FOREIGN_CALLBACK", "MAX_EXPANSION", "Program", "Step", "program"]

DEFLATE, SHUFFLE, FLETCHER32, SZIP, BZIP2 = 1, 2, 3, 4, 307
LZF, BLOSC, LZ4, ZSTD = 32000, 32001, 32004, 32015

#: No codec makes more bytes of one: chunks that claim so are damaged, and no memory is asked for them.
MAX_EXPANSION = {"deflate": 1032, "foreign": 1 << 17, "bzip2": 1 << 20}

#: Steps that make more bytes of fewer.
_COMPRESSORS = (t.OP_INFLATE, t.OP_FOREIGN)

#: Decodes stored bytes; takes them, the number of bytes they become, and the filter's parameters.
Codec: TypeAlias = Callable[[bytes, int, tuple[int, ...]], Any]


@dataclass(frozen=True, slots=True)
class Step:
    """One filter to undo.

    Attributes
    ----------
    op : int
        One of the ``OP_`` numbers.
    bit : int
        The filter's position in the pipeline.
    argument : int
        Element width of a shuffle, number of a foreign codec.
    """

    op: int
    bit: int
    argument: int = 0


@dataclass(frozen=True, slots=True)
class Program:
    """The steps that undo an array's filters, in decoding order.

    Attributes
    ----------
    steps : tuple of Step
        The last filter applied is undone first.
    expansion : int
        How many bytes one stored byte can become.
    """

    steps: tuple[Step, ...]
    expansion: int

    @property
    def is_prefix_able(self) -> bool:
        """Whether the start of a chunk can be had without its end."""
        return [step.op for step in self.steps] == [t.OP_INFLATE]


def program(encoded: EncodedArray) -> Program | str:
    """Give the steps that undo an array's filters, or the reason why there are none.

    The engine knows how many bytes each step makes only if at most one of them changes that by an amount of
    its own: bytes are compressed once, and may be checked, but not shuffled or compressed again, after that.
    """
    steps: list[Step] = []
    expansion = 1
    for bit, applied in reversed(list(enumerate(encoded.filters))):
        step = _step(applied, bit)
        if step is None:
            return f"filter {_spell(applied)}"
        is_compressor = step.op in _COMPRESSORS
        if is_compressor and any(earlier.op != t.OP_FLETCHER for earlier in steps):
            return f"filters in the order {', '.join(map(_spell, encoded.filters))}"
        steps.append(step)
        if is_compressor:
            expansion = MAX_EXPANSION[{DEFLATE: "deflate", BZIP2: "bzip2"}.get(applied.code, "foreign")]
    return Program(tuple(steps), expansion)


def _spell(applied: Filter) -> str:
    return f"{applied.code} ({applied.name or 'unnamed'})"


def _step(applied: Filter, bit: int) -> Step | None:
    """Give the step that undoes a filter; None if there is none, or not for its parameters."""
    match applied.code, applied.parameters:
        case 1, _:
            return Step(t.OP_INFLATE, bit)
        case 2, (width,) if width > 0:
            return Step(t.OP_SHUFFLE, bit, width)
        case 3, _:
            return Step(t.OP_FLETCHER, bit)
        case code, parameters if code == SZIP and len(parameters) != 4:
            return None
        case code, parameters if code in _CODECS:
            return Step(t.OP_FOREIGN, bit, _number(code, parameters))
    return None


def _zstd(data: bytes, room: int, _parameters: tuple[int, ...]) -> Any:
    import imagecodecs

    return imagecodecs.zstd_decode(data, out=room)


def _lz4(data: bytes, room: int, _parameters: tuple[int, ...]) -> Any:
    import imagecodecs

    return imagecodecs.lz4h5_decode(data, out=room)


def _lzf(data: bytes, room: int, _parameters: tuple[int, ...]) -> Any:
    import imagecodecs

    return imagecodecs.lzf_decode(data, out=room)


def _blosc(data: bytes, room: int, _parameters: tuple[int, ...]) -> Any:
    import imagecodecs

    return imagecodecs.blosc_decode(data, numthreads=1, out=room)


def _szip(data: bytes, room: int, parameters: tuple[int, ...]) -> Any:
    import imagecodecs

    options, pixels_per_block, bits_per_pixel, pixels_per_scanline = parameters
    return imagecodecs.szip_decode(
        data, options, pixels_per_block, bits_per_pixel, pixels_per_scanline, header=True, out=room
    )


def _bzip2(data: bytes, room: int, _parameters: tuple[int, ...]) -> Any:
    import bz2

    return bz2.BZ2Decompressor().decompress(data, room + 1)


_CODECS: dict[int, Codec] = {
    ZSTD: _zstd, LZ4: _lz4, LZF: _lzf, BLOSC: _blosc, SZIP: _szip, BZIP2: _bzip2,
}  # fmt: skip

_lock = new_lock(sys.modules[__name__])
_numbers: dict[tuple[int, tuple[int, ...]], int] = {}
_by_number: list[tuple[int, tuple[int, ...]]] = []


def _number(code: int, parameters: tuple[int, ...]) -> int:
    """Give the number of a codec with its parameters, the same every time."""
    with _lock:
        key = (code, parameters)
        if key not in _numbers:
            _by_number.append(key)
            _numbers[key] = len(_by_number) - 1  # in this order: a fork in between wastes a number
        return _numbers[key]


def _decode_foreign(number: int, source: int, count: int, target: int, room: int) -> int:
    code, parameters = _by_number[number]
    try:
        data = memoryview(_CODECS[code](ctypes.string_at(source, count), room, parameters)).cast("B")
    except Exception:  # noqa: BLE001 - every codec has its own; C takes a number
        return -1
    if len(data) > room:
        return -1
    ctypes.memmove(target, bytes(data), len(data))
    return len(data)


#: Takes a codec's number, source, count, target, room; gives the bytes written, or -1.
FOREIGN_CALLBACK = ForeignFunction(_decode_foreign)
