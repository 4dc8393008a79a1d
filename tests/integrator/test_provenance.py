"""What a run says it was made of."""

from __future__ import annotations

import json
import os

import pytest
from synthetic import write_winds

from earthsciio.cache import cache_key, sha256_file
from integrator.cli import main

CASE = """\
case: synthetic
sources:
  u: {format: netcdf, url: u.nc, variables: [u], temporal: &hourly
      {start: "2001-01-01", frequency: PT3H, end: "2001-01-01T12:00", records_per_sample: 2}}
  v: {format: netcdf, url: "file://@/v.nc", variables: [v], temporal: *hourly}
cache: {root: cache}
model:
  name: tracer
  parameters: {u: [u, u], v: [v, v], step: 3600, wall: 75,
               start: {lat: 20, lon: 100, radius: 60}, target: {lat: [-60, 60], lon: [-90, 120]}}
"""

PLAIN = '{start: "2001-01-01", frequency: PT3H, end: "2001-01-01T12:00", records_per_sample: 2}'


@pytest.fixture
def case(tmp_path):
    write_winds(tmp_path, records=4, columns=16, since="2001-01-01")
    (tmp_path / "case.yaml").write_text(CASE.replace("@", str(tmp_path)))
    return tmp_path


def check(folder, case):
    files = json.loads((folder / "provenance.json").read_text())["files"]
    in_place, fetched = sorted(files, key=lambda record: record["source"])
    u, v = case / "u.nc", (case / "v.nc").as_uri()
    assert (in_place["url"], in_place["bytes"]) == (str(u), u.stat().st_size)
    assert in_place["modified"].startswith("2001-09-09T01:46:40")
    assert (fetched["url"], fetched["key"]) == (v, cache_key(v))
    assert fetched["sha256_content"] == sha256_file(case / "v.nc")
    assert fetched["fetched_at"].endswith("Z")


# spec: C6.6
def test_a_run_writes_which_files_it_used(case, monkeypatch):
    for name in list(os.environ):
        if name.startswith(("PMI", "OMPI", "SLURM", "MPI_", "EARTHSCI")):
            monkeypatch.delenv(name)
    os.utime(case / "u.nc", (1_000_000_000, 1_000_000_000))
    with (case / "case.yaml").open("a") as file:
        file.write("output: {folder: out}\n")
    assert main(["run", str(case / "case.yaml")]) == 0
    check(case / "out", case)


# spec: C6.6
@pytest.mark.mpiexec
def test_the_files_of_all_ranks_are_listed_once(mpirun, case):
    os.utime(case / "u.nc", (1_000_000_000, 1_000_000_000))
    with (case / "case.yaml").open("a") as file:
        file.write("output: {folder: out}\n")
    done = mpirun(2, "integrator", "run", case / "case.yaml")
    assert done.returncode == 0, done.stderr
    check(case / "out", case)


# spec: C6.6, T6.9
@pytest.mark.filterwarnings("ignore:.*does not exist:earthsciio.EarthSciIOWarning")
def test_a_run_writes_which_files_were_missing_and_what_stood_in(case, monkeypatch):
    for name in list(os.environ):
        if name.startswith(("PMI", "OMPI", "SLURM", "MPI_", "EARTHSCI")):
            monkeypatch.delenv(name)
    text = (case / "case.yaml").read_text().replace("u.nc", "gone.nc", 1)
    text = text.replace("records_per_sample: 2}}", "records_per_sample: 2, missing: {source: other}}}", 1)
    text = text.replace("temporal: *hourly", f"temporal: {PLAIN}", 1)
    text += "output: {folder: out}\nstand_ins:\n"
    text += f"  other: {{format: netcdf, url: u.nc, variables: [u], temporal: {PLAIN}}}\n"
    (case / "case.yaml").write_text(text)
    assert main(["run", str(case / "case.yaml")]) == 0
    files = json.loads((case / "out" / "provenance.json").read_text())["files"]
    gone, other = str(case / "gone.nc"), str(case / "u.nc")
    assert [(each["source"], each["url"]) for each in files if each["stand_ins"]] == [("u", gone)]
    assert [each["stand_ins"] for each in files if each["url"] == gone] == [[other]]
    assert [each["source"] for each in files if each["url"] == other] == ["other"]
