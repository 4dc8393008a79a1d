"""Reading ahead: the operating system is told which bytes a decode will want, and fetches them meanwhile.

Only of files that say where their chunks lie; on a parallel file system this is what hides the latency of
the first read of a record. It decodes nothing, takes no memory of ours, and is a hint: nothing waits for it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable

import numpy as np

from earthsciio.formats.base import ArrayInfo, OpenFile
from earthsciio.formats.encoded import EncodedFile, as_encoded

from .abort import AbortToken
from .plan import ArrayPlan

__all__ = ["read_ahead"]

#: Chunks that lie at most this far apart are asked for in one go.
_GAP = 1 << 16


def read_ahead(file: OpenFile, arrays: Iterable[tuple[ArrayInfo, ArrayPlan]], abort: AbortToken) -> int:
    """Ask for the stored bytes of some plans.

    Parameters
    ----------
    file : OpenFile
        Holds the arrays.
    arrays : iterable of (ArrayInfo, ArrayPlan)
        What will be read.
    abort : AbortToken
        Looked at before every request.

    Returns
    -------
    int
        Bytes asked for; 0 where that can't be done.

    Raises
    ------
    Cancelled
        If `abort` was set.
    OSError, DecodeError
        If the file can't be used.
    """
    known = as_encoded(file)
    if known is None or not hasattr(os, "posix_fadvise"):
        return 0
    asked = 0
    with known.descriptor() as descriptor:
        for begin, end in _merged(_extents(known, arrays)):
            abort.check()
            os.posix_fadvise(descriptor, begin, end - begin, os.POSIX_FADV_WILLNEED)
            asked += end - begin
    return asked


def _extents(file: EncodedFile, arrays: Iterable[tuple[ArrayInfo, ArrayPlan]]) -> list[tuple[int, int]]:
    """Give where the chunks begin and end in the file."""
    extents: list[tuple[int, int]] = []
    for info, plan in arrays:
        encoded = file.encoded(info)
        chunks = {chunk for axes in plan.axes for chunk in itertools.product(*axes)}
        if isinstance(encoded, str) or encoded.inline is not None or not chunks:
            continue
        located = encoded.index.locate(np.array(list(chunks), dtype=np.int64).reshape(len(chunks), -1))
        there = (located.offsets >= 0) & (located.sizes > 0)
        begins = located.offsets[there]
        extents += zip(begins.tolist(), (begins + located.sizes[there]).tolist(), strict=True)
    return sorted(extents)


def _merged(extents: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for begin, end in extents:
        if merged and begin - merged[-1][1] <= _GAP:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged
