"""Warming against doing it by hand: our warmer and `curl`, `sha256sum`, `sync`, from one loopback server.

    python benchmarks/cache_download.py [--files 64] [--mbytes 32] [--jobs 4] [--throttle MB/s]

Repeats are interleaved, and the medians and spreads printed; with ``--throttle`` the server is held to a
rate, and ours is given as a fraction of it. Bytes are checked to be the same.
"""

import argparse
import concurrent.futures
import http.server
import json
import multiprocessing
import os
import resource
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

PIECE = 256 << 10


def serve(connection, size: int, rate: float | None) -> None:
    """Serve any path as ``size`` bytes, at ``rate`` bytes per second over all connections."""
    data = os.urandom(PIECE)
    lock, spent = threading.Lock(), [time.monotonic()]

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments):
            pass

        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", str(size))
            self.send_header("ETag", '"v1"')
            self.end_headers()
            for begin in range(0, size, PIECE):
                if rate:
                    with lock:
                        spent[0] = max(spent[0], time.monotonic() - 0.05) + PIECE / rate
                        ahead = spent[0] - time.monotonic()
                    if ahead > 0:
                        time.sleep(ahead)
                self.wfile.write(data[: size - begin])

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    connection.send(server.server_port)
    server.serve_forever()


def by_cache(urls: list[str], folder: Path, jobs: int) -> set[str]:
    from earthsciio.cache import Cache
    from earthsciio.filelist import SourceFile
    from earthsciio.warm import warm

    files = [SourceFile(source="winds", url=url) for url in urls]
    with Cache(root=folder, offline=False) as cache:
        assert {each.status for each in warm(files, cache, jobs=jobs)} == {"downloaded"}
        return {str(used["sha256_content"]) for used in cache.provenance()}


def by_hand(urls: list[str], folder: Path, jobs: int) -> set[str]:
    def one(number_and_url):
        number, url = number_and_url
        path = folder / f"{number}"
        subprocess.run(["curl", "-sf", "-o", path, url], check=True)
        digest = subprocess.run(
            ["sha256sum", path], check=True, capture_output=True, text=True
        ).stdout.split()[0]
        subprocess.run(["sync", path], check=True)
        return digest

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return set(pool.map(one, enumerate(urls)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=64)
    parser.add_argument("--mbytes", type=int, default=32)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--throttle", type=float, help="MB/s")
    options = parser.parse_args()

    rate = options.throttle * 1e6 if options.throttle else None
    size = options.mbytes << 20
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(
        target=serve, args=(theirs, size, rate), daemon=True
    )
    server.start()
    urls = [f"http://127.0.0.1:{ours.recv()}/{number}.nc" for number in range(1)]
    urls = [urls[0].replace("/0.nc", f"/{number}.nc") for number in range(options.files)]
    total = size * options.files / 1e6

    ways = {"cache": by_cache}
    if shutil.which("curl"):
        ways["curl + sha256sum + sync"] = by_hand
    by_cache(urls[:1], Path(tempfile.mkdtemp()), 1)  # imports
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    speeds = {name: [] for name in ways}
    digests = set()
    for _ in range(options.repeats):
        for name, way in ways.items():
            folder = Path(tempfile.mkdtemp())
            start = time.perf_counter()
            digests |= way(urls, folder, options.jobs)
            speeds[name].append(total / (time.perf_counter() - start))
            shutil.rmtree(folder)
    assert len(digests) == 1
    report = {
        name: {"median MB/s": round(statistics.median(got)), "spread": [round(min(got)), round(max(got))]}
        for name, got in speeds.items()
    }
    if options.throttle:
        report["fraction of throttle"] = round(statistics.median(speeds["cache"]) / options.throttle, 3)
    report["memory over baseline, MB"] = round(
        (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    )
    print(json.dumps(report, indent=2))
    server.terminate()


if __name__ == "__main__":
    main()
