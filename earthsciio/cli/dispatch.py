"""Subcommands, and what happens around all of them: lazy imports, one-line errors, exit codes.

A subcommand is a module with ``configure(parser)``, which adds its arguments, and ``run(args)``, which gives
the exit code. Only the one that was called for is imported, so that ``--help`` is quick and a missing
optional library disturbs nobody else. Errors of the library are one line on stderr and exit code 2;
``--debug`` shows the traceback.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, cast

from earthsciio.errors import EarthSciIOError

__all__ = ["Command", "Subcommand", "dispatch"]


class Subcommand(Protocol):
    """What the module of a subcommand offers."""

    def configure(self, parser: argparse.ArgumentParser, /) -> None:
        """Add its arguments."""
        ...

    def run(self, args: argparse.Namespace, /) -> int:
        """Do it, and give the exit code."""
        ...


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand by name: the module it lives in, and one line of help."""

    name: str
    module: str
    help: str

    def load(self) -> Subcommand:
        """Import it."""
        return cast("Subcommand", import_module(self.module))


def dispatch(
    program: str,
    description: str,
    commands: Sequence[Command],
    argv: Sequence[str] | None = None,
    *,
    raises: bool = False,
) -> int:
    """Run the subcommand that the arguments name.

    Parameters
    ----------
    program, description : str
        For help and messages.
    commands : sequence of Command
        What there is, in the order of the help.
    argv : sequence of str, optional
        The arguments; those of the process by default.
    raises : bool
        Let errors of the library through, as ``--debug`` does.

    Returns
    -------
    int
        The subcommand's exit code; 2 after an error of the library, 130 after Ctrl-C.

    Raises
    ------
    SystemExit
        From ``--help``, and for arguments that make no sense (code 2).
    EarthSciIOError
        With ``--debug``, or if `raises`.
    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    args, subcommand = _parse(program, description, commands, arguments)
    with warnings.catch_warnings():
        warnings.showwarning = _one_line(program)
        try:
            code = subcommand.run(args)
            sys.stdout.flush()
        except EarthSciIOError as error:
            if args.debug or raises:
                raise
            print(f"{program}: error: {' '.join(str(error).split())}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            return 130
        except BrokenPipeError:
            # whoever reads our output has seen enough; nothing must be written to it at exit either
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
    return code


def _parse(
    program: str, description: str, commands: Sequence[Command], arguments: Sequence[str]
) -> tuple[argparse.Namespace, Subcommand]:
    parser = argparse.ArgumentParser(program, description=description)
    _add_debug(parser, default=False)
    choices = parser.add_subparsers(metavar="COMMAND", dest="command", required=True)
    wanted = next((argument for argument in arguments if not argument.startswith("-")), None)
    loaded: dict[str, Subcommand] = {}
    for command in commands:
        child = choices.add_parser(
            command.name, help=command.help, description=command.help.capitalize() + "."
        )
        _add_debug(child, default=argparse.SUPPRESS)  # else it would undo one that stands before the command
        if command.name == wanted:
            loaded[command.name] = command.load()
            loaded[command.name].configure(child)
    args = parser.parse_args(arguments)
    return args, loaded[args.command]


def _add_debug(parser: argparse.ArgumentParser, *, default: Any) -> None:
    parser.add_argument(
        "--debug", action="store_true", default=default, help="show the traceback of an error"
    )


def _one_line(program: str) -> Any:
    def show(message: Warning | str, *_: object, **__: object) -> None:
        print(f"{program}: warning: {' '.join(str(message).split())}", file=sys.stderr)

    return show
