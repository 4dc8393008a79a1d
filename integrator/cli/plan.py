"""Show how a case would be cut among ranks: each rank's cells and Window, and what an epoch would weigh."""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("case", type=Path, help="the case, YAML")
    parser.add_argument("-n", "--ranks", type=int, default=1, help="number of ranks (default 1)")


def run(arguments: argparse.Namespace) -> int:
    """Print the plan."""
    from earthsciio.declare import load_case
    from integrator.checks import check_model
    from integrator.partition import Dim, Partition
    from integrator.report import text_table

    case = load_case(arguments.case)
    if case.model is not None:
        check_model(case)
    members = {name: p for name, p in case.providers().items() if not p.is_const}
    coords = next(iter(members.values())).coords
    dims = tuple(
        Dim(name, coords[name].shape[0], case.is_periodic(name), case.halo(name))
        for name in (case.grid.lat, case.grid.lon)
    )
    partition = Partition(dims, arguments.ranks)
    first = {name: member.refresh_times()[0] for name, member in members.items()}
    rows = [("rank", *(f"{dim.name} owned" for dim in dims), "cells with halo", "MB per epoch")]
    for rank in range(arguments.ranks):
        window = partition.window(rank)
        nbytes = 0
        for name, member in members.items():
            bound = member.with_window(window)
            resolved = bound.resolve(first[name])
            layouts = [bound.measure(record, (None,)) for record in resolved.records]
            nbytes += bound.assembly_nbytes(resolved, layouts) or layouts[0].nbytes
        owned = (f"{start}-{stop}" for start, stop in partition.owned(rank).values())
        cells = " x ".join(map(str, window.shape(partition.sizes)))
        rows.append((str(rank), *owned, cells, f"{nbytes / 1e6:.2f}"))
    print(text_table(rows))
    return 0
