"""What ``import earthsciio`` costs: a fresh interpreter each time, beside one that imports NumPy alone.

python benchmarks/import_time.py
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from harness import Group, Report

HERE = Path(__file__).parent


def main() -> None:
    report = Report("import")
    group = Group("import earthsciio", nbytes=0, limit="nothing", note="seconds of a whole interpreter")
    for name, code in (
        ("nothing", "pass"),
        ("numpy", "import numpy"),
        ("earthsciio", "import earthsciio"),
        ("xarray", "import xarray"),
    ):
        group.case(name)(lambda code=code: subprocess.run([sys.executable, "-c", code], check=True))
    report.run(group, repeats=11)
    cost = group.median("earthsciio") - group.median("nothing")
    report.check("seconds that import earthsciio adds", cost, 0.4, at_least=False)
    report.write(HERE / "out" / "import.json")


if __name__ == "__main__":
    main()
