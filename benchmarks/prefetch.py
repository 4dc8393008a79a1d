"""What prefetching hides: a consumer computes while the next epochs are decoded.

Three figures per order, from runs in turn: ``total``, the consumer's loop over a group; ``compute alone``,
the same loop with samples at hand; ``decode alone``, the same order with the same memory and reuse at
``workers=0``. The wait for the first take is left out of ``total``, its decode out of ``decode alone``.

    hidden = 1 - (total - compute alone) / decode alone          AU = compute alone / total

Two settings. In the *sleeping* one the consumer waits for a device and every core decodes. In the *busy* one
it computes on a core of its own, in NumPy calls that hold no GIL; one thread decodes, and decode alone is
measured on one core. In both an epoch's compute takes 1.3 times as long as the decode of a sample. In an
order with reuse that is more than 1.3 times decode alone; "revolve, tight" computes 1.3 times decode alone
in sum, so that where it decodes several slots on end no depth of two can hide all: a figure without target.

A group's buffers are touched for the first time before the clock starts, in ``total`` and in ``decode alone``
alike: a model run pays for that once, in its first epochs, and these sweeps are short. What it costs is the
machine's affair (a virtual machine may have to ask its host for every page), and shown by a row of its own,
"sleeping, forward, fresh memory", without target.

Needs two cores and a quiet machine: half an hour. ``--quick`` is for development.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import statistics
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import h5py
import numpy as np
from forcing import PER_FILE, Forcing
from harness import Group, Report

from earthsciio.decode.threads import decode_threads, set_decode_threads
from earthsciio.prefetch import PrefetchGroup, revolve

HERE = Path(__file__).parent
#: Compute of an epoch over the decode of its sample.
SHARE = 1.3
SNAPSHOTS = 8
DEPTH = 2
#: Samples' worth of memory: what lies ahead, what is in hand, and some to keep for a revolve order.
CAPACITY = 8

Compute = Callable[[np.ndarray], None]


class Timed(Group):
    """Cases that say themselves how long the part took that counts."""

    def run(self, repeats: int, warm_up: int = 0) -> None:
        names = list(self.cases)
        self.seconds = {name: [] for name in names}
        for turn in range(-warm_up, repeats):
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                seconds = self.cases[name]()
                if turn >= 0:
                    self.seconds[name].append(seconds)

    def over_rounds(self, figure: Callable[[dict[str, float]], float]) -> float:
        """Give the median of a figure over the rounds."""
        rounds = zip(*self.seconds.values(), strict=True)
        return statistics.median(figure(dict(zip(self.seconds, row, strict=True))) for row in rounds)


@dataclass
class Watch:
    """What a sweep showed besides its length."""

    computed: float = 0.0
    decodes: int = 0
    ready_takes: list[float] = field(default_factory=list)


def sweep(
    forcing: Forcing, order: Sequence[int], compute: Compute | None, *, workers: int, whole: bool = False,
    fresh: bool = False, watch: Watch | None = None,
) -> float:  # fmt: skip
    """Go through an order and compute at every slot; give the seconds from the first take on, or of all.

    With `fresh`, memory is touched for the first time inside of these seconds.
    """
    watch = watch or Watch()
    limit = CAPACITY * forcing.nbytes
    members = {"forcing": forcing.provider(max(order) + 1)}
    with PrefetchGroup(members, depth=DEPTH, workers=workers, max_bytes=limit) as group:
        if not fresh:
            _touch_buffers(group, max(order) + 1)
        start = perf_counter()
        group.start(order)
        for slot, epoch in enumerate(order):
            ready = group.ready(epoch)
            before = perf_counter()
            sample = group.take(epoch)["forcing"].data
            after = perf_counter()
            if ready:
                watch.ready_takes.append(after - before)
            if slot == 0 and not whole:
                start = after
            if compute is not None:
                compute(sample["v"].data)
                watch.computed += perf_counter() - after
        seconds = perf_counter() - start
        watch.decodes = group.stats().records_decoded
    return seconds


def _touch_buffers(group: PrefetchGroup, epochs: int) -> None:
    """Use all the memory that a group may have: by an order that wants every sample it holds again."""
    order = list(range(min(CAPACITY, epochs))) * 2
    group.start(order)
    for epoch in order:
        group.take(epoch)


def at_hand(samples: Sequence[np.ndarray], slots: int, compute: Compute) -> float:
    """Give the seconds of the consumer's loop alone."""
    start = perf_counter()
    for slot in range(slots):
        compute(samples[slot % len(samples)])
    return perf_counter() - start


# What the consumer computes.


def sleeping(seconds: float) -> Compute:
    return lambda _: time.sleep(seconds)


def busy(steps: int) -> Compute:
    """Work through a sample block by block; each step is a few NumPy calls that hold no GIL."""
    block = 1 << 15
    state = np.ones(block, np.float32)
    scratch = np.empty(block, np.float32)

    def compute(sample: np.ndarray) -> None:
        flat = sample.reshape(-1)
        for step in range(steps):
            at = step * block % (flat.size - block)
            np.multiply(flat[at : at + block], np.float32(1e-3), out=scratch)
            for _ in range(8):
                np.add(scratch, state, out=scratch)
                np.sqrt(np.abs(scratch, out=scratch), out=state)

    return compute


def pure_python(steps: int) -> Compute:
    def compute(_: np.ndarray) -> None:
        number = 0
        for step in range(steps):
            number = (number * 31 + step) % 1_000_003

    return compute


def steps_for(make: Callable[[int], Compute], seconds: float, sample: np.ndarray) -> int:
    """Find how many steps of a compute take so long."""
    steps = 64
    while (took := at_hand([sample], 1, make(steps))) < 0.2:
        steps *= 2
    return max(1, round(steps * seconds / took))


# Settings.


@contextlib.contextmanager
def decoding_on(threads: int) -> Iterator[None]:
    before = decode_threads()
    set_decode_threads(threads)
    try:
        yield
    finally:
        set_decode_threads(before)


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """Keep the whole process on one core."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    _pin({min(cores)})
    try:
        yield
    finally:
        _pin(cores)


def _pin(cores: set[int]) -> None:
    for thread in threading.enumerate():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(thread.native_id or 0, cores)


@dataclass(frozen=True)
class Plan:
    """How long everything is to take."""

    forcing: Forcing
    repeats: int
    sleeping_s: float
    busy_s: float
    cores: int


def orders(slots: int) -> dict[str, list[int]]:
    """Give the orders with about so many slots."""
    n_epochs = next(n for n in itertools.count(SNAPSHOTS + 2) if len(revolve(n, SNAPSHOTS)) >= slots)
    return {
        "forward": list(range(slots)),
        "reverse": list(range(slots - 1, -1, -1)),
        "revolve": list(revolve(n_epochs, SNAPSHOTS)),
    }


def hidden(report: Report, plan: Plan, setting: str) -> None:
    """Measure a setting: every order in turn, each with its two reference runs."""
    forcing, isolated = plan.forcing, one_core if setting == "busy" else contextlib.nullcontext
    samples = [forcing.provider(3).sample_at(t)["v"].data for t in forcing.provider(3).refresh_times()]
    with decoding_on(1 if setting == "busy" else plan.cores):
        with isolated():
            probe = [sweep(forcing, range(9), None, workers=0) / 8 for _ in range(3)]
        per_slot = SHARE * statistics.median(probe)
        slots = max(8, round((plan.busy_s if setting == "busy" else plan.sleeping_s) / per_slot))
        target = {"busy": 0.93, "sleeping": 0.98}[setting]
        for name, order in orders(slots).items():
            watch = _one_order(report, plan, setting, name, order, samples, per_slot, isolated, target)
            if name == "revolve":
                tight = per_slot * watch.decodes / len(order)
                _one_order(report, plan, setting, "revolve, tight", order, samples, tight, isolated, None)
        if setting == "sleeping":
            order = orders(slots)["forward"]
            name = "forward, fresh memory"
            _one_order(report, plan, setting, name, order, samples, per_slot, isolated, None, fresh=True)


def _one_order(
    report: Report, plan: Plan, setting: str, name: str, order: list[int], samples: list[np.ndarray],
    per_slot: float, isolated: Callable[[], contextlib.AbstractContextManager[None]], target: float | None, *,
    fresh: bool = False,
) -> Watch:  # fmt: skip
    forcing, watch = plan.forcing, Watch()
    compute = sleeping(per_slot) if setting == "sleeping" else busy(steps_for(busy, per_slot, samples[0]))

    def decode_alone() -> float:
        with isolated():
            return sweep(forcing, order, None, workers=0, fresh=fresh)

    group = Timed(f"{setting}, {name}", forcing.nbytes * len(order))
    group.case("total")(lambda: sweep(forcing, order, compute, workers=1, fresh=fresh, watch=watch))
    group.case("compute alone")(lambda: at_hand(samples, len(order), compute))
    group.case("decode alone")(decode_alone)
    group.note = f"{len(order)} slots of {max(order) + 1} epochs"
    report.run(group, plan.repeats)
    figure = group.over_rounds(lambda s: 1 - (s["total"] - s["compute alone"]) / s["decode alone"])
    au = group.over_rounds(lambda s: s["compute alone"] / s["total"])
    share = group.over_rounds(lambda s: s["compute alone"] / s["decode alone"])
    group.note += (
        f"; {watch.decodes} decodes; hidden {figure:.3f}; AU {au:.3f}; compute {share:.2f} of decode alone"
    )
    if target is None:
        print(f"       hidden {figure:.3f}, without target")
    else:
        report.check(f"{group.name}: hidden", figure, target, at_least=True)
    if setting == "sleeping" and watch.ready_takes:
        takes = [1e3 * seconds for seconds in sorted(watch.ready_takes)]
        p95 = takes[int(0.95 * (len(takes) - 1))]
        report.check(f"{group.name}: take of a ready slot, ms, 95 of 100", p95, 1.0, at_least=False)
    return watch


def beside_python(report: Report, plan: Plan) -> None:
    """Measure how much one decode thread slows a consumer that holds the GIL all the time."""
    forcing = plan.forcing
    sample = forcing.provider(1).materialize()["v"].data
    with decoding_on(1):
        per_slot = SHARE * sweep(forcing, range(9), None, workers=0) / 8
        order = range(max(8, round(plan.sleeping_s / per_slot)))
        compute = pure_python(steps_for(pure_python, per_slot, sample))

        def beside() -> float:
            watch = Watch()
            sweep(forcing, order, compute, workers=1, watch=watch)
            return watch.computed

        def beside_zlib() -> float:
            stop, packed = threading.Event(), zlib.compress(sample.tobytes()[: 1 << 23], 1)

            def work() -> None:
                while not stop.is_set():
                    zlib.decompress(packed)

            worker = threading.Thread(target=work)
            worker.start()
            seconds = at_hand([sample], len(order), compute)
            stop.set()
            worker.join()
            return seconds

        group = Timed("pure Python", forcing.nbytes * len(order), note="the consumer's own seconds")
        group.case("alone")(lambda: at_hand([sample], len(order), compute))
        group.case("beside decoding")(beside)
        group.case("beside zlib alone")(beside_zlib)  # what a busy second core costs on this machine
        report.run(group, plan.repeats)
    slowed = group.over_rounds(lambda s: s["beside decoding"] / s["alone"])
    machine = group.over_rounds(lambda s: s["beside zlib alone"] / s["alone"])
    print(f"       (beside a thread that only inflates, without our code: {machine:.3f})")
    report.check("pure Python beside decoding over alone", slowed, 1.10, at_least=False)


def cheap_compute(report: Report, plan: Plan) -> None:
    """Measure what a group costs where there is nothing to hide decoding behind."""
    forcing = plan.forcing
    once = sweep(forcing, range(9), None, workers=0) / 8
    order = range(max(8, round(plan.sleeping_s / once)))
    group = Timed("cheap compute", forcing.nbytes * len(order), limit="decode alone")
    group.case("decode alone")(lambda: sweep(forcing, order, None, workers=0, whole=True))
    group.case("with a group")(lambda: sweep(forcing, order, None, workers=1, whole=True))
    report.run(group, plan.repeats)
    ratio = group.ratio("with a group", "decode alone")
    report.check("cheap compute: total over decode alone", ratio, 1.05, at_least=False)


def first_take(report: Report, plan: Plan) -> None:
    """Measure the time to the first take, of files that nobody has opened."""
    forcing, copies = plan.forcing, itertools.count(os.getpid() * 1000)

    def synchronous() -> float:
        provider = forcing.provider(4 * PER_FILE, copy=f"cold-{next(copies)}")
        start = perf_counter()
        provider.refresh(provider.refresh_times()[0])
        return perf_counter() - start

    def prefetched() -> float:
        provider = forcing.provider(4 * PER_FILE, copy=f"cold-{next(copies)}")
        start = perf_counter()
        with PrefetchGroup({"forcing": provider}, depth=DEPTH) as group:
            group.start("forward")
            group.take(0)
            return perf_counter() - start

    group = Timed("time to the first take, cold", forcing.nbytes, limit="synchronous read")
    group.case("synchronous read")(synchronous)
    group.case("first take")(prefetched)
    report.run(group, 3 * plan.repeats)
    ratio = group.ratio("first take", "synchronous read")
    report.check("first take over a synchronous read", ratio, 1.10, at_least=False)


def check_values(forcing: Forcing) -> None:
    """Nothing counts if the values are wrong."""
    with (
        PrefetchGroup({"forcing": forcing.provider(PER_FILE)}) as group,
        h5py.File(forcing.provider(PER_FILE).loader.resolve_url(group.boundaries()[0])) as file,
    ):
        group.start("reverse")
        for k in reversed(range(PER_FILE)):
            got = group.take(k)["forcing"].data["v"].data
            if not np.array_equal(got, file["v"][k]):
                raise SystemExit(f"epoch {k} has other values than the file")


def table(groups: Sequence[Group]) -> str:
    """Lay the figures of the orders out."""
    lines = [f"{'':28s}{'compute s':>10s}{'decode s':>10s}{'total s':>10s}{'hidden':>8s}{'AU':>7s}"]
    for group in groups:
        if isinstance(group, Timed) and "compute alone" in group.seconds:
            total, compute, decode = (group.median(n) for n in ("total", "compute alone", "decode alone"))
            share = group.over_rounds(lambda s: 1 - (s["total"] - s["compute alone"]) / s["decode alone"])
            au = group.over_rounds(lambda s: s["compute alone"] / s["total"])
            lines.append(f"{group.name:28s}{compute:10.2f}{decode:10.2f}{total:10.2f}{share:8.3f}{au:7.3f}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small samples, short runs: for development")
    parser.add_argument("--levels", type=int, default=None)
    parser.add_argument("--repeats", type=int, default=None)
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--out", type=Path, default=HERE / "out" / "prefetch.json")
    options = parser.parse_args()
    quick = options.quick
    levels = options.levels or (6 if quick else 36)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    forcing = Forcing(HERE / "out" / "inputs", levels)
    plan = Plan(
        forcing,
        repeats=options.repeats or (3 if quick else 7),
        sleeping_s=1.0 if quick else 5.0,
        busy_s=1.0 if quick else 21.0,
        cores=cores,
    )
    check_values(forcing)
    inputs = {"levels": levels, "cores": cores, "stored": forcing.ratio, "quick": quick, "share": SHARE}
    report = Report("prefetch", {**inputs, "depth": DEPTH, "capacity": CAPACITY, "snapshots": SNAPSHOTS})
    parts: dict[str, Callable[[], None]] = {
        "first": lambda: first_take(report, plan),
        "cheap": lambda: cheap_compute(report, plan),
        "python": lambda: beside_python(report, plan),
        "sleeping": lambda: hidden(report, plan, "sleeping"),
        "busy": lambda: hidden(report, plan, "busy"),
    }
    start = perf_counter()
    for name, part in parts.items():
        if options.only is None or name in options.only:
            part()
    print("\n" + table(report.groups))
    report.inputs["elapsed"] = round(perf_counter() - start, 1)
    report.write(options.out)


if __name__ == "__main__":
    main()
