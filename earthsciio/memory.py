"""How much memory this process may count on: the node's, or its cgroup's, shared with the ranks beside it.

Where a batch system puts a job into a cgroup, that limit is what kills it, not the size of the node; and
the ranks of a job on one node share it. Both are read from files and the environment, without MPI.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from .errors import EarthSciIOError, TooLarge

__all__ = ["allocating", "check_size", "default_max_bytes", "local_ranks", "memory_limit"]

#: Where launchers say how many ranks of the job are on this node: Hydra (MPICH, Intel), Open MPI, MVAPICH,
#: PALS (Cray), Slurm.
LOCAL_RANKS: Final = (
    "MPI_LOCALNRANKS",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MV2_COMM_WORLD_LOCAL_SIZE",
    "PMI_LOCAL_SIZE",
    "PALS_LOCAL_SIZE",
    "SLURM_NTASKS_PER_NODE",
)


def local_ranks(environ: Mapping[str, str] = os.environ) -> int:
    """Give the number of MPI ranks of this job on this node, 1 where nothing says otherwise."""
    for name in LOCAL_RANKS:
        leading = re.match(r"\d+", environ.get(name, ""))
        if leading:
            return max(1, int(leading[0]))
    return 1


def memory_limit(root: Path = Path("/")) -> int:
    """Give the bytes of memory this process and those in its cgroup may use together.

    Parameters
    ----------
    root : Path
        Where ``proc`` and ``sys`` are mounted.
    """
    limits = [_physical(root)]
    for path in _limit_files(root):
        try:
            text = path.read_text().strip()
        except OSError:  # a controller that isn't there limits nothing
            continue
        if text.isdigit():  # "max" is no limit
            limits.append(int(text))
    return min(limits)


@functools.cache
def _there_is() -> int:
    return memory_limit()


def check_size(nbytes: int, **about: Any) -> None:
    """Refuse what takes more memory than this process may ever have; `about` goes into the error.

    Raises
    ------
    TooLarge
        Where a system that promises memory freely would kill the process half way.
    """
    if nbytes > _there_is():
        raise TooLarge(f"it takes {nbytes} bytes, and there is memory of {_there_is()}", **about)


@contextmanager
def allocating(nbytes: int, **about: Any) -> Iterator[None]:
    """Make an allocation that fails an error that says what for; `about` goes into it.

    Raises
    ------
    TooLarge
        In place of any other MemoryError.
    """
    try:
        yield
    except MemoryError as error:
        if isinstance(error, EarthSciIOError):
            raise
        raise TooLarge(f"it takes {nbytes} bytes, which can't be had: {error}", **about) from error


def default_max_bytes(root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> int:
    """Give half of this process's share of memory."""
    return memory_limit(root) // local_ranks(environ) // 2


def _physical(root: Path) -> int:
    try:
        found = re.search(r"^MemTotal:\s*(\d+) kB", (root / "proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    if found:
        return int(found[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _limit_files(root: Path) -> Iterator[Path]:
    """Give the files with the limits of this process's cgroups and of all above them, v1 and v2."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, names = root / "sys/fs/cgroup", ["memory.max", "memory.high"]
        elif "memory" in controllers.split(","):
            base, names = root / "sys/fs/cgroup/memory", ["memory.limit_in_bytes"]
        else:
            continue
        below = Path(path.lstrip("/"))
        for level in (below, *below.parents):  # in a container the inner ones may not be there, the mount is
            yield from (base / level / name for name in names)
