"""Halo pieces, played through for all ranks in one process; tests/integrator/test_mpi.py runs them on MPI."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earthsciio.errors import DeclarationError
from integrator.blocks import Blocks
from integrator.halo import HaloExchange, pieces
from integrator.partition import Dim, Partition


@st.composite
def partitions(draw):
    sizes = draw(st.lists(st.integers(1, 7), min_size=1, max_size=2))
    halo = st.tuples(st.integers(0, 8), st.integers(0, 8))
    dims = [Dim(f"d{i}", n, draw(st.booleans()), draw(halo)) for i, n in enumerate(sizes)]
    return Partition(tuple(dims), draw(st.integers(1, min(8, int(np.prod(sizes))))))


def expected_frame(partition, rank, whole):
    """The frame, read from the whole grid through the rank's Window."""
    frame = np.zeros(partition.frame_shape(rank))
    window = partition.window(rank)
    at = [range(*s) if isinstance(s := window[dim.name], tuple) else s for dim in partition.dims]
    frame[partition.placement(rank)] = whole[np.ix_(*at)]
    return frame


@given(partitions())
def test_pieces_fill_every_halo_cell_once_whatever_the_boxes_and_halos(partition):
    whole = 1 + np.arange(float(np.prod(partition.shape))).reshape(partition.shape)
    blocks = []
    for rank in range(partition.ranks):
        blocks.append(np.zeros(partition.frame_shape(rank)))
        blocks[rank][partition.interior(rank)] = whole[partition.block(rank)]
    written = [np.zeros(block.shape, int) for block in blocks]
    for source in range(partition.ranks):
        for target in range(partition.ranks):
            for from_, to in pieces(partition, source, target):
                blocks[target][to] = blocks[source][from_]
                written[target][to] += 1
    for rank in range(partition.ranks):
        expected = expected_frame(partition, rank, whole)
        assert np.array_equal(blocks[rank], expected)
        halo = np.ones(expected.shape, bool)
        halo[partition.interior(rank)] = False
        assert np.array_equal(written[rank], (halo & (expected > 0)).astype(int))


def test_one_rank_without_mpi_is_its_own_neighbour():
    partition = Partition((Dim("lat", 2, halo=(1, 1)), Dim("lon", 3, periodic=True, halo=(1, 1))), 1)
    frame = np.full((2, 4, 5), -1.0)
    frame[:, 1:3, 1:4] = [[[1, 2, 3], [4, 5, 6]], [[7, 8, 9], [10, 11, 12]]]
    exchange = HaloExchange(partition, leading=(2,))
    exchange(frame)
    assert frame[0].tolist() == [[-1] * 5, [3, 1, 2, 3, 1], [6, 4, 5, 6, 4], [-1] * 5]
    assert frame[1, 1].tolist() == [9, 7, 8, 9, 7]
    exchange.close()


def test_arrays_and_partitions_that_do_not_fit_are_refused():
    partition = Partition((Dim("lat", 4, halo=(1, 1)),), 1)
    exchange = HaloExchange(partition)
    with pytest.raises(ValueError, match="is not a frame"):
        exchange(np.zeros(4))
    with pytest.raises(ValueError, match="is not a frame"):
        exchange(np.zeros(6, np.float32))
    with pytest.raises(DeclarationError, match="2 ranks on 1"):
        HaloExchange(Partition((Dim("lat", 4),), 2))


def test_totals_are_exactly_rounded():
    blocks = Blocks(Partition((Dim("x", 4),), 1))
    assert blocks.total(np.array([1e16, 1.0, 1.0, -1e16])) == 2.0  # left to right this is 0
    with pytest.raises(ValueError, match="expected"):
        blocks.total(np.zeros(3))
