"""The run command on inputs that can't work: told before the run, once, and in one line."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from earthsciio.errors import DeclarationError, EarthSciIOError
from integrator.cli import main, run
from integrator.demo.show import _told
from integrator.figures import Figures
from integrator.report import remarks, summary
from integrator.run import Outcome


@pytest.mark.mpiexec
def test_an_error_that_every_rank_meets_is_told_once(mpirun, tmp_path):
    case = tmp_path / "case.yaml"
    case.write_text("sources: {}\n", encoding="utf-8")
    done = mpirun(3, "integrator", "run", case)
    assert done.returncode != 0
    assert done.stderr.count("integrator: error:") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        ("matplotlib", "pip install 'earthsci-forcing[plot]'"),
        ("checkpoint_schedules", "pip install 'earthsci-forcing[mpi]'"),
    ],
)
def test_a_missing_package_is_missed_before_the_run(monkeypatch, write_case, tmp_path, missing, text):
    case = write_case()
    monkeypatch.setattr(run, "find_spec", lambda name: None if name == missing else object())
    with pytest.raises(EarthSciIOError, match=re.escape(text)):
        main(["--debug", "run", str(case), "--sweep", "adjoint", "--plots", "--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"start": "{lat: 3, lon: 7, radius: 0.01}"}, "no cell lies within the start"),
        ({"target": "{lat: [1, 2], lon: [5, 6]}"}, "no cell lies within the target"),
    ],
)
def test_an_empty_start_or_target_is_refused(write_case, parameters, text):
    with pytest.raises(DeclarationError, match=text):
        main(["--debug", "run", str(write_case(**parameters))])


@pytest.mark.parametrize("command", ["run", "plan"])
@pytest.mark.parametrize(
    ("old", "new", "key", "text"),
    [
        ("name: tracer", "name: trace", "model.name", "no model 'trace'.*tracer"),
        ("u: [u, u]", "u: [u, U]", "model.parameters.u", "source 'u' has no variable 'U'.*There are: u"),
        ("v: [v, v]", "v: [w, v]", "model.parameters.v", "no source 'w'"),
        ("wall: 75", "walls: 75", "model.parameters.walls", "no parameter 'walls'.*Did you mean 'wall'"),
        ("step: 3600", "step: soon", "model.parameters.step", "expected a number, got the text 'soon'"),
        ("step: 3600, ", "", "model.parameters", "the key 'step' is missing"),
        ("u: [u, u]", "u: u", "model.parameters.u", "expected a list of 2, got the text 'u'"),
        ("lat: 20", "lat: [20]", "model.parameters.start.lat", "expected a number, got a list"),
        ("radius: 60", "radios: 60", "model.parameters.start.radios", "Did you mean 'radius'"),
        ("lat: 20, ", "", "model.parameters.start", "the key 'lat' is missing"),
        ("[-90, 120]", "120", "model.parameters.target.lon", "expected a list of 2"),
        ("lon: [-90", "log: [-90", "model.parameters.target.log", "Did you mean 'lon'"),
    ],
)
def test_a_mistake_in_the_model_names_its_line(write_case, command, old, new, key, text):
    case = write_case()
    case.write_text(case.read_text().replace(old, new))
    with pytest.raises(DeclarationError, match=text) as caught:
        main(["--debug", command, str(case)])
    assert caught.value.context["key"] == key
    assert caught.value.context["line"] in (8, 9)


def test_the_demonstration_tells_a_run_s_error_without_its_traceback():
    said = ["Traceback (most recent call last):", "integrator: error: no wind", "rank 2 was aborted", ""]
    done = subprocess.CompletedProcess([], 1, "", "\n".join(said))
    assert _told(done) == "no wind"
    done.stderr = "Traceback (most recent call last):\n  ...\nModuleNotFoundError: No module named 'x'\n"
    assert _told(done) == "ModuleNotFoundError: No module named 'x'"


def test_the_driver_to_copy_says_how_to_call_it():
    script = Path(__file__).parents[2] / "scripts" / "drive_tracer.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith("usage: ")
    assert "WINDS_FOLDER" in done.stderr


def test_no_pictures_are_drawn_that_nobody_wants(write_case, tmp_path):
    assert main(["run", str(write_case()), "--no-plots", "--out", str(tmp_path / "out")]) == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["provenance.json", "report.md"]
    assert "which `--measure` makes" in (tmp_path / "out" / "report.md").read_text()


def test_the_report_names_what_the_run_took_and_did_by_default(write_case, tmp_path, capsys):
    case = write_case()
    case.write_text(case.read_text().replace(", target: {lat: [-60, 60], lon: [-90, 120]}", ""))
    assert main(["run", str(case), "--no-plots", "--out", str(tmp_path / "out")]) == 0
    lines = [
        "start: a bell of 60 degrees around lat 20, lon 100",
        "target: lat 30 to 50, lon -130 to -100, by default",
    ]
    assert "\n".join(lines) in capsys.readouterr().out
    assert "\n".join(f"- {line}" for line in lines) in (tmp_path / "out" / "report.md").read_text()


FIGURES = Figures(ranks=1, epochs=1, takes=1, decode_s=0, waited_s=0, first_wait_s=0, compute_s=1, total_s=1,
                  records=1, bytes_decoded=1)  # fmt: skip
_NOTHING = np.zeros((2, 2))


def outcome_of_nothing(**changes):
    return Outcome(FIGURES, *[_NOTHING] * 4, None, _NOTHING, (0.0, 0.0), None, None, **changes)


def test_a_report_names_the_files_that_others_stood_in_for():
    files = [
        {"source": "wind", "url": f"/x/{day}.nc", "stand_ins": stood}
        for day, stood in (("1", []), ("2", ["/x/1.nc"]), ("3", ["/x/1.nc", "/y/clim.nc"]))
    ]
    assert summary(outcome_of_nothing(provenance=files))[1:] == [
        "2 files of 'wind' do not exist (/x/2.nc, ...): /x/1.nc and 1 more stood in, see provenance.json"
    ]
    assert summary(outcome_of_nothing(provenance=files[:2]))[1:] == [
        "a file of 'wind' does not exist (/x/2.nc): /x/1.nc stood in, see provenance.json"
    ]


def test_figures_beyond_0_and_1_are_explained():
    assert remarks([FIGURES, replace(FIGURES, compute_alone_s=0.9, decode_alone_s=0.5)]) == []
    slow = replace(FIGURES, compute_alone_s=0.9, decode_alone_s=0.095)
    fast = replace(FIGURES, compute_alone_s=1.1, decode_alone_s=0.5)
    assert [line.split()[:3] for line in remarks([slow, fast])] == [
        ["hidden", "is", "below"],
        ["AU", "is", "above"],
    ]


def test_a_run_without_tracer_is_reported():
    outcome = outcome_of_nothing()
    assert summary(outcome) == [
        "mass: 0.000000000e+00 before, 0.000000000e+00 after, relative change 0.0e+00"
    ]
