"""Check a case: its sources as ``earthsciio check`` does, then the model, its grid and its cut."""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("case", type=Path, help="the case, YAML")
    parser.add_argument("-n", "--ranks", type=int, default=1, help="ranks it is to run on (default 1)")
    parser.add_argument("--offline", action="store_true", help="look at local and cached files only")
    parser.epilog = "Exit code: 0 if all is well, 1 if something is wrong, 2 if the case can't be read."


def run(arguments: argparse.Namespace) -> int:
    """Check, and say what is wrong."""
    from earthsciio.cli import check
    from earthsciio.declare import load_case
    from earthsciio.errors import EarthSciIOError
    from earthsciio.selection import Window
    from integrator.checks import validate

    case = load_case(arguments.case)
    cache = case.open_cache()
    cache.offline = cache.offline or arguments.offline
    grid, wrong = None, ""
    try:
        grid = validate(case, cache)
        lat, lon = grid.axes
        grid.domain.grid().partition(arguments.ranks, lat=lat, lon=lon)
    except EarthSciIOError as error:
        wrong = " ".join(str(error).split())
    windows: dict[str, Window] = {}
    if grid is not None:
        for name, source in case.sources.items():
            if not source.is_const:  # a run reads all of it, and of what stands in for it, through these
                windows |= {each.name: grid.domain.window(name, Window()) for each in source.chain()}
    sources = check.run(
        argparse.Namespace(file=arguments.case, json=False, offline=arguments.offline), windows
    )
    if grid is None or wrong:
        print(f"problem: {wrong}")
        return 1
    for note in grid.notes:
        print(f"note: {note}")
    sizes = " x ".join(f"{dim} {axis.size}" for dim, axis in grid.axes.items())
    print(f"model on {sizes}, {arguments.ranks} rank{'s' if arguments.ranks != 1 else ''}: all is well")
    return sources
