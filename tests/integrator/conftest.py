"""A small case on files: two compressed winds of seven records, 13 x 17 points, latitude from the north."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from synthetic import write_winds

_CASE = """\
case: synthetic
sources:
  u: {{format: netcdf, url: u.nc, variables: [u], temporal: &hourly
      {{start: "2001-02-27T21:00", frequency: PT3H, end: "2001-02-28T18:00", records_per_sample: 2}}}}
  v: {{format: netcdf, url: v.nc, variables: [v], temporal: *hourly}}
time: {{end: "2001-02-28T15:00"}}
model:
  name: tracer
  parameters: {{u: [u, u], v: [v, v], step: 3600, wall: 75, start: {start}, target: {target}}}
sweep: {{direction: adjoint}}
"""

WriteCase = Callable[..., Path]


@pytest.fixture
def write_case(tmp_path) -> WriteCase:
    """Give a function that writes the case, with a start and target of the tracer, and gives its path."""

    def write(
        start: str = "{lat: 20, lon: 100, radius: 60}", target: str = "{lat: [-60, 60], lon: [-90, 120]}"
    ) -> Path:
        write_winds(tmp_path, records=7, columns=17, since="2001-02-27 21:00")
        path = tmp_path / "case.yaml"
        path.write_text(_CASE.format(start=start, target=target), encoding="utf-8")
        return path

    return write
