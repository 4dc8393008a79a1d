"""``earthsciio schema``: the JSON Schema of source and case files, for editors and other tools."""

from __future__ import annotations

import argparse
import json

from earthsciio.settings import json_schema

__all__ = ["configure", "run"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Take no arguments."""
    parser.epilog = "Save it and name it in an editor that checks YAML: earthsciio schema > schema.json"


def run(args: argparse.Namespace) -> int:  # noqa: ARG001 - it has no arguments
    """Print the schema."""
    print(json.dumps(json_schema(), indent=2))
    return 0
