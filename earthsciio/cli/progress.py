"""How warming goes on: a bar with rate and ETA where somebody looks, a line per file where a log does."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from earthsciio.cache.redact import redact
from earthsciio.events import Event, Receiving
from earthsciio.filelist import SourceFile
from earthsciio.forks import new_lock

from .output import format_bytes

if TYPE_CHECKING:
    from rich.progress import Progress

    from earthsciio.warm import Warmed

__all__ = ["Bar", "Lines", "Meter", "Silent"]


class Meter:
    """Rate and ETA of a number of files whose sizes are not known before they come; a listener.

    Parameters
    ----------
    files : int
        How many there are.
    clock : callable
        Gives seconds.
    """

    def __init__(self, files: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.left = files
        self.received = 0
        self._downloaded: list[int] = []
        self._clock = clock
        self._began: float | None = None
        self._of: dict[str, int] = {}
        self._lock = new_lock(self)

    def __call__(self, event: Event) -> None:
        """Count the bytes of a transfer."""
        if isinstance(event, Receiving):
            with self._lock:
                if self._began is None:
                    self._began = self._clock()
                self.received += max(0, event.nbytes - self._of.get(event.url, 0))
                self._of[event.url] = event.nbytes

    def finished(self, warmed: Warmed) -> None:
        """Count a file that is done."""
        with self._lock:
            self.left -= 1
            if warmed.status == "downloaded":
                self._downloaded.append(warmed.nbytes)

    @property
    def rate(self) -> float | None:
        """Bytes per second since the first byte; None before it."""
        if self._began is None:
            return None
        seconds = self._clock() - self._began
        return self.received / seconds if seconds > 0 else None

    @property
    def eta(self) -> float | None:
        """Seconds to go, if the files to come are as large as those that came; None before the first."""
        rate = self.rate
        if not rate or not self._downloaded:
            return None
        mean = sum(self._downloaded) / len(self._downloaded)
        return max(0.0, (self.left + len(self._downloaded)) * mean - self.received) / rate


class Silent:
    """Shows nothing: for ``--json``."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter

    def shown(self) -> AbstractContextManager[Any]:
        """Give the ``with`` block during which there is something to show."""
        return nullcontext()

    def done(self, warmed: Warmed) -> None:
        """Tell of a file."""
        self.meter.finished(warmed)

    def waiting(self, file: SourceFile) -> None:
        """Tell of a file that is waited for."""


class Lines(Silent):
    """A line per file on stdout."""

    def __init__(self, meter: Meter) -> None:
        super().__init__(meter)
        self._total = meter.left

    def done(self, warmed: Warmed) -> None:
        """Tell of a file."""
        super().done(warmed)
        number = self._total - self.meter.left
        print(f"[{number}/{self._total}] {_told(warmed)}", flush=True)

    def waiting(self, file: SourceFile) -> None:
        """Tell of a file that is waited for."""
        print(f"waiting for {redact(file.url)}", flush=True)


class Bar(Silent):
    """One bar on stderr; above it only what went wrong, or is waited for."""

    def __init__(self, meter: Meter) -> None:
        super().__init__(meter)
        self._total = meter.left
        self._bar: Progress | None = None

    def shown(self) -> AbstractContextManager[Any]:
        """Give the ``with`` block during which the bar is there."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        meter = self.meter

        class Figures(TextColumn):
            def render(self, task: Any) -> Any:  # noqa: ARG002 - the figures are the meter's
                return self.text(_figures(meter))

            @staticmethod
            def text(figures: str) -> Any:
                from rich.text import Text

                return Text(figures)

        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("files"), Figures(""))
        self._bar = Progress(*columns, console=Console(file=sys.stderr), transient=True)
        self._task = self._bar.add_task("warm", total=self._total)
        return self._bar

    def done(self, warmed: Warmed) -> None:
        """Tell of a file."""
        super().done(warmed)
        assert self._bar is not None
        if warmed.status in ("absent", "failed"):
            self._print(_told(warmed))
        self._bar.advance(self._task)

    def waiting(self, file: SourceFile) -> None:
        """Tell of a file that is waited for."""
        self._print(f"waiting for {redact(file.url)}")

    def _print(self, text: str) -> None:
        assert self._bar is not None
        self._bar.console.print(text, markup=False, highlight=False)


def _told(warmed: Warmed) -> str:
    if warmed.error is not None:
        return f"failed  {redact(warmed.file.url)}: {' '.join(str(warmed.error).split())}"
    if warmed.status == "absent":
        return f"absent  {redact(warmed.file.url)}"
    status = warmed.status.replace("_", " ")
    return f"{status}  {format_bytes(warmed.nbytes)}  {warmed.seconds:.1f} s  {redact(warmed.file.url)}"


def _figures(meter: Meter) -> str:
    rate, eta = meter.rate, meter.eta
    parts = [format_bytes(meter.received)]
    if rate is not None:
        parts.append(f"{format_bytes(int(rate))}/s")
    if eta is not None:
        minutes, seconds = divmod(round(eta), 60)
        hours, minutes = divmod(minutes, 60)
        parts.append(f"{hours}:{minutes:02d}:{seconds:02d} to go")
    return ", ".join(parts)
