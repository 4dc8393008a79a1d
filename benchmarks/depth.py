"""How far to decode ahead: what each slot of depth costs in memory, and saves in waiting.

A consumer that computes 1.3 times as long as a sample takes to decode, on the average, goes forward through a
GEOS-like series; every core decodes, as beside a device. It computes for the same time at each slot ("even"),
or 0.3 and 2.3 times as long as a decode in turn ("uneven"), or twice 0.3 and once 3.3 times ("bursts"), as
models do that call an expensive scheme at some steps only. Every run is a process of its own: its peak memory
is counted from behind a warm-up read.

    python benchmarks/depth.py [--quick]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from itertools import cycle
from pathlib import Path
from time import perf_counter

from forcing import Forcing
from harness import Group, Report, status

from earthsciio.prefetch import PrefetchGroup

HERE = Path(__file__).parent
DEPTHS = (1, 2, 3)
#: Compute of the slots, in turn, over the decode of a sample; 1.3 on the average.
CONSUMERS = {"even": (1.3,), "uneven": (0.3, 2.3), "bursts": (0.3, 0.3, 3.3)}


def one(
    folder: Path, levels: int, epochs: int, depth: int, consumer: str, decode_s: float
) -> dict[str, float]:
    """Go through the series once."""
    Forcing(folder, 1).provider(1).materialize()  # the warm-up: kernels, and the threads' buffers
    before = status("VmRSS")
    turns = cycle(CONSUMERS[consumer])
    with PrefetchGroup({"forcing": Forcing(folder, levels).provider(epochs)}, depth=depth) as group:
        group.start("forward")
        group.take(0)
        began, waited = perf_counter(), group.stats().waited_s
        for k in range(1, epochs):
            time.sleep(next(turns) * decode_s)
            group.take(k)
        stats = group.stats()
        return {
            "total": perf_counter() - began,
            "waited": stats.waited_s - waited,
            "account": stats.peak_bytes,
            "rss": status("VmHWM") - before,
        }


def decode_alone(forcing: Forcing, epochs: int) -> float:
    """Give the seconds that a sample takes to decode, in memory that has been used before."""
    times = []
    with PrefetchGroup({"forcing": forcing.provider(epochs)}, workers=0) as group:
        group.start("forward")
        for k in range(epochs):
            start = perf_counter()
            group.take(k)
            times.append(perf_counter() - start)
    return statistics.median(times[2:])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small samples, few of them: for development")
    parser.add_argument("--one", nargs=5, metavar=("LEVELS", "EPOCHS", "DEPTH", "CONSUMER", "SECONDS"))
    parser.add_argument("--out", type=Path, default=HERE / "out" / "depth.json")
    options = parser.parse_args()
    folder = HERE / "out" / "inputs"
    if options.one:
        levels, epochs, depth, consumer, seconds = options.one
        found = one(folder, int(levels), int(epochs), int(depth), consumer, float(seconds))
        print(json.dumps(found))
        return
    levels, epochs, repeats = (12, 13, 2) if options.quick else (36, 37, 5)
    forcing = Forcing(folder, levels)
    Forcing(folder, 1).provider(1).materialize()
    report = Report(
        "depth", {"levels": levels, "epochs": epochs, "stored": forcing.ratio, "quick": options.quick}
    )
    decode_s = decode_alone(forcing, 9)
    runs: dict[tuple[str, int], list[dict[str, float]]] = {}
    for turn in range(repeats):
        for consumer in CONSUMERS:
            for depth in DEPTHS[turn % 3 :] + DEPTHS[: turn % 3]:
                arguments = [str(each) for each in (levels, epochs, depth, consumer, decode_s)]
                done = subprocess.run(
                    [sys.executable, __file__, "--one", *arguments],
                    capture_output=True,
                    text=True,
                    check=True,
                )
                runs.setdefault((consumer, depth), []).append(json.loads(done.stdout))
    sample = forcing.nbytes
    print(f"\na sample: {sample / 1e6:.0f} MB, {decode_s * 1e3:.0f} ms to decode; {epochs - 1} takes\n")
    print("| consumer | depth | waited, % of decode | AU | peak RSS, samples | account, samples |")
    print("|---|---|---|---|---|---|")
    for consumer in CONSUMERS:
        group = Group(f"total, {consumer}", sample * (epochs - 1))
        for depth in DEPTHS:
            found = runs[consumer, depth]
            figures = {name: statistics.median(run[name] for run in found) for name in found[0]}
            waited = 100 * figures["waited"] / (decode_s * (epochs - 1))
            au = statistics.median(1 - run["waited"] / run["total"] for run in found)
            rss, account = figures["rss"] / sample, figures["account"] / sample
            print(f"| {consumer} | {depth} | {waited:.1f} | {au:.3f} | {rss:.2f} | {account:.2f} |")
            group.seconds[f"depth {depth}"] = [run["total"] for run in found]
            group.note += f"depth {depth}: waited {waited:.1f} % of decode, peak RSS {rss:.2f} samples; "
        report.groups.append(group)
    report.write(options.out)


if __name__ == "__main__":
    main()
