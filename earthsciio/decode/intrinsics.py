"""What compiled code needs and numba has no words for: addresses, C functions behind them, shared words.

Each function below is an instruction or two, written out where it is used. Integers stand for addresses;
nothing checks them.
"""

# ruff: noqa: ARG001 - numba calls these with arguments that only some of them need

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = [
    "byteswap",
    "call_converter",
    "call_loader",
    "call_scatterer",
    "call_verifier",
    "compiled",
    "copy_bytes",
    "drain",
    "errno_location",
    "fetch_add",
    "foreign",
    "get",
    "inflate",
    "load_word",
    "pointer",
    "pread",
    "put",
    "stream_line",
    "turn_tile4",
    "turn_tile8",
]

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """Compile a function for use in other compiled code: no GIL, and division without Python's checks."""
    return cast("_Function", njit(nogil=True, error_model="numpy")(function))


def _instruction(function: Callable[..., Any]) -> Callable[..., int]:
    return cast("Callable[..., int]", intrinsic(function))


_i64, _i32 = ir.IntType(64), ir.IntType(32)


@_instruction
def pointer(typingctx: Any, address: Any) -> Any:
    """Make a pointer of an address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), codegen


@_instruction
def fetch_add(typingctx: Any, address: Any, amount: Any) -> Any:
    """Add to a shared 64-bit word, and give what it was."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], _i64.as_pointer())
        return builder.atomic_rmw("add", pointer, args[1], "monotonic")

    return types.int64(types.int64, types.int64), codegen


@_instruction
def load_word(typingctx: Any, address: Any) -> Any:
    """Look at a shared 32-bit word."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], _i32.as_pointer())
        return builder.sext(builder.load_atomic(pointer, "monotonic", 4), _i64)

    return types.int64(types.int64), codegen


@_instruction
def byteswap(typingctx: Any, word: Any) -> Any:
    """Reverse the bytes of an unsigned word."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return args[0] if word.bitwidth == 8 else builder.bswap(args[0])

    return word(word), codegen


def _c_function(result: Any, *arguments: Any) -> Any:
    """Make an intrinsic that calls the C function at an address; numbers cross as int64."""
    function_type = ir.FunctionType(result, arguments)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], function_type.as_pointer())
        narrowed = [
            builder.trunc(value, wanted) if wanted != _i64 else value
            for value, wanted in zip(args[1:], arguments, strict=True)
        ]
        value = builder.call(pointer, narrowed)
        return builder.sext(value, _i64) if result != _i64 else value

    return codegen, types.int64(*([types.int64] * (1 + len(arguments))))


_PREAD_CODE, _PREAD_SIGNATURE = _c_function(_i64, _i32, _i64, _i64, _i64)
_ERRNO_CODE, _ERRNO_SIGNATURE = _c_function(_i64)
_INFLATE_CODE, _INFLATE_SIGNATURE = _c_function(_i32, _i64, _i64, _i64, _i64, _i64, _i64)
_FOREIGN_CODE, _FOREIGN_SIGNATURE = _c_function(_i64, _i64, _i64, _i64, _i64, _i64)
_LOADER_CODE, _LOADER_SIGNATURE = _c_function(_i64, *[_i64] * 7)
_CONVERTER_CODE, _CONVERTER_SIGNATURE = _c_function(_i64, *[_i64] * 4)
_SCATTERER_CODE, _SCATTERER_SIGNATURE = _c_function(_i64, *[_i64] * 6)
_VERIFIER_CODE, _VERIFIER_SIGNATURE = _c_function(_i64, *[_i64] * 2)


@_instruction
def pread(typingctx: Any, function: Any, fd: Any, buffer: Any, count: Any, offset: Any) -> Any:
    """Read into a buffer; gives bytes read, or -1."""
    return _PREAD_SIGNATURE, _PREAD_CODE


@_instruction
def errno_location(typingctx: Any, function: Any) -> Any:
    """Give the address of this thread's errno."""
    return _ERRNO_SIGNATURE, _ERRNO_CODE


@_instruction
def inflate(
    typingctx: Any, function: Any, state: Any, source: Any, count: Any, target: Any, room: Any, actual: Any
) -> Any:
    """Inflate a zlib stream of known length; gives 0 if all is well."""
    return _INFLATE_SIGNATURE, _INFLATE_CODE


@_instruction
def foreign(
    typingctx: Any, function: Any, codec: Any, source: Any, count: Any, target: Any, room: Any
) -> Any:
    """Decode by a codec that lives in Python; gives the bytes written, or a negative number."""
    return _FOREIGN_SIGNATURE, _FOREIGN_CODE


@_instruction
def call_loader(
    typingctx: Any, function: Any, words: Any, raw: Any, plane: Any, first: Any, step: Any, count: Any,
    swap: Any,
) -> Any:  # fmt: skip
    """Fetch elements; see earthsciio.decode.elements.make_loader."""
    return _LOADER_SIGNATURE, _LOADER_CODE


@_instruction
def call_converter(typingctx: Any, function: Any, values: Any, words: Any, count: Any, rules: Any) -> Any:
    """Make values of words; see earthsciio.decode.elements.make_converter."""
    return _CONVERTER_SIGNATURE, _CONVERTER_CODE


@_instruction
def call_scatterer(
    typingctx: Any, function: Any, target: Any, block: Any, row_stride: Any, col_stride: Any, rows: Any,
    cols: Any,
) -> Any:  # fmt: skip
    """Write a block to scattered places; see earthsciio.decode.elements.make_scatterer."""
    return _SCATTERER_SIGNATURE, _SCATTERER_CODE


@_instruction
def call_verifier(typingctx: Any, function: Any, address: Any, count: Any) -> Any:
    """Check a checksum; see earthsciio.decode.elements.make_verifier."""
    return _VERIFIER_SIGNATURE, _VERIFIER_CODE


@_instruction
def get(typingctx: Any, row: Any, column: Any) -> Any:
    """Read an integer of a table row."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(builder.gep(builder.inttoptr(args[0], _i64.as_pointer()), [args[1]]))

    return types.int64(types.int64, types.int64), codegen


@_instruction
def put(typingctx: Any, row: Any, column: Any, value: Any) -> Any:
    """Write an integer of a table row."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[2], builder.gep(builder.inttoptr(args[0], _i64.as_pointer()), [args[1]]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


_LINE = ir.VectorType(_i64, 8)


@_instruction
def stream_line(typingctx: Any, target: Any, source: Any) -> Any:
    """Copy 64 bytes to an address that is a multiple of 64, past the caches."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        into, out_of = (builder.inttoptr(arg, _LINE.as_pointer()) for arg in args)
        line = builder.load(out_of)
        line.align = 8
        store = builder.store(line, into)
        store.align = 64
        store.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(_i32, 1)]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@_instruction
def drain(typingctx: Any) -> Any:
    """Let other threads see all that was written so far, past the caches too."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen


def _turn(bits: int, stages: tuple[tuple[int, list[int], list[int]], ...]) -> Any:
    """Make the code that turns a square tile of words: as many rows as a vector of 32 bytes has lanes.

    A stage joins vectors that are `apart`, the first and second of each pair by two patterns.
    """
    lanes = 256 // bits
    vector = ir.VectorType(ir.IntType(bits), lanes)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def place(address: Any, stride: Any, number: int) -> Any:
            offset = builder.mul(stride, ir.Constant(_i64, number))
            return builder.inttoptr(builder.add(address, offset), vector.as_pointer())

        target, column_stride, source, row_stride = args
        tile = []
        for row in range(lanes):
            tile.append(builder.load(place(source, row_stride, row)))
            tile[row].align = bits // 8
        for apart, first, second in stages:
            joined = list(tile)
            for one in (number for number in range(lanes) if not number & apart):
                for to, pattern in ((one, first), (one | apart, second)):
                    mask = ir.Constant(ir.VectorType(_i32, lanes), pattern)
                    joined[to] = builder.shuffle_vector(tile[one], tile[one | apart], mask)
            tile = joined
        for column, values in enumerate(tile):
            builder.store(values, place(target, column_stride, column)).align = bits // 8
        return context.get_dummy_value()

    return codegen


# Blocks of a tile are exchanged across its diagonal, the smallest first, in patterns of which each is one
# instruction where vectors have 32 bytes.
_TURN4 = _turn(32, (
    (1, [0, 8, 2, 10, 4, 12, 6, 14], [1, 9, 3, 11, 5, 13, 7, 15]),
    (2, [0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15]),
    (4, [0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]),
))  # fmt: skip
_TURN8 = _turn(64, ((1, [0, 4, 2, 6], [1, 5, 3, 7]), (2, [0, 1, 4, 5], [2, 3, 6, 7])))
_TURN_SIGNATURE = types.void(*[types.int64] * 4)


@_instruction
def turn_tile4(typingctx: Any, target: Any, column_stride: Any, source: Any, row_stride: Any) -> Any:
    """Write 8 rows of 8 words of 4 bytes as columns; strides in bytes."""
    return _TURN_SIGNATURE, _TURN4


@_instruction
def turn_tile8(typingctx: Any, target: Any, column_stride: Any, source: Any, row_stride: Any) -> Any:
    """Write 4 rows of 4 words of 8 bytes as columns; strides in bytes."""
    return _TURN_SIGNATURE, _TURN8


@_instruction
def copy_bytes(typingctx: Any, target: Any, source: Any, count: Any) -> Any:
    """Copy bytes between places that don't overlap."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        into, out_of = (builder.inttoptr(arg, ir.IntType(8).as_pointer()) for arg in args[:2])
        cgutils.raw_memcpy(builder, into, out_of, args[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen
