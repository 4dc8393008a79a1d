"""Datasets whose elements lie in other files: what HDF5 would quietly read as fill or zeros is refused.

A dataset may be stored in raw files (external storage) or be put together from other datasets (a virtual
dataset), which may be virtual themselves. HDF5 reads zeros behind the end of a raw file, and fill where a
source is missing, can't be opened, or has no such dataset. Missing is never fill here, so each source that a
read touches is looked up first, where and in the order in which HDF5 looks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from earthsciio.errors import DecodeError, EarthSciIOError

if TYPE_CHECKING:
    import h5py

__all__ = ["check_sources"]

#: What part of a dataset is read.
Box = tuple[slice, ...]
_OPEN_ERRORS = (OSError, RuntimeError, KeyError, ValueError)


def check_sources(dataset: h5py.Dataset, box: Box, path: str, variable: str) -> None:
    """Refuse to read a part of a dataset if not all that it needs of other files is there.

    Parameters
    ----------
    dataset : h5py.Dataset
        Open.
    box : tuple of slice
        What will be read, one slice per axis.
    path, variable : str
        The dataset's file and name, for messages and to look beside the file.

    Raises
    ------
    DecodeError
        Naming the file and dataset that are missing.
    """
    _check(dataset, box, path, {"file": path, "variable": variable}, ())


def _check(
    dataset: h5py.Dataset, box: Box, path: str, about: dict[str, Any], through: tuple[tuple[str, str], ...]
) -> None:
    if dataset.external:
        _check_raw_files(dataset, about)
    if not dataset.is_virtual:
        return
    here = (os.path.realpath(path), str(dataset.name))
    if here in through:
        raise DecodeError(
            f"the virtual dataset {here[1]!r} of {here[0]!r} is made of itself", **about,
            hint="Make it anew; it holds nothing",
        )  # fmt: skip
    for source in dataset.virtual_sources():
        for block in _blocks(source.vspace, box):
            names = (_spell(source.file_name, block), _spell(source.dset_name, block))
            _check_source(dataset, *names, path, about, (*through, here))


def _check_source(
    holder: h5py.Dataset,
    file_name: str,
    name: str,
    path: str,
    about: dict[str, Any],
    through: tuple[tuple[str, str], ...],
) -> None:
    import h5py

    what = f"its elements are in the dataset {name!r} of the file {file_name!r}"
    with ExitStack() as opened:
        found, file = path, holder.file
        if file_name != ".":  # which is the same file
            found, file = _open(file_name, path, what, about)
            opened.callback(file.close)
        try:
            source = file.get(name)
            if isinstance(source, h5py.Dataset):
                _check(source, tuple(slice(0, size) for size in source.shape or ()), found, about, through)
                return
        except EarthSciIOError:
            raise
        except _OPEN_ERRORS as error:
            raise DecodeError(f"{what}, which can't be read: {error}", **about, source=found) from error
        raise DecodeError(
            f"{what}, which has no such dataset", **about, source=found, hint="Bring the right file"
        )


def _open(name: str, path: str, what: str, about: dict[str, Any]) -> tuple[str, h5py.File]:
    """Open a source file: the first of that name that is HDF5, as HDF5 does."""
    import h5py

    why = "is not there"
    for candidate in _candidates(name, path):
        try:
            return candidate, h5py.File(candidate, "r")
        except FileNotFoundError:
            continue
        except _OPEN_ERRORS as error:
            why = f"can't be opened: {' '.join(str(error).split())}"
    raise DecodeError(f"{what}, which {why}", **about, hint="Bring it beside this one")


def _candidates(name: str, path: str) -> Iterator[str]:
    """Name the places where HDF5 looks for a source, in its order."""
    beside = Path(path).absolute().parent
    if Path(name).is_absolute():
        yield name
        name = Path(name).name
    for prefix in os.environ.get("HDF5_VDS_PREFIX", "").split(":"):
        if prefix:
            yield str(Path(prefix.replace("${ORIGIN}", str(beside)), name))
    yield str(beside / name)
    yield name
    yield str(Path(path).resolve().parent / name)


def _spell(name: str, block: int) -> str:
    """Put the number of a block into a name where it says ``%b``; ``%%`` is a percent sign."""
    return re.sub("%[b%]", lambda found: str(block) if found[0] == "%b" else "%", name)


def _blocks(selection: h5py.h5s.SpaceID, box: Box) -> Iterator[int]:
    """Yield the numbers of a mapping's blocks that a box touches: 0, unless it repeats without end."""
    import h5py

    lows, highs = [], []
    endless = None
    if selection.get_select_type() == h5py.h5s.SEL_HYPERSLABS and selection.is_regular_hyperslab():
        for axis, (start, stride, count, block) in enumerate(
            zip(*selection.get_regular_hyperslab(), strict=True)
        ):
            lows.append(start)
            if h5py.h5s.UNLIMITED in (count, block):
                endless = (axis, start, stride, block)
                highs.append(box[axis].stop)
            else:
                highs.append(start + (count - 1) * stride + block)
    elif selection.get_select_npoints():
        first, last = selection.get_select_bounds()
        lows, highs = list(first), [end + 1 for end in last]
    else:
        return
    if any(low >= part.stop or high <= part.start for low, high, part in zip(lows, highs, box, strict=True)):
        return
    if endless is None or endless[3] == h5py.h5s.UNLIMITED:
        yield 0
        return
    axis, start, stride, block = endless
    number = max(0, (box[axis].start - start - block) // stride + 1)
    while start + number * stride < box[axis].stop:
        yield number
        number += 1


def _check_raw_files(dataset: h5py.Dataset, about: dict[str, Any]) -> None:
    left = dataset.size * dataset.id.get_type().get_size()
    for raw, offset, size in dataset.external:
        wanted = min(left, size)
        path = Path(os.environ.get("HDF5_EXTFILE_PREFIX", ""), raw)
        if path.is_file() and path.stat().st_size < offset + wanted:
            raise DecodeError(
                f"its elements are in the file {str(path)!r}, which ends before byte {offset + wanted}",
                **about, hint="Fetch that file again",
            )  # fmt: skip
        left -= wanted
