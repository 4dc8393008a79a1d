"""What test_scatter.py runs on n ranks: a case on files, swept every way there is, and what goes wrong."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from mpi4py import MPI

from earthsciio import FileFormatError
from earthsciio.declare import load_case
from earthsciio.errors import GroupStateError, OrderError
from integrator import scatter
from integrator.partition import NodeGroups
from integrator.ranks import install_excepthooks, wait
from integrator.run import CaseRun, run_case
from integrator.scatter import open_forcing
from integrator.sweep import adjoint

#: (scatter mode, workers, depth, snapshots): prefetch on and off, Revolve and everything stored.
WAYS = [
    ("root", 0, 0, None), ("root", 1, 2, None), ("root", 4, 2, 3), ("root", 1, 1, 2),
    ("own", 0, 0, None), ("own", 1, 2, 3), ("own", 4, 3, None),
]  # fmt: skip


def digests(folder: Path) -> dict[str, str]:
    """Hash state and gradient of every way of running the case."""
    comm = MPI.COMM_WORLD
    case = load_case(folder / "case.yaml")
    found = {}
    for mode, workers, depth, snapshots in WAYS:
        import msgspec

        changed = replace(
            case,
            scatter=msgspec.structs.replace(case.scatter, mode=mode),
            sweep=msgspec.structs.replace(case.sweep, snapshots=snapshots),
        )
        run = CaseRun(changed, comm)
        forcing = run.forcing(workers=workers, depth=depth)
        result = run.sweep(forcing, run.boundaries(forcing), "adjoint")
        whole = [run.blocks.gather(block) for block in (result.state, result.gradient)]
        forcing.close()
        run.close()
        if comm.rank == 0:
            joined = b"".join(np.ascontiguousarray(field).tobytes() for field in whole)
            found[f"{mode}, {workers} workers, depth {depth}, snapshots {snapshots}"] = hashlib.sha256(
                joined
            ).hexdigest()
    return found


def taken(folder: Path) -> list[str]:
    """Take every epoch with poisoning on, and compare what each rank gets with its own plain read."""
    comm = MPI.COMM_WORLD
    case = load_case(folder / "case.yaml")
    members = case.providers()
    run = CaseRun(case, comm)
    window = run.setup.partition.window(comm.rank)
    faults = []
    for poison in (False, True):
        forcing = open_forcing(members, window, comm, mode="root", poison=poison, depth=2, clip=case.clip)
        boundaries = forcing.boundaries()
        order = [0, 1, 1, 2, 0, 5, 4, 3]
        forcing.start(order)
        for k in order:
            sample = forcing.take(k)
            for key, member in members.items():
                expected = member.with_window(window).sample_at(boundaries[k])
                got = sample[key].data
                for name in (*expected.variable_names(), *expected.coord_names()):
                    one, other = expected[name], got[name]
                    same = one.data.dtype == other.data.dtype and one.data.tobytes() == other.data.tobytes()
                    if not same or one.dims != other.dims or other.data.flags.writeable:
                        faults.append(f"epoch {k}, {key}, {name}, poison {poison}")
                if expected.times != got.times or sample[key].anchor != boundaries[k]:
                    faults.append(f"epoch {k}, {key}: times")
            held = sample["u"].data["u"].data
            forcing.release(k)
            if poison and not np.isnan(held).all():
                faults.append(f"epoch {k} was not poisoned")
        forcing.close()
    run.close()
    return [fault for part in comm.allgather(faults) for fault in part]


def truncated(folder: Path) -> list[str]:
    """Meet a truncated file on the reader; every rank catches the same error, and a repaired file is read."""
    comm = MPI.COMM_WORLD
    case = load_case(folder / "case.yaml")
    run = CaseRun(case, comm)
    forcing = run.forcing()
    forcing.start("forward")
    forcing.take(0)
    forcing.release(0)
    broken = folder / "u.nc"
    whole = broken.read_bytes()
    comm.Barrier()
    if comm.rank == 0:
        broken.write_bytes(whole[: len(whole) // 2])
    comm.Barrier()
    forcing.start([3, 4])
    seen = "nothing was raised"
    try:
        forcing.take(3)
    except FileFormatError as error:
        seen = f"{type(error).__name__} {Path(str(error.file)).name}"
    comm.Barrier()
    if comm.rank == 0:
        broken.write_bytes(whole)
    comm.Barrier()
    forcing.start([3])
    sample = forcing.take(3)
    if not np.isfinite(sample["u"].data["u"].data).all():
        seen = "the repaired file was not read"
    forcing.close()
    run.close()
    return comm.allgather(seen)


def as_two_nodes(comm: MPI.Intracomm) -> NodeGroups:
    """Take the first half of the ranks for one node and the second half for another."""
    half = comm.size // 2
    node = comm.Split(comm.rank >= half, comm.rank)
    groups = (tuple(range(half)), tuple(range(half, comm.size)))
    return NodeGroups(node, groups, int(comm.rank >= half))


class _LosingItsFile:
    """A group that can't read epoch 3, on the second node's reader only."""

    def __init__(self, group):
        self.group = group

    def __getattr__(self, name):
        return getattr(self.group, name)

    def take(self, k):
        if k == 3:
            raise FileFormatError("the disk of this node is gone", file="u.nc")
        return self.group.take(k)


def two_nodes(folder: Path) -> list[str]:
    """Compare what two readers send with plain reads; then one of them fails, and every rank learns of it."""
    comm = MPI.COMM_WORLD
    case = load_case(folder / "case.yaml")
    run = CaseRun(case, comm)
    window = run.setup.partition.window(comm.rank)
    members = case.providers()
    scatter.node_groups = as_two_nodes
    forcing = open_forcing(members, window, comm, mode="root", clip=case.clip)
    if forcing.group is not None and comm.rank:
        forcing.group = _LosingItsFile(forcing.group)
    boundaries = forcing.boundaries()
    seen = []
    forcing.start([0, 1, 3])
    for k in (0, 1):
        got = forcing.take(k)["v"].data["v"].data
        expected = members["v"].with_window(window).sample_at(boundaries[k])["v"].data
        seen.append(str(got.tobytes() == expected.tobytes()))
        forcing.release(k)
    try:
        forcing.take(3)
    except FileFormatError as error:
        seen.append(f"{error.file}, rank {error.raised_on}, {'disk of this node' in str(error)}")
    comm.Barrier()
    forcing.start([4])
    forcing.take(4)
    forcing.close()
    run.close()
    return comm.allgather(", ".join(seen))


def other_epoch(folder: Path) -> list[str]:
    """Take a wrong epoch on the last rank, once the right one was taken; the others do nothing wrong."""
    comm = MPI.COMM_WORLD
    run = CaseRun(load_case(folder / "case.yaml"), comm)
    seen = []
    for mode in ("root", "own"):
        window = run.setup.partition.window(comm.rank)
        forcing = open_forcing(run.members, window, comm, mode=mode, clip=run.case.clip)
        forcing.start([1, 2])
        forcing.take(1)
        forcing.release(1)
        try:
            if comm.rank == comm.size - 1:
                forcing.take(4)
        except OrderError as error:
            seen.append(str(error))
        forcing.take(2)
        forcing.close()
        try:
            forcing.take(2)
        except GroupStateError as error:
            seen.append(str(error))
    forcing = open_forcing(run.members, window, comm, mode="root", clip=run.case.clip)
    forcing.start([2, 1] if comm.rank == comm.size - 1 else [1, 2])
    try:
        forcing.take(2 if comm.rank == comm.size - 1 else 1)
    except GroupStateError as error:
        seen.append(str(error))
    forcing.close()
    run.close()
    return comm.allgather("; ".join(seen))


class _Failing:
    """A model whose adjoint fails on one rank."""

    def __init__(self, model, rank):
        self.model, self.rank = model, rank

    def forward(self, *arguments):
        return self.model.forward(*arguments)

    def adjoint(self, *_):
        if MPI.COMM_WORLD.rank == self.rank:
            raise ArithmeticError("the model blew up on purpose")
        time.sleep(60)


def main() -> None:
    what, folder = sys.argv[1], Path(sys.argv[2])
    comm = MPI.COMM_WORLD
    install_excepthooks(comm)
    if what == "check":
        results = {"digests": digests(folder), "taken": taken(folder), "truncated": truncated(folder)}
        if comm.rank == 0:
            print(json.dumps(results))
    elif what in ("two-nodes", "other-epoch"):
        results = (two_nodes if what == "two-nodes" else other_epoch)(folder)
        if comm.rank == 0:
            print(json.dumps(results))
    elif what == "reader-fails":
        if comm.rank == 0:
            data = (folder / "v.nc").read_bytes()
            (folder / "v.nc").write_bytes(data[: len(data) // 2])
        comm.Barrier()
        run_case(load_case(folder / "case.yaml"), comm)
    elif what == "model-fails":
        run = CaseRun(load_case(folder / "case.yaml"), comm)
        forcing = run.forcing()
        weights = run.setup.weights
        adjoint(
            _Failing(run.setup.model, comm.size - 1), forcing, run.setup.initial, run.boundaries(forcing),
            lambda _: weights,
        )  # fmt: skip
    elif what == "slow-reader":
        _slow_reader(folder, comm)


def _slow_reader(folder: Path, comm: MPI.Intracomm) -> None:
    """Let the reader take two seconds over an epoch; print what the others used of a core meanwhile."""
    case = load_case(folder / "case.yaml")
    run = CaseRun(case, comm)
    forcing = run.forcing()
    if forcing.group is not None:
        take = forcing.group.take

        def slowly(k):
            wait([])
            time.sleep(2)
            return take(k)

        forcing.group.take = slowly
    forcing.start("forward")
    before = os.times()
    forcing.take(0)
    after = os.times()
    used = (after.user - before.user) + (after.system - before.system)
    shares = comm.allgather(used / (after.elapsed - before.elapsed))
    if comm.rank == 0:
        print(json.dumps(shares))


if __name__ == "__main__":
    main()
