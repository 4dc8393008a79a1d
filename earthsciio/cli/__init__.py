"""The ``earthsciio`` command: one module per subcommand, imported when it is called for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .dispatch import Command, dispatch

__all__ = ["COMMANDS", "main"]

COMMANDS: Final = (
    Command(
        "check",
        "earthsciio.cli.check",
        "open the first and last files of every source, and say what is wrong",
    ),
    Command("inspect", "earthsciio.cli.inspect", "show what is in a file, or in the first file of a source"),
    Command(
        "warm", "earthsciio.cli.warm", "bring the files a run needs into the cache, for a run without network"
    ),
    Command("cache", "earthsciio.cli.cache", "list, verify or prune the cache"),
    Command("schema", "earthsciio.cli.schema", "print the JSON Schema of source and case files"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the ``earthsciio`` command and give its exit code: 0, 1 (something is wrong), 2 (error)."""
    return dispatch("earthsciio", "Forcing files for model integrators.", COMMANDS, argv)
