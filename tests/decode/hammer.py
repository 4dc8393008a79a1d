"""Sixteen threads read samples while the main thread writes a file with netCDF4. `hammer.py FOLDER SECONDS`.

Prints how many samples were read and records written; ends with an error at the first wrong value.
"""

from __future__ import annotations

import itertools
import random
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import netCDF4
import numpy as np

from earthsciio import DataSource, Provider, SourceTemporal, Window

START = datetime(2001, 1, 1, tzinfo=UTC)
FILES, RECORDS, THREADS = 3, 4, 16
SHAPE = (6, 40, 50)
#: Every thread reads so many samples at least, however little time there is.
AT_LEAST = 12


def write(folder: Path) -> np.ndarray:
    """Write a daily series of packed, deflated records; give what they decode to."""
    rng = np.random.default_rng(3)
    packed = rng.integers(-900, 900, (FILES, RECORDS, *SHAPE)).astype("i2")
    for day in range(FILES):
        with netCDF4.Dataset(folder / f"{START + timedelta(days=day):%Y%m%d}.nc", "w") as file:
            for name, size in zip(("time", "lev", "lat", "lon"), (RECORDS, *SHAPE), strict=True):
                file.createDimension(name, size)
            times = file.createVariable("time", "f8", ("time",))
            times.units = f"hours since {START + timedelta(days=day):%Y-%m-%d}"
            times[:] = np.arange(RECORDS) * 6.0
            field = file.createVariable(
                "t", "i2", ("time", "lev", "lat", "lon"), zlib=True, chunksizes=(1, 2, 20, 25), fill_value=899
            )
            field.set_auto_maskandscale(False)
            field.scale_factor, field.add_offset = 0.01, 250.0
            field[:] = packed[day]
    values = packed.astype("f8") * 0.01 + 250.0
    values[packed == 899] = np.nan
    return values.reshape(FILES * RECORDS, *SHAPE)


def main() -> None:
    folder, seconds = Path(sys.argv[1]), float(sys.argv[2])
    expected = write(folder)
    temporal = SourceTemporal(START, "PT6H", "P1D", end=START + timedelta(days=FILES))
    whole = Provider(DataSource("t", "netcdf", f"{folder}/%Y%m%d.nc", ("t",), temporal))
    end = time.monotonic() + seconds
    failures: list[str] = []
    counts = [0] * THREADS

    def read(number: int) -> None:
        draw = random.Random(number)
        while not failures and (counts[number] < AT_LEAST or time.monotonic() < end):
            record = draw.randrange(FILES * RECORDS)
            row = draw.randrange(SHAPE[1] - 5)
            columns = [draw.randrange(SHAPE[2]) for _ in range(9)]
            try:
                windowed = whole.with_window(Window({"lat": (row, row + 5), "lon": columns}))
                got = windowed.sample_at(START + record * timedelta(hours=6))["t"].data
            except Exception as error:
                failures.append(f"thread {number}: {error!r}")
                raise
            if got.tobytes() != expected[record][:, row : row + 5][..., columns].tobytes():
                failures.append(f"thread {number}: wrong values of record {record}")
            counts[number] += 1

    threads = [threading.Thread(target=read, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    with netCDF4.Dataset(folder / "history.nc", "w") as file:
        file.createDimension("time", None)
        file.createDimension("cell", 5000)
        history = file.createVariable("h", "f4", ("time", "cell"), zlib=True)
        for step in itertools.count():
            history[step] = np.full(5000, step, dtype="f4")
            file.sync()
            if not any(thread.is_alive() for thread in threads):
                break
        assert (history[:] == np.arange(step + 1)[:, None]).all()
    for thread in threads:
        thread.join()
    if failures:
        sys.exit("\n".join(failures))
    print(sum(counts), step + 1)


if __name__ == "__main__":
    main()
