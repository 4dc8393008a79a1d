"""The schema of a YAML file: what may stand where, with its defaults and what it means.

One schema serves a file of sources and a case; a case only says more. Nothing here opens a file or knows how
a value was written: :mod:`earthsciio.declare` fills these in. :func:`json_schema` exports the schema for
editors and other tools.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from .errors import DeclarationError

__all__ = [
    "ByteSize",
    "CacheSettings",
    "FileSettings",
    "GridSettings",
    "MissingSettings",
    "ModelSettings",
    "OutputSettings",
    "PartitionSettings",
    "PrefetchSettings",
    "RestartSettings",
    "ScatterSettings",
    "SourceSettings",
    "SweepSettings",
    "TemporalSettings",
    "TimeSettings",
    "json_schema",
]

_UNITS: Final = {"": 1, "B": 1} | {
    f"{prefix}{infix}B": base**power
    for power, prefix in enumerate("KMGTP", 1)
    for infix, base in (("", 1000), ("I", 1024))
}
_SIZE: Final = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?) ?(?P<unit>(?:[KMGTP]I?)?B|)", re.IGNORECASE)
#: The same for JSON Schema, whose regular expressions know neither named groups nor flags.
_SIZE_PATTERN: Final = r"^[0-9]+(\.[0-9]+)? ?(([KMGTPkmgtp][Ii]?)?[Bb])?$"


class ByteSize(int):
    """A number of bytes, as a whole number or text: ``8GiB``, ``500 MB``, ``4096``."""

    __slots__ = ()

    @classmethod
    def parse(cls, value: object) -> ByteSize:
        """Read a size. KB, MB, ... are powers of 1000; KiB, MiB, ... powers of 1024; case does not matter.

        Raises
        ------
        DeclarationError
            If it is none.
        """
        found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
        if found is not None:
            return cls(Fraction(found["number"]) * _UNITS[found["unit"].upper()])
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return cls(value)
        raise DeclarationError(f"{value!r} is no size", hint="Write a number of bytes, or 500MB, 8GiB")


def _says(text: str, **schema: Any) -> msgspec.Meta:
    return msgspec.Meta(description=text, extra_json_schema=schema or None)


Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
Variables: TypeAlias = dict[str, str | int | float]
_INDICES: Final = {"type": "array", "items": {"type": "integer", "minimum": 0}}
_SELECTOR: Final = {
    "anyOf": [
        {"const": "all"},
        _INDICES,
        {
            "type": "object",
            "properties": {"slice": {**_INDICES, "minItems": 2, "maxItems": 3}},
            "required": ["slice"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {"indices": _INDICES},
            "required": ["indices"],
            "additionalProperties": False,
        },
    ]
}
Selectors: TypeAlias = Annotated[
    dict[str, Any],
    _says(
        'Per dimension: "all", {slice: [start, stop, step?]}, {indices: [...]} or a list of indices.',
        additionalProperties=_SELECTOR,
    ),
]


class _Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base: named, immutable, and strict about keys."""


class MissingSettings(_Settings, frozen=True, kw_only=True):
    """What serves where a file does not exist; with both, the source serves what is not held any more."""

    hold: Annotated[str | None, _says("For how long the last sample before may be held, ISO 8601 (P2D).")] = (
        None
    )
    source: Annotated[
        str | None, _says("Which source stands in: of the same variables, from stand_ins or sources.")
    ] = None


class TemporalSettings(_Settings, frozen=True, kw_only=True):
    """How the times of a source run. Without it the source is a constant."""

    start: Annotated[str, _says("The first anchor, and the start of the first file: 1970-01-01T00:00, UTC.")]
    frequency: Annotated[str, _says("Step between anchors, ISO 8601 (PT3H, P1M), or 'records': irregular.")]
    file_period: Annotated[str | None, _says("Step between files, ISO 8601; none for a single file.")] = None
    end: Annotated[str | None, _says("No anchor lies at or after it.")] = None
    time_dim: Annotated[str, _says("The dimension that holds records.")] = "time"
    records_per_sample: Annotated[
        Literal[1, 2] | None, _says("2 delivers brackets: a record and its successor.")
    ] = None
    calendar: Annotated[str | None, _says("A CF calendar; standard if not given.")] = None
    outside: Annotated[
        Literal["error", "hold", "cycle"], _says("What serves times before start and from end on.")
    ] = "error"
    missing: Annotated[
        MissingSettings | None, _says("What serves where a file does not exist; an error if not given.")
    ] = None


class SourceSettings(_Settings, frozen=True, kw_only=True):
    """One source: where its files are, what to deliver from them, and how its times run."""

    format: Annotated[str, _says("A registered format: netcdf, ...")]
    url: Annotated[
        str, _says("URL or path, relative to this file; strftime directives and {name} are replaced.")
    ]
    variables: Annotated[
        tuple[str, ...], _says("On-disk names of the fields to deliver; all data variables if empty.")
    ] = ()
    temporal: TemporalSettings | None = None
    mirrors: Annotated[tuple[str, ...], _says("Other places of the same bytes, as in url.")] = ()
    auth_realm: Annotated[str | None, _says("Which credentials fetch it.")] = None
    options: Annotated[dict[str, Any], _says("Options of the format's reader.")] = {}
    window: Selectors = {}
    vars: Annotated[Variables, _says("What {name} stands for in this source; over the file's.")] = {}


class GridSettings(_Settings, frozen=True, kw_only=True):
    """What the files call the dimensions of the model's grid."""

    lat: Annotated[str, _says("The latitude dimension.")] = "lat"
    lon: Annotated[str, _says("The longitude dimension.")] = "lon"
    lev: Annotated[str | None, _says("The vertical dimension, if there is one.")] = None


class PartitionSettings(_Settings, frozen=True, kw_only=True):
    """How the grid is cut among ranks."""

    # no Count here: msgspec 0.23 crashes on a constrained type in a union inside a dict
    halo: Annotated[
        int | dict[str, int | tuple[int, int]],
        _says("Cells a rank needs beyond its own: on every side, or per dimension (before and after)."),
    ] = 1
    periodic: Annotated[
        tuple[str, ...] | None, _says("Dimensions that wrap; the longitude if not given.")
    ] = None
    faces: Annotated[dict[str, str], _says("Staggered dimensions, and the cells they are faces of.")] = {}


class TimeSettings(_Settings, frozen=True, kw_only=True):
    """The time the run covers, in the calendar of its sources."""

    start: Annotated[str | None, _says("By default the latest start of the sources.")] = None
    end: Annotated[str | None, _says("By default the earliest end; the run stops here.")] = None


class PrefetchSettings(_Settings, frozen=True, kw_only=True):
    """How far ahead of the model forcing is decoded, and at what cost."""

    depth: Annotated[Count, _says("Epochs decoded ahead; 0 decodes when asked.")] = 2
    max_bytes: Annotated[ByteSize | None, _says("Budget; by default half of this process's share.")] = None
    fetch_ahead: Annotated[Count | None, _says("Epochs fetched ahead; depth if not given.")] = None
    workers: Annotated[Count, _says("Samples in flight; 0 is synchronous.")] = 1
    executor: Annotated[Literal["thread", "process"], _says("Where samples are decoded.")] = "thread"
    spill_dir: Annotated[str | None, _says("Node-local folder for samples needed again.")] = None
    spill_bytes: Annotated[ByteSize | None, _says("How much may be spilled.")] = None


class CacheSettings(_Settings, frozen=True, kw_only=True):
    """Where files that are not local paths are kept."""

    root: Annotated[str | None, _says("By default $EARTHSCIDATADIR, else the user's cache folder.")] = None
    offline: Annotated[bool | None, _says("Never touch the network; by default $EARTHSCI_OFFLINE.")] = None
    verify: Annotated[bool, _says("Hash a file on every hit.")] = False


class ScatterSettings(_Settings, frozen=True, kw_only=True):
    """Who decodes for whom. Values are the same in every mode."""

    mode: Annotated[
        Literal["auto", "own", "node", "root"],
        _says("own: each rank for itself; node: once per node; root: few readers send."),
    ] = "auto"


class ModelSettings(_Settings, frozen=True, kw_only=True):
    """Which model runs; its `window` selects the levels and the region it takes of the files."""

    name: Annotated[str, _says("The model.")]
    window: Selectors = {}
    parameters: Annotated[dict[str, Any], _says("What the model takes; checked by it.")] = {}


class SweepSettings(_Settings, frozen=True, kw_only=True):
    """Which way the model runs through the epochs."""

    direction: Annotated[Literal["forward", "adjoint"], _says("adjoint: forward, then back.")] = "forward"
    snapshots: Annotated[Positive | None, _says("States kept for the way back; all if not given.")] = None


class RestartSettings(_Settings, frozen=True, kw_only=True):
    """Where a forward sweep writes down how far it is."""

    file: Annotated[str, _says("The restart file, relative to this file.")]
    every: Annotated[Positive, _says("Epochs between two writes.")] = 1


class OutputSettings(_Settings, frozen=True, kw_only=True):
    """What a run leaves."""

    folder: Annotated[str | None, _says("Where its report goes; none is written if not given.")] = None
    plots: Annotated[bool, _says("Draw the timeline and the fields too (needs the extra 'plot').")] = False


class FileSettings(_Settings, frozen=True, kw_only=True):
    """Sources, and what a case says beyond them."""

    sources: Annotated[dict[str, SourceSettings], _says("By name: the name is that of the group's member.")]
    stand_ins: Annotated[
        dict[str, SourceSettings], _says("Sources that only stand in for missing files of others, by name.")
    ] = {}
    vars: Annotated[Variables, _says("What {name} stands for in urls.")] = {}
    case: Annotated[str | None, _says("Name of the case; the file's name if not given.")] = None
    time: TimeSettings = TimeSettings()
    window: Selectors = {}
    grid: GridSettings = GridSettings()
    partition: PartitionSettings = PartitionSettings()
    prefetch: PrefetchSettings = PrefetchSettings()
    cache: CacheSettings = CacheSettings()
    scatter: ScatterSettings = ScatterSettings()
    model: ModelSettings | None = None
    sweep: SweepSettings = SweepSettings()
    restart: RestartSettings | None = None
    output: OutputSettings = OutputSettings()


def json_schema() -> dict[str, Any]:
    """Give the JSON Schema (draft 2020-12) of a YAML file of this library, as plain data."""

    def custom(kind: type) -> dict[str, Any]:
        assert kind is ByteSize
        return {"type": ["integer", "string"], "minimum": 0, "pattern": _SIZE_PATTERN}

    schema = msgspec.json.schema(FileSettings, schema_hook=custom)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "earthsci-forcing sources and cases",
        **schema,
    }
