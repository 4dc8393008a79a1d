"""Run by the crash tests in a process of its own: kills a fetch at every system call in turn.

Before each call that a fetch makes to change the disk, and after the last, a forked child is killed; then
what it left is looked at, and the fetch done again. (After one call is before the next: between them the disk
doesn't change.) Prints one JSON object.
"""

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import filelock  # noqa: F401 - so that the children need not import it

from earthsciio.cache import Cache, FilePeriod, sha256_file
from earthsciio.cache.syscalls import SYS

CALLS = ("open", "write", "ftruncate", "fsync", "close", "replace", "unlink", "mkdir")
OLD, NEW = b"old" * 400_000, b"newer" * 250_000  # more than one piece each


def arm(at: int) -> list[str]:
    """Kill this process at its ``at``-th call (from 0); returns the calls made so far."""
    made: list[str] = []

    def wrap(name, real):
        def call(*arguments):
            if len(made) == at:
                os.kill(os.getpid(), signal.SIGKILL)
            made.append(name)
            return real(*arguments)

        return call

    for name in CALLS:
        setattr(SYS, name, wrap(name, getattr(os, name)))
    return made


def in_child(work) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:
            sys.stderr.write(f"{error!r}\n")
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1]


def prepare(base: Path, situation: str) -> tuple[str, bytes]:
    """Set up a cache in which the next fetch downloads, replaces, or confirms; returns URL and bytes."""
    shutil.rmtree(base, ignore_errors=True)
    base.mkdir()
    source = base / "source.nc"
    url = source.as_uri()
    if situation != "download":
        source.write_bytes(OLD)
        fetch(base, url)
        for meta in (base / "cache/v1/meta").iterdir():  # as if long ago
            meta.write_text(meta.read_text().replace('"fetched_at": "2', '"fetched_at": "1'))
    if situation != "confirm":
        source.write_bytes(NEW)
    return url, OLD if situation == "confirm" else NEW


def fetch(base: Path, url: str):
    return Cache(root=base / "cache", offline=False).fetch(url, temporal=FilePeriod(end=None))


def judge(base: Path, url: str, right: bytes) -> list[str]:
    """Say what is wrong with what a killed fetch left behind."""
    wrong = []
    seen = Cache(root=base / "cache", offline=True).lookup(url)
    if seen is not None and seen.path.read_bytes() not in (OLD, NEW):
        wrong.append("a reader saw bytes of no version")
    if seen is not None and seen.manifest.sha256_content not in (None, sha256_file(seen.path)):
        wrong.append("a reader saw a manifest of other bytes")
    other = base / "other.nc"
    other.write_bytes(b"other")
    if in_child(lambda: (fetch(base, url), fetch(base, other.as_uri()))) != 0:
        return [*wrong, "the next fetch failed"]
    entry = Cache(root=base / "cache", offline=True).fetch(url)
    if entry.path.read_bytes() != right or entry.manifest.sha256_content != sha256_file(entry.path):
        wrong.append("the next fetch left wrong bytes, or another manifest")
    if list((base / "cache/v1/tmp").iterdir()):
        wrong.append("staging files stay behind")
    if {path.suffix for path in (base / "cache/v1/locks").iterdir()} != {".lock"}:
        wrong.append("notes stay behind")
    return wrong


def main(base: Path, situation: str) -> None:
    template = base.with_name("template")
    url, right = prepare(base, situation)
    shutil.copytree(base, template, copy_function=shutil.copy2)
    calls = arm(-1)
    fetch(base, url)
    for name in CALLS:
        setattr(SYS, name, getattr(os, name))
    calls = list(calls)
    faults = []
    for at, name in enumerate([*calls, "end"]):
        shutil.rmtree(base)
        shutil.copytree(template, base, copy_function=shutil.copy2)

        def killed(at=at):
            arm(at)
            fetch(base, url)
            os.kill(os.getpid(), signal.SIGKILL)

        status = in_child(killed)
        if not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
            faults.append(f"{name} {at}: not killed ({status})")
        faults += [f"killed before call {at} ({name}): {wrong}" for wrong in judge(base, url, right)]
    sys.stdout.write(json.dumps({"calls": calls, "faults": faults}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
