"""Run a case, alone or under mpiexec; rank 0 prints what it cost and what it proves."""

from __future__ import annotations

import argparse
import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING

from . import communicator

if TYPE_CHECKING:
    from integrator.run import Outcome


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("case", type=Path, help="the case, YAML")
    parser.add_argument("--sweep", choices=("forward", "adjoint"), help="instead of the case's own direction")
    parser.add_argument(
        "--measure", action="store_true", help="make the reference runs that AU and hidden need"
    )
    parser.add_argument(
        "--out",
        type=Path,
        help="folder for report.md, provenance.json and pictures, instead of the case's own",
    )
    parser.add_argument("--save", type=Path, help="also keep the outcome for other programs, as a pickle")


def run(arguments: argparse.Namespace) -> int:
    """Run the case on this rank."""
    comm = communicator()
    if comm is not None:
        from integrator.ranks import install_excepthooks

        install_excepthooks(comm)
    from earthsciio.declare import load_case
    from integrator.run import run_case

    case = load_case(arguments.case)
    outcome = run_case(case, comm, direction=arguments.sweep, measure=arguments.measure)
    if outcome is None:
        return 0
    if arguments.save is not None:
        arguments.save.write_bytes(pickle.dumps(outcome))
    folder = arguments.out or (None if case.output.folder is None else Path(case.output.folder))
    _tell(case.name, outcome, folder, plots=case.output.plots or arguments.out is not None)
    return 0


def _tell(name: str, outcome: Outcome, folder: Path | None, *, plots: bool) -> None:
    from integrator.report import HEADINGS, row, summary, text_table, write_pictures

    rows = [HEADINGS, row(name, outcome.figures)]
    print(text_table(rows))
    print("\n".join(summary(outcome)))
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    files = json.dumps({"case": name, "files": outcome.provenance}, indent=2)
    (folder / "provenance.json").write_text(files + "\n", encoding="utf-8")
    text = [f"# {name}", "", text_table(rows, markdown=True), "", *(f"- {line}" for line in summary(outcome))]
    if plots:
        write_pictures(folder, name, outcome)
        text += ["", "![timeline](timeline.png)", "", "![maps](tracer.png)"]
    (folder / "report.md").write_text("\n".join(text) + "\n", encoding="utf-8")
    print(f"report: {folder / 'report.md'}")
