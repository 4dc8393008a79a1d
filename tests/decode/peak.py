"""Reads one field of 60 chunks of 4 MB and prints, as JSON, what the process grew by. `peak.py FOLDER`."""

from __future__ import annotations

import json
import sys
import zlib
from pathlib import Path

import h5py
import numpy as np

from earthsciio import DataSource, Provider, Window
from earthsciio.decode import decode_threads

CHUNK = (1, 1024, 1024)
LEVELS = 60


def status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))


def main() -> None:
    path = Path(sys.argv[1]) / "field.h5"
    rng = np.random.default_rng(1)
    chunk = (rng.integers(0, 1 << 12, CHUNK[1:]) << 12).astype("u4").view("f4")
    stored = zlib.compress(chunk.tobytes(), 1)
    with h5py.File(path, "w") as file:
        field = file.create_dataset("v", (LEVELS, *CHUNK[1:]), "f4", chunks=CHUNK, compression=1)
        for level in range(LEVELS):
            field.id.write_direct_chunk((level, 0, 0), stored)
    source = DataSource("v", "netcdf", str(path), ("v",), reader_kwargs={"precision": "source"})
    provider = Provider(source)
    corner = Window({"phony_dim_0": (0, 2), "phony_dim_1": (0, 1), "phony_dim_2": (0, 1)})
    provider.with_window(corner).materialize()  # compiles, and gives the threads their buffers
    before = status("VmRSS")
    data = provider.materialize()["v"].data
    assert data[LEVELS - 1].tobytes() == chunk.tobytes()
    print(
        json.dumps(
            {
                "grown": status("VmHWM") - before, "output": data.nbytes, "raw": chunk.nbytes,
                "stored": len(stored), "threads": decode_threads(),
            }
        )
    )  # fmt: skip


if __name__ == "__main__":
    main()
