"""Write every case: ``python -m corpus.generate [--into FOLDER] [case ...]``.

The committed cases are what this writes. Case files never depend on library versions; of input files the
bytes may (HDF5 and netCDF-C write theirs into them), what they hold does not.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from . import CASES
from .casebook import Case, definitions

__all__ = ["generate", "main"]


def generate(into: Path, only: tuple[str, ...] = ()) -> list[str]:
    """Write cases anew, each in its own folder.

    Parameters
    ----------
    into : Path
        The folder of all cases.
    only : tuple of str
        Names; empty for all.

    Returns
    -------
    list of str
        The names of those written.
    """
    written = []
    for name, (about, define) in definitions().items():
        if only and name not in only:
            continue
        folder = into / name
        shutil.rmtree(folder, ignore_errors=True)
        case = Case(folder, name, about)
        define(case)
        case.save()
        written.append(name)
    return written


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m corpus.generate", description="Write the cases anew.")
    parser.add_argument(
        "--into", type=Path, default=CASES, help="folder of all cases (default: the committed)"
    )
    parser.add_argument("cases", nargs="*", help="names; all if none is given")
    given = parser.parse_args(arguments)
    unknown = sorted(set(given.cases) - set(definitions()))
    if unknown:
        parser.error(f"there are no cases {unknown}, but {sorted(definitions())}")
    for name in generate(given.into, tuple(given.cases)):
        print(name)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
