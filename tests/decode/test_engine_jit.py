"""Compiled code: once per machine, never at import, and none of it by a process that finds it on disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

SCRIPT = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import stored
from earthsciio.decode import jit_stats
file = stored.open_file(Path(sys.argv[2]))
both = stored.read_both(file, [("v", stored.everything(file, "v"))])
assert both.fast == both.slow
stats = jit_stats()
print(json.dumps([stats.compiled, stats.loaded]))
"""


def start(path: Path, cache: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(Path(__file__).parent), str(path)],
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache)}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.timeout(600)  # three compilers on however few cores are free
def test_processes_that_start_together_compile_once_and_later_ones_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "v.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("v", data=np.arange(40, dtype="f4"), chunks=(8,), compression=1, shuffle=True)
    cache = tmp_path / "cache"
    together = [start(path, cache) for _ in range(3)]
    counts = [json.loads(process.communicate(timeout=500)[0]) for process in together]
    functions = sum(counts[0])
    assert sum(compiled for compiled, _ in counts) == functions
    assert all(sum(count) == functions for count in counts)
    (later,) = [start(path, cache)]
    assert json.loads(later.communicate(timeout=500)[0]) == [0, functions]


def test_importing_the_engine_compiles_nothing_and_does_not_import_numba() -> None:
    script = "import sys, earthsciio.decode; sys.exit('numba' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=100)
