"""The conformance corpus: every case bit for bit, through provider and group; and the corpus itself."""

import copy
import json
import shutil
from pathlib import Path

import h5py
import jsonschema
import netCDF4
import numpy as np
import pytest

from corpus import CASES, SCHEMA, run
from corpus.adapter import EarthSciIO
from corpus.casebook import definitions
from corpus.encoding import array, attributes, number
from corpus.generate import generate
from corpus.run import Mismatch, difference, run_case
from corpus.writing import crc32c

NAMES = sorted(path.parent.name for path in CASES.glob("*/case.json"))


@pytest.mark.parametrize("name", NAMES)
def test_what_comes_out_is_what_the_case_expects(name):
    assert run_case(CASES / name, EarthSciIO()) > 0


# The cases


def test_every_case_is_committed_and_follows_the_schema():
    assert sorted(definitions()) == NAMES
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for name in NAMES:
        case = json.loads((CASES / name / "case.json").read_text())
        validator.validate(case)
        assert case["name"] == name
        used = {step.get("source") for step in case["steps"]} | {
            member for step in case["steps"] for member in step.get("members", ())
        }
        assert used - {None} == set(case["sources"]), name


def test_the_corpus_is_small():
    assert sum(path.stat().st_size for path in CASES.rglob("*") if path.is_file()) < 1_000_000


def test_generating_again_gives_the_committed_cases(tmp_path):
    generate(tmp_path)
    committed = {path.relative_to(CASES) for path in CASES.rglob("*") if path.is_file()}
    assert {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()} == committed
    for part in sorted(committed):
        ours, theirs = tmp_path / part, CASES / part
        # HDF5 and netCDF-C write their versions into files; the manifest and blob of such a file follow it
        if ours.read_bytes() != theirs.read_bytes():
            assert part.suffix in (".nc", ".h5") or part.parts[1:2] == ("cache",), part
            if part.suffix != ".json" and part.parts[0] != "damaged":
                assert _held(ours) == _held(theirs), part


def _held(path: Path):
    """What a file holds, as text, read by the libraries that wrote it."""
    if path.suffix == ".h5" or h5py.is_hdf5(path):
        with h5py.File(path) as file:
            found = []
            file.visititems(lambda name, item: found.append((name, _element_text(item))))
            return found
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        return [
            (name, v.dimensions, v.dtype, np.asarray(v[...]).tobytes()) for name, v in file.variables.items()
        ]


def _element_text(item):
    if not isinstance(item, h5py.Dataset):
        return ""
    return str(
        (
            item.dtype,
            item.shape,
            item.chunks,
            item[()].tolist() if item.dtype.kind == "O" else item[()].tobytes(),
        )
    )


# The runner finds what is wrong


def _altered(name, alter):
    case = json.loads((CASES / name / "case.json").read_text())
    altered = copy.deepcopy(case)
    alter(altered)
    assert altered != case
    return altered


def _step(case, **wanted):
    return next(step for step in case["steps"] if all(key in step for key in wanted))


def _first_bit(case):
    data = _step(case, gives=1)["gives"]["fields"][0]["data"]
    where = next(i for i, item in enumerate(data) if isinstance(item, float) and item)
    data[where] = float(np.nextafter(data[where], np.inf))


def _set(path, value):
    def alter(case):
        target = _step(case, gives=1)["gives"]
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = value

    return alter


def _swap_fields(case):
    fields = _step(case, gives=1)["gives"]["fields"]
    fields[0], fields[1] = fields[1], fields[0]


@pytest.mark.parametrize(
    ("name", "alter"),
    [
        ("packing", _first_bit),
        ("packing", _swap_fields),
        ("packing", _set(("fields", 0, "dtype"), "float32")),
        ("packing", _set(("fields", 0, "dims"), ["other"])),
        ("packing", _set(("fields", 0, "attrs"), {"units": "2"})),
        ("window-wrap", _set(("times",), ["2020-01-01T00:00:00"])),
        ("window-wrap", _set(("coords",), {})),
        ("window-wrap", lambda case: case["steps"][0]["select"]["dims"]["lon"]["indices"].reverse()),
        ("dtypes", lambda case: _step(case, raises=1)["raises"].update(error="KeyError")),
        ("dtypes", lambda case: _step(case, raises=1)["raises"].update(says=["no such text"])),
        ("masks", lambda case: _step(case, warns=1).pop("warns")),
        ("masks", lambda case: _step(case, gives=1).update(warns=["never said"])),
        ("irregular", lambda case: _step(case, give=1)["give"].pop()),
        ("prefetch-errors", lambda case: case["steps"][0]["calls"].pop(1)),
        ("prefetch-errors", lambda case: case["steps"][0]["epochs"].reverse()),
    ],
)
def test_a_case_that_expects_something_else_fails(tmp_path, name, alter):
    folder = tmp_path / name
    shutil.copytree(CASES / name, folder)
    (folder / "case.json").write_text(json.dumps(_altered(name, alter)))
    with pytest.raises(Mismatch, match=rf"{name}, step \d+"):
        run_case(folder, EarthSciIO())


class Wrong(EarthSciIO):
    """An implementation that gives the sample of one Window for that of another."""

    def sample_windows(self, source, t, windows):
        return super().sample_windows(source, t, windows[::-1])


def test_another_implementation_can_be_named(capsys):
    assert run.main(["window-wrap", "const"]) == 0
    assert "ok    window-wrap" in capsys.readouterr().out
    module = Wrong.__module__
    assert run.main(["--implementation", f"{module}:Wrong", "multi-window"]) == 1
    said = capsys.readouterr().out
    assert said.startswith("FAIL  multi-window, step 0 (windows): by sample_windows: [0]")
    with pytest.raises(SystemExit):
        run.main(["no-such-case"])


# The notation


def test_numbers_are_written_so_that_every_bit_comes_back():
    bits = np.array([0x7FF8000000000000, 0x7FF8000000000123, 0xFFF8000000000000], "u8").view("f8")
    assert array(bits)["data"] == ["nan", "nan:7ff8000000000123", "nan:fff8000000000000"]
    assert array(np.array([np.nan], "f4"))["data"] == ["nan"]
    assert array(np.array([0x7FC00001], "u4").view("f4"))["data"] == ["nan:7fc00001"]
    assert array(np.array([-0.0, 0.0, np.inf, -np.inf]))["data"] == ["-0.0", 0.0, "inf", "-inf"]
    assert array(np.array([2**53, 2**53 + 1, -(2**63)]))["data"] == [2**53, str(2**53 + 1), str(-(2**63))]
    assert array(np.array([1 + 2j, complex(0, -0.0)]))["data"] == [[1.0, 2.0], [0.0, "-0.0"]]
    assert array(np.array(["nan", "1"], object)) == {"dtype": "text", "shape": [2], "data": ["nan", "1"]}
    for value in (0.1, 1e-310, 1.7976931348623157e308, float(np.float32(0.1))):
        assert json.loads(json.dumps(number(value))) == value
    written = attributes({"b": np.float32(0.1), "a": np.array([1], "i2"), "t": ["x", "y"]})
    assert written == {
        "a": {"dtype": "int16", "data": [1]},
        "b": {"dtype": "float32", "data": float(np.float32(0.1))},
        "t": ["x", "y"],
    }
    with pytest.raises(TypeError, match="no JSON"):
        number(np.array("x", object))


def test_differences_are_located():
    assert difference({"a": [1, 2.0]}, {"a": [1, 2]}) == ""
    assert difference({"a": [1, 3]}, {"a": [1, 2]}) == ".a[1]: 3 where 2 is expected"
    assert ".a: 1 items" in difference({"a": [1]}, {"a": [1, 2]})
    assert "are expected" in difference({"a": 1}, {"b": 1})
    assert "'-0.0'" in difference(0.0, "-0.0")


def test_crc32c_has_the_value_of_the_rfc():
    assert crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, appendix B.4
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E
