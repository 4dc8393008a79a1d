"""``earthsciio cache``: what is in the cache, whether it is whole, and making room."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from earthsciio.cache import LocalStore
from earthsciio.cache.maintenance import CacheItem, Problem, damage, items, prune, verify
from earthsciio.cache.times import format_time

from .output import format_bytes, print_table
from .values import duration, size

__all__ = ["configure", "run"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    actions = parser.add_subparsers(metavar="ACTION", dest="action", required=True)
    helps = {
        "ls": "list the files, oldest first",
        "verify": "read every file and compare it with its manifest",
        "prune": "remove files, and what crashes left behind",
    }
    for name, text in helps.items():
        action = actions.add_parser(name, help=text, description=text.capitalize() + ".")
        action.add_argument("--root", help="the cache's folder; default $EARTHSCIDATADIR, else the user's")
        action.add_argument("--json", action="store_true", help="print JSON")
        if name != "verify":
            action.add_argument("--source", help="only files of this source")
        if name == "prune":
            action.add_argument(
                "--older-than", type=duration, metavar="TIME", help="what was fetched longer ago (30d)"
            )
            action.add_argument(
                "--max-bytes", type=size, metavar="SIZE", help="the oldest, until no more is left (500GB)"
            )
            action.add_argument("--dry-run", action="store_true", help="remove nothing, say what would be")
        if name == "verify":
            action.epilog = "Exit code: 0 if all bytes are right, 1 if not."
        if name == "prune":
            action.epilog = "Without --older-than, --max-bytes or --source no file is removed."


def run(args: argparse.Namespace) -> int:
    """List, verify or prune."""
    store = LocalStore(args.root)
    if args.action == "verify":
        return _verify(store, as_json=args.json)
    if args.action == "ls":
        found = sorted(items(store), key=lambda item: item.fetched)
        _tell(store, [item for item in found if args.source in (None, _source(item))], "there", args.json)
        return 0
    older: timedelta | None = args.older_than
    removed = prune(
        store, older_than=older, max_bytes=args.max_bytes, source=args.source, dry_run=args.dry_run
    )
    _tell(store, removed, "would be removed" if args.dry_run else "removed", args.json)
    return 0


def _source(item: CacheItem) -> str | None:
    return None if item.manifest is None else item.manifest.source_loader


def _tell(store: LocalStore, found: Sequence[CacheItem], what: str, as_json: bool) -> None:
    total = sum(item.size for item in found)
    damaged = list(damage(store))
    if as_json:
        document = {
            "root": str(store.root),
            "bytes": total,
            "files": [_plain(item) for item in found],
            "damaged": [_plain_problem(each) for each in damaged],
        }
        print(json.dumps(document, indent=2))
        return
    rows = [
        [
            item.key[:12],
            format_time(item.fetched),
            format_bytes(item.size),
            _source(item) or "-",
            "-" if item.manifest is None else item.manifest.url,
        ]
        for item in found
    ]
    if rows:
        print_table(["key", "fetched", "size", "source", "url"], rows)
    for each in damaged:
        print(f"damaged: {each.path}: {each.what}", file=sys.stderr)
    print(f"{store.root}: {len(found)} files, {format_bytes(total)} {what}")


def _plain(item: CacheItem) -> dict[str, Any]:
    return {
        "key": item.key,
        "path": str(item.path),
        "bytes": item.size,
        "fetched_at": format_time(item.fetched),
        "source": _source(item),
        "url": None if item.manifest is None else item.manifest.url,
        "sha256_content": None if item.manifest is None else item.manifest.sha256_content,
    }


def _plain_problem(problem: Problem) -> dict[str, Any]:
    return {
        "key": problem.key,
        "path": str(problem.path),
        "what": problem.what,
        "serious": problem.serious,
    }


def _verify(store: LocalStore, *, as_json: bool) -> int:
    problems = list(verify(store))
    serious = [problem for problem in problems if problem.serious]
    if as_json:
        listed = [_plain_problem(each) for each in problems]
        print(json.dumps({"root": str(store.root), "ok": not serious, "problems": listed}, indent=2))
        return 1 if serious else 0
    for each in problems:
        print(f"{'WRONG' if each.serious else 'unfinished'}: {each.path}: {each.what}")
    verdict = "all bytes are right" if not serious else f"{len(serious)} files are wrong"
    print(f"{store.root}: {verdict}")
    return 1 if serious else 0
