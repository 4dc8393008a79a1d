"""Stored chunks that span records, or that members share: inflated once, kept as long as needed, counted."""

from __future__ import annotations

import ctypes
import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
from fake import quiet

from earthsciio import DataSource, Provider, SourceTemporal, Window
from earthsciio.decode import native
from earthsciio.formats.zarr import ZarrFile
from earthsciio.prefetch import PrefetchGroup, revolve
from earthsciio.prefetch.holdings import Holdings
from earthsciio.prefetch.reuse import NEVER, Item

START = datetime(2021, 3, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
PER_FILE, FILES, SPAN = 16, 3, 8
EPOCHS = PER_FILE * FILES
RECORD = 6 * 8 * 8  # bytes of a decoded record of `u`
COORDS = 6 * 8 + 8 * 8  # of its two coordinates, which all samples of a file share
CHUNKS = 2 * SPAN * 3 * 8 * 4  # bytes of the two chunks of `u` that hold the same records

MODES = [{"workers": 0}, {"depth": 1}, {"depth": 3, "workers": 3}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Three files of 16 hourly records: `u` in chunks of 8 records, `w` in chunks of one."""
    folder = tmp_path_factory.mktemp("spans")
    rng = np.random.default_rng(11)
    for number in range(FILES):
        start = START + number * PER_FILE * HOUR
        with netCDF4.Dataset(folder / f"{start:%Y%m%d%H}.nc", "w") as file:
            for name, size in (("time", PER_FILE), ("lat", 6), ("lon", 8)):
                file.createDimension(name, size)
                file.createVariable(name, "f8", (name,))[:] = np.arange(size)
            file["time"].units = f"hours since {start:%Y-%m-%d %H:00}"
            for name, span in (("u", SPAN), ("w", 1)):
                variable = file.createVariable(
                    name, "f4", ("time", "lat", "lon"), zlib=True, chunksizes=(span, 3, 8)
                )
                variable[:] = rng.normal(size=(PER_FILE, 6, 8))
    return folder


def provider(folder: Path, *variables: str, bracket: bool = False, step: int = 1) -> Provider:
    temporal = SourceTemporal(
        start=START,
        frequency=f"PT{step}H",
        file_period=f"PT{PER_FILE}H",
        end=START + EPOCHS * HOUR,
        records_per_sample=2 if bracket else None,
    )
    return Provider(DataSource("s", "netcdf", str(folder / "%Y%m%d%H.nc"), variables or ("u",), temporal))


class Reads:
    """Counts how often each stored chunk is read; `gate` holds those of chosen chunks."""

    def __init__(self, folder: Path) -> None:
        self.counts: Counter[tuple[int, str, tuple[int, ...]]] = Counter()
        self.gates: dict[tuple[int, str, tuple[int, ...]], threading.Event] = {}
        self.reached = threading.Event()
        self._chunks: dict[tuple[int, int], tuple[int, str, tuple[int, ...]]] = {}
        for number, path in enumerate(sorted(folder.glob("*.nc"))):
            with h5py.File(path) as file:
                for name in ("u", "w"):
                    data = file[name].id
                    for i in range(data.get_num_chunks()):
                        info = data.get_chunk_info(i)
                        chunk = tuple(
                            o // c for o, c in zip(info.chunk_offset, file[name].chunks, strict=True)
                        )
                        self._chunks[path.stat().st_ino, info.byte_offset] = (number, name, chunk)

    @contextmanager
    def counted(self) -> Iterator[Reads]:
        lock = threading.Lock()

        @native.PreadFunction
        def pread(descriptor: int, target: int, count: int, offset: int) -> int:
            chunk = self._chunks.get((os.fstat(descriptor).st_ino, offset))
            if chunk is not None:
                with lock:
                    self.counts[chunk] += 1
                gate = self.gates.get(chunk)
                if gate is not None:
                    self.reached.set()
                    gate.wait(60)
            data = os.pread(descriptor, count, offset)
            ctypes.memmove(target, data, len(data))
            return len(data)

        with native.replaced(pread=pread):
            yield self

    def of(self, name: str) -> list[int]:
        """How often each chunk of a variable was read."""
        every = [chunk for chunk in self._chunks.values() if chunk[1] == name]
        return [self.counts[chunk] for chunk in every]


@pytest.fixture
def reads(folder) -> Iterator[Reads]:
    with Reads(folder).counted() as reads:
        yield reads


def spans(group: PrefetchGroup) -> list[tuple[int, int]]:
    """The records whose chunks a group keeps: file number and first record."""
    return sorted({(key.keep.identity[0][-13:-3], key.keep.first) for key in group._engine._chunks._entries})


def sweep(group: PrefetchGroup, order: list[int], check: Provider | None = None) -> None:
    group.start(order)
    boundaries = group.boundaries()
    for k in order:
        epoch = group.take(k)
        if check is not None:
            expected = check.sample_at(boundaries[k])
            for sample in epoch.values():
                for name in sample.data.variable_names():
                    assert sample.data[name].data.tobytes() == expected[name].data.tobytes()


FORWARD = list(range(EPOCHS))


# spec: G3.5
@pytest.mark.parametrize("order", [FORWARD, FORWARD[::-1]], ids=["forward", "reverse"])
@pytest.mark.parametrize("bracket", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_chunks_of_eight_records_over_three_files_are_each_inflated_once(folder, reads, order, bracket, mode):
    with PrefetchGroup({"w": provider(folder, bracket=bracket)}, **mode) as group:
        sweep(group, order)
        stats = group.stats()
    assert reads.of("u") == [1] * (FILES * 2 * 2)
    assert stats.records_decoded == EPOCHS
    assert stats.chunks_decoded == FILES * 2 * 2
    assert stats.chunks_decoded + stats.chunks_reused == 2 * EPOCHS


@pytest.mark.parametrize("bracket", [False, True])
@pytest.mark.parametrize("budget", [1, 3 * RECORD, 5 * RECORD + CHUNKS, 10**6])
@pytest.mark.parametrize("mode", MODES)
def test_values_do_not_depend_on_what_is_kept_of_chunks(folder, bracket, budget, mode):
    order = [0, 5, 5, 17, 3, 8, 0, *range(40, 20, -3), 47]
    check = provider(folder, bracket=bracket)
    with PrefetchGroup({"w": provider(folder, bracket=bracket)}, max_bytes=budget, **mode) as group:
        sweep(group, order, check)
        largest = RECORD * (4 if bracket else 1) + (16 if bracket else 0) + FILES * COORDS
        assert group.stats().peak_bytes <= max(budget + FILES * COORDS, largest)


# spec: G3.5
@pytest.mark.parametrize("bracket", [False, True])
def test_chunks_are_released_exactly_after_their_last_use(folder, bracket):
    with PrefetchGroup({"w": provider(folder, bracket=bracket)}, workers=0) as group:
        group.start("forward")
        for k in range(EPOCHS):
            group.take(k)
            # which samples, later than this one, are cut from each run of eight records?
            users = {first: range(first - bracket, first + SPAN) for first in range(0, EPOCHS, SPAN)}
            needed = [first for first, ks in users.items() if k + 1 in ks and min(ks) <= k]
            kept = [(f"{START + first // 16 * 16 * HOUR:%Y%m%d%H}", first % 16) for first in needed]
            assert spans(group) == kept, k
    assert group._engine.ledger.holders == {}


def test_kept_chunks_are_counted(folder):
    with PrefetchGroup({"w": provider(folder)}, workers=0, max_bytes=10**6) as group:
        group.start("forward")
        group.take(0)
        ledger = group._engine.ledger
        assert ledger.nbytes == CHUNKS + RECORD + COORDS
        assert group.stats().peak_bytes == CHUNKS + RECORD + COORDS
        for k in range(1, SPAN):
            group.take(k)
        ledger.collect()
        assert ledger.nbytes - ledger.pool.nbytes == RECORD + COORDS


# spec: G5.1
def test_chunks_give_way_to_queued_slots_and_are_inflated_again(folder, reads):
    budget = CHUNKS + 2 * RECORD + COORDS
    with PrefetchGroup({"w": provider(folder)}, depth=3, max_bytes=budget, fetch_ahead=0) as group:
        group.start("forward")
        quiet(group)
        assert [group.ready(k) for k in range(4)] == [True, True, True, False]
        # one of the two chunks went when the third slot asked for room; there was none for it any more
        assert len(group._engine._chunks._entries) == 1
        assert sorted(reads.of("u"))[-3:] == [0, 1, 2]
        assert group.stats().peak_bytes == budget


def test_a_chunk_that_has_no_room_takes_none(folder, reads):
    with PrefetchGroup({"w": provider(folder)}, workers=0, max_bytes=CHUNKS // 2) as group:
        sweep(group, FORWARD[:4])
        assert group._engine._chunks.stats().loads == 0
    assert sum(reads.of("u")) == 2 * 4


# spec: G3.5
@pytest.mark.parametrize("name", ["u", "w"])
@pytest.mark.parametrize("mode", MODES[:2])
def test_members_that_read_one_file_share_its_chunks(folder, reads, name, mode):
    north = provider(folder, name).with_window(Window({"lat": (0, 4)}))
    south = provider(folder, name).with_window(Window({"lat": (2, 6)}))
    with PrefetchGroup({"north": north, "south": south}, **mode) as group:
        sweep(group, FORWARD)
    assert set(reads.of(name)) == {1}


# spec: G3.5
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("order", [FORWARD, FORWARD[::-1]], ids=["forward", "reverse"])
def test_members_of_different_cadence_and_brackets_share_chunks(folder, reads, mode, order):
    members = {"hourly": provider(folder), "coarse": provider(folder, step=4, bracket=True)}
    with PrefetchGroup(members, **mode) as group:
        assert len(group.boundaries()) == EPOCHS
        sweep(group, order)
    assert set(reads.of("u")) == {1}


@pytest.mark.parametrize("order", [range(16), range(15, -1, -1)], ids=["forward", "reverse"])
def test_a_file_finer_than_the_cadence_lets_go_of_chunks_after_the_last_record_taken(folder, reads, order):
    with PrefetchGroup({"w": provider(folder, step=3)}, workers=0) as group:
        group.start(list(order))
        for k in order:
            group.take(k)
            following = k + order.step
            assert len(spans(group)) == (following in order and 3 * following // SPAN == 3 * k // SPAN), k
    assert set(reads.of("u")) == {1}


def test_an_adjoint_inflates_each_chunk_once_where_there_is_room(folder, reads):
    order = list(revolve(EPOCHS, 4))
    with PrefetchGroup({"w": provider(folder)}, depth=2) as group:
        sweep(group, order)
        assert spans(group) == []
    assert set(reads.of("u")) == {1}


def test_a_record_with_chunks_of_its_own_leaves_nothing_in_the_pool(folder, reads):
    for bracket in (False, True):
        with PrefetchGroup({"w": provider(folder, "w", bracket=bracket)}, depth=2) as group:
            sweep(group, list(revolve(12, 2)))
            pool = group._engine._chunks
            assert pool.stats().peak_nbytes == 0
            assert len(pool._takers) <= 4


def test_a_chunk_being_inflated_is_waited_for_not_inflated_again(folder):
    reads = Reads(folder)
    gate = reads.gates[0, "u", (0, 0, 0)] = threading.Event()
    with reads.counted(), PrefetchGroup({"w": provider(folder)}, depth=3, workers=3, fetch_ahead=0) as group:
        group.start("forward")
        assert reads.reached.wait(60)
        wait_for_production(group, 3)
        assert not group.ready(0)
        gate.set()
        for k in range(SPAN):
            group.take(k)
    assert reads.counts[0, "u", (0, 0, 0)] == 1


def test_cancel_ends_a_wait_for_a_chunk(folder):
    reads = Reads(folder)
    gate = reads.gates[0, "u", (0, 0, 0)] = threading.Event()
    with reads.counted(), PrefetchGroup({"w": provider(folder)}, depth=3, workers=3, fetch_ahead=0) as group:
        group.start("forward")
        assert reads.reached.wait(60)
        wait_for_production(group, 3)
        group.cancel()
        wait_for_production(group, 1)  # the one that is inside pread
        gate.set()
        group.cancel(wait=True)
        assert group._engine.ledger.in_flight == 0
        sweep(group, [1, 0], provider(folder))


def wait_for_production(group: PrefetchGroup, count: int) -> None:
    """Return when so many samples are in production."""
    engine = group._engine
    for _ in range(20_000):
        with engine.lock:
            if engine.ledger.in_flight == count:
                return
        threading.Event().wait(0.001)
    raise AssertionError(f"there were never {count} samples in production")


def test_after_a_new_start_chunks_are_kept_as_far_as_the_new_order_needs_them(folder, reads):
    with PrefetchGroup({"w": provider(folder)}, workers=0) as group:
        group.start("forward")
        group.take(0)
        group.start([3, 2])
        group.take(3)
        group.take(2)
        assert spans(group) == []
        group.start([30])
        group.take(30)
        group.start([4])
        group.take(4)
    assert [reads.counts[0, "u", (0, lat, 0)] for lat in (0, 1)] == [2, 2]


@pytest.mark.parametrize("mode", MODES)
def test_formats_without_a_fast_path_share_chunks_too(folder, tmp_path, monkeypatch, mode):
    import zarr

    values = np.random.default_rng(3).normal(size=(PER_FILE, 6, 8))
    store = zarr.open_group(tmp_path / "s.zarr", mode="w", zarr_format=2)
    array = store.create_array("u", shape=values.shape, chunks=(5, 3, 8), dtype="f8")
    array[:] = values
    array.attrs["_ARRAY_DIMENSIONS"] = ["time", "lat", "lon"]
    read: Counter[tuple[int, ...]] = Counter()
    real = ZarrFile.read_chunk

    def counting(self, info, chunk):
        read[chunk] += 1
        return real(self, info, chunk)

    monkeypatch.setattr(ZarrFile, "read_chunk", counting)
    temporal = SourceTemporal(START, "PT1H", end=START + PER_FILE * HOUR)
    source = Provider(DataSource("z", "zarr", str(tmp_path / "s.zarr"), ("u",), temporal))
    with PrefetchGroup({"z": source}, **mode) as group:
        group.start("forward")
        for k in range(PER_FILE):
            assert np.array_equal(group.take(k)["z"].data["u"].data, values[k])
        assert group.stats().chunks_reused == 2 * PER_FILE - len(read)
        assert group.stats().fallbacks == {("u", "the format has no fast path"): PER_FILE}
    assert read == dict.fromkeys(np.ndindex(4, 2, 1), 1)


@pytest.mark.parametrize("order", [range(2000), range(1999, -1, -1)], ids=["forward", "reverse"])
def test_records_that_lie_together_cost_a_take_no_more_the_more_they_are(tmp_path, monkeypatch, order):
    with netCDF4.Dataset(tmp_path / "series.nc", "w", format="NETCDF3_CLASSIC") as file:
        for name, size in (("time", 2000), ("x", 2)):  # a piece that is read at once holds all records
            file.createDimension(name, size)
            file.createVariable(name, "f8", (name,))[:] = np.arange(size)
        file["time"].units = f"hours since {START:%Y-%m-%d %H:00}"
        file.createVariable("u", "f4", ("time", "x"))[:] = np.arange(4000).reshape(2000, 2)
    temporal = SourceTemporal(start=START, frequency="PT1H", end=START + 2000 * HOUR)
    series = Provider(DataSource("s", "netcdf", str(tmp_path / "series.nc"), ("u",), temporal))
    looks = []
    made_next = Holdings._made_next
    monkeypatch.setattr(
        Holdings, "_made_next", lambda *args, **options: looks.append(1) or made_next(*args, **options)
    )
    with PrefetchGroup({"w": series}, depth=2, workers=0) as group:
        group.start(list(order))
        for k in list(order)[:100]:
            assert group.take(k)["w"].data["u"].data.tolist() == [2 * k, 2 * k + 1]
    assert len(looks) < 20 * 100


@pytest.mark.parametrize("depth", [0, 2])
def test_the_next_use_of_records_that_lie_together_is_the_first_of_all_of_theirs(folder, monkeypatch, depth):
    found = []
    first_made = Holdings.first_made

    def compared(self, key, kinds, *, but=None):
        slot = first_made(self, key, kinds, but=but)
        each = [self._first_made(Item(key, kind)) for kind in kinds if Item(key, kind) != but]
        found.append((slot, min(each, default=NEVER)))
        return slot

    monkeypatch.setattr(Holdings, "first_made", compared)
    order = [*revolve(EPOCHS, 3), *np.random.default_rng(5).integers(EPOCHS, size=60).tolist()]
    for options in ({}, {"max_bytes": 5 * RECORD}):
        with PrefetchGroup({"w": provider(folder)}, depth=depth, workers=0, **options) as group:
            sweep(group, order)
    assert {slot for slot, _ in found} > {NEVER}
    assert [slot for slot, first in found if slot != first] == []
