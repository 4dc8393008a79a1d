"""Restart files: where a forward sweep stands, so that an interrupted one loses at most `every` epochs.

The file holds the whole field, not one rank's block, so a run may go on with another number of ranks. It is
replaced atomically: at any moment there is the old one or the new one, complete.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from earthsciio.errors import DeclarationError, FileFormatError

from .ranks import agreed, broadcast

if TYPE_CHECKING:
    from earthsciio.fields import Array

    from .blocks import Blocks

__all__ = ["Restart"]

_HINT = "Remove it to start from the beginning"


class Restart:
    """Reads and writes the restart file of a run.

    Every method is collective; errors of rank 0, which alone touches the file, are raised on all.

    Parameters
    ----------
    path : str or os.PathLike
        The file, ``.npz``; its folder must exist.
    blocks : Blocks
        How the state is spread over the ranks.
    every : int
        Epochs between two writes.
    about : str
        What the state is of, besides epochs and grid, in words of the caller: a run that says something else
        does not go on with it. What may change on the way, a time step, is better left out.
    """

    def __init__(
        self, path: str | os.PathLike[str], blocks: Blocks, *, every: int = 1, about: str = ""
    ) -> None:
        if every < 1:
            raise DeclarationError(f"a restart file every {every} epochs")
        self.path = Path(path)
        self.every = every
        self.about = about
        self._blocks = blocks

    def save(self, epoch: int, state: Array, boundaries: Sequence[float]) -> None:
        """Write that `state` is the one at the start of `epoch`.

        Raises
        ------
        OSError
            If the file can't be written; the previous one is still there.
        """
        whole = self._blocks.gather(state)

        def write() -> None:
            if whole is not None:
                self._write(
                    epoch=np.int64(epoch),
                    state=whole,
                    boundaries=np.asarray(boundaries, np.float64),
                    about=np.str_(self.about),
                )

        agreed(self._blocks.comm, write)

    def load(self, boundaries: Sequence[float]) -> tuple[int, Array] | None:
        """Give the epoch to go on with and its initial state; None where there is no file.

        Raises
        ------
        DeclarationError
            If the file is of a run with other epochs, on another grid, or about something else.
        FileFormatError
            If it is no restart file.
        """

        def read() -> tuple[int, Array] | None:
            return None if self._blocks.rank else self._read(np.asarray(boundaries, np.float64))

        found = agreed(self._blocks.comm, read)
        mine = None if self._blocks.rank else np.int64(-1 if found is None else found[0]).tobytes()
        epoch = int(np.frombuffer(broadcast(self._blocks.comm, mine), np.int64)[0])
        if epoch < 0:
            return None
        return epoch, self._blocks.scatter(None if found is None else found[1])

    def _write(self, **arrays: Any) -> None:
        staging = self.path.with_name(f".{self.path.name}.{os.getpid()}.part")
        try:
            with staging.open("wb") as file:
                np.savez(file, **arrays)
                file.flush()
                os.fsync(file.fileno())
            staging.replace(self.path)
        finally:
            staging.unlink(missing_ok=True)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _read(self, boundaries: Array) -> tuple[int, Array] | None:
        try:
            # opened here, since np.load leaves a file it can't read open
            with self.path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                epoch, state, theirs = int(file["epoch"]), file["state"], file["boundaries"]
                about = str(file["about"]) if "about" in file else self.about
        except FileNotFoundError:
            return None
        except Exception as error:  # damage makes NumPy and zipfile raise almost anything
            if isinstance(error, OSError) and error.errno is not None:
                raise  # the system's
            raise FileFormatError("not a restart file", file=self.path, hint=_HINT) from error
        if not np.array_equal(theirs, boundaries):
            raise DeclarationError(
                "the restart file is of a run with other epochs", file=self.path, hint=_HINT
            )
        if state.shape != self._blocks.partition.shape:
            raise DeclarationError(
                f"the restart file is of a run on a grid of {state.shape} cells", file=self.path, hint=_HINT
            )
        if about != self.about:
            raise DeclarationError(
                f"the restart file is of a run with {about}, not {self.about}", file=self.path, hint=_HINT
            )
        return epoch, state
