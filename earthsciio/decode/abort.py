"""The abort token: how cancel, exit and Ctrl-C reach work that is already running.

One word of memory, shared by whoever starts a decode and the code that runs it. Python code calls
:meth:`AbortToken.check` between chunks; GIL-free code reads :attr:`AbortToken.word` directly.
"""

from __future__ import annotations

import numpy as np

from earthsciio.errors import Cancelled

__all__ = ["AbortToken"]


class AbortToken:
    """A flag that can be set once, from any thread.

    Attributes
    ----------
    word : numpy.ndarray
        Shape ``(1,)``, int32; nonzero means stop. GIL-free kernels poll it between chunks.
    """

    __slots__ = ("word",)

    def __init__(self) -> None:
        self.word = np.zeros(1, dtype=np.int32)

    def set(self) -> None:
        """Ask the work to stop."""
        self.word[0] = 1

    def is_set(self) -> bool:
        """Whether the work was asked to stop."""
        return bool(self.word[0])

    def check(self) -> None:
        """Raise :class:`~earthsciio.errors.Cancelled` if the work was asked to stop."""
        if self.word[0]:
            raise Cancelled("the decode was cancelled")
