"""From the parameters of a case to a model that can run: its grid, initial state and objective."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np

from earthsciio.errors import DeclarationError
from earthsciio.fields import Array
from integrator.partition import Partition

from .tracer import TracerModel, column_mean

if TYPE_CHECKING:
    from mpi4py import MPI

    from integrator.domain import Domain
    from integrator.sweep import Model

__all__ = ["MODELS", "ModelSetup", "TracerParameters", "set_up_model"]

#: Names of the models a case can ask for.
MODELS = ("tracer",)


class ModelSetup(Protocol):
    """A model on this rank, ready to run."""

    @property
    def model(self) -> Model:
        """What a sweep steps."""
        ...

    @property
    def partition(self) -> Partition:
        """Who owns what."""
        ...

    @property
    def transform(self) -> Any:
        """What a PrefetchGroup does to a member's dataset after decoding it; None for nothing."""
        ...

    @property
    def axes(self) -> tuple[Array, Array]:
        """Latitudes and longitudes of the whole grid, degrees."""
        ...

    @property
    def initial(self) -> Array:
        """The initial state of this rank's cells."""
        ...

    @property
    def weights(self) -> Array:
        """The weights of the objective, a linear functional of the final state, in this rank's cells."""
        ...

    @property
    def target(self) -> dict[str, tuple[float, float]] | None:
        """``lat`` and ``lon`` bounds of the region that the objective is about, degrees; None without."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What a report says of the parameters, those of the case and those by default."""
        ...

    @property
    def volume(self) -> Array:
        """What a state is to be multiplied with to give mass, in this rank's cells."""
        ...

    def close(self) -> None:
        """Free what the model holds. Collective."""
        ...


class Bell(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the tracer starts: a cosine bell; degrees."""

    lat: float
    lon: float
    radius: float


class Region(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the objective is about: southern and northern, western and eastern bounds; degrees."""

    lat: tuple[float, float]
    lon: tuple[float, float]


class TracerParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a case says of the tracer.

    Attributes
    ----------
    u, v : (str, str)
        Source and variable of the winds.
    step : float
        Longest time step, seconds.
    wall : float
        Latitude beyond which nothing moves.
    start : Bell
        The initial tracer.
    target : Region
        The region whose tracer mass at the end is the objective.
    """

    u: tuple[str, str]
    v: tuple[str, str]
    step: float
    wall: float = 90.0
    start: Bell = Bell(lat=35.0, lon=140.0, radius=20.0)
    target: Region = Region(lat=(30.0, 50.0), lon=(-130.0, -100.0))


@dataclass(frozen=True, slots=True)
class TracerSetup:
    """The passive tracer of a case; see :class:`ModelSetup`."""

    model: TracerModel
    partition: Partition
    transform: Any
    axes: tuple[Array, Array]
    initial: Array
    weights: Array
    volume: Array
    target: dict[str, tuple[float, float]]
    notes: tuple[str, ...]

    def close(self) -> None:
        """Free the communicator of the halo exchange. Collective."""
        self.model.close()


def set_up_model(
    name: str,
    parameters: Mapping[str, Any],
    domain: Domain,
    comm: MPI.Intracomm | None,
) -> ModelSetup:
    """Build the model of a case on this rank.

    Parameters
    ----------
    name : str
        The model; there is ``tracer``.
    parameters : mapping
        Its parameters; see :class:`TracerParameters`.
    domain : Domain
        What it runs on.
    comm : mpi4py.MPI.Intracomm or None
        The ranks that share the grid.

    Raises
    ------
    DeclarationError
        If there is no such model, or a parameter is wrong.
    """
    if name != "tracer":
        raise DeclarationError(f"there is no model {name!r}", hint="There is 'tracer'")
    try:
        settings = msgspec.convert(dict(parameters), TracerParameters)
    except msgspec.ValidationError as error:
        raise DeclarationError(f"parameters of the model 'tracer': {error}") from None
    grid = domain.grid(settings.wall)
    lat_name, lon_name = domain.whole
    partition = grid.partition(1 if comm is None else comm.Get_size(), lat=lat_name, lon=lon_name)
    block = partition.block(0 if comm is None else comm.Get_rank())
    model = TracerModel(grid, partition, comm, step=settings.step, u=settings.u, v=settings.v)
    inside = _region(grid.lat, grid.lon, settings.target)
    return TracerSetup(
        model=model,
        partition=partition,
        transform=column_mean,
        axes=(grid.lat, grid.lon),
        initial=_bell(grid.lat, grid.lon, settings.start)[block],
        weights=np.where(inside, grid.area, 0.0)[block],
        volume=model.area,
        target=msgspec.structs.asdict(settings.target),
        notes=_notes(settings, parameters),
    )


def _notes(settings: TracerParameters, given: Mapping[str, Any]) -> tuple[str, ...]:
    """Say where the tracer starts and what its objective is."""
    start, target = settings.start, settings.target
    (south, north), (west, east) = sorted(target.lat), target.lon
    texts = {
        "start": f"a bell of {start.radius:g} degrees around lat {start.lat:g}, lon {start.lon:g}",
        "target": f"lat {south:g} to {north:g}, lon {west:g} to {east:g}",
    }
    return tuple(f"{key}: {text}{'' if key in given else ', by default'}" for key, text in texts.items())


def _bell(lat: Array, lon: Array, where: Bell) -> Array:
    """Give a cosine bell: 1 in the middle, 0 from `radius` degrees of arc on."""
    centre_lat, centre_lon, radius = np.radians([where.lat, where.lon, where.radius])
    phi, lam = np.radians(lat)[:, None], np.radians(lon)[None, :]
    cosine = np.sin(phi) * np.sin(centre_lat) + np.cos(phi) * np.cos(centre_lat) * np.cos(lam - centre_lon)
    distance = np.arccos(np.clip(cosine, -1, 1))
    if not (distance < radius).any():
        raise DeclarationError(
            "no cell lies within the start of the tracer", start=msgspec.structs.asdict(where),
            hint="Give `start` a lat and lon on the grid, or a larger radius",
        )  # fmt: skip
    bell: Array = np.where(distance < radius, 0.5 * (1 + np.cos(np.pi * distance / radius)), 0.0)
    return bell


def _region(lat: Array, lon: Array, bounds: Region) -> Array:
    south, north = sorted(bounds.lat)
    west, east = bounds.lon
    width = 360.0 if east - west >= 360 else (east - west) % 360
    inside: Array = ((lat >= south) & (lat <= north))[:, None] & ((lon - west) % 360 <= width)
    if not inside.any():
        raise DeclarationError(
            "no cell lies within the target", target=msgspec.structs.asdict(bounds),
            hint="Give `target` lat: [south, north] and lon: [west, east] around the centres of cells",
        )  # fmt: skip
    return inside
