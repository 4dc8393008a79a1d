"""What can be wrong with a case beyond its sources: the model and its grid, named by file, line and key.

A case file is read by ``earthsciio``, which knows no model; so what stands under ``model:``, ``grid:`` and
``partition:`` is looked at here, by whoever is about to run, plan or check the case. :func:`check_model`
opens nothing; :func:`read_grid` opens the first file the case needs, for its coordinates and dimensions;
:func:`validate` is both, and builds the model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from earthsciio.cadence import Steps
from earthsciio.fields import Array, NativeField
from earthsciio.prefetch import PrefetchGroup
from earthsciio.provider import Provider
from earthsciio.selection import Window
from earthsciio.shape import convert, nearest
from earthsciio.yamltext import Document, Key

from .domain import Domain, neighbours
from .models.setup import MODELS, ModelSetup, TracerParameters, set_up_model
from .models.tracer import Grid
from .scatter import check_mode

if TYPE_CHECKING:
    from mpi4py import MPI

    from earthsciio.cache import Cache
    from earthsciio.declare import Case
    from earthsciio.source import DataSource

__all__ = ["CaseGrid", "check_model", "read_grid", "set_up", "validate"]

_WINDS = ("u", "v")
_PARAMETERS = ("model", "parameters")
#: Units of a longitude, as CF lists them.
_EASTWARD = re.compile(r"degrees?_?e(ast)?$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class CaseGrid:
    """The grid of a case, as its files have it.

    Attributes
    ----------
    domain : Domain
        The rows, columns and levels that the model runs on.
    notes : tuple of str
        What the model does with the files that a user might not expect.
    """

    domain: Domain
    notes: tuple[str, ...] = ()

    @property
    def axes(self) -> dict[str, Array]:
        """Latitudes and longitudes in degrees, by the names the files give the dimensions, latitude first."""
        return self.domain.axes


def validate(case: Case, cache: Cache | None = None) -> CaseGrid:
    """Check all of a case that can be checked without decoding a field; needs no MPI.

    Parameters
    ----------
    case : Case
        The declaration.
    cache : Cache, optional
        Where remote files come from; the one the case declares by default.

    Returns
    -------
    CaseGrid
        Its grid.

    Raises
    ------
    DeclarationError
        With file, line and key, and what to write instead where that is known.
    EarthSciIOError
        If the first file the case needs can't be had or read.
    """
    check_model(case)
    cache = case.open_cache() if cache is None else cache
    grid = read_grid(case, cache)
    setup = set_up(case, grid.domain)
    setup.close()
    members = {name: member for name, member in case.providers(cache).items() if not member.is_const}
    with Document.read(case.file).at("prefetch"):
        group = PrefetchGroup(members, **case.group_options())
    group.boundaries()
    notes = grid.notes + setup.notes
    if case.restart is not None and case.sweep.direction == "adjoint":
        notes = (*notes, "a restart file is of forward sweeps; this one is adjoint and writes none")
    return CaseGrid(grid.domain, notes)


def check_model(case: Case) -> None:
    """Check the model a case names, its parameters, and the sources it takes its winds from; opens nothing.

    Raises
    ------
    DeclarationError
        With file, line and key, and the nearest name there is.
    """
    doc = Document.read(case.file)
    if case.model is None:
        raise doc.error(("sources",), "the case names no model", hint="Add `model: {name: tracer, ...}`")
    if case.model.name not in MODELS:
        name = case.model.name
        raise doc.error(("model", "name"), f"there is no model {name!r}", hint=nearest(name, MODELS))
    for key in case.model.parameters:
        if key not in TracerParameters.__struct_fields__:
            hint = nearest(key, TracerParameters.__struct_fields__)
            raise doc.error((*_PARAMETERS, key), f"the model has no parameter {key!r}", hint=hint)
    parameters = convert(doc, TracerParameters, at=_PARAMETERS)
    for key in _WINDS:
        _check_wind(doc, case, (*_PARAMETERS, key), *getattr(parameters, key))
    _check_alike(doc, case, parameters)
    _check_cut(doc, case)
    with doc.at("scatter", "mode"):
        check_mode(case.scatter.mode)


def _check_wind(doc: Document, case: Case, at: Key, source: str, variable: str) -> None:
    if source not in case.sources:
        raise doc.error(at, f"there is no source {source!r}", hint=nearest(source, case.sources))
    declared = case.sources[source]
    if declared.variables and variable not in declared.variables:
        hint = nearest(variable, declared.variables)
        raise doc.error(at, f"source {source!r} has no variable {variable!r}", hint=hint)
    if declared.temporal is None:
        raise doc.error(at, f"source {source!r} is constant in time", hint="Declare its `temporal`")


def _check_alike(doc: Document, case: Case, parameters: TracerParameters) -> None:
    """Refuse winds of two sources that a sample would give at different times."""
    one, other = (case.sources[getattr(parameters, key)[0]] for key in _WINDS)
    if one.temporal is None or other.temporal is None or one.name == other.name:
        return
    steps = [source.temporal.cadence.series for source in (one, other) if source.temporal is not None]
    brackets = one.temporal.brackets, other.temporal.brackets
    regular = [series for series in steps if isinstance(series, Steps)]
    if brackets[0] != brackets[1] or len({series.step for series in regular}) > 1:
        raise doc.error(
            _PARAMETERS, f"the winds of {one.name!r} and {other.name!r} would be of different times",
            hint="Declare `frequency` and `records_per_sample` of the two alike",
        )  # fmt: skip
    if all(brackets):
        _check_last_bracket(doc, case, one, other)


def _check_last_bracket(doc: Document, case: Case, *sources: DataSource) -> None:
    """Refuse a last epoch whose record has a successor in the one source only."""
    ends = {
        source.name: source.temporal.cadence
        for source in sources
        if source.temporal is not None and source.temporal.outside == "error"
        and source.temporal.end is not None
    }  # fmt: skip
    if len({cadence.end for cadence in ends.values()}) < 2:
        return
    name, first = min(ends.items(), key=lambda item: item[1].end or 0)
    if not first.is_read or first.last_index is None:
        return
    anchor, stop = first.anchor(first.last_index), case.clip[1]
    if stop is not None and first.calendar.instant(stop) <= anchor:
        return
    last = first.calendar.text(anchor)
    raise doc.error(
        ("sources", name, "temporal", "end"),
        f"the last record of {name!r}, {last}, has no successor, but that of the other wind has",
        hint=f"Declare the two `end` alike, or `time: {{end: {last}}}`",
    )


def _check_cut(doc: Document, case: Case) -> None:
    """Refuse what a run could not keep to: the model says what is read, cut as the tracer needs."""
    if case.window is not None:
        hint = "Write it under `model:`, where `window` selects a region and levels"
        raise doc.error(("window",), "it is the model that is run on a part of the grid", hint=hint)
    for name, source in case.sources.items():
        if source.temporal is not None and "select" in source.reader_kwargs:
            raise doc.error(
                ("sources", name, "window"), f"a run reads all of source {name!r}, cut among its ranks",
                hint="Leave `window` (or `select`) out; the model's `window` selects a region and levels",
            )  # fmt: skip
    for dim in (case.grid.lat, case.grid.lon):
        if case.halo(dim) != (1, 1):
            raise doc.error(
                ("partition", "halo"), f"the tracer has a halo of 1, not {case.halo(dim)}",
                hint="Write `halo: 1`",
            )  # fmt: skip
    if case.is_periodic(case.grid.lat) or not case.is_periodic(case.grid.lon):
        raise doc.error(
            ("partition", "periodic"), f"the tracer's grid wraps along {case.grid.lon} alone",
            hint="Leave it out; a region of the model's `window` has edges without it",
        )  # fmt: skip


def read_grid(case: Case, cache: Cache) -> CaseGrid:
    """Read the grid from the first file the case needs, and check that the model's winds are on it.

    What the model's ``window`` selects of it is checked too, and that a restart file has a folder. A last
    meridian that repeats the first (0 and 360) is left out.

    Raises
    ------
    DeclarationError
        With file, line and key.
    EarthSciIOError
        If the file can't be had or read.
    """
    doc = Document.read(case.file)
    if case.restart is not None and not (folder := Path(case.restart.file).parent).is_dir():
        raise doc.error(("restart", "file"), f"there is no folder '{folder}'", hint="Make it before the run")
    changing = [name for name, source in case.sources.items() if not source.is_const]
    if not changing:
        raise doc.error(("sources",), "no source has times", hint="Declare the `temporal` of one")
    winds = [] if case.model is None else [case.model.parameters[key] for key in _WINDS]
    leader, *others = dict.fromkeys([source for source, _ in winds] or changing[:1])
    members = {name: Provider(case.sources[name], cache, case.clip) for name in (leader, *others)}
    axes = _axes(doc, case, leader, members[leader].coords)
    for name in others:
        for dim, values in _axes(doc, case, name, members[name].coords).items():
            if values.shape != axes[dim].shape or not np.allclose(values, axes[dim], rtol=0, atol=1e-3):
                raise doc.error(("sources", name), f"{dim!r} differs from that of source {leader!r}")
    lat, lon = axes.values()
    stored, notes = lon.size, list[str]()
    if lon.size > 2 and abs(lon[-1] - lon[0] - 360) < 1e-3 * abs(lon[1] - lon[0]):
        lon = lon[:-1]
        notes.append("the last meridian repeats the first, and is left out")
    whole = dict(zip(axes, (lat, lon), strict=True))
    if case.model is None:
        return CaseGrid(Domain(whole), tuple(notes))
    with doc.at("grid"):
        Grid(lat, lon)
    levels = _levels(doc, case, members, axes)
    window = Window(case.model.window)
    cells = {}
    for dim, size in zip(axes, (lat.size, stored), strict=True):
        with doc.at("model", "window", dim):
            wraps = dim == case.grid.lon
            cells[dim] = neighbours(window, dim, size, whole[dim].size, wraps=wraps)
    taken = {source: each.window for source, each in levels.items() if each.window is not None}
    domain = Domain(whole, cells, taken)
    notes[:0] = dict.fromkeys(each.note for each in levels.values())
    if domain.is_cut:
        notes.append(_region_note(domain))
    return CaseGrid(domain, tuple(notes))


def _region_note(domain: Domain) -> str:
    spans = [
        f"{dim} {axis[0]:g} to {axis[-1]:g}"
        for dim, axis in domain.axes.items()
        if axis.size < domain.whole[dim].size
    ]
    return f"a region, {', '.join(spans)}: tracer that flows out over its edges is gone, and none comes in"


def _axes(doc: Document, case: Case, source: str, coords: Mapping[str, NativeField]) -> dict[str, Array]:
    """Pick latitude and longitude out of the coordinates of a source."""
    named = {"lat": case.grid.lat, "lon": case.grid.lon}
    for key, dim in named.items():
        if dim not in coords:
            hint = nearest(dim, coords)
            raise doc.error(("grid", key), f"source {source!r} has no coordinate {dim!r}", hint=hint)
        if coords[dim].data.ndim != 1:
            dims = coords[dim].dims
            raise doc.error(("grid", key), f"{dim!r} of source {source!r} is no axis: it has {dims}")
    lat, lon = (coords[dim] for dim in named.values())
    if _EASTWARD.match(str(lat.attrs.get("units", ""))):
        raise doc.error(
            ("grid", "lat"), f"{case.grid.lat!r} is a longitude, in {lat.attrs['units']}",
            hint=f"Swap them: `grid: {{lat: {case.grid.lon}, lon: {case.grid.lat}}}`",
        )  # fmt: skip
    return {case.grid.lat: lat.data, case.grid.lon: lon.data}


@dataclass(frozen=True, slots=True)
class _Levels:
    """The levels that a source's winds are taken from: what is asked of the files, and what is said."""

    window: Window | None
    note: str


def _levels(
    doc: Document, case: Case, members: Mapping[str, Provider], axes: Mapping[str, Array]
) -> dict[str, _Levels]:
    """Find the levels of the winds, by source; those without are left out. Refuse a wind not on the grid."""
    assert case.model is not None
    asked = [dim for dim in case.model.window if dim not in axes]
    levels = {}
    for key in _WINDS:
        source, variable = case.model.parameters[key]
        shape = _check_shape(doc, case, members[source], axes, key)
        if len(shape) == 3:
            levels[source] = _levels_of(doc, case, members[source], axes, variable, shape[0])
    if asked and not levels:
        dims = ", ".join(axes)
        raise doc.error(
            ("model", "window", asked[0]), "the winds are on no levels", hint=f"There are: {dims}"
        )
    return levels


def _check_shape(
    doc: Document, case: Case, member: Provider, axes: Mapping[str, Array], key: str
) -> tuple[int, ...]:
    """Give the shape of a record of a wind; refuse one that is not on the grid."""
    assert case.model is not None
    source, variable = case.model.parameters[key]
    temporal = case.sources[source].temporal
    assert temporal is not None
    shape = member.array_shape(variable)
    own = shape[1:] if temporal.brackets else shape
    sizes = tuple(axis.size for axis in axes.values())
    if own[-2:] != sizes or len(own) > 3:
        raise doc.error(
            (*_PARAMETERS, key), f"{variable!r} of one record is {own}, on a grid of {sizes}, {list(axes)}",
            hint="The tracer reads winds on the grid's points, with levels or not: ([level,] lat, lon)",
        )  # fmt: skip
    if len(own) == 3 and not temporal.brackets:
        raise doc.error(
            ("sources", source, "temporal", "records_per_sample"), "winds on levels need brackets here",
            hint="Set `records_per_sample: 2`",
        )  # fmt: skip
    return own


def _levels_of(
    doc: Document, case: Case, member: Provider, axes: Mapping[str, Array], variable: str, count: int
) -> _Levels:
    assert case.model is not None
    coords, lev = member.coords, case.grid.lev
    named = [name for name in coords if name not in axes and coords[name].shape == (count,)]
    if lev is not None and named and lev not in named:
        raise doc.error(("grid", "lev"), f"{variable!r} has no levels {lev!r}", hint=nearest(lev, named))
    asked = [dim for dim in case.model.window if dim not in axes]
    if not asked:
        dim = lev if lev in named else named[0] if len(named) == 1 else None
        text = f"winds on {count} levels are averaged over them, unweighted"
        return _Levels(
            None, text if dim is None else f"{text}: {_level_names(coords, dim, np.arange(count))}"
        )
    window = Window({dim: case.model.window[dim] for dim in asked})
    for dim in asked:
        with doc.at("model", "window", dim):
            cut = member.with_window(Window({dim: window[dim]})).array_shape(variable)[1]
    selector = window.selector(asked[0])
    chosen = np.arange(count) if selector is None else selector.indices()
    if len(asked) > 1 or not len(chosen) or cut != len(chosen):
        raise doc.error(
            ("model", "window", asked[-1]), f"it selects no levels of {variable!r}",
            hint="Select one level or more of the one dimension besides latitude and longitude",
        )  # fmt: skip
    names = _level_names(coords, asked[0], chosen)
    if len(chosen) == 1:
        return _Levels(window, f"winds are those of one level of {count}: {names}")
    return _Levels(window, f"winds on {len(chosen)} of {count} levels are averaged, unweighted: {names}")


def _level_names(coords: Mapping[str, NativeField], dim: str, chosen: Array) -> str:
    """Name levels by their coordinate, with its units, or else by their index."""
    coord = coords.get(dim)
    if coord is None or coord.data.ndim != 1 or coord.data.dtype.kind not in "iuf":
        values, units, name = chosen, "", f"index of {dim}"
    else:
        said = str(coord.attrs.get("units", "1"))
        values, units, name = coord.data[chosen], "" if said in ("", "1") else f" {said}", dim
    run = len(chosen) > 2 and bool(np.all(np.diff(chosen) == 1))
    shown = [f"{value:g}" for value in (values[[0, -1]] if run else values)]
    return f"{name} {' to '.join(shown) if run else ', '.join(shown)}{units}"


def set_up(case: Case, domain: Domain, comm: MPI.Intracomm | None = None) -> ModelSetup:
    """Build the model of a case on this rank; collective over `comm`.

    Raises
    ------
    DeclarationError
        With file, line and key, if its parameters don't fit its grid.
    """
    assert case.model is not None
    with Document.read(case.file).at(*_PARAMETERS):
        return set_up_model(case.model.name, case.model.parameters, domain, comm)
