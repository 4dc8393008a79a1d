"""Which rank owns which cells, and which Window of the forcing it needs: pure index arithmetic, no MPI.

A :class:`Partition` cuts a grid of named dimensions into one box of cells per rank. Three index ranges
matter to a rank. Its *owned* cells, which no other rank has. Its *frame*: the owned box with the halo on
every side, unclipped and unwrapped, so that frames of all ranks look alike and a stencil needs no special
case at an edge; model arrays have the frame's shape. And its *Window*: the part of the frame that exists in
the file, clipped where a dimension ends and wrapped where it is periodic; this is what it asks a provider
for, and :meth:`Partition.placement` says where it goes in the frame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from earthsciio.errors import DeclarationError
from earthsciio.selection import Window

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["Box", "Dim", "Faces", "IndexPartition", "NodeGroups", "Partition", "node_groups"]

#: ``(start, stop)`` along each dimension.
Box: TypeAlias = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Dim:
    """One dimension of the grid.

    Attributes
    ----------
    name : str
        Its name in the files.
    size : int
        Number of cells, at least 1.
    periodic : bool
        Whether the first cell follows the last.
    halo : (int, int)
        Cells a rank needs beyond its own, before and after.
    """

    name: str
    size: int
    periodic: bool = False
    halo: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        if self.size < 1:
            raise DeclarationError(f"dimension {self.name!r} has {self.size} cells, needs at least 1")
        if min(self.halo) < 0:
            raise DeclarationError(f"the halo {self.halo} of {self.name!r} is negative")


@dataclass(frozen=True, slots=True)
class Faces:
    """A staggered dimension: the faces between the cells of another one.

    Face ``f`` lies before cell ``f``; a rank that owns cells ``[a, b)`` needs the faces ``a`` to ``b``, both
    included, so neighbours share one.

    Attributes
    ----------
    name : str
        Its name in the files.
    of : str
        The dimension of the cells.
    size : int
        Faces in the file: one more than cells; on a periodic dimension also as many as cells, where the
        closing face is not stored a second time.
    """

    name: str
    of: str
    size: int

    def indices(self, cells: Dim, start: int, stop: int) -> tuple[int, int] | list[int]:
        """Give the selector of the faces of the owned cells ``[start, stop)`` and of their halo."""
        first, last = start - cells.halo[0], stop + cells.halo[1]
        if not cells.periodic:
            return max(first, 0), min(last + 1, self.size)
        wrapped = [f if 0 <= f < self.size else f % cells.size for f in range(first, last + 1)]
        return wrapped if wrapped != list(range(first, last + 1)) else (first, last + 1)


@dataclass(frozen=True, slots=True)
class Partition:
    """A grid cut into one box per rank by recursive bisection.

    The longest side is halved again and again, cells in proportion to the ranks of each half. That works for
    every number of ranks up to the number of cells (a regular ``m x n`` cut has none for, say, 7 ranks on
    3 x 4 cells), keeps boxes close to square and equal, and gives neighbouring ranks, which usually share a
    node, neighbouring boxes.

    Parameters
    ----------
    dims : sequence of Dim
        The dimensions that are cut, in the order of the model's arrays.
    ranks : int
        Number of ranks; at least 1, at most the number of cells.
    faces : sequence of Faces
        Staggered dimensions whose selectors :meth:`window` adds.

    Raises
    ------
    DeclarationError
        If a rank would own nothing, or the dimensions contradict each other.

    Examples
    --------
    >>> globe = (Dim("lat", 73, halo=(1, 1)), Dim("lon", 144, periodic=True, halo=(1, 1)))
    >>> partition = Partition(globe, ranks=2)
    >>> partition.owned(0)
    {'lat': (0, 73), 'lon': (0, 72)}
    >>> partition.window(0)["lon"][:3]
    [143, 0, 1]
    """

    dims: tuple[Dim, ...]
    ranks: int
    faces: tuple[Faces, ...] = ()
    boxes: tuple[Box, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dims", tuple(self.dims))
        object.__setattr__(self, "faces", tuple(self.faces))
        names = [dim.name for dim in self.dims] + [face.name for face in self.faces]
        if not self.dims or len(set(names)) != len(names):
            raise DeclarationError(f"a partition needs dimensions of different names, not {names}")
        cells = prod(dim.size for dim in self.dims)
        if not 1 <= self.ranks <= cells:
            raise DeclarationError(
                f"can't share {cells} cells among {self.ranks} ranks", sizes=self.sizes,
                hint=f"Use 1 to {cells} ranks",
            )  # fmt: skip
        by_name = {dim.name: dim for dim in self.dims}
        for face in self.faces:
            of = by_name.get(face.of)
            if of is None:
                raise DeclarationError(f"{face.name!r} are faces of {face.of!r}, which is not partitioned")
            if face.size != of.size + 1 and not (of.periodic and face.size == of.size):
                raise DeclarationError(
                    f"{face.size} faces {face.name!r} don't fit {of.size} cells {of.name!r}"
                )
        whole = tuple((0, dim.size) for dim in self.dims)
        object.__setattr__(self, "boxes", tuple(_bisect(whole, self.ranks)))

    @property
    def sizes(self) -> dict[str, int]:
        """Cells along each dimension of the whole grid."""
        return {dim.name: dim.size for dim in self.dims}

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole grid."""
        return tuple(dim.size for dim in self.dims)

    def owned(self, rank: int) -> dict[str, tuple[int, int]]:
        """Give the cells of a rank: ``(start, stop)`` of each dimension."""
        return {dim.name: side for dim, side in zip(self.dims, self.boxes[rank], strict=True)}

    def block(self, rank: int) -> tuple[slice, ...]:
        """Give the owned cells as an index into an array of the whole grid."""
        return tuple(slice(start, stop) for start, stop in self.boxes[rank])

    def block_shape(self, rank: int) -> tuple[int, ...]:
        """Shape of an array of the owned cells."""
        return tuple(stop - start for start, stop in self.boxes[rank])

    def frame(self, rank: int) -> Box:
        """Give the owned cells and their halo; may reach below 0 and past the end of a dimension."""
        return tuple(
            (start - dim.halo[0], stop + dim.halo[1])
            for dim, (start, stop) in zip(self.dims, self.boxes[rank], strict=True)
        )

    def frame_shape(self, rank: int) -> tuple[int, ...]:
        """Shape of an array of the frame."""
        return tuple(stop - start for start, stop in self.frame(rank))

    def interior(self, rank: int) -> tuple[slice, ...]:
        """Give the owned cells as an index into an array of the frame."""
        return tuple(
            slice(dim.halo[0], dim.halo[0] + n)
            for dim, n in zip(self.dims, self.block_shape(rank), strict=True)
        )

    def placement(self, rank: int) -> tuple[slice, ...]:
        """Give the place of the Window's cells as an index into an array of the frame."""
        return tuple(
            slice(0, stop - start) if dim.periodic else slice(max(-start, 0), min(stop, dim.size) - start)
            for dim, (start, stop) in zip(self.dims, self.frame(rank), strict=True)
        )

    def window(self, rank: int) -> Window:
        """Give what a rank asks a provider for: its frame, clipped or wrapped, and the faces of its cells.

        On a periodic dimension the frame may be longer than the dimension; indices then repeat.
        """
        owned = self.owned(rank)
        cells = Window(owned).grow(
            {dim.name: dim.halo for dim in self.dims},
            sizes=self.sizes,
            periodic=[dim.name for dim in self.dims if dim.periodic],
        )
        by_name = {dim.name: dim for dim in self.dims}
        staggered = {face.name: face.indices(by_name[face.of], *owned[face.of]) for face in self.faces}
        return Window({**cells, **staggered})


def _bisect(box: Box, ranks: int) -> list[Box]:
    """Cut a box into `ranks` non-empty boxes; the caller sees to it that it has that many cells."""
    if ranks == 1:
        return [box]
    lengths = [stop - start for start, stop in box]
    axis = lengths.index(max(lengths))
    start, stop = box[axis]
    length = lengths[axis]
    first = ranks // 2
    at = min(max(round(length * first / ranks), 1), length - 1)
    # where cells are scarce, the proportional share of ranks may exceed the cells of a half
    section = prod(lengths) // length
    first = min(max(first, ranks - section * (length - at)), section * at)
    low = (*box[:axis], (start, start + at), *box[axis + 1 :])
    high = (*box[:axis], (start + at, stop), *box[axis + 1 :])
    return _bisect(low, first) + _bisect(high, ranks - first)


class IndexPartition:
    """Cells of an unstructured grid, shared out as index lists.

    Parameters
    ----------
    dim : str
        Name of the cell dimension in the files.
    owner : array_like of int, shape (cells,)
        The rank of each cell; every rank from 0 to the largest owns at least one.
    neighbours : array_like of int, shape (cells, k), optional
        Neighbouring cells of each cell, padded with negative numbers. Needed for a halo.
    halo : int
        Rings of neighbours that a rank needs beyond its own cells.

    Raises
    ------
    DeclarationError
        If a rank owns nothing, or the neighbours are missing or not cells of the grid.
    """

    __slots__ = ("_halos", "_owned", "dim")

    def __init__(
        self, dim: str, owner: npt.ArrayLike, *, neighbours: npt.ArrayLike | None = None, halo: int = 0
    ) -> None:
        owners = np.asarray(owner)
        if owners.ndim != 1 or owners.size == 0 or owners.dtype.kind not in "iu" or owners.min() < 0:
            raise DeclarationError(f"owner of {dim!r} must hold one rank, from 0 on, per cell")
        self.dim = dim
        self._owned = [np.flatnonzero(owners == rank) for rank in range(int(owners.max()) + 1)]
        empty = [rank for rank, cells in enumerate(self._owned) if not cells.size]
        if empty:
            raise DeclarationError(f"rank {empty[0]} owns no cell of {dim!r}")
        if halo < 0 or (halo and neighbours is None):
            raise DeclarationError(
                f"a halo of {halo} rings on {dim!r} needs neighbours and can't be negative"
            )
        table = np.empty((owners.size, 0), np.int64) if neighbours is None else np.asarray(neighbours)
        if table.ndim != 2 or len(table) != owners.size or (table.size and table.max() >= owners.size):
            raise DeclarationError(
                f"neighbours of {dim!r} must be (cells, k) cell numbers, {owners.size} cells"
            )
        self._halos = [_rings(cells, table, halo) for cells in self._owned]

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self._owned)

    def owned(self, rank: int) -> npt.NDArray[np.int64]:
        """Give the cells of a rank, ascending."""
        return self._owned[rank]

    def halo(self, rank: int) -> npt.NDArray[np.int64]:
        """Give the halo cells of a rank, ascending."""
        return self._halos[rank]

    def window(self, rank: int) -> Window:
        """Give what a rank asks a provider for: its own cells, then its halo."""
        return Window({self.dim: np.concatenate([self._owned[rank], self._halos[rank]])})


def _rings(
    cells: npt.NDArray[np.int64], neighbours: npt.NDArray[np.int64], rings: int
) -> npt.NDArray[np.int64]:
    """Give the cells within `rings` steps of `cells`, without these."""
    reached = np.zeros(len(neighbours), dtype=bool)
    reached[cells] = True
    front = cells
    for _ in range(rings):
        near = neighbours[front]
        near = np.unique(near[near >= 0])
        front = near[~reached[near]]
        reached[front] = True
    reached[cells] = False
    return np.flatnonzero(reached)


@dataclass(frozen=True, slots=True)
class NodeGroups:
    """The ranks of a communicator, by the node (shared-memory domain) they run on.

    Attributes
    ----------
    comm : mpi4py.MPI.Comm
        The ranks of this node, in the order of the parent communicator. Free it when done.
    groups : tuple of tuple of int
        Ranks of the parent communicator, one tuple per node, ascending; nodes by their first rank.
    mine : int
        Which of `groups` this rank is in.
    """

    comm: MPI.Comm
    groups: tuple[tuple[int, ...], ...]
    mine: int


def node_groups(comm: MPI.Comm) -> NodeGroups:
    """Find out which ranks share a node with which; collective over `comm`."""
    from mpi4py import MPI

    from .ranks import wait

    node = comm.Split_type(MPI.COMM_TYPE_SHARED, key=comm.Get_rank())
    # a node is known by the lowest of its ranks
    first = np.array([comm.Get_rank()], dtype=np.int64)
    leader, leaders = np.empty(1, np.int64), np.empty(comm.Get_size(), np.int64)
    wait(node.Iallreduce(first, leader, op=MPI.MIN))
    wait(comm.Iallgather(leader, leaders))
    return NodeGroups(node, *_grouped(leaders.tolist(), int(leader[0])))


def _grouped(leaders: Sequence[int], mine: int) -> tuple[tuple[tuple[int, ...], ...], int]:
    """Sort ranks by their leaders; also give the position of the group led by `mine`."""
    groups: Mapping[int, list[int]] = {leader: [] for leader in sorted(set(leaders))}
    for rank, leader in enumerate(leaders):
        groups[leader].append(rank)
    return tuple(map(tuple, groups.values())), list(groups).index(mine)
