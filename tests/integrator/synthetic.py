"""Winds made up: in memory behind the Forcing protocol, for the model and sweep tests, and in files."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from earthsciio.fields import NativeDataset, NativeField
from earthsciio.prefetch.samples import EpochSample, Sample
from integrator.models.tracer import Grid

DAY = 86400.0


def grid(nlat=13, nlon=16, *, descending=True, wall=90.0):
    lat = np.linspace(-90, 90, nlat)
    return Grid(lat[::-1] if descending else lat, np.arange(nlon) * 360 / nlon, wall=wall)


def winds(grid, records, seed=0):
    """Divergent winds of some 10 m/s that no symmetry helps: (records, nlat, nlon) each."""
    rng = np.random.default_rng(seed)
    shape = (records, grid.lat.size, grid.lon.size)
    return 5 + 10 * rng.standard_normal(shape), 8 * rng.standard_normal(shape)


def write_winds(folder: Path, records: int, columns: int, since: str) -> None:
    """Write u.nc and v.nc: compressed, three-hourly, on 13 latitudes from the north."""
    rng = np.random.default_rng(7)
    for name in ("u", "v"):
        with h5py.File(folder / f"{name}.nc", "w", track_order=True) as file:
            scales = {
                "time": (np.arange(records) * 3.0, f"hours since {since}"),
                "lat": (np.linspace(90, -90, 13), "degrees_north"),
                "lon": (np.arange(columns) * 360 / columns, "degrees_east"),
            }
            data = rng.normal(3, 8, (records, 13, columns)).astype("f4")
            wind = file.create_dataset(name, data=data, chunks=(1, 5, 6), compression=1, shuffle=True)
            for axis, (dim, (values, units)) in enumerate(scales.items()):
                file[dim] = values
                file[dim].attrs["units"] = units
                file[dim].make_scale(dim)
                wind.dims[axis].attach_scale(file[dim])


def sample(k, u, v, times):
    """Put a bracket of winds (2, lat, lon), or constant ones (lat, lon), into the form a forcing gives."""
    dims = ("time", "lat", "lon")[-u.ndim :]
    members = {}
    for name, given in {"u": u, "v": v}.items():
        wind = given.copy()
        wind.flags.writeable = False
        coords = {"time": NativeField(np.array(times, np.float64), ("time",))} if u.ndim == 3 else {}
        dataset = NativeDataset({name: NativeField(wind, dims)}, coords)
        members[name] = Sample(dataset, anchor=times[0], changed=True)
    return EpochSample(k, members)


class MemoryForcing:
    """Brackets [k, k + 1] of winds through a rank's Window; checks the protocol, poisons what is released."""

    def __init__(self, partition, rank, u, v, times):
        window = partition.window(rank)
        rows, columns = (
            np.arange(*s) if isinstance(s := window[dim], tuple) else np.array(s) for dim in ("lat", "lon")
        )
        self._u, self._v = (w[:, rows[:, None], columns] for w in (u, v))
        self._times = times
        self._held = None
        self.orders = []
        self._left = []

    def start(self, order):
        self._left = list(order)
        self.orders.append(list(order))

    def take(self, k):
        assert self._held is None, "taken before the last one was released"
        assert self._left.pop(0) == k, "not the epoch that was announced"
        self._held = k, sample(k, self._u[k : k + 2], self._v[k : k + 2], self._times[k : k + 2])
        return self._held[1]

    def release(self, k):
        held, given = self._held
        assert held == k
        for member in given.values():
            for field in member.data.variables.values():
                field.data.flags.writeable = True
                field.data[...] = np.nan
        self._held = None

    def close(self):
        self._left = []
