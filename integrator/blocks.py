"""A field spread over the ranks as one thing: gathered to one array, handed out from one, summed exactly.

What comes out depends on the values of the cells only, never on how many ranks hold them: sums are exactly
rounded, so that no order of adding is better than another. For reports, pictures and restart files; one
rank holds the whole field for a moment.
"""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING

import numpy as np

from .ranks import broadcast, wait

if TYPE_CHECKING:
    from mpi4py import MPI

    from earthsciio.fields import Array

    from .partition import Partition

__all__ = ["Blocks"]


class Blocks:
    """Moves float64 fields between one array on rank 0 and the owned cells of every rank.

    Every method is collective.

    Parameters
    ----------
    partition : Partition
        Who owns what.
    comm : mpi4py.MPI.Comm or None
        None for a single rank without MPI.
    """

    __slots__ = ("comm", "partition", "rank")

    def __init__(self, partition: Partition, comm: MPI.Comm | None = None) -> None:
        self.partition = partition
        self.comm = comm
        self.rank = 0 if comm is None else comm.Get_rank()

    def _checked(self, values: Array, shape: tuple[int, ...]) -> Array:
        # MPI takes C order and native float64 only, and reads anything else wrongly in silence
        array = np.ascontiguousarray(values, dtype=np.float64)
        if array.shape != shape:
            raise ValueError(f"rank {self.rank}: a field of shape {array.shape}, expected {shape}")
        return array

    def _counts(self) -> list[int]:
        return [int(np.prod(self.partition.block_shape(r))) for r in range(self.partition.ranks)]

    def gather(self, block: Array) -> Array | None:
        """Collect the owned cells of all ranks into the whole field on rank 0; None on the others."""
        mine = self._checked(block, self.partition.block_shape(self.rank))
        if self.comm is None:
            return mine.copy()
        if self.rank != 0:
            wait(self.comm.Igatherv(mine, None))
            return None
        counts = self._counts()
        joined = np.empty(sum(counts))
        wait(self.comm.Igatherv(mine, [joined, counts]))
        whole = np.empty(self.partition.shape)
        for rank, part in enumerate(np.split(joined, np.cumsum(counts)[:-1])):
            whole[self.partition.block(rank)] = part.reshape(self.partition.block_shape(rank))
        return whole

    def scatter(self, whole: Array | None) -> Array:
        """Give every rank its owned cells of the field that rank 0 passes; the others pass None."""
        shape = self.partition.block_shape(self.rank)
        if self.comm is None:
            assert whole is not None
            return self._checked(whole, self.partition.shape).copy()
        mine = np.empty(shape)
        if self.rank != 0:
            wait(self.comm.Iscatterv(None, mine))
            return mine
        assert whole is not None
        field = self._checked(whole, self.partition.shape)
        parts = [field[self.partition.block(rank)].ravel() for rank in range(self.partition.ranks)]
        wait(self.comm.Iscatterv([np.concatenate(parts), self._counts()], mine))
        return mine

    def total(self, block: Array) -> float:
        """Sum a field over all cells of all ranks, exactly rounded; the same float on every rank."""
        whole = self.gather(block)
        mine = None if whole is None else np.float64(fsum(whole.ravel().tolist())).tobytes()
        return float(np.frombuffer(broadcast(self.comm, mine))[0])
