"""Ctrl-C wherever it may land: the lock is free, nothing is lost, and everything ends."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from fake import FakeSource, hours, values

from earthsciio.prefetch import PrefetchGroup

HERE = Path(__file__).parent
ORDER = [0, 2, 0, 1]


def ours() -> list[threading.Thread]:
    """Threads of groups that run."""
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("prefetch-")]
    return [thread for thread in threads if thread.is_alive()]


class Interrupt:
    """Raises KeyboardInterrupt at the n-th place of the main thread where an interrupt can land.

    That is where a function begins, and after a call of one in C. Only the library's places count.
    """

    def __init__(self, n: int) -> None:
        self.n, self.count = n, 0

    def __call__(self, frame, event, arg) -> None:
        name = frame.f_code.co_filename
        if event in ("call", "c_return") and ("earthsciio/" in name or name == threading.__file__):
            self.count += 1
            if self.count == self.n:  # which also ends the profiling
                raise KeyboardInterrupt

    def again(self, call):
        """Call until no interrupt comes out of it."""
        sys.setprofile(self)
        try:
            return call()
        except KeyboardInterrupt:
            return call()
        finally:
            sys.setprofile(None)


def sweep(n: int, **mode) -> int:
    """Go through an order with an interrupt at the n-th place; give how many places there were."""
    source = FakeSource(3, bracket=True)
    group = PrefetchGroup({"w": source}, max_bytes=500, **mode)
    interrupt = Interrupt(n)
    interrupt.again(lambda: group.start(ORDER))
    kept = []
    for slot, k in enumerate(ORDER):
        epoch = interrupt.again(lambda k=k: group.take(k))
        assert epoch.epoch == k
        assert epoch["w"].changed
        np.testing.assert_array_equal(values(epoch["w"]), source.expected(hours(k)))
        kept.append(epoch)
        if slot == 2:
            assert epoch["w"].data is kept[0]["w"].data
    interrupt.again(lambda: group.cancel(wait=True))
    interrupt.again(group.close)
    assert ours() == []
    assert group._engine.ledger.nbytes == 0
    return interrupt.count


MODES = {
    "synchronous": {"workers": 0},
    "a worker": {"workers": 1, "depth": 1},
    "two workers": {"workers": 2, "depth": 2},
}


@pytest.fixture
def dropped(monkeypatch) -> list[type]:
    """Interrupts that land in a finalizer: Python itself drops them, and says so."""
    dropped = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: dropped.append(report.exc_type))
    monkeypatch.setattr(threading, "_limbo", {})  # where it leaves threads whose start was interrupted
    return dropped


# spec: G2.7
@pytest.mark.parametrize(("name", "stride"), list(zip(MODES, (29, 11, 11), strict=True)))
def test_an_interrupt_loses_nothing_wherever_it_lands(name, stride, dropped):
    places = sweep(10**9, **MODES[name])
    assert places > 30 * stride
    for n in range(1, places, stride):
        sweep(n, **MODES[name])
    assert set(dropped) <= {KeyboardInterrupt}


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", MODES)
def test_an_interrupt_loses_nothing_at_any_place(name, dropped):
    places = sweep(10**9, **MODES[name])
    for n in range(1, places + 1):
        sweep(n, **MODES[name])
    print(f"{name}: interrupted at each of {places} places")
    assert set(dropped) <= {KeyboardInterrupt}


STORM = """
import faulthandler, queue, signal, sys, threading
faulthandler.dump_traceback_later(50, exit=True)
sys.path.insert(0, {here!r})
sys.unraisablehook = lambda report: None
from fake import FakeSource, hours, values
from earthsciio.prefetch import PrefetchGroup

source = FakeSource(3, bracket=True)
group = PrefetchGroup({{"w": source}}, max_bytes=500, **{mode})
main, shots = threading.main_thread().ident, queue.SimpleQueue()
armed = False
hits = 0

def handler(*_):
    global armed, hits
    if armed:
        armed = False
        hits += 1
        raise KeyboardInterrupt

def sender():
    while shots.get():
        signal.pthread_kill(main, signal.SIGINT)

def through(call):
    global armed
    while True:
        shots.put(True)
        try:
            armed = True
            return call()
        except KeyboardInterrupt:
            continue
        finally:
            armed = False

signal.signal(signal.SIGINT, handler)
thread = threading.Thread(target=sender, daemon=True)
thread.start()
while hits < 150:
    through(lambda: group.start([0, 2, 0, 1]))
    for k in [0, 2, 0, 1]:
        epoch = through(lambda: group.take(k))
        assert (values(epoch["w"]) == source.expected(hours(k))).all()
through(lambda: group.cancel(wait=True))
through(group.close)
shots.put(False)
thread.join()
left = [t for t in threading.enumerate() if t.name.startswith("prefetch-") and t.is_alive()]
print(left, group._engine.ledger.nbytes)
"""


# spec: G2.7
@pytest.mark.parametrize("mode", [{"workers": 0}, {"workers": 2, "depth": 2}], ids=["synchronous", "workers"])
def test_a_storm_of_interrupts_ends_nothing_but_the_calls_that_it_hits(mode):
    program = STORM.format(here=str(HERE), mode=mode)
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "[] 0\n"), done.stderr
