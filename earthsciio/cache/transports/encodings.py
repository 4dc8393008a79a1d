"""Undoing what a server did to a body on its way (``Content-Encoding``), and knowing when it came to its end.

We ask for bytes as they are stored, but a server may encode them all the same. Without a length the end of an
encoded body is known only by its own trailer, so that is what counts: a decoder that stands in the middle
when the body ends, or finds something behind its end, tells of a body that is not whole. Unlike the decoders
of `urllib3`, which take both for good.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

__all__ = ["Damaged", "codings", "undo"]

_PIECE = 1 << 20
_GZIP: Final = frozenset({"gzip", "x-gzip"})
#: Said of bodies that are as they are stored: by servers that mistake the header, and of what was uploaded to
#: an object store in signed chunks, which it takes apart but remembers.
_NOTHING: Final = frozenset({"", "identity", "none", "binary", "utf-8", "aws-chunked"})


class Damaged(Exception):
    """A body that is not what its encoding says, or not all of it."""


def codings(header: str) -> tuple[str, ...]:
    """Return the encodings a header names, in the order they were applied, without those that do nothing."""
    names = (name.strip().lower() for name in header.split(","))
    return tuple(name for name in names if name not in _NOTHING)


def undo(names: Sequence[str], pieces: Iterator[bytes]) -> Iterator[bytes] | None:
    """Decode a body that comes in pieces, each result at most 1 MiB; None if an encoding is not known here.

    Raises
    ------
    Damaged
        While iterating: if the body is not what an encoding says, or ends before it does.
    """
    if not _GZIP.union({"deflate"}).issuperset(names):
        return None
    for name in reversed(names):
        pieces = _Decoder(gzip=name in _GZIP).feed(pieces)
    return pieces


class _Decoder:
    """Undoes one encoding: ``gzip`` of one or more members, or ``deflate``."""

    __slots__ = ("_begun", "_gzip", "_head", "_stream")

    def __init__(self, *, gzip: bool) -> None:
        self._gzip = gzip
        self._head = b""
        self._begun = False
        self._stream = zlib.decompressobj(16 + zlib.MAX_WBITS)

    def feed(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            data = piece
            if not self._begun:
                self._head += piece
                if len(self._head) < 2:
                    continue
                self._begin()
                data, self._head = self._head, b""
            try:
                yield from self._decode(data)
            except zlib.error as error:
                raise Damaged(f"the body is not what its encoding says: {error}") from None
        if not (self._begun and self._stream.eof):
            raise Damaged("the body ended before the encoding did")

    def _begin(self) -> None:
        self._begun = True
        if not self._gzip:
            # RFC 9110 means zlib's format, but some servers send what is inside of it. A zlib header is
            # divisible by 31, and no bare stream begins like one: the bits would have to be padding.
            wrapped = self._head[0] & 15 == 8 and int.from_bytes(self._head[:2], "big") % 31 == 0
            self._stream = zlib.decompressobj(zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS)

    def _decode(self, data: bytes) -> Iterator[bytes]:
        full = False  # then there may be more to come out, though nothing is left to put in
        while data or (full and not self._stream.eof):
            if self._stream.eof:
                if not self._gzip:
                    raise Damaged("the body goes on after its encoding ended")
                self._stream = zlib.decompressobj(16 + zlib.MAX_WBITS)  # the next member
            part = self._stream.decompress(data, _PIECE)
            if part:
                yield part
            full = len(part) == _PIECE
            data = self._stream.unconsumed_tail or self._stream.unused_data
