"""Where a rank's forcing comes from: its own group, or the node's reader, which decodes once for all.

:func:`open_forcing` gives every rank the same :class:`~integrator.forcing.Forcing`, whichever way the bytes
go. With ``mode="own"`` each rank decodes its own Window. With ``mode="root"`` one rank per node decodes the
Windows of all its ranks in one PrefetchGroup, each touched chunk once, and sends every rank its own
(:mod:`integrator.parcels`). Before any data move, the readers agree that none of them failed; their ranks
learn it from what they are sent. Ranks that wait for the reader sleep.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from earthsciio.decode.threads import default_decode_threads, set_decode_threads
from earthsciio.errors import DeclarationError, GroupStateError, OrderError, Unsupported
from earthsciio.fields import Array, NativeDataset, NativeField, Time
from earthsciio.prefetch import EpochSample, PrefetchGroup, Sample
from earthsciio.selection import Window

from . import leaving
from .forcing import EpochOrder
from .parcels import Parcel, Receiver, Sender, entries, freeze, per_window
from .partition import node_groups
from .ranks import agreed, broadcast, gather

if TYPE_CHECKING:
    from mpi4py import MPI

    from earthsciio.provider import Provider

__all__ = ["OwnForcing", "ReaderForcing", "ScatterMode", "check_mode", "open_forcing"]

ScatterMode: TypeAlias = Literal["auto", "own", "root", "node"]


def open_forcing(
    members: Mapping[str, Provider],
    window: Window | Mapping[str, Window],
    comm: MPI.Intracomm | None = None,
    *,
    mode: ScatterMode = "auto",
    poison: bool = False,
    decode_threads: int | None = None,
    **group: Any,
) -> OwnForcing | ReaderForcing:
    """Open the forcing of this rank; collective over `comm`.

    Parameters
    ----------
    members : mapping of str to Provider
        DISCRETE providers without a selection; the same on every rank.
    window : Window, or mapping of str to Window
        What this rank needs of every member, or of each.
    comm : mpi4py.MPI.Intracomm or None
        None for a single rank without MPI.
    mode : {"auto", "own", "root", "node"}
        Who decodes; "auto" is "root" where ranks share a node, else "own".
    poison : bool
        Debugging aid: overwrite what was handed out when it is released, so that a late reader shows.
    decode_threads : int, optional
        Threads that decode in one process. By default a reader uses all cores it may, and ranks that each
        decode share them.
    **group
        Options of :class:`~earthsciio.prefetch.PrefetchGroup`.

    Raises
    ------
    DeclarationError
        If `mode` is none of these.
    Unsupported
        For ``mode="node"``, which needs the shared-memory scatter.
    """
    check_mode(mode)
    shared = comm is not None and comm.Get_size() > 1 and mode != "own"
    if comm is not None and shared:
        return ReaderForcing(members, window, comm, poison=poison, decode_threads=decode_threads, **group)
    if decode_threads is not None:
        set_decode_threads(decode_threads)
    needed = _by_member(window, members)
    bound = {key: provider.with_window(needed[key]) for key, provider in members.items()}
    return OwnForcing(PrefetchGroup(bound, **group), comm, poison=poison)


def check_mode(mode: str) -> None:
    """Refuse a scatter mode that :func:`open_forcing` would refuse."""
    if mode == "node":
        raise Unsupported(
            "scatter mode 'node' (decode into memory shared by the node) is not built yet",
            hint="Write auto, own or root",
        )
    if mode not in ("auto", "own", "root"):
        raise DeclarationError(f"scatter mode is 'auto', 'own', 'root' or 'node', not {mode!r}")


def _by_member(window: Window | Mapping[str, Window], members: Iterable[str]) -> Mapping[str, Window]:
    return dict.fromkeys(members, window) if isinstance(window, Window) else window


class _Course:
    """The epochs this rank is to take. Every rank knows them, so a wrong take is refused before it waits."""

    def __init__(self, epochs: int) -> None:
        self._count = epochs
        self._epochs: list[int] | None = None
        self._next = 0
        self._closed = False

    def start(self, order: str | list[int]) -> None:
        forward = list(range(self._count))
        known = {"forward": forward, "reverse": forward[::-1]}
        self._epochs, self._next = known[order] if isinstance(order, str) else order, 0

    def check(self, k: int) -> None:
        self.check_open()
        if self._epochs is None:
            raise GroupStateError(f"take({k}) before start()", hint="Declare the order with start()")
        if self._next == len(self._epochs):
            raise OrderError("the order has ended", epoch=k, hint="start() a new one")
        if k != self._epochs[self._next]:
            raise OrderError(
                f"take({k}), but the next epoch of the order is {self._epochs[self._next]}", epoch=k,
                hint="All ranks take the epochs of the order, one after the other",
            )  # fmt: skip

    def check_open(self) -> None:
        if self._closed:
            raise GroupStateError("the forcing is closed", hint="Open a new one")

    def advance(self) -> None:
        self._next += 1

    def close(self) -> None:
        self._closed = True
        leaving.closed(self)

    @property
    def pending(self) -> int | None:
        """The next epoch; see :class:`integrator.leaving.Course`."""
        left = (self._epochs or ())[self._next :]
        return left[0] if left else None


class _Taken:
    """The epoch in hand, and what becomes of it on release."""

    def __init__(self, poison: bool) -> None:
        self._poison = poison
        self._epoch: int | None = None
        self._sample: EpochSample | None = None

    def check_free(self, k: int) -> None:
        if self._epoch is not None:
            raise GroupStateError(
                f"take({k}) before release({self._epoch})",
                hint="Release an epoch before taking the next",
            )

    def hand_over(self, k: int, sample: EpochSample) -> EpochSample:
        self._epoch = k
        self._sample = _private(sample) if self._poison else sample
        return self._sample

    def release(self, k: int) -> None:
        if k != self._epoch:
            raise GroupStateError(
                f"release({k}), but the epoch in hand is {self._epoch}", hint="Release what was taken last"
            )
        if self._poison and self._sample is not None:
            for array in _arrays(self._sample):
                array.flags.writeable = True
                array.fill(np.nan if array.dtype.kind in "fc" else np.zeros((), array.dtype)[()])
                array.flags.writeable = False
        self._epoch = self._sample = None


class OwnForcing:
    """Decodes this rank's own Window; errors are agreed on by all ranks.

    Parameters
    ----------
    group : PrefetchGroup
        Of providers bound to the rank's Window; closed with the forcing.
    comm : mpi4py.MPI.Intracomm or None
        The ranks that take together.
    poison : bool
        See :func:`open_forcing`.
    """

    def __init__(
        self, group: PrefetchGroup, comm: MPI.Intracomm | None = None, *, poison: bool = False
    ) -> None:
        self.group = group
        self._comm = comm
        self._taken = _Taken(poison)
        self._course = _Course(len(group.boundaries()))
        leaving.opened(comm, self._course)

    def boundaries(self) -> list[Time]:
        """Give the start of every epoch."""
        return self.group.boundaries()

    def start(self, order: EpochOrder) -> None:
        """Declare the order; see :class:`~integrator.forcing.Forcing`."""
        self._course.check_open()
        epochs = order if isinstance(order, str) else list(order)
        agreed(self._comm, lambda: self.group.start(epochs))
        self._course.start(epochs)

    def take(self, k: int) -> EpochSample:
        """Take the next epoch; see :class:`~integrator.forcing.Forcing`."""
        self._course.check(k)
        self._taken.check_free(k)
        epoch = agreed(self._comm, lambda: self.group.take(k))
        self._course.advance()
        return self._taken.hand_over(k, epoch)

    def release(self, k: int) -> None:
        """Give the epoch back."""
        self._taken.release(k)

    def stats(self) -> Any:
        """Give the group's statistics since construction."""
        return self.group.stats(total=True)

    def close(self) -> None:
        """Close the group."""
        self._course.close()
        self.group.close()


class ReaderForcing:
    """One rank per node decodes for all its ranks and sends each its own.

    A sample that did not change since the previous epoch is not sent again, nor is a coordinate.

    Parameters
    ----------
    members, window, comm, poison, decode_threads, **group
        See :func:`open_forcing`.
    """

    def __init__(
        self,
        members: Mapping[str, Provider],
        window: Window | Mapping[str, Window],
        comm: MPI.Intracomm,
        *,
        poison: bool = False,
        decode_threads: int | None = None,
        **group: Any,
    ) -> None:
        self._comm = comm
        node = node_groups(comm)
        self._node = node.comm
        self.is_reader = node.comm.Get_rank() == 0
        self.group: PrefetchGroup | None = None
        self._taken = _Taken(poison)
        self._sender, self._receiver = Sender(node.comm), Receiver(node.comm)
        # the readers, by their rank in `comm`; one of them alone needs no communicator
        self._readers: MPI.Comm | None = None
        if len(node.groups) > 1:
            self._readers = comm.Split(0 if self.is_reader else 1, comm.Get_rank())
        windows = gather(node.comm, pickle.dumps(_by_member(window, members)))

        def build() -> list[Time] | None:
            if windows is None:
                return None
            # the others don't decode, so their share of the cores is the reader's
            set_decode_threads(decode_threads or default_decode_threads(ranks=1))
            mine = [pickle.loads(parcel) for parcel in windows]  # noqa: S301 - sent by a rank of this job
            by_member = {key: [each[key] for each in mine] for key in members}
            self.group = PrefetchGroup(members, windows=by_member, **group)
            return self.group.boundaries()

        boundaries = agreed(comm, build)
        self._boundaries: list[Time] = pickle.loads(  # noqa: S301 - likewise
            broadcast(node.comm, None if boundaries is None else pickle.dumps(boundaries))
        )
        self._course = _Course(len(self._boundaries))
        leaving.opened(comm, self._course)

    def boundaries(self) -> list[Time]:
        """Give the start of every epoch."""
        return list(self._boundaries)

    def start(self, order: EpochOrder) -> None:
        """Declare the order; see :class:`~integrator.forcing.Forcing`."""
        self._course.check_open()
        group, epochs = self.group, order if isinstance(order, str) else list(order)
        agreed(self._comm, lambda: None if group is None else group.start(epochs))
        self._course.start(epochs)
        self._sender.start()
        self._receiver.start()

    def take(self, k: int) -> EpochSample:
        """Take the next epoch; see :class:`~integrator.forcing.Forcing`."""
        self._course.check(k)
        self._taken.check_free(k)
        samples = self._receiver.receive(k) if self.group is None else self._read(self.group, k)
        self._course.advance()
        return self._taken.hand_over(k, EpochSample(k, samples))

    def _read(self, group: PrefetchGroup, k: int) -> dict[str, Sample]:
        """Take the epoch from the group, send the node's other ranks theirs, and give this rank's own."""

        def act() -> tuple[EpochSample, list[Parcel]]:
            epoch = group.take(k)
            return epoch, self._sender.pack(epoch)

        rank = self._comm.Get_rank()
        try:
            epoch, parcels = agreed(self._readers, act, rank)
        except Exception as error:
            self._sender.fail(k, error, rank)
            raise
        self._sender.send(parcels)
        return {
            key: Sample(per_window(sample)[0], sample.anchor, sample.changed) for key, sample in epoch.items()
        }

    def release(self, k: int) -> None:
        """Give the epoch back."""
        self._taken.release(k)

    def stats(self) -> Any:
        """Give the reader's statistics since construction; None on the other ranks."""
        return None if self.group is None else self.group.stats(total=True)

    def close(self) -> None:
        """Close the reader's group and free the node's communicator. Collective."""
        self._course.close()
        if self.group is not None:
            self.group.close()
        if self._readers is not None:
            self._readers.Free()
        self._node.Free()


def _arrays(sample: EpochSample) -> Iterator[Array]:
    for member in sample.values():
        for dataset in per_window(member):
            for _, entry, _ in entries(dataset):
                yield entry.data


def _private(sample: EpochSample) -> EpochSample:
    """Copy a sample, so that poisoning it harms nobody who still needs the original."""

    def copied(dataset: NativeDataset) -> NativeDataset:
        halves: list[dict[str, NativeField]] = [{}, {}]
        for name, entry, is_coord in entries(dataset):
            halves[is_coord][name] = NativeField(entry.data.copy(), entry.dims, entry.attrs)
        private = NativeDataset(halves[0], halves[1], dataset.times)
        freeze(private)
        return private

    samples = {}
    for key, member in sample.items():
        datasets = tuple(copied(dataset) for dataset in per_window(member))
        data = datasets if isinstance(member.data, tuple) else datasets[0]
        samples[key] = Sample(data, member.anchor, member.changed)
    return EpochSample(sample.epoch, samples)
