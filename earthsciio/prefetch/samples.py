"""What ``take`` hands over: for every member its sample, the anchor it is of, and whether that is news."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from earthsciio.fields import NativeDataset, Time

__all__ = ["EpochSample", "Sample"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One member's part of an epoch.

    Attributes
    ----------
    data : NativeDataset or tuple of NativeDataset
        The sample; with ``windows`` one dataset per Window of the member. Arrays are read-only.
    anchor : datetime or cftime.datetime
        The member's anchor in force during the epoch.
    changed : bool
        Whether `anchor` differs from that of the member's sample returned before, since ``start``.
    """

    data: NativeDataset | tuple[NativeDataset, ...]
    anchor: Time
    changed: bool


class EpochSample(Mapping[str, Sample]):
    """The samples of all members for one epoch, by member key in sorted order.

    Parameters
    ----------
    epoch : int
        The epoch's index in ``boundaries()``.
    samples : mapping of str to Sample
        One per member.
    """

    __slots__ = ("_samples", "epoch")

    def __init__(self, epoch: int, samples: Mapping[str, Sample]) -> None:
        self.epoch = epoch
        self._samples = dict(sorted(samples.items()))

    def __getitem__(self, key: str) -> Sample:
        try:
            return self._samples[key]
        except KeyError:
            raise KeyError(f"there is no member {key!r}; there are {list(self._samples)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._samples)

    def __len__(self) -> int:
        return len(self._samples)

    def __repr__(self) -> str:
        return f"<EpochSample {self.epoch}: {list(self._samples)}>"
