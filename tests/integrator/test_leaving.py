"""A rank that leaves while others count on it ends the job; one that is done waits for them as ever."""

from __future__ import annotations

from pathlib import Path

import pytest

DRIVER = Path(__file__).with_name("leaving_driver.py")
pytestmark = pytest.mark.mpiexec


@pytest.mark.parametrize(
    ("how", "mode", "text"),
    [
        ("exit", "root", "rank 0 left by sys.exit(3)"),
        ("exit", "own", "rank 2 left by sys.exit(3)"),
        ("exit-and-close", "own", "rank 2 left by sys.exit(3)"),
        ("exit-in-silence", "own", "rank 2 left with epoch 2 of its forcing still to take"),
        ("raise", "own", "rank 2 was ended by the exception above"),
        ("exit-between-orders", "root", "rank 0 left by sys.exit(3)"),
    ],
)
def test_a_rank_that_leaves_the_others_waiting_ends_the_job(mpirun, write_case, how, mode, text):
    done = mpirun(3, DRIVER, how, mode, write_case(), timeout=60)
    assert done.returncode != 0
    assert f"{text}, and other ranks go on: the job ends" in done.stderr
    assert "went on" not in done.stdout


@pytest.mark.parametrize("how", ["close", "forget"])
@pytest.mark.parametrize("mode", ["root", "own"])
def test_ranks_that_are_done_leave_one_after_the_other(mpirun, write_case, how, mode):
    done = mpirun(3, DRIVER, how, mode, write_case(), timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("finished") == 3  # the launcher may join lines of several ranks
