"""Fetch real winds, run them on four ranks forward and adjoint, then a refinement of them, and report."""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--out", type=Path, default=Path("demo-out"), help="where everything goes")
    parser.add_argument("-n", "--ranks", type=int, default=4, help="number of ranks (default 4)")


def run(arguments: argparse.Namespace) -> int:
    """Run the demonstration."""
    from integrator.demo.show import show

    print(f"some minutes on two cores (two if nothing else runs), and 1 GB in {arguments.out}", flush=True)
    return show(arguments.out, arguments.ranks)
