"""How to start ranks on this machine: the mpiexec beside this Python, else the one on the PATH."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from shutil import which

from earthsciio.errors import FetchError

__all__ = ["mpiexec"]


@cache
def _launcher() -> tuple[str, bool]:
    """Give the path of mpiexec and whether it is Open MPI's."""
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.exists() else which("mpiexec")
    if found is None:
        raise FetchError("there is no mpiexec", hint="Install an MPI, or the wheel: pip install mpich")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)  # noqa: S603
    return found, "open" in (version.stdout + version.stderr).lower()


def mpiexec(ranks: int) -> list[str]:
    """Give the command that starts `ranks` ranks on this machine, more than it has cores if need be.

    Raises
    ------
    FetchError
        If there is no mpiexec.
    """
    launcher, is_open_mpi = _launcher()
    command = [launcher, "-n", str(ranks)]
    if is_open_mpi:
        command += ["--oversubscribe"] + (["--allow-run-as-root"] if os.geteuid() == 0 else [])
    return command
