"""Standing in for missing files: what is decided once, what must agree, and what is said about it.

Which sample stands in is a question of times, and answered by :class:`~earthsciio.series.FileSeries`. Here is
what it takes to do so safely. :class:`Presence` finds out once whether a file exists, so that no later look
changes a value. :class:`Grids` refuses another source whose grid is not the source's own. :class:`Notices`
makes sure that nobody misses it.
"""

from __future__ import annotations

import math
import warnings
from copy import copy
from dataclasses import dataclass
from typing import Final

import numpy as np

from .cache import Cache
from .cache.absence import is_path_absent, says_absent
from .cache.redact import redact
from .contents import Contents
from .decode import ArrayRequest, decode_arrays
from .decode.abort import AbortToken
from .decode.plan import plan_reads
from .errors import EarthSciIOError, EarthSciIOWarning, FileFormatError, MissingFile
from .fields import Array
from .filelist import SourceFile
from .forks import new_lock
from .formats.base import OpenFile
from .memory import check_size
from .records import Resolved
from .selection import Span

__all__ = ["Absent", "Grids", "Notices", "Presence", "missing_file"]

#: Two grids are the same if their coordinates agree to this part of the smallest spacing.
_TOLERANCE: Final = 1e-3


def missing_file(path: str, source: str) -> MissingFile:
    """Give the error about a local file that is not there."""
    return MissingFile(
        "there is no such file", file=path, source=source,
        hint="Check the URL template, or whether the file has been produced yet",
    )  # fmt: skip


class Absent(Exception):
    """A file for which something stands in does not exist; the series gives what does, or raises `error`.

    Attributes
    ----------
    start : int
        Start of its period.
    error : EarthSciIOError
        What to raise if nothing does stand in.
    """

    def __init__(self, start: int, error: EarthSciIOError) -> None:
        super().__init__(start, error)
        self.start = start
        self.error = error


class Presence:
    """Which files of a series exist, found out once for each; from any thread."""

    __slots__ = ("__weakref__", "_errors", "_lock")

    def __init__(self) -> None:
        self._lock = new_lock(self)
        self._errors: dict[int, EarthSciIOError | None] = {}

    def path(self, file: SourceFile, cache: Cache, abort: AbortToken | None) -> str:
        """Give the local path of a file, brought into the cache if need be.

        Raises
        ------
        Absent
            If it did not exist when it was first looked for.
        FetchError
            If it can't be had, and is not known not to exist; or if it existed, and exists no more.
        """
        start = file.start
        assert start is not None
        if self._errors.get(start) is None:
            try:
                path = _path(file, cache, abort)
            except EarthSciIOError as error:
                if not (says_absent(error) or isinstance(error, MissingFile)) or self._is_there(start, error):
                    raise
            else:
                if self._is_there(start, None):
                    return path
        known = self._errors[start]
        assert known is not None
        raise Absent(start, copy(known))

    def _is_there(self, start: int, error: EarthSciIOError | None) -> bool:
        """Note what was found, unless another thread came first; say what counts."""
        # a copy: what is raised gathers tracebacks, and they keep all they saw alive
        with self._lock:
            return self._errors.setdefault(start, copy(error)) is None


def _path(file: SourceFile, cache: Cache, abort: AbortToken | None) -> str:
    if not file.in_place:
        return str(file.fetch(cache, abort=abort).path)
    try:
        absent = is_path_absent(file.url)
    except OSError:
        absent = False  # whoever opens it will see
    if absent:
        raise missing_file(file.url, file.source)
    return file.url


@dataclass(frozen=True, slots=True)
class _Grid:
    """What must be alike: the dimensions of the fields but time, and the coordinates along them."""

    path: str
    dims: dict[str, tuple[tuple[str, int], ...]]
    coords: dict[str, Array]

    def difference(self, other: _Grid) -> str | None:
        if self.dims.keys() != other.dims.keys():
            return f"the fields are {list(self.dims)}, not {list(other.dims)} as"
        for name, dims in self.dims.items():
            if dims != other.dims[name]:
                return f"{name!r} has the dimensions {dict(dims)}, not {dict(other.dims[name])} as"
        for name in self.coords.keys() & other.coords.keys():
            if not _agree(self.coords[name], other.coords[name]):
                return f"the coordinate {name!r} has other values than"
        return None


class Grids:
    """The grids of a source and of those that stand in for it; from any thread."""

    __slots__ = ("__weakref__", "_lock", "_seen")

    def __init__(self) -> None:
        self._lock = new_lock(self)
        self._seen: dict[str, _Grid] = {}

    def check(self, source: str, path: str, file: OpenFile, contents: Contents) -> None:
        """Compare the first file of each source with those of the others.

        Raises
        ------
        FileFormatError
            If dimensions or one-dimensional coordinates differ, naming both files.
        """
        with self._lock:
            if source in self._seen:
                return
            grid = _grid(path, file, contents)
            for other in self._seen.values():
                difference = grid.difference(other)
                if difference is not None:
                    raise FileFormatError(
                        f"{difference} in {other.path}, so that one can't stand in for the other",
                        file=path, hint="Let a source on the same grid stand in",
                    )  # fmt: skip
            self._seen[source] = grid


def _grid(path: str, file: OpenFile, contents: Contents) -> _Grid:
    dims = {
        name: tuple(
            zip(variable.drop_time(variable.info.dims), variable.drop_time(variable.info.shape), strict=True)
        )
        for name, variable in contents.fields.items()
    }
    coords: dict[str, Array] = {}
    requests = []
    for name, variable in contents.coords.items():
        if len(variable.info.dims) == 1 and variable.time_axis is None:
            plan = plan_reads(
                variable.info.shape, variable.info.chunks, [[Span(0, n) for n in variable.info.shape]]
            )
            nbytes = math.prod(variable.info.shape) * variable.spec.out.itemsize
            check_size(nbytes, file=path, variable=name)
            coords[name] = np.empty(variable.info.shape, variable.spec.out)
            requests.append(ArrayRequest(variable.info, variable.spec, plan, (coords[name],)))
    decode_arrays(file, requests, AbortToken())
    return _Grid(path, dims, coords)


def _agree(one: Array, other: Array) -> bool:
    if one.shape != other.shape:
        return False
    if one.dtype.kind not in "iuf" or other.dtype.kind not in "iuf":
        return np.array_equal(one, other)
    ours, theirs = one.astype("f8"), other.astype("f8")
    steps = np.abs(np.diff(ours))
    spacing = np.nanmin(steps[steps > 0], initial=np.inf)
    if not np.isfinite(spacing):  # a single point
        spacing = np.abs(np.nan_to_num(ours)).max(initial=0.0)
    return np.allclose(ours, theirs, rtol=0, atol=_TOLERANCE * spacing, equal_nan=True)


class Notices:
    """Tells that something stands in: a warning once per missing file, and whatever is new to the cache.

    Parameters
    ----------
    cache : Cache
        Keeps the provenance, and has listeners.
    """

    __slots__ = ("__weakref__", "_cache", "_lock", "_told")

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._lock = new_lock(self)
        self._told: dict[tuple[str, str], set[str]] = {}

    def tell(self, resolved: Resolved) -> None:
        """Tell it of a sample; quick where there is nothing to tell."""
        stand_ins = list(dict.fromkeys(record.url for record in resolved.records))
        for source, url in resolved.missing:
            with self._lock:
                told = self._told.setdefault((source, url), set())
                is_first, is_new = not told, not told.issuperset(stand_ins)
                told.update(stand_ins)
            if is_new:
                self._cache.note_substitute(source, url, stand_ins)
            if is_first:
                others = ", ".join(redact(other) for other in stand_ins)
                warnings.warn(
                    f"{source}: {redact(url)} does not exist; {others} stands in at {resolved.anchor}",
                    EarthSciIOWarning,
                    stacklevel=5,  # the caller of sample_at
                )
