"""Fixtures for all tests."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import hypothesis
import pytest

# no deadline: what a test promises never depends on how busy the machine is
hypothesis.settings.register_profile("suite", deadline=None)
hypothesis.settings.load_profile("suite")


@pytest.fixture(autouse=True, scope="session")
def _no_cache_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep what tests and the programs they start fetch out of the user's own cache."""
    os.environ["EARTHSCIDATADIR"] = str(tmp_path_factory.mktemp("cache"))


#: Runs a script (Path) or module (str) on n ranks; one that hangs is killed, and its output shown.
MpiRun = Callable[..., "subprocess.CompletedProcess[str]"]


def pytest_configure(config: pytest.Config) -> None:
    # not "mpi": where pytest-mpi is installed, it skips those unless pytest itself runs under mpiexec
    config.addinivalue_line("markers", "mpiexec: starts a real mpiexec")
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # in the background of a script
        signal.signal(signal.SIGINT, signal.default_int_handler)


# no launcher may refuse to put more ranks than cores on a small machine; the Open MPI ones are off by default
_MPI_ENV = {
    "OMP_NUM_THREADS": "1",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PYTHONFAULTHANDLER": "1",
}


def _mpiexec() -> str | None:
    return shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")


@pytest.fixture(scope="session")
def mpirun() -> MpiRun:
    launcher = _mpiexec()
    if launcher is None or find_spec("mpi4py") is None:
        pytest.skip("needs mpi4py and an mpiexec (pip install mpich brings one)")

    def run(
        ranks: int,
        program: Path | str,
        *args: object,
        timeout: float = 60,
        env: dict[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        what = [str(program)] if isinstance(program, Path) else ["-m", program]
        command = [launcher, "-n", str(ranks), sys.executable, *what, *map(str, args)]
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **_MPI_ENV, **(env or {})},
            start_new_session=True,
        ) as job:
            try:
                out, err = job.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                os.killpg(job.pid, signal.SIGTERM)  # the launcher passes it on to the ranks
                try:
                    out, err = job.communicate(timeout=5)
                except subprocess.TimeoutExpired:
                    os.killpg(job.pid, signal.SIGKILL)
                    out, err = job.communicate()
                raise AssertionError(
                    f"{ranks} ranks still ran after {timeout} s: {command}\n{out}\n{err}"
                ) from None
        return subprocess.CompletedProcess(command, job.returncode, out, err)

    return run
