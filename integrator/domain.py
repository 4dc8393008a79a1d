"""The part of its files' grid that a case runs on: rows, columns and levels, by the ``window`` of its model.

A model and its partition count cells from 0; the files count their own. A :class:`Domain` knows both, and
gives the Window of the files that a rank's Window of the model stands for.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from earthsciio.errors import DeclarationError
from earthsciio.fields import Array
from earthsciio.selection import Window

from .models.tracer import Grid

__all__ = ["Domain", "neighbours"]

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Domain:
    """Which rows, columns and levels of the files the model runs on.

    Attributes
    ----------
    whole : dict of str to numpy.ndarray, shape (n,)
        Latitudes and longitudes of the files in degrees, by the names of the dimensions, latitude first,
        without a meridian that is stored twice.
    cells : dict of str to numpy.ndarray of int
        By the same names, the rows and columns that the model has: neighbours, in the order of the files;
        columns may run across the files' end.
    levels : dict of str to Window
        By source, the levels its winds are taken from, where not all of them are.
    """

    whole: dict[str, Array]
    cells: dict[str, Indices] = field(default_factory=dict)
    levels: dict[str, Window] = field(default_factory=dict)

    def __post_init__(self) -> None:
        every = {dim: np.arange(axis.size) for dim, axis in self.whole.items()}
        object.__setattr__(self, "cells", {**every, **self.cells})

    @property
    def axes(self) -> dict[str, Array]:
        """The coordinates of the model's cells, degrees."""
        return {dim: axis[self.cells[dim]] for dim, axis in self.whole.items()}

    @property
    def is_cut(self) -> bool:
        """Whether the model runs on fewer cells than the files have."""
        return any(self.cells[dim].size < axis.size for dim, axis in self.whole.items())

    def grid(self, wall: float = 90.0) -> Grid:
        """Give the model's grid."""
        lat, lon = self.whole.values()
        rows, columns = self.cells.values()
        return Grid(lat, lon, wall=wall).part((int(rows[0]), int(rows[-1]) + 1), columns)

    def window(self, source: str, cells: Window) -> Window:
        """Give the Window of a source that a Window of the model's cells stands for."""
        moved = {dim: _moved(cells, dim, within) for dim, within in self.cells.items()}
        return Window({**cells, **moved, **self.levels.get(source, {})})


def _moved(cells: Window, dim: str, within: Indices) -> tuple[int, int] | list[int]:
    selector = cells.selector(dim)
    indices = within if selector is None else within[selector.indices()]
    if indices.size and np.all(np.diff(indices) == 1):
        return int(indices[0]), int(indices[-1]) + 1
    return [int(index) for index in indices]


def neighbours(window: Window, dim: str, stored: int, size: int, *, wraps: bool) -> Indices:
    """Give the cells that a Window selects of a dimension, if they are neighbours.

    Parameters
    ----------
    window : Window
        Of the files.
    dim : str
        The dimension.
    stored : int
        Its length in the files; one more than `size` where a meridian is stored twice.
    size : int
        Number of cells.
    wraps : bool
        Whether the first cell follows the last.

    Raises
    ------
    SelectionRangeError
        If it selects what the files don't have.
    DeclarationError
        If the cells are fewer than two, or not one run.
    """
    selector = window.selector(dim)
    if selector is None:
        return np.arange(size)
    selector.check(dim, stored)
    cells = selector.indices()
    if wraps:
        cells = cells[:-1] % size if len(cells) == size + 1 else cells % size
    steps = np.diff(cells)
    run = np.all((steps % size == 1) if wraps else (steps == 1))
    if len(cells) < 2 or len(cells) > size or not run:
        raise DeclarationError(
            f"a region is a run of at least 2 neighbouring cells of {dim!r}",
            hint="Write {slice: [start, stop]}" + (", or indices across the files' end" if wraps else ""),
        )
    return cells
