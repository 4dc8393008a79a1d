"""The account against the operating system: what the process grows by is what the group says it holds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import measured
import pytest

from earthsciio.decode import default_decode_threads

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")

LEVEL = 4 * 721 * 1152  # bytes of a decoded chunk
#: What decoding may take besides its output: fixed, and per thread an encoded and a decoded chunk.
ALLOWANCE = 32_000_000 + 2 * LEVEL * default_decode_threads()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("levels")


def run(folder: Path, levels: int, epochs: int, workers: int, budget: int, what: str) -> dict[str, int]:
    script = Path(measured.__file__)
    arguments = [str(each) for each in (script, folder, levels, epochs, workers, budget, what)]
    done = subprocess.run(
        [sys.executable, *arguments], check=False, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check(folder: Path, levels: int, samples: int | None, workers: int) -> None:
    """Compare the account with the process, under a budget of so many samples; 0: a byte, None: no budget."""
    nbytes = levels * LEVEL
    coords = 8 * (levels + 721 + 1152)
    budget = 0 if samples is None else max(1, samples * nbytes + coords)
    found = run(folder, levels, 6, workers, 1 if samples == 0 else budget, "drop")
    assert nbytes <= found["peak"] <= max(budget, nbytes) + coords or samples is None
    slack = 0.1 * found["peak"] + ALLOWANCE
    # beside workers the consumer has a sample in hand for a moment, which has left the account
    in_hand = nbytes if workers else 0
    assert found["peak"] - slack <= found["grown"] <= found["peak"] + slack + in_hand


BUDGETS = pytest.mark.parametrize("samples", [0, 1, 3, None])
WORKERS = pytest.mark.parametrize("workers", [0, 2])


# spec: G5.1
@BUDGETS
@WORKERS
def test_the_process_grows_by_what_the_account_says(folder, samples, workers):
    check(folder, 50, samples, workers)


# spec: G5.1
@pytest.mark.soak
@BUDGETS
@WORKERS
def test_the_process_grows_by_what_the_account_says_with_samples_of_half_a_gigabyte(folder, samples, workers):
    assert 152 * LEVEL >= 500e6
    check(folder, 152, samples, workers)


# spec: G5.2
@pytest.mark.parametrize("samples", [0, 1])
def test_a_consumer_that_keeps_every_sample_finishes_whatever_the_budget(folder, samples):
    found = run(folder, 20, 6, 2, max(1, samples * 20 * LEVEL), "keep")
    assert found["taken"] == 6


@pytest.mark.soak
@BUDGETS
def test_a_consumer_that_keeps_half_gigabytes_finishes_whatever_the_budget(folder, samples):
    budget = 0 if samples is None else max(1, samples * 152 * LEVEL)
    found = run(folder, 152, 12, 2, budget, "keep")
    assert found["taken"] == 12
    assert found["grown"] >= 12 * 152 * LEVEL
