"""Trying again: what failed in passing is repeated after a pause, from the byte it had come to.

What counts is a run of failures without any new byte: a long transfer over a bad line goes on as long as it
moves, a dead server is given up after a few attempts.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from earthsciio.cache.locks import sleep as pause
from earthsciio.errors import TransportError

from . import FetchRequest, Sink

__all__ = ["Passing", "RetryPolicy", "persist"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When to try again.

    Parameters
    ----------
    attempts : int
        Attempts in a row that may fail without any new byte.
    base_seconds, cap_seconds : float
        The n-th pause is between half and all of ``base * 2**(n - 1)``, at most ``cap``.
    longest_wait : float
        A server that asks (``Retry-After``) for a longer pause than this many seconds is given up.
    """

    attempts: int = 5
    base_seconds: float = 0.5
    cap_seconds: float = 30.0
    longest_wait: float = 300.0

    def __post_init__(self) -> None:
        if self.attempts < 1 or min(self.base_seconds, self.cap_seconds, self.longest_wait) < 0:
            raise ValueError("a retry policy needs at least one attempt and no negative pause")

    def pause(self, failures: int) -> float:
        """Return the seconds to wait after so many failures; random, so that processes spread out."""
        longest = min(self.cap_seconds, self.base_seconds * 2.0 ** (failures - 1))
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not cryptography


class Passing(Exception):
    """Raised by an attempt that failed in a way the next one may not.

    Parameters
    ----------
    error : TransportError
        What to raise if there is no next one.
    retry_after : float, optional
        Seconds the server asked to wait.
    """

    def __init__(self, error: TransportError, retry_after: float | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.retry_after = retry_after


def persist(
    attempt: Callable[[], T],
    request: FetchRequest,
    sink: Sink,
    policy: RetryPolicy,
    sleep: Callable[[float], None],
) -> T:
    """Call ``attempt`` until it succeeds, fails for good, or has failed too often without progress.

    Raises
    ------
    TransportError
        The last failure's.
    """
    failures, furthest = 0, 0
    while True:
        try:
            return attempt()
        except Passing as passing:
            signal = passing
        # Raised outside of the handler, or what the library below raised would ride along as context, with
        # the URL and headers in its text.
        if sink.size > furthest:
            furthest, failures = sink.size, 0
        failures += 1
        wait = signal.retry_after or 0.0
        if wait > policy.longest_wait:
            raise _given_up(signal.error, f"it asks to wait {wait:.0f} s")
        if failures >= policy.attempts:
            raise _given_up(signal.error, f"{failures} attempts in a row" if failures > 1 else "")
        pause(max(policy.pause(failures), wait), request.abort, sleep)


def _given_up(error: TransportError, why: str) -> TransportError:
    if why:
        error.args = (f"{error.args[0]} ({why})",)
    return error
