"""Series of small dated files for the tests of providers."""

from datetime import UTC, datetime, timedelta

import netCDF4
import numpy as np

from earthsciio import DataSource, Provider, SourceTemporal

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def utc(*parts):
    return datetime(*parts, tzinfo=UTC)


def dated(
    path, stamps, values, *, units="hours since 2020-01-01", calendar=None, dtype="f8", time="time", **options
):
    """Write records whose fields are easy to tell apart: ``v(time, x) = [value, value + 0.5]``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # HDF5 locks what somebody still has open
    with netCDF4.Dataset(path, "w", format=options.pop("format", "NETCDF4")) as file:
        file.createDimension("time", None)
        file.createDimension("x", 2)
        file.createVariable("x", "f8", ("x",))[:] = options.pop("x", [10, 20])
        if time:
            axis = file.createVariable(time, dtype, ("time",))
            axis.units = units
            axis[:] = stamps
            if calendar:
                axis.calendar = calendar
        variable = file.createVariable("v", "f8", ("time", "x"), **options)
        variable[:] = np.add.outer(np.asarray(values, "f8"), [0, 0.5])
        file.createVariable("static", "f8", ("x",))[:] = [7, 8]
    return path


def provider(url, start, frequency, *, variables=("v",), window=None, options=None, **temporal):
    times = SourceTemporal(start, frequency, **temporal)
    return Provider(
        DataSource("series", "netcdf", str(url), variables, times, reader_kwargs=options or {}), window=window
    )


def first(dataset):
    """The value(s) a sample holds at the first point: one, or two for a bracket."""
    return dataset["v"].data[..., 0].tolist()


def daily_files(folder, days, per_day=8):
    """Files of one day each; the value of a record is its number in the series."""
    for day in range(days):
        hours = np.arange(per_day) * 24 / per_day
        stamp = utc(2020, 1, 1) + day * DAY
        dated(folder / f"{stamp:%Y%m%d}.nc", hours + 24 * day, np.arange(per_day) + day * per_day)
    return folder / "%Y%m%d.nc"
