"""What a group does before decoding: files brought into the cache, bytes asked for, both given up at once."""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import h5py
import numpy as np
import pytest

from earthsciio import Cache, DataSource, Provider, SourceTemporal, Window
from earthsciio.cache.transports import FetchRequest, FetchResult, Sink
from earthsciio.prefetch import PrefetchGroup

START = datetime(2020, 1, 1, tzinfo=UTC)
RECORDS = 4


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Four records of two levels; chunks of a record, a level and half of the latitudes."""
    path = tmp_path / "file.nc"
    with h5py.File(path, "w") as file:
        file["time"] = np.arange(RECORDS, dtype="f8")
        file["time"].attrs["units"] = "hours since 2020-01-01"
        values = np.random.default_rng(1).normal(size=(RECORDS, 2, 200, 300))
        chunks = (1, 1, 100, 300)
        for name, axis in (("lev", 1), ("lat", 2), ("lon", 3)):
            file[name] = np.arange(values.shape[axis])
        data = file.create_dataset("v", data=values, chunks=chunks, compression=1, shuffle=True)
        for axis, name in enumerate(("time", "lev", "lat", "lon")):
            file[name].make_scale(name)
            data.dims[axis].attach_scale(file[name])
    return path


def provider(url: str, *, bracket: bool = False, cache: Cache | None = None) -> Provider:
    temporal = SourceTemporal(
        START, "PT1H", end=START + timedelta(hours=RECORDS), records_per_sample=2 if bracket else None
    )
    return Provider(DataSource("s", "netcdf", url, ("v",), temporal), cache)


def asked_for(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Bytes that the operating system is asked for, from now on."""
    asked: set[int] = set()

    def advise(descriptor, offset, length, advice):
        assert advice == os.POSIX_FADV_WILLNEED
        asked.update(range(offset, offset + length))

    monkeypatch.setattr(os, "posix_fadvise", advise)
    return asked


def stored(path: Path, *chunks: tuple[int, ...]) -> set[int]:
    """Bytes of chunks of `v`, by their coordinates."""
    found: set[int] = set()
    with h5py.File(path) as file:
        for chunk in chunks:
            offset = tuple(c * size for c, size in zip(chunk, file["v"].chunks, strict=True))
            info = file["v"].id.get_chunk_info_by_coord(offset)
            found.update(range(info.byte_offset, info.byte_offset + info.size))
    return found


needs_fadvise = pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="no posix_fadvise here")


# spec: G4.2
@needs_fadvise
@pytest.mark.parametrize("bracket", [False, True])
def test_the_chunks_of_the_records_and_windows_are_asked_for_and_no_others(path, monkeypatch, bracket):
    source = provider(str(path), bracket=bracket)
    south, north = Window({"lat": (0, 100), "lev": (0, 1)}), Window({"lat": (150, 200), "lev": [1]})
    asked = asked_for(monkeypatch)
    source.fetch_ahead(START + timedelta(hours=1), (south, north))
    records = (1, 2) if bracket else (1,)
    wanted = [(r, lev, lat, 0) for r in records for lev, lat in ((0, 0), (1, 1))]
    others = [
        (r, lev, lat, 0) for r in range(RECORDS) for lev in (0, 1) for lat in (0, 1)
        if (r, lev, lat, 0) not in wanted
    ]  # fmt: skip
    assert stored(path, *wanted) <= asked
    assert not stored(path, *others) & asked


# spec: G4.2
@needs_fadvise
def test_a_group_asks_for_what_its_own_windows_need(path, monkeypatch):
    asked = asked_for(monkeypatch)
    with PrefetchGroup(
        {"v": provider(str(path))}, windows=[Window({"lat": (0, 10)})], depth=1, fetch_ahead=2
    ) as group:
        group.start("forward")
        for k in range(RECORDS):
            group.take(k)
    assert not stored(path, (3, 0, 1, 0), (3, 1, 1, 0)) & asked


# spec: G4.2
@needs_fadvise
def test_an_operating_system_that_refuses_the_hint_disturbs_nothing(path, monkeypatch):
    def refuse(*_):
        raise OSError("no")

    monkeypatch.setattr(os, "posix_fadvise", refuse)
    with PrefetchGroup({"v": provider(str(path))}, depth=1) as group:
        group.start("forward")
        for k in range(RECORDS):
            assert group.take(k)["v"].data["v"].shape == (2, 200, 300)


class Endless:
    """A transport whose downloads go on until they are given up."""

    started = threading.Event()

    def fetch(self, request: FetchRequest, sink: Sink) -> FetchResult:
        self.started.set()
        while True:
            sink.write(b"more")
            assert request.abort is not None
            request.abort.check()
            threading.Event().wait(0.002)

    def close(self) -> None:
        pass


# spec: G2.3, G2.5
@pytest.mark.parametrize("fetch_ahead", [0, 2])
@pytest.mark.parametrize("end", ["cancel", "close"])
def test_a_download_is_given_up_at_cancel_and_close(tmp_path, monkeypatch, end, fetch_ahead):
    monkeypatch.setattr(Endless, "started", threading.Event())
    monkeypatch.setattr(Cache, "_transport", lambda self, url: Endless())
    source = provider("http://host/file.nc", cache=Cache(root=tmp_path / "cache", offline=False))
    with PrefetchGroup({"v": source}, depth=1, fetch_ahead=fetch_ahead) as group:
        group.start("forward")
        assert Endless.started.wait(60)
        threads = group._crew.threads
        if end == "cancel":
            group.cancel(wait=True)  # or hangs, and the watchdog says so
    assert threads
    assert not [thread for thread in threads if thread.is_alive()]
