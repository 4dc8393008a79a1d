"""Every record of a series, forward and in reverse, in each way there is to ask for it, against the truth."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np
from catalogue import Series
from truth import Expected, FileTruth, bracket, read_file

from earthsciio import NativeDataset, PrefetchGroup, Provider

__all__ = ["Outcome", "difference", "walk", "walk_aside"]

#: Slots a group may be ahead.
_DEPTH = 8


@dataclass(slots=True)
class Outcome:
    """How the walk of a series went.

    Attributes
    ----------
    series : Series
        Which.
    records, compared : int
        Records of the series, and samples that were compared.
    seconds : float
        The walk and the reading of the truth.
    fault : str
        The first one, naming file and record; empty if all is well.
    skipped : str
        Why there is no truth to compare with; empty if there is.
    warned : list of str
        Warnings of the library.
    """

    series: Series
    records: int = 0
    compared: int = 0
    seconds: float = 0.0
    fault: str = ""
    skipped: str = ""
    warned: list[str] = field(default_factory=list)


class _Fault(AssertionError):
    pass


def walk(series: Series) -> Outcome:
    """Walk a series; what is wrong is in the outcome, never raised."""
    outcome = Outcome(series)
    begin = perf_counter()
    try:
        truth = [read_file(series, path) for path in series.files.values()]
    except RuntimeError as error:  # how netCDF-C says that a filter isn't there
        outcome.skipped = f"netCDF4: {error}"
        return outcome
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            _walk(series, truth, outcome)
        except _Fault as fault:
            outcome.fault = str(fault)
        except Exception as error:  # of whatever kind: the other series are walked all the same
            outcome.fault = f"{type(error).__name__}: {error}"
    outcome.warned = list(dict.fromkeys(str(warning.message) for warning in caught))
    outcome.seconds = perf_counter() - begin
    return outcome


def walk_aside(series: Series) -> Outcome:
    """Walk on another thread than the main one, which would have helpers decode: slow for small records."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(walk, series).result()


def _walk(series: Series, truth: list[FileTruth], outcome: Outcome) -> None:
    compare = _Comparison(outcome)
    for file in truth:
        whole = Provider(series.whole(file.path)).materialize()
        compare(whole, file.whole, "whole", f"all of {file.path.name}")
    if series.is_const:
        outcome.records = 1
        return
    records = [(file, index) for file in truth for index in range(len(file.stamps))]
    outcome.records = len(records)
    _walk_records(series, records, compare)
    _walk_pairs(series, records, compare)


def _walk_records(series: Series, records: list[tuple[FileTruth, int]], compare: _Comparison) -> None:
    provider = Provider(series.source())
    times = provider.refresh_times()
    _same_times(series, times, records, step=series.frequency)
    for order in ("forward", "reverse"):
        with PrefetchGroup({"it": provider}, depth=_DEPTH) as group:
            if group.boundaries() != times:
                raise _Fault("the group's boundaries are not the provider's times")
            group.start(order)
            for k in _epochs(order, len(times)):
                file, index = records[k]
                expected, where = file.record(index), f"record {index} of {file.path.name}"
                compare(provider.refresh(times[k]), expected, f"refresh {order}", where)
                compare(provider.sample_at(times[k]), expected, f"sample_at {order}", where)
                compare(group.take(k)["it"].data, expected, f"group {order}", where)


def _walk_pairs(series: Series, records: list[tuple[FileTruth, int]], compare: _Comparison) -> None:
    """Walk brackets as an adjoint would; at the seams of files by themselves too."""
    provider = Provider(series.source(pairs=True))
    times = provider.refresh_times()
    _same_times(series, times, records, step="records")
    last = len(records) - 1
    with PrefetchGroup({"it": provider}, depth=_DEPTH) as group:
        group.start("reverse")
        for k in _epochs("reverse", len(times)):
            (file, index), (second, following) = records[k], records[min(k + 1, last)]
            expected = bracket(file, index, second, following)
            where = f"records {index} of {file.path.name} and {following} of {second.path.name}"
            compare(group.take(k)["it"].data, expected, "bracket, group reverse", where)
            if index in (0, len(file.stamps) - 1):
                compare(provider.sample_at(times[k]), expected, "bracket, sample_at", where)
                compare(provider.refresh(times[k]), expected, "bracket, refresh", where)


def _epochs(order: str, count: int) -> Iterator[int]:
    return iter(range(count)) if order == "forward" else reversed(range(count))


def _same_times(series: Series, times: list, records: list[tuple[FileTruth, int]], step: str) -> None:
    """Compare anchors with stamps: the same year, month, ... down to the step of the cadence."""
    parts = {"P1Y": 1, "P1M": 2, "P1D": 3}.get(step, 7)
    stamps = [file.stamps[index] for file, index in records]
    if len(times) != len(stamps):
        raise _Fault(f"{len(times)} anchors, but the files hold {len(stamps)} records")
    for time, stamp, (file, index) in zip(times, stamps, records, strict=True):
        if _parts(time)[:parts] != _parts(stamp)[:parts]:
            raise _Fault(f"record {index} of {file.path.name} is of {stamp}, its anchor {time}")


def _parts(time) -> tuple[int, ...]:
    return time.year, time.month, time.day, time.hour, time.minute, time.second, time.microsecond


class _Comparison:
    """Compares samples, counts them, and says which record is wrong."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def __call__(self, found: NativeDataset, expected: Expected, way: str, where: str) -> None:
        self._outcome.compared += 1
        wrong = difference(found, expected)
        if wrong:
            raise _Fault(f"{where}, {way}: {wrong}")


def difference(found: NativeDataset, expected: Expected) -> str:
    """Say how a sample differs from what it must be, in names, dimensions, types, bits or times; or ""."""
    if list(found.variables) != list(expected.fields) or set(found.coords) != set(expected.coords):
        return (
            f"fields {list(found.variables)} and coordinates {sorted(found.coords)}, "
            f"not {list(expected.fields)} and {sorted(expected.coords)}"
        )
    if [_parts(time) for time in found.times] != [_parts(stamp) for stamp in expected.stamps]:
        return f"times {found.times}, not {expected.stamps}"
    for name, (dims, values) in {**expected.fields, **expected.coords}.items():
        array = (found.variables.get(name) or found.coords[name]).data
        described = (found[name].dims, array.shape, array.dtype)
        if described != (dims, values.shape, values.dtype):
            return f"{name} is {described}, not {(dims, values.shape, values.dtype)}"
        if array.tobytes() != values.tobytes() or array.dtype == object:
            pairs = zip(array.flat, values.flat, strict=True)
            wrong = next((n for n, (one, other) in enumerate(pairs) if not _same_element(one, other)), None)
            if wrong is not None:
                index = tuple(int(i) for i in np.unravel_index(wrong, values.shape))
                return f"{name}{list(index)} is {array[index]!r}, not {values[index]!r}"
    return ""


def _same_element(one: object, other: object) -> bool:
    return (
        one == other if isinstance(other, str) else np.asarray(one).tobytes() == np.asarray(other).tobytes()
    )
