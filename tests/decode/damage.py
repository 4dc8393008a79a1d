"""Reads damaged files both ways in a process of its own, which may crash without taking the tests along.

``python damage.py SEED FIRST LAST`` makes damaged copies of small files, prints the number of each before it
is read, and what went wrong: a value that differs from the reference path's, an error outside the library's
tree, or memory asked for beyond what the file's bytes can become.
"""

from __future__ import annotations

import faulthandler
import itertools
import resource
import sys
import tempfile
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import stored

from earthsciio.decode import ArrayRequest, decode_arrays, native
from earthsciio.decode.abort import AbortToken
from earthsciio.decode.codecs import MAX_EXPANSION
from earthsciio.decode.plan import plan_reads
from earthsciio.decode.values import ValueSpec
from earthsciio.errors import EarthSciIOError
from earthsciio.formats import OpenFile
from earthsciio.formats.encoded import ABSENT
from earthsciio.selection import Span

#: Address space for the process: damage that asks for more gets a MemoryError, which is a finding.
LIMIT = 6 << 30


def originals(folder: Path) -> list[bytes]:
    """Write small files of every kind."""
    rng = np.random.default_rng(7)
    files = []
    for filters in stored.FILTERS:
        path = folder / f"{filters}.h5"
        with h5py.File(path, "w", libver="latest" if len(files) % 2 else "earliest") as file:
            for dtype in ("<f4", ">i2", "<f8"):
                stored.random_dataset(rng, file, dtype.strip("<>"), filters, np.dtype(dtype))
        files.append(path.read_bytes())
    for form in ("NETCDF3_CLASSIC", "NETCDF3_64BIT_DATA", "NETCDF4"):
        path = folder / f"{form}.nc"
        with netCDF4.Dataset(path, "w", format=form) as file:
            file.createDimension("t")
            file.createDimension("x", 9)
            for kind in ("f4", "i2", "f8"):
                file.createVariable(kind, kind, ("t", "x"))[:] = rng.integers(0, 9, (6, 9))
        files.append(path.read_bytes())
    return files


def damaged(rng: np.random.Generator, data: bytes) -> bytes:
    """Flip bytes, cut the end off, or write zeros or ones over a stretch."""
    broken = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(broken)))
        match int(rng.integers(5)):
            case 0:
                broken[at] ^= 1 << int(rng.integers(8))
            case 1:
                broken[at] = int(rng.integers(256))
            case 2:
                stretch = int(rng.integers(1, 32))
                broken[at : at + stretch] = bytes([int(rng.choice([0, 255]))]) * len(
                    broken[at : at + stretch]
                )
            case 3 if len(broken) > 64:
                del broken[int(rng.integers(32, len(broken))) :]
            case _:
                source = int(rng.integers(len(broken)))
                part = broken[source : source + 8]
                broken[at : at + len(part)] = part
    return bytes(broken)


def only_lost(file: OpenFile, name: str) -> bool:
    """Whether the two differ only in chunks that HDF5 lists, but does not find when it reads.

    Its oldest chunk index has no checksum. Where that is damaged, reading can miss a chunk that listing still
    shows, and gives fill; the engine goes by the listing and gives what is stored.
    """
    info = file.arrays[name]
    encoded = file.encoded(info)
    element = np.frombuffer(encoded.fill, dtype=info.dtype)[0]
    spec = ValueSpec(name, info.dtype, info.dtype.newbyteorder("="), info.dtype.newbyteorder("="))
    grid = [range(-(-size // length)) for size, length in zip(info.shape, info.chunks, strict=True)]
    for chunk in itertools.product(*grid):
        box = [Span(part.start, part.stop) for part in info.chunk_box(chunk)]
        plan = plan_reads(info.shape, info.chunks, [box])
        out = np.empty(plan.shapes[0], dtype=spec.out)
        decode_arrays(file, [ArrayRequest(info, spec, plan, (out,))], AbortToken())
        raw = file.read_chunk(info, chunk)
        listed = encoded.index.locate(np.array([chunk], dtype=np.int64)).offsets[0] != ABSENT
        if out.tobytes() != raw.astype(spec.out).tobytes() and not (listed and np.all(raw == element)):
            return False
    return True


def read(path: Path, asked: list[int]) -> str | None:
    """Read every array both ways; say what is wrong with the outcome."""
    try:
        file = stored.open_file(path)
    except EarthSciIOError:
        return None
    limit = path.stat().st_size * MAX_EXPANSION["foreign"]
    for name, info in file.arrays.items():
        if info.unsupported or np.prod(info.shape, dtype=float) > 1 << 20:
            continue  # the output alone would be larger than this test wants
        wanted = [(name, stored.everything(file, name))]
        asked.clear()
        outcomes = []
        for reader in (stored.read_fast, stored.read_slow):
            try:
                outcomes.append(reader(file, wanted))
            except EarthSciIOError as error:
                outcomes.append(type(error))
        if max(asked, default=0) > limit:
            return f"{name}: {max(asked)} bytes for a file of {path.stat().st_size}"
        fast, slow = outcomes
        # the engine may refuse what HDF5 lets pass (it checks lengths too), never the other way round
        if isinstance(fast, list) and fast != slow and not (isinstance(slow, list) and only_lost(file, name)):
            return f"{name}: values differ from {slow if isinstance(slow, type) else 'the reference'}"
    return None


def main(seed: int, first: int, last: int) -> None:
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
    asked: list[int] = []

    def allocate(nbytes: int) -> np.ndarray:
        asked.append(nbytes)
        return np.empty(nbytes, dtype=np.uint8)

    with tempfile.TemporaryDirectory() as folder, native.replaced(allocate=allocate):
        files = originals(Path(folder))
        for number in range(first, last):
            print(f"file {number}", flush=True)
            path = Path(folder) / f"damaged{number}"
            path.write_bytes(damaged(np.random.default_rng([seed, number]), files[number % len(files)]))
            try:
                wrong = read(path, asked)
            except Exception as error:
                wrong = f"{type(error).__name__}: {error}"
            if wrong:
                print(f"wrong: seed {seed}, file {number}: {wrong}", flush=True)
            path.unlink()
    print("finished")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
