"""Decode the next epochs while the model computes."""

from .group import PrefetchGroup
from .orders import Order, revolve
from .samples import EpochSample, Sample
from .stats import MemberStats, Stats

__all__ = ["EpochSample", "MemberStats", "Order", "PrefetchGroup", "Sample", "Stats", "revolve"]
