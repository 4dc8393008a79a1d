"""A file seen through Windows: what is the same for every record of it, worked out once.

That is the selectors per variable, and the coordinates that don't change from record to record. Small ones
are read once and shared, read-only, by all samples; large ones are decoded like fields, into memory that
somebody accounts for.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .contents import Contents, Variable
from .decode import ArrayRequest, BadChunk, DecodeOptions, decode_arrays
from .decode.abort import AbortToken
from .decode.plan import plan_reads
from .fields import Array, NativeField
from .forks import new_lock
from .formats.base import OpenFile
from .selection import AxesSelection, Points, Span, Window

__all__ = ["View", "Views"]

#: Bytes up to which a coordinate, through all Windows together, is kept.
_SMALL = 1 << 18
#: Views remembered per provider.
_REMEMBERED = 64

Selected = Mapping[str, tuple[Span | Points, ...]]


@dataclass(slots=True, eq=False)
class View:
    """One version of a file through K selections.

    Attributes
    ----------
    contents : Contents
        What the source delivers from the file.
    selections : tuple
        What was asked for.
    selected : tuple of mapping
        Per selection and variable, one selector per axis.
    """

    contents: Contents
    selections: tuple[Window | AxesSelection | None, ...]
    selected: tuple[Selected, ...]
    _kept: tuple[dict[str, NativeField], ...] | None = field(default=None, init=False)

    def _nbytes(self, name: str, variable: Variable) -> int:
        cells = sum(math.prod(map(len, axes[name])) for axes in self.selected)
        return cells * variable.spec.out.itemsize

    @property
    def _small(self) -> dict[str, Variable]:
        return {
            name: variable
            for name, variable in self.contents.coords.items()
            if variable.time_axis is None and self._nbytes(name, variable) <= _SMALL
        }

    @property
    def read_coords(self) -> dict[str, Variable]:
        """The coordinates to be decoded with every record."""
        small = self._small
        return {name: variable for name, variable in self.contents.coords.items() if name not in small}

    def kept_coords(
        self, file: OpenFile, abort: AbortToken, options: DecodeOptions
    ) -> tuple[tuple[dict[str, NativeField], ...], tuple[BadChunk, ...]]:
        """Give the other coordinates, per selection, and their bad chunks. From any thread.

        They are read the first time, by the same options as what is decoded with every record, and again as
        long as any of them came out as NaN: what can't be read now may be readable later.
        """
        kept = self._kept
        if kept is not None:
            return kept, ()
        kept, bad_chunks = self._read(file, abort, options)
        if not bad_chunks:
            self._kept = kept
        return kept, bad_chunks

    def _read(
        self, file: OpenFile, abort: AbortToken, options: DecodeOptions
    ) -> tuple[tuple[dict[str, NativeField], ...], tuple[BadChunk, ...]]:
        requests = []
        kept: tuple[dict[str, NativeField], ...] = tuple({} for _ in self.selected)
        arrays: list[Array] = []
        for name, variable in self._small.items():
            plan = plan_reads(
                variable.info.shape, variable.info.chunks, [axes[name] for axes in self.selected]
            )
            outs = tuple(np.empty(shape, variable.spec.out) for shape in plan.shapes)
            requests.append(ArrayRequest(variable.info, variable.spec, plan, outs))
            arrays += outs
            for fields, out in zip(kept, outs, strict=True):
                fields[name] = NativeField(out, variable.info.dims, variable.attrs)
        report = decode_arrays(file, requests, abort, options)
        for array in arrays:
            array.flags.writeable = False
        return kept, report.bad_chunks


class Views:
    """The views of a provider that are remembered; from any thread."""

    __slots__ = ("__weakref__", "_lock", "_views")

    def __init__(self) -> None:
        self._lock = new_lock(self)
        self._views: OrderedDict[tuple[Any, ...], View] = OrderedDict()

    def get(
        self, identity: tuple[Any, ...], selections: tuple[Window | AxesSelection | None, ...]
    ) -> View | None:
        """Give the view of a version of a file through some selections, if it is remembered."""
        with self._lock:
            view = self._views.get((identity, selections))
            if view is not None:
                self._views.move_to_end((identity, selections))
            return view

    def add(self, view: View) -> View:
        """Remember a view; another thread's comes first."""
        key = (view.contents.identity, view.selections)
        with self._lock:
            view = self._views.setdefault(key, view)
            while len(self._views) > _REMEMBERED:
                self._views.popitem(last=False)
            return view
