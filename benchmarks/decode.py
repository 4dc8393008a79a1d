"""Decoding: ours beside every reader people use, on the same bytes, with the machine's limit in the same run.

    python benchmarks/decode.py [--levels 72] [--repeats 7] [--only NAME ...] [--out FILE.json]

The limit is libdeflate inflating the same chunks on the same cores, into buffers it has already. "ours" gives
new arrays every time, as the peers do; "ours, reused" writes into the same ones again, as a PrefetchGroup
does. Before anything is timed, all readers' bytes are checked to be the same.
"""

from __future__ import annotations

import argparse
import itertools
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import decode_inputs
import h5py
import imagecodecs
import numpy as np
from harness import Group, Report

from earthsciio.decode import (
    ArrayRequest,
    decode_arrays,
    default_decode_threads,
    jit_stats,
    set_decode_threads,
)
from earthsciio.decode.abort import AbortToken
from earthsciio.decode.plan import plan_reads
from earthsciio.decode.values import ValueOptions, value_spec
from earthsciio.formats import NetCDFReader
from earthsciio.selection import Span

HERE = Path(__file__).parent
CORES = default_decode_threads()
Box = list[Span]


class Ours:
    """Our engine on one file: through Windows, to a precision, in a memory order."""

    def __init__(self, source: decode_inputs.Input, precision: str = "source") -> None:
        self.file = NetCDFReader().open(str(source.path))
        self.names = source.variables
        self.precision = precision

    def request(
        self, name: str, boxes: Sequence[Box] | None = None, axes: Sequence[int] | None = None
    ) -> ArrayRequest:
        info = self.file.arrays[name]
        spec = value_spec(name, info.dtype, info.attrs, ValueOptions(self.precision))
        plan = plan_reads(info.shape, info.chunks, boxes or [[Span(0, size) for size in info.shape]])
        outs = []
        for shape in plan.shapes:
            order = axes or range(len(shape))
            out = np.empty([shape[axis] for axis in order], dtype=spec.out)
            outs.append(out.transpose(np.argsort(order)))
        return ArrayRequest(info, spec, plan, tuple(outs))

    def fresh(
        self, boxes: Sequence[Box] | None = None, axes: Sequence[int] | None = None
    ) -> list[ArrayRequest]:
        requests = [self.request(name, boxes, axes) for name in self.names]
        report = decode_arrays(self.file, requests, AbortToken())
        assert not report.fallbacks, report.fallbacks
        return requests

    def reused(
        self, boxes: Sequence[Box] | None = None, axes: Sequence[int] | None = None
    ) -> Callable[[], None]:
        requests = [self.request(name, boxes, axes) for name in self.names]
        return lambda: void(decode_arrays(self.file, requests, AbortToken()))


def void(_: Any) -> None:
    """Drop a result."""


def inflate_limit(
    source: decode_inputs.Input, threads: int, outputs: Sequence[np.ndarray] = (), *, reads: bool = False
) -> Callable[[], None]:
    """Inflate all chunks of a file on some threads, into one buffer each.

    With `reads`, each is read from the file (the page cache) first; with `outputs`, one is filled after each.
    """
    chunks: list[tuple[int, bytes]] = []
    with h5py.File(source.path) as file, source.path.open("rb") as stream:
        for name in source.variables:
            found: list[Any] = []
            file[name].id.chunk_iter(found.append)
            size = int(np.prod(file[name].chunks)) * file[name].dtype.itemsize
            for chunk in found:
                stream.seek(chunk.byte_offset)
                chunks.append((chunk.byte_offset, stream.read(chunk.size)))
    largest = max(len(chunk) for _, chunk in chunks)
    descriptor = os.open(source.path, os.O_RDONLY)  # kept for the life of the benchmark

    def run() -> None:
        remaining = iter(list(itertools.zip_longest(chunks, outputs)))
        lock = threading.Lock()

        def work() -> None:
            buffer, stored = bytearray(size), memoryview(bytearray(largest))
            while True:
                with lock:
                    found, output = next(remaining, (None, None))
                if found is None:
                    return
                offset, chunk = found
                if reads:
                    os.preadv(descriptor, [stored[: len(chunk)]], offset)
                imagecodecs.deflate_decode(chunk, raw=False, out=buffer)
                if output is not None:
                    output[...] = 1.0

        workers = [threading.Thread(target=work) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    return run


def peers(
    source: decode_inputs.Input, *, decoded: bool = False
) -> dict[str, Callable[[tuple[slice, ...]], Any]]:
    """Give every installed reader as a function of a box; `decoded` asks for unpacked values, where it can.

    Those with a cache of decoded chunks open the file anew each time: the second run would read nothing.
    """
    found: dict[str, Callable[[tuple[slice, ...]], Any]] = {}
    path, names = source.path, source.variables
    with suppress(ImportError):
        import netCDF4

        def by_netcdf(box: tuple[slice, ...]) -> list[Any]:
            with netCDF4.Dataset(path) as dataset:
                dataset.set_auto_maskandscale(decoded)
                return [dataset[name][box] for name in names]

        found["netCDF4"] = by_netcdf
    with suppress(ImportError):
        import xarray

        def by_xarray(box: tuple[slice, ...]) -> list[Any]:
            with xarray.open_dataset(path, engine="netcdf4", cache=False, decode_times=False) as dataset:
                return [dataset[name][box].to_numpy() for name in names]

        found["xarray"] = by_xarray
        with suppress(ImportError):
            import dask

            def by_dask(box: tuple[slice, ...]) -> list[Any]:
                chunks = dict.fromkeys(("time", "lev") if len(source.shape) == 4 else ("time",), 1)
                with (
                    dask.config.set(num_workers=CORES),
                    xarray.open_dataset(path, engine="netcdf4", chunks=chunks, decode_times=False) as dataset,
                ):
                    return [dataset[name][box].to_numpy() for name in names]

            found["xarray+dask"] = by_dask
    if decoded:
        return found

    def by_h5py(box: tuple[slice, ...]) -> list[Any]:
        with h5py.File(path) as handle:
            return [handle[name][box] for name in names]

    found["h5py"] = by_h5py
    with suppress(ImportError):
        import pyfive

        def by_pyfive(box: tuple[slice, ...]) -> list[Any]:
            with pyfive.File(path) as handle:
                return [handle[name][box] for name in names]

        found["pyfive"] = by_pyfive
    with suppress(ImportError):
        import hidefix

        datasets = [hidefix.Index(str(path)).dataset(name) for name in names]
        found["hidefix"] = lambda box: [dataset[box] for dataset in datasets]
    return found


def best_peer(group: Group, names: Sequence[str]) -> str | None:
    """Name the fastest of some cases."""
    present = [name for name in names if name in group.seconds]
    return min(present, key=group.median) if present else None


# --- what is measured ---


def full_fields(report: Report, folder: Path, levels: int, repeats: int) -> None:
    for kind in decode_inputs.KINDS:
        for shuffle in (True, False):
            source = decode_inputs.levels(folder, kind, shuffle, levels)
            note = f"stored at {source.ratio} of its size"
            group = Group(
                f"full field, {kind}, {'shuffle' if shuffle else 'no shuffle'}", source.nbytes, "limit", note
            )
            whole = tuple(slice(None) for _ in source.shape)
            readers = peers(source)
            ours = {"float32": Ours(source), "float64": Ours(source, "float64")}
            expected = np.asarray(readers["h5py"](whole)[0])
            for precision, reader in ours.items():
                (got,) = reader.fresh()
                assert np.array_equal(got.outs[0].astype("f4"), expected), precision
            for name, read in list(readers.items()):
                if not np.array_equal(np.asarray(read(whole)[0]).reshape(expected.shape), expected):
                    group.failed[name] = "other bytes"
                    del readers[name]
            del expected
            group.case("limit")(inflate_limit(source, CORES))
            for precision, reader in ours.items():
                group.case(f"ours {precision}")(reader.fresh)
                group.case(f"ours {precision}, reused")(reader.reused())
            for name, read in readers.items():
                group.case(name)(lambda read=read, whole=whole: read(whole))
            # no peer delivers float64, which takes its caller a conversion; only the fastest can matter
            converted = [name for name in ("hidefix", "h5py") if name in readers]
            for name in converted:
                group.case(f"{name}, to float64")(
                    lambda read=readers[name], whole=whole: np.asarray(read(whole)[0]).astype("f8")
                )
            report.run(group, repeats)
            rivals = {"float32": list(readers), "float64": [f"{name}, to float64" for name in converted]}
            for precision in ours:
                best = best_peer(group, rivals[precision])
                share = 1 / group.ratio(f"ours {precision}, reused", "limit")
                report.check(f"{group.name}: {precision}, share of the limit", share, 0.85, at_least=True)
                if best:
                    times = group.ratio(best, f"ours {precision}")
                    report.check(
                        f"{group.name}: {precision}, times as fast as {best}", times, 1.0, at_least=True
                    )


def windows(report: Report, folder: Path, levels: int, repeats: int) -> None:
    source = decode_inputs.levels(folder, "0.55", True, levels)
    ours = Ours(source)
    rows = [(i * 721 // 4, (i + 1) * 721 // 4) for i in range(4)]
    cols = [(i * 288, (i + 1) * 288) for i in range(4)]
    tiles = [[Span(0, 1), Span(0, levels), Span(*r), Span(*c)] for r in rows for c in cols]
    one = [[Span(0, 1), Span(0, levels), Span(300, 398), Span(500, 697)]]
    corners = [
        [Span(0, 1), Span(0, 1), Span(0, 9), Span(0, 9)],
        [Span(0, 1), Span(levels - 1, levels), Span(700, 721), Span(1100, 1152)],
    ]
    touched = decode_arrays(ours.file, [ours.request("v", corners)], AbortToken()).chunks
    group = Group("windows", source.nbytes, "limit", f"two corners decode {touched} of {levels} chunks")
    group.case("limit")(inflate_limit(source, CORES))
    group.case("ours, full field")(ours.reused())
    group.case("ours, 16 tiles")(ours.reused(tiles))
    group.case("ours, one 98 x 197")(ours.reused(one))
    boxes = [tuple(slice(span.start, span.stop) for span in tile) for tile in tiles]
    readers = {name: read for name, read in peers(source).items() if name in ("h5py", "hidefix")}
    for name, read in readers.items():
        group.case(f"{name}, 16 reads")(lambda read=read: [read(box) for box in boxes])
    report.run(group, max(3, repeats // 2))
    report.check(
        "16 tiles over one full field",
        group.ratio("ours, 16 tiles", "ours, full field"),
        1.15,
        at_least=False,
    )
    report.check(
        "one Window over one full field",
        group.ratio("ours, one 98 x 197", "ours, full field"),
        1.0,
        at_least=False,
    )
    best = best_peer(group, [f"{name}, 16 reads" for name in readers])
    if best:
        report.check(
            f"16 tiles, times as fast as {best}", group.ratio(best, "ours, 16 tiles"), 10.0, at_least=True
        )


def small(report: Report, folder: Path, repeats: int) -> None:
    source = decode_inputs.small_chunks(folder)
    group = Group(
        "small chunks",
        source.nbytes,
        "limit",
        "5 variables, 8 records, 72 levels of 46 x 72, one call per record",
    )
    ours = Ours(source)
    records = range(source.shape[0])
    boxes = [
        [[Span(record, record + 1), *(Span(0, size) for size in source.shape[1:])]] for record in records
    ]
    group.case("limit")(inflate_limit(source, CORES))
    group.case("ours")(lambda: [ours.fresh(box) for box in boxes])
    for name, read in peers(source).items():
        group.case(name)(lambda read=read: [read((slice(record, record + 1),)) for record in records])
    report.run(group, repeats)
    if "netCDF4" in group.seconds:
        report.check(
            "small chunks, times as fast as netCDF4", group.ratio("netCDF4", "ours"), 2.0, at_least=True
        )


def packed(report: Report, folder: Path, repeats: int) -> None:
    source = decode_inputs.packed(folder, 24)
    group = Group("packed int16 to float64", source.nbytes, "limit", f"stored at {source.ratio} of its size")
    outputs = np.zeros(source.shape)
    ours = Ours(source, "float64")
    whole = tuple(slice(None) for _ in source.shape)
    group.case("limit")(inflate_limit(source, CORES))
    whole_job = "limit, reading, and filling the output"
    group.case(whole_job)(inflate_limit(source, CORES, list(outputs), reads=True))
    group.case("ours")(ours.fresh)
    group.case("ours, reused")(ours.reused())
    for name, read in peers(source, decoded=True).items():
        group.case(name)(lambda read=read: read(whole))
    report.run(group, repeats)
    report.check("packed, share of the limit", 1 / group.ratio("ours, reused", "limit"), 0.85, at_least=True)
    # the stored bytes have to be read and four times the inflated ones written: memory bandwidth of its own
    share = group.ratio(whole_job, "ours, reused")
    print(f"       ({share:.2f} of reading, inflating and filling the output)")
    if "xarray" in group.seconds:
        report.check("packed, times as fast as xarray", group.ratio("xarray", "ours"), 4.0, at_least=True)


def uncompressed(report: Report, folder: Path, levels: int, repeats: int) -> None:
    for source in (decode_inputs.contiguous(folder, levels), decode_inputs.classic(folder, levels)):
        group = Group(f"uncompressed, {source.path.suffix}", source.nbytes, "fromfile + byteswap")
        ours = Ours(source)
        first = ours.file.encoded(ours.file.arrays["v"]).index.begin
        count = int(np.prod(source.shape))
        group.case("fromfile + byteswap")(
            lambda path=source.path, first=first, count=count: np.fromfile(
                path, ">f4", count, offset=first
            ).astype("<f4")
        )
        group.case("ours")(ours.fresh)
        group.case("ours, reused")(ours.reused())
        report.run(group, repeats)
        share = 1 / group.ratio("ours", "fromfile + byteswap")
        report.check(f"{group.name}, share of fromfile + byteswap", share, 0.9, at_least=True)


def layouts(report: Report, folder: Path, levels: int, repeats: int) -> None:
    source = decode_inputs.levels(folder, "0.55", True, levels)
    group = Group("memory order", source.nbytes, "C order")
    orders: dict[str, tuple[int, ...]] = {}
    ours = Ours(source)
    for name, axes in (
        ("C order", (0, 1, 2, 3)), ("lon before lat", (0, 1, 3, 2)), ("lev last", (0, 2, 3, 1)),
        ("Fortran order", (3, 2, 1, 0)),
    ):  # fmt: skip
        group.case(name)(ours.reused(axes=axes))
        if name != "C order":
            orders[name] = axes
    plain = np.zeros(source.shape, dtype="f4")
    for name, axes in orders.items():  # what moving the bytes costs NumPy, on one thread
        turned = np.zeros([source.shape[axis] for axis in axes], dtype="f4")
        group.case(f"only copying, {name}")(
            lambda turned=turned, axes=axes: np.copyto(turned, plain.transpose(axes))
        )
    report.run(group, max(3, repeats // 2))
    for name in orders:
        report.check(f"{name} over C order", group.ratio(name, "C order"), 1.25, at_least=False)


def threads(report: Report, folder: Path, levels: int, repeats: int) -> None:
    source = decode_inputs.levels(folder, "0.55", True, levels)
    run = Ours(source).reused()
    group = Group("threads", source.nbytes)

    def on(count: int) -> None:
        set_decode_threads(count)
        run()

    def beside_python() -> None:
        done = threading.Event()
        worker = threading.Thread(target=lambda: (on(1), done.set()))
        worker.start()
        number = 0
        while not done.is_set():
            number += 1
        worker.join()

    def beside_nothing() -> None:
        worker = threading.Thread(target=on, args=(1,))
        worker.start()
        worker.join()

    group.case("1 thread")(lambda: on(1))
    group.case("2 threads")(lambda: on(2))
    group.case("1 thread, from a worker")(beside_nothing)
    group.case("1 thread beside pure Python")(beside_python)
    limits = {count: inflate_limit(source, count) for count in (1, 2)}
    group.case("limit, 1 thread")(limits[1])
    group.case("limit, 2 threads")(limits[2])
    report.run(group, repeats)
    set_decode_threads(CORES)
    report.check("2 threads, times as fast as 1", group.ratio("1 thread", "2 threads"), 1.85, at_least=True)
    machine = group.ratio("limit, 1 thread", "limit, 2 threads")
    print(f"       (inflate alone: {machine:.2f})")
    beside = group.ratio("1 thread beside pure Python", "1 thread, from a worker")
    report.check("beside pure Python over alone", beside, 1.15, at_least=False)


def memory(report: Report, folder: Path, levels: int) -> None:
    """Measure peak memory in a process of its own."""
    source = decode_inputs.levels(folder, "0.55", True, levels)
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import decode, decode_inputs, harness, pathlib\n"
        "source = decode_inputs.levels(pathlib.Path(sys.argv[2]), '0.55', True, int(sys.argv[3]))\n"
        "ours = decode.Ours(source)\n"
        "ours.fresh([[decode.Span(0, 1), decode.Span(0, 2), decode.Span(0, 9), decode.Span(0, 9)]])\n"
        "before = harness.status('VmRSS')\n"
        "requests = ours.fresh()\n"
        "print(harness.status('VmHWM') - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(HERE), str(folder), str(levels)],
        capture_output=True,
        text=True,
        check=True,
    )
    # some of the threads' buffers are taken by the first read: compare with the whole allowance all the same
    extra = int(done.stdout.split()[-1]) - source.nbytes
    print(f"\nmemory: {extra / 1e6:.1f} MB beyond the output")
    report.check("peak memory beyond output, MB", extra / 1e6, 32.0 + CORES * 2 * 3.4, at_least=False)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--levels", type=int, default=72)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--out", type=Path, default=HERE / "out" / "decode.json")
    options = parser.parse_args()
    folder = HERE / "out" / "inputs"
    folder.mkdir(parents=True, exist_ok=True)
    report = Report("decode", {"levels": options.levels, "kinds": decode_inputs.KINDS, "cores": CORES})
    parts: dict[str, Callable[[], None]] = {
        "full": lambda: full_fields(report, folder, options.levels, options.repeats),
        "windows": lambda: windows(report, folder, options.levels, options.repeats),
        "small": lambda: small(report, folder, options.repeats),
        "packed": lambda: packed(report, folder, options.repeats),
        "uncompressed": lambda: uncompressed(report, folder, options.levels, options.repeats),
        "layouts": lambda: layouts(report, folder, options.levels, options.repeats),
        "threads": lambda: threads(report, folder, options.levels, options.repeats),
        "memory": lambda: memory(report, folder, options.levels),
    }
    start = time.perf_counter()
    for name, part in parts.items():
        if options.only is None or name in options.only:
            part()
    stats = jit_stats()
    print(f"\ncompiled {stats.compiled} functions, loaded {stats.loaded}, in {stats.seconds:.1f} s")
    report.inputs["jit"] = {
        "compiled": stats.compiled,
        "loaded": stats.loaded,
        "seconds": round(stats.seconds, 2),
    }
    report.inputs["peak_rss_bytes"] = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report.inputs["elapsed"] = round(time.perf_counter() - start, 1)
    report.write(options.out)


if __name__ == "__main__":
    main()
