"""The pictures of a run: nothing covers anything else, and maps show what they are of."""

from __future__ import annotations

import numpy as np
import pytest

from integrator.pictures import Lane, draw_maps, draw_timeline
from integrator.sweep import Interval

plt = pytest.importorskip("matplotlib.pyplot")
KINDS = ("take", "forward", "adjoint", "decode", "restart")


@pytest.fixture
def figures(monkeypatch):
    """Give the figures that are drawn, which are closed only afterwards."""
    drawn, close = [], plt.close
    monkeypatch.setattr(plt, "close", drawn.append)
    yield drawn
    for figure in drawn:
        close(figure)


@pytest.mark.parametrize("rows", [1, 3, 12])
def test_no_words_of_the_timeline_overlap(figures, tmp_path, rows):
    intervals = [Interval(kind, 0, 1.0 * n, n + 1.0) for n, kind in enumerate(KINDS)]
    lanes = [Lane(f"rank {n}, decode {n}", intervals) for n in range(rows)]
    draw_timeline(tmp_path / "timeline.png", lanes, "who did what when")
    (figure,) = figures
    figure.draw_without_rendering()  # at its own resolution, no more that of the file
    (axes,) = figure.axes
    (legend,) = figure.legends
    assert len(legend.get_texts()) == len(KINDS)
    words = [axes.title, axes.xaxis.label, *axes.get_xticklabels(), *axes.get_yticklabels(), legend]
    boxes = [word.get_window_extent() for word in words if word is legend or word.get_text()]
    assert len(boxes) > rows + 4
    assert not [(n, m) for n, one in enumerate(boxes) for m in range(n) if one.overlaps(boxes[m])]
    assert all(figure.bbox.contains(x, y) for box in boxes for x, y in box.corners())


@pytest.mark.parametrize(
    ("lon", "target", "west"),
    [
        (np.arange(36) * 10.0, (170, -130), -180),  # across the date line, where the globe's map is cut
        (np.array([150.0, 160, 170, -180, -170, -160]), (170, 190), 150),
        (np.array([340.0, 350, 0, 10, 20]), (-10, 10), -20),
    ],
)
def test_the_target_is_outlined_on_a_map_that_runs_from_west_to_east(figures, tmp_path, lon, target, west):
    lat = np.linspace(80, 20, 7)
    values = np.ones((7, lon.size)) * np.arange(lon.size)
    draw_maps(tmp_path / "m.png", lat, lon, {"x": (values, "y")}, "z", {"lat": (30, 50), "lon": target})
    axes = figures[0].axes[0]
    (mesh,) = axes.collections
    edges = mesh.get_coordinates()[0, :, 0]
    assert edges[0] == west - 5
    assert np.allclose(np.diff(edges), 10)
    shown = mesh.get_array()[0]
    assert [lon[int(n)] % 360 for n in shown] == [(x + 5) % 360 for x in edges[:-1]]
    boxes = [line.get_xydata() for line in axes.lines if line.get_xydata().size]
    left, right = axes.get_xlim()
    seen = {x % 360 for box in boxes for x in box[:, 0] if left <= x <= right}
    assert seen == {edge % 360 for edge in target}
    assert {y for box in boxes for y in box[:, 1]} == {30, 50}
    assert (left, right) == (edges[0], edges[-1])
