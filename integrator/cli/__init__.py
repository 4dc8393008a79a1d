"""The ``integrator`` command: run and plan cases, alone or under mpiexec, and the demonstration.

Each command is a module with ``add_arguments(parser)`` and ``run(arguments) -> int``; it is imported when it
is called.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import TYPE_CHECKING

from earthsciio.errors import EarthSciIOError

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["communicator", "main"]

_COMMANDS = {
    "run": "run a case forward or adjoint",
    "plan": "show how a case would be cut among ranks, without running it",
    "demo": "fetch real winds, run them on four ranks, and report",
}
#: What launchers set in the environment of the processes they start.
_LAUNCHED = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID", "SLURM_PROCID")


def communicator() -> MPI.Intracomm | None:
    """Give the world communicator if a launcher started this process; None if it runs alone."""
    if not any(name in os.environ for name in _LAUNCHED):
        return None
    from mpi4py import MPI

    return MPI.COMM_WORLD


def main(arguments: list[str] | None = None) -> int:
    """Run a command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="integrator", description="Run cases on MPI ranks.")
    parser.add_argument("--debug", action="store_true", help="show where an error comes from")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, says in _COMMANDS.items():
        module = importlib.import_module(f".{name}", __name__)
        module.add_arguments(commands.add_parser(name, help=says, description=module.__doc__))
    parsed = parser.parse_args(arguments)
    module = importlib.import_module(f".{parsed.command}", __name__)
    try:
        code: int = module.run(parsed)
    except EarthSciIOError as error:
        if parsed.debug or communicator() is not None:
            raise  # under a launcher the excepthook ends all ranks
        print(f"integrator {parsed.command}: {error}", file=sys.stderr)
        return 2
    return code
