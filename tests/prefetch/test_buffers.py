"""Blocks come back exactly when the last array over them dies, and accounts are exact."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earthsciio.fields import NativeDataset, NativeField
from earthsciio.prefetch.buffers import Lease, Pool, Returns, footprint, owner, seal
from earthsciio.prefetch.ledger import Ledger

F8 = np.dtype(np.float64)


def lease(n: int = 64, room: int = 10**6) -> tuple[Lease, Returns]:
    returns = Returns()
    returns.room = room
    return Lease(np.empty(n, np.uint8), returns), returns


CHAINS = {
    "the array": lambda a: a,
    "a view of a view": lambda a: a[1:].T[::2],
    "another dtype": lambda a: a.view(np.uint8)[3:5],
    "a reshape": lambda a: a.reshape(2, 2, 2)[0],
    "a memoryview": memoryview,
    "an array of a memoryview": lambda a: np.asarray(memoryview(a))[2:],
    "frombuffer": lambda a: np.frombuffer(a.reshape(-1), np.uint8)[:1],
    "an iterator": lambda a: a.flat,
    "dlpack": np.from_dlpack,
    "as_strided": lambda a: np.lib.stride_tricks.as_strided(a, (3,), (8,)),
    "a subclass": lambda a: a.view(np.matrix) if a.ndim == 2 else a,
}


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
@pytest.mark.parametrize("make", CHAINS.values(), ids=CHAINS.keys())
def test_a_block_comes_back_when_the_last_that_refers_to_it_dies(make):
    held, returns = lease()
    array = held.array((2, 4), F8)
    array[...] = 1.0
    kept = make(array)
    del held, array
    assert returns.collect() == []
    del kept
    assert [block.nbytes for block in returns.collect()] == [64]


def test_a_block_can_die_on_any_thread():
    held, returns = lease()
    arrays = [held.array((8,), F8)]
    del held
    thread = threading.Thread(target=arrays.clear)
    thread.start()
    thread.join()
    assert len(returns.collect()) == 1


def test_blocks_that_find_no_room_are_freed():
    returns = Returns()
    returns.room = 100
    arrays = [Lease(np.empty(64, np.uint8), returns).array((8,), F8) for _ in range(3)]
    del arrays
    assert len(returns.collect()) == 1
    returns.room = 0
    Lease(np.empty(64, np.uint8), returns)
    assert returns.collect() == []


@pytest.mark.parametrize(
    ("shape", "dtype"), [((2, 4), F8), ((), F8), ((5,), np.dtype("M8[s]")), ((3,), np.dtype("i2,f4"))]
)
def test_a_lease_can_be_any_plain_array(shape, dtype):
    nbytes = int(np.prod(shape)) * dtype.itemsize
    held, _ = lease(nbytes)
    array = held.array(shape, dtype)
    assert (array.shape, array.dtype, array.flags.c_contiguous, array.flags.writeable) == (
        shape,
        dtype,
        True,
        True,
    )
    assert owner(array) == (held, nbytes)


def test_memory_is_counted_once_per_owner():
    held, _ = lease()
    array = held.array((8,), F8)
    plain = np.zeros(10)
    marks = footprint([array, array[2:], array.view(np.uint8), plain, plain[:3].reshape(3, 1)])
    assert sorted(marks.values()) == [64, 80]


def test_sealing_freezes_the_groups_memory_and_only_views_of_others():
    held, _ = lease()
    array = held.array((2, 4), F8)
    mine = np.zeros(3)
    sealed = seal(
        NativeDataset({"a": NativeField(array.T, ("y", "x"))}, {"c": NativeField(mine, ("t",))}, ())
    )
    assert not array.base.flags.writeable
    for data in (sealed["a"].data, sealed["c"].data):
        with pytest.raises(ValueError, match="read-only"):
            data[...] = 0
    mine[0] = 1.0
    assert sealed["c"].data[0] == 1.0
    with pytest.raises(ValueError, match="WRITEABLE"):
        sealed["a"].data.flags.writeable = True


def test_idle_blocks_serve_their_own_size_only():
    pool = Pool()
    for size in (8, 16, 16, 64):
        pool.give(np.empty(size, np.uint8))
    assert pool.nbytes == 104
    assert [block.nbytes for block in pool.take([16, 12, 16, 16])] == [16, 16]
    pool.shrink(1)
    assert pool.nbytes == 8  # the largest goes first
    pool.shrink(10**6)
    assert pool.nbytes == 0


@settings(deadline=None)
@given(st.data())
def test_the_ledger_is_the_sum_of_what_is_held_reserved_and_idle(data):
    """Random reservations, allocations, holds and deaths, against plain sums."""
    ledger, lock = Ledger(10**4), threading.RLock()
    open_ones: list = []
    outside: list = []
    for _ in range(data.draw(st.integers(0, 25))):
        action = data.draw(st.sampled_from(["reserve", "allocate", "close", "forget", "collect"]))
        if action == "reserve":
            sizes = data.draw(st.lists(st.sampled_from([8, 80, 800]), max_size=3))
            open_ones.append((ledger.reserve(sizes, 16, lock), list(sizes)))
        elif action == "allocate" and open_ones:
            reservation, sizes = data.draw(st.sampled_from(open_ones))
            if sizes:
                outside.append((reservation, reservation.allocate((sizes.pop() // 8,), F8)))
        elif action == "close" and open_ones:
            reservation, _ = open_ones.pop(data.draw(st.integers(0, len(open_ones) - 1)))
            reservation.close()
        elif action == "forget" and outside:
            outside.pop(data.draw(st.integers(0, len(outside) - 1)))
        elif action == "collect":
            ledger.collect()
        ids = {id(reservation) for reservation, _ in open_ones}
        reserved = sum(reservation.left for reservation, _ in open_ones)
        live = sum(sum(marks.values()) for reservation, _ in open_ones for marks in reservation._held)
        assert ledger.nbytes == reserved + live + ledger.pool.nbytes
        assert ledger.in_flight == len(ids)
        assert ledger.peak >= ledger.nbytes
        assert ledger.peak <= 10**4 or ledger.pool.nbytes == 0
    for reservation, _ in open_ones:
        reservation.close()
    assert ledger.holders == {}
    outside.clear()
    ledger.close()
    assert ledger.nbytes == 0


def test_arrays_of_objects_and_empty_ones_are_counted_but_not_pooled():
    ledger, lock = Ledger(1000), threading.RLock()
    reservation = ledger.reserve([24, 0], 0, lock)
    strings = reservation.allocate((3,), np.dtype(object))
    empty = reservation.allocate((0, 5), F8)
    assert strings.tolist() == [None] * 3
    assert empty.shape == (0, 5)
    assert ledger.nbytes == 24
    del strings, empty
    reservation.close()
    ledger.collect()
    assert ledger.nbytes == 0


def test_idle_blocks_never_pass_what_the_group_has_held():
    ledger, lock = Ledger(10**6), threading.RLock()
    kept = []
    for _ in range(10):  # a consumer that keeps everything the group made, one at a time
        reservation = ledger.reserve([800], 0, lock)
        kept.append(reservation.allocate((100,), F8))
        reservation.close()
    kept.clear()
    ledger.collect()
    assert ledger.pool.nbytes <= 800
