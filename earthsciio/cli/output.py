"""Tables and figures on the terminal: drawn by rich where somebody looks, plain columns where a file does."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["format_bytes", "print_table"]


def print_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table to stdout.

    Parameters
    ----------
    headers : sequence of str
        One per column.
    rows : sequence of sequences
        Cells; anything that can be written as text. Numbers are aligned right.
    """
    cells = [[str(cell) for cell in row] for row in rows]
    numeric = [all(isinstance(row[i], (int, float)) for row in rows) for i in range(len(headers))]
    if sys.stdout.isatty():
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for header, right in zip(headers, numeric, strict=True):
            table.add_column(header, justify="right" if right else "left", overflow="fold")
        for row in cells:
            # as it is: a file's attributes may hold what rich takes for markup
            table.add_row(*map(Text, row))
        Console().print(table)
        return
    widths = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
    for row in [list(headers), *cells]:
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        print("  ".join(padded).rstrip())


def format_bytes(count: int) -> str:
    """Write a number of bytes for people: ``999 B``, ``1.5 KiB``, ``8.0 GiB``."""
    if count < 1024:
        return f"{count} B"
    size, units = count / 1024, ["KiB", "MiB", "GiB", "TiB", "PiB"]
    while size >= 1024 and len(units) > 1:
        size, units = size / 1024, units[1:]
    return f"{size:.1f} {units[0]}"
