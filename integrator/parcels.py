"""What the reader sends a rank for an epoch: a description, then the arrays it announces.

One message tells everything where arrays are small: the description holds them, and an error travels in its
place, so that a rank waits for one message whichever way an epoch ends. Larger arrays follow as buffers, in
pieces below MPI's count limit. What a rank has already (a sample that did not change, a coordinate) is not
sent again.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from earthsciio.errors import GroupStateError
from earthsciio.fields import Array, NativeDataset, NativeField, Time
from earthsciio.prefetch import EpochSample, Sample

from .ranks import pack_error, receive, unpack_error, wait

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["MAX_BYTES", "Parcel", "Receiver", "Sender", "entries", "freeze", "per_window"]

#: Bytes of one message: MPI-3 counts are C ints.
MAX_BYTES = 1 << 30
_TAG = 4711
#: Bytes up to which an array travels with its description: a message of its own would cost more.
_INLINE = 1 << 18
#: Longest pause while bytes are on their way: large messages move on only when both sides look.
_MOVING_S = 2e-5


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
class _Description:
    """The first message of an epoch: what comes, or why nothing does (`failure`: from `pack_error`)."""

    epoch: int
    heads: dict[str, _Head]
    failure: bytes | None = None


@dataclass(frozen=True, slots=True)
class Parcel:
    """What one rank gets of an epoch: the description, pickled, and the arrays to send in their order."""

    described: bytes
    arrays: list[Array] = field(default_factory=list)


class Sender:
    """The reader's side of a node.

    Parameters
    ----------
    node : mpi4py.MPI.Comm
        The ranks of the node; the reader is its rank 0.
    """

    def __init__(self, node: MPI.Comm) -> None:
        self._node = node
        self._sent: list[dict[tuple[str, str], Array]] = []
        self.start()

    def start(self) -> None:
        """Forget what was sent: an order begins, and the ranks keep nothing of the last one."""
        self._sent = [{} for _ in range(1, self._node.Get_size())]

    def pack(self, epoch: EpochSample) -> list[Parcel]:
        """Make the parcels of the ranks 1, 2, ... of the node, whose Windows come in their order."""
        return [_pack(epoch, rank, sent) for rank, sent in enumerate(self._sent, start=1)]

    def send(self, parcels: Sequence[Parcel]) -> None:
        """Send the parcels to their ranks; returns when nothing needs the arrays any more."""
        requests = []
        for rank, parcel in enumerate(parcels, start=1):
            requests.append(self._node.Isend(np.frombuffer(parcel.described, np.uint8), rank, _TAG))
            for array in parcel.arrays:
                requests += [self._node.Isend(piece, rank, _TAG) for piece in _pieces(array)]
        wait(requests, longest=_MOVING_S)

    def fail(self, epoch: int, error: Exception, rank: int) -> None:
        """Send every rank an error in place of the epoch; `rank` is who met it."""
        described = pickle.dumps(_Description(epoch, {}, pack_error(error, rank)))
        self.send([Parcel(described)] * len(self._sent))


class Receiver:
    """The other ranks' side.

    Parameters
    ----------
    node : mpi4py.MPI.Comm
        The ranks of the node; the reader is its rank 0.
    """

    def __init__(self, node: MPI.Comm) -> None:
        self._node = node
        self._latest: dict[str, NativeDataset] = {}
        self._buffers = _Buffers()

    def start(self) -> None:
        """Forget what was received, as the reader does."""
        self._latest.clear()

    def receive(self, epoch: int) -> dict[str, Sample]:
        """Wait for an epoch, asleep, and give its samples.

        Raises
        ------
        Exception
            What the reader met; see :func:`integrator.ranks.agree` for how an error travels.
        GroupStateError
            If the reader is at another epoch: the ranks don't take the same ones.
        """
        described = receive(self._node, 0, _TAG)
        what: _Description = pickle.loads(described)  # noqa: S301 - sent by the reader
        requests = []
        for key, head in what.heads.items():
            if not head.changed:
                continue
            arriving = [slot for slot in head.slots if slot.inline is None and not slot.kept]
            arrays = [self._buffers.array(key, slot) for slot in arriving]
            for array in arrays:
                requests += [self._node.Irecv(piece, 0, _TAG) for piece in _pieces(array)]
            self._latest[key] = head.dataset(iter(arrays), self._latest.get(key))
        wait(requests, longest=_MOVING_S)
        if what.failure is not None:
            raise unpack_error(what.failure)
        if what.epoch != epoch:
            raise GroupStateError(
                f"take({epoch}) on this rank, but its node's reader takes epoch {what.epoch}",
                hint="All ranks take the same epochs in the same order",
            )
        for key, head in what.heads.items():
            if head.changed:
                freeze(self._latest[key])
        return {key: Sample(self._latest[key], head.anchor, head.changed) for key, head in what.heads.items()}


def _pack(epoch: EpochSample, rank: int, sent: dict[tuple[str, str], Array]) -> Parcel:
    """Describe what a rank gets; `sent` are the coordinates it has, and is brought up to date."""
    heads: dict[str, _Head] = {}
    arrays: list[Array] = []
    for key, sample in epoch.items():
        if not sample.changed:
            heads[key] = _Head(sample.anchor, changed=False)
            continue
        dataset = per_window(sample)[rank]
        slots = []
        for name, entry, is_coord in entries(dataset):
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
                arrays.append(entry.data)
        heads[key] = _Head(sample.anchor, True, dataset.times, tuple(slots))
    return Parcel(pickle.dumps(_Description(epoch.epoch, heads), protocol=5), arrays)


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


def per_window(sample: Sample) -> tuple[NativeDataset, ...]:
    """Give a sample's datasets, one per Window."""
    return sample.data if isinstance(sample.data, tuple) else (sample.data,)


def entries(dataset: NativeDataset) -> Iterator[tuple[str, NativeField, bool]]:
    """Give name, field and whether it is a coordinate, variables first."""
    for name, entry in dataset.variables.items():
        yield name, entry, False
    for name, entry in dataset.coords.items():
        yield name, entry, True


def freeze(dataset: NativeDataset) -> None:
    """Make the arrays read-only."""
    for _, entry, _ in entries(dataset):
        entry.data.flags.writeable = False


def _pieces(array: Array) -> list[Array]:
    """Cut an array into flat pieces of bytes that one message can hold.

    The receiver made its array by the description, so shape, dtype and byte order are agreed; as bytes any
    dtype can travel.
    """
    flat = array.reshape(-1).view(np.uint8)
    return [flat[start : start + MAX_BYTES] for start in range(0, flat.size, MAX_BYTES)]
