"""The engine: plan, fetch, decode, place."""

from .jit import JitStats, jit_stats
from .options import DecodeOptions
from .pool import ChunkPool
from .reference import ArrayRequest, BadChunk
from .run import DecodeReport, decode_arrays
from .threads import decode_threads, default_decode_threads, set_decode_threads

__all__ = [
    "ArrayRequest",
    "BadChunk",
    "ChunkPool",
    "DecodeOptions",
    "DecodeReport",
    "JitStats",
    "decode_arrays",
    "decode_threads",
    "default_decode_threads",
    "jit_stats",
    "set_decode_threads",
]
