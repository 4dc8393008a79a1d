"""Run as a program of its own: forks while threads of this process hold every lock there is."""

import faulthandler
import fcntl
import gc
import multiprocessing
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

from earthsciio import Cache, DataSource, PrefetchGroup, Provider, SourceTemporal, forks
from earthsciio.decode import jit
from earthsciio.errors import GroupStateError, Unsupported

DAYS = 8
LOCKS = (type(threading.Lock()), type(threading.RLock()), threading.Condition)
VALUES = np.arange(DAYS * 64 * 64, dtype="f4").reshape(DAYS, 64, 64)


def write(folder):
    """One series in every format; Zarr as a zip file, which has an offset that a child would share."""
    days = np.arange(DAYS, dtype="f8")
    with h5py.File(folder / "v.nc", "w") as file:
        file.create_dataset("time", data=days).attrs["units"] = "days since 2020-01-01"
        file["time"].make_scale("time")
        field = file.create_dataset("v", data=VALUES, chunks=(1, 16, 64), compression="gzip")
        field.dims[0].attach_scale(file["time"])
        text = file.create_dataset("t", data=[f"day {day}" for day in range(DAYS)])  # read through h5py
        text.dims[0].attach_scale(file["time"])
    root = zarr.create_group(folder / "v.zarr", zarr_format=2)
    for name, data, dims in (("time", days, ["time"]), ("v", VALUES, ["time", "y", "x"])):
        array = root.create_array(name, data=data, chunks=(1, *data.shape[1:]), fill_value=0)
        array.attrs["_ARRAY_DIMENSIONS"] = dims
    root["time"].attrs["units"] = "days since 2020-01-01"
    shutil.make_archive(str(folder / "v"), "zip", folder / "v.zarr")
    rows = [f"2020-01-0{day + 1},{value}" for day, value in enumerate(VALUES[:, 0, 0])]
    (folder / "v.csv").write_text("\n".join(["time,v", *rows]) + "\n")


def providers(folder):
    cache = Cache(root=folder / "cache")
    times = SourceTemporal("2020-01-01", "P1D", None, end="2020-01-09")
    kinds = {
        "netcdf": ((folder / "v.nc").as_uri(), ("v", "t"), {}),
        "zarr": (str(folder / "v.zip"), ("v",), {}),
        "csv": (str(folder / "v.csv"), ("v",), {"time_column": "time"}),
    }
    return {
        kind: Provider(DataSource(kind, kind, url, names, times, reader_kwargs=options), cache)
        for kind, (url, names, options) in kinds.items()
    }


def check(sources):
    """Read every record of every source and compare it."""
    for kind, source in sources.items():
        for day, t in enumerate(source.refresh_times()):
            sample = source.sample_at(t)
            expected = VALUES[day, 0, 0] if kind == "csv" else VALUES[day]
            assert np.array_equal(sample["v"].data, expected), (kind, day)
            if "t" in sample:
                assert sample["t"].data[()] == f"day {day}", (kind, day)


def take_all(group, first=0):
    for k in range(first, DAYS):
        assert np.array_equal(group.take(k)["netcdf"].data["v"].data, VALUES[k]), k


def locks():
    """Every lock that an object or a module of the library refers to."""
    found = {}
    for thing in gc.get_objects():
        module = thing.__name__ if isinstance(thing, type(os)) else type(thing).__module__
        if not str(module).startswith("earthsciio") or isinstance(thing, type):
            continue
        slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
        for name in [*getattr(thing, "__dict__", {}), *slots]:
            value = getattr(thing, name, None)
            if isinstance(value, LOCKS):
                found[id(value)] = value
    return list(found.values())


class Gate:
    """A thread that holds every lock until it is told to let go."""

    def __init__(self):
        self._there, self._go = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._hold)
        self.count = 0

    def _hold(self):
        held = locks()
        for lock in held:
            assert lock.acquire(timeout=30), lock
        self.count = len(held)
        self._there.set()
        self._go.wait()
        for lock in held:
            lock.release()

    def __enter__(self):
        self._thread.start()
        assert self._there.wait(60)
        return self

    def __exit__(self, *_):
        self._go.set()
        self._thread.join()


def watch(seconds=60):
    """End this process with a traceback if it hangs; faulthandler's own watchdog does not survive a fork."""
    faulthandler.register(signal.SIGALRM, chain=True)
    signal.alarm(seconds)


def in_child(act, seconds=60):
    """Fork, do something in the child, and wait for it; one that hangs says where, and is ended."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            watch(seconds)
            act()
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def refused(call, *args):
    with pytest.raises(GroupStateError, match="forked"):
        call(*args)


def every_lock_held(folder):
    """What a child does with the group and the providers of its parent."""
    sources = providers(folder)
    check(sources)
    group = PrefetchGroup({"netcdf": sources["netcdf"]}, depth=3, workers=2)
    forgotten = PrefetchGroup({"netcdf": sources["netcdf"]}, depth=3, workers=2)
    for each in (group, forgotten):
        each.start("forward")
        take_all(each)
    groups = {"group": group, "forgotten": forgotten}
    del group, forgotten, each

    def child():
        group = groups["group"]
        for call, *args in (
            (group.start, "forward"), (group.take, 0), (group.ready, 0), (group.cancel,),
        ):  # fmt: skip
            refused(call, *args)
        assert group.stats(total=True).epochs_decoded
        group.close()
        group.close()
        del group
        groups.clear()
        gc.collect()
        check(sources)
        check(providers(folder))
        with PrefetchGroup({"netcdf": sources["netcdf"]}, depth=3, workers=2) as own:
            own.start("forward")
            take_all(own)

    forks.PATIENCE = 0.0  # the gate's thread holds that of the compiler, too
    with Gate() as gate:
        assert gate.count > 20, gate.count
        code = in_child(child)
    assert code == 0, code
    groups["group"].start("forward")
    take_all(groups["group"])
    check(sources)


def compiling(folder):
    """A child forked while code is being compiled: after the patience it says that it can't."""
    sources = providers(folder)
    inside, go = threading.Event(), threading.Event()
    build = jit._make

    def slow(*args):
        inside.set()
        go.wait()
        return build(*args)

    jit._make = slow
    reader = threading.Thread(target=check, args=[sources])
    reader.start()
    assert inside.wait(60)

    def child():
        jit._make = build
        with pytest.raises(Unsupported, match="forked"):
            check(sources)

    forks.PATIENCE = 0.0
    assert in_child(child) == 0
    # and with patience the fork comes after it
    forks.PATIENCE = 60.0
    threading.Timer(0.05, go.set).start()
    assert in_child(lambda: check(sources)) == 0
    reader.join()


SOURCES = {}


def read_in_pool(day):
    watch()
    source = SOURCES["zarr"]
    t = source.refresh_times()[day]
    return {kind: other.sample_at(t)["v"].data for kind, other in SOURCES.items()}


def pool(folder):
    """Children of multiprocessing, made while a worker of the parent's group is in the midst of a sample."""
    SOURCES.update(providers(folder))
    inside, go = threading.Event(), threading.Event()

    def transform(key, dataset):
        inside.set()
        go.wait()
        return dataset

    with PrefetchGroup({"netcdf": SOURCES["netcdf"]}, depth=3, workers=2, transform=transform) as group:
        group.start("forward")
        assert inside.wait(60)
        with multiprocessing.get_context("fork").Pool(2) as workers:
            job = workers.map_async(read_in_pool, range(DAYS))
            go.set()
            take_all(group)
            results = job.get(90)
        for day, result in enumerate(results):
            for kind, data in result.items():
                assert np.array_equal(data, VALUES[day, 0, 0] if kind == "csv" else VALUES[day]), (kind, day)
        group.start("reverse")
        for k in reversed(range(DAYS)):
            assert np.array_equal(group.take(k)["netcdf"].data["v"].data, VALUES[k])
    check(SOURCES)


def is_locked(path):
    with path.open("rb") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def at_once(folder):
    """Parent and child read through handles that were open at the fork, both at once, and the child exits."""
    sources = providers(folder)
    check(sources)
    (file,) = (folder / "cache/v1/blobs").glob("*/*.nc")
    assert is_locked(file)  # by HDF5, of which a handle is open

    ready, go = os.pipe(), os.pipe()

    def child():
        os.write(ready[1], b".")
        os.read(go[0], 1)
        for _ in range(20):
            check(sources)

    pid = os.fork()
    if pid == 0:
        watch()
        child()
        sys.exit(0)  # as a program ends, all that runs at exit included
    os.read(ready[0], 1)
    os.write(go[1], b".")
    for _ in range(20):
        check(sources)
    _, status = os.waitpid(pid, 0)
    assert status == 0, status
    assert is_locked(file), "the child gave up the parent's lock on the file"
    check(sources)


if __name__ == "__main__":
    watch(100)
    folder = Path(sys.argv[2])
    write(folder)
    {act.__name__: act for act in (every_lock_held, compiling, pool, at_once)}[sys.argv[1]](folder)
    print("done", time.process_time())
