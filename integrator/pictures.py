"""The pictures of a run: who decoded, computed and waited when, and where the tracer went.

Needs matplotlib (the extra ``plot``); it is imported when a picture is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from earthsciio.fields import Array

from .sweep import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Lane", "draw_maps", "draw_timeline"]

_COLOURS = {
    "forward": ("#4c78a8", "compute, forward"),
    "adjoint": ("#72b7b2", "compute, adjoint"),
    "decode": ("#f2a541", "decode"),
    "take": ("#d62728", "wait for forcing"),
    "release": ("#d62728", "wait for forcing"),
    "restart": ("#9d755d", "write restart"),
}


@dataclass(frozen=True, slots=True)
class Lane:
    """One row of the timeline: a rank or a decoding thread, and what it did."""

    name: str
    intervals: Sequence[Interval]


def _pyplot() -> Any:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def draw_timeline(path: Path, lanes: Sequence[Lane], title: str) -> None:
    """Draw what every rank and decoding thread did, on one clock.

    Parameters
    ----------
    path : pathlib.Path
        PNG to write.
    lanes : sequence of Lane
        From top to bottom; times are ``time.perf_counter`` seconds of one node.
    title : str
        Above the picture.
    """
    plt = _pyplot()
    busy = [interval for lane in lanes for interval in lane.intervals]
    origin = min((interval.start for interval in busy), default=0.0)
    length = max((interval.stop for interval in busy), default=1.0) - origin
    figure, axes = plt.subplots(figsize=(12, 1.4 + 0.5 * len(lanes)), layout="constrained")
    for row, lane in enumerate(lanes):
        for kind in dict.fromkeys(interval.kind for interval in lane.intervals):
            bars = [(i.start - origin, i.seconds) for i in lane.intervals if i.kind == kind]
            axes.broken_barh(bars, (row - 0.4, 0.8), facecolors=_COLOURS[kind][0], linewidth=0)
    shown = dict.fromkeys(_COLOURS[interval.kind] for interval in busy)
    handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour, _ in shown]
    figure.legend(handles, [label for _, label in shown], loc="outside lower center", ncols=5, frameon=False)
    axes.set_yticks(range(len(lanes)), [lane.name for lane in lanes])
    axes.invert_yaxis()
    axes.set_xlim(0, length)
    axes.set_xlabel("seconds since the sweep began")
    axes.set_title(title)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def draw_maps(
    path: Path,
    lat: Array,
    lon: Array,
    fields: Mapping[str, tuple[Array, str]],
    title: str,
    target: Mapping[str, tuple[float, float]] | None = None,
) -> None:
    """Draw fields of the globe, or of a part of it, one above the other on map axes.

    Parameters
    ----------
    path : pathlib.Path
        PNG to write.
    lat, lon : numpy.ndarray, shape (nlat,) and (nlon,)
        Degrees; latitude may run either way.
    fields : mapping of str to (numpy.ndarray of shape (nlat, nlon), str)
        Title of each map, its values, and the label of its colour bar.
    title : str
        Above the picture.
    target : mapping of str to (float, float), optional
        ``lat`` and ``lon`` bounds of the region to outline, degrees.
    """
    plt = _pyplot()
    x, order = _eastward(lon)
    height = 1 + min(max(5.8 * np.ptp(lat) / np.ptp(x), 1.5), 8)
    figure, rows = plt.subplots(
        len(fields), 1, figsize=(9, height * len(fields)), layout="constrained", squeeze=False
    )
    for axes, (name, (values, label)) in zip(rows[:, 0], fields.items(), strict=True):
        _draw_map(plt, axes, x, lat, values[:, order], name, label)
        if target is not None:
            _outline(axes, target)
    figure.suptitle(title)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _eastward(lon: Array) -> tuple[Array, Array]:
    """Give longitudes ascending from the west of the map, and the order that makes them so.

    The map of a globe begins at the date line; that of a part of it behind its widest gap.
    """
    wrapped = (lon + 180) % 360 - 180
    order = np.argsort(wrapped, kind="stable")
    x = wrapped[order]
    gaps = np.diff(x, append=x[0] + 360)
    widest = int(np.argmax(gaps))
    if gaps[widest] > 1.5 * np.max(np.delete(gaps, widest), initial=0):
        x = np.concatenate([x[widest + 1 :], x[: widest + 1] + 360])
        order = np.roll(order, -(widest + 1))
        x = x - 360 if x[0] >= 180 else x
    return x, order


def _outline(axes: Axes, target: Mapping[str, tuple[float, float]]) -> None:
    """Draw the box of the target, wherever the map shows it."""
    (south, north), (west, east) = sorted(target["lat"]), target["lon"]
    east = west + (360.0 if east - west >= 360 else (east - west) % 360)
    left, right = axes.get_xlim()
    for turn in (-720, -360, 0, 360, 720):
        if west + turn < right and east + turn > left:
            box = [west + turn, east + turn, east + turn, west + turn, west + turn]
            axes.plot(box, [south, south, north, north, south], color="#d62728", linewidth=1.2)
    axes.plot([], [], color="#d62728", linewidth=1.2, label="target")
    axes.legend(loc="lower left", fontsize="small")


def _degrees(value: float, sides: str) -> str:
    side = "" if value in (0, -180) else sides[int(value > 0)]
    return f"{abs(value):g}°{side}"


def _draw_map(plt: Any, axes: Axes, x: Array, y: Array, values: Array, name: str, label: str) -> None:
    both = bool(values.min() < 0)
    # a few cells in a corner must not take the colours of all others
    bound = float(np.quantile(np.abs(values), 0.999)) or float(np.max(np.abs(values))) or 1.0
    mesh = axes.pcolormesh(
        x,
        y,
        values,
        shading="nearest",
        rasterized=True,
        vmin=-bound if both else 0.0,
        vmax=bound,
        cmap="RdBu_r" if both else "viridis",
    )
    beyond = bool(np.max(np.abs(values)) > bound)
    plt.colorbar(mesh, ax=axes, label=label, shrink=0.9, extend="max" if beyond else "neither")
    axes.set_title(name)
    axes.set_aspect("equal")
    # the mesh's, whatever is drawn on it
    axes.set_xlim(axes.get_xlim())
    axes.set_ylim(axes.get_ylim())
    if x[-1] - x[0] > 300:
        axes.set_xticks(range(-120, 121, 60))
    if np.ptp(y) > 150:
        axes.set_ylim(-90, 90)
        axes.set_yticks(range(-60, 61, 30))
    axes.xaxis.set_major_formatter(lambda t, _: _degrees((t + 180) % 360 - 180, "WE"))
    axes.yaxis.set_major_formatter(lambda t, _: _degrees(t, "SN"))
    axes.grid(color="white", alpha=0.25, linewidth=0.5)
