"""The tracer model against hand-computed cells, a cell-by-cell loop, and its own transpose."""

from __future__ import annotations

from math import fsum, pi, sin

import numpy as np
import pytest
from synthetic import DAY, grid, sample, winds

from earthsciio.errors import DeclarationError
from earthsciio.fields import NativeDataset, NativeField
from earthsciio.prefetch import EpochSample, Sample
from integrator.models.tracer import CFLError, Grid, TracerModel, column_mean
from integrator.partition import Dim, Partition


def model_on(g, step):
    return TracerModel(g, g.partition(1), step=step)


def framed(g, field):
    """A rank-0-of-1 Window: all latitudes, longitudes with one more on either side."""
    return np.concatenate([field[..., -1:], field, field[..., :1]], axis=-1)


def bracket(g, u, v, times=(0.0, DAY)):
    return sample(0, framed(g, u), framed(g, v), times)


def reference_step(g, q, u, v, dt):
    """One step, cell by cell, in words of north and east only."""
    rad = np.radians(1)
    nlat, nlon = q.shape
    dlon = 2 * pi / nlon
    new = q.copy()
    north = -1 if g.lat[0] > g.lat[-1] else 1
    for j in range(nlat):
        above = g.lat[j + north] if 0 <= j + north < nlat else None
        below = g.lat[j - north] if 0 <= j - north < nlat else None
        top = 90 if above is None else (g.lat[j] + above) / 2
        bottom = -90 if below is None else (g.lat[j] + below) / 2
        area = g.radius**2 * dlon * (sin(top * rad) - sin(bottom * rad))
        side = g.radius * (top - bottom) * rad
        for i in range(nlon):
            east, west = (i + 1) % nlon, (i - 1) % nlon
            gain = 0.0
            for other, sign in ((east, -1), (west, 1)):
                flow = sign * side * (u[j, i] + u[j, other]) / 2  # into this cell
                gain += flow * (q[j, other] if flow > 0 else q[j, i])
            for other, edge, sign in ((j + north, top, -1), (j - north, bottom, 1)):
                if 0 <= other < nlat:
                    length = g.radius * dlon * np.cos(edge * rad)
                    flow = sign * length * (v[j, i] + v[other, i]) / 2
                    gain += flow * (q[other, i] if flow > 0 else q[j, i])
            new[j, i] += dt / area * gain
    return new


def test_areas_are_those_of_the_sphere_with_half_cells_at_the_poles():
    g = Grid([90, 0, -90], [0, 90, 180, 270])
    cap, belt = 2 * pi * g.radius**2 * (1 - sin(pi / 4)), 4 * pi * g.radius**2 * sin(pi / 4)
    assert np.allclose(g.area, np.array([[cap], [belt], [cap]]) / 4, rtol=1e-14)
    assert np.allclose(g.height, g.radius * np.array([pi / 4, pi / 2, pi / 4]), rtol=1e-14)
    assert np.allclose(g.width[1:-1], g.radius * np.sqrt(0.5) * pi / 2, rtol=1e-14)
    assert not g.width[[0, -1]].any()
    uneven = Grid([-90, -80, -20, 33, 90], [-170, -100, 0, 20, 120])
    assert fsum(uneven.area.ravel()) == pytest.approx(4 * pi * g.radius**2, rel=1e-14)


@pytest.mark.parametrize(
    ("lat", "lon"),
    [
        ([90, 0, 10], [0, 120, 240]),
        ([95, 0], [0, 120, 240]),
        ([90, 0], [0, 120, 240, 360]),  # one meridian twice
        ([90, 0], [0, 10, 20]),  # not around the globe
        ([90, 0], [240, 120, 0]),
        ([90], [0, 180]),
    ],
)
def test_coordinates_that_are_no_global_grid_are_refused(lat, lon):
    with pytest.raises(DeclarationError):
        Grid(lat, lon)


@pytest.mark.parametrize(
    ("lon", "text"),
    [
        ([0, 120, 240, 360], "a meridian twice.*Leave the last one out"),
        ([0, 10, 20], "a gap of 340 degrees.*whole globe.*`window`"),
        ([240, 120, 0], "must ascend"),
    ],
)
def test_what_is_wrong_with_longitudes_is_said(lon, text):
    with pytest.raises(DeclarationError, match=text):
        Grid([90, 0], lon)


def test_a_zonal_wind_of_one_cell_a_step_moves_the_tracer_by_whole_cells():
    g = grid(7, 8, descending=False)
    dt = 3600.0
    u = np.tile((g.area / g.height[:, None] / dt), (2, 1, 1))
    q = np.random.default_rng(1).random((7, 8))
    moved = model_on(g, dt).forward(q, bracket(g, u, 0 * u), 0.0, 3 * dt)
    assert np.allclose(moved, np.roll(q, 3, axis=1), rtol=0, atol=1e-14)


@pytest.mark.parametrize("descending", [True, False])
def test_a_step_agrees_with_the_cell_by_cell_loop_in_either_latitude_order(descending):
    g = grid(9, 8, descending=descending)
    u, v = winds(g, 1)
    q = np.random.default_rng(2).random((9, 8))
    expected = q
    for _ in range(4):
        expected = reference_step(g, expected, u[0], v[0], 600.0)
    got = model_on(g, 600.0).forward(q, bracket(g, u[0], v[0]), 0.0, 2400.0)
    assert np.allclose(got, expected, rtol=1e-13, atol=0)
    assert not np.allclose(got, q, rtol=1e-3)


def test_winds_are_blended_at_the_middle_of_each_step_and_held_outside_the_bracket():
    g = grid(9, 8)
    u, v = winds(g, 2)
    q = np.random.default_rng(3).random((9, 8))
    model = model_on(g, 600.0)

    def mixed(w):
        return tuple((1 - w) * x[0] + w * x[1] for x in (u, v))

    # two steps of 600 s in a bracket of 2400 s: weights 1/8 and 3/8
    got = model.forward(q, bracket(g, u, v, (0.0, 2400.0)), 0.0, 1200.0)
    expected = reference_step(g, reference_step(g, q, *mixed(1 / 8), 600.0), *mixed(3 / 8), 600.0)
    assert np.allclose(got, expected, rtol=1e-13, atol=0)
    for times, w in (((-2000.0, -1000.0), 1.0), ((1000.0, 2000.0), 0.0), ((0.0, 0.0), 0.0)):
        got = model.forward(q, bracket(g, u, v, times), 0.0, 600.0)
        assert np.allclose(got, reference_step(g, q, *mixed(w), 600.0), rtol=1e-13, atol=0)


def test_an_epoch_is_covered_by_the_fewest_equal_steps():
    g = grid(9, 8)
    u, v = winds(g, 1)
    q = np.random.default_rng(3).random((9, 8))
    got = model_on(g, 700.0).forward(q, bracket(g, u[0], v[0]), 0.0, 1200.0)  # 2 of 600 s
    expected = reference_step(g, reference_step(g, q, u[0], v[0], 600.0), u[0], v[0], 600.0)
    assert np.allclose(got, expected, rtol=1e-13, atol=0)


def test_mass_is_conserved_and_stays_positive():
    g = grid()
    u, v = winds(g, 2)
    q = np.zeros(g.area.shape)
    q[3, 5] = 1.0
    moved = model_on(g, 900.0).forward(q, bracket(g, u, v), 0.0, 5 * DAY)
    before, after = (fsum((x * g.area).ravel()) for x in (q, moved))
    assert abs(after - before) <= 1e-12 * before
    assert moved.min() >= 0
    assert np.count_nonzero(moved) > moved.size / 2


@pytest.mark.parametrize("wall", [90.0, 65.0])
def test_adjoint_is_the_transpose_of_the_step_entry_by_entry(wall):
    g = grid(5, 4, wall=wall)
    model, around = model_on(g, 1800.0), bracket(g, *winds(g, 2))
    units = np.eye(20).reshape(20, 5, 4)
    forward = np.array([model.forward(e, around, 0.0, DAY).ravel() for e in units]).T
    backward = np.array([model.adjoint(e, e, around, 0.0, DAY).ravel() for e in units]).T
    assert np.allclose(backward, forward.T, rtol=1e-11, atol=1e-18)


def test_adjoint_identity_holds_on_random_vectors():
    g = grid()
    model, around = model_on(g, 900.0), bracket(g, *winds(g, 2))
    rng = np.random.default_rng(4)
    for _ in range(3):
        x, y = rng.random((2, *g.area.shape))
        left = fsum((model.forward(x, around, 0.0, DAY) * y).ravel())
        right = fsum((x * model.adjoint(y, x, around, 0.0, DAY)).ravel())
        assert abs(left - right) <= 1e-12 * abs(left)


def test_states_passed_in_are_not_written_to():
    g = grid()
    model, around = model_on(g, 900.0), bracket(g, *winds(g, 2))
    q = np.random.default_rng(5).random(g.area.shape)
    q.flags.writeable = False
    assert np.array_equal(model.forward(q, around, 0.0, 900.0), model.forward(q, around, 0.0, 900.0))
    model.adjoint(q, q, around, 0.0, 900.0)


def test_a_step_too_long_for_the_winds_is_refused_by_name_with_one_that_works():
    g = grid()
    around = bracket(g, *winds(g, 2))
    q = np.ones(g.area.shape)
    with pytest.raises(CFLError, match=r"CFL: a step of 43200 s .* Choose a step of at most \d+") as refused:
        model_on(g, DAY / 2).forward(q, around, 0.0, DAY)
    good = float(str(refused.value).split("at most ")[1].split(" s")[0])
    assert model_on(g, good).forward(q, around, 0.0, DAY).min() >= 0


def test_nothing_moves_beyond_a_wall_whatever_the_winds_there():
    g = grid(13, 16, wall=60.0)
    u, v = winds(g, 2)
    beyond = np.abs(g.lat) > 60
    u[:, beyond], v[:, beyond] = np.nan, np.nan
    q = np.random.default_rng(6).random(g.area.shape)
    with pytest.raises(DeclarationError, match="missing values"):
        model_on(grid(13, 16), 900.0).forward(q, bracket(g, u, v), 0.0, DAY)
    moved = model_on(g, 900.0).forward(q, bracket(g, u, v), 0.0, DAY)
    assert np.array_equal(moved[beyond], q[beyond])
    before, after = (fsum((x * g.area).ravel()) for x in (q, moved))
    assert abs(after - before) <= 1e-12 * before
    assert not np.array_equal(moved[~beyond], q[~beyond])


def test_samples_and_partitions_that_do_not_fit_are_refused():
    g = grid()
    model = model_on(g, 900.0)
    u, v = winds(g, 2)
    q = np.ones(g.area.shape)
    with pytest.raises(DeclarationError, match="not this rank's Window"):
        model.forward(q, sample(0, u, v, (0.0, DAY)), 0.0, DAY)
    with pytest.raises(DeclarationError, match="no bracket"):
        model.forward(q, bracket(g, *winds(g, 3), times=(0.0, 1.0, 2.0)), 0.0, DAY)
    late = bracket(g, u, v, times=(DAY, 2 * DAY))
    mixed = EpochSample(0, {"u": bracket(g, u, v)["u"], "v": late["v"]})
    with pytest.raises(DeclarationError, match=r"that of 'u' of .* that of 'v' of .*alike"):
        model.forward(q, mixed, 0.0, DAY)
    on_levels = NativeDataset({"u": NativeField(np.zeros((2, 3, 13, 18)), ("time", "lev", "lat", "lon"))})
    with pytest.raises(DeclarationError, match=r"has levels.*transform=column_mean"):
        model.forward(q, EpochSample(0, {**late, "u": Sample(on_levels, 0.0, changed=True)}), 0.0, DAY)
    with pytest.raises(DeclarationError, match="as from Grid"):
        TracerModel(g, Partition((Dim("lat", 13), Dim("lon", 16)), 1), step=1.0)
    with pytest.raises(DeclarationError, match="time step"):
        model_on(g, 0.0)


def test_winds_on_levels_are_averaged_in_the_order_of_the_levels():
    rng = np.random.default_rng(3)
    wind = rng.normal(size=(2, 5, 3, 4)).astype("f4")
    dataset = NativeDataset({"u": NativeField(wind, ("time", "level", "lat", "lon"))}, times=())
    mean = column_mean("m", dataset)["u"]
    expected = (((wind[:, 0] + wind[:, 1]) + wind[:, 2]) + wind[:, 3] + wind[:, 4]) / np.float32(5)
    assert mean.dims == ("time", "lat", "lon")
    assert mean.data.tobytes() == expected.tobytes()
    flat = NativeDataset({"u": NativeField(wind[:, 0], ("time", "lat", "lon"))})
    assert column_mean("m", flat)["u"].data is flat["u"].data
