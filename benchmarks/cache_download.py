"""Warming a cache against doing it by hand (``curl``, ``sha256sum``, ``sync``), from one loopback server.

    python benchmarks/cache_download.py [--files 64] [--mbytes 32] [--jobs 4] [--throttle 200]

Twice: with the server held to a rate, where the limit is what ``curl`` gets of it into ``/dev/null`` at the
same concurrency, and without. Client and server share the machine's cores, so the server's own limit
matters. All bytes are checked to be the same.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import http.server
import itertools
import multiprocessing
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from harness import Group, Report, status

from earthsciio.cache import Cache
from earthsciio.filelist import SourceFile
from earthsciio.warm import warm

HERE = Path(__file__).parent
PIECE = 256 << 10
#: Bytes a throttled server may be behind its rate and make up for: a sleep is never exact.
BURST_S = 0.05


def serve(connection: Connection, size: int, rate: float | None) -> None:
    """Serve any path as ``size`` bytes, at ``rate`` bytes per second over all connections."""
    data = os.urandom(PIECE)
    lock, spent = threading.Lock(), [time.monotonic()]

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments: object) -> None:
            pass

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(size))
            self.send_header("ETag", '"v1"')
            self.end_headers()
            for begin in range(0, size, PIECE):
                if rate:
                    with lock:
                        spent[0] = max(spent[0], time.monotonic() - BURST_S) + PIECE / rate
                        ahead = spent[0] - time.monotonic()
                    if ahead > 0:
                        time.sleep(ahead)
                self.wfile.write(data[: size - begin])

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    connection.send(server.server_port)
    server.serve_forever()


@contextmanager
def server(size: int, rate: float | None) -> Iterator[str]:
    """Run a server in a process of its own; give its address."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=serve, args=(theirs, size, rate), daemon=True
    )
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.terminate()
        process.join()


def in_folder(way: Callable[[Path], set[str]], digests: set[str]) -> Callable[[], None]:
    """Do it in a fresh folder on the disk this repository is on."""

    def run() -> None:
        (HERE / "out").mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=HERE / "out") as folder:
            digests.update(way(Path(folder)))

    return run


def by_cache(urls: list[str], jobs: int) -> Callable[[Path], set[str]]:
    files = [SourceFile(source="winds", url=url) for url in urls]

    def way(folder: Path) -> set[str]:
        with Cache(root=folder, offline=False) as cache:
            assert {each.status for each in warm(files, cache, jobs=jobs)} == {"downloaded"}
            return {str(used["sha256_content"]) for used in cache.provenance()}

    return way


def by_hand(urls: list[str], jobs: int) -> Callable[[Path], set[str]]:
    def way(folder: Path) -> set[str]:
        numbers = itertools.count()

        def one(url: str) -> str:
            path = folder / f"{next(numbers)}"
            subprocess.run(["curl", "-sf", "-o", path, url], check=True)
            digest = subprocess.run(["sha256sum", path], check=True, capture_output=True, text=True).stdout
            subprocess.run(["sync", path], check=True)
            return digest.split()[0]

        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            return set(pool.map(one, urls))

    return way


def to_nowhere(urls: list[str], jobs: int) -> Callable[[], None]:
    def run() -> None:
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            commands = [["curl", "-sf", "-o", os.devnull, url] for url in urls]
            list(pool.map(lambda command: subprocess.run(command, check=True), commands))

    return run


def measure(report: Report, files: int, size: int, jobs: int, repeats: int, rate: float | None) -> None:
    with server(size, rate) as address:
        urls = [f"{address}/{number}.nc" for number in range(files)]
        digests: set[str] = set()
        in_folder(by_cache(urls[:1], 1), set())()  # imports
        before = status("VmRSS")
        held = "not throttled" if rate is None else f"throttled to {rate / 1e6:.0f} MB/s"
        note = f"{files} files, {jobs} at a time"
        group = Group(held, files * size, "curl to /dev/null", note)
        group.case("warm")(in_folder(by_cache(urls, jobs), digests))
        if shutil.which("curl"):
            group.case("curl to /dev/null")(to_nowhere(urls, jobs))
            group.case("curl + sha256sum + sync")(in_folder(by_hand(urls, jobs), digests))
        report.run(group, repeats)
        assert len(digests) == 1, "other bytes"
    if rate is not None:
        share = group.nbytes / group.median("warm") / rate
        report.check(f"{held}: warm, share of the throttle", share, 0.9, at_least=True)
    if "curl + sha256sum + sync" in group.seconds:
        slower = group.ratio("warm", "curl + sha256sum + sync")
        report.check(f"{held}: warm over curl + sha256sum + sync", slower, 1.0, at_least=False)
    grown = (status("VmHWM") - before) / 1e6
    report.check(f"{held}: memory over the baseline, MB", grown, 64.0, at_least=False)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=64)
    parser.add_argument("--mbytes", type=int, default=32)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--throttle", type=float, default=200.0, help="MB/s")
    parser.add_argument("--out", type=Path, default=HERE / "out" / "cache.json")
    options = parser.parse_args()
    report = Report("cache", {"files": options.files, "mbytes": options.mbytes, "jobs": options.jobs})
    for rate in (options.throttle * 1e6, None):
        measure(report, options.files, options.mbytes << 20, options.jobs, options.repeats, rate)
    report.write(options.out)


if __name__ == "__main__":
    main()
