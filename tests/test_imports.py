"""The house: what importing costs, and that imports run one way."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = {
    "mpi4py", "integrator", "xarray", "scipy", "matplotlib", "numba", "h5py", "zarr", "requests", "rich",
    "netCDF4", "pandas", "dask", "imagecodecs", "numcodecs", "obstore", "llvmlite",
}  # fmt: skip


@pytest.mark.parametrize("module", ["earthsciio", "integrator"])
def test_importing_loads_no_costly_library(module):
    program = (
        f"import sys, json, {module}; print(json.dumps(sorted({{m.split('.')[0] for m in sys.modules}})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(json.loads(done.stdout))
    assert not loaded & (HEAVY - {module})


# Floors of the house, the top first: a module imports from its own floor or from one below.
FLOORS = [
    ["integrator"],
    ["earthsciio.cli"],
    ["earthsciio.prefetch"],
    ["earthsciio.provider", "earthsciio.series", "earthsciio.contents", "earthsciio.assembly"],
    ["earthsciio.decode"],
    ["earthsciio.formats"],
    [
        "earthsciio.cache", "earthsciio.cadence", "earthsciio.calendars", "earthsciio.timeaxis",
        "earthsciio.selection", "earthsciio.bounds", "earthsciio.fields", "earthsciio.events",
        "earthsciio.errors", "earthsciio.registry", "earthsciio.source", "earthsciio.records",
    ],
]  # fmt: skip
FLOOR = {name: level for level, names in enumerate(FLOORS) for name in names}


def modules():
    for package in ("earthsciio", "integrator"):
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imported(name, path):
    """Yield the absolute names a module imports at run time, from anywhere in it."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    tree = ast.parse(path.read_text())
    typing_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        for statement in block.body
        for node in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def floor(name):
    """The floor of a module or of a name in it; None where it has none."""
    parts = name.split(".")
    return next((FLOOR[known] for n in (2, 1) if (known := ".".join(parts[:n])) in FLOOR), None)


def test_imports_run_one_way():
    upward = [
        f"{name} imports {target}"
        for name, path in modules()
        if floor(name) is not None
        for target in imported(name, path)
        if floor(target) is not None and floor(target) < floor(name)
    ]
    assert not upward


def test_the_library_never_imports_the_integrator_or_mpi():
    above = [
        f"{name} imports {target}"
        for name, path in modules()
        if name.split(".")[0] == "earthsciio"
        for target in imported(name, path)
        if target.split(".")[0] in ("integrator", "mpi4py")
    ]
    assert not above


def test_netcdf_c_is_never_imported():
    assert not [name for name, path in modules() if "netCDF4" in set(imported(name, path))]
