"""What is wrong with a case's model and grid: found without running it, and named by file, line and key."""

from __future__ import annotations

import pickle
import re

import netCDF4
import numpy as np
import pytest

from earthsciio.declare import load_case
from earthsciio.errors import DeclarationError
from earthsciio.fields import NativeField
from earthsciio.selection import Window
from integrator.checks import _level_names, validate
from integrator.cli import main
from integrator.run import run_case

CASE = """\
sources:
  wind:
    format: netcdf
    url: w.%d.nc
    variables: [u, v]
    temporal: &days
      {start: 2000-01-01, frequency: PT12H, file_period: P1D, end: 2000-01-04, records_per_sample: 2}
time: {start: 2000-01-02, end: 2000-01-03T12:00}
grid: {lat: lat, lon: lon}
model:
  name: tracer
  parameters: {u: [wind, u], v: [wind, v], step: 3600, wall: 75, target: {lat: [-60, 60], lon: [-90, 120]}}
"""

_ORDER = ("time", "lev", "lat", "lon")


@pytest.fixture
def write(tmp_path):
    """Give a function that writes the last two of three daily files, 13 x 16 points, and a case of them."""

    def write(*edits: tuple[str, str], levels: int = 2, closed: bool = False, order=_ORDER):
        rng = np.random.default_rng(3)
        sizes = {"time": 2, "lev": levels, "lat": 13, "lon": 16 + closed}
        coords = {
            "time": (np.array([0.0, 12.0]), "hours since 2000-01-{:02d}"),
            "lev": (np.arange(levels) + 1.0, "layer"),
            "lat": (np.linspace(-90, 90, 13), "degrees_north"),
            "lon": (-180 + np.arange(16 + closed) * 22.5, "degrees_east"),
        }
        for day in (2, 3):
            path = tmp_path / f"w.{day:02d}.nc"
            path.unlink(missing_ok=True)  # which may still be open
            with netCDF4.Dataset(path, "w") as file:
                dims = [dim for dim in order if dim != "lev" or levels]
                for dim in dims:
                    file.createDimension(dim, sizes[dim])
                    file.createVariable(dim, "f8", (dim,))[:] = coords[dim][0]
                    file[dim].units = coords[dim][1].format(day)
                for name in ("u", "v"):
                    values = rng.normal(3, 8, (2, max(levels, 1), 13, 16))
                    values = np.concatenate([values, values[..., :1]], axis=-1) if closed else values
                    shape = [sizes[dim] for dim in dims]
                    file.createVariable(name, "f4", dims)[:] = values.reshape(shape)
        text = CASE
        for old, new in edits:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / "case.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_a_sound_case_is_understood_and_needs_the_files_of_its_time_only(write, tmp_path):
    grid = validate(load_case(write()))
    assert list(grid.axes) == ["lat", "lon"]
    np.testing.assert_array_equal(grid.axes["lon"], np.arange(-180, 180, 22.5))
    assert grid.notes == (
        "winds on 2 levels are averaged over them, unweighted: lev 1, 2 layer",
        "start: a bell of 20 degrees around lat 35, lon 140, by default",
        "target: lat -60 to 60, lon -90 to 120",
    )
    assert not (tmp_path / "w.01.nc").exists()
    assert validate(load_case(write(levels=0))).notes == grid.notes[1:]
    restarts = ("grid:", "sweep: {direction: adjoint}\nrestart: {file: x.npz}\ngrid:")
    assert "this one is adjoint and writes none" in validate(load_case(write(restarts))).notes[-1]


def model_on(window: str) -> list[tuple[str, str]]:
    return [("name: tracer", f"name: tracer\n  window: {window}")]


OTHER = "  late: {format: netcdf, url: w.%d.nc, temporal: {<<: *days, "


@pytest.mark.parametrize(
    ("edits", "line", "key", "text"),
    [
        ([("lat: lat,", "lat: latitude,")], 9, "grid.lat", "no coordinate 'latitude'.*Did you mean 'lat'"),
        ([("lat: lat, lon: lon", "lat: lon, lon: lat")], 9, "grid.lat", "Swap them: `grid: {lat: lat"),
        ([("lat: lat, lon: lon}", "lev: level}")], 9, "grid.lev", "no levels 'level'.*Did you mean 'lev'"),
        (
            [("records_per_sample: 2", "records_per_sample: 1")],
            7, "sources.wind.temporal.records_per_sample", "Set `records_per_sample: 2`",
        ),
        (
            [("    variables:", "    window: {lon: {slice: [0, 8]}}\n    variables:")],
            5, "sources.wind.window", "reads all of source 'wind'.*Leave `window`.*the model's `window`",
        ),
        ([("grid:", "window: {lat: {slice: [0, 8]}}\ngrid:")], 9, "window", "part of the grid.*`model:`"),
        (model_on("{lev: [2]}"), 12, "model.window.lev", "out of range"),
        (model_on("{level: [1]}"), 12, "model.window.level", "'level'"),
        (model_on("{lev: []}"), 12, "model.window.lev", "selects no levels"),
        (model_on("{lev: [0], time: [1]}"), 12, "model.window.time", "time"),
        (model_on("{lat: {slice: [3, 14]}}"), 12, "model.window.lat", "out of range"),
        (model_on("{lat: {slice: [3, 9, 2]}}"), 12, "model.window.lat", "run of at least 2.*slice"),
        (model_on("{lon: [3, 2]}"), 12, "model.window.lon", "indices across the files' end"),
        (model_on("{lon: {slice: [0, 5]}}"), 13, "model.parameters", "within the start.*Give `start`"),
        ([("grid:", "partition: {halo: 2}\ngrid:")], 9, "partition.halo", "a halo of 1"),
        ([("grid:", "partition: {periodic: []}\ngrid:")], 9, "partition.periodic", "wraps along lon alone"),
        ([("grid:", "prefetch: {executor: process}\ngrid:")], 9, "prefetch", "executor"),
        ([("grid:", "scatter: {mode: node}\ngrid:")], 9, "scatter.mode", "not built yet.*auto, own or root"),
        ([("grid:", "restart: {file: no/x.npz}\ngrid:")], 9, "restart.file", "no folder '.*/no'.*Make it"),
        ([("wall: 75", "wall: -75")], 12, "model.parameters", "a wall at latitude -75"),
        ([("wall: 75", "wall: .nan")], 12, "model.parameters", "a wall at latitude nan.*90 is none"),
        ([("[-60, 60]", "[1, 2]")], 12, "model.parameters", "no cell lies within the target"),
        (
            [("time: {", OTHER + "records_per_sample: 1}}\ntime: {"), ("v: [wind", "v: [late")],
            13, "model.parameters", "'wind' and 'late' would be of different times.*records_per_sample",
        ),
        (
            [
                ("time: {", OTHER + "end: 2000-01-03T12:00}}\ntime: {"),
                ("v: [wind", "v: [late"),
            ],
            8, "sources.late.temporal.end", "last record of 'late', 2000-01-03 00:00:00, has no successor",
        ),
    ],
)  # fmt: skip
def test_a_mistake_names_its_line_and_what_to_write(write, edits, line, key, text):
    case = load_case(write(*edits))
    with pytest.raises(DeclarationError, match=text) as caught:
        validate(case)
    assert (caught.value.context["line"], caught.value.context["key"]) == (line, key)


def test_winds_in_another_order_of_dimensions_are_refused(write):
    with pytest.raises(DeclarationError, match=r"one record is \(16, 13\), on a grid of \(13, 16\)"):
        validate(load_case(write(levels=0, order=("time", "lev", "lon", "lat"))))


@pytest.mark.parametrize(
    ("attrs", "named"),
    [({"units": "hPa"}, "lev 850, 500 hPa"), ({"units": "1"}, "lev 850, 500"), ({}, "lev 850, 500")],
)
def test_levels_are_named_by_their_coordinate(attrs, named):
    coords = {"lev": NativeField(np.array([1000.0, 850.0, 700.0, 500.0]), ("lev",), attrs)}
    assert _level_names(coords, "lev", np.array([1, 3])) == named
    assert _level_names(coords, "lev", np.arange(4)) == named.replace("850, 500", "1000 to 500")
    assert _level_names({}, "lev", np.array([1, 3])) == "index of lev 1, 3"


def test_a_meridian_stored_twice_changes_nothing(write):
    plain = run_case(load_case(write()))
    closed = run_case(load_case(write(closed=True)))
    np.testing.assert_array_equal(closed.lon, plain.lon)
    np.testing.assert_array_equal(closed.end, plain.end)
    assert plain.end.any()
    assert validate(load_case(write(closed=True))).notes[1].startswith("the last meridian repeats the first")


def test_the_check_command_looks_at_sources_and_model(write, capsys):
    path = write()
    assert main(["check", str(path), "-n", "4"]) == 0
    out = capsys.readouterr().out
    assert "1 source: all is well" in out
    assert "note: winds on 2 levels are averaged over them, unweighted" in out
    assert "model on lat 13 x lon 16, 4 ranks: all is well" in out
    assert main(["check", str(path), "-n", "500"]) == 1
    assert "Use 1 to 208 ranks" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [("lat: lat,", "lat: lats,", 1), ("step: 3600", "stop: 1", 1), ("model:", "modl:", 2)],
)
def test_the_check_command_ends_with_a_code_that_says_so(write, old, new, code, capsys):
    assert main(["check", str(write((old, new)))]) == code
    said = capsys.readouterr()
    assert "line=" in said.out + said.err
    assert "Traceback" not in said.err


def test_the_plan_says_how_much_in_all_and_what_becomes_of_levels(write, capsys):
    assert main(["plan", str(write()), "-n", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    # two records of u and v on 2 levels, and their times; halves of 16 columns with a halo of 1 each
    one = 2 * 2 * 2 * 13 * 10 * 8 + 2 * 8
    assert [line.split()[-1] for line in lines[2:5]] == [f"{n / 1e6:.2f}" for n in (one, one, 2 * one)]
    assert "[0, 8)" in lines[2]
    assert lines[5].startswith("3 epochs, from 2000-01-02 00:00:00")
    assert "averaged over them, unweighted" in lines[6]


# the parts of the files that a case may run on, and what is said of them
REGION = "{lat: {slice: [4, 11]}, lon: [12, 13, 14, 15, 0, 1]}"
START = ("target:", "start: {lat: 0, lon: 150, radius: 40}, target:")


@pytest.mark.parametrize(
    ("levels", "note"),
    [
        ("[1]", "winds are those of one level of 4: lev 2 layer"),
        ("{slice: [1, 4]}", "winds on 3 of 4 levels are averaged, unweighted: lev 2 to 4 layer"),
        ("[3, 0]", "winds on 2 of 4 levels are averaged, unweighted: lev 4, 1 layer"),
    ],
)
def test_levels_that_the_model_selects_are_those_of_files_without_the_others(write, levels, note):
    path = write(*model_on(f"{{lev: {levels}}}"), levels=4)
    case = load_case(path)
    assert validate(case).notes[0] == note
    got = run_case(case)
    assert got.notes[0] == note
    chosen = Window({"lev": case.model.window["lev"]}).selector("lev").indices()
    for day in (2, 3):
        file = path.with_name(f"w.{day:02d}.nc")
        with netCDF4.Dataset(file) as old:
            kept = {name: old[name][:][:, chosen] for name in ("u", "v")}
            axes = {name: (old[name][:], old[name].units) for name in _ORDER}
        file.unlink()
        with netCDF4.Dataset(file, "w") as new:
            axes["lev"] = axes["lev"][0][chosen], axes["lev"][1]
            for name, (values, units) in axes.items():
                new.createDimension(name, len(values))
                new.createVariable(name, "f8", (name,))[:] = values
                new[name].units = units
            for name, values in kept.items():
                new.createVariable(name, "f4", _ORDER)[:] = values
    path.write_text(path.read_text().replace(f"  window: {{lev: {levels}}}\n", ""))
    plain = run_case(load_case(path))
    assert got.end.tobytes() == plain.end.tobytes()
    assert np.ptp(got.end) > 0


@pytest.mark.parametrize("closed", [False, True])
def test_a_region_runs_forward_and_back_and_says_what_leaves_it(write, closed):
    path = write(*model_on(REGION), START, closed=closed)
    outcome = run_case(load_case(path), direction="adjoint")
    assert outcome.lat.tolist() == np.linspace(-90, 90, 13)[4:11].tolist()
    assert outcome.lon.tolist() == [90, 112.5, 135, 157.5, -180, -157.5]
    assert "a region, lat -30 to 60, lon 90 to -157.5: tracer that flows out over its edges is gone" in str(
        outcome.notes
    )
    left, right = outcome.identity
    assert abs(left - right) <= 1e-12 * abs(left)
    before, after = outcome.mass
    assert 0 < after < 0.999 * before
    assert outcome.gradient.shape == outcome.end.shape == (7, 6)


@pytest.mark.mpiexec
def test_a_region_and_level_give_the_same_bits_on_any_number_of_ranks(write, mpirun, tmp_path):
    path = write(*model_on(REGION.replace("{lat", "{lev: [1], lat", 1)), START)
    alone = run_case(load_case(path), direction="adjoint")
    done = mpirun(3, "integrator", "run", path, "--sweep", "adjoint", "--save", tmp_path / "3")
    assert done.returncode == 0, done.stderr
    shared = pickle.loads((tmp_path / "3").read_bytes())
    for name in ("start", "end", "gradient", "area"):
        assert getattr(shared, name).tobytes() == getattr(alone, name).tobytes()
    assert (shared.mass, shared.identity, shared.notes) == (alone.mass, alone.identity, alone.notes)


def test_the_check_and_the_plan_of_a_region_are_about_its_cells(write, capsys):
    path = write(*model_on(REGION.replace("{lat", "{lev: [1], lat", 1)), START)
    assert main(["check", str(path), "-n", "4"]) == 0
    out = capsys.readouterr().out
    assert "note: winds are those of one level of 2: lev 2 layer" in out
    assert "model on lat 7 x lon 6, 4 ranks: all is well" in out
    # u and v of two records of one level, once decoded and once as a bracket, and their times
    assert f"{2 * (2 * 2 * 7 * 6 * 8) / 1024:.1f} KiB hold an epoch" in out
    assert "selects lon 6 of 16: 12, 13, 14, 15, 0, 1" in out
    assert main(["plan", str(path), "-n", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    # 4 rows and 3, with one more on the other side of the cut, and none beyond the edges
    assert [line.split()[-4:-1] for line in lines[2:4]] == [["5", "x", "6"], ["4", "x", "6"]]


def test_a_plan_refuses_what_the_check_refuses(write, capsys):
    path = str(write(*model_on("{lat: {slice: [0, 4]}}")))
    for command, code in (("check", 1), ("plan", 2)):
        assert main([command, path]) == code
        said = capsys.readouterr()
        assert "no cell lies within the start of the tracer" in said.out + said.err


def test_the_check_refuses_a_second_source_that_a_run_could_not_cut(write, tmp_path, capsys):
    other = """  rain:
    format: netcdf
    url: rain.nc
    variables: [r]
    temporal: {start: 2000-01-01, frequency: P1D, end: 2000-01-05}
time:"""
    path = write(("time: {start", other + " {start"))
    with netCDF4.Dataset(tmp_path / "rain.nc", "w") as file:
        for dim, size in {"time": 4, "lat": 7, "lon": 16}.items():
            file.createDimension(dim, size)
        file.createVariable("time", "f8", ("time",))[:] = np.arange(4.0)
        file["time"].units = "days since 2000-01-01"
        file.createVariable("r", "f4", ("time", "lat", "lon"))[:] = 1
    assert main(["check", str(path)]) == 1
    assert re.search(r"problem: selector out of range .*rain\.nc.*dim=lat, length=7", capsys.readouterr().out)


def test_missing_winds_name_their_epoch_and_are_told_once(write, tmp_path, capsys):
    path = write(*model_on("{lev: [1]}"))
    with netCDF4.Dataset(tmp_path / "w.03.nc", "a") as file:
        file["u"][0, 1, 6, 3] = np.nan
    assert main(["run", str(path)]) == 2
    said = capsys.readouterr().err
    # its second record is the first of the other file
    assert "missing values where the tracer moves [epoch=1 (2000-01-02 12:00:00+00:00)]" in said
    assert "Select levels" in said


def test_the_check_counts_the_file_that_only_a_last_successor_is_in(write, capsys):
    assert main(["check", str(write(("end: 2000-01-03T12:00", "end: 2000-01-03")))]) == 0
    assert re.search(r"2000-01-02 00:00:00 +2000-01-03 00:00:00 +2 +2 ", capsys.readouterr().out)


def test_a_run_does_not_go_on_with_the_restart_file_of_another_level_or_region(write):
    again = ("grid:", "restart: {file: run.npz, every: 2}\ngrid:")
    whole = run_case(load_case(write(*model_on("{lev: [1]}"), again)), direction="forward")
    assert run_case(load_case(write(*model_on("{lev: [1]}"), again))).end.tobytes() == whole.end.tobytes()
    with pytest.raises(DeclarationError, match=r"a run with .*\"lev\": \[1\].*, not .*\[0\].*Remove it"):
        run_case(load_case(write(*model_on("{lev: [0]}"), again)))
