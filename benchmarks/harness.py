"""How every benchmark here measures: cases in turn, many times over, with the machine's limit among them.

Absolute times drift, and another job on the machine halves them; ratios between cases of one run do not. So
all cases of a group run interleaved, a limit (what the machine can do at best) is one of them, and results
are medians with spreads. A run on a busy machine says so. Results are JSON (``schema.json``), and

    python benchmarks/harness.py OLD.json NEW.json

compares two of them by the ratios of each case to its group's limit.
"""

from __future__ import annotations

import datetime as dt
import gc
import importlib.metadata
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Group", "Report", "compare", "status"]

SCHEMA = "earthsciio/benchmark/v1"
_PACKAGES = (
    "earthsci-forcing", "numpy", "numba", "h5py", "netCDF4", "imagecodecs", "isal", "xarray", "dask",
    "pyfive", "hidefix", "zarr",
)  # fmt: skip
#: A fixed piece of work whose time varies by more than this marks a noisy run.
_NOISE = 0.15


@dataclass
class Group:
    """Cases that do the same work, run in turn.

    Parameters
    ----------
    name : str
        What is measured.
    nbytes : int
        Decoded bytes per run, for throughput.
    limit : str, optional
        The case that no other can beat.
    """

    name: str
    nbytes: int
    limit: str | None = None
    note: str = ""
    cases: dict[str, Callable[[], Any]] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def case(self, name: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
        """Register a case: a function of no arguments, timed whole."""

        def register(function: Callable[[], Any]) -> Callable[[], Any]:
            self.cases[name] = function
            return function

        return register

    def run(self, repeats: int, warm_up: int = 1) -> None:
        """Run all cases in turn, `repeats` times, each round starting with another one."""
        for name in list(self.cases):
            try:
                for _ in range(warm_up):
                    self.cases[name]()
            except Exception as error:  # noqa: BLE001 - a peer that fails is left out, and named
                self.failed[name] = f"{type(error).__name__}: {error}"
                del self.cases[name]
        self.seconds = {name: [] for name in self.cases}
        names = list(self.cases)
        for turn in range(repeats):
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                gc.collect()
                start = time.perf_counter()
                self.cases[name]()
                self.seconds[name].append(time.perf_counter() - start)

    def median(self, name: str) -> float:
        """Give a case's median in seconds."""
        return statistics.median(self.seconds[name])

    def ratio(self, name: str, to: str) -> float:
        """Give how many times longer `name` takes than `to`: the median over rounds, not of medians."""
        return statistics.median(a / b for a, b in zip(self.seconds[name], self.seconds[to], strict=True))

    def result(self) -> dict[str, Any]:
        """Give the group as JSON."""
        cases = {}
        for name, times in self.seconds.items():
            quarters = statistics.quantiles(times, n=4) if len(times) > 1 else [times[0]] * 3
            cases[name] = {
                "seconds": [round(value, 6) for value in times],
                "median": round(statistics.median(times), 6),
                "spread": round((quarters[2] - quarters[0]) / statistics.median(times), 4),
                "mb_per_s": round(self.nbytes / statistics.median(times) / 1e6, 1),
            }
            if self.limit in self.seconds:
                cases[name]["of_limit"] = round(1 / self.ratio(name, self.limit), 4)
        return {
            "name": self.name, "nbytes": self.nbytes, "limit": self.limit, "note": self.note, "cases": cases,
            "failed": self.failed,
        }  # fmt: skip


class Report:
    """Collects groups, watches the noise, writes JSON."""

    def __init__(self, benchmark: str, inputs: dict[str, Any] | None = None) -> None:
        self.benchmark = benchmark
        self.inputs = inputs or {}
        self.groups: list[Group] = []
        self.checks: list[dict[str, Any]] = []
        self._probes = [_probe()]
        self._load = os.getloadavg()[0]

    def run(self, group: Group, repeats: int) -> Group:
        """Run a group, print its table, keep it."""
        group.run(repeats)
        self._probes.append(_probe())
        self.groups.append(group)
        print(f"\n{group.name}  ({group.nbytes / 1e6:.0f} MB)  {group.note}")
        for name, case in group.result()["cases"].items():
            of_limit = f"  {case['of_limit']:6.2f} of limit" if "of_limit" in case else ""
            took = f"{case['median'] * 1e3:9.1f} ms  +-{case['spread']:4.0%} {case['mb_per_s']:8.0f} MB/s"
            print(f"  {name:34s} {took}{of_limit}")
        for name, reason in group.failed.items():
            print(f"  {name:34s} failed: {reason}")
        return group

    def check(self, what: str, value: float, bound: float, *, at_least: bool) -> None:
        """Note whether a figure meets its target; nothing fails here, the figures are the result."""
        met = value >= bound if at_least else value <= bound
        sign = ">=" if at_least else "<="
        self.checks.append({"what": what, "value": round(value, 4), "target": f"{sign} {bound}", "met": met})
        print(f"  {'ok  ' if met else 'MISS'} {what}: {value:.3f} (target {sign} {bound})")

    @property
    def noise(self) -> float:
        """How much the same piece of work varied in time during the run."""
        return max(self._probes) / min(self._probes) - 1

    def write(self, path: Path) -> None:
        """Write the results; warn if the machine was busy."""
        noisy = self.noise > _NOISE or self._load > 0.5 * (os.cpu_count() or 1)
        if noisy:
            print(
                f"\nWARNING: noisy machine (load {self._load:.1f} at the start, a fixed loop varied by"
                f" {self.noise:.0%}): trust ratios with care, and repeat",
                file=sys.stderr,
            )
        result = {
            "schema": SCHEMA,
            "benchmark": self.benchmark,
            "created": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            "machine": _machine(),
            "versions": _versions(),
            "noise": {"load": self._load, "probe_spread": round(self.noise, 4), "noisy": noisy},
            "inputs": self.inputs,
            "groups": [group.result() for group in self.groups],
            "checks": self.checks,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=1))
        print(f"\nwrote {path}")


def status(name: str) -> int:
    """Give VmRSS or VmHWM (the most it ever was) in bytes; rusage would count what the parent had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))


def _probe() -> float:
    """Time a fixed piece of work: the best of a few, which only a busy machine makes slow."""

    def once() -> float:
        start = time.perf_counter()
        sum(range(1_000_000))
        return time.perf_counter() - start

    return min(once() for _ in range(5))


def _machine() -> dict[str, Any]:
    model = platform.processor()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(
            (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model
        )
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def compare(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Compare two results by what each case takes relative to its group's limit.

    Returns
    -------
    list of str
        A line per case; groups without a limit are compared by time, and say so.
    """
    lines = []
    for result, name in ((old, "old"), (new, "new")):
        if result["schema"] != SCHEMA:
            raise ValueError(f"the {name} file has schema {result['schema']!r}, not {SCHEMA!r}")
        if result["noise"]["noisy"]:
            lines.append(f"the {name} run was noisy")
    before = {group["name"]: group for group in old["groups"]}
    for group in new["groups"]:
        earlier = before.get(group["name"])
        for name, case in group["cases"].items():
            past = None if earlier is None else earlier["cases"].get(name)
            if past is None:
                lines.append(f"{group['name']} / {name}: new")
            elif "of_limit" in case and "of_limit" in past:
                was, now = past["of_limit"], case["of_limit"]
                lines.append(f"{group['name']} / {name}: {was:.2f} -> {now:.2f} of limit ({now / was:.2f}x)")
            else:
                change = past["median"] / case["median"]
                lines.append(f"{group['name']} / {name}: {change:.2f}x as fast, by time alone")
    return lines


def main(arguments: Sequence[str]) -> int:
    """Compare two files."""
    if len(arguments) != 2:
        print("usage: python benchmarks/harness.py OLD.json NEW.json", file=sys.stderr)
        return 2
    old, new = (json.loads(Path(argument).read_text()) for argument in arguments)
    print("\n".join(compare(old, new)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
