"""What the core tells whoever listens: small dataclasses, no listener known by name.

Progress bars, timelines, logs and reports are listeners: callables that take one event. An event carries
the monotonic time at which it happened (``time.perf_counter`` seconds) and the thread it happened on. A
listener runs on the thread that emits, so it must be quick and thread-safe; one that raises is dropped
with a warning and never disturbs the work it watches. Only what is no Exception, such as an interrupt,
comes out of it on the program's main thread; on any other nobody waits for it, and it is treated alike.
"""

from __future__ import annotations

import contextlib
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from .errors import EarthSciIOWarning

__all__ = [
    "DecodeFinished",
    "DecodeStarted",
    "Emitter",
    "Event",
    "Evicted",
    "Fetched",
    "FetchedAhead",
    "Listener",
    "OrderStarted",
    "Receiving",
    "Submitted",
    "Substituted",
    "Taken",
    "Waited",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base of all events."""

    when: float = field(default_factory=time.perf_counter)
    thread: str = field(default_factory=lambda: threading.current_thread().name)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderStarted(Event):
    """A consumer declared what it will take: the slots from `first` up to `slots`."""

    slots: int
    first: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted(Event):
    """A slot's sample was queued for decoding."""

    key: str
    anchor: object
    slot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeStarted(Event):
    """A worker began to decode a record of a member."""

    key: str
    anchor: object
    record: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeFinished(Event):
    """A worker finished a record: ``seconds`` of decoding, ``nbytes`` decoded; ``error`` if it failed."""

    key: str
    anchor: object
    record: str
    seconds: float
    nbytes: int
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waited(Event):
    """The consumer waited ``seconds`` in ``take`` for the slot of epoch ``epoch``."""

    epoch: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken(Event):
    """The consumer took the slot of epoch ``epoch``."""

    epoch: int
    slot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evicted(Event):
    """A kept record or sample was dropped to make room, or because the order needs it no more."""

    key: str
    record: str
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiving(Event):
    """Bytes of a file came in: `nbytes` of it are there now, fewer than before if it had to start again."""

    url: str
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched(Event):
    """A file was brought into the cache, or found there (``status``)."""

    url: str
    status: str
    nbytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Substituted(Event):
    """A file of a source does not exist, and records of others stand in for it, as was declared."""

    source: str
    url: str
    stand_ins: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedAhead(Event):
    """A group read ahead for the sample of an anchor for ``seconds``; ``error`` if that failed."""

    key: str
    anchor: object
    seconds: float
    error: str | None = None


Listener = Callable[[Event], None]


class Emitter:
    """Hands events to listeners; costs one attribute look-up where there are none."""

    __slots__ = ("_listeners",)

    def __init__(self, listeners: Iterable[Listener] = ()) -> None:
        self._listeners: tuple[Listener, ...] = tuple(listeners)

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def __call__(self, event: Event) -> None:
        """Hand one event to every listener."""
        for listener in self._listeners:
            try:
                listener(event)
            except BaseException as error:  # a listener's fault must not become the decode's
                if not isinstance(error, Exception) and threading.current_thread() is threading.main_thread():
                    raise
                self._listeners = tuple(other for other in self._listeners if other is not listener)
                # where warnings are errors, this one must not become the decode's either
                with contextlib.suppress(EarthSciIOWarning):
                    warnings.warn(
                        f"listener {listener!r} raised {error!r} and was dropped; "
                        "let it handle its own errors",
                        EarthSciIOWarning,
                        stacklevel=2,
                    )
