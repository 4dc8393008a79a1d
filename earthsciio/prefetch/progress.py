"""A progress bar: a listener that draws with rich, which is loaded only if somebody wants one."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from earthsciio.events import DecodeFinished, Event, OrderStarted, Taken, Waited

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Progress"]


class Progress:
    """Shows slots taken, the time waited and the bytes decoded, while it is open as a context manager.

    Parameters
    ----------
    console : rich.console.Console, optional
        Where to draw; default: standard error. Nothing is drawn where that is no terminal.

    Examples
    --------
    >>> with Progress() as progress:  # doctest: +SKIP
    ...     with PrefetchGroup(members, listeners=[progress]) as group:
    ...         sweep(group)
    """

    def __init__(self, console: Console | None = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        self._bar = Bar(
            TextColumn("epochs"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("waited {task.fields[waited]:.1f} s, decoded {task.fields[decoded]:.2f} GB"),
            TimeRemainingColumn(),
            console=console if console is not None else Console(stderr=True),
        )
        self._task = self._bar.add_task("", total=None, waited=0.0, decoded=0.0)
        self._waited = 0.0
        self._decoded = 0

    def __call__(self, event: Event) -> None:
        """Draw what an event changes; rich takes calls from any thread."""
        match event:
            case OrderStarted():
                self._bar.update(self._task, total=event.slots, completed=event.first)
            case Taken():
                self._bar.update(self._task, completed=event.slot + 1)
            case Waited():
                self._waited += event.seconds
                self._bar.update(self._task, waited=self._waited)
            case DecodeFinished():
                self._decoded += event.nbytes
                self._bar.update(self._task, decoded=self._decoded / 1e9)
            case _:
                pass

    def __enter__(self) -> Self:
        if self._bar.console.is_terminal:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()
