"""How a model's blocks meet: every rank fills the halo of its frame from the ranks that own those cells.

Which cells go where follows from the boxes alone (:func:`pieces`): a piece is the overlap of one rank's
frame with another rank's owned cells, moved by whole periods along periodic dimensions. So boxes of any
sizes work, corners included, halos wider than a neighbour, and a rank that is its own neighbour. Each pair
of ranks exchanges one message, through buffers and persistent requests that are set up once.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from earthsciio.errors import DeclarationError

from .ranks import wait

if TYPE_CHECKING:
    from mpi4py import MPI

    from earthsciio.fields import Array

    from .partition import Partition

__all__ = ["HaloExchange", "pieces"]

_Slices: TypeAlias = tuple[slice, ...]


def pieces(partition: Partition, source: int, target: int) -> Iterator[tuple[_Slices, _Slices]]:
    """Give the cells `source` owns in the halo of `target`, as indices into the frames of the two.

    Both ranks see the same pieces in the same order. Cells beyond the end of a dimension that is not
    periodic are nobody's. Where the frame wraps onto a cell more than once, so do the pieces.
    """
    owned, frame = partition.boxes[source], partition.frame(target)
    home = partition.frame(source)
    periods = [
        range(low // dim.size, (high - 1) // dim.size + 1) if dim.periodic else range(1)
        for dim, (low, high) in zip(partition.dims, frame, strict=True)
    ]
    for period in product(*periods):
        if source == target and not any(period):
            continue  # the interior itself
        from_, to = [], []
        for dim, n, (start, stop), (low, high), (origin, _) in zip(
            partition.dims, period, owned, frame, home, strict=True
        ):
            shift = n * dim.size
            first, last = max(start + shift, low), min(stop + shift, high)
            from_.append(slice(first - shift - origin, last - shift - origin))
            to.append(slice(first - low, last - low))
        if all(part.start < part.stop for part in to):
            yield tuple(from_), tuple(to)


class _Mail:
    """The cells exchanged with one rank, and the buffer they travel in."""

    __slots__ = ("_cells", "_views", "buffer")

    def __init__(self, cells: list[_Slices], dtype: np.dtype[Any]) -> None:
        shapes = [tuple(part.stop - part.start for part in piece) for piece in cells]
        ends = np.cumsum([prod(shape) for shape in shapes])
        self.buffer = np.empty(int(ends[-1]), dtype)
        parts = np.split(self.buffer, ends[:-1])
        self._cells = cells
        self._views = [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    def pack(self, array: Array) -> None:
        for view, piece in zip(self._views, self._cells, strict=True):
            view[...] = array[piece]

    def unpack(self, array: Array) -> None:
        for view, piece in zip(self._views, self._cells, strict=True):
            array[piece] = view


class HaloExchange:
    """Fills the halo of arrays that have the shape of a rank's frame.

    Parameters
    ----------
    partition : Partition
        The grid; its ranks are those of `comm`.
    comm : mpi4py.MPI.Comm or None
        None for a single rank without MPI. Its duplicate is used: collective.
    leading : tuple of int
        Dimensions of the arrays before those of the partition (levels, tracers).
    dtype : dtype_like
        Element type of the arrays.

    Raises
    ------
    DeclarationError
        If the partition is for another number of ranks.
    """

    def __init__(
        self,
        partition: Partition,
        comm: MPI.Comm | None = None,
        *,
        leading: tuple[int, ...] = (),
        dtype: Any = np.float64,
    ) -> None:
        me, size = (0, 1) if comm is None else (comm.Get_rank(), comm.Get_size())
        if partition.ranks != size:
            raise DeclarationError(f"a partition for {partition.ranks} ranks on {size} of them")
        self._dtype = np.dtype(dtype)
        self._shape = leading + partition.frame_shape(me)
        whole = tuple(slice(0, n) for n in leading)
        self._local = [(whole + from_, whole + to) for from_, to in pieces(partition, me, me)]
        # messages of its own communicator can't be mistaken for those of a scatter or of another model
        self._comm = None if comm is None else comm.Dup()
        self._outgoing: list[_Mail] = []
        self._incoming: list[_Mail] = []
        self._requests: list[MPI.Prequest] = []
        for other in range(size):
            if self._comm is None or other == me:
                continue
            if cells := [whole + from_ for from_, _ in pieces(partition, me, other)]:
                mail = _Mail(cells, self._dtype)
                self._outgoing.append(mail)
                self._requests.append(self._comm.Send_init(mail.buffer, dest=other))
            if cells := [whole + to for _, to in pieces(partition, other, me)]:
                mail = _Mail(cells, self._dtype)
                self._incoming.append(mail)
                self._requests.append(self._comm.Recv_init(mail.buffer, source=other))

    def __call__(self, array: Array) -> None:
        """Fill the halo of `array` in place; collective over the neighbours.

        Cells beyond the end of a dimension that is not periodic keep what they hold.

        Parameters
        ----------
        array : numpy.ndarray
            Shape ``leading + frame``, of the declared dtype; any strides.
        """
        if array.shape != self._shape or array.dtype != self._dtype:
            raise ValueError(f"{array.dtype}{array.shape} is not a frame, {self._dtype}{self._shape}")
        if self._requests:
            from mpi4py import MPI

            for mail in self._outgoing:
                mail.pack(array)
            MPI.Prequest.Startall(self._requests)
        for from_, to in self._local:
            array[to] = array[from_]
        if self._requests:
            wait(self._requests)
            for mail in self._incoming:
                mail.unpack(array)

    def close(self) -> None:
        """Free requests and communicator; the exchange can't be used afterwards. Collective."""
        for request in self._requests:
            request.Free()
        self._requests.clear()
        if self._comm is not None:
            self._comm.Free()
            self._comm = None
