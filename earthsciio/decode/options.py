"""What a decode does about bytes that are wrong, not wanted, or wanted again."""

from __future__ import annotations

from dataclasses import dataclass

from earthsciio.errors import DeclarationError

from .pool import ChunkPool

__all__ = ["PLAIN", "DecodeOptions"]


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """What a decode does about bytes that are wrong, or not wanted.

    Attributes
    ----------
    on_bad_chunk : {"raise", "nan"}
        Raise, or make NaN of the bad chunk's cells and go on; integers have no NaN, and raise.
    verify : {"full", "prefix"}
        Check every checksum, or stop inflating behind the last element wanted, which skips it.
    pool : ChunkPool, optional
        Keeps the chunks of requests that say ``keep``.
    next_use : float, optional
        When those chunks are wanted next; see :meth:`earthsciio.decode.pool.ChunkPool.claim`.
    """

    on_bad_chunk: str = "raise"
    verify: str = "full"
    pool: ChunkPool | None = None
    next_use: float | None = None

    def __post_init__(self) -> None:
        if self.on_bad_chunk not in ("raise", "nan"):
            raise DeclarationError(f"on_bad_chunk is 'raise' or 'nan', not {self.on_bad_chunk!r}")
        if self.verify not in ("full", "prefix"):
            raise DeclarationError(f"verify is 'full' or 'prefix', not {self.verify!r}")


#: The defaults.
PLAIN = DecodeOptions()
