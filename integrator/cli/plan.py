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
    from earthsciio.prefetch import PrefetchGroup
    from integrator.checks import read_grid, validate
    from integrator.partition import Dim, Partition
    from integrator.report import text_table

    case = load_case(arguments.case)
    cache = case.open_cache()
    grid = read_grid(case, cache) if case.model is None else validate(case, cache)
    domain, lon = grid.domain, case.grid.lon
    cut = grid.axes[lon].size < domain.whole[lon].size
    dims = (
        Dim(name, axis.size, case.is_periodic(name) and not (name == lon and cut), case.halo(name))
        for name, axis in grid.axes.items()
    )
    partition = Partition(tuple(dims), arguments.ranks)
    members = {name: member for name, member in case.providers(cache).items() if not member.is_const}
    group = PrefetchGroup(members, **case.group_options())
    boundaries = group.boundaries()
    rows = [("rank", *(f"{dim.name} owned" for dim in partition.dims), "cells with halo", "MB per epoch")]
    total = 0
    for rank in range(arguments.ranks):
        window = partition.window(rank)
        nbytes = 0
        for name, member in members.items():
            bound = member.with_window(domain.window(name, window))
            resolved = bound.resolve(bound.anchor_at(boundaries[0]))
            layouts = [bound.measure(record, (None,)) for record in resolved.records]
            nbytes += bound.assembly_nbytes(resolved, layouts) or layouts[0].nbytes
        owned = (f"[{start}, {stop})" for start, stop in partition.owned(rank).values())
        cells = " x ".join(map(str, window.shape(partition.sizes)))
        rows.append((str(rank), *owned, cells, f"{nbytes / 1e6:.2f}"))
        total += nbytes
    rows.append(("all", *("" for _ in partition.dims), "", f"{total / 1e6:.2f}"))
    print(text_table(rows))
    print(f"{len(boundaries)} epochs, from {boundaries[0]} to {group.end}; MB are those of the samples")
    for note in grid.notes:
        print(note)
    return 0
