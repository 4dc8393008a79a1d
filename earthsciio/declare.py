"""Sources and cases from YAML, and sources back to YAML.

:func:`load_sources` and :func:`load_case` read the same kind of file (its schema is
:mod:`earthsciio.settings`). What they give is resolved and checked: variables and templates are filled in,
paths are relative to the file's folder, times and durations are read in their calendar, formats and reader
options exist. An error names file, line and key. Files of data are not opened.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import msgspec
import yaml

from .calendars import Duration, calendar
from .errors import DeclarationError, SelectionError, SourceNotDeclared
from .fields import Time
from .filelist import is_local_path
from .formats import create_reader
from .selection import Window, parse_selection
from .settings import (
    ByteSize,
    CacheSettings,
    FileSettings,
    GridSettings,
    ModelSettings,
    OutputSettings,
    PartitionSettings,
    PrefetchSettings,
    RestartSettings,
    ScatterSettings,
    SourceSettings,
    SweepSettings,
    TemporalSettings,
    json_schema,
)
from .shape import convert, nearest
from .source import _DIRECTIVE, DataSource, SourceTemporal, StandIn, parse_time
from .yamltext import CORE_SCALARS, Document, Key

if TYPE_CHECKING:
    from .cache import Cache
    from .provider import Provider

__all__ = ["Case", "dump_sources", "json_schema", "load_case", "load_sources"]

T = TypeVar("T")
_BRACES: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


class Declared(dict[str, T]):
    """What a file declares, by name: a dict that answers a name it has not with those it has.

    Parameters
    ----------
    items : mapping of str to object
        By name.
    file : path
        Where they are declared.

    Raises
    ------
    SourceNotDeclared
        By ``[name]``, naming file and nearest name (also a KeyError).
    """

    def __init__(self, items: Mapping[str, T], file: str | os.PathLike[str]) -> None:
        super().__init__(items)
        self.file = Path(file)

    def __missing__(self, name: str) -> NoReturn:
        hint = nearest(str(name), self) or None
        raise SourceNotDeclared(f"there is no source {name!r}", file=self.file, hint=hint)

    def __reduce__(self) -> tuple[Any, ...]:
        return Declared, (dict(self), self.file)


@dataclass(frozen=True, slots=True)
class Case:
    """A run, declared: its sources and everything an integrator needs to know besides.

    Attributes
    ----------
    name : str
        Its name.
    file : pathlib.Path
        Where it was declared.
    sources : mapping of str to DataSource
        By name, which is also the key of the member in a PrefetchGroup.
    clip : (start, end)
        The time it covers, in the calendar of its sources; either may be None.
    window : Window or None
        The part of the grid it covers.
    grid, partition, prefetch, cache, scatter, model, sweep, restart, output
        What was declared, or the defaults (:mod:`earthsciio.settings`). Paths are absolute.
    stand_ins : mapping of str to DataSource
        Sources that only stand in for missing files of others; no members of a group.
    """

    name: str
    file: Path
    sources: Mapping[str, DataSource]
    clip: tuple[Time | None, Time | None]
    window: Window | None
    grid: GridSettings
    partition: PartitionSettings
    prefetch: PrefetchSettings
    cache: CacheSettings
    scatter: ScatterSettings
    model: ModelSettings | None
    sweep: SweepSettings
    restart: RestartSettings | None
    output: OutputSettings
    stand_ins: Mapping[str, DataSource] = field(default_factory=dict)

    def open_cache(self, **options: Any) -> Cache:
        """Give the cache it declares; `options` of :class:`~earthsciio.cache.Cache` go before its own."""
        from .cache import Cache

        return Cache(**{**msgspec.structs.asdict(self.cache), **options})

    def providers(self, cache: Cache | None = None) -> dict[str, Provider]:
        """Give a provider per source, CONST ones included, all on one cache."""
        from .provider import Provider

        shared = self.open_cache() if cache is None else cache
        return Declared({name: Provider(source, shared) for name, source in self.sources.items()}, self.file)

    def group_options(self) -> dict[str, Any]:
        """Give the keyword arguments of a PrefetchGroup that the case declares."""
        clip = None if self.clip == (None, None) else self.clip
        return {**msgspec.structs.asdict(self.prefetch), "clip": clip}

    def halo(self, dim: str) -> tuple[int, int]:
        """Give the halo of a dimension: cells before and after."""
        halo = self.partition.halo
        sides = halo if isinstance(halo, int) else halo.get(dim, 0)
        return (sides, sides) if isinstance(sides, int) else sides

    def is_periodic(self, dim: str) -> bool:
        """Whether a dimension of the grid wraps."""
        declared = self.partition.periodic
        return dim in (declared if declared is not None else (self.grid.lon,))


def load_sources(path: str | os.PathLike[str]) -> dict[str, DataSource]:
    """Read the sources of a YAML file; a case will do.

    Parameters
    ----------
    path : path
        The file.

    Returns
    -------
    dict of str to DataSource
        By name, in the order of the file. A ``window`` becomes the reader option ``select``. A name that is
        not there is a :class:`~earthsciio.errors.SourceNotDeclared` (also a KeyError) that gives the nearest.

    Raises
    ------
    DeclarationError
        Naming file, line and key, if anything in it can't be right: broken YAML, an unknown key, format or
        option, a declaration that contradicts itself.
    MissingFile, FileFormatError
        If there is no such file, or the system can't read it.
    """
    return _read(path)[2].of("sources")


def load_case(path: str | os.PathLike[str]) -> Case:
    """Read a case from a YAML file.

    Parameters
    ----------
    path : path
        The file. Whatever it does not say has a default; only `sources` must be there.

    Raises
    ------
    DeclarationError
        Naming file, line and key, if anything in it can't be right: broken YAML, an unknown key, format or
        option, a declaration that contradicts itself.
    MissingFile, FileFormatError
        If there is no such file, or the system can't read it.
    """
    doc, settings, built = _read(path)
    sources = built.of("sources")
    if settings.model is not None:
        _window(doc, ("model", "window"), settings.model.window)
    place = _Place(doc, settings.vars)
    _check_halo(doc, settings.partition)
    prefetch, cache, output, restart = settings.prefetch, settings.cache, settings.output, settings.restart
    replace = msgspec.structs.replace
    if prefetch.spill_dir is not None:
        prefetch = replace(prefetch, spill_dir=place(prefetch.spill_dir, ("prefetch", "spill_dir")))
    if cache.root is not None:
        cache = replace(cache, root=place(cache.root, ("cache", "root")))
    if output.folder is not None:
        output = replace(output, folder=place(output.folder, ("output", "folder")))
    if restart is not None:
        restart = replace(restart, file=place(restart.file, ("restart", "file")))
    return Case(
        name=doc.file.stem if settings.case is None else settings.case,
        file=doc.file,
        sources=sources,
        clip=_clip(doc, settings, sources),
        window=_window(doc, ("window",), settings.window),
        grid=settings.grid,
        partition=settings.partition,
        prefetch=prefetch,
        cache=cache,
        scatter=settings.scatter,
        model=settings.model,
        sweep=settings.sweep,
        restart=restart,
        output=output,
        stand_ins=built.of("stand_ins"),
    )


def _custom(kind: type, value: Any) -> Any:
    assert kind is ByteSize
    return ByteSize.parse(value)


def _read(path: str | os.PathLike[str]) -> tuple[Document, FileSettings, _Sources]:
    doc = Document.read(Path(path).absolute())
    settings = convert(doc, FileSettings, _custom)
    return doc, settings, _Sources(doc, settings)


class _Sources:
    """Builds the sources of a file, those first that stand in for others."""

    def __init__(self, doc: Document, settings: FileSettings) -> None:
        self.doc = doc
        self._shared = settings.vars
        self._declared = {"sources": settings.sources, "stand_ins": settings.stand_ins}
        self._section = {name: section for section, declared in self._declared.items() for name in declared}
        self._built: dict[str, DataSource] = {}
        self._building: list[str] = []
        for name in settings.stand_ins:
            if name in settings.sources:
                raise doc.error(("stand_ins", name), "a source has this name already")
        for name in self._section:
            self._get(name)

    def of(self, section: str) -> dict[str, DataSource]:
        """Give those of a section, by name, in the order of the file."""
        return Declared({name: self._built[name] for name in self._declared[section]}, self.doc.file)

    def _get(self, name: str) -> DataSource:
        if name not in self._built:
            key = (self._section[name], name)
            self._building.append(name)
            settings = self._declared[key[0]][name]
            self._built[name] = _source(self.doc, key, settings, self._shared, self._stand_in(key, settings))
            self._building.pop()
        return self._built[name]

    def _stand_in(self, key: Key, settings: SourceSettings) -> DataSource | None:
        missing = None if settings.temporal is None else settings.temporal.missing
        if missing is None or missing.source is None:
            return None
        name, key = missing.source, (*key, "temporal", "missing", "source")
        if name not in self._section:
            raise self.doc.error(key, f"there is no source {name!r}", hint=nearest(name, self._section))
        if name in self._building:
            raise self.doc.error(key, f"{name!r} would stand in for itself")
        return self._get(name)


class _Place:
    """Fills templates in, and roots paths in the folder of the file."""

    def __init__(self, doc: Document, names: Mapping[str, Any]) -> None:
        self.doc = doc
        self.names = names

    def __call__(self, text: str, key: Key, *, strftime: bool = False) -> str:
        with self.doc.at(*key):
            return _rooted(self._filled(text, key), self.doc.file.parent, strftime=strftime)

    def _filled(self, text: str, key: Key) -> str:
        def value(found: re.Match[str]) -> str:
            if found[0] in ("{{", "}}"):
                return found[0][0]
            name = found[1]
            if name is None:
                raise self.doc.error(
                    key, f"a single {found[0]!r} in {text!r}", hint="Write {{ or }} for a brace"
                )
            if name not in self.names:
                raise self.doc.error(
                    key, f"nothing says what {{{name}}} stands for", hint=nearest(name, self.names)
                )
            return str(self.names[name])

        return _BRACES.sub(value, text)


def _rooted(text: str, folder: Path, *, strftime: bool) -> str:
    """Make a local path absolute; leave a URL alone."""
    path = os.path.expanduser(text)  # noqa: PTH111 - it may be a URL, which a Path would mangle
    if not is_local_path(path) or os.path.isabs(path):  # noqa: PTH117
        return path
    rooted = str(folder / path)
    if not strftime:
        return rooted
    # a % in the folder's name is no directive
    escaped = str(Path(str(folder).replace("%", "%%")) / path)
    return escaped if _DIRECTIVE.search(escaped) else rooted


def _source(
    doc: Document, key: Key, settings: SourceSettings, shared: Mapping[str, Any], other: DataSource | None
) -> DataSource:
    """Build one source, for which `other` stands in; every step says which key it is about."""
    name, temporal = str(key[-1]), None
    if settings.temporal is not None:
        temporal = _temporal(doc, (*key, "temporal"), settings.temporal, other)
    names = {"name": name, **shared, **settings.vars}
    if len(settings.variables) == 1:
        names.setdefault("variable", settings.variables[0])
    place = _Place(doc, names)
    options = _options(doc, key, settings)
    with doc.at(*key):
        return DataSource(
            name=name,
            format=settings.format,
            url=place(settings.url, (*key, "url"), strftime=temporal is not None),
            variables=settings.variables,
            temporal=temporal,
            mirrors=tuple(
                place(mirror, (*key, "mirrors", position), strftime=temporal is not None)
                for position, mirror in enumerate(settings.mirrors)
            ),
            auth_realm=settings.auth_realm,
            reader_kwargs=options,
        )


def _temporal(
    doc: Document, key: Key, settings: TemporalSettings, other: DataSource | None
) -> SourceTemporal:
    own = settings.calendar
    with doc.at(*key, "calendar"):
        calendar(own)
    with doc.at(*key, "start"):
        start = parse_time(settings.start, own)
    with doc.at(*key, "frequency"):
        irregular = settings.frequency == "records"
        frequency = settings.frequency if irregular else Duration.parse(settings.frequency)
    with doc.at(*key, "file_period"):
        period = None if settings.file_period is None else Duration.parse(settings.file_period)
    with doc.at(*key, "end"):
        end = None if settings.end is None else parse_time(settings.end, own)
    with doc.at(*key, "missing"):
        missing = None if settings.missing is None else StandIn(settings.missing.hold, other)
    with doc.at(*key):
        return SourceTemporal(
            start=start,
            frequency=frequency,
            file_period=period,
            end=end,
            time_dim=settings.time_dim,
            records_per_sample=settings.records_per_sample,
            calendar=own,
            outside=settings.outside,
            missing=missing,
        )


def _options(doc: Document, key: Key, settings: SourceSettings) -> dict[str, Any]:
    """Give the reader's options, and be sure that the format takes them."""
    options = dict(settings.options)
    if "select" in options:
        with doc.at(*key, "options", "select"):
            if settings.window:
                raise DeclarationError("a source has a window or the option 'select', not both")
            options["select"] = parse_selection(options["select"])
    window = _window(doc, (*key, "window"), settings.window)
    if window is not None:
        options["select"] = window
    with doc.at(*key, "format"):
        create_reader(settings.format, {})
    for name, value in options.items():
        with doc.at(*key, "options", name):
            create_reader(settings.format, {name: value})
    return options


def _window(doc: Document, key: Key, selectors: Mapping[str, Any]) -> Window | None:
    for dim, selector in selectors.items():
        try:
            Window({dim: selector})
        except SelectionError as error:
            raise doc.error((*key, dim), str(error.args[0]), hint=_selector_hint(selector)) from None
    return Window(selectors) if selectors else None


def _selector_hint(selector: Any) -> str:
    """Say how YAML spells a selector; it has no tuples."""
    bounds = re.fullmatch(r"\s*(\d+)\s*:\s*(\d+)\s*", selector) if isinstance(selector, str) else None
    start, stop = ("start", "stop") if bounds is None else bounds.groups()
    one = f" ([{selector}])" if isinstance(selector, int) else ""
    return (
        f"Write {{slice: [{start}, {stop}]}}, {{slice: [start, stop, step]}}, a list of indices{one}, or all"
    )


def _clip(
    doc: Document, settings: FileSettings, sources: Mapping[str, DataSource]
) -> tuple[Time | None, Time | None]:
    cadences = [source.temporal.cadence for source in sources.values() if source.temporal is not None]
    own = cadences[0].calendar if cadences else calendar(None)
    bounds: list[Time | None] = []
    for name in ("start", "end"):
        text = getattr(settings.time, name)
        with doc.at("time", name):
            bounds.append(None if text is None else parse_time(text, own.name))
    start, end = bounds
    if start is not None and end is not None and own.instant(end) <= own.instant(start):
        raise doc.error(("time", "end"), "end must be after start")
    for name, source in sources.items():
        _check_covered(doc, name, source, start, end)
    return start, end


def _check_covered(
    doc: Document, name: str, source: DataSource, start: Time | None, end: Time | None
) -> None:
    """Refuse a case that asks a source for times it does not have: it would run on fewer epochs."""
    temporal = source.temporal
    if temporal is None or temporal.outside != "error":
        return
    own = temporal.cadence.calendar
    if start is not None and own.instant(start) < own.instant(temporal.start):
        raise doc.error(
            ("time", "start"), f"the case starts at {start}, before source {name!r}, at {temporal.start}",
            hint="Start it later, or declare `outside: hold` or `cycle` for the source",
        )  # fmt: skip
    if end is not None and temporal.end is not None and own.instant(end) > own.instant(temporal.end):
        raise doc.error(
            ("time", "end"), f"the case ends at {end}, after source {name!r}, at {temporal.end}",
            hint="End it earlier, or declare a later `end` of the source, or `outside: hold` or `cycle`",
        )  # fmt: skip


def _check_halo(doc: Document, settings: PartitionSettings) -> None:
    sides = settings.halo if isinstance(settings.halo, dict) else {None: settings.halo}
    for dim, cells in sides.items():
        if min(cells if isinstance(cells, tuple) else (cells,)) < 0:
            key = ("partition", "halo") if dim is None else ("partition", "halo", dim)
            raise doc.error(key, "a halo is 0 cells or more")


def dump_sources(sources: Mapping[str, DataSource], path: str | os.PathLike[str] | None = None) -> str:
    """Write sources as YAML that :func:`load_sources` reads back.

    Parameters
    ----------
    sources : mapping of str to DataSource
        By name. Relative paths are written absolute, so that the file means the same wherever it is put. What
        stands in for their missing files is written too.
    path : path, optional
        Where to write it too.

    Returns
    -------
    str
        The text.

    Raises
    ------
    DeclarationError
        If a source can't be written down: its URL is a function, an option is no plain value, or two sources
        have one name.
    """
    sections: dict[str, dict[str, DataSource]] = {"sources": dict(sources), "stand_ins": {}}
    for other in (each for source in sources.values() for each in source.chain() if each is not source):
        known = sections["sources"].get(other.name) or sections["stand_ins"].setdefault(other.name, other)
        if known != other:
            raise DeclarationError(f"two sources have the name {other.name!r}")
    plain = {
        section: {name: _plain_source(source) for name, source in listed.items()}
        for section, listed in sections.items()
        if listed or section == "sources"
    }
    try:
        text = yaml.dump(_verbatim(plain), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    except yaml.representer.RepresenterError as error:
        raise DeclarationError(f"an option can't be written as YAML: {error}") from error
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


class _Dumper(yaml.SafeDumper):
    """Quotes what YAML 1.1 or 1.2 would not read as text; keys on lines of their own, lists on one."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the base class's signature
        return True

    def represent_flow(self, data: Any) -> yaml.Node:
        return self.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=True)


for _tag, _form in CORE_SCALARS.items():
    _Dumper.add_implicit_resolver(_tag, re.compile(f"({_form.pattern})$"), None)
_Dumper.add_representer(list, _Dumper.represent_flow)
_Dumper.add_representer(tuple, _Dumper.represent_flow)


def _plain_source(source: DataSource) -> dict[str, Any]:
    options = dict(source.reader_kwargs)
    select = None if options.get("select") is None else parse_selection(options.pop("select"))
    plain: dict[str, Any] = {"format": source.format, "url": _plain_url(source, source.url)}
    if source.variables:
        plain["variables"] = list(source.variables)
    if source.temporal is not None:
        plain["temporal"] = _plain_temporal(source.temporal)
    if source.mirrors:
        plain["mirrors"] = [_plain_url(source, mirror) for mirror in source.mirrors]
    if source.auth_realm is not None:
        plain["auth_realm"] = source.auth_realm
    if isinstance(select, Window):
        plain["window"] = select.wire()["dims"]
    elif select is not None:
        options["select"] = select.wire()
    if options:
        plain["options"] = options
    return plain


def _plain_url(source: DataSource, url: object) -> str:
    if not isinstance(url, str):
        raise DeclarationError(f"the URL of source {source.name!r} is a function, which YAML can't hold")
    rooted = url
    if is_local_path(url) and not os.path.isabs(url):  # noqa: PTH117 - it is a template, not a path yet
        rooted = _rooted(f"./{url}", Path.cwd(), strftime=source.temporal is not None)
    return rooted.replace("{", "{{").replace("}", "}}")


def _verbatim(value: Any) -> Any:
    """Keep ``${`` in texts from being read as a variable."""
    match value:
        case str():
            return value.replace("${", "$${")
        case Mapping():
            return {name: _verbatim(item) for name, item in value.items()}
        case list() | tuple():
            return [_verbatim(item) for item in value]
    return value


def _plain_temporal(temporal: SourceTemporal) -> dict[str, Any]:
    cadence = temporal.cadence

    def text(instant: int) -> str:
        return cadence.calendar.text(instant).removesuffix(" 00:00:00").replace(" ", "T")

    def step(duration: timedelta | str | Duration) -> str:
        return duration if duration == "records" else Duration.parse(duration).isoformat()  # type: ignore[return-value]

    plain: dict[str, Any] = {"start": text(cadence.start), "frequency": step(temporal.frequency)}
    if temporal.file_period is not None:
        plain["file_period"] = step(temporal.file_period)
    if cadence.end is not None:
        plain["end"] = text(cadence.end)
    if temporal.time_dim != "time":
        plain["time_dim"] = temporal.time_dim
    if temporal.records_per_sample is not None:
        plain["records_per_sample"] = temporal.records_per_sample
    if temporal.calendar is not None or cadence.calendar.name != "standard":
        plain["calendar"] = cadence.calendar.name
    if temporal.outside != "error":
        plain["outside"] = temporal.outside
    if temporal.missing is not None:
        hold, other = temporal.missing.hold, temporal.missing.source
        plain["missing"] = {} if hold is None else {"hold": step(hold)}
        if other is not None:
            plain["missing"]["source"] = other.name
    return plain
