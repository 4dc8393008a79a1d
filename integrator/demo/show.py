"""The demonstration, step by step: inputs, runs under mpiexec, and the report."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter

from earthsciio import EarthSciIOError, load_case
from earthsciio.decode import jit_stats
from integrator.launch import mpiexec
from integrator.report import HEADINGS, LEGEND, remarks, row, summary, text_table, write_pictures
from integrator.run import Outcome

from .inputs import Refinement, fetch_winds, refine

__all__ = ["show"]

_TIMEOUT_S = 300
#: Of the refined case: bytes of forcing the reader may hold, and states kept for the way back.
_BUDGET = "150MB"
_SNAPSHOTS = 12

_REPORT = """\
# Forcing, hidden

{table}

{legend}

In *model sleeping* the model sleeps as long as it would compute, as the host
does while an accelerator steps. In the rows above it the ranks compute themselves ({ranks} ranks on {cores}
cores here): where there are as many of them as cores, decoding takes from the model every second it needs,
and nothing can be hidden.
{remarks}
## NCEP winds, monthly means, twelve epochs

{real}

![Who decoded, computed and waited when](timeline.png)

![The tracer at the start and the end, and the sensitivity](tracer.png)

## Refined winds

{fine}

![Who decoded, computed and waited when](refined/timeline.png)

![The tracer at the start and the end, and the sensitivity](refined/tracer.png)
"""

_REAL = """\
# NCEP reanalysis winds, monthly means of 1970, repeated every year; a passive tracer for twelve epochs.
case: ncep-winds
vars: {winds: data}
sources:
  uwnd: &wind
    format: netcdf
    url: "{winds}/uwnd_mean.nc"
    variables: [uwnd]
    temporal: &monthly
      {start: "1970-01-01", frequency: P1M, end: "1971-01-01", records_per_sample: 2, outside: cycle}
  vwnd:
    format: netcdf
    url: "{winds}/vwnd_mean.nc"
    variables: [vwnd]
    temporal: *monthly
grid: {lat: latitude, lon: longitude}
time: {start: "1970-01-01", end: "1971-01-01"}
prefetch: {depth: 2}
model:
  name: tracer
  parameters: {u: [uwnd, uwnd], v: [vwnd, vwnd], step: 2700, wall: 80}
sweep: {direction: adjoint, snapshots: 12}
"""

_FINE = """\
# A generated refinement of these winds: every {hours} hours, {levels} levels, {rows} x {columns}, deflated.
case: refined-winds
sources:
  u: {{format: netcdf, url: fine/u.nc, variables: [u], options: {{precision: source}}, temporal: &steps
       {{start: "1970-01-01", frequency: PT{hours}H, end: "{end}", records_per_sample: 2}}}}
  v: {{format: netcdf, url: fine/v.nc, variables: [v], options: {{precision: source}},
       temporal: *steps}}
time: {{start: "1970-01-01", end: "{stop}"}}
prefetch: {{depth: 3, max_bytes: {budget}}}
model:
  name: tracer
  parameters: {{u: [u, u], v: [v, v], step: 200, wall: 70}}
sweep: {{direction: adjoint, snapshots: {snapshots}}}
"""


def show(folder: Path, ranks: int) -> int:
    """Run the demonstration into a folder.

    Parameters
    ----------
    folder : pathlib.Path
        Where inputs, cases, report and pictures go. The winds stay there for the next time.
    ranks : int
        MPI ranks of every run.

    Returns
    -------
    int
        Exit code: 0 if every run ended well.

    Raises
    ------
    EarthSciIOError
        If the winds can't be had, or a run fails; the text is that of the run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    fetch_winds(folder / "data")
    real_case = folder / "ncep-winds.yaml"
    real_case.write_text(_REAL, encoding="utf-8")
    _compile(real_case)
    print(f"real winds: {ranks} ranks, forward and adjoint", flush=True)
    begin = perf_counter()
    real = _run(real_case, ranks)
    print(f"  done in {perf_counter() - begin:.1f} s", flush=True)
    how = Refinement()
    fine_case = _refined_case(folder, how)
    _compile(fine_case)
    print(f"refined winds: {ranks} ranks, forward and adjoint, then the reference runs", flush=True)
    begin = perf_counter()
    fine = _run(fine_case, ranks)
    print(f"  done in {perf_counter() - begin:.1f} s\n", flush=True)
    _report(folder, real, fine)
    return 0


def _compile(case: Path) -> None:
    """Read one sample, so that what this machine has to compile once is not part of a run."""
    begin = perf_counter()
    compiled = jit_stats().compiled
    for provider in load_case(case).providers().values():
        provider.materialize()
    if jit_stats().compiled > compiled:
        print(
            f"compiled what {case.stem} needs, once for this machine: {perf_counter() - begin:.1f} s",
            flush=True,
        )


def _refined_case(folder: Path, how: Refinement) -> Path:
    made = folder / "fine" / "made.json"
    wanted = json.dumps(asdict(how))
    if not made.exists() or made.read_text(encoding="utf-8") != wanted:
        print(f"generating the refinement, {2 * how.nbytes / 1e6:.0f} MB before compression", flush=True)
        refine(folder / "data", folder / "fine", how)
        made.write_text(wanted, encoding="utf-8")
    start, step = datetime(1970, 1, 1, tzinfo=UTC), timedelta(hours=how.hours)
    case = folder / "refined-winds.yaml"
    case.write_text(
        _FINE.format(
            levels=how.levels,
            rows=how.rows,
            columns=how.columns,
            hours=how.hours,
            end=(start + how.records * step).strftime("%Y-%m-%dT%H:%M"),
            stop=(start + (how.records - 1) * step).strftime("%Y-%m-%dT%H:%M"),
            budget=_BUDGET,
            snapshots=_SNAPSHOTS,
        ),
        encoding="utf-8",
    )
    return case


def _run(case: Path, ranks: int) -> Outcome:
    """Run a case under mpiexec and read what it leaves."""
    saved = case.with_suffix(".pickle")
    command = [*mpiexec(ranks), sys.executable, "-m", "integrator", "run", str(case), "--measure"]
    done = subprocess.run(  # noqa: S603 - our own words
        [*command, "--save", str(saved)],
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT_S,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    if done.returncode:
        raise EarthSciIOError(f"the run of {case} ended with {done.returncode}: {_told(done)}")
    outcome: Outcome = pickle.loads(saved.read_bytes())  # noqa: S301 - the run's own
    saved.unlink()
    return outcome


def _told(done: subprocess.CompletedProcess[str]) -> str:
    """Give the error of a run, which may stand between what a launcher says; else its last line."""
    lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("integrator: error: ")]
    return (errors or lines[-1:] or ["it said nothing"])[0].removeprefix("integrator: error: ")


def _report(folder: Path, real: Outcome, fine: Outcome) -> None:
    rows = [HEADINGS, row("NCEP winds", real.figures), row("refined winds", fine.figures)]
    if fine.device is not None:
        rows.append(row("refined, model sleeping", fine.device))
    odd = remarks([figures for figures in (real.figures, fine.figures, fine.device) if figures])
    print("\n".join([text_table(rows), *odd]))
    print()
    for name, outcome in (("NCEP winds", real), ("refined winds", fine)):
        for line in summary(outcome):
            print(f"{name}: {line}")
    write_pictures(folder, "A tracer in NCEP winds, 12 months", real)
    (folder / "refined").mkdir(exist_ok=True)
    write_pictures(folder / "refined", "A tracer in refined winds", fine)
    text = _REPORT.format(
        legend=LEGEND,
        remarks="".join(f"\n{line}.\n" for line in odd),
        ranks=fine.figures.ranks,
        cores=os.cpu_count(),
        table=text_table(rows, markdown=True),
        real="\n".join(f"- {line}" for line in summary(real)),
        fine="\n".join(f"- {line}" for line in summary(fine)),
    )
    (folder / "report.md").write_text(text, encoding="utf-8")
    print(f"\nreport and pictures: {folder / 'report.md'}")
