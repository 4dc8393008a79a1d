"""Compiled code that touches elements: fetching them out of stored bytes, and making values of them.

Importing this module imports numba, so only :mod:`earthsciio.decode.jit` does, at the first decode. There
are two main kinds, both called by address, once per block that fits the first-level cache. A *loader*
knows a width and no type: it unshuffles and swaps bytes, and leaves native words. A *converter* knows a
stored and a delivered type: it masks and unpacks. Each is small, so that few seconds pass when a new type
turns up for the first time on a machine. Scattered output and checksums have a function of their own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, cfunc, types

from . import tables as t
from .intrinsics import byteswap, compiled, pointer, turn_tile4, turn_tile8

__all__ = ["make_converter", "make_loader", "make_scatterer", "make_verifier"]


@compiled
def _load_plain(words: Any, address: int, step: int, count: int, swap: int) -> None:
    """Fetch `count` elements, `step` apart, as native words."""
    source = carray(pointer(address), (count - 1) * step + 1, words.dtype)
    if step == 1:
        for k in range(count):
            words[k] = source[k]
    else:
        for k in range(count):
            words[k] = source[k * step]
    if swap != 0:
        for k in range(count):
            words[k] = byteswap(words[k])


@compiled
def _join4(p0: Any, p1: Any, p2: Any, p3: Any, k: int) -> Any:
    # every operand 32 bits wide: with int64 in between this runs fourteen times slower
    return np.uint32(
        np.uint32(p0[k])
        | np.uint32(p1[k]) << np.uint32(8)
        | np.uint32(p2[k]) << np.uint32(16)
        | np.uint32(p3[k]) << np.uint32(24)
    )


@compiled
def _load_planes(words: Any, address: int, hop: int, step: int, count: int) -> None:
    """Fetch `count` elements, `step` apart, from byte planes `hop` apart, lowest byte first."""
    width, span = words.itemsize, (count - 1) * step + 1
    # separate contiguous views, so that the compiler sees planes and not a gather
    p0 = carray(pointer(address), span, np.uint8)
    p1 = carray(pointer(address + hop), span, np.uint8)
    if width == 2:
        if step == 1:  # written out: a loop over a stride that happens to be 1 is no vector loop
            for k in range(count):
                words[k] = np.uint32(p0[k]) | np.uint32(p1[k]) << np.uint32(8)
        else:
            for k in range(count):
                words[k] = np.uint32(p0[k * step]) | np.uint32(p1[k * step]) << np.uint32(8)
        return
    p2 = carray(pointer(address + 2 * hop), span, np.uint8)
    p3 = carray(pointer(address + 3 * hop), span, np.uint8)
    if width == 4:
        if step == 1:
            for k in range(count):
                words[k] = _join4(p0, p1, p2, p3, k)
        else:
            for k in range(count):
                words[k] = _join4(p0, p1, p2, p3, k * step)
        return
    p4 = carray(pointer(address + 4 * hop), span, np.uint8)
    p5 = carray(pointer(address + 5 * hop), span, np.uint8)
    p6 = carray(pointer(address + 6 * hop), span, np.uint8)
    p7 = carray(pointer(address + 7 * hop), span, np.uint8)
    if step == 1:
        for k in range(count):
            low, high = _join4(p0, p1, p2, p3, k), _join4(p4, p5, p6, p7, k)
            words[k] = np.uint64(low) | np.uint64(high) << np.uint64(32)
    else:
        for k in range(count):
            low, high = _join4(p0, p1, p2, p3, k * step), _join4(p4, p5, p6, p7, k * step)
            words[k] = np.uint64(low) | np.uint64(high) << np.uint64(32)


@compiled
def _unpack(values: Any, numbers: Any, count: int, flags: Any, floats: Any, masked: Any) -> None:
    """Unpack in float64, two roundings, never fused; and mask the first of the masked values on the way."""
    scale, offset, masks = floats[t.V_SCALE], floats[t.V_ADD], flags[t.V_MASKS] != 0
    if flags[t.V_SCALED] != 0 and flags[t.V_SHIFTED] != 0:
        for k in range(count):
            value = np.float64(numbers[k]) * scale + offset
            values[k] = np.nan if masks & (numbers[k] == masked) else value
    elif flags[t.V_SCALED] != 0:
        for k in range(count):
            value = np.float64(numbers[k]) * scale
            values[k] = np.nan if masks & (numbers[k] == masked) else value
    elif flags[t.V_SHIFTED] != 0:
        for k in range(count):
            value = np.float64(numbers[k]) + offset
            values[k] = np.nan if masks & (numbers[k] == masked) else value
    else:
        for k in range(count):
            values[k] = np.nan if masks & (numbers[k] == masked) else np.float64(numbers[k])


@compiled
def _mask_rest(values: Any, numbers: Any, count: int, flags: Any, limits: Any) -> None:
    """Make NaN of what the other rules call missing; one pass over the block per rule."""
    slot = limits.size // flags.size
    for m in range(1, flags[t.V_MASKS]):
        masked = limits[(t.V_VALUES + m) * slot]
        for k in range(count):
            if numbers[k] == masked:
                values[k] = np.nan
    if flags[t.V_MASK_NAN] != 0:
        for k in range(count):
            if numbers[k] != numbers[k]:  # only NaN is
                values[k] = np.nan
    if flags[t.V_LOW] != 0:
        lowest = limits[t.V_LOWEST * slot]
        for k in range(count):
            if numbers[k] < lowest:
                values[k] = np.nan
    if flags[t.V_HIGH] != 0:
        highest = limits[t.V_HIGHEST * slot]
        for k in range(count):
            if numbers[k] > highest:
                values[k] = np.nan


@compiled
def _is_missing(number: Any, flags: Any, limits: Any) -> Any:
    """Whether one integer is missing."""
    slot = limits.size // flags.size
    missing = (flags[t.V_LOW] != 0 and number < limits[t.V_LOWEST * slot]) or (
        flags[t.V_HIGH] != 0 and number > limits[t.V_HIGHEST * slot]
    )
    for m in range(flags[t.V_MASKS]):
        missing = missing or number == limits[(t.V_VALUES + m) * slot]
    return missing


def make_loader(width: int, version: int) -> Any:
    """Give the function that fetches elements of a width.

    Parameters
    ----------
    width : int
        Bytes per element: 1, 2, 4 or 8.
    version : int
        Tells this code from any other in numba's cache, which looks at the age of one file only.

    Returns
    -------
    numba.core.ccallback.CFunc
        ``load(words, raw, plane, first, step, count, swap)``: from element `first` of the bytes at `raw` on,
        `count` elements, `step` apart, to the aligned words at `words`. `plane` is the number of elements
        per byte plane if the bytes are shuffled, else 0; `swap` is nonzero for a foreign byte order.
    """
    word = np.dtype(f"u{width}")

    def load(target: int, raw: int, plane: int, first: int, step: int, count: int, swap: int) -> int:
        words = carray(pointer(target), count, word)
        if version == 0:  # never: being used makes it part of the cache's key
            return 1
        if width == 1 or plane == 0:
            _load_plain(words, raw + first * width, step, count, swap)
        elif swap == 0:
            _load_planes(words, raw + first, plane, step, count)
        else:  # the last plane is the lowest byte
            _load_planes(words, raw + first + (width - 1) * plane, -plane, step, count)
        return 0

    signature = types.int64(*[types.int64] * 7)
    return cfunc(signature, cache=True, nopython=True, error_model="numpy")(load)


def make_converter(native: np.dtype[Any], out: np.dtype[Any], version: int) -> Any:
    """Give the function that makes values of native words.

    Parameters
    ----------
    native : numpy.dtype
        Integer or float of 1 to 8 bytes, native order: what the words are.
    out : numpy.dtype
        `native` itself, float64, or float32.
    version : int
        As in :func:`make_loader`.

    Returns
    -------
    numba.core.ccallback.CFunc
        ``convert(values, words, count, rules)`` gives ``OK`` or ``NOT_EXACT``; addresses that don't overlap.
    """
    word = np.dtype(f"u{native.itemsize}")
    slot = 8 // native.itemsize
    same = native == out
    can_mask = out.kind == "f"
    is_wide = native.kind in "iu" and native.itemsize == 8 and not same
    as_integer = types.uint64 if native.kind == "u" else types.int64
    not_a_number = word.type(np.array(np.nan, dtype=out).view(word)) if same and can_mask else word.type(0)
    # a float that no integer of the type reaches: converting it back would overflow
    top = 2.0 ** (64 if native.kind == "u" else 63)

    def convert(target: int, source: int, count: int, rules: int) -> int:
        if version == 0:
            return t.OK
        slots = t.V_VALUES + carray(pointer(rules), 1, np.int64)[0]
        flags = carray(pointer(rules), slots, np.int64)
        floats = carray(pointer(rules), slots, np.float64)
        limits = carray(pointer(rules), slots * slot, native)
        values, numbers = carray(pointer(target), count, out), carray(pointer(source), count, native)
        if is_wide:
            for k in range(count):
                number = np.float64(numbers[k])
                if (number >= top or as_integer(number) != numbers[k]) and not _is_missing(
                    numbers[k], flags, limits
                ):
                    return t.NOT_EXACT
        masks = flags[t.V_MASKS] != 0
        masked = limits[t.V_VALUES * slot] if masks else numbers[0]
        if same and flags[t.V_SCALED] == 0 and flags[t.V_SHIFTED] == 0:  # the bits, NaN payloads included
            bits, words = carray(pointer(target), count, word), carray(pointer(source), count, word)
            for k in range(count):
                bits[k] = not_a_number if masks & (numbers[k] == masked) else words[k]
        else:
            _unpack(values, numbers, count, flags, floats, masked)
        if can_mask and flags[t.V_MASKING] != 0:
            _mask_rest(values, numbers, count, flags, limits)
        return t.OK

    signature = types.int64(*[types.int64] * 4)
    return cfunc(signature, cache=True, nopython=True, error_model="numpy")(convert)


def make_scatterer(width: int, version: int) -> Any:
    """Give the function that writes a block to where its rows and columns are far apart.

    Parameters
    ----------
    width : int
        Bytes per element: 1, 2, 4 or 8.
    version : int
        As in :func:`make_loader`.

    Returns
    -------
    numba.core.ccallback.CFunc
        ``scatter(target, block, row_stride, column_stride, rows, columns)``; strides in bytes. Writes along
        the rows first, which are the nearer ones.
    """
    word = np.dtype(f"u{width}")
    side = 32 // width  # of a tile that is turned in registers

    def scatter(target: int, source: int, row_stride: int, col_stride: int, rows: int, cols: int) -> int:
        if version == 0:
            return 1
        block = carray(pointer(source), rows * cols, word)
        if row_stride == width and width >= 4 and rows >= side and cols >= side:
            # the last tile of each axis overlaps the one before
            for first_row in range(0, rows, side):
                row = min(first_row, rows - side)
                for first_col in range(0, cols, side):
                    col = min(first_col, cols - side)
                    into, out_of = (
                        target + row * width + col * col_stride,
                        source + (row * cols + col) * width,
                    )
                    if width == 4:
                        turn_tile4(into, col_stride, out_of, cols * width)
                    else:
                        turn_tile8(into, col_stride, out_of, cols * width)
        elif row_stride == width:
            for c in range(cols):
                column = carray(pointer(target + c * col_stride), rows, word)
                for r in range(rows):
                    column[r] = block[r * cols + c]
        else:
            for c in range(cols):
                for r in range(rows):
                    carray(pointer(target + c * col_stride + r * row_stride), 1, word)[0] = block[
                        r * cols + c
                    ]
        return 0

    signature = types.int64(*[types.int64] * 6)
    return cfunc(signature, cache=True, nopython=True, error_model="numpy")(scatter)


@compiled
def _fold(total: Any) -> Any:
    """Reduce to 16 bits as end-around carries would: a nonzero sum never becomes 0."""
    return 0 if total == 0 else (total - 1) % 65535 + 1


@compiled
def _fletcher32(address: int, count: int) -> Any:
    """Give HDF5's checksum: Fletcher's over big-endian 16-bit words, an odd last byte as a high one."""
    data = carray(pointer(address), count, np.uint8)
    low, high = np.int64(0), np.int64(0)
    words = count // 2
    for start in range(0, words, 4096):
        size = min(4096, words - start)
        plain, weighted = np.int64(0), np.int64(0)
        for k in range(size):
            value = np.int64(data[2 * (start + k)]) << 8 | np.int64(data[2 * (start + k) + 1])
            plain += value
            weighted += value * (size - k)
        high = _fold(high + low * size + weighted)
        low = _fold(low + plain)
    if count % 2:
        low = _fold(low + (np.int64(data[count - 1]) << 8))
        high = _fold(high + low)
    return high << 16 | low


def make_verifier(version: int) -> Any:
    """Give the function that checks a Fletcher checksum; `version` as in :func:`make_loader`.

    Returns
    -------
    numba.core.ccallback.CFunc
        ``verify(address, count)`` gives 1 if the four bytes behind `count` bytes are their checksum, else 0.
    """

    def verify(address: int, count: int) -> int:
        stored = carray(pointer(address + count), 4, np.uint8)
        a, b, c, d = np.int64(stored[0]), np.int64(stored[1]), np.int64(stored[2]), np.int64(stored[3])
        expected = _fletcher32(address, count) if version != 0 else -1
        # early HDF5 swapped the bytes of both halves on little-endian machines
        straight, swapped = a | b << 8 | c << 16 | d << 24, b | a << 8 | d << 16 | c << 24
        return 1 if expected in (straight, swapped) else 0

    return cfunc("int64(int64,int64)", cache=True, nopython=True, error_model="numpy")(verify)
