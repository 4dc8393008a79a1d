"""The batch loop: claim a chunk, ``pread`` it, undo its filters, place it in K outputs; without the GIL.

Importing this module imports numba, so only :mod:`earthsciio.decode.jit` does, at the first decode. Compiled
once, for one signature: it knows no element type, and calls a loader and a converter
(:mod:`earthsciio.decode.elements`) for what touches elements. Everything crosses as 64-bit integers in the
rows of :mod:`earthsciio.decode.tables`. C functions are called through a table of addresses
(:mod:`earthsciio.decode.native`), so compiled code holds no address, can be cached on disk, and calls
whatever a test puts there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, njit, types

from . import tables as t
from .intrinsics import (
    call_converter,
    call_loader,
    call_scatterer,
    call_verifier,
    compiled,
    copy_bytes,
    drain,
    errno_location,
    fetch_add,
    foreign,
    get,
    inflate,
    load_word,
    pointer,
    pread,
    put,
    stream_line,
)

__all__ = ["make_batch_loop"]


@compiled
def _read(table: int, fd: int, target: int, count: int, offset: int, outcome: int) -> int:
    """Read `count` bytes at `offset`, however many calls that takes."""
    done = 0
    while done < count:
        got = pread(get(table, t.PREAD), fd, target + done, count - done, offset + done)
        if got > 0:
            done += got
        elif got == 0:
            put(outcome, t.DETAIL, done)
            return t.READ_SHORT
        else:
            reason = load_word(errno_location(get(table, t.ERRNO)))
            if reason != 4:  # EINTR
                put(outcome, t.DETAIL, reason)
                return t.READ_FAILED
    return t.OK


@compiled
def _unshuffle(target: int, source: int, count: int, step: int) -> None:
    """Undo a shuffle; bytes behind the last whole element stay where they are."""
    width = get(step, t.ARGUMENT)
    elements = count // width
    if get(step, t.ROUTINE) != 0:
        call_loader(get(step, t.ROUTINE), target, source, elements, 0, 1, elements, 0)
    else:
        into = carray(pointer(target), count, np.uint8)
        planes = carray(pointer(source), count, np.uint8)
        for b in range(width):
            for k in range(elements):
                into[k * width + b] = planes[b * elements + k]
    copy_bytes(target + elements * width, source + elements * width, count - elements * width)


@compiled
def _find_wanted(job: int, item: int, array: int, span: int) -> None:
    """Find the first and past-the-last element that any placement takes from a chunk."""
    low, high = 1 << 62, 0
    for p in range(get(item, t.FIRST), get(item, t.FIRST) + get(item, t.COUNT)):
        placement = get(job, t.J_PLACEMENTS) + 8 * t.PLACEMENT_COLUMNS * p
        first, last = 0, 0
        for axis in range(get(array, t.RANK)):
            part = get(job, t.J_PARTS) + 16 * get(placement, t.PARTS + axis)
            lowest, highest = 1 << 62, 0
            for r in range(get(part, 0), get(part, 0) + get(part, 1)):
                run = get(job, t.J_RUNS) + 32 * r
                lowest = min(lowest, get(run, t.SRC))
                highest = max(highest, get(run, t.SRC) + (get(run, t.RUN) - 1) * get(run, t.STEP))
            first += lowest * get(array, t.STRIDES + axis)
            last += highest * get(array, t.STRIDES + axis)
        low = min(low, first)
        high = max(high, last + 1)
    put(span, t.S_LOW, low)
    put(span, t.S_HIGH, high)


@compiled
def _load_plain(job: int, item: int, array: int, space: int, outcome: int) -> int:
    """Read what is wanted of a chunk that has no filters; the rest of its bytes is not touched."""
    if get(item, t.SIZE) != get(item, t.RAW):
        put(outcome, t.DETAIL, get(item, t.SIZE))
        return t.WRONG_LENGTH
    span, encoded = get(space, t.SPAN), get(space, t.ENCODED)
    low, high = get(span, t.S_LOW) * get(array, t.ITEMSIZE), get(span, t.S_HIGH) * get(array, t.ITEMSIZE)
    if get(item, t.KEEP) != 0:
        low, high = 0, get(item, t.RAW)
    put(span, t.S_BYTES, encoded)
    put(span, t.S_SHUFFLED, 0)
    return _read(
        get(job, t.J_TABLE), get(job, t.J_FD), encoded + low, high - low, get(item, t.OFFSET) + low, outcome
    )


@compiled
def _undo_inflate(job: int, array: int, space: int, other: int, outcome: int) -> int:
    """Inflate all of a chunk, or where its checksum may be skipped no more than is wanted."""
    span = get(space, t.SPAN)
    room = wanted = get(span, t.S_ROOM)
    if get(array, t.PREFIX) != 0:
        wanted = min(room, get(span, t.S_HIGH) * get(array, t.ITEMSIZE) + get(array, t.PREFIX))
    code = inflate(
        get(get(job, t.J_TABLE), t.INFLATE),
        get(space, t.DECOMPRESSOR), get(span, t.S_BYTES), get(span, t.S_LENGTH), other, wanted, 0,
    )  # fmt: skip
    if code != 0 and not (code == t.INFLATE_FULL and wanted < room):
        put(outcome, t.DETAIL, code)
        return t.INFLATE_FAILED
    put(span, t.S_BYTES, other)
    put(span, t.S_LENGTH, room)
    return t.OK


@compiled
def _undo(job: int, array: int, step: int, is_last: bool, space: int, outcome: int) -> int:
    """Undo one filter."""
    span, op, argument = get(space, t.SPAN), get(step, t.OP), get(step, t.ARGUMENT)
    current, length, room = get(span, t.S_BYTES), get(span, t.S_LENGTH), get(span, t.S_ROOM)
    other = get(space, t.SPARE) if current == get(space, t.DECODED) else get(space, t.DECODED)
    if op == t.OP_INFLATE:
        return _undo_inflate(job, array, space, other, outcome)
    if op == t.OP_FLETCHER:
        put(span, t.S_ROOM, room - 4)
        put(span, t.S_LENGTH, length - 4)
        if length < 4 or not call_verifier(get(step, t.ROUTINE), current, length - 4):
            return t.CHECKSUM_FAILED
        return t.OK
    if op == t.OP_FOREIGN:
        length = foreign(get(get(job, t.J_TABLE), t.FOREIGN), argument, current, length, other, room)
        put(outcome, t.DETAIL, length)
        if length < 0:
            return t.FOREIGN_FAILED
        put(span, t.S_BYTES, other)
        put(span, t.S_LENGTH, length)
        return t.OK
    if length != room:
        put(outcome, t.DETAIL, length)
        return t.WRONG_LENGTH
    if is_last and argument == get(array, t.ITEMSIZE):
        put(span, t.S_SHUFFLED, 1)  # left to the placer
    elif argument > 1:
        _unshuffle(other, current, length, step)
        put(span, t.S_BYTES, other)
    return t.OK


@compiled
def _load_filtered(job: int, item: int, array: int, space: int, outcome: int) -> int:
    """Read a chunk and undo its filters."""
    span, mask, size = get(space, t.SPAN), get(item, t.MASK), get(item, t.SIZE)
    encoded = get(space, t.ENCODED)
    code = _read(get(job, t.J_TABLE), get(job, t.J_FD), encoded, size, get(item, t.OFFSET), outcome)
    if code != t.OK:
        return code
    steps = get(job, t.J_PROGRAMS) + 8 * t.PROGRAM_COLUMNS * get(array, t.PROGRAM)
    end = steps + 8 * t.PROGRAM_COLUMNS * get(array, t.PROGRAM_COUNT)
    room = get(item, t.RAW)
    for step in range(steps, end, 8 * t.PROGRAM_COLUMNS):
        if get(step, t.OP) == t.OP_FLETCHER and not mask >> get(step, t.BIT) & 1:
            room += 4
    put(span, t.S_BYTES, encoded)
    put(span, t.S_LENGTH, size)
    put(span, t.S_ROOM, room)
    put(span, t.S_SHUFFLED, 0)
    for step in range(steps, end, 8 * t.PROGRAM_COLUMNS):
        if mask >> get(step, t.BIT) & 1:
            continue
        code = _undo(job, array, step, step + 8 * t.PROGRAM_COLUMNS == end, space, outcome)
        if code != t.OK:
            return code
    if get(span, t.S_LENGTH) != get(item, t.RAW):
        put(outcome, t.DETAIL, get(span, t.S_LENGTH))
        return t.WRONG_LENGTH
    return t.OK


@compiled
def _gather_axes(job: int, placement: int, array: int, out: int, fill: int, axes: int, call: int) -> int:
    """List the axes longer than one, innermost first, merging what is contiguous on both sides.

    Gives how many there are, at least two, and leaves the first element's places in the call.
    """
    source, target, used = 0, get(out, 0), 0
    for axis in range(get(array, t.RANK) - 1, -1, -1):
        part = get(job, t.J_PARTS) + 16 * get(placement, t.PARTS + axis)
        src = 0 if fill else get(array, t.STRIDES + axis)
        dst = get(out, 1 + axis)
        row = axes + 8 * t.AXIS_COLUMNS * used
        first, count = -1, 1
        if get(part, 1) == 1:
            run = get(job, t.J_RUNS) + 32 * get(part, 0)
            source += get(run, t.SRC) * src
            target += get(run, t.DST) * dst
            count = get(run, t.RUN)
            if count == 1:
                continue
            src *= get(run, t.STEP)
            inner = row - 8 * t.AXIS_COLUMNS
            if used > 0 and get(inner, t.A_FIRST) < 0:
                length = get(inner, t.A_COUNT)
                if src == length * get(inner, t.A_SRC) and dst == length * get(inner, t.A_DST):
                    put(inner, t.A_COUNT, length * count)
                    continue
        else:
            first = get(part, 0)
        put(row, t.A_FIRST, first)
        put(row, t.A_RUNS, get(part, 1))
        put(row, t.A_COUNT, count)
        put(row, t.A_SRC, src)
        put(row, t.A_DST, dst)
        used += 1
    if get(call, t.P_MEMBERS) > 1:  # an axis of its own: from one member's bytes to the next one's
        apart, axis = get(job, t.J_APART), get(array, t.GANG_AXIS)
        row = axes + 8 * t.AXIS_COLUMNS * used
        put(row, t.A_FIRST, -1)
        put(row, t.A_RUNS, 1)
        put(row, t.A_COUNT, get(call, t.P_MEMBERS))
        # in byte planes an element is found by the byte of its first plane
        put(row, t.A_SRC, apart if get(call, t.P_PLANE) > 0 else apart // get(array, t.ITEMSIZE))
        put(row, t.A_DST, get(out, 1 + axis))
        used += 1
    while used < 2:
        row = axes + 8 * t.AXIS_COLUMNS * used
        put(row, t.A_FIRST, -1)
        put(row, t.A_RUNS, 1)
        put(row, t.A_COUNT, 1)
        put(row, t.A_SRC, 0)
        put(row, t.A_DST, 0)
        used += 1
    for axis in range(used):
        put(axes + 8 * t.AXIS_COLUMNS * axis, t.A_RUN, 0)
        put(axes + 8 * t.AXIS_COLUMNS * axis, t.A_AT, 0)
    put(call, t.P_SRC, source)
    put(call, t.P_DST, target)
    return used


@compiled
def _span_of(job: int, axis: int, run: int) -> tuple[int, int, int, int]:
    """Give a run of an axis: element and byte offset of its first, how many, elements between two."""
    src, dst = get(axis, t.A_SRC), get(axis, t.A_DST)
    if get(axis, t.A_FIRST) < 0:
        return 0, 0, get(axis, t.A_COUNT), src
    row = get(job, t.J_RUNS) + 32 * (get(axis, t.A_FIRST) + run)
    return get(row, t.SRC) * src, get(row, t.DST) * dst, get(row, t.RUN), get(row, t.STEP) * src


@compiled
def _count_on(job: int, axes: int, used: int, row: int) -> bool:
    """Step to the next combination of the axes that are neither columns nor rows."""
    for number in range(1, used):
        if number == row:
            continue
        axis = axes + 8 * t.AXIS_COLUMNS * number
        at, run = get(axis, t.A_AT) + 1, get(axis, t.A_RUN)
        _, _, count, _ = _span_of(job, axis, run)
        if at == count:
            at, run = 0, run + 1
        done = run == get(axis, t.A_RUNS)
        put(axis, t.A_AT, at)
        put(axis, t.A_RUN, 0 if done else run)
        if not done:
            return True
    return False


@compiled
def _stream(target: int, source: int, count: int) -> None:
    """Copy bytes past the caches, whole lines of them."""
    head = min(-target % 64, count)
    lines = (count - head) // 64
    copy_bytes(target, source, head)
    for line in range(lines):
        stream_line(target + head + 64 * line, source + head + 64 * line)
    done = head + 64 * lines
    copy_bytes(target + done, source + done, count - done)


@compiled
def _place_piece(
    call: int, array: int, src: int, dst: int, rows: int, row_src: int, cols: int, col_src: int
) -> int:
    """Place a two-dimensional piece of a chunk, block by block through the first-level cache."""
    raw, plane, swap = get(call, t.P_RAW), get(call, t.P_PLANE), get(array, t.SWAP)
    load, convert, rules = get(array, t.LOADER), get(array, t.CONVERTER), get(array, t.RULES)
    words, block = get(call, t.P_WORDS), get(call, t.P_BLOCK)
    row_dst, col_dst, size = get(call, t.P_ROW_DST), get(call, t.P_COL_DST), get(array, t.OUT_ITEMSIZE)
    if cols == 1:
        cols, col_src, col_dst = rows, row_src, row_dst
        rows, row_src, row_dst = 1, 0, 0
    adjacent = col_dst == size or cols == 1
    streams = adjacent and get(array, t.STREAMED) != 0
    direct = adjacent and not streams
    # a tile of rows is turned when the output runs fastest along the rows
    tall, wide = 1, t.BLOCK
    if not adjacent and abs(row_dst) < abs(col_dst):
        tall = min(rows, t.TILE_ROWS)
        wide = min(t.BLOCK, t.TILE // tall)
    for row in range(0, rows, tall):
        height = min(tall, rows - row)
        for col in range(0, cols, wide):
            width = min(wide, cols - col)
            target = dst + row * row_dst + col * col_dst
            for r in range(height):
                first = src + (row + r) * row_src + col * col_src
                into = target if direct else block + r * width * size
                if convert == 0:
                    call_loader(load, into, raw, plane, first, col_src, width, swap)
                else:
                    call_loader(load, words, raw, plane, first, col_src, width, swap)
                    code = call_converter(convert, into, words, width, rules)
                    if code != t.OK:
                        return code
                if streams:
                    _stream(target + r * row_dst, into, width * size)
            if adjacent:
                continue
            call_scatterer(get(array, t.SCATTERER), target, block, row_dst, col_dst, height, width)
    return t.OK


@compiled
def _place(job: int, placement: int, array: int, fill: int, space: int) -> int:
    """Write one placement: two axes as pieces, the others by counting through them."""
    call, axes = get(space, t.CALL), get(space, t.AXES)
    out = get(job, t.J_OUTS) + 8 * t.OUT_COLUMNS * get(placement, t.OUT)
    used = _gather_axes(job, placement, array, out, fill, axes, call)
    source, target = get(call, t.P_SRC), get(call, t.P_DST)
    # columns follow the chunk; rows are the next axis, or the output's fastest where that is not the columns
    row = 1
    if get(axes, t.A_DST) != get(array, t.OUT_ITEMSIZE):
        for number in range(2, used):
            reach = get(axes + 8 * t.AXIS_COLUMNS * number, t.A_DST)
            if abs(reach) < abs(get(axes + 8 * t.AXIS_COLUMNS * row, t.A_DST)):
                row = number
    rows = axes + 8 * t.AXIS_COLUMNS * row
    put(call, t.P_ROW_DST, get(rows, t.A_DST))
    put(call, t.P_COL_DST, get(axes, t.A_DST))
    more = True
    while more:
        src, dst = source, target
        for number in range(1, used):
            if number != row:
                axis = axes + 8 * t.AXIS_COLUMNS * number
                first, begin, _, step = _span_of(job, axis, get(axis, t.A_RUN))
                src += first + get(axis, t.A_AT) * step
                dst += begin + get(axis, t.A_AT) * get(axis, t.A_DST)
        for i in range(get(rows, t.A_RUNS)):
            row_first, row_begin, height, row_step = _span_of(job, rows, i)
            for j in range(get(axes, t.A_RUNS)):
                first, begin, width, step = _span_of(job, axes, j)
                code = _place_piece(
                    call,
                    array,
                    src + row_first + first,
                    dst + row_begin + begin,
                    height,
                    row_step,
                    width,
                    step,
                )
                if code != t.OK:
                    return code
        more = used > 2 and _count_on(job, axes, used, row)
    return t.OK


@compiled
def _load(job: int, item: int, array: int, space: int, outcome: int) -> int:
    """Have a chunk's decoded bytes in memory, where the span says."""
    span = get(space, t.SPAN)
    if get(item, t.KIND) == t.IMPOSSIBLE:
        return t.TOO_LARGE
    if get(item, t.KIND) != t.STORED:
        put(span, t.S_BYTES, get(item, t.ADDRESS))
        put(span, t.S_SHUFFLED, get(item, t.SHUFFLED))
        return t.OK
    _find_wanted(job, item, array, span)
    if get(array, t.PROGRAM_COUNT) == 0:
        return _load_plain(job, item, array, space, outcome)
    return _load_filtered(job, item, array, space, outcome)


@compiled
def _place_all(job: int, item: int, array: int, space: int, members: int) -> int:
    """Write all placements of a chunk, or of a gang by those of its first chunk."""
    span, call = get(space, t.SPAN), get(space, t.CALL)
    put(call, t.P_RAW, get(span, t.S_BYTES))
    put(call, t.P_PLANE, get(item, t.RAW) // get(array, t.ITEMSIZE) if get(span, t.S_SHUFFLED) else 0)
    put(call, t.P_WORDS, get(space, t.SCRATCH))
    put(call, t.P_BLOCK, get(space, t.SCRATCH) + 8 * t.BLOCK)
    put(call, t.P_MEMBERS, members)
    for p in range(get(item, t.FIRST), get(item, t.FIRST) + get(item, t.COUNT)):
        placement = get(job, t.J_PLACEMENTS) + 8 * t.PLACEMENT_COLUMNS * p
        code = _place(job, placement, array, get(item, t.KIND) == t.FILL, space)
        if code != t.OK:
            return code
    return t.OK


@compiled
def _decode(job: int, item: int, space: int, outcome: int) -> int:
    """Decode one chunk into all its placements."""
    array = get(job, t.J_ARRAYS) + 8 * t.ARRAY_COLUMNS * get(item, t.ARRAY)
    span = get(space, t.SPAN)
    code = _load(job, item, array, space, outcome)
    if code != t.OK:
        return code
    if get(item, t.KEEP) != 0 and get(item, t.KIND) == t.STORED:
        copy_bytes(get(item, t.KEEP), get(span, t.S_BYTES), get(item, t.RAW))
        put(outcome, t.KEPT_SHUFFLED, get(span, t.S_SHUFFLED))
    return _place_all(job, item, array, space, 1)


@compiled
def _decode_gang(job: int, first: int, count: int, space: int) -> int:
    """Decode the chunks of a gang, each to a place of its own, and place them together.

    Those of a gang that did not all end well, or alike, are placed one by one. Gives the first bad code.
    """
    places, apart = get(space, t.DECODED), get(job, t.J_APART)
    span = get(space, t.SPAN)
    first_item = get(job, t.J_ITEMS) + 8 * t.ITEM_COLUMNS * first
    first_outcome = get(job, t.J_OUTCOMES) + 8 * t.OUTCOME_COLUMNS * first
    array = get(job, t.J_ARRAYS) + 8 * t.ARRAY_COLUMNS * get(first_item, t.ARRAY)
    alike = True
    for member in range(count):
        item = first_item + 8 * t.ITEM_COLUMNS * member
        outcome = first_outcome + 8 * t.OUTCOME_COLUMNS * member
        place = places + member * apart
        put(space, t.DECODED, place)
        code = _load(job, item, array, space, outcome)
        put(outcome, t.CODE, code)
        put(outcome, t.KEPT_SHUFFLED, get(span, t.S_SHUFFLED))
        if code == t.OK and get(span, t.S_BYTES) != place:
            copy_bytes(place, get(span, t.S_BYTES), get(item, t.RAW))
        alike &= code == t.OK and get(span, t.S_SHUFFLED) == get(first_outcome, t.KEPT_SHUFFLED)
    put(space, t.DECODED, places)
    put(span, t.S_BYTES, places)
    if alike and _place_all(job, first_item, array, space, count) == t.OK:
        return t.OK
    worst = t.OK
    for member in range(count):
        item = first_item + 8 * t.ITEM_COLUMNS * member
        outcome = first_outcome + 8 * t.OUTCOME_COLUMNS * member
        if get(outcome, t.CODE) == t.OK:
            put(span, t.S_BYTES, places + member * apart)
            put(span, t.S_SHUFFLED, get(outcome, t.KEPT_SHUFFLED))
            put(outcome, t.CODE, _place_all(job, item, array, space, 1))
        if worst == t.OK:
            worst = get(outcome, t.CODE)
    return worst


def make_batch_loop(version: int) -> Any:
    """Give the batch loop, compiled or loaded from the cache on disk.

    `version` is as in :func:`~earthsciio.decode.elements.make_loader`.
    """

    def run_items(job: int, space: int, budget: int) -> int:
        """Claim and decode gangs until none is left, or somebody says stop; give how many were claimed.

        Runs on several threads over the same job, each with a workspace of its own. Returns early after
        `budget` decoded bytes, so that Python can look at signals and at other jobs.
        """
        shared = get(job, t.J_SHARED)
        claimed = 0
        while version != 0 and budget > 0 and load_word(get(job, t.J_ABORT)) == 0:
            if load_word(shared + 8 * t.CONTROL) != t.GO:
                break
            index = fetch_add(shared + 8 * t.CURSOR, 1)
            if index >= get(job, t.J_COUNT):
                break
            claimed += 1
            gang = get(job, t.J_GANGS) + 8 * t.GANG_COLUMNS * index
            first, count = get(gang, t.GANG_FIRST), get(gang, t.GANG_COUNT)
            item = get(job, t.J_ITEMS) + 8 * t.ITEM_COLUMNS * first
            if count > 1:
                code = _decode_gang(job, first, count, space)
            else:
                outcome = get(job, t.J_OUTCOMES) + 8 * t.OUTCOME_COLUMNS * first
                code = _decode(job, item, space, outcome)
                put(outcome, t.CODE, code)
            budget -= count * get(item, t.RAW)
            if code != t.OK and get(job, t.J_GO_ON) == 0:
                put(shared, t.CONTROL, t.STOP)
        drain()
        return claimed

    signature = types.int64(types.int64, types.int64, types.int64)
    return njit(signature, nogil=True, cache=True, error_model="numpy")(run_items)
