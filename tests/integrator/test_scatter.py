"""One decode for all ranks of a node: the same bits whichever way they come, and no rank left waiting."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

DRIVER = Path(__file__).with_name("scatter_driver.py")


@pytest.fixture
def case(write_case):
    """The folder of a case."""
    return write_case().parent


@pytest.mark.mpiexec
def test_values_do_not_depend_on_ranks_mode_workers_depth_or_schedule(mpirun, case):
    every = {}
    for ranks in (1, 2, 3, 4):
        done = mpirun(ranks, DRIVER, "check", case, timeout=100)
        assert done.returncode == 0, done.stderr
        results = json.loads(done.stdout)
        assert results["taken"] == [], f"{ranks} ranks"
        assert results["truncated"] == ["FileFormatError u.nc"] * ranks
        every |= {f"{ranks} ranks, {way}": digest for way, digest in results["digests"].items()}
    assert len(every) == 28
    assert len(set(every.values())) == 1, every


@pytest.mark.mpiexec
def test_two_nodes_get_the_same_values_and_one_readers_error_reaches_every_rank(mpirun, case):
    done = mpirun(4, DRIVER, "two-nodes", case)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["True, True, u.nc, rank 2, True"] * 4


@pytest.mark.mpiexec
def test_a_wrong_take_and_one_after_close_are_told_at_once_to_the_rank_that_does_it(mpirun, case):
    done = mpirun(3, DRIVER, "other-epoch", case)
    assert done.returncode == 0, done.stderr
    first, second, last = json.loads(done.stdout)
    assert first == second
    assert first.count("the forcing is closed") == 2
    assert last.count("take(4), but the next epoch of the order is 2") == 2
    assert "take(2) on this rank, but its node's reader takes epoch 1" in last


@pytest.mark.mpiexec
@pytest.mark.parametrize(
    ("what", "text"), [("reader-fails", "v.nc"), ("model-fails", "the model blew up on purpose")]
)
def test_a_fault_on_one_rank_ends_every_rank_with_its_text(mpirun, case, what, text):
    done = mpirun(4, DRIVER, what, case, timeout=60)
    assert done.returncode != 0
    assert text in done.stderr


@pytest.mark.mpiexec
def test_ranks_that_wait_for_the_reader_sleep(mpirun, case):
    done = mpirun(3, DRIVER, "slow-reader", case)
    assert done.returncode == 0, done.stderr
    assert max(json.loads(done.stdout)[1:]) < 0.25
