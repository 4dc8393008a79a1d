"""What a run cost, in the terms of design section "Speed", collected from all ranks."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .ranks import maximum, share_objects
from .sweep import SweepReport

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["Figures", "figures_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a run cost; seconds are the slowest rank's.

    Attributes
    ----------
    ranks, epochs, takes : int
        Ranks, epochs of the case, and epochs taken, replays counted.
    decode_s : float
        Seconds of decoding, summed over the workers of all readers.
    waited_s, first_wait_s : float
        Seconds in ``take``, the first one's apart.
    compute_s, total_s : float
        Seconds in the model, and of the sweep.
    records, bytes_decoded : int
        Records decoded and bytes they became, per node.
    compute_alone_s, decode_alone_s : float or None
        The reference runs, where they were made.
    """

    ranks: int
    epochs: int
    takes: int
    decode_s: float
    waited_s: float
    first_wait_s: float
    compute_s: float
    total_s: float
    records: int
    bytes_decoded: int
    compute_alone_s: float | None = None
    decode_alone_s: float | None = None

    @property
    def au(self) -> float | None:
        """``compute_alone / total``, the first take's wait left out of `total`."""
        if self.compute_alone_s is None:
            return None
        return self.compute_alone_s / (self.total_s - self.first_wait_s)

    @property
    def hidden(self) -> float | None:
        """``1 - (total - compute_alone) / decode_sync_alone``; None where decode is under 10 % of compute."""
        if self.compute_alone_s is None or not self.decode_alone_s:
            return None
        if self.decode_alone_s < 0.1 * self.compute_alone_s:
            return None
        return 1 - (self.total_s - self.first_wait_s - self.compute_alone_s) / self.decode_alone_s


def figures_of(comm: MPI.Intracomm | None, report: SweepReport, stats: Any, epochs: int) -> Figures:
    """Collect the figures of a sweep from all ranks; collective."""
    slowest = maximum(
        comm,
        np.array([report.waited - report.first_wait, report.first_wait, report.computed, report.total]),
    )
    mine = (0.0, 0, 0) if stats is None else (stats.decode_s, stats.records_decoded, stats.bytes_out)
    everywhere = share_objects(comm, (socket.gethostname(), mine))
    nodes = len({host for host, _ in everywhere})
    decode_s, records, decoded = (sum(column) for column in zip(*(row for _, row in everywhere), strict=True))
    return Figures(
        ranks=1 if comm is None else comm.Get_size(),
        epochs=epochs,
        takes=report.epochs,
        decode_s=decode_s,
        waited_s=float(slowest[0]),
        first_wait_s=float(slowest[1]),
        compute_s=float(slowest[2]),
        total_s=float(slowest[3]),
        records=round(records / nodes),
        bytes_decoded=round(decoded / nodes),
    )
