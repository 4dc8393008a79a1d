"""Ways from a chunk to its output: through the caches, past them, turned in tiles; the bytes are the same."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored import FILTERS, open_file

from earthsciio.decode import ArrayRequest, decode_arrays
from earthsciio.decode import batch as batch_module
from earthsciio.decode import tables as t
from earthsciio.decode.abort import AbortToken
from earthsciio.decode.batch import build_batch
from earthsciio.decode.elements import make_scatterer
from earthsciio.decode.engine import prepare
from earthsciio.decode.plan import plan_reads
from earthsciio.decode.values import ValueOptions, value_spec
from earthsciio.selection import Span

SHAPE = (3, 5, 40)


def write(path, dtype="<f4", **options):
    raw = np.random.default_rng(3).integers(-90, 90, SHAPE).astype(dtype)
    with h5py.File(path, "w") as file:
        file.create_dataset("v", data=raw, **options)
    return raw


def ask(file, *windows, precision="source", offset=0):
    """Ask for Windows, each into an output that begins `offset` bytes behind a cache line, 77 around it."""
    info = file.arrays["v"]
    spec = value_spec("v", info.dtype, info.attrs, ValueOptions(precision))
    boxes = windows or [[Span(0, size) for size in SHAPE]]
    plan = plan_reads(info.shape, info.chunks, boxes)
    outs = []
    for shape in plan.shapes:
        nbytes = int(np.prod(shape)) * spec.out.itemsize
        memory = np.full(nbytes + 256, 77, dtype=np.uint8)
        start = -memory.ctypes.data % 64 + offset
        outs.append(memory[start : start + nbytes].view(spec.out).reshape(shape))
    return ArrayRequest(info, spec, plan, tuple(outs))


@pytest.mark.parametrize("offset", [0, 8, 16, 56])
@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize(
    ("dtype", "precision"), [("<f4", "source"), (">f4", "float64"), ("<i2", "float64"), ("|i1", "source")]
)
def test_what_is_written_past_the_caches_is_the_same(
    tmp_path, monkeypatch, offset, filters, dtype, precision
):
    raw = write(tmp_path / "v.h5", dtype, chunks=(2, 3, 40), **FILTERS[filters])
    windows = [[Span(0, 3), Span(0, 5), Span(0, 40)], [Span(1, 3), Span(2, 5), Span(3, 38, 2)]]
    file = open_file(tmp_path / "v.h5")
    monkeypatch.setattr(batch_module, "_STREAMED_NBYTES", 0)
    request = ask(file, *windows, precision=precision, offset=offset)
    tables = build_batch([prepare(file, request)], 1 << 30, False, 2).tables
    assert tables[t.J_ARRAYS][0, t.STREAMED] == 1
    decode_arrays(file, [request], AbortToken())
    assert np.array_equal(request.outs[0], raw)
    assert np.array_equal(request.outs[1], raw[1:3, 2:5, 3:38:2])
    for out in request.outs:
        memory = out
        while isinstance(memory.base, np.ndarray):
            memory = memory.base
        begin = out.ctypes.data - memory.ctypes.data
        assert set(memory[:begin]) | set(memory[begin + out.nbytes :]) == {77}


def test_little_is_left_in_the_caches(tmp_path):
    write(tmp_path / "v.h5")
    file = open_file(tmp_path / "v.h5")
    tables = build_batch([prepare(file, ask(file))], 1 << 30, False, 2).tables
    assert tables[t.J_ARRAYS][0, t.STREAMED] == 0


@pytest.fixture(scope="module")
def scatterers():
    return {width: make_scatterer(width, 1).ctypes for width in (1, 2, 4, 8)}


@given(
    width=st.sampled_from([1, 2, 4, 8]), rows=st.integers(1, 20), cols=st.integers(1, 20),
    gap=st.integers(0, 3), along_rows=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
def test_a_block_is_turned_whatever_its_size(scatterers, width, rows, cols, gap, along_rows, seed):
    block = np.random.default_rng(seed).integers(0, 255, (rows, cols * width)).astype(np.uint8)
    block = block.view(f"u{width}")
    across = rows + gap
    # the rows lie side by side, or with an element between
    out = np.zeros((cols, across, 1 if along_rows else 2), dtype=block.dtype)
    scatterers[width](out.ctypes.data, block.ctypes.data, out.strides[1], out.strides[0], rows, cols)
    assert np.array_equal(out[:, :rows, 0], block.T)
    out[:, :rows, 0] = 0
    assert not out.any()


@st.composite
def layouts(draw):
    """Draw a shape, its chunks, a Window of it, and an order of axes."""
    shape = draw(st.tuples(st.integers(1, 5), st.integers(1, 40), st.integers(1, 40)))
    chunks = tuple(draw(st.sampled_from([1, max(1, size // 2), size])) for size in shape)
    box = []
    for size in shape:
        start = draw(st.integers(0, size - 1))
        box.append(Span(start, draw(st.integers(start + 1, size)), draw(st.sampled_from([1, 1, 1, 2, 7]))))
    return shape, chunks, box, draw(st.permutations(range(3)))


@given(
    layout=layouts(), dtype=st.sampled_from(["<f4", ">f4", "<i2", "<f8", ">i4", "|u1"]),
    filters=st.sampled_from(list(FILTERS)), precision=st.sampled_from(["source", "float64"]),
    streamed=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
def test_any_memory_order_has_the_bytes_of_numpy(
    tmp_path_factory, layout, dtype, filters, precision, streamed, seed
):
    shape, chunks, box, order = layout
    raw = np.random.default_rng(seed).integers(0, 90, shape).astype(dtype)
    path = tmp_path_factory.mktemp("orders") / "v.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("v", data=raw, chunks=chunks, **FILTERS[filters])
    file = open_file(path)
    info = file.arrays["v"]
    spec = value_spec("v", info.dtype, info.attrs, ValueOptions(precision))
    plan = plan_reads(info.shape, info.chunks, [box])
    (extent,) = plan.shapes
    turned = np.full([extent[axis] for axis in order], 77, dtype=spec.out)
    request = ArrayRequest(info, spec, plan, (turned.transpose(np.argsort(order)),))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_module, "_STREAMED_NBYTES", 0 if streamed else 1 << 60)
        decode_arrays(file, [request], AbortToken())
    expected = raw[tuple(slice(one.start, one.stop, one.step) for one in box)]
    assert np.array_equal(turned, expected.transpose(order))
