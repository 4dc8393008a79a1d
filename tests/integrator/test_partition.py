"""Partitions: every cell once, halos clipped and wrapped, faces shared."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earthsciio.errors import DeclarationError
from earthsciio.selection import Window
from integrator.partition import Dim, Faces, IndexPartition, Partition, _grouped


@st.composite
def partitions(draw):
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    halo = st.tuples(st.integers(0, 6), st.integers(0, 6))
    dims = [Dim(f"d{i}", n, draw(st.booleans()), draw(halo)) for i, n in enumerate(sizes)]
    return Partition(tuple(dims), draw(st.integers(1, int(np.prod(sizes)))))


def indices(selector):
    return list(range(*selector)) if isinstance(selector, tuple) else selector


@given(partitions())
def test_blocks_own_every_cell_exactly_once_for_every_number_of_ranks(partition):
    count = np.zeros(partition.shape, int)
    for rank in range(partition.ranks):
        assert min(partition.block_shape(rank)) >= 1
        count[partition.block(rank)] += 1
    assert np.all(count == 1)


@given(partitions())
def test_window_placed_in_the_frame_is_the_grid_around_the_block(partition):
    whole = np.arange(np.prod(partition.shape)).reshape(partition.shape)
    for rank in {0, partition.ranks // 2, partition.ranks - 1}:
        frame = np.full(partition.frame_shape(rank), -1)
        window = partition.window(rank)
        rows = [indices(window[dim.name]) for dim in partition.dims]
        frame[partition.placement(rank)] = whole[np.ix_(*rows)]
        # brute force: cell by cell, from the block's first cell and the halo's width
        origin = [s - dim.halo[0] for dim, (s, _) in zip(partition.dims, partition.boxes[rank], strict=True)]
        for at in np.ndindex(*frame.shape):
            cell = [o + i for o, i in zip(origin, at, strict=True)]
            wrapped = [
                c % dim.size if dim.periodic else c for dim, c in zip(partition.dims, cell, strict=True)
            ]
            inside = all(0 <= c < dim.size for dim, c in zip(partition.dims, wrapped, strict=True))
            assert frame[at] == (whole[tuple(wrapped)] if inside else -1)
        assert np.array_equal(frame[partition.interior(rank)], whole[partition.block(rank)])


@pytest.mark.parametrize("ranks", [*range(1, 9), 16, 97, 149, 1000])
def test_blocks_of_a_globe_are_nearly_equal_and_nearly_square(ranks):
    partition = Partition((Dim("lat", 721), Dim("lon", 1440, periodic=True)), ranks)
    shapes = [partition.block_shape(rank) for rank in range(ranks)]
    cells = np.prod(shapes, axis=1)
    assert cells.max() <= 1.1 * cells.mean()
    assert max(max(shape) / min(shape) for shape in shapes) <= 3.1


def test_windows_wrap_as_indices_and_clip_as_slices():
    globe = (Dim("lat", 73, halo=(1, 1)), Dim("lon", 144, periodic=True, halo=(1, 2)))
    partition = Partition(globe, 4)
    assert [partition.owned(rank) for rank in range(4)] == [
        {"lat": (0, 36), "lon": (0, 72)},
        {"lat": (36, 73), "lon": (0, 72)},
        {"lat": (0, 36), "lon": (72, 144)},
        {"lat": (36, 73), "lon": (72, 144)},
    ]
    assert partition.window(0) == Window({"lat": (0, 37), "lon": [143, *range(74)]})
    assert partition.window(3) == Window({"lat": (35, 73), "lon": [*range(71, 144), 0, 1]})
    assert partition.window(3).shape(partition.sizes) == (38, 75)
    inner = Partition((Dim("lat", 4), Dim("lon", 12, periodic=True, halo=(1, 1))), 3).window(1)
    assert inner == Window({"lat": (0, 4), "lon": (3, 9)})


def test_a_halo_longer_than_the_periodic_dimension_repeats_indices():
    partition = Partition((Dim("lon", 4, periodic=True, halo=(5, 3)),), 1)
    assert partition.window(0)["lon"] == [3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2]


def test_every_cell_can_have_its_own_rank_and_no_more():
    partition = Partition((Dim("y", 3), Dim("x", 4)), 12)
    assert {partition.block_shape(rank) for rank in range(12)} == {(1, 1)}
    with pytest.raises(DeclarationError, match="12 cells among 13 ranks"):
        Partition((Dim("y", 3), Dim("x", 4)), 13)
    with pytest.raises(DeclarationError, match="among 0 ranks"):
        Partition((Dim("y", 3),), 0)


def test_staggered_neighbours_share_a_face_and_the_last_one_is_delivered():
    # hard-inputs "Staggered variables": T(4, 5), U(4, 6), V(5, 5) on two ranks
    faces = Faces("lon_u", of="lon", size=6), Faces("lat_v", of="lat", size=5)
    partition = Partition((Dim("lat", 4), Dim("lon", 5)), 2, faces)
    u = np.arange(24.0).reshape(4, 6)
    west, east = partition.window(0), partition.window(1)
    assert west == Window({"lat": (0, 4), "lon": (0, 2), "lon_u": (0, 3), "lat_v": (0, 5)})
    assert east == Window({"lat": (0, 4), "lon": (2, 5), "lon_u": (2, 6), "lat_v": (0, 5)})
    assert np.array_equal(u[:, slice(*west["lon_u"])][:, -1], u[:, slice(*east["lon_u"])][:, 0])
    assert u[0, slice(*east["lon_u"])][-1] == 5


@pytest.mark.parametrize(
    ("size", "west", "east"),
    [
        (6, [5, 0, 1, 2, 3, 4], [2, 3, 4, 5, 0, 1]),  # face 6 is face 0
        (7, [5, 0, 1, 2, 3, 4], [2, 3, 4, 5, 6, 1]),  # face 6 is stored too, and delivered
    ],
)
def test_faces_of_a_periodic_dimension_wrap(size, west, east):
    cells = Dim("lon", 6, periodic=True, halo=(1, 1))
    partition = Partition((cells,), 2, (Faces("lon_u", of="lon", size=size),))
    assert [partition.window(rank)["lon_u"] for rank in (0, 1)] == [west, east]


def test_faces_are_clipped_with_their_cells():
    partition = Partition((Dim("lat", 6, halo=(2, 2)),), 2, (Faces("edge", of="lat", size=7),))
    assert [partition.window(rank) for rank in (0, 1)] == [
        Window({"lat": (0, 5), "edge": (0, 6)}),
        Window({"lat": (1, 6), "edge": (1, 7)}),
    ]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Dim("x", 0),
        lambda: Dim("x", 3, halo=(-1, 0)),
        lambda: Partition((), 1),
        lambda: Partition((Dim("x", 3), Dim("x", 3)), 1),
        lambda: Partition((Dim("x", 3),), 1, (Faces("u", of="y", size=4),)),
        lambda: Partition((Dim("x", 3),), 1, (Faces("u", of="x", size=3),)),
        lambda: IndexPartition("cell", []),
        lambda: IndexPartition("cell", [0, 2]),
        lambda: IndexPartition("cell", [0, 1], halo=1),
        lambda: IndexPartition("cell", [0, 1], neighbours=[[1], [2]], halo=1),
    ],
)
def test_contradictions_are_refused(make):
    with pytest.raises(DeclarationError):
        make()


def test_index_lists_own_every_cell_once_and_halos_are_rings_of_neighbours():
    # a ring of 8 cells
    neighbours = [[(c - 1) % 8, (c + 1) % 8, -1] for c in range(8)]
    partition = IndexPartition("cell", [0, 0, 0, 1, 1, 2, 2, 0], neighbours=neighbours, halo=2)
    assert partition.ranks == 3
    owned = np.concatenate([partition.owned(rank) for rank in range(3)])
    assert sorted(owned.tolist()) == list(range(8))
    assert partition.window(0)["cell"] == [0, 1, 2, 7, 3, 4, 5, 6]
    assert partition.window(1)["cell"] == [3, 4, 1, 2, 5, 6]
    bare = IndexPartition("cell", [1, 0, 1])
    assert bare.window(1) == Window({"cell": [0, 2]})


def test_ranks_are_grouped_by_the_lowest_rank_of_their_node():
    assert _grouped([0, 1, 0, 1, 4], 1) == (((0, 2), (1, 3), (4,)), 1)


def test_partition_halo_and_sweep_can_be_imported_without_starting_mpi():
    code = (
        "import sys, integrator.partition, integrator.halo, integrator.blocks, integrator.sweep, "
        "integrator.restart, integrator.ranks, integrator.models.tracer; assert 'mpi4py' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
