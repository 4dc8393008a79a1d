"""``earthsciio warm``: bring the files a run needs into the cache, and see that it will find them offline."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from earthsciio.cache import Cache, cache_key
from earthsciio.cache.redact import redact
from earthsciio.declare import Case, load_case
from earthsciio.errors import DeclarationError
from earthsciio.fields import Time
from earthsciio.filelist import SourceFile, merge
from earthsciio.selection import Window
from earthsciio.shape import nearest
from earthsciio.source import parse_time
from earthsciio.warm import (
    Clip,
    Patience,
    StoodIn,
    Warmed,
    clip_of_case,
    files_of_case,
    launched_as,
    offline_faults,
    warm,
    warm_stand_ins,
)

from .output import format_bytes, print_table
from .progress import Bar, Lines, Meter, Silent
from .values import Checksums, duration, selector, window_of

__all__ = ["configure", "run"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("file", metavar="CASE.yaml", help="a case, or a file of sources")
    parser.add_argument("source", nargs="*", metavar="SOURCE", help="names of its sources; all by default")
    parser.add_argument("--start", metavar="TIME", help="from this time on; by default the case's")
    parser.add_argument("--end", metavar="TIME", help="until this time; by default the case's")
    parser.add_argument(
        "--window", action="append", type=selector, metavar="DIM=START:STOP",
        help="a dimension of what will be read, instead of the case's window: the files must have it",
    )  # fmt: skip
    parser.add_argument("--jobs", type=int, default=4, metavar="N", help="files in flight (default 4)")
    parser.add_argument("--dry-run", action="store_true", help="list the files, and what is there already")
    parser.add_argument(
        "--verify", action="store_true", help="read what is there, and fetch it again if rotten"
    )
    parser.add_argument(
        "--checksums", metavar="LIST", help="digests the files must have, as sha256sum writes them"
    )
    parser.add_argument(
        "--wait", type=duration, metavar="TIME", help="wait so long for files that have not appeared (6h)"
    )
    parser.add_argument(
        "--poll",
        type=duration,
        default=duration("30s"),
        metavar="TIME",
        help="between two looks (default 30s)",
    )
    parser.add_argument(
        "--settle", type=duration, default=duration("10s"), metavar="TIME",
        help="a new file must stay the same so long (default 10s)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
    parser.epilog = (
        "Under mpiexec or srun each rank takes its share of the files. Exit code: 0 if every file is there, "
        "or what stands in for it, and the run can go offline, 1 if not, 2 if the case or an argument is "
        "wrong."
    )


@dataclass(frozen=True, slots=True)
class _Job:
    """What this rank has to do."""

    case: Case
    needed: dict[str, list[SourceFile]]
    files: list[SourceFile]
    window: Window | None
    clip: Clip
    rank: int
    ranks: int

    @property
    def prefix(self) -> str:
        return f"rank {self.rank} of {self.ranks}: " if self.ranks > 1 else ""


def run(args: argparse.Namespace) -> int:
    """Warm, or list."""
    if args.jobs < 1:
        raise DeclarationError(f"--jobs takes a number from 1 on, not {args.jobs}")
    job = _job(args)
    meter = Meter(len(job.files))
    with job.case.open_cache(listeners=[meter]) as cache:
        cache.verify = cache.verify or args.verify
        if args.dry_run:
            return _list(job, cache, as_json=args.json)
        return _warm(job, cache, meter, args)


def _job(args: argparse.Namespace) -> _Job:
    case = load_case(args.file)
    for name in args.source:
        if name not in case.sources:
            raise DeclarationError(
                f"there is no source {name!r}", file=case.file, hint=nearest(name, case.sources) or None
            )
    start, end = (_time(case, text) for text in (args.start, args.end))
    needed = files_of_case(case, args.source, start=start, end=end)
    empty = [name for name, files in needed.items() if not files]
    if empty:
        raise DeclarationError(
            f"no data are declared for that time: {', '.join(empty)}", file=case.file,
            hint="Check --start, --end, and the time of the case and its sources",
        )  # fmt: skip
    if args.checksums is not None:
        listed = Checksums(args.checksums)
        needed = {
            name: [replace(file, checksum=listed.of(file.url)) for file in files]
            for name, files in needed.items()
        }
    rank, ranks = launched_as()
    mine = merge(file for files in needed.values() for file in files)[rank::ranks]
    clip = clip_of_case(case, start=start, end=end)
    return _Job(case, needed, mine, window_of(args.window) or case.window, clip, rank, ranks)


def _time(case: Case, text: str | None) -> Time | None:
    if text is None:
        return None
    calendars = [s.temporal.cadence.calendar.name for s in case.sources.values() if s.temporal is not None]
    return parse_time(text, calendars[0] if calendars else None)


def _list(job: _Job, cache: Cache, *, as_json: bool) -> int:
    found = []
    for file in job.files:
        entry = cache.lookup(file.url)
        state = "missing" if file.in_place else "to fetch"
        if file.may_be_absent and (file.in_place or cache.knows_absent(file.url)):
            state = "absent"
        if entry is not None:
            state = "in place" if file.in_place else "cached"
        found.append((file, state, None if entry is None else entry.manifest.bytes))
    if as_json:
        files = [{**_plain(file), "status": state, "bytes": size} for file, state, size in found]
        print(
            json.dumps(
                {"case": job.case.name, "rank": job.rank, "ranks": job.ranks, "files": files}, indent=2
            )
        )
        return 0
    rows = [
        [state, file.source, "-" if size is None else format_bytes(size), redact(file.url)]
        for file, state, size in found
    ]
    print_table(["state", "source", "size", "file"], rows)
    to_fetch = sum(state in ("to fetch", "absent") and not file.in_place for file, state, _ in found)
    there = sum(size or 0 for _, _, size in found)
    print(f"{job.prefix}{len(found)} files, {to_fetch} to fetch; {format_bytes(there)} are there")
    return 0


def _warm(job: _Job, cache: Cache, meter: Meter, args: argparse.Namespace) -> int:
    patience = None
    if args.wait is not None:
        wait, poll, settle = (each.total_seconds() for each in (args.wait, args.poll, args.settle))
        if poll <= 0:
            raise DeclarationError("--poll takes more than 0 seconds")
        patience = Patience(wait=wait, poll=poll, settle=settle)
    show = _display(meter, as_json=args.json, alone=job.ranks == 1)
    finished: list[Warmed] = []

    def done(warmed: Warmed) -> None:
        finished.append(warmed)
        show.done(warmed)

    began = time.monotonic()
    try:
        with show.shown():
            warm(job.files, cache, jobs=args.jobs, patience=patience, done=done, waiting=show.waiting)
        stood_in = _stand_ins(job, finished, cache, args.jobs)
    except KeyboardInterrupt:
        done_of = f"{len(finished)} of {len(job.files)} files are done"
        print(f"{job.prefix}interrupted: {done_of}; run it again to go on", file=sys.stderr)
        raise
    seconds = time.monotonic() - began
    faults = _faults(job, cache)
    ready = not faults
    if args.json:
        _print_json(job, finished, stood_in, faults, seconds)
    else:
        print(job.prefix + _summary(finished, seconds))
        for each in stood_in:
            print(job.prefix + _told(each))
        failed = {redact(each.file.url) for each in finished if each.status == "failed"}  # told already
        for source, url, text in faults:
            if url not in failed:
                print(f"{job.prefix}not ready: {source}: {url}: {text}")
        print(f"{job.prefix}offline ready: {'yes' if ready else 'no'}")
    return 0 if ready and all(each.error is None for each in finished) else 1


def _display(meter: Meter, *, as_json: bool, alone: bool) -> Silent:
    if as_json:
        return Silent(meter)
    return Bar(meter) if alone and sys.stderr.isatty() else Lines(meter)


def _stand_ins(job: _Job, finished: Sequence[Warmed], cache: Cache, jobs: int) -> list[StoodIn]:
    """Bring in what stands in for this rank's files that do not exist."""
    absent = {each.file.url for each in finished if each.status == "absent"}
    return [
        each
        for name, files in job.needed.items()
        for each in warm_stand_ins(
            job.case.sources[name], [file for file in files if file.url in absent], cache, job.clip, jobs=jobs
        )
    ]


def _told(stood_in: StoodIn) -> str:
    missing = f"{stood_in.source}: {redact(stood_in.url)} does not exist"
    if stood_in.error is not None:
        return f"{missing}, and nothing stands in: {' '.join(str(stood_in.error).split())}"
    return f"{missing}; in its place: {', '.join(redact(url) for url in stood_in.stand_ins)}"


def _faults(job: _Job, cache: Cache) -> list[tuple[str, str, str]]:
    """Look at this rank's files as a compute node will; give source, URL and error of those that fail."""
    mine = {file.url for file in job.files}
    return [
        (name, redact(url), " ".join(str(error).split()))
        for name, files in job.needed.items()
        for url, error in offline_faults(
            job.case.sources[name], (file for file in files if file.url in mine), cache, job.window, job.clip
        ).items()
    ]


def _counts(finished: Sequence[Warmed]) -> dict[str, int]:
    kinds = [each.status for each in finished]
    return {
        "files": len(finished),
        "bytes": sum(each.nbytes for each in finished),
        "downloaded": kinds.count("downloaded"),
        "downloaded_bytes": sum(each.nbytes for each in finished if each.status == "downloaded"),
        "hits": kinds.count("hit") + kinds.count("not_modified"),
        "in_place": kinds.count("in_place"),
        "absent": kinds.count("absent"),
        "failed": kinds.count("failed"),
    }


def _summary(finished: Sequence[Warmed], seconds: float) -> str:
    counts = _counts(finished)
    rate = format_bytes(int(counts["downloaded_bytes"] / max(seconds, 1e-3)))
    parts = [
        f"{counts['files']} files, {format_bytes(counts['bytes'])}",
        f"{counts['downloaded']} downloaded ({format_bytes(counts['downloaded_bytes'])}, {rate}/s)",
        f"{counts['hits']} hits",
    ]
    parts += [f"{counts['in_place']} in place"] if counts["in_place"] else []
    parts += [f"{counts['absent']} absent"] if counts["absent"] else []
    parts += [f"{counts['failed']} failed"] if counts["failed"] else []
    return f"{'; '.join(parts)}; {seconds:.1f} s"


def _print_json(
    job: _Job,
    finished: Sequence[Warmed],
    stood_in: Sequence[StoodIn],
    faults: Sequence[tuple[str, str, str]],
    seconds: float,
) -> None:
    by_url = {each.file.url: each for each in finished}
    document: dict[str, Any] = {
        "case": job.case.name,
        "rank": job.rank,
        "ranks": job.ranks,
        **_counts(finished),
        "seconds": round(seconds, 3),
        "offline_ready": not faults,
        "problems": [{"source": name, "url": url, "error": text} for name, url, text in faults],
        "stood_in": [
            {
                "source": each.source,
                "url": redact(each.url),
                "stand_ins": [redact(url) for url in each.stand_ins],
                "error": None if each.error is None else str(each.error),
            }
            for each in stood_in
        ],
        "files_warmed": [
            {
                **_plain(file),
                "status": by_url[file.url].status,
                "bytes": by_url[file.url].nbytes,
                "seconds": round(by_url[file.url].seconds, 3),
                "error": None if (error := by_url[file.url].error) is None else str(error),
            }
            for file in job.files
        ],
    }
    print(json.dumps(document, indent=2))


def _plain(file: SourceFile) -> dict[str, Any]:
    return {
        "source": file.source,
        "url": redact(file.url),
        "mirrors": [redact(mirror) for mirror in file.mirrors],
        "key": None if file.in_place else cache_key(file.url),
    }
