"""What test_leaving.py runs on n ranks: all of them take epochs, and one leaves before the others do.

mpiexec -n N python leaving_driver.py HOW MODE CASE. There are no excepthooks here: a driver may have none.
"""

from __future__ import annotations

import contextlib
import sys
import time

from mpi4py import MPI

from earthsciio.declare import load_case
from integrator import leaving
from integrator.run import CaseRun
from integrator.scatter import open_forcing

how, mode, path = sys.argv[1:]
comm = MPI.COMM_WORLD
leaver = 0 if mode == "root" else comm.size - 1  # the reader, where there is one
is_leaver = comm.rank == leaver
run = CaseRun(load_case(path), comm)
forcing = open_forcing(
    run.members, run.setup.partition.window(comm.rank), comm, mode=mode, clip=run.case.clip
)
epochs = len(forcing.boundaries())


def take(count, leave=None):
    """Take epochs of a new order; `leave` before the third."""
    forcing.start("forward")
    for k in range(count):
        if k == 2 and leave is not None and is_leaver:
            leave()
        forcing.take(k)
        forcing.release(k)


def blow_up():
    raise ArithmeticError("the model of one rank blew up")


leaving.PATIENCE_S = 1.0
if how == "exit":
    take(epochs, lambda: sys.exit(3))
elif how == "exit-and-close":
    with contextlib.closing(forcing):
        take(epochs, lambda: sys.exit(3))
elif how == "exit-in-silence":
    with contextlib.closing(forcing):
        take(epochs, lambda: sys.exit(0))
elif how == "raise":
    with contextlib.closing(forcing):
        take(epochs, blow_up)
elif how == "exit-between-orders":
    take(epochs)
    if is_leaver:
        sys.exit(3)
    take(epochs)
elif how in ("close", "forget"):
    leaving.PATIENCE_S = 0.0  # whoever took this for breaking off would end the job at once
    take(epochs)
    if how == "close":
        forcing.close()
    if not is_leaver:
        time.sleep(0.5)
    print("finished", flush=True)
    sys.exit(0)
print("went on", flush=True)
