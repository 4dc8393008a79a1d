"""Where a rank's forcing comes from: its own group, or the node's reader, which decodes once for all.

:func:`open_forcing` gives every rank the same :class:`~integrator.forcing.Forcing`, whichever way the bytes
go. With ``mode="own"`` each rank decodes its own Window. With ``mode="root"`` one rank per node decodes the
Windows of all its ranks in one PrefetchGroup, each touched chunk once, and sends every rank its arrays:
buffers, in pieces below MPI's count limit. What is sent is described first, and before either, all ranks
agree that nobody failed. Ranks that wait for the reader sleep.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from earthsciio.decode.threads import default_decode_threads, set_decode_threads
from earthsciio.errors import DeclarationError, GroupStateError, Unsupported
from earthsciio.fields import Array, NativeDataset, NativeField, Time
from earthsciio.prefetch import EpochSample, PrefetchGroup, Sample
from earthsciio.selection import Window

from .forcing import EpochOrder
from .partition import node_groups
from .ranks import agree, broadcast, gather, receive, wait

if TYPE_CHECKING:
    from mpi4py import MPI

    from earthsciio.provider import Provider

__all__ = ["MAX_BYTES", "OwnForcing", "ReaderForcing", "ScatterMode", "open_forcing"]

ScatterMode: TypeAlias = Literal["auto", "own", "root", "node"]

#: Bytes of one message: MPI-3 counts are C ints.
MAX_BYTES = 1 << 30
_TAG = 4711
#: Bytes up to which an array travels with its description: a message of its own would cost more.
_INLINE = 1 << 18
#: Longest pause while bytes are on their way: large messages move on only when both sides look.
_MOVING_S = 2e-5


def open_forcing(
    members: Mapping[str, Provider],
    window: Window,
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
    window : Window
        What this rank needs of each member.
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
    if mode == "node":
        raise Unsupported("scatter mode 'node' (decode into memory shared by the node) is not built yet")
    if mode not in ("auto", "own", "root"):
        raise DeclarationError(f"scatter mode is 'auto', 'own', 'root' or 'node', not {mode!r}")
    shared = comm is not None and comm.Get_size() > 1 and mode != "own"
    if comm is not None and shared:
        return ReaderForcing(members, window, comm, poison=poison, decode_threads=decode_threads, **group)
    if decode_threads is not None:
        set_decode_threads(decode_threads)
    bound = {key: provider.with_window(window) for key, provider in members.items()}
    return OwnForcing(PrefetchGroup(bound, **group), comm, poison=poison)


class _Taken:
    """The epoch in hand, and what becomes of it on release."""

    def __init__(self, poison: bool) -> None:
        self._poison = poison
        self._epoch: int | None = None
        self._sample: EpochSample | None = None

    def hand_over(self, k: int, sample: EpochSample) -> EpochSample:
        if self._epoch is not None:
            raise GroupStateError(f"take({k}) before release({self._epoch})")
        self._epoch = k
        self._sample = _private(sample) if self._poison else sample
        return self._sample

    def release(self, k: int) -> None:
        if k != self._epoch:
            raise GroupStateError(f"release({k}), but the epoch in hand is {self._epoch}")
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

    def boundaries(self) -> list[Time]:
        """Give the start of every epoch."""
        return self.group.boundaries()

    def start(self, order: EpochOrder) -> None:
        """Declare the order; see :class:`~integrator.forcing.Forcing`."""
        _agreed(self._comm, lambda: self.group.start(_order(order)))

    def take(self, k: int) -> EpochSample:
        """Take the next epoch; see :class:`~integrator.forcing.Forcing`."""
        return self._taken.hand_over(k, _agreed(self._comm, lambda: self.group.take(k)))

    def release(self, k: int) -> None:
        """Give the epoch back."""
        self._taken.release(k)

    def stats(self) -> Any:
        """Give the group's statistics since construction."""
        return self.group.stats(total=True)

    def close(self) -> None:
        """Close the group."""
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
        window: Window,
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
        self._latest: dict[str, NativeDataset] = {}
        self._sent: list[dict[tuple[str, str], Array]] = []
        self._buffers = _Buffers()
        windows = gather(node.comm, pickle.dumps(window))

        def build() -> list[Time] | None:
            if windows is None:
                return None
            # the others don't decode, so their share of the cores is the reader's
            set_decode_threads(decode_threads or default_decode_threads(ranks=1))
            mine = [pickle.loads(parcel) for parcel in windows]  # noqa: S301 - sent by a rank of this job
            self.group = PrefetchGroup(members, windows=mine, **group)
            return self.group.boundaries()

        boundaries = _agreed(comm, build)
        self._boundaries: list[Time] = pickle.loads(  # noqa: S301 - likewise
            broadcast(node.comm, None if boundaries is None else pickle.dumps(boundaries))
        )

    def boundaries(self) -> list[Time]:
        """Give the start of every epoch."""
        return list(self._boundaries)

    def start(self, order: EpochOrder) -> None:
        """Declare the order; see :class:`~integrator.forcing.Forcing`."""
        group = self.group
        _agreed(self._comm, lambda: None if group is None else group.start(_order(order)))
        self._latest.clear()
        self._sent = [{} for _ in range(self._node.Get_size())]

    def take(self, k: int) -> EpochSample:
        """Take the next epoch; see :class:`~integrator.forcing.Forcing`."""
        parcels = _agreed(self._comm, lambda: self._pack(k))
        if parcels is not None:
            self._send(parcels[1:])
            heads = parcels[0].heads
        else:
            heads = self._receive()
        samples = {key: Sample(self._latest[key], head.anchor, head.changed) for key, head in heads.items()}
        return self._taken.hand_over(k, EpochSample(k, samples))

    def _pack(self, k: int) -> list[_Parcel] | None:
        """Take the epoch on the reader and make every rank's parcel; nothing on the others."""
        if self.group is None:
            return None
        epoch = self.group.take(k)
        self._latest = {key: _per_window(sample)[0] for key, sample in epoch.items()}
        return [_Parcel.pack(epoch, rank, sent) for rank, sent in enumerate(self._sent)]

    def _send(self, parcels: Sequence[_Parcel]) -> None:
        """Send every other rank of the node its description, then its arrays."""
        requests, kept = [], []
        for rank, parcel in enumerate(parcels, start=1):
            described = np.frombuffer(pickle.dumps(parcel.heads), np.uint8)
            kept.append(described)
            requests.append(self._node.Isend(described, rank, _TAG))
            for array in parcel.arrays:
                requests += [self._node.Isend(piece, rank, _TAG) for piece in _pieces(array)]
        wait(requests, longest=_MOVING_S)

    def _receive(self) -> dict[str, _Head]:
        described = receive(self._node, 0, _TAG, longest=_MOVING_S)
        heads: dict[str, _Head] = pickle.loads(described)  # noqa: S301 - sent by the reader
        requests = []
        for key, head in heads.items():
            if not head.changed:
                continue
            arriving = [slot for slot in head.slots if slot.inline is None and not slot.kept]
            arrays = [self._buffers.array(key, slot) for slot in arriving]
            for array in arrays:
                requests += [self._node.Irecv(piece, 0, _TAG) for piece in _pieces(array)]
            self._latest[key] = head.dataset(iter(arrays), self._latest.get(key))
        wait(requests, longest=_MOVING_S)
        for key, head in heads.items():
            if head.changed:
                _freeze(self._latest[key])
        return heads

    def release(self, k: int) -> None:
        """Give the epoch back."""
        self._taken.release(k)

    def stats(self) -> Any:
        """Give the reader's statistics since construction; None on the other ranks."""
        return None if self.group is None else self.group.stats(total=True)

    def close(self) -> None:
        """Close the reader's group and free the node's communicator. Collective."""
        if self.group is not None:
            self.group.close()
        self._node.Free()


@dataclass(frozen=True, slots=True)
class _Slot:
    """One array of a dataset, without its elements.

    Text, which has no buffer, and small arrays travel `inline`, with the description; what the receiver has
    from the sample before is `kept`.
    """

    name: str
    is_coord: bool
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    attrs: dict[str, Any]
    inline: Any = None
    kept: bool = False


@dataclass(frozen=True, slots=True)
class _Head:
    """One member's sample, without its elements; no slots where nothing changed."""

    anchor: Time
    changed: bool
    times: tuple[Time, ...] = ()
    slots: tuple[_Slot, ...] = ()

    def dataset(self, arrays: Iterator[Array], before: NativeDataset | None) -> NativeDataset:
        """Put the dataset together around arrays, one per slot that is neither inline nor kept."""
        fields: tuple[dict[str, NativeField], dict[str, NativeField]] = ({}, {})
        for slot in self.slots:
            if slot.kept and before is not None:
                data = before[slot.name].data
            else:
                data = next(arrays) if slot.inline is None else slot.inline
            fields[slot.is_coord][slot.name] = NativeField(data, slot.dims, slot.attrs)
        return NativeDataset(*fields, self.times)


@dataclass(frozen=True, slots=True)
class _Parcel:
    """What one rank gets of an epoch: descriptions, and the arrays to send in their order."""

    heads: dict[str, _Head]
    arrays: list[Array] = field(default_factory=list)

    @classmethod
    def pack(cls, epoch: EpochSample, rank: int, sent: dict[tuple[str, str], Array]) -> _Parcel:
        """Describe what a rank gets; `sent` are the coordinates it has, and is brought up to date."""
        parcel = cls({})
        for key, sample in epoch.items():
            if not sample.changed:
                parcel.heads[key] = _Head(sample.anchor, changed=False)
                continue
            dataset = _per_window(sample)[rank]
            slots = []
            for name, entry, is_coord in _entries(dataset):
                small = entry.dtype.kind == "O" or entry.data.nbytes <= _INLINE
                inline = entry.data if small else None
                kept = is_coord and sent.get((key, name)) is entry.data
                inline = None if kept else inline
                slots.append(
                    _Slot(name, is_coord, entry.dims, entry.shape, entry.dtype, entry.attrs, inline, kept)
                )
                if is_coord:
                    sent[key, name] = entry.data
                if inline is None and not kept:
                    parcel.arrays.append(entry.data)
            parcel.heads[key] = _Head(sample.anchor, True, dataset.times, tuple(slots))
        return parcel


class _Buffers:
    """Receive buffers, two per array in turn: the sample in hand stays whole while the next one arrives."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], list[Array]] = {}

    def array(self, key: str, slot: _Slot) -> Array:
        """Give a writable array for a slot; that of the last sample but one, if it fits."""
        turn = self._kept.setdefault((key, slot.name), [])
        if len(turn) == 2 and turn[0].shape == slot.shape and turn[0].dtype == slot.dtype:
            array = turn.pop(0)
            array.flags.writeable = True
        else:
            del turn[:-1]
            array = np.empty(slot.shape, slot.dtype)
        turn.append(array)
        return array


def _agreed(comm: MPI.Intracomm | None, act: Any) -> Any:
    """Do something on this rank, then learn whether any rank failed; collective."""
    result, failure = None, None
    try:
        result = act()
    except Exception as error:  # noqa: BLE001 - whatever it is, all ranks must learn of it
        failure = error
    agree(comm, failure)
    return result


def _order(order: EpochOrder) -> Any:
    return order if isinstance(order, str) else list(order)


def _per_window(sample: Sample) -> tuple[NativeDataset, ...]:
    return sample.data if isinstance(sample.data, tuple) else (sample.data,)


def _entries(dataset: NativeDataset) -> Iterator[tuple[str, NativeField, bool]]:
    for name, entry in dataset.variables.items():
        yield name, entry, False
    for name, entry in dataset.coords.items():
        yield name, entry, True


def _arrays(sample: EpochSample) -> Iterator[Array]:
    for member in sample.values():
        for dataset in _per_window(member):
            for _, entry, _ in _entries(dataset):
                yield entry.data


def _freeze(dataset: NativeDataset) -> None:
    for _, entry, _ in _entries(dataset):
        entry.data.flags.writeable = False


def _pieces(array: Array) -> list[Array]:
    """Cut an array into flat pieces of bytes that one message can hold.

    The receiver made its array by the description, so shape, dtype and byte order are agreed; as bytes any
    dtype can travel.
    """
    flat = array.reshape(-1).view(np.uint8)
    return [flat[start : start + MAX_BYTES] for start in range(0, flat.size, MAX_BYTES)]


def _private(sample: EpochSample) -> EpochSample:
    """Copy a sample, so that poisoning it harms nobody who still needs the original."""

    def copied(dataset: NativeDataset) -> NativeDataset:
        halves: list[dict[str, NativeField]] = [{}, {}]
        for name, entry, is_coord in _entries(dataset):
            halves[is_coord][name] = NativeField(entry.data.copy(), entry.dims, entry.attrs)
        private = NativeDataset(halves[0], halves[1], dataset.times)
        _freeze(private)
        return private

    samples = {}
    for key, member in sample.items():
        datasets = tuple(copied(dataset) for dataset in _per_window(member))
        data = datasets if isinstance(member.data, tuple) else datasets[0]
        samples[key] = Sample(data, member.anchor, member.changed)
    return EpochSample(sample.epoch, samples)
