"""Run a case, alone or under mpiexec; rank 0 prints what it cost and what it proves."""

from __future__ import annotations

import argparse
import json
import pickle
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from earthsciio.errors import EarthSciIOError

from . import MPI_EXTRA, communicator

if TYPE_CHECKING:
    from earthsciio.declare import Case
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
    parser.add_argument(
        "--plots",
        action=argparse.BooleanOptionalAction,
        help="draw pictures, whatever the case says",
    )
    parser.add_argument("--save", type=Path, help="also keep the outcome for other programs, as a pickle")


def run(arguments: argparse.Namespace) -> int:
    """Run the case on this rank."""
    comm = communicator()
    if comm is not None:
        from integrator.ranks import install_excepthooks

        install_excepthooks(comm, brief=None if arguments.debug else "integrator")
    from integrator.ranks import agreed
    from integrator.run import run_case

    case, folder, plots = agreed(comm, lambda: _prepare(arguments))
    outcome = run_case(case, comm, direction=arguments.sweep, measure=arguments.measure)
    if outcome is None:
        return 0
    if arguments.save is not None:
        arguments.save.write_bytes(pickle.dumps(outcome))
    _tell(case.name, outcome, folder, plots=plots)
    return 0


def _prepare(arguments: argparse.Namespace) -> tuple[Case, Path | None, bool]:
    """Read the case; miss an optional package before the run, not after it."""
    from earthsciio.declare import load_case

    case = load_case(arguments.case)
    folder = arguments.out or (None if case.output.folder is None else Path(case.output.folder))
    plots = folder is not None and (case.output.plots if arguments.plots is None else arguments.plots)
    needs_schedule = (arguments.sweep or case.sweep.direction) == "adjoint"
    if needs_schedule and find_spec("checkpoint_schedules") is None:
        raise EarthSciIOError("an adjoint sweep needs checkpoint-schedules", hint=MPI_EXTRA)
    if plots and find_spec("matplotlib") is None:
        raise EarthSciIOError(
            "pictures need matplotlib", hint="pip install 'earthsci-forcing[plot]', or run with --no-plots"
        )
    return case, folder, plots


def _tell(name: str, outcome: Outcome, folder: Path | None, *, plots: bool) -> None:
    from integrator.report import HEADINGS, LEGEND, remarks, row, summary, text_table, write_pictures

    rows = [HEADINGS, row(name, outcome.figures)]
    print(text_table(rows))
    told = [*remarks([outcome.figures]), *summary(outcome)]
    print("\n".join(told))
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    files = json.dumps({"case": name, "files": outcome.provenance}, indent=2)
    (folder / "provenance.json").write_text(files + "\n", encoding="utf-8")
    text = [
        f"# {name}",
        "",
        text_table(rows, markdown=True),
        "",
        LEGEND,
        "",
        *(f"- {line}" for line in told),
    ]
    if plots:
        text += ["", "![timeline](timeline.png)", "", "![maps](tracer.png)"]
    (folder / "report.md").write_text("\n".join(text) + "\n", encoding="utf-8")
    if plots:
        write_pictures(folder, name, outcome)
    print(f"report: {folder / 'report.md'}")
