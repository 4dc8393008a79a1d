"""Filters in any order and number: the values HDF5 itself gives, by the engine or a counted fallback."""

from __future__ import annotations

import bz2
import itertools
from pathlib import Path

import h5py
import numpy as np
import pytest
import stored
from h5py import h5z

from earthsciio.decode import decode_arrays
from earthsciio.decode.abort import AbortToken
from earthsciio.decode.codecs import program
from earthsciio.decode.values import ValueOptions
from earthsciio.formats.encoded import EncodedArray, Filter, PieceIndex

RAW = ValueOptions("source", default_fill=False)
CODES = {"deflate": 1, "shuffle": 2, "fletcher": 3, "szip": 4, "lzf": 32000}
#: Of those that take any: deflate's level, szip's options and pixels per block.
PARAMETERS = {"deflate": (4,), "szip": (4, 16)}
COMPRESSORS = {"deflate", "szip", "lzf"}
#: HDF5's own szip loses bytes of what another compressor made.
PIPELINES = [
    filters
    for count in (1, 2, 3)
    for filters in itertools.product(CODES, repeat=count)
    if not any(a in COMPRESSORS and b == "szip" for a, b in itertools.combinations(filters, 2))
]


def filtered(file: h5py.File, name: str, values: np.ndarray, filters: tuple[str, ...]) -> None:
    """Write values through filters that h5py's own interface would not put in this order."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((values.shape[0] // 2, *values.shape[1:]))
    for each in filters:
        flag = h5z.FLAG_MANDATORY if each == "fletcher" else h5z.FLAG_OPTIONAL
        plist.set_filter(CODES[each], flag, PARAMETERS.get(each, ()))
    space, dtype = h5py.h5s.create_simple(values.shape), h5py.h5t.py_create(values.dtype)
    h5py.Dataset(h5py.h5d.create(file.id, name.encode(), dtype, space, plist))[...] = values


def runs_fast(filters: tuple[str, ...]) -> bool:
    """Whether bytes are compressed once, and at most checked after that; HDF5 gives one shuffle its width."""
    first = next((i for i, each in enumerate(filters) if each in COMPRESSORS), len(filters))
    return set(filters[first + 1 :]) <= {"fletcher"} and filters.count("shuffle") <= 1


@pytest.fixture(scope="module")
def values() -> np.ndarray:
    return np.repeat(np.arange(250, dtype="<f4"), 4).reshape(10, 100)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory, values: np.ndarray) -> Path:
    path = tmp_path_factory.mktemp("pipelines") / "p.h5"
    with h5py.File(path, "w") as file:
        for filters in PIPELINES:
            filtered(file, "-".join(filters), values, filters)
    return path


def test_any_order_of_filters_gives_what_hdf5_gives(path: Path, values: np.ndarray) -> None:
    file = stored.open_file(path)
    for filters in PIPELINES:
        name = "-".join(filters)
        wanted = stored.request(file, name, stored.everything(file, name), RAW)
        report = decode_arrays(file, [wanted], AbortToken())
        with h5py.File(path) as same:
            assert np.array_equal(same[name][...], values), name
        assert wanted.outs[0].tobytes() == values.tobytes(), name
        assert (report.fallbacks == ()) == runs_fast(filters), (name, report.fallbacks)


def test_the_reason_of_a_fallback_names_the_filters_in_their_order(path: Path) -> None:
    file = stored.open_file(path)
    name = "deflate-shuffle-lzf"
    wanted = stored.request(file, name, stored.everything(file, name), RAW)
    report = decode_arrays(file, [wanted], AbortToken())
    assert report.fallbacks == ((name, "filters in the order 1 (deflate), 2 (shuffle), 32000 (lzf)"),)


def test_random_bytes_that_no_filter_shrinks(tmp_path: Path) -> None:
    """Optional filters are then left out chunk by chunk, of any pipeline."""
    noise = np.random.default_rng(4).integers(0, 2**32, (10, 100), dtype="<u4")
    with h5py.File(tmp_path / "n.h5", "w") as file:
        for filters in PIPELINES:
            filtered(file, "-".join(filters), noise, filters)
    file = stored.open_file(tmp_path / "n.h5")
    for name in map("-".join, PIPELINES):
        (found,) = stored.read_fast(file, [(name, stored.everything(file, name))])
        assert found == noise.tobytes(), name


@pytest.mark.parametrize("filters", ["1", "1 3 3", "2 1 3", "3 2 1", "2 32015 3", "2 3 2 3", "307", "4", ""])
def test_what_runs(filters: str) -> None:
    assert not isinstance(program(encoded(filters)), str)


@pytest.mark.parametrize(
    "filters", ["1 2", "1 1", "32000 1", "2 1 3 1", "32015 2", "32001 3 2 3", "1 3 2", "6", "6 1", "99"]
)
def test_what_does_not_run_has_a_reason(filters: str) -> None:
    reason = program(encoded(filters))
    assert isinstance(reason, str)
    assert f"{filters.split(maxsplit=1)[0]} (unnamed)" in reason


def test_a_filter_without_the_parameters_it_needs_does_not_run() -> None:
    assert isinstance(program(encoded("2", ())), str)
    assert isinstance(program(encoded("4", (4, 16))), str)


def encoded(codes: str, parameters: tuple[int, ...] | None = None) -> EncodedArray:
    known = {"2": (4,), "4": (4, 16, 32, 100)}
    filters = tuple(
        Filter(int(code), "", known.get(code, ()) if parameters is None else parameters)
        for code in codes.split()
    )
    index = PieceIndex(0, (4,), (8,), (8,), 4)
    return EncodedArray(np.dtype("<f4"), (8,), (8,), filters, bytes(4), index)


def test_a_chunk_of_zeros_as_small_as_bzip2_makes_it(tmp_path: Path) -> None:
    zeros = bytes(12_000_000)
    packed = bz2.compress(zeros)
    assert len(zeros) > 200_000 * len(packed)
    with h5py.File(tmp_path / "z.h5", "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((len(zeros),))
        plist.set_filter(307, h5z.FLAG_OPTIONAL, (9,))
        space = h5py.h5s.create_simple((len(zeros),))
        data = h5py.h5d.create(file.id, b"v", h5py.h5t.STD_U8LE, space, plist)
        data.write_direct_chunk((0,), packed, 0)
    file = stored.open_file(tmp_path / "z.h5")
    assert stored.read_fast(file, [("v", stored.everything(file, "v"))]) == [zeros]
