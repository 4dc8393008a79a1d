"""What a run tells people: a table of figures, and a report with pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .figures import Figures
from .pictures import draw_maps, draw_timeline
from .run import Outcome

__all__ = ["HEADINGS", "LEGEND", "remarks", "row", "summary", "text_table", "write_pictures"]

#: Columns of the table of runs.
HEADINGS = (
    "run", "ranks", "epochs", "takes", "decode s", "waited s", "first wait s", "compute s", "total s", "AU",
    "hidden", "records", "MB decoded / node",
)  # fmt: skip


#: What the columns mean, for reports.
LEGEND = """\
*takes* counts epochs handed to the model, replays of an adjoint included; *decode s* is summed over decoding
threads. Other seconds are the slowest rank's: *first wait* is for the first epoch, which nothing can hide,
*waited* is for the others. *AU* is the time of the model alone over the time of the run, and *hidden* the
share of a synchronous decode that cost the run no time. Both need reference runs, which `--measure` makes;
*hidden* a decode of a tenth of the computing or more; else *n/a*. *records* and *MB* are those decoded
on a node."""


def row(name: str, figures: Figures) -> tuple[str, ...]:
    """Give the cells of one run, in the order of :data:`HEADINGS`."""
    return (
        name,
        str(figures.ranks),
        str(figures.epochs),
        str(figures.takes),
        f"{figures.decode_s:.2f}",
        f"{figures.waited_s:.2f}",
        f"{figures.first_wait_s:.2f}",
        f"{figures.compute_s:.2f}",
        f"{figures.total_s:.2f}",
        "n/a" if figures.au is None else f"{figures.au:.3f}",
        "n/a" if figures.hidden is None else f"{figures.hidden:.3f}",
        str(figures.records),
        f"{figures.bytes_decoded / 1e6:.0f}",
    )


def remarks(runs: Sequence[Figures]) -> list[str]:
    """Say what figures outside 0 to 1 mean, if there are any among those of some runs."""
    lines = []
    if any(figures.hidden is not None and figures.hidden < 0 for figures in runs):
        lines.append(
            "hidden is below 0 where prefetching cost the run more than the decode takes alone: ranks that "
            "fill the cores leave none to decode on, or the run and its reference were disturbed"
        )
    if any(figures.au is not None and figures.au > 1 for figures in runs):
        lines.append(
            "AU is above 1 where the run took less time than the model alone, which can't be: the machine "
            "had other work beside one of the two"
        )
    return lines


def text_table(rows: Sequence[Sequence[str]], *, markdown: bool = False) -> str:
    """Lay a table out as plain text or Markdown; the first row is the heading."""
    widths = [max(len(cells[column]) for cells in rows) for column in range(len(rows[0]))]
    lines = []
    for cells in rows:
        padded = [
            cells[0].ljust(widths[0]),
            *(c.rjust(w) for c, w in zip(cells[1:], widths[1:], strict=True)),
        ]
        lines.append(f"| {' | '.join(padded)} |" if markdown else "  ".join(padded))
    rule = [("-" * (width + 1) + ":") if column else "-" * (width + 2) for column, width in enumerate(widths)]
    lines.insert(1, f"|{'|'.join(rule)}|" if markdown else "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def summary(outcome: Outcome) -> list[str]:
    """Say in a line each what the run proves, mass kept and adjoint exact, and what it was of."""
    before, after = outcome.mass
    change = abs(after - before) / abs(before) if before else abs(after)
    lines = [f"mass: {before:.9e} before, {after:.9e} after, relative change {change:.1e}"]
    if outcome.identity is not None:
        forward, backward = outcome.identity
        difference = abs(forward - backward) / abs(forward) if forward else abs(backward)
        lines.append(
            f"adjoint identity: <L x, y> = {forward:.15e}, <x, L* y> = {backward:.15e}, "
            f"relative difference {difference:.1e}"
        )
    return [*lines, *outcome.notes, *_stand_ins(outcome)]


def _stand_ins(outcome: Outcome) -> list[str]:
    """Say of which sources files were missing, and what stood in for them."""
    absent: dict[str, list[Mapping[str, Any]]] = {}
    for used in outcome.provenance:
        if used["stand_ins"]:
            absent.setdefault(used["source"], []).append(used)
    lines = []
    for source, files in absent.items():
        others = sorted({other for used in files for other in used["stand_ins"]})
        count = f"{len(files)} files of {source!r} do" if len(files) > 1 else f"a file of {source!r} does"
        stood = others[0] if len(others) == 1 else f"{others[0]} and {len(others) - 1} more"
        first = files[0]["url"] + (", ..." if len(files) > 1 else "")
        lines.append(f"{count} not exist ({first}): {stood} stood in, see provenance.json")
    return lines


def write_pictures(folder: Path, name: str, outcome: Outcome) -> None:
    """Draw ``timeline.png`` and ``tracer.png`` into a folder."""
    draw_timeline(folder / "timeline.png", outcome.lanes, f"{name}: who did what when")
    fields: Mapping[str, tuple[object, str]] = {
        "tracer at the start": (outcome.start, "tracer"),
        "tracer at the end": (outcome.end, "tracer"),
    }
    maps = dict(fields)
    if outcome.gradient is not None:
        # per unit of mass, since cells differ in area
        maps["sensitivity: how much of the tracer that starts here ends in the target region"] = (
            outcome.gradient / outcome.area,
            "share",
        )
    draw_maps(folder / "tracer.png", outcome.lat, outcome.lon, maps, name, outcome.target)  # type: ignore[arg-type]
