"""The benchmark harness: cases in turn, results that fit the schema, comparison by ratios."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import jsonschema
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def harness() -> ModuleType:
    spec = importlib.util.spec_from_file_location("harness", FOLDER / "harness.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["harness"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_cases_run_in_turn_and_a_failing_one_is_named_and_left_out(harness: ModuleType) -> None:
    group, ran = harness.Group("g", 10, "a"), []
    for name in "abc":
        group.case(name)(lambda name=name: ran.append(name))
    group.case("broken")(lambda: 1 / 0)
    group.run(repeats=3)
    assert "".join(ran) == "abc" + "abcbcacab"
    assert group.failed == {"broken": "ZeroDivisionError: division by zero"}


def test_results_fit_the_schema(harness: ModuleType, tmp_path: Path) -> None:
    report = harness.Report("test")
    group = harness.Group("g", 10, "limit")
    for name in ("limit", "ours"):
        group.case(name)(lambda: sum(range(1000)))
    report.run(group, repeats=4)
    report.check("ours", 1.0, 0.5, at_least=True)
    report.write(tmp_path / "r.json")
    result = json.loads((tmp_path / "r.json").read_text())
    jsonschema.validate(result, json.loads((FOLDER / "schema.json").read_text()))
    assert result["checks"][0]["met"]


def test_two_results_are_compared_by_their_share_of_the_limit(harness: ModuleType) -> None:
    def result(share: float, noisy: bool) -> dict[str, object]:
        cases = {"ours": {"of_limit": share, "median": 2.0}, "free": {"median": 3.0 * share}}
        return {
            "schema": harness.SCHEMA, "noise": {"noisy": noisy}, "groups": [{"name": "g", "cases": cases}],
        }  # fmt: skip

    assert harness.compare(result(0.5, False), result(0.8, True)) == [
        "the new run was noisy",
        "g / ours: 0.50 -> 0.80 of limit (1.60x)",
        "g / free: 0.62x as fast, by time alone",
    ]
