r"""A passive tracer carried by given winds on a latitude-longitude grid, and its exact discrete adjoint.

The tracer density q (per unit area) obeys dq/dt + div(q v) = 0. Cells are the boxes around the grid points;
a point on a pole has a half cell, and nothing crosses a pole. First-order upwind fluxes through the faces
(the donor-cell scheme: R. J. LeVeque, Finite Volume Methods for Hyperbolic Problems, 2002, section 20.1)
with forward Euler steps of length dt:

.. math::

    q_i' = q_i - \frac{dt}{A_i} \sum_f \pm F_f, \qquad F_f = U_f^+ q_a + U_f^- q_b,

where face f lies between cells a and b, U_f is the mean of the normal winds of the two times the length of
the face, and U+ and U- are its positive and negative parts. The winds are blended linearly in time between
the two records of a bracket, at the middle of each step.

Where the grid is a part of a larger one (:meth:`Grid.part`), its edges are open: q is 0 outside, and a face
on an edge has the wind of the cell inside. What flows out is gone, and nothing comes in.

Otherwise the scheme is conservative. It keeps q >= 0, and is linear in q, so its adjoint is the transpose of
the step: with :math:`\mu_i = \lambda_i\, dt / A_i`,

.. math::

    \lambda_i' = \lambda_i + \sum_{f: a = i} U_f^+ (\mu_b - \mu_a) + \sum_{f: b = i} U_f^- (\mu_b - \mu_a).

Both directions *gather*: a cell computes its own new value from its neighbours' old ones, in one order of
operations, and metric terms are computed for the whole globe and then sliced. So the values of a cell are
the same bits on any number of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from earthsciio.errors import DeclarationError, EarthSciIOError
from earthsciio.fields import NativeDataset, NativeField
from integrator.halo import HaloExchange
from integrator.partition import Dim, Partition
from integrator.ranks import agree, maximum

if TYPE_CHECKING:
    from mpi4py import MPI

    from earthsciio.prefetch.samples import EpochSample
    from earthsciio.records import OutputSpec

__all__ = ["CFLError", "Grid", "TracerModel", "column_mean"]

Floats = npt.NDArray[np.float64]
EARTH_RADIUS = 6.371e6


class CFLError(EarthSciIOError, ValueError):
    """A time step too long for the winds: more than a cell's content would leave it."""


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """The geometry of a global grid, from its coordinates in degrees, in the file's order.

    Parameters
    ----------
    lat : array_like, shape (nlat,)
        Latitudes, ascending or descending, within +-90; spacing may vary.
    lon : array_like, shape (nlon,)
        Longitudes, ascending, once around the globe without repeating a meridian; spacing may vary.
    wall : float
        Latitude (degrees, positive) beyond which, north and south, no tracer moves. Cells shrink towards
        the poles, and the time step with them; a wall at 80 keeps it usable. 90 is no wall.
    radius : float
        Of the sphere, in metres.

    Attributes
    ----------
    area : numpy.ndarray, shape (nlat, nlon)
        Cell areas, m2; they add up to the sphere if the latitudes reach from pole to pole.
    height : numpy.ndarray, shape (nlat,)
        Length of the faces between neighbours along a parallel, m; 0 beyond the wall.
    width : numpy.ndarray, shape (nlat + 1, nlon)
        Length of the faces between neighbours along a meridian, m; face j lies before row j. 0 at both
        ends of the whole grid and beyond the wall.
    northward : float
        1 where rows go from south to north, else -1.
    periodic : bool
        Whether the first column follows the last; not in a :meth:`part` of fewer columns.

    Raises
    ------
    DeclarationError
        If the coordinates are not those of such a grid.
    """

    lat: Floats
    lon: Floats
    wall: float = 90.0
    radius: float = EARTH_RADIUS
    area: Floats = field(init=False, repr=False)
    height: Floats = field(init=False, repr=False)
    width: Floats = field(init=False, repr=False)
    northward: float = field(init=False)
    periodic: bool = field(init=False)

    def __post_init__(self) -> None:
        lat, lon = np.asarray(self.lat, np.float64), np.asarray(self.lon, np.float64)
        if lat.ndim != 1 or lon.ndim != 1 or lat.size < 2 or lon.size < 2:
            raise DeclarationError(f"a grid needs 2 rows and columns at least, not {lat.shape} x {lon.shape}")
        if not self.wall > 0:
            raise DeclarationError(
                f"a wall at latitude {self.wall:g}", hint="Give a latitude above 0; 90 is none"
            )
        northward = 1.0 if lat[-1] > lat[0] else -1.0
        if not np.all(np.diff(lat) * northward > 0) or np.max(np.abs(lat)) > 90:
            raise DeclarationError("latitudes must ascend or descend within +-90 degrees")
        gaps = np.diff(lon, append=lon[0] + 360)
        if not np.all(gaps[:-1] > 0):
            raise DeclarationError("longitudes must ascend", first=lon[0], last=lon[-1])
        if gaps[-1] <= 0:
            raise DeclarationError(
                "longitudes must go once around the globe, but have a meridian twice",
                first=lon[0], last=lon[-1],
                hint="Leave the last one out",
            )  # fmt: skip
        if gaps[-1] > 1.5 * np.max(gaps[:-1]):
            raise DeclarationError(
                f"longitudes must go once around the globe, but leave a gap of {gaps[-1]:g} degrees",
                first=lon[0], last=lon[-1],
                hint="Take files of the whole globe; the model's `window` selects a region of them",
            )  # fmt: skip
        middles = (lat[:-1] + lat[1:]) / 2
        ends = np.clip((2 * lat[0] - middles[0], 2 * lat[-1] - middles[-1]), -90, 90)
        edges = np.radians(np.concatenate([ends[:1], middles, ends[1:]]))
        span = np.radians((gaps + np.roll(gaps, 1)) / 2)
        moves = np.abs(lat) <= self.wall
        height = self.radius * np.abs(np.diff(edges)) * moves
        width = np.zeros((lat.size + 1, lon.size))
        width[1:-1] = (self.radius * np.cos(edges[1:-1]) * (moves[:-1] & moves[1:]))[:, None] * span
        area = (self.radius**2 * np.abs(np.diff(np.sin(edges))))[:, None] * span
        arrays = {"lat": lat, "lon": lon, "area": area, "height": height, "width": width}
        for name, array in arrays.items():
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        object.__setattr__(self, "northward", northward)
        object.__setattr__(self, "periodic", True)

    def part(self, rows: tuple[int, int], columns: npt.NDArray[np.int64]) -> Grid:
        """Give a part of the grid, whose edges are open where the grid goes on.

        Parameters
        ----------
        rows : (int, int)
            Start and stop.
        columns : numpy.ndarray of int, shape (n,)
            Neighbours from west to east, which may run across the grid's end. All of them still wrap.
        """
        start, stop = rows
        arrays = {
            "lat": self.lat[start:stop],
            "lon": self.lon[columns],
            "area": self.area[start:stop, columns],
            "height": self.height[start:stop],
            "width": self.width[start : stop + 1, columns],
        }
        part = copy(self)
        for name, array in arrays.items():
            array.flags.writeable = False
            object.__setattr__(part, name, array)
        object.__setattr__(part, "periodic", self.periodic and len(columns) == self.lon.size)
        return part

    def partition(self, ranks: int, *, lat: str = "lat", lon: str = "lon") -> Partition:
        """Cut the grid for `ranks` ranks, with the halo the model needs; the names are the file's."""
        dims = Dim(lat, self.lat.size, False, (1, 1)), Dim(lon, self.lon.size, self.periodic, (1, 1))
        return Partition(dims, ranks)


class _Fluxes(NamedTuple):
    """Area fluxes (m2/s) through the faces of the owned cells: at the first time, and their change."""

    zonal: tuple[Floats, Floats]  # (rows, columns + 1), towards increasing index
    meridional: tuple[Floats, Floats]  # (rows + 1, columns), likewise
    times: tuple[float, float]

    def at(self, t: float) -> tuple[Floats, Floats, Floats, Floats]:
        """Blend linearly at time `t` (held outside the bracket) and split into U+, U-, V+, V-."""
        first, last = self.times
        weight = min(max((t - first) / (last - first), 0.0), 1.0) if last > first else 0.0
        u = self.zonal[0] + weight * self.zonal[1]
        v = self.meridional[0] + weight * self.meridional[1]
        return np.maximum(u, 0), np.minimum(u, 0), np.maximum(v, 0), np.minimum(v, 0)


class TracerModel:
    """The tracer on this rank's block of the grid.

    A state is a float64 array of the owned cells, shape ``partition.block_shape(rank)``; halos are the
    model's own affair. States that are passed in are never written to.

    Parameters
    ----------
    grid : Grid
        The whole grid.
    partition : Partition
        Its cut, with a halo of 1 on every side (:meth:`Grid.partition`).
    comm : mpi4py.MPI.Comm or None
        None for a single rank without MPI.
    step : float
        Longest time step, seconds. An epoch is covered by the fewest equal steps not longer than it.
    u, v : (str, str)
        Where a sample holds the eastward and northward wind (m/s, at the grid points): member, variable.
        Dims ``(lat, lon)``, held through the epoch, or ``(time, lat, lon)`` with two records and a
        coordinate of the time dimension's name in seconds; always this rank's Window. Winds on levels are
        averaged by :func:`column_mean` before they get here.

    Attributes
    ----------
    rows, columns : slice
        The owned cells in the whole grid.
    area : numpy.ndarray
        Areas of the owned cells, m2; the state times these is mass.

    Raises
    ------
    DeclarationError
        If partition, grid and communicator don't fit each other, or the step is not positive.
    """

    def __init__(
        self,
        grid: Grid,
        partition: Partition,
        comm: MPI.Comm | None = None,
        *,
        step: float,
        u: tuple[str, str] = ("u", "u"),
        v: tuple[str, str] = ("v", "v"),
    ) -> None:
        expected = grid.partition(partition.ranks, lat=partition.dims[0].name, lon=partition.dims[-1].name)
        if partition.dims != expected.dims:
            raise DeclarationError("the tracer needs a partition as from Grid.partition", got=partition.dims)
        if not step > 0:
            raise DeclarationError(f"a time step of {step} s")
        self.grid, self.partition, self.step = grid, partition, step
        self._comm = comm
        self._winds = u, v
        self._exchange = HaloExchange(partition, comm)
        rank = 0 if comm is None else comm.Get_rank()
        self._frame_shape = partition.frame_shape(rank)
        self._placement = partition.placement(rank)
        self.rows, self.columns = partition.block(rank)
        around, columns = np.arange(self.columns.start - 1, self.columns.stop + 1), grid.lon.size
        around = around % columns if grid.periodic else around[(around >= 0) & (around < columns)]
        # 1 beyond the edges, where nothing comes from and a quotient must stay finite
        area = np.ones(self._frame_shape)
        area[self._placement] = grid.area[max(self.rows.start - 1, 0) : self.rows.stop + 1][:, around]
        self._area = area
        self.area = grid.area[self.rows, self.columns]
        self._height = grid.height[self.rows, None]
        self._width = grid.northward * grid.width[self.rows.start : self.rows.stop + 1, self.columns]

    def forward(self, q: Floats, sample: EpochSample, t0: float, t1: float) -> Floats:
        """Carry a tracer through an epoch.

        Parameters
        ----------
        q : numpy.ndarray
            The state at `t0`: tracer per unit area.
        sample : EpochSample
            The winds of the epoch.
        t0, t1 : float
            The epoch, in seconds since the epoch of the samples' time coordinate.

        Returns
        -------
        numpy.ndarray
            The state at `t1`.

        Raises
        ------
        CFLError
            On every rank, if a step would take more out of any cell than it holds.
        """
        fluxes, dt, middles = self._prepare(sample, t0, t1)
        frame = self._framed(q)
        inner, ratio = frame[1:-1, 1:-1], dt / self._area[1:-1, 1:-1]
        for t in middles:
            u_pos, u_neg, v_pos, v_neg = fluxes.at(t)
            self._exchange(frame)
            rows, columns = frame[1:-1], frame[:, 1:-1]
            zonal = u_pos * rows[:, :-1] + u_neg * rows[:, 1:]
            meridional = v_pos * columns[:-1] + v_neg * columns[1:]
            inner -= ratio * ((zonal[:, 1:] - zonal[:, :-1]) + (meridional[1:] - meridional[:-1]))
        return inner.copy()

    def adjoint(self, lam: Floats, q: Floats, sample: EpochSample, t0: float, t1: float) -> Floats:  # noqa: ARG002
        """Carry a gradient back through an epoch: the transpose of :meth:`forward`.

        Parameters
        ----------
        lam : numpy.ndarray
            Gradient of the objective with respect to the state at `t1`.
        q : numpy.ndarray
            The state at `t0`; not needed, since the model is linear.
        sample, t0, t1
            As in :meth:`forward`.

        Returns
        -------
        numpy.ndarray
            Gradient with respect to the state at `t0`.
        """
        fluxes, dt, middles = self._prepare(sample, t0, t1)
        frame = self._framed(lam)
        inner, ratio = frame[1:-1, 1:-1], dt / self._area
        for t in reversed(middles):
            u_pos, u_neg, v_pos, v_neg = fluxes.at(t)
            self._exchange(frame)
            mu = frame * ratio
            zonal = mu[1:-1, 1:] - mu[1:-1, :-1]
            meridional = mu[1:, 1:-1] - mu[:-1, 1:-1]
            inner += (u_pos * zonal)[:, 1:] + (u_neg * zonal)[:, :-1]
            inner += (v_pos * meridional)[1:] + (v_neg * meridional)[:-1]
        return inner.copy()

    def close(self) -> None:
        """Free the communicator of the halo exchange. Collective."""
        self._exchange.close()

    def _framed(self, block: Floats) -> Floats:
        frame = np.zeros(self._frame_shape)
        frame[1:-1, 1:-1] = block
        return frame

    def _prepare(self, sample: EpochSample, t0: float, t1: float) -> tuple[_Fluxes, float, list[float]]:
        """Give the fluxes of an epoch, its time step, and the middles of its steps."""
        (u, times), (v, v_times) = (self._wind(sample, *where) for where in self._winds)
        if times != v_times:
            dated = (f"that of {member!r} of {_dates(sample, member)}" for member, _ in self._winds)
            raise DeclarationError(
                f"the two winds are of different times: {', '.join(dated)}",
                hint="Declare start, end, frequency and records_per_sample of the two alike",
            )
        zonal, zonal_end = (_through(self._height, _zonal_mean(record)) for record in u)
        meridional, meridional_end = (_through(self._width, _meridional_mean(record)) for record in v)
        fluxes = _Fluxes((zonal, zonal_end - zonal), (meridional, meridional_end - meridional), times)
        steps = max(ceil((t1 - t0) / self.step), 1)
        dt = (t1 - t0) / steps
        self._check_cfl(fluxes, dt)
        return fluxes, dt, [t0 + (m + 0.5) * dt for m in range(steps)]

    def _wind(
        self, sample: EpochSample, member: str, variable: str
    ) -> tuple[tuple[Floats, Floats], tuple[float, float]]:
        """Give the two records of a wind as frames, and their times."""
        dataset = sample[member].data
        if not isinstance(dataset, NativeDataset):
            raise DeclarationError(f"member {member!r} has {len(dataset)} Windows; the tracer reads one")
        wind = dataset[variable]
        if wind.data.ndim == 4:
            raise DeclarationError(
                f"{wind} has levels, the tracer has none", variable=variable,
                hint="Open the forcing with transform=column_mean, or choose a level",
            )  # fmt: skip
        records: Any = wind.data if wind.data.ndim == 3 else wind.data[None]
        times = dataset[wind.dims[0]].data.tolist() if wind.data.ndim == 3 else [0.0]
        if len(records) not in (1, 2):
            raise DeclarationError(
                f"{wind} is no bracket", variable=variable, hint="Declare `records_per_sample: 2`"
            )
        frames = []
        for record in records:
            frame = np.zeros(self._frame_shape)
            window = frame[self._placement]
            if record.shape != window.shape:
                raise DeclarationError(f"{wind} is not this rank's Window, {window.shape}", variable=variable)
            window[...] = record
            _extend(frame, self._placement)
            frames.append(frame)
        return (frames[0], frames[-1]), (times[0], times[-1])

    def _check_cfl(self, fluxes: _Fluxes, dt: float) -> None:
        """Raise on every rank, and the same, if any cell of the grid would be emptied in a step.

        What leaves a cell is convex in the winds, so the ends of the bracket bound all times between.
        """
        worst = np.zeros(1)
        for t in fluxes.times:
            u_pos, u_neg, v_pos, v_neg = fluxes.at(t)
            leaving = (u_pos[:, 1:] - u_neg[:, :-1]) + (v_pos[1:] - v_neg[:-1])
            courant = leaving * (dt / self._area[1:-1, 1:-1])
            # a missing wind is NaN, which a maximum over ranks would not carry
            worst = np.maximum(worst, np.max(np.where(np.isnan(courant), np.inf, courant)))
        worst = maximum(self._comm, worst)
        number = float(worst[0])
        if number <= 1 + 1e-12:
            return
        if number == np.inf:
            error: EarthSciIOError = DeclarationError(
                "the winds have missing values where the tracer moves",
                hint="Select levels or a region without them (`window`), or a `wall` that leaves them out",
            )
        else:
            error = CFLError(
                f"CFL: a step of {dt:g} s takes {number:.3g} times its content out of a cell",
                hint=f"Choose a step of at most {0.99 * dt / number:.3g} s, or a wall further from the poles",
            )
        agree(self._comm, error)  # all have it; so it is told once


def _extend(frame: Floats, inside: tuple[slice, ...]) -> None:
    """Give what lies beyond an edge the wind of the edge."""
    rows, columns = inside
    frame[: rows.start], frame[rows.stop :] = frame[rows.start], frame[rows.stop - 1]
    frame[:, : columns.start] = frame[:, columns.start : columns.start + 1]
    frame[:, columns.stop :] = frame[:, columns.stop - 1 : columns.stop]


def _dates(sample: EpochSample, member: str) -> str:
    data = sample[member].data
    return " and ".join(map(str, data.times)) if isinstance(data, NativeDataset) else "several Windows"


def _zonal_mean(u: Floats) -> Floats:
    rows = u[1:-1]
    return 0.5 * (rows[:, :-1] + rows[:, 1:])


def _meridional_mean(v: Floats) -> Floats:
    columns = v[:, 1:-1]
    return 0.5 * (columns[:-1] + columns[1:])


def column_mean(_key: str, dataset: NativeDataset) -> NativeDataset:
    """Average winds on levels, ``(time, level, lat, lon)``, over the levels.

    A transform for a PrefetchGroup: it runs where the decode does, so that one level is sent instead of all.
    Levels are added in their order, so a cell's sum does not depend on the Window it is in.
    """

    def averaged(field: NativeField) -> NativeField:
        if field.data.ndim != 4:
            return field
        total = field.data[:, 0].copy()
        for level in range(1, field.shape[1]):
            total += field.data[:, level]
        total /= field.shape[1]
        return NativeField(total, (field.dims[0], *field.dims[2:]), field.attrs)

    fields = {name: averaged(field) for name, field in dataset.variables.items()}
    return NativeDataset(fields, dataset.coords, dataset.times)


def _column_mean_nbytes(_key: str, outputs: Sequence[OutputSpec]) -> int:
    """Give what :func:`column_mean` allocates, from the records behind it: fields on levels have 3 axes."""
    return sum(output.nbytes // (output.shape[0] if len(output.shape) == 3 else 1) for output in outputs)


column_mean.output_nbytes = _column_mean_nbytes  # type: ignore[attr-defined]  # how a transform says its size


def _through(length: Floats, wind: Floats) -> Floats:
    """Give the flux through faces; none through a closed one, whatever the wind there (0 * NaN is NaN)."""
    return np.where(length == 0, 0.0, length * wind)
