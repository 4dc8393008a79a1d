"""A request becomes tables: which chunk to read, how to undo its filters, where each element goes.

One :class:`Batch` holds the tables of one call, all variables and Windows of it, and everything they point
to. Building them is array arithmetic per variable, never a loop over chunks: with small chunks such a loop
would take longer than decoding them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from earthsciio.errors import DeclarationError
from earthsciio.fields import Array
from earthsciio.formats.encoded import ABSENT, EncodedArray

from . import jit
from . import tables as t
from .codecs import Program
from .native import prefix_slack
from .plan import AxisPart
from .reference import ArrayRequest
from .values import ValueSpec

__all__ = ["Batch", "Task", "build_batch", "refusal"]

Integers: TypeAlias = npt.NDArray[np.int64]
Axes: TypeAlias = Sequence[Mapping[int, AxisPart]]

_PLACEABLE = "iuf"
#: Bytes of a cache line: more chunks need not be placed together.
_LINE = 64
#: Bytes of decoded chunks that a thread may have side by side, and share of the output that all may have.
_GANG_NBYTES, _GANG_SHARE = 40 << 20, 3
#: Bytes from which on outputs are written past the caches, which would not keep them and lose all else.
_STREAMED_NBYTES = 16 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """One array that takes the fast path: what is asked, how it is stored, how to undo that."""

    request: ArrayRequest
    encoded: EncodedArray
    program: Program


def refusal(request: ArrayRequest) -> str | None:
    """Say why compiled code can't deliver an array; None where it can."""
    spec = request.spec
    if spec.stored.kind == "O":
        return "text"
    if spec.native.kind not in _PLACEABLE or spec.native.itemsize not in (1, 2, 4, 8) or spec.native == "f2":
        return f"element type {spec.stored}"
    if len(request.info.shape) > t.MAX_RANK:
        return f"{len(request.info.shape)} dimensions"
    if not all(out.flags.aligned for out in request.outs):
        return "unaligned output"
    return None


@dataclass(slots=True, eq=False)
class Batch:
    """The tables of one call.

    Attributes
    ----------
    tasks : sequence of Task
        What ``ARRAY`` numbers.
    items, outcomes : numpy.ndarray
        A row per chunk.
    chunks : numpy.ndarray
        Shape (n, MAX_RANK): chunk coordinates of each item, for messages.
    gangs : numpy.ndarray
        A row per gang; see :mod:`earthsciio.decode.tables`.
    encoded_nbytes, decoded_nbytes, spare_nbytes : int
        Room a thread needs for a chunk. That for decoded ones it needs as often as its gangs have members.
    """

    tasks: Sequence[Task]
    items: Integers
    chunks: Integers
    tables: dict[int, Integers]
    encoded_nbytes: int
    decoded_nbytes: int
    spare_nbytes: int
    gangs: Integers
    outcomes: Integers = field(init=False)
    shared: Integers = field(init=False)
    keep_alive: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.outcomes = np.zeros((len(self.items), t.OUTCOME_COLUMNS), dtype=np.int64)
        self.outcomes[:, t.CODE] = t.UNTOUCHED
        # a cache line apart from everything else: every thread writes the cursor
        self.shared = np.zeros(32, dtype=np.int64)[8:24]

    @property
    def decoded_room(self) -> int:
        """Bytes a thread needs for decoded chunks."""
        return self.decoded_nbytes * int(self.gangs[:, t.GANG_COUNT].max(initial=1))

    def job_row(
        self, table: Integers, descriptor: int, abort: npt.NDArray[np.int32], go_on: bool
    ) -> Integers:
        """Give the row that :func:`run_items` works from; valid while this batch and its arguments live."""
        row = np.zeros(t.JOB_COLUMNS, dtype=np.int64)
        for column, values in self.tables.items():
            row[column] = _address(values)
        row[t.J_TABLE], row[t.J_FD] = _address(table), descriptor
        row[t.J_ITEMS], row[t.J_APART] = _address(self.items), self.decoded_nbytes
        row[t.J_GANGS], row[t.J_COUNT] = _address(self.gangs), len(self.gangs)
        row[t.J_OUTCOMES], row[t.J_SHARED] = _address(self.outcomes), _address(self.shared)
        row[t.J_ABORT], row[t.J_GO_ON] = _address(abort), int(go_on)
        return row

    def hold(self, index: int, data: Array, *, resident: bool, shuffled: bool) -> None:
        """Let a chunk be taken from memory, or leave a copy of it there once decoded."""
        self.keep_alive.append(data)
        if resident:
            self.items[index, t.KIND], self.items[index, t.ADDRESS] = t.RESIDENT, _address(data)
            self.items[index, t.SHUFFLED] = shuffled
        else:
            self.items[index, t.KEEP] = _address(data)

    def run_part(self, indices: Integers, run: Callable[[Batch], None]) -> None:
        """Run some of the items as a batch of their own."""
        part = Batch(
            self.tasks, np.ascontiguousarray(self.items[indices]), self.chunks[indices], self.tables,
            self.encoded_nbytes, self.decoded_nbytes, self.spare_nbytes, _singles(len(indices)),
            keep_alive=self.keep_alive,
        )  # fmt: skip
        try:
            run(part)
        finally:
            self.outcomes[indices] = part.outcomes

    def chunk(self, index: int) -> tuple[int, ...]:
        """Give the chunk coordinates of an item."""
        rank = len(self.tasks[self.items[index, t.ARRAY]].encoded.chunks)
        return tuple(self.chunks[index, :rank].tolist())

    @property
    def read_nbytes(self) -> int:
        """Stored bytes of all chunks in the file."""
        stored = self.items[:, t.KIND] == t.STORED
        return int(self.items[stored, t.SIZE].sum())


def build_batch(tasks: Sequence[Task], file_size: int, prefix: bool, threads: int) -> Batch:
    """Lay out the tables of one call.

    Parameters
    ----------
    tasks : sequence of Task
        What to decode.
    file_size : int
        Bytes of the file; chunks that claim to lie outside it are not read.
    prefix : bool
        Whether to stop inflating behind the last wanted element, without its checksum.
    threads : int
        That will share the work; no gang is so large that one of them is left without.
    """
    return _Builder(tasks, file_size, prefix, threads).build()


@dataclass(slots=True)
class _Pairs:
    """Chunks met by Windows: a row per (chunk, Window), sorted by chunk.

    Attributes
    ----------
    chunks, starts, counts : numpy.ndarray
        Every chunk met: its coordinates, its first row, and how many rows it has.
    placements : numpy.ndarray
        The rows; ``OUT`` numbers the Windows.
    """

    chunks: Integers
    starts: Integers
    counts: Integers
    placements: Integers


class _Builder:
    def __init__(self, tasks: Sequence[Task], file_size: int, prefix: bool, threads: int) -> None:
        self.tasks = tasks
        self.threads = threads
        self.file_size = file_size
        self.prefix_slack = prefix_slack() if prefix else 0
        self.keep_alive: list[Any] = []
        self.items: list[Integers] = []
        self.chunks: list[Integers] = []
        self.arrays = np.zeros((len(tasks), t.ARRAY_COLUMNS), dtype=np.int64)
        self.programs: list[list[int]] = []
        self.placements: list[Integers] = []
        self.placed = 0
        self.parts: list[tuple[int, int]] = []
        self.runs: list[Integers] = []
        self.run_count = 0
        self.outs: list[list[int]] = []
        self.spare = False
        self.known: dict[tuple[Any, ...], tuple[Any, _Pairs | None]] = {}

    def build(self) -> Batch:
        for number, task in enumerate(self.tasks):
            self._add(number, task)
        items, chunks = _stack(self.items, t.ITEM_COLUMNS), _stack(self.chunks, t.MAX_RANK)
        self._refuse_impossible(items)
        # the largest first, so that no thread is left alone with one at the end; else in storage order
        order = np.lexsort((items[:, t.OFFSET], -items[:, t.RAW]))
        items, chunks = np.ascontiguousarray(items[order]), chunks[order]
        stored = items[items[:, t.KIND] == t.STORED]
        checks = 4 * sum(row[t.OP] == t.OP_FLETCHER for row in self.programs)
        plain = self.arrays[stored[:, t.ARRAY], t.PROGRAM_COUNT] == 0
        filtered = stored[~plain]
        decoded = int(filtered[:, t.RAW].max(initial=0)) + checks if len(filtered) else 0
        decoded = -(-decoded // 64) * 64  # so that gang members begin at cache lines
        tables = {
            t.J_ARRAYS: self.arrays,
            t.J_PROGRAMS: np.array(self.programs, dtype=np.int64).reshape(-1, t.PROGRAM_COLUMNS),
            t.J_PLACEMENTS: _stack(self.placements, t.PLACEMENT_COLUMNS),
            t.J_PARTS: np.array(self.parts, dtype=np.int64).reshape(-1, 2),
            t.J_RUNS: _stack(self.runs, 4),
            t.J_OUTS: np.array(self.outs, dtype=np.int64).reshape(-1, t.OUT_COLUMNS),
        }
        return Batch(
            self.tasks, items, chunks, tables,
            encoded_nbytes=int(stored[:, t.SIZE].max(initial=0)),
            decoded_nbytes=decoded,
            spare_nbytes=decoded if self.spare else 0,
            gangs=self._gangs(items, tables, decoded),
            keep_alive=self.keep_alive,
        )  # fmt: skip

    def _add(self, number: int, task: Task) -> None:
        request, encoded = task.request, task.encoded
        self._add_array(number, task)
        first_out = len(self.outs)
        for out, shape in zip(request.outs, request.plan.shapes, strict=True):
            if out.shape != shape or out.dtype != request.spec.out:
                raise DeclarationError(
                    f"an output of {out.dtype}{out.shape} for values of {request.spec.out}{shape}",
                    variable=request.info.name,
                )
            address = out.__array_interface__["data"][0]
            self.outs.append([address, *out.strides, *[0] * (t.MAX_RANK - out.ndim)])
        stored, unwritten = _split_at_end(request.plan.axes, encoded)
        for boxes, fill in ((stored, False), (unwritten, True)):
            pairs = self._pairs(boxes, request.info.shape, encoded.chunks)
            if pairs is not None:
                self._add_items(number, task, pairs, first_out, fill)

    def _gangs(self, items: Integers, tables: Mapping[int, Integers], chunk_nbytes: int) -> Integers:
        """Put neighbours on the axis along which an output runs fastest together."""
        joins = np.zeros(len(items), dtype=bool)  # whether a chunk is placed with the one before it
        most = np.ones(len(items), dtype=np.int64)
        for number, task in enumerate(self.tasks):
            axis = _gang_axis(task)
            if axis is None:
                continue
            self.arrays[number, t.GANG_AXIS] = axis
            rows = np.flatnonzero(
                (items[:, t.ARRAY] == number) & (items[:, t.KIND] == t.STORED) & (items[:, t.COUNT] == 1)
            )
            placed = tables[t.J_PLACEMENTS][items[rows, t.FIRST]]
            parts = tables[t.J_PARTS][placed[:, t.PARTS + axis]]
            runs = tables[t.J_RUNS][parts[:, 0]]
            single = (parts[:, 1] == 1) & (runs[:, t.RUN] == 1)
            elsewhere = np.delete(placed, t.PARTS + axis, axis=1)
            follows = (
                (np.diff(rows) == 1)
                & (np.diff(runs[:, t.DST]) == 1)
                & single[1:] & single[:-1]
                & (elsewhere[1:] == elsewhere[:-1]).all(axis=1)
            )  # fmt: skip
            joins[rows[1:][follows]] = True
            room = sum(out.nbytes for out in task.request.outs) // (_GANG_SHARE * self.threads)
            # what fills a cache line and fits, but something for every thread
            most[rows] = max(1, min(
                _LINE // task.request.spec.out.itemsize, min(room, _GANG_NBYTES) // max(chunk_nbytes, 1),
                len(rows) // self.threads,
            ))  # fmt: skip
        if not joins.any():
            return _singles(len(items))
        starts = np.flatnonzero(~joins)
        gangs: list[tuple[int, int]] = []
        for first, count in zip(starts.tolist(), np.diff(starts, append=len(items)).tolist(), strict=True):
            pieces = -(-count // int(most[first]))
            if pieces > 1:  # as many for one thread as for another
                pieces = min(-(-pieces // self.threads) * self.threads, count)
            cuts = [first + count * piece // pieces for piece in range(pieces + 1)]
            gangs += [(begin, end - begin) for begin, end in itertools.pairwise(cuts)]
        return np.array(gangs, dtype=np.int64)

    def _add_array(self, number: int, task: Task) -> None:
        spec, encoded, row = task.request.spec, task.encoded, self.arrays[number]
        rules = _rules(spec)
        self.keep_alive.append(rules)
        row[t.RANK], row[t.ITEMSIZE] = len(encoded.chunks), encoded.dtype.itemsize
        row[t.OUT_ITEMSIZE], row[t.RULES] = spec.out.itemsize, _address(rules)
        row[t.LOADER] = jit.loader(spec.native.itemsize)
        row[t.SCATTERER] = jit.scatterer(spec.out.itemsize)
        if spec.out != spec.native or spec.masks or spec.packed:
            row[t.CONVERTER] = jit.converter(spec.native, spec.out)
        row[t.SWAP] = not encoded.dtype.isnative
        row[t.PROGRAM], row[t.PROGRAM_COUNT] = len(self.programs), len(task.program.steps)
        if task.program.is_prefix_able and not task.request.keep:  # a pool keeps whole chunks
            row[t.PREFIX] = self.prefix_slack
        stride = 1
        for axis in reversed(range(len(encoded.chunks))):
            row[t.STRIDES + axis] = stride
            stride *= encoded.chunks[axis]
        writes = 0
        for position, step in enumerate(task.program.steps):
            routine = 0
            last = position == len(task.program.steps) - 1
            deferred = step.op == t.OP_SHUFFLE and last and step.argument == encoded.dtype.itemsize
            if step.op == t.OP_SHUFFLE and not deferred and step.argument in (2, 4, 8):
                routine = jit.loader(step.argument)
            elif step.op == t.OP_FLETCHER:
                routine = jit.verifier()
            writes += step.op != t.OP_FLETCHER and not deferred
            self.programs.append([step.op, step.bit, step.argument, routine])
        self.spare |= writes > 1
        row[t.STREAMED] = sum(out.nbytes for out in task.request.outs) > _STREAMED_NBYTES

    def _pairs(
        self, boxes: Sequence[tuple[int, Axes]], shape: Sequence[int], lengths: tuple[int, ...]
    ) -> _Pairs | None:
        """Multiply out the axes of every Window, once for variables that are asked and stored alike."""
        key = (*shape, *lengths, *((window, *map(id, axes)) for window, axes in boxes))
        if key not in self.known:  # the boxes are kept with it, so that an id stays theirs
            self.known[key] = boxes, self._multiply(boxes, shape, lengths)
        return self.known[key][1]

    def _multiply(
        self, boxes: Sequence[tuple[int, Axes]], shape: Sequence[int], lengths: tuple[int, ...]
    ) -> _Pairs | None:
        grid = [-(-size // length) for size, length in zip(shape, lengths, strict=True)]
        found: list[tuple[Integers, Integers, Integers]] = []
        for window, axes in boxes:
            counts = [len(axis) for axis in axes]
            total = math.prod(counts)
            if total == 0:
                continue
            chunks = np.zeros((total, t.MAX_RANK), dtype=np.int64)
            placements = np.zeros((total, t.PLACEMENT_COLUMNS), dtype=np.int64)
            placements[:, t.OUT] = window
            numbers = np.zeros(total, dtype=np.int64)
            inner = total
            for axis in range(len(lengths)):
                inner //= counts[axis]
                coordinates = np.fromiter(axes[axis], dtype=np.int64, count=counts[axis])
                first = self._add_parts(axes[axis])
                if counts[axis] > 1:
                    at = np.arange(total) // inner % counts[axis]
                    chunks[:, axis] = coordinates[at]
                    placements[:, t.PARTS + axis] = first + at
                else:
                    chunks[:, axis] = coordinates
                    placements[:, t.PARTS + axis] = first
                numbers = numbers * grid[axis] + chunks[:, axis]
            found.append((numbers, chunks, placements))
        if not found:
            return None
        numbers, chunks, placements = (np.concatenate(column) for column in zip(*found, strict=True))
        order = np.argsort(numbers, kind="stable")
        starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
        return _Pairs(chunks[order[starts]], starts, np.diff(starts, append=len(numbers)), placements[order])

    def _add_parts(self, axis: Mapping[int, AxisPart]) -> int:
        first = len(self.parts)
        for part in axis.values():
            self.parts.append((self.run_count, len(part.runs)))
            self.runs.append(part.runs)
            self.run_count += len(part.runs)
        return first

    def _add_items(self, number: int, task: Task, pairs: _Pairs, first_out: int, fill: bool) -> None:
        encoded, chunks = task.encoded, pairs.chunks
        items = np.zeros((len(chunks), t.ITEM_COLUMNS), dtype=np.int64)
        items[:, t.ARRAY] = number
        items[:, t.FIRST] = self.placed + pairs.starts
        items[:, t.COUNT] = pairs.counts
        located = encoded.index.locate(chunks[:, : len(encoded.chunks)])
        items[:, t.OFFSET], items[:, t.SIZE], items[:, t.MASK] = located.offsets, located.sizes, located.masks
        items[:, t.RAW] = located.sizes if encoded.pieces else encoded.chunk_nbytes
        absent = located.offsets == ABSENT
        if fill:
            absent[:] = True
        elif encoded.inline is not None:
            items[:, t.KIND] = t.RESIDENT
            items[:, t.ADDRESS] = _address(encoded.inline) + located.offsets
        if absent.any():
            element = np.frombuffer(encoded.fill.ljust(8, b"\0"), dtype=np.int64).copy()
            self.keep_alive.append(element)
            items[absent, t.KIND], items[absent, t.ADDRESS] = t.FILL, _address(element)
            items[absent, t.SIZE] = 0
            # what a fill costs is what it writes
            items[absent, t.RAW] = encoded.dtype.itemsize
        self.items.append(items)
        self.chunks.append(chunks)
        placements = pairs.placements.copy()
        placements[:, t.OUT] += first_out
        self.placements.append(placements)
        self.placed += len(placements)

    def _refuse_impossible(self, items: Integers) -> None:
        """Mark what the file can't hold: it is not read, and no memory is asked for it."""
        stored = items[:, t.KIND] == t.STORED
        outside = stored & (items[:, t.OFFSET] + items[:, t.SIZE] > self.file_size)
        items[outside, t.SIZE] = 0  # an empty chunk is an error
        expansion = np.array([task.program.expansion for task in self.tasks], dtype=np.float64)
        impossible = items[:, t.RAW] > expansion[items[:, t.ARRAY]] * items[:, t.SIZE] + 1024
        items[stored & impossible & ~outside, t.KIND] = t.IMPOSSIBLE


def _singles(count: int) -> Integers:
    """Make every chunk a gang of its own."""
    return np.column_stack([np.arange(count), np.ones(count, dtype=np.int64)])


def _gang_axis(task: Task) -> int | None:
    """Give the axis along which all outputs run fastest, if a chunk has one element on it."""
    outs, chunks = task.request.outs, task.encoded.chunks
    found: set[int] = set()
    for out in outs:
        longer = [axis for axis in range(out.ndim) if out.shape[axis] > 1]
        if not longer:
            return None
        found.add(min(longer, key=lambda axis: abs(out.strides[axis])))
    if len(found) != 1 or not task.program.steps:
        return None
    (axis,) = found
    dense = all(out.strides[axis] == out.itemsize for out in outs)
    return axis if dense and chunks[axis] == 1 else None


def _split_at_end(
    windows: Sequence[Axes], encoded: EncodedArray
) -> tuple[list[tuple[int, Axes]], list[tuple[int, Axes]]]:
    """Cut what Windows take at the stored extent: boxes inside, and boxes of fill, each with its Window."""
    inside: list[tuple[int, Axes]] = []
    outside: list[tuple[int, Axes]] = []
    for window, axes in enumerate(windows):
        within = [
            _split_axis(axis, size, length)
            for axis, size, length in zip(axes, encoded.shape, encoded.chunks, strict=True)
        ]
        inside.append((window, [part for part, _ in within]))
        for axis, (_, beyond) in enumerate(within):
            if beyond:
                before = [part for part, _ in within[:axis]]
                outside.append((window, [*before, beyond, *axes[axis + 1 :]]))
    return inside, outside


def _split_axis(
    axis: Mapping[int, AxisPart], size: int, length: int
) -> tuple[Mapping[int, AxisPart], Mapping[int, AxisPart]]:
    if not axis or (max(axis) + 1) * length <= size:
        return axis, {}
    inside: dict[int, AxisPart] = {}
    beyond: dict[int, AxisPart] = {}
    for coordinate, part in axis.items():
        end = size - coordinate * length
        src, dst, count, step = part.runs.T
        kept = np.clip(-((src - end) // step), 0, count)  # elements of the run that lie before `end`
        if kept.any():
            inside[coordinate] = AxisPart(_runs(src, dst, kept, step))
        if (kept < count).any():
            beyond[coordinate] = AxisPart(_runs(src + kept * step, dst + kept, count - kept, step))
    return inside, beyond


def _runs(src: Integers, dst: Integers, count: Integers, step: Integers) -> Integers:
    return np.column_stack([src, dst, count, step])[count > 0]


def _rules(spec: ValueSpec) -> Integers:
    """Write a variable's value rules down for its placer."""
    rules = np.zeros(t.V_VALUES + len(spec.masked), dtype=np.int64)
    floats = rules.view(np.float64)
    rules[t.V_MASKS], rules[t.V_MASK_NAN] = len(spec.masked), spec.mask_nan
    rules[t.V_LOW], rules[t.V_HIGH] = spec.low is not None, spec.high is not None
    rules[t.V_SCALED], rules[t.V_SHIFTED] = spec.scale is not None, spec.offset is not None
    rules[t.V_MASKING] = spec.masks
    floats[t.V_SCALE], floats[t.V_ADD] = spec.scale or 0.0, spec.offset or 0.0
    values = rules.view(spec.native)
    slot = 8 // spec.native.itemsize
    bounds = ((t.V_LOWEST, spec.low), (t.V_HIGHEST, spec.high))
    for column, value in itertools.chain(bounds, enumerate(spec.masked, t.V_VALUES)):
        if value is not None:
            values[column * slot] = value
    return rules


def _stack(blocks: list[Integers], columns: int) -> Integers:
    if not blocks:
        return np.zeros((0, columns), dtype=np.int64)
    return np.ascontiguousarray(np.concatenate(blocks), dtype=np.int64)


def _address(values: Array) -> int:
    return int(values.__array_interface__["data"][0])
