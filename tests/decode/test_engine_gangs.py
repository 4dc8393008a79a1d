"""Outputs that run fastest across chunks: chunks are placed together, and the values stay what they were."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
from stored import FILTERS, open_file

from earthsciio.decode import ArrayRequest, DecodeOptions, decode_arrays, decode_threads, set_decode_threads
from earthsciio.decode.abort import AbortToken
from earthsciio.decode.batch import build_batch
from earthsciio.decode.engine import prepare
from earthsciio.decode.plan import plan_reads
from earthsciio.decode.values import ValueOptions, value_spec
from earthsciio.selection import Points, Span

SHAPE = (2, 11, 9, 7)
CHUNKS = (1, 1, 9, 7)
WHOLE = [Span(0, size) for size in SHAPE]
#: Axes of the output, slowest first.
ORDERS = {"level last": (0, 2, 3, 1), "Fortran": (3, 2, 1, 0), "level before lon": (0, 2, 1, 3)}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "levels.h5"


def write(path, dtype="<f4", filters="both", fill=None):
    rng = np.random.default_rng(5)
    raw = rng.integers(0, 90, SHAPE).astype(dtype)
    with h5py.File(path, "w") as file:
        array = file.create_dataset("v", data=raw, chunks=CHUNKS, fillvalue=fill, **FILTERS[filters])
        if fill is not None:
            array.attrs["_FillValue"] = np.array([fill], dtype=dtype)
            array.attrs["scale_factor"] = np.float32(0.5)
    return raw


def ask(file, order, selectors=None, precision="source"):
    info = file.arrays["v"]
    spec = value_spec("v", info.dtype, info.attrs, ValueOptions(precision))
    plan = plan_reads(info.shape, info.chunks, [selectors or WHOLE])
    (shape,) = plan.shapes
    out = np.full([shape[axis] for axis in order], 77, dtype=spec.out).transpose(np.argsort(order))
    return ArrayRequest(info, spec, plan, (out,))


def gangs(file, request):
    return build_batch([prepare(file, request)], 1 << 30, False, decode_threads()).gangs[:, 1].tolist()


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("dtype", ["<f4", ">f8", "<i2"])
def test_values_do_not_depend_on_the_memory_order(path, order, filters, dtype):
    raw = write(path, dtype, filters)
    file = open_file(path)
    request = ask(file, order)
    decode_arrays(file, [request], AbortToken())
    assert np.array_equal(request.outs[0], raw)


def test_neighbours_on_the_fast_axis_are_placed_together(path):
    write(path)
    file = open_file(path)
    assert max(gangs(file, ask(file, ORDERS["level last"]))) > 1
    assert sum(gangs(file, ask(file, ORDERS["level last"]))) == 22
    assert set(gangs(file, ask(file, (0, 1, 2, 3)))) == {1}
    assert set(gangs(file, ask(file, ORDERS["level before lon"]))) == {1}


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_no_thread_is_left_without(path, threads):
    write(path)
    file = open_file(path)
    before = decode_threads()
    set_decode_threads(threads)
    try:
        sizes = gangs(file, ask(file, ORDERS["level last"]))
    finally:
        set_decode_threads(before)
    assert len(sizes) >= threads
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    "levels",
    [Span(3, 9), Span(1, 10, 3), Points([4, 3, 2, 9, 10, 0]), Points([5, 5, 6]), Points([]), Span(10, 11)],
    ids=repr,
)
def test_any_selection_of_levels_is_placed_right(path, levels):
    raw = write(path, ">i2", "all", fill=13)
    file = open_file(path)
    selectors = [Span(0, 2), levels, Span(2, 8), Points([6, 0, 0, 3])]
    request = ask(file, ORDERS["level last"], selectors, "float64")
    decode_arrays(file, [request], AbortToken())
    taken = raw[np.ix_(*(np.atleast_1d(one.values if isinstance(one, Points) else one.indices())
                         for one in selectors))]  # fmt: skip
    expected = np.where(taken == 13, np.nan, taken.astype("f8") * 0.5)
    assert np.array_equal(request.outs[0], expected, equal_nan=True)


def test_a_gang_holds_chunks_that_skipped_a_filter(path):
    raw = write(path)
    with h5py.File(path, "r+") as file:  # one level without its shuffle, one without any filter
        import zlib

        file["v"].id.write_direct_chunk((0, 4, 0, 0), zlib.compress(raw[0, 4].tobytes()), filter_mask=1)
        file["v"].id.write_direct_chunk((0, 5, 0, 0), raw[0, 5].tobytes(), filter_mask=3)
    opened = open_file(path)
    request = ask(opened, ORDERS["level last"])
    decode_arrays(opened, [request], AbortToken())
    assert np.array_equal(request.outs[0], raw)


def test_a_bad_chunk_in_a_gang_costs_its_own_cells_only(path):
    raw = write(path)
    with h5py.File(path, "r+") as file:
        file["v"].id.write_direct_chunk((1, 6, 0, 0), b"no zlib stream")
    opened = open_file(path)
    request = ask(opened, ORDERS["level last"])
    report = decode_arrays(opened, [request], AbortToken(), DecodeOptions(on_bad_chunk="nan"))
    assert [bad.chunk for bad in report.bad_chunks] == [(1, 6, 0, 0)]
    expected = raw.copy()
    expected[1, 6] = np.nan
    assert np.array_equal(request.outs[0], expected, equal_nan=True)


def test_an_integer_without_a_float64_in_a_gang_names_its_chunk(path):
    raw = np.ones(SHAPE, dtype="i8")
    raw[1, 7, 3, 3] = (1 << 60) + 1
    with h5py.File(path, "w") as file:
        file.create_dataset("v", data=raw, chunks=CHUNKS, compression=1)
        file["v"].attrs["_FillValue"] = np.int64(5)
    opened = open_file(path)
    with pytest.raises(OSError, match="1152921504606846977") as caught:
        decode_arrays(opened, [ask(opened, ORDERS["level last"], precision="float64")], AbortToken())
    assert caught.value.chunk == (1, 7, 0, 0)
