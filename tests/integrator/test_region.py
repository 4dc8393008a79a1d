"""The tracer on a part of the grid: open edges, its own transpose, and which cells of the files it has."""

from __future__ import annotations

from math import fsum

import numpy as np
import pytest
from synthetic import DAY, grid, sample, winds

from earthsciio.errors import DeclarationError, SelectionRangeError
from earthsciio.selection import Window
from integrator.domain import Domain, neighbours
from integrator.models.setup import set_up_model
from integrator.models.tracer import TracerModel

ROWS, COLUMNS = (3, 9), np.array([13, 14, 15, 0, 1, 2, 3])
AXES = {"lat": np.linspace(90, -90, 13), "lon": np.arange(16) * 22.5}


def on_part(g, columns=COLUMNS, rows=ROWS, step=900.0):
    part = g.part(rows, columns)
    return part, TracerModel(part, part.partition(1), step=step)


def inside(field, columns=COLUMNS, rows=ROWS):
    return field[..., slice(*rows), :][..., columns]


def reference_step(part, q, u, v, dt):
    """One step on the part, face by face: an edge has the wind of its cell, and no tracer beyond it."""
    nlat, nlon = q.shape
    new, gone = q.copy(), 0.0
    for j in range(nlat):
        for i in range(nlon):
            for other_j, other_i, face, wind in (
                (j, i - 1, part.height[j], -u),
                (j, i + 1, part.height[j], u),
                (j - 1, i, part.width[j, i], -part.northward * v),
                (j + 1, i, part.width[j + 1, i], part.northward * v),
            ):
                there = 0 <= other_j < nlat and 0 <= other_i < nlon
                beyond = wind[other_j, other_i] if there else wind[j, i]
                out = face * (wind[j, i] + beyond) / 2
                flow = out * (q[j, i] if out > 0 else q[other_j, other_i] if there else 0.0)
                new[j, i] -= dt / part.area[j, i] * flow
                gone += 0.0 if there else dt * flow
    return new, gone


@pytest.mark.parametrize("descending", [True, False])
def test_a_part_has_the_cells_of_the_whole_and_loses_what_flows_over_its_edges(descending):
    g = grid(descending=descending)
    part, model = on_part(g)
    assert part.area.tobytes() == inside(g.area).tobytes()
    assert part.lon.tolist() == g.lon[COLUMNS].tolist()
    assert not part.periodic
    u, v = (inside(w[0]) for w in winds(g, 1))
    q = np.random.default_rng(2).random(part.area.shape)
    got = model.forward(q, sample(0, u, v, (0.0, DAY)), 0.0, 2 * 900.0)
    expected, gone = q, 0.0
    for _ in range(2):
        expected, lost = reference_step(part, expected, u, v, 900.0)
        gone += lost
    assert np.allclose(got, expected, rtol=1e-13, atol=0)
    before, after = (fsum((x * part.area).ravel()) for x in (q, got))
    assert before - after == pytest.approx(gone, rel=1e-12)
    assert gone > 1e-3 * before
    assert got.min() >= 0


def test_away_from_its_edges_a_part_carries_the_tracer_as_the_whole_does():
    g = grid()
    model = on_part(g)[1]
    u, v = winds(g, 2)
    q = np.zeros(g.area.shape)
    q[6, 0] = 1.0
    around = [np.concatenate([w[..., -1:], w, w[..., :1]], axis=-1) for w in (u, v)]
    whole = TracerModel(g, g.partition(1), step=900.0).forward(q, sample(0, *around, (0.0, DAY)), 0.0, 1800.0)
    got = model.forward(inside(q), sample(0, inside(u), inside(v), (0.0, DAY)), 0.0, 1800.0)
    assert got.tobytes() == inside(whole).tobytes()
    assert np.count_nonzero(got) > 4


@pytest.mark.parametrize("columns", [COLUMNS, np.arange(16)])
@pytest.mark.parametrize("rows", [ROWS, (0, 4), (8, 13)])
def test_the_adjoint_of_a_part_is_its_transpose_entry_by_entry(rows, columns):
    g = grid(wall=80.0)
    part, model = on_part(g, columns, rows)
    u, v = (inside(w, columns, rows) for w in winds(g, 2))
    if part.periodic:
        u, v = (np.concatenate([w[..., -1:], w, w[..., :1]], axis=-1) for w in (u, v))
    around = sample(0, u, v, (0.0, DAY))
    units = np.eye(part.area.size).reshape(part.area.size, *part.area.shape)
    forward = np.array([model.forward(e, around, 0.0, 3600.0).ravel() for e in units]).T
    backward = np.array([model.adjoint(e, e, around, 0.0, 3600.0).ravel() for e in units]).T
    assert np.allclose(backward, forward.T, rtol=1e-11, atol=1e-18)
    assert np.count_nonzero(forward) > 5 * part.area.size
    rng = np.random.default_rng(4)
    x, y = rng.random((2, *part.area.shape))
    left = fsum((model.forward(x, around, 0.0, DAY) * y).ravel())
    right = fsum((x * model.adjoint(y, x, around, 0.0, DAY)).ravel())
    assert abs(left - right) <= 1e-12 * abs(left)


def test_nothing_leaves_over_a_pole_or_beyond_the_wall():
    g = grid(wall=60.0)
    part, model = on_part(g, np.arange(16), (0, 8))
    u, v = (np.abs(inside(w, np.arange(16), (0, 8))) for w in winds(g, 2))  # northward: away from the edge
    u, v = (np.concatenate([w[..., -1:], w, w[..., :1]], axis=-1) for w in (u, v))
    q = np.random.default_rng(5).random(part.area.shape)
    got = model.forward(q, sample(0, u, v, (0.0, DAY)), 0.0, DAY)
    before, after = (fsum((x * part.area).ravel()) for x in (q, got))
    assert abs(after - before) <= 1e-12 * before
    assert not np.array_equal(got, q)


def test_a_window_of_the_model_is_one_of_the_files():
    whole = Domain(AXES)
    rank = Window({"lat": (3, 7), "lon": [15, 0, 1]})
    assert whole.window("wind", rank) == rank
    assert not whole.is_cut
    domain = Domain(AXES, {"lat": np.arange(3, 9), "lon": COLUMNS}, {"wind": Window({"lev": [4]})})
    assert domain.axes["lon"].tolist() == (COLUMNS * 22.5).tolist()
    assert domain.window("wind", Window({"lat": (2, 4), "lon": (1, 5)})) == Window(
        {"lat": (5, 7), "lon": [14, 15, 0, 1], "lev": [4]}
    )
    assert domain.window("rain", Window({"lat": (2, 4), "lon": (3, 5)})) == Window(
        {"lat": (5, 7), "lon": (0, 2)}
    )


@pytest.mark.parametrize(
    ("selector", "stored", "cells"),
    [
        ("all", 16, list(range(16))),
        ((3, 7), 16, [3, 4, 5, 6]),
        ([14, 15, 0], 16, [14, 15, 0]),
        ((14, 17), 17, [14, 15, 0]),  # the meridian stored twice is the first
        ((0, 17), 17, list(range(16))),
        ([*range(8, 16), *range(8)], 16, [*range(8, 16), *range(8)]),
    ],
)
def test_a_run_of_columns_may_cross_the_end_of_the_files(selector, stored, cells):
    assert neighbours(Window({"lon": selector}), "lon", stored, 16, wraps=True).tolist() == cells


@pytest.mark.parametrize("selector", [(3, 4), [3, 5], (2, 8, 2), [5, 4, 3], [], [15, 0]])
def test_what_is_no_run_of_cells_is_refused(selector):
    with pytest.raises(DeclarationError, match="run of at least 2 neighbouring cells of 'lat'"):
        neighbours(Window({"lat": selector}), "lat", 16, 16, wraps=False)
    with pytest.raises(SelectionRangeError):
        neighbours(Window({"lat": (3, 17)}), "lat", 16, 16, wraps=False)


@pytest.mark.parametrize(
    ("lon", "columns"), [((-180, 180), 16), ((0, 360), 16), ((0, 45), 3), ((315, 45), 5), ((90, 90), 1)]
)
def test_a_target_may_go_around_the_globe(lon, columns):
    parameters = {"u": ["w", "u"], "v": ["w", "v"], "step": 60.0, "target": {"lat": [0, 30], "lon": lon}}
    setup = set_up_model("tracer", parameters, Domain(AXES), None)
    assert np.count_nonzero(setup.weights) == 3 * columns
