"""What test_mpi.py starts under mpiexec: many checks in one job, or one way to fail.

mpiexec -n N python mpi_driver.py checks OUT [RESTART]   results into OUT/N.npz
mpiexec -n N python mpi_driver.py model-raises | thread-raises | agreed-uncaught
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
from pathlib import Path

import numpy as np
from checkpoint_schedules import Revolve
from mpi4py import MPI
from synthetic import DAY, MemoryForcing, grid, winds

from earthsciio.errors import DecodeError, EarthSciIOError
from integrator import ranks, sweep
from integrator.blocks import Blocks
from integrator.halo import HaloExchange
from integrator.models.tracer import TracerModel
from integrator.partition import Dim, Partition, node_groups
from integrator.restart import Restart

comm = MPI.COMM_WORLD
me, size = comm.Get_rank(), comm.Get_size()
EPOCHS = 6
EDGES = [k * DAY for k in range(EPOCHS + 1)]


class Case:
    """The tracer on 13 x 16 cells in random winds; 13 rows divide among nobody."""

    def __init__(self, model_class=TracerModel):
        self.grid = grid()
        self.partition = self.grid.partition(size)
        self.model = model_class(self.grid, self.partition, comm, step=1800.0)
        self.forcing = MemoryForcing(self.partition, me, *winds(self.grid, EPOCHS + 1), EDGES)
        self.blocks = Blocks(self.partition, comm)

    def field(self, seed):
        return np.random.default_rng(seed).random(self.grid.area.shape)[self.partition.block(me)]


def raised(call):
    try:
        call()
    except Exception as error:
        return error
    return None


class Unpicklable(Exception):
    def __init__(self, message):
        super().__init__(message)
        self.lock = threading.Lock()


def check_sweeps(out, restart_from):
    case = Case()
    x, y = case.field(1), case.field(2)
    runs = {
        "everything": sweep.adjoint(case.model, case.forcing, x, EDGES, lambda end: y),
        "revolve": sweep.adjoint(
            case.model, case.forcing, x, EDGES, lambda end: y, schedule=Revolve(EPOCHS, 2)
        ),
    }
    for name, run in runs.items():
        out[f"state_{name}"] = case.blocks.gather(run.state)
        out[f"gradient_{name}"] = case.blocks.gather(run.gradient)
    run = runs["revolve"]
    out["masses"] = [case.blocks.total(field * case.model.area) for field in (x, run.state)]
    out["identity"] = [case.blocks.total(run.state * y), case.blocks.total(x * run.gradient)]
    reports = sweep.gather_reports(comm, run.report)
    if me == 0:
        out["epochs"] = [report.epochs for report in reports]
        out["orders"] = case.forcing.orders[1]
    if restart_from:
        resumed = sweep.forward(
            case.model, case.forcing, x, EDGES, restart=Restart(restart_from, case.blocks, every=100)
        )
        out["state_resumed"] = case.blocks.gather(resumed.state)
        out["resumed_at"] = case.forcing.orders[-1][0]
    case.model.close()


def write_restart(path):
    case = Case()
    half = sweep.forward(case.model, case.forcing, case.field(1), EDGES[:4]).state
    Restart(path, case.blocks).save(3, half, EDGES)
    # a folder that is not there: rank 0 alone sees it, all ranks raise
    error = raised(lambda: Restart(path.parent / "absent" / "x.npz", case.blocks).save(3, half, EDGES))
    assert isinstance(error, FileNotFoundError), error


def check_cfl_is_refused_by_every_rank():
    case = Case()
    case.model.step = 3 * DAY
    texts = ranks.gather(
        comm, str(raised(lambda: sweep.forward(case.model, case.forcing, case.field(1), EDGES))).encode()
    )
    assert texts is None or (len(set(texts)) == 1 and texts[0].startswith(b"CFL")), texts


def check_halo():
    for dims, leading, dtype in (
        ((Dim("lat", 5, halo=(1, 2)), Dim("lon", 6, periodic=True, halo=(2, 1))), (), np.float64),
        (
            (Dim("lat", 4, periodic=True, halo=(3, 3)), Dim("lon", 3, periodic=True, halo=(4, 4))),
            (2,),
            np.int32,
        ),
        ((Dim("cell", 9, halo=(0, 0)),), (), np.float64),
    ):
        partition = Partition(dims, size)
        shape = leading + partition.shape
        whole = 1 + np.arange(np.prod(shape)).reshape(shape).astype(dtype)
        window = partition.window(me)
        at = [range(*s) if isinstance(s := window[dim.name], tuple) else s for dim in dims]
        expected = np.zeros(leading + partition.frame_shape(me), dtype)
        expected[(..., *partition.placement(me))] = whole[(..., *np.ix_(*at))]
        exchange = HaloExchange(partition, comm, leading=leading, dtype=dtype)
        for factor in (1, 2):  # buffers are used again
            frame = np.zeros_like(expected)
            frame[(..., *partition.interior(me))] = factor * whole[(..., *partition.block(me))]
            exchange(frame)
            assert np.array_equal(frame, factor * expected), (dims, frame, expected)
        # a frame that is a strided view
        spread = np.zeros((*expected.shape, 2), dtype)
        frame = spread[..., 0]
        frame[(..., *partition.interior(me))] = whole[(..., *partition.block(me))]
        exchange(frame)
        assert np.array_equal(frame, expected)
        exchange.close()


def check_blocks():
    partition = Partition((Dim("y", 5), Dim("x", 7)), size)
    blocks = Blocks(partition, comm)
    whole = np.random.default_rng(0).random((5, 7))
    mine = blocks.scatter(np.asfortranarray(whole) if me == 0 else None)
    assert np.array_equal(mine, whole[partition.block(me)])
    # a transposed view holds the values in the wrong order for MPI
    back = blocks.gather(np.ascontiguousarray(mine.T).T)
    assert (back is None) if me else np.array_equal(back, whole)
    cancelling = np.array([[1e16, 1.0, 1.0, -1e16, 0.5, 0, 0]] * 5)
    assert blocks.total(cancelling[partition.block(me)]) == 12.5


def check_agree():
    ranks.agree(comm, None)
    last = size - 1
    error = raised(
        lambda: ranks.agree(
            comm, DecodeError("chunk is damaged", file="a.nc", chunk=(1, 2)) if me == last else None
        )
    )
    assert type(error) is DecodeError, error
    assert (error.file, error.chunk) == ("a.nc", (1, 2))
    assert str(error).startswith("chunk is damaged [file=a.nc, chunk=(1, 2)]. ")
    if size > 1:
        assert error.__notes__ == [f"raised on rank {last}"]
        assert error.raised_on == last
    # an agreed error may be agreed on again further out
    again = raised(lambda: ranks.agree(comm, error))
    assert type(again) is DecodeError
    assert again.__dict__ == error.__dict__
    # all fail differently: the lowest rank's is raised everywhere
    error = raised(lambda: ranks.agree(comm, ValueError(f"of rank {me}")))
    assert type(error) is ValueError
    assert str(error) == "of rank 0"
    if size > 1:
        error = raised(lambda: ranks.agree(comm, Unpicklable("with a lock") if me == last else None))
        assert type(error) is ranks.RankError, error
        assert isinstance(error, EarthSciIOError)
        assert str(error) == "Unpicklable: with a lock"
        assert type(pickle.loads(pickle.dumps(error))) is ranks.RankError
    ranks.agree(comm, None)  # and the job goes on


def check_payloads():
    for mine in (b"", b"x" * (me * 1000), pickle.dumps({"rank": me})):
        parts = ranks.gather(comm, mine, root=size - 1)
        assert (parts is None) == (me != size - 1)
        assert parts is None or parts[me] == mine
        assert parts is None or len(parts) == size
    for sent in (b"", b"abc" * 1000):
        assert ranks.broadcast(comm, sent if me == size - 1 else None, root=size - 1) == sent
    assert ranks.maximum(comm, np.array([me, -me, 0.5])).tolist() == [size - 1, 0, 0.5]


def check_nodes(out):
    nodes = node_groups(comm)
    assert nodes.groups == (tuple(range(size)),)
    assert nodes.mine == 0
    assert nodes.comm.Get_size() == size
    nodes.comm.Free()


def check_waiting_is_cheap(out):
    ranks.agree(comm, None)
    before = time.process_time(), time.perf_counter()
    if me == size - 1:
        time.sleep(2)  # the work the others wait for
    ranks.agree(comm, None)
    cpu, wall = time.process_time() - before[0], time.perf_counter() - before[1]
    shares = ranks.gather(comm, np.float64(cpu / wall).tobytes())
    if me == 0:
        out["cpu_shares"] = [float(np.frombuffer(share)[0]) for share in shares]


def checks(folder, restart_from=None):
    out = {}
    check_payloads()
    check_agree()
    check_nodes(out)
    check_blocks()
    check_halo()
    check_cfl_is_refused_by_every_rank()
    check_sweeps(out, restart_from)
    write_restart(folder / f"restart{size}.npz")
    if size == 4:
        check_waiting_is_cheap(out)
    if me == 0:
        np.savez(folder / f"{size}.npz", **out)


def model_raises(folder):
    class Failing(TracerModel):
        def forward(self, q, sample, t0, t1):
            if me == size - 1 and t0 == 2 * DAY:
                raise ArithmeticError("the model of one rank blew up")
            return super().forward(q, sample, t0, t1)

    case = Case(Failing)
    # a prefetch thread that is not a daemon must not keep the job alive
    threading.Thread(target=time.sleep, args=(1000,)).start()
    sweep.forward(case.model, case.forcing, case.field(1), EDGES)


def thread_raises(folder):
    def work():
        raise DecodeError("a worker thread met a truncated file", file="b.nc")

    if me == size - 1:
        threading.Thread(target=work, name="worker").start()
    ranks.wait(comm.Irecv(np.empty(1), source=MPI.ANY_SOURCE, tag=7))  # for ever


def agreed_uncaught(folder):
    ranks.agree(comm, DecodeError("a file all ranks needed is damaged", file="c.nc") if me == 1 else None)


if __name__ == "__main__":
    restore = ranks.install_excepthooks(comm)
    what, folder, *rest = sys.argv[1:]
    (Path(folder) / f"{os.getpid()}.pid").touch()
    ranks.agree(comm, None)  # all have started before one of them fails
    {
        "checks": checks,
        "model-raises": model_raises,
        "thread-raises": thread_raises,
        "agreed-uncaught": agreed_uncaught,
    }[what](Path(folder), *rest)
    restore()
    assert sys.excepthook is sys.__excepthook__
