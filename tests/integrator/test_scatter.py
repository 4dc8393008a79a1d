"""One decode for all ranks of a node: the same bits whichever way they come, and no rank left waiting."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

DRIVER = Path(__file__).with_name("scatter_driver.py")
CASE = """\
case: synthetic
sources:
  u: {format: netcdf, url: u.nc, variables: [u], temporal: &hourly
      {start: "2001-02-27T21:00", frequency: PT3H, end: "2001-02-28T18:00", records_per_sample: 2}}
  v: {format: netcdf, url: v.nc, variables: [v], temporal: *hourly}
time: {end: "2001-02-28T15:00"}
model:
  name: tracer
  parameters: {u: [u, u], v: [v, v], step: 3600, wall: 75,
               start: {lat: 20, lon: 100, radius: 60}, target: {lat: [-60, 60], lon: [-90, 120]}}
sweep: {direction: adjoint}
"""


@pytest.fixture
def case(tmp_path):
    """A case on two compressed files of seven records on 13 x 17 points, latitude from the north."""
    rng = np.random.default_rng(7)
    for name in ("u", "v"):
        with h5py.File(tmp_path / f"{name}.nc", "w", track_order=True) as file:
            scales = {
                "time": (np.arange(7) * 3.0, "hours since 2001-02-27 21:00"),
                "lat": (np.linspace(90, -90, 13), "degrees_north"),
                "lon": (np.arange(17) * 360 / 17, "degrees_east"),
            }
            wind = file.create_dataset(
                name,
                data=rng.normal(3, 8, (7, 13, 17)).astype("f4"),
                chunks=(1, 5, 6),
                compression=1,
                shuffle=True,
            )
            for axis, (dim, (values, units)) in enumerate(scales.items()):
                file[dim] = values
                file[dim].attrs["units"] = units
                file[dim].make_scale(dim)
                wind.dims[axis].attach_scale(file[dim])
    (tmp_path / "case.yaml").write_text(CASE)
    return tmp_path


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
def test_a_rank_that_takes_another_epoch_is_told(mpirun, case):
    done = mpirun(3, DRIVER, "other-epoch", case)
    assert done.returncode == 0, done.stderr
    first, second, last = json.loads(done.stdout)
    assert (first, second) == ("nothing was raised",) * 2
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
