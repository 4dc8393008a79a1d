"""Small files for the tests of values, and the plainest way to read one."""

from pathlib import Path

import h5py
import netCDF4
import numpy as np

import earthsciio
from earthsciio import DataSource, NativeDataset, Provider

REAL = Path(__file__).parents[3] / "shared" / "data" / "real"


def source(path, variables=(), **options):
    return DataSource("test", "netcdf", str(path), variables=variables, reader_kwargs=options)


def read(path, *variables, window=None, **options) -> NativeDataset:
    """Read a file as a constant."""
    provider = Provider(source(path, variables, **options))
    return (provider if window is None else provider.with_window(window)).materialize()


def values(path, name="v", **options):
    """Read one variable of a file."""
    return read(path, name, **options)[name].data


def netcdf(path, variables, *, format="NETCDF4", sizes=None):  # noqa: A002
    """Write variables as {name: (dims, raw array, attrs)}, without any conversion."""
    with netCDF4.Dataset(path, "w", format=format) as file:
        for name, (dims, raw, attrs) in variables.items():
            names = dims.split() if isinstance(dims, str) else dims
            array = np.asarray(raw)
            for dim, size in zip(names, array.shape, strict=True):
                if dim not in file.dimensions:
                    file.createDimension(dim, (sizes or {}).get(dim, size))
            rest = {key: value for key, value in attrs.items() if key != "_FillValue"}
            variable = file.createVariable(name, array.dtype, names, fill_value=attrs.get("_FillValue"))
            variable.set_auto_maskandscale(False)
            variable.setncatts(rest)
            variable[...] = array
    return path


def one(path, raw, attrs=None, dtype=None, **options):
    """Write one variable ``v`` along ``x``, ``y``, ... with exactly these stored elements."""
    raw = np.asarray(raw, dtype=dtype)
    return netcdf(path, {"v": (tuple("xyz")[: raw.ndim], raw, attrs or {})}, **options)


def hdf5(path, raw, attrs=None, **options):
    """Write one plain HDF5 dataset ``v``."""
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("v", data=raw, **options)
        dataset.attrs.update(attrs or {})
    return path


def same_bits(one, other):
    """Whether two arrays are equal in dtype, shape and every bit."""
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def assert_values(found, expected, dtype=np.float64):
    """Require these values (None is missing), dtype, memory order and byte order."""
    wanted = np.array([np.nan if value is None else value for value in expected], dtype=dtype)
    assert found.dtype == np.dtype(dtype)
    assert found.dtype.isnative
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, wanted)


EarthSciIOWarning = earthsciio.EarthSciIOWarning
