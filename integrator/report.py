"""What a run tells people: a table of figures, and a report with pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from .figures import Figures
from .pictures import draw_maps, draw_timeline
from .run import Outcome

__all__ = ["HEADINGS", "LEGEND", "row", "summary", "text_table", "write_pictures"]

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
    return [*lines, *outcome.notes]


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
