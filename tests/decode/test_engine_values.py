"""The engine gives what the reference path gives, bit for bit."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
import stored

from earthsciio.decode.values import ValueOptions

OPTIONS = [
    ValueOptions(),
    ValueOptions("source"),
    ValueOptions("source", True),
    ValueOptions("float64", True, False),
]


@pytest.mark.parametrize("filters", stored.FILTERS)
def test_any_selection_of_any_dtype_is_bitwise_the_reference(tmp_path: Path, filters: str) -> None:
    rng = np.random.default_rng(sum(map(ord, filters)))
    path = tmp_path / "all.h5"
    with h5py.File(path, "w") as file:
        for copy in range(2):
            for dtype in stored.DTYPES:
                stored.random_dataset(
                    rng, file, f"{dtype.strip('?')}x{dtype[0]}{copy}", filters, np.dtype(dtype)
                )
    file = stored.open_file(path)
    for options, order in zip(OPTIONS, "CFSC", strict=True):
        wanted = []
        for name, info in file.arrays.items():
            selectors = [stored.random_selectors(rng, info.shape) for _ in range(3)]
            wanted.append((name, [*selectors, *stored.everything(file, name)]))
        both = stored.read_both(file, wanted, options, order)
        assert both.report.fallbacks == ()
        for fast, slow in zip(both.fast, both.slow, strict=True):
            assert fast == slow
