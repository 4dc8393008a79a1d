"""What the engine does to the process it runs in: threads beside netCDF4, and memory beyond the output.

Each test runs a script of its own: a crash must not take pytest with it, and memory starts from zero.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def run(script: str, *arguments: object, timeout: float = 100) -> str:
    done = subprocess.run(
        [sys.executable, str(HERE / script), *map(str, arguments)],
        check=False, capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_sixteen_threads_read_beside_a_main_thread_that_writes_with_netcdf4(tmp_path):
    samples, written = map(int, run("hammer.py", tmp_path, 0).split())
    assert samples >= 16 * 12
    assert written > 0


@pytest.mark.soak
def test_sixteen_threads_read_for_a_minute_beside_netcdf4(tmp_path):
    samples, written = map(int, run("hammer.py", tmp_path, 60, timeout=300).split())
    assert samples >= 16 * 12
    assert written > 0


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_memory_beyond_the_output_is_a_chunk_per_thread(tmp_path):
    found = json.loads(run("peak.py", tmp_path))
    per_thread = found["raw"] + found["stored"]
    assert found["output"] > 200 << 20
    assert found["grown"] <= found["output"] + found["threads"] * per_thread + 32e6
