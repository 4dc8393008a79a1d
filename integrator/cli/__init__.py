"""The ``integrator`` command: run, check and plan cases, alone or under mpiexec, and the demonstration."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from earthsciio.cli.dispatch import Command, dispatch
from earthsciio.errors import EarthSciIOError

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["COMMANDS", "MPI_EXTRA", "communicator", "launched", "main"]

COMMANDS: Final = (
    Command("run", "integrator.cli.run", "run a case, alone or under mpiexec, and say what it cost"),
    Command("check", "integrator.cli.check", "say what is wrong with a case, without running it"),
    Command("plan", "integrator.cli.plan", "show how a case would be cut among ranks, without running it"),
    Command("demo", "integrator.cli.demo", "fetch real winds, run them forward and back, and report"),
)
#: What to do where a part of the extra is missing.
MPI_EXTRA: Final = "pip install 'earthsci-forcing[mpi]'"
#: What launchers set in the environment of the processes they start.
_LAUNCHED: Final = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID", "SLURM_PROCID")


def launched() -> bool:
    """Whether a launcher started this process; an error must then reach the hook that ends every rank."""
    return any(name in os.environ for name in _LAUNCHED)


def communicator() -> MPI.Intracomm | None:
    """Give the world communicator if a launcher started this process; None if it runs alone."""
    if not launched():
        return None
    try:
        from mpi4py import MPI
    except ModuleNotFoundError:
        raise EarthSciIOError("several ranks need mpi4py", hint=MPI_EXTRA) from None
    return MPI.COMM_WORLD


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; gives the exit code."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    return dispatch(
        "integrator", "Run cases of forcing, model and sweep on MPI ranks.", COMMANDS, arguments,
        raises=launched() and find_spec("mpi4py") is not None,
    )  # fmt: skip
