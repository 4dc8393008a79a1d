"""``earthsciio check``: whether the sources of a file are there and are what it says they are."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from earthsciio.declare import Case, load_case
from earthsciio.selection import Window
from earthsciio.survey import SourceSurvey, survey

from .output import format_bytes, print_table

__all__ = ["configure", "run"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("file", metavar="FILE.yaml", help="sources or a case")
    parser.add_argument("--json", action="store_true", help="print the whole report as JSON")
    parser.add_argument("--offline", action="store_true", help="look at local and cached files only")
    parser.epilog = "Exit code: 0 if all is well, 1 if a source has a problem, 2 if the file itself is wrong."


def run(args: argparse.Namespace, windows: Mapping[str, Window] | None = None) -> int:
    """Survey every source, and report; `windows` of some go before what the case selects."""
    windows = windows or {}
    case = load_case(args.file)
    cache = case.open_cache()
    cache.offline = cache.offline or args.offline
    reports, stand_ins = (
        [
            survey(source, cache, clip=case.clip, window=windows.get(name, case.window))
            for name, source in sources.items()
        ]
        for sources in (case.sources, case.stand_ins)
    )
    problems, doubts = _across(reports), _budget(case, reports)
    ok = not problems and all(report.ok for report in (*reports, *stand_ins))
    if args.json:
        print(json.dumps(_plain(case, reports, stand_ins, problems, doubts, ok=ok), indent=2))
    else:
        _show(case, reports, stand_ins, problems, doubts)
    return 0 if ok else 1


def _across(reports: list[SourceSurvey]) -> list[str]:
    """Say what is wrong with the sources taken together."""
    calendars = {report.name: report.calendar for report in reports if report.calendar is not None}
    if len(set(calendars.values())) < 2:
        return []
    listed = ", ".join(f"{name} {calendar}" for name, calendar in calendars.items())
    return [f"one group of sources has one calendar; here are {listed}. Declare `calendar` alike"]


def _budget(case: Case, reports: list[SourceSurvey]) -> list[str]:
    """Say that nothing can be decoded ahead, if that is so even of the smallest order."""
    budget, needed = case.prefetch.max_bytes, _per_epoch(reports)
    if budget is None or needed <= budget:
        return []
    sizes = f"max_bytes is {format_bytes(budget)}, an epoch takes {format_bytes(needed)}"
    return [f"{sizes}: a process that reads all of it can't decode ahead"]


def _per_epoch(reports: list[SourceSurvey]) -> int:
    return sum(report.bytes_per_epoch for report in reports if report.kind == "DISCRETE")


def _plain(
    case: Case,
    reports: list[SourceSurvey],
    stand_ins: list[SourceSurvey],
    problems: list[str],
    doubts: list[str],
    *,
    ok: bool,
) -> dict[str, Any]:
    return {
        "file": str(case.file),
        "case": case.name,
        "ok": ok,
        "bytes_per_epoch": _per_epoch(reports),
        "problems": problems,
        "warnings": doubts,
        "sources": [{"ok": report.ok, **asdict(report)} for report in reports],
        "stand_ins": [{"ok": report.ok, **asdict(report)} for report in stand_ins],
    }


def _show(
    case: Case,
    members: list[SourceSurvey],
    stand_ins: list[SourceSurvey],
    problems: list[str],
    doubts: list[str],
) -> None:
    reports = [*members, *stand_ins]
    print(f"{case.name}: {case.file}")
    headers = [
        "source",
        "format",
        "calendar",
        "from",
        "to",
        "files",
        "anchors",
        "records found",
        "memory/epoch",
        "",
    ]
    rows = []
    for report in reports:
        found = [f"{file.found} of {file.expected}" for file in report.opened if file.expected]
        rows.append(
            [
                report.name,
                report.format,
                _calendars(report),
                report.start or "-",
                report.end or "-",
                "-" if report.files is None else report.files,
                "-" if report.anchors is None else report.anchors,
                ", ".join(found) or "-",
                format_bytes(report.bytes_per_epoch),
                "ok" if report.ok else "PROBLEM",
            ]
        )
    print_table(headers, rows)
    for report in reports:
        print(f"\n{report.name}")
        for file in report.opened:
            sizes = ", ".join(f"{dim} {size}" for dim, size in file.sizes.items())
            span = "" if file.span is None else f"; {file.span[0]} to {file.span[1]}"
            print(f"  {file.url}: {sizes}{span}")
        for dim, indices in report.selects.items():
            print(f"  selects {dim} {indices}")
        for field in report.fields:
            dims = ", ".join(f"{dim} {size}" for dim, size in zip(field.dims, field.shape, strict=True))
            print(f"  delivers {field.name} ({dims}) {field.dtype}")
        for text in report.warnings:
            print(f"  warning: {text}")
        for text in report.problems:
            print(f"  problem: {text}")
    if doubts or problems:
        print()
    for text in doubts:
        print(f"warning: {text}")
    for text in problems:
        print(f"problem: {text}")
    print()
    if needed := _per_epoch(members):
        print(f"{format_bytes(needed)} hold an epoch of all that is selected: its records and its samples")
    standing = f" and {len(stand_ins)} to stand in" if stand_ins else ""
    count = len(problems) + sum(len(report.problems) for report in reports)
    noted = len(doubts) + sum(len(report.warnings) for report in reports)
    verdict = "all is well" if count == 0 else _counted(count, "problem")
    doubtful = f", with {_counted(noted, 'warning')}" if noted else ""
    print(f"{_counted(len(members), 'source')}{standing}: {verdict}{doubtful}")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _calendars(report: SourceSurvey) -> str:
    """Name the source's calendar, and that of its files where it is another word."""
    theirs = {file.calendar for file in report.opened if file.calendar is not None} - {report.calendar}
    own = report.calendar or "-"
    return f"{own} (files: {', '.join(sorted(theirs))})" if theirs else own
