"""Run cases on an implementation: ``python -m corpus.run [--implementation module:factory] [case ...]``.

Every sample is asked for in each way there is (by itself, by refresh, as one of several Windows, from a
group), and each must give the expected bits, or the expected error.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import random
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from . import CASES
from .adapter import EarthSciIO, Implementation, Plain, Source
from .encoding import Json, dataset, field

__all__ = ["Mismatch", "difference", "main", "run_case"]

#: The longest a delayed decode takes longer, in seconds.
_LATE = 0.001
_WAYS = ("provider", "group")


class Mismatch(AssertionError):
    """What came out is not what a case expects."""


def run_case(folder: Path, implementation: Implementation) -> int:
    """Run one case.

    Parameters
    ----------
    folder : Path
        The case; it is copied, so nothing in it changes.
    implementation : Implementation
        What is under test.

    Returns
    -------
    int
        How many samples and errors were compared.

    Raises
    ------
    Mismatch
        At the first difference; the text says which step, which way, and where.
    """
    case = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(prefix="corpus-") as scratch:
        copy = Path(scratch, folder.name)
        shutil.copytree(folder, copy)
        sources = {name: _located(name, declared, copy) for name, declared in case["sources"].items()}
        compared = 0
        for position, step in enumerate(case["steps"]):
            try:
                compared += _STEPS[step["do"]](implementation, sources, step)
            except Mismatch as mismatch:
                raise Mismatch(f"{case['name']}, step {position} ({step['do']}): {mismatch}") from None
    return compared


def _located(name: str, declared: Json, folder: Path) -> Source:
    """Give a source with its paths made absolute."""
    source = {"name": name, **declared}
    if len(urlsplit(source["url"]).scheme) <= 1:
        source["url"] = str(folder / source["url"])
    if "cache" in source:
        source["cache"] = {**source["cache"], "root": str(folder / source["cache"]["root"])}
    return source


# Steps.


def _sample(implementation: Implementation, sources: Mapping[str, Source], step: Json) -> int:
    source, at, select = sources[step["source"]], step.get("at"), step.get("select")
    ways: dict[str, Callable[[], Plain]] = {"sample": lambda: implementation.sample(source, at, select)}
    allowed = step.get("via", _WAYS)
    if at is not None:
        ways["refresh"] = lambda: implementation.refresh(source, at, select)
        if select is None or "dims" in select:
            window = {"dims": {}} if select is None else select
            ways["sample_windows"] = lambda: implementation.sample_windows(source, at, [window])[0]
    if at is not None and "group" in allowed:
        baked = source
        if select is not None:
            baked = {**source, "options": {**source.get("options", {}), "select": select}}
        ways["group"] = lambda: _take_one(implementation, baked, at, None)[0]
    for way, call in ways.items():
        _expect(way, step, call, lambda found: _same(_encode(found), step["gives"]))
    return len(ways)


def _take_one(
    implementation: Implementation, source: Source, at: str, windows: Sequence[Any] | None
) -> Sequence[Plain]:
    """Take the sample in force at a time from a group of one epoch."""
    with implementation.group(
        {"only": source}, windows=windows, clip=(at, _a_second_later(at)), depth=1, workers=1, max_bytes=None,
        delay=None,
    ) as group:  # fmt: skip
        group.start("forward", None)
        return group.take(0)["only"][2]


def _a_second_later(t: str) -> str:
    whole, _, _ = t.partition(".")
    assert whole[-2:] < "59", "times of cases leave room for a second"
    return f"{whole[:-2]}{int(whole[-2:]) + 1:02d}"


def _windows(implementation: Implementation, sources: Mapping[str, Source], step: Json) -> int:
    source, at, windows = sources[step["source"]], step["at"], step["windows"]

    def check(found: Sequence[Plain]) -> None:
        _same([_encode(each) for each in found], step["give"])

    ways: dict[str, Callable[[], Sequence[Plain]]] = {
        "sample_windows": lambda: implementation.sample_windows(source, at, windows),
        "one by one": lambda: [implementation.sample(source, at, window) for window in windows],
    }
    if "group" in step.get("via", _WAYS):
        ways["group"] = lambda: _take_one(implementation, source, at, windows)
    for way, call in ways.items():
        _expect(way, step, call, check)
    return len(ways) * len(windows)


def _times(implementation: Implementation, sources: Mapping[str, Source], step: Json) -> int:
    _expect(
        "times", step, lambda: implementation.times(sources[step["source"]]), lambda t: _same(t, step["give"])
    )
    return 1


def _orders(implementation: Implementation, sources: Mapping[str, Source], step: Json) -> int:
    members = {key: sources[key] for key in step["members"]}
    compared = 0
    for setting in itertools.product(step["depth"], step["workers"], step["max_bytes"], step["delays"]):
        depth, workers, max_bytes, delays = setting
        delay = _delay(random.Random(repr(setting))) if delays else None
        with implementation.group(
            members, windows=step.get("windows"), clip=None, depth=depth, workers=workers,
            max_bytes=max_bytes, delay=delay,
        ) as group:  # fmt: skip
            _same(group.boundaries(), step["boundaries"])
            for order in step["orders"]:
                where = f"depth {depth}, workers {workers}, max_bytes {max_bytes}, delays {delays}, {order}"
                group.start(order, None)
                last: dict[str, str] = {}
                for k in _spelled(order, len(step["epochs"])):
                    with _named(f"{where}, epoch {k}"):
                        _check_epoch(group.take(k), step["epochs"][k], last)
                    compared += len(members)
    return compared


def _spelled(order: str | list[int], count: int) -> list[int]:
    if isinstance(order, list):
        return order
    return list(range(count)) if order == "forward" else list(range(count))[::-1]


def _delay(dice: random.Random) -> Callable[[], None]:
    """Make decodes end in another order than they began; nothing waits for that order."""
    return lambda: time.sleep(dice.uniform(0, _LATE))


def _check_epoch(taken: Any, expected: Json, last: dict[str, str]) -> None:
    _same(sorted(taken), sorted(expected))
    for key, (anchor, changed, several) in taken.items():
        with _named(key):
            _same(anchor, expected[key]["anchor"])
            _same([_encode(each) for each in several], expected[key]["data"])
            _same(changed, last.get(key) != anchor)
            last[key] = anchor


def _script(implementation: Implementation, sources: Mapping[str, Source], step: Json) -> int:
    members = {key: sources[key] for key in step["members"]}
    last: dict[str, str] = {}
    compared = 0
    with implementation.group(
        members,
        windows=None,
        clip=None,
        depth=step["depth"],
        workers=step["workers"],
        max_bytes=None,
        delay=None,
    ) as group:
        for position, call in enumerate(step["calls"]):
            with _named(f"call {position} {call}"):
                match call["call"]:
                    case "start":
                        last.clear()
                        group.start(call["order"], call.get("from"))
                    case "cancel":
                        group.cancel()
                    case "take":
                        k = call["epoch"]
                        _expect(
                            "group",
                            call,
                            lambda k=k: group.take(k),  # type: ignore[misc]
                            lambda found, k=k: _check_epoch(found, step["epochs"][k], last),  # type: ignore[misc]
                        )
                        compared += 1
    return compared


_STEPS: dict[str, Callable[[Implementation, Mapping[str, Source], Json], int]] = {
    "sample": _sample, "windows": _windows, "times": _times, "orders": _orders, "script": _script,
}  # fmt: skip


# Comparing.


def _expect(way: str, step: Json, call: Callable[[], Any], check: Callable[[Any], None]) -> None:
    """Hold a call to what the step expects of it: a result, or an error; and warnings."""
    raises = step.get("raises")
    with _named(f"by {way}"), warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            found = call()
        except Exception as error:
            if raises is None:
                raise Mismatch(f"raised {type(error).__name__}: {error}") from error
            _check_error(error, raises)
        else:
            if raises is not None:
                raise Mismatch(f"gave a result where {raises['error']} is expected")
            check(found)
    said = [str(each.message) for each in heard]
    wanted = step.get("warns", [])
    with _named(f"by {way}"):
        if raises is None and (
            len(said) != len(wanted) or any(not any(text in each for each in said) for text in wanted)
        ):
            raise Mismatch(f"warned {said}, where {wanted} is expected")


def _check_error(error: Exception, raises: Json) -> None:
    names = [each.__name__ for each in type(error).__mro__]
    if raises["error"] not in names:
        raise Mismatch(f"raised {type(error).__name__} ({error}), which is no {raises['error']}") from error
    absent = [text for text in raises["says"] if text not in str(error)]
    if absent:
        raise Mismatch(f"the text of {error!r} does not say {absent}: {error}") from error


def _encode(found: Plain) -> Json:
    times, fields, coords = found
    written = [{name: field(*each) for name, each in kind.items()} for kind in (fields, coords)]
    return dataset(times, *written)


def _same(found: Json, expected: Json) -> None:
    differs = difference(found, expected)
    if differs:
        raise Mismatch(differs)


def difference(found: Json, expected: Json, where: str = "") -> str:
    """Say where two JSON values differ first; empty if nowhere. It is then equal in every bit."""
    if type(found) is not type(expected) and not {type(found), type(expected)} <= {int, float}:
        return f"{where}: {found!r} where {expected!r} is expected"
    if isinstance(expected, dict):
        if found.keys() != expected.keys():
            return f"{where}: {sorted(found)} where {sorted(expected)} are expected"
        parts = ((found[key], value, f"{where}.{key}") for key, value in expected.items())
    elif isinstance(expected, list):
        if len(found) != len(expected):
            return f"{where}: {len(found)} items {found!r:.80} where {len(expected)} are expected"
        parts = ((a, b, f"{where}[{i}]") for i, (a, b) in enumerate(zip(found, expected, strict=True)))
    else:
        return "" if found == expected else f"{where}: {found!r} where {expected!r} is expected"
    return next((text for a, b, name in parts if (text := difference(a, b, name))), "")


@contextmanager
def _named(where: str) -> Iterator[None]:
    try:
        yield
    except Mismatch as mismatch:
        raise Mismatch(f"{where}: {mismatch}") from mismatch.__cause__


# The command.


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 1 if any case fails."""
    parser = argparse.ArgumentParser(prog="python -m corpus.run", description="Run conformance cases.")
    parser.add_argument("--implementation", metavar="MODULE:FACTORY", help="default: this library")
    parser.add_argument("--cases", type=Path, default=CASES, help="folder of all cases", dest="folder")
    parser.add_argument("names", nargs="*", metavar="case", help="names; all if none is given")
    given = parser.parse_args(arguments)
    implementation: Implementation = EarthSciIO()
    if given.implementation:
        module, _, factory = given.implementation.partition(":")
        implementation = getattr(importlib.import_module(module), factory)()
    known = sorted(path.parent.name for path in given.folder.glob("*/case.json"))
    unknown = sorted(set(given.names) - set(known))
    if unknown:
        parser.error(f"there are no cases {unknown}, but {known}")
    failed = 0
    for name in given.names or known:
        try:
            compared = run_case(given.folder / name, implementation)
        except Mismatch as mismatch:
            failed += 1
            print(f"FAIL  {mismatch}")
        else:
            print(f"ok    {name}: {compared} compared")
    print(f"{failed} failed" if failed else "all as expected")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
