#!/usr/bin/env python
"""A driver to copy: your own loop over forcing epochs, alone or under mpiexec.

    python drive_tracer.py WINDS_FOLDER
    mpiexec -n 4 python drive_tracer.py WINDS_FOLDER

WINDS_FOLDER holds uwnd_mean.nc and vwnd_mean.nc (`make demo` leaves them in demo-out/data). Replace the
sources and the model; what stays is the shape: declare, cut the grid, open the forcing, and take, step,
release in the order that was started.
"""

import sys
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
from mpi4py import MPI

from earthsciio import DataSource, Provider, SourceTemporal
from integrator.blocks import Blocks
from integrator.models.tracer import Grid, TracerModel
from integrator.ranks import install_excepthooks
from integrator.scatter import open_forcing

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def main(folder: Path) -> None:
    comm = MPI.COMM_WORLD
    install_excepthooks(comm)  # an error on one rank ends all of them, promptly

    # 1. Declare: monthly means stamped at month starts, two records per sample, repeated every year.
    monthly = SourceTemporal("1970-01-01", "P1M", end="1971-01-01", records_per_sample=2, outside="cycle")
    winds = {
        name: Provider(DataSource(name, "netcdf", str(folder / f"{name}_mean.nc"), (name,), monthly))
        for name in ("uwnd", "vwnd")
    }

    # 2. Cut the grid: every rank owns a block, and needs one cell more on each side.
    axes = winds["uwnd"].coords
    grid = Grid(axes["latitude"].data, axes["longitude"].data, wall=80.0)
    partition = grid.partition(comm.Get_size(), lat="latitude", lon="longitude")
    window = partition.window(comm.Get_rank())

    # 3. Open the forcing: one rank per node decodes the Windows of all, two epochs ahead.
    year = (datetime(1970, 1, 1, tzinfo=UTC), datetime(1971, 1, 1, tzinfo=UTC))
    forcing = open_forcing(winds, window, comm, depth=2, clip=year)
    boundaries = [(t - EPOCH).total_seconds() for t in (*forcing.boundaries(), year[1])]

    # 4. Your loop. The model blends the two records of a sample in time; the library does not.
    model = TracerModel(grid, partition, comm, step=1800.0, u=("uwnd", "uwnd"), v=("vwnd", "vwnd"))
    tracer = np.ones(partition.block_shape(comm.Get_rank()))
    blocks = Blocks(partition, comm)
    before = blocks.total(tracer * model.area)
    forcing.start("forward")
    for k, (t0, t1) in enumerate(pairwise(boundaries)):
        sample = forcing.take(k)
        tracer = model.forward(tracer, sample, t0, t1)
        forcing.release(k)
    forcing.close()

    after = blocks.total(tracer * model.area)
    if comm.Get_rank() == 0:
        change = after / before - 1
        print(f"{len(boundaries) - 1} epochs on {comm.Get_size()} ranks; mass changed by {change:.1e}")


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1], "uwnd_mean.nc").is_file():
        sys.exit(f"usage: {sys.argv[0]} WINDS_FOLDER, with uwnd_mean.nc and vwnd_mean.nc in it")
    main(Path(sys.argv[1]))
