"""What the runner asks of an implementation, and the adapter of this library.

Wrap another implementation in an object with these calls and name it: ``python -m corpus.run
--implementation my_package.my_module:MyAdapter`` (a callable without arguments). Everything that goes in is
plain JSON data; a *sample* comes out as ``(times, fields, coords)``:

- `times`: stamps of its records, as text ``2020-01-31T12:00:00`` (with ``.ffffff`` if there is a fraction);
- `fields`, `coords`: mapping of name to ``(dims, array, attrs)``: a sequence of text, a NumPy array (text as
  an object array of str), a mapping of attributes (text, list of text, NumPy scalars or 1-D arrays).

A *source* is the mapping of the case file, with absolute paths in `url` and ``cache.root``, and its name
under ``name``. Errors are raised; their classes, or a base of theirs, must have the name that the case gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

from earthsciio import Cache, DataSource, NativeDataset, NativeField, Provider, SourceTemporal
from earthsciio.fields import Time
from earthsciio.prefetch import PrefetchGroup
from earthsciio.source import parse_time

__all__ = ["EarthSciIO", "Field", "Group", "Implementation", "Plain", "Source"]

Source: TypeAlias = Mapping[str, Any]
Field: TypeAlias = tuple[Sequence[str], Any, Mapping[str, Any]]
Plain: TypeAlias = tuple[Sequence[str], Mapping[str, Field], Mapping[str, Field]]


class Group(Protocol):
    """Samples of several sources in a declared order."""

    def boundaries(self) -> list[str]:
        """Give when each epoch begins."""

    def start(self, order: str | list[int], from_: int | None) -> None:
        """Declare the order, beginning at the first slot of an epoch if one is given."""

    def take(self, k: int) -> Mapping[str, tuple[str, bool, Sequence[Plain]]]:
        """Give per member the anchor, whether it changed, and the sample through each Window."""

    def cancel(self) -> None:
        """Drop the order."""


class Implementation(Protocol):
    """What is under test."""

    def sample(self, source: Source, t: str | None, select: Mapping[str, Any] | None) -> Plain:
        """Read the sample in force at `t` (None: of a constant), through a selection if there is one."""

    def sample_windows(self, source: Source, t: str, windows: Sequence[Mapping[str, Any]]) -> list[Plain]:
        """Read it through several Windows at once."""

    def refresh(self, source: Source, t: str, select: Mapping[str, Any] | None) -> Plain:
        """Read it into the provider's buffers (`select`: a peek); the same values."""

    def times(self, source: Source) -> list[str]:
        """Give the anchors from the declared start to the declared end."""

    def group(
        self,
        members: Mapping[str, Source],
        *,
        windows: Sequence[Mapping[str, Any]] | None,
        clip: tuple[str, str] | None,
        depth: int,
        workers: int,
        max_bytes: int | None,
        delay: Callable[[], None] | None,
    ) -> AbstractContextManager[Group]:
        """Make a group. `delay` is called once per decoded sample where it is decoded, and takes its time."""


class EarthSciIO:
    """The library of this project."""

    def _provider(self, source: Source, select: Mapping[str, Any] | None = None) -> Provider:
        temporal = source.get("temporal")
        cache = source.get("cache")
        options = dict(source.get("options", {}))
        if select is not None:
            options["select"] = select
        declared = DataSource(
            source["name"],
            source["format"],
            source["url"],
            tuple(source.get("variables", ())),
            None if temporal is None else SourceTemporal(**temporal),
            reader_kwargs=options,
        )
        return Provider(declared, None if cache is None else Cache(**cache))

    def sample(self, source: Source, t: str | None, select: Mapping[str, Any] | None) -> Plain:
        """See :class:`Implementation`."""
        if t is None:
            return _plain(self._provider(source, select).materialize())
        provider = self._provider(source)
        bound = provider if select is None else provider.with_window(select)
        return _plain(bound.sample_at(parse_time(t, provider.calendar)))

    def sample_windows(self, source: Source, t: str, windows: Sequence[Mapping[str, Any]]) -> list[Plain]:
        """See :class:`Implementation`."""
        provider = self._provider(source)
        return [
            _plain(each) for each in provider.sample_windows_at(parse_time(t, provider.calendar), windows)
        ]

    def refresh(self, source: Source, t: str, select: Mapping[str, Any] | None) -> Plain:
        """See :class:`Implementation`."""
        provider = self._provider(source)
        return _plain(provider.refresh(parse_time(t, provider.calendar), select))

    def times(self, source: Source) -> list[str]:
        """See :class:`Implementation`."""
        return [_text(t) for t in self._provider(source).refresh_times()]

    def group(
        self,
        members: Mapping[str, Source],
        *,
        windows: Sequence[Mapping[str, Any]] | None,
        clip: tuple[str, str] | None,
        depth: int,
        workers: int,
        max_bytes: int | None,
        delay: Callable[[], None] | None,
    ) -> AbstractContextManager[Group]:
        """See :class:`Implementation`."""
        providers = {key: self._provider(source) for key, source in members.items()}
        calendar = next(iter(providers.values())).calendar
        start, end = (None, None) if clip is None else (parse_time(t, calendar) for t in clip)

        def late(key: str, sample: NativeDataset) -> NativeDataset:  # noqa: ARG001 - the transform's signature
            if delay is not None:
                delay()
            return sample

        return _Group(
            PrefetchGroup(
                providers, depth=depth, workers=workers, max_bytes=max_bytes, windows=windows,
                clip=(start, end), transform=None if delay is None else late,
            )
        )  # fmt: skip


class _Group(AbstractContextManager[Group]):
    """A PrefetchGroup as the runner knows one."""

    def __init__(self, group: PrefetchGroup) -> None:
        self._group = group

    def boundaries(self) -> list[str]:
        return [_text(t) for t in self._group.boundaries()]

    def start(self, order: Any, from_: int | None) -> None:
        self._group.start(order, from_=from_)

    def take(self, k: int) -> dict[str, tuple[str, bool, list[Plain]]]:
        taken = {}
        for key, sample in self._group.take(k).items():
            several = sample.data if isinstance(sample.data, tuple) else (sample.data,)
            taken[key] = (_text(sample.anchor), sample.changed, [_plain(each) for each in several])
        return taken

    def cancel(self) -> None:
        self._group.cancel()

    def __exit__(self, *_: object) -> None:
        self._group.close()


def _plain(dataset: NativeDataset) -> Plain:
    def plain(fields: Mapping[str, NativeField]) -> dict[str, Field]:
        return {name: (field.dims, field.data, field.attrs) for name, field in fields.items()}

    return [_text(t) for t in dataset.times], plain(dataset.variables), plain(dataset.coords)


def _text(t: Time) -> str:
    fraction = f".{t.microsecond:06d}" if t.microsecond else ""
    return f"{t.year:04d}-{t.month:02d}-{t.day:02d}T{t.hour:02d}:{t.minute:02d}:{t.second:02d}{fraction}"
