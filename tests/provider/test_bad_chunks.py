"""A damaged chunk is an error, or NaN in its own cells and on record, as the source says."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

from earthsciio import DataSource, DecodeError, Provider


@pytest.fixture
def damaged(tmp_path):
    """Six float32 in chunks of two, of which the middle one has a flipped byte."""
    path = tmp_path / "v.h5"
    with h5py.File(path, "w") as file:
        data = np.arange(6, dtype="f4")
        dataset = file.create_dataset("v", data=data, chunks=(2,), compression=1, fletcher32=True)
        found = dataset.id.get_chunk_info(1)
        offset, size = found.byte_offset, found.size
    content = bytearray(path.read_bytes())
    content[offset + size // 2] ^= 0xFF
    path.write_bytes(content)
    return path


def source(path, **options):
    return DataSource("s", "netcdf", str(path), ("v",), reader_kwargs=options)


def test_a_damaged_chunk_is_an_error_that_names_it(damaged):
    with pytest.raises(DecodeError) as caught:
        Provider(source(damaged)).materialize()
    assert (caught.value.file, caught.value.variable, caught.value.chunk) == (str(damaged), "v", (1,))


def test_by_option_its_cells_are_nan_and_the_provider_lists_it(damaged):
    provider = Provider(source(damaged, on_bad_chunk="nan"))
    values = provider.materialize()["v"].data
    assert np.array_equal(values, [0, 1, np.nan, np.nan, 4, 5], equal_nan=True)
    ((path, bad),) = provider.bad_chunks
    assert (path, bad.variable, bad.chunk) == (str(damaged), "v", (1,))
