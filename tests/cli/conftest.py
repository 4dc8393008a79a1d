"""A small series of files, and a case that declares it."""

from __future__ import annotations

from pathlib import Path

import netCDF4
import numpy as np
import pytest


def write_day(path: Path, day: int, hours: range, *, size: int = 4, calendar: str = "standard") -> None:
    """Write records of u(time, lat, lon) at some hours of a day of 2000-01."""
    with netCDF4.Dataset(path, "w") as file:
        for dim, length in {"time": None, "lat": 3, "lon": size}.items():
            file.createDimension(dim, length)
        time = file.createVariable("time", "f8", ("time",))
        time.units, time.calendar = f"hours since 2000-01-{day:02d}", calendar
        time[:] = list(hours)
        for dim, length in {"lat": 3, "lon": size}.items():
            file.createVariable(dim, "f4", (dim,))[:] = np.arange(length)
        u = file.createVariable("u", "i2", ("time", "lat", "lon"), chunksizes=(1, 3, size))
        u.scale_factor, u.units, u.long_name = 0.5, "m/s", "eastward [bold]wind"
        u[:] = np.zeros((len(hours), 3, size))
        file.createVariable("mask", "i1", ("lat", "lon"))[:] = 1


@pytest.fixture
def case(tmp_path):
    """Two days of 6-hourly records, day files; the file of the case."""
    for day in (1, 2):
        write_day(tmp_path / f"u.200001{day:02d}.nc", day, range(0, 24, 6))
    path = tmp_path / "case.yaml"
    path.write_text(
        "sources:\n"
        "  wind:\n"
        "    format: netcdf\n"
        "    url: u.%Y%m%d.nc\n"
        "    variables: [u]\n"
        "    window: {lat: {slice: [1, 3]}}\n"
        "    temporal: {start: 2000-01-01, frequency: PT6H, file_period: P1D, end: 2000-01-03,\n"
        "               records_per_sample: 2}\n"
        "  mask: {format: netcdf, url: u.20000101.nc, variables: [mask]}\n"
    )
    return path


@pytest.fixture(name="write_day")
def _write_day():
    """Write a file of a day; see above."""
    return write_day
