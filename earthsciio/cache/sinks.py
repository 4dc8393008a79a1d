"""Where a transfer goes beside the staging file: past a listener, or into a digest only."""

from __future__ import annotations

import hashlib

from earthsciio.events import Emitter, Receiving

from .locks import Abort
from .transports import Sink

__all__ = ["Digest", "Watched"]


class Watched:
    """A sink that tells listeners how far it is."""

    __slots__ = ("_emit", "_sink", "_url")

    def __init__(self, sink: Sink, url: str, emit: Emitter) -> None:
        self._sink = sink
        self._url = url
        self._emit = emit

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._sink.size

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append."""
        self._sink.write(data)
        self._emit(Receiving(url=self._url, nbytes=self._sink.size))

    def restart(self) -> None:
        """Forget what was written."""
        self._sink.restart()


class Digest:
    """A sink that keeps the digest only."""

    __slots__ = ("_abort", "_hash", "size")

    def __init__(self, abort: Abort | None) -> None:
        self._abort = abort
        self.restart()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Take the bytes into account."""
        if self._abort is not None:
            self._abort.check()
        self._hash.update(data)
        self.size += len(data)

    def restart(self) -> None:
        """Forget what was written."""
        self._hash = hashlib.sha256()
        self.size = 0

    @property
    def sha256(self) -> str:
        """SHA-256 of what was written so far."""
        return self._hash.hexdigest()
