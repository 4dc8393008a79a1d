"""A program that goes through a group and prints what its memory did: run by test_group_memory.

Arguments: the folder, the levels of a record, the epochs, the workers, the budget in bytes (0: none), and
"drop" or "keep".
"""

from __future__ import annotations

import json
import sys
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import h5py
import numpy as np

from earthsciio import DataSource, Provider, SourceTemporal
from earthsciio.prefetch import PrefetchGroup

START = datetime(2020, 1, 1, tzinfo=UTC)
GRID = (721, 1152)


def write(folder: Path, levels: int, epochs: int) -> Path:
    """Write records of so many levels, a chunk each; they compress to nothing, so that writing is cheap."""
    path = folder / f"levels-{levels}-{epochs}.nc"
    if not path.exists():
        encoded = [zlib.compress(np.full(GRID, k, "<f4").tobytes(), 1) for k in range(epochs)]
        with h5py.File(path, "w") as file:
            file["time"] = np.arange(epochs, dtype="f8")
            file["time"].attrs["units"] = "hours since 2020-01-01"
            file["time"].make_scale("time")
            data = file.create_dataset(
                "v", (epochs, levels, *GRID), "<f4", chunks=(1, 1, *GRID), compression=1
            )
            data.dims[0].attach_scale(file["time"])
            for axis, name in enumerate(("lev", "lat", "lon"), start=1):
                file[name] = np.zeros(data.shape[axis])
                file[name].make_scale(name)
                data.dims[axis].attach_scale(file[name])
            for epoch in range(epochs):
                for level in range(levels):
                    data.id.write_direct_chunk((epoch, level, 0, 0), encoded[epoch])
    return path


def provider(path: Path, epochs: int) -> Provider:
    temporal = SourceTemporal(START, "PT1H", end=START + epochs * timedelta(hours=1))
    options = {"precision": "source"}
    return Provider(DataSource("levels", "netcdf", str(path), ("v",), temporal, reader_kwargs=options))


def status(name: str) -> int:
    """A figure of this process in bytes: VmRSS, or VmHWM, the most that VmRSS ever was."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return 1024 * int(line.split()[1])


def main(folder: str, levels: str, epochs: str, workers: str, budget: str, what: str) -> None:
    path = write(Path(folder), int(levels), int(epochs))
    provider(write(Path(folder), 2, 1), 1).materialize()  # the warm-up: kernels, and the threads' buffers
    before = status("VmRSS")
    kept = []
    members = {"v": provider(path, int(epochs))}
    with PrefetchGroup(members, depth=2, workers=int(workers), max_bytes=int(budget) or None) as group:
        group.start("forward")
        for k in range(int(epochs)):
            epoch = group.take(k)
            assert epoch["v"].data["v"].data[-1, -1, -1] == k
            if what == "keep":
                kept.append(epoch)
            del epoch
        peak = group.stats().peak_bytes
    for k, epoch in enumerate(kept):
        assert (epoch["v"].data["v"].data[:, ::90, ::90] == k).all()
    print(json.dumps({"grown": status("VmHWM") - before, "peak": peak, "taken": int(epochs)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
