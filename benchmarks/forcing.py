"""A forcing series for the prefetch benchmarks: GEOS-like records, as many epochs as a run is to last.

A record's chunks are those of :mod:`decode_inputs`: [1, 1, 721, 1152] float32, deflate 1 and shuffle, stored
at 0.55 of their size. One file of four records is written; every day of the series is a link to it. It has
no time coordinate, so its records are found by the declared cadence, and it stays in the page cache: what
is measured is decoding, not the disk.
"""

from __future__ import annotations

import datetime as dt
import os
from dataclasses import dataclass
from pathlib import Path

import decode_inputs
import h5py
import netCDF4

from earthsciio import DataSource, Provider, SourceTemporal

__all__ = ["Forcing"]

START = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
PER_FILE = 4
GRID = (721, 1152)
KIND = "0.55"


@dataclass(frozen=True)
class Forcing:
    """Records of so many levels, a chunk each; files are written where and when they are needed."""

    folder: Path
    levels: int

    @property
    def nbytes(self) -> int:
        """Decoded bytes of a record."""
        return 4 * self.levels * GRID[0] * GRID[1]

    @property
    def ratio(self) -> float:
        """Stored over decoded bytes."""
        with h5py.File(self._file()) as file:
            return round(file["v"].id.get_storage_size() / (PER_FILE * self.nbytes), 3)

    def provider(self, epochs: int, copy: str = "0") -> Provider:
        """Give a provider of so many epochs. Those of another `copy` have opened other files."""
        series = self.folder / f"series-{self.levels}" / copy
        series.mkdir(parents=True, exist_ok=True)
        for day in range(-(-epochs // PER_FILE)):
            link = series / f"{START + day * DAY:%Y%m%d}.nc"
            if not link.exists():
                os.link(self._file(), link)
        temporal = SourceTemporal(START, "PT6H", "P1D", end=START + epochs * DAY / PER_FILE)
        url, options = f"{series}/%Y%m%d.nc", {"precision": "source"}
        return Provider(DataSource("forcing", "netcdf", url, ("v",), temporal, reader_kwargs=options))

    def _file(self) -> Path:
        path = self.folder / f"forcing-{self.levels}.nc"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part")
            with netCDF4.Dataset(part, "w") as file:
                dims = dict(zip(("time", "lev", "lat", "lon"), (PER_FILE, self.levels, *GRID), strict=True))
                for name, size in dims.items():
                    file.createDimension(name, size)
                file.createVariable("v", "f4", dims, zlib=True, complevel=1, chunksizes=(1, 1, *GRID))
            encoded = [decode_inputs._encode(field, True) for field in decode_inputs._fields(GRID, KIND)]
            with h5py.File(part, "r+") as file:
                for record in range(PER_FILE):
                    for level in range(self.levels):
                        chunk = encoded[(record + level) % len(encoded)]
                        file["v"].id.write_direct_chunk((record, level, 0, 0), chunk)
            part.rename(path)
        return path
