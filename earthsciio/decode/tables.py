"""The tables the GIL-free code works on: what each column of each row means.

Everything that crosses into compiled code is a 64-bit integer in one of these rows: an address, an offset,
a count, a stride in bytes. :mod:`earthsciio.decode.batch` writes the rows, :mod:`earthsciio.decode.kernels`
reads them, and nothing else does. Numba takes the numbers below as constants.
"""

#: Highest rank the tables have room for.
MAX_RANK = 8
#: Elements per block: words and values of one stay in the first-level cache.
BLOCK = 1024
#: Rows of a tile where the output's fast axis is not the chunk's, and elements: whole cache lines on the way
#: out, runs that are long enough for vector loops on the way in.
TILE_ROWS, TILE = 128, 16384

# Addresses of C functions, and the codec callback into Python.
PREAD, ERRNO, INFLATE, FOREIGN, TABLE_SIZE = range(5)

# One row per chunk. RAW: bytes of the chunk once decoded. FIRST, COUNT: its placements. KEEP: where to leave
# a copy of the decoded bytes, or 0. ADDRESS, SHUFFLED: where the bytes of a resident or fill chunk are, and
# whether they are in byte planes.
ARRAY, KIND, OFFSET, SIZE, MASK, RAW, FIRST, COUNT, KEEP, ADDRESS, SHUFFLED, ITEM_COLUMNS = range(12)
# KIND: stored in the file; in memory already; one element that stands for all; said to be larger than its
# stored bytes can become.
STORED, RESIDENT, FILL, IMPOSSIBLE = range(4)

# One row per gang, what a thread claims: the chunks from FIRST on, COUNT of them. Where the output runs
# fastest along an axis on which a chunk has one element, neighbours on it are decoded side by side and placed
# together, so that cache lines are not written once per chunk; any other chunk is a gang of its own.
GANG_FIRST, GANG_COUNT, GANG_COLUMNS = range(3)

# One row per array; element strides of a chunk from STRIDES on. LOADER, CONVERTER, SCATTERER: addresses of
# its functions; no converter where values are the stored words. RULES: address of its value rules. PREFIX:
# bytes to inflate past what is wanted, or 0 to inflate all. GANG_AXIS: along which a gang lies. STREAMED:
# whether so much is written that it goes past the caches.
(RANK, ITEMSIZE, OUT_ITEMSIZE, LOADER, CONVERTER, SCATTERER, RULES, SWAP, PROGRAM, PROGRAM_COUNT, PREFIX,
 GANG_AXIS, STREAMED, STRIDES) = range(14)  # fmt: skip
ARRAY_COLUMNS = STRIDES + MAX_RANK

# One row per filter, in decoding order. BIT: the filter's position in the pipeline. ARGUMENT: a shuffle's
# element width, a foreign codec's number. ROUTINE: the loader that undoes a shuffle which can't be left to
# the last step, or the verifier of a checksum.
OP, BIT, ARGUMENT, ROUTINE, PROGRAM_COLUMNS = range(5)
OP_INFLATE, OP_SHUFFLE, OP_FLETCHER, OP_FOREIGN = range(4)

# One row per placement: the output, then the part of each axis. One row per output: address, byte strides.
# One row per part: its first run, how many. Run columns are those of earthsciio.decode.plan.
OUT, PARTS, PLACEMENT_COLUMNS = 0, 1, 1 + MAX_RANK
OUT_COLUMNS = 1 + MAX_RANK
SRC, DST, RUN, STEP = range(4)

# What a thread works with: addresses, and the decompressor. CALL, AXES, SPAN: room for integers.
ENCODED, DECODED, SPARE, DECOMPRESSOR, CALL, AXES, SPAN, SCRATCH, WORKSPACE_COLUMNS = range(9)
#: Bytes behind SCRATCH: one block of words, one block or tile of values.
SCRATCH_NBYTES = 8 * BLOCK + 8 * max(BLOCK, TILE)

# Everything a job is, as addresses and counts: one row that all threads share. J_COUNT: of gangs. J_APART:
# bytes between the decoded chunks of a gang.
(J_TABLE, J_FD, J_ITEMS, J_GANGS, J_COUNT, J_APART, J_ARRAYS, J_PROGRAMS, J_PLACEMENTS, J_PARTS, J_RUNS,
 J_OUTS, J_OUTCOMES, J_SHARED, J_ABORT, J_GO_ON, JOB_COLUMNS) = range(17)  # fmt: skip

# Words shared by the threads of a job. CURSOR: the next gang to claim.
CURSOR, CONTROL, SHARED_COLUMNS = range(3)
# CONTROL: go on; return, so that other jobs get a turn; return, and let the rest be.
GO, YIELD, STOP = range(3)

# What the steps of one placement tell each other. P_RAW, P_PLANE: where the chunk's bytes are, and elements
# per byte plane if they are shuffled. P_SRC, P_DST: the first element and where it goes. P_WORDS, P_BLOCK:
# scratch for a block of words, and of values on their way to scattered places. P_MEMBERS: chunks placed
# together.
P_RAW, P_PLANE, P_SRC, P_DST, P_ROW_DST, P_COL_DST, P_WORDS, P_BLOCK, P_MEMBERS, CALL_COLUMNS = range(10)

# Value rules of an array, 8 bytes each: flags and counts as integers, scale and offset as floats, the rest
# in the array's own type.
(V_MASKS, V_MASK_NAN, V_LOW, V_HIGH, V_SCALED, V_SHIFTED, V_MASKING, V_SCALE, V_ADD, V_LOWEST, V_HIGHEST,
 V_VALUES) = range(12)  # fmt: skip

# What the batch loop knows of an axis it counts through. A_FIRST: its first run in the table, or -1 where it
# has one and A_COUNT, A_SRC, A_DST say it all.
A_FIRST, A_RUNS, A_COUNT, A_SRC, A_DST, A_RUN, A_AT, AXIS_COLUMNS = range(8)

# What one chunk's steps tell each other. S_LOW, S_HIGH: the elements wanted. S_BYTES, S_LENGTH, S_SHUFFLED:
# where its bytes are now, how many, whether in byte planes. S_ROOM: how many they will be once the next
# filter is undone, the checksums below it still on.
S_LOW, S_HIGH, S_BYTES, S_LENGTH, S_SHUFFLED, S_ROOM, SPAN_COLUMNS = range(7)

#: What libdeflate says when the output is full.
INFLATE_FULL = 3

# How a chunk ended, one row each. DETAIL: errno, bytes got, or the codec's own code. KEPT_SHUFFLED: whether
# the bytes left at KEEP, or in a gang's place, are in byte planes.
CODE, DETAIL, KEPT_SHUFFLED, OUTCOME_COLUMNS = range(4)
(OK, UNTOUCHED, READ_FAILED, READ_SHORT, INFLATE_FAILED, WRONG_LENGTH, CHECKSUM_FAILED, FOREIGN_FAILED,
 NOT_EXACT, TOO_LARGE) = range(10)  # fmt: skip
