"""The planner against brute force: which chunks are touched, and where every element goes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earthsciio.decode.plan import plan_reads
from earthsciio.errors import SelectionRangeError
from earthsciio.selection import Points, Span


@st.composite
def selectors(draw, size):
    """Draw a slice, a strided slice, or a list with repeats, in any order, of an axis; each may be empty."""
    if draw(st.booleans()) or size == 0:
        start = draw(st.integers(0, size))
        return Span(start, draw(st.integers(start, size)), draw(st.integers(1, size + 1)))
    return Points(draw(st.lists(st.integers(0, size - 1), max_size=2 * size)))


@st.composite
def requests(draw):
    """Draw an array, its chunk grid and one to three Windows."""
    shape = draw(st.lists(st.integers(0, 7), min_size=1, max_size=3))
    chunks = [draw(st.integers(1, size + 2)) for size in shape]
    count = draw(st.integers(1, 3))
    return shape, chunks, [[draw(selectors(size)) for size in shape] for _ in range(count)]


def indices(selector) -> list[int]:
    if isinstance(selector, Span):
        return list(range(selector.start, selector.stop, selector.step))
    return list(selector.values)


@given(requests())
def test_every_touched_chunk_is_read_once_and_no_other(request_):
    shape, chunks, windows = request_
    touched = {
        tuple(index // length for index, length in zip(element, chunks, strict=True))
        for window in windows
        for element in itertools.product(*map(indices, window))
    }
    plan = plan_reads(shape, chunks, windows)
    read = [one.chunk for one in plan]
    assert read == sorted(touched)
    assert [one.chunk for one in plan for _ in one.placements] == [
        chunk for chunk in read for _ in plan.placements(chunk)
    ]


@given(requests())
def test_placements_put_every_element_where_numpy_would_exactly_once(request_):
    shape, chunks, windows = request_
    whole = np.arange(np.prod(shape)).reshape(shape)
    padded = np.full([-(-size // length) * length for size, length in zip(shape, chunks, strict=True)], -1)
    padded[tuple(map(slice, shape))] = whole
    plan = plan_reads(shape, chunks, windows)
    outputs = [np.full(each, -7) for each in plan.shapes]
    written = [np.zeros(each, dtype=int) for each in plan.shapes]
    for read in plan:
        corner = [slice(c * n, (c + 1) * n) for c, n in zip(read.chunk, chunks, strict=True)]
        for placement in read.placements:
            outputs[placement.window][placement.target()] = padded[tuple(corner)][placement.source()]
            np.add.at(written[placement.window], placement.target(), 1)
    for window, output, count in zip(windows, outputs, written, strict=True):
        assert np.array_equal(output, whole[np.ix_(*map(indices, window))])
        assert (count == 1).all()


def test_a_long_list_becomes_runs():
    around = np.concatenate([np.arange(90_000, 100_000), np.arange(90_000)])
    (part,) = plan_reads([100_000], [100_000], [[Points(around)]]).axes[0][0].values()
    assert part.runs.tolist() == [[90_000, 0, 10_000, 1], [0, 10_000, 90_000, 1]]


@pytest.mark.parametrize("selector", [Span(0, 6), Span(6, 6), Points([0, 5]), Points([-1])])
def test_what_lies_outside_is_refused(selector):
    with pytest.raises(SelectionRangeError):
        plan_reads([5], [2], [[selector]])
