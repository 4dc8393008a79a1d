"""Threads, cancel, close, interrupts and exit: nothing hangs, and nothing is left behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from fake import FakeSource, hours, values

from earthsciio.errors import Cancelled, GroupStateError
from earthsciio.prefetch import PrefetchGroup

HERE = Path(__file__).parent


def ours() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("prefetch-")]


# spec: G2.5
def test_close_joins_every_thread():
    source = FakeSource(6)
    source.gate(1)
    group = PrefetchGroup({"w": source}, depth=4, workers=3)
    group.start("forward")
    source.wait_until_reached(1)
    assert len(ours()) == 4
    group.close()
    assert ours() == []
    group.close()


# spec: G2.5
@pytest.mark.parametrize("started", [True, False])
def test_a_closed_group_decodes_nothing_and_says_that_it_is_closed(started):
    group = PrefetchGroup({"w": FakeSource(2)})
    if started:
        group.start("forward")
        group.take(0)
    group.close()
    for call in (
        lambda: group.take(1),
        lambda: group.start("forward"),
        group.cancel,
        lambda: group.ready(1),
    ):
        with pytest.raises(GroupStateError, match=r"^the group is closed\. Make a new one"):
            call()
    assert group.stats().takes == started
    assert group.boundaries() == [hours(0), hours(1)]
    assert group.end == hours(2)
    group.close()


def test_a_group_that_was_never_started_can_be_closed():
    with PrefetchGroup({"w": FakeSource(2)}) as group, pytest.raises(GroupStateError, match="no order"):
        group.take(0)


# spec: G2.3
def test_running_decodes_notice_cancel():
    source = FakeSource(3)
    gates = [source.gate(i) for i in range(3)]
    tokens = []
    real = source.decode_record

    def spying(record, layout, allocate, abort, keep):
        tokens.append(abort)
        return real(record, layout, allocate, abort)

    source.decode_record = spying
    with PrefetchGroup({"w": source}, depth=3, workers=2) as group:
        group.start("forward")
        source.wait_until_reached(0)
        source.wait_until_reached(1)
        group.cancel(wait=True)  # the gates are still shut
        assert source.running == 0
        assert all(token.is_set() for token in tokens)
        assert len(tokens) == 2  # what was queued was dropped
        with pytest.raises(GroupStateError, match="no order"):
            group.take(0)
        for gate in gates:
            gate.set()
        group.start("forward")  # a cancelled group can be used again
        for k in range(3):
            np.testing.assert_array_equal(values(group.take(k)["w"]), source.expected(hours(k)))


# spec: G2.3, G2.5
@pytest.mark.parametrize("end", ["cancel", "close"])
def test_looking_for_records_and_reading_ahead_notice_cancel_and_close(end):
    source = FakeSource(6)
    for where in (("resolve", 0), ("fetch", 2)):
        source.gate(where)
    with PrefetchGroup({"w": source}, depth=2) as group:
        group.start("forward")
        source.wait_until_reached(("resolve", 0))
        source.wait_until_reached(("fetch", 2))
        group.cancel(wait=True) if end == "cancel" else group.close()  # the gates are still shut
        assert source.blocked == 0
        assert group.stats().fetches_failed == 0


# spec: G2.3
def test_results_of_a_cancelled_order_are_discarded():
    source = FakeSource(3)
    deaf, entered = threading.Event(), threading.Event()

    def latency(i):
        entered.set()
        assert deaf.wait(20)

    source.latency = latency
    with PrefetchGroup({"w": source}, depth=1, fetch_ahead=0) as group:
        group.start("forward")
        assert entered.wait(20)
        group.start([0])  # decodes it anew, once the worker has ended the old one
        deaf.set()
        np.testing.assert_array_equal(values(group.take(0)["w"]), source.expected(hours(0)))
    assert source.decoded() == [0, 0]


def test_cancel_that_does_not_wait_returns_while_decodes_run():
    source = FakeSource(2)
    release, entered = threading.Event(), threading.Event()

    def latency(i):
        entered.set()
        assert release.wait(20)

    source.latency = latency
    with PrefetchGroup({"w": source}, depth=1) as group:
        group.start("forward")
        assert entered.wait(20)
        group.cancel()
        assert source.running == 1
        release.set()


# spec: G2.5
def test_only_one_thread_may_take_start_and_cancel():
    errors = []

    def other():
        for call in (lambda: group.take(0), lambda: group.start("forward"), group.cancel):
            try:
                call()
            except GroupStateError as error:
                errors.append(error)

    with PrefetchGroup({"w": FakeSource(3)}) as group:
        group.start("forward")
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert len(errors) == 3
        assert "one thread" in str(errors[0])
        assert group.take(0).epoch == 0


def test_a_group_can_be_made_on_one_thread_and_used_on_another():
    taken = []

    def consumer():
        group.start("forward")
        taken.append(group.take(0))

    with PrefetchGroup({"w": FakeSource(3)}) as group:
        thread = threading.Thread(target=consumer)
        thread.start()
        thread.join()
        assert len(taken) == 1
        assert group.ready(1) in (True, False)


def test_close_from_another_thread_ends_a_take():
    source = FakeSource(2)
    source.gate(0)
    group = PrefetchGroup({"w": source})
    group.start("forward")
    source.wait_until_reached(0)
    closer = threading.Thread(target=lambda: (quiet_consumer(group), group.close()))
    closer.start()
    with pytest.raises(GroupStateError, match="closed"):
        group.take(0)
    closer.join()
    assert ours() == []


def quiet_consumer(group) -> None:
    """Return when the consumer waits in take beside the group's idle threads."""
    for _ in range(20_000):
        with group._engine.lock:
            if group._engine.changes.waiting >= 2:  # the thread that reads ahead, and the consumer
                return
        threading.Event().wait(0.001)
    raise AssertionError("the consumer never waited")


def test_an_interrupt_in_take_leaves_a_usable_group():
    source = FakeSource(4)
    gate = source.gate(0)
    main = threading.main_thread().ident
    assert main is not None
    with PrefetchGroup({"w": source}) as group:
        group.start("forward")
        source.wait_until_reached(0)
        sender = threading.Thread(
            target=lambda: (quiet_consumer(group), signal.pthread_kill(main, signal.SIGINT))
        )
        sender.start()
        with pytest.raises(KeyboardInterrupt):
            group.take(0)
        sender.join()
        gate.set()
        for k in range(4):
            np.testing.assert_array_equal(values(group.take(k)["w"]), source.expected(hours(k)))


@pytest.mark.parametrize("where", [0, ("resolve", 0), ("measure", 0)])
def test_an_interrupt_in_a_synchronous_decode_leaves_a_usable_group(where):
    source = FakeSource(4)
    source.failing[where] = KeyboardInterrupt()
    with PrefetchGroup({"w": source}, workers=0, max_bytes=source.nbytes) as group:
        group.start("forward")
        with pytest.raises(KeyboardInterrupt):
            group.take(0)
        source.failing.clear()
        assert group._engine.ledger.in_flight == 0
        for k in range(4):
            np.testing.assert_array_equal(values(group.take(k)["w"]), source.expected(hours(k)))


def test_a_group_that_is_forgotten_ends_its_threads():
    source = FakeSource(4)
    gate = source.gate(1)
    group = PrefetchGroup({"w": source}, depth=2, workers=2)
    group.start("forward")
    source.wait_until_reached(1)
    threads = ours()
    assert len(threads) == 3
    del group
    gc.collect()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert not gate.is_set()


def test_a_fork_is_told_that_the_threads_are_not_there(monkeypatch):
    with PrefetchGroup({"w": FakeSource(4)}) as group:
        group.start("forward")
        group.take(0)
        with monkeypatch.context() as patch:
            patch.setattr(group._crew, "_pid", os.getpid() + 1)
            with pytest.raises(GroupStateError, match="forked"):
                group.take(1)
        group.take(1)


PROGRAM = """
import sys, threading, time
sys.path.insert(0, {here!r})
from fake import FakeSource
from earthsciio.prefetch import PrefetchGroup

source = FakeSource(100, bracket=True)
group = PrefetchGroup({{"w": source}}, depth=50, workers=3)
{body}
print("end of program", flush=True)
"""

BODIES = {
    "idle": "group.start('forward'); [group.take(k) for k in range(100)]",
    "while decoding": "source.gate(3); group.start('forward'); group.take(0); source.wait_until_reached(3)",
    "in code that can't be aborted": """
entered = threading.Event()
source.latency = lambda i: (entered.set(), time.sleep(3600))
group.start('forward'); entered.wait()
""",
    "reading ahead": "source.gate(('fetch', 1)); group.start([0, 1]); group.take(0)",
    "uncaught error": "source.gate(3); group.start('forward'); source.wait_until_reached(3); 1 / 0",
    "taken by a thread of the program": """
def consume():
    group.start('forward')
    for k in range(100):
        group.take(k)
    print("took all", flush=True)
source.latency = lambda i: time.sleep(0.002)
threading.Thread(target=consume).start()
""",
}


# spec: G2.5
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_a_program_that_forgets_to_close_exits_by_itself(body):
    program = PROGRAM.format(here=str(HERE), body=body)
    command = [sys.executable, "-X", "faulthandler", "-c", program]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    if "1 / 0" in body:
        assert done.returncode == 1
        assert "ZeroDivisionError" in done.stderr
    else:
        assert done.returncode == 0, done.stderr
        assert "end of program" in done.stdout
        assert done.stderr == ""
    if "consume" in body:
        assert "took all" in done.stdout


def test_exit_waits_for_running_decodes_only_as_long_as_they_take_to_notice():
    """With endless patience at exit, the program would hang if a decode did not notice."""
    patient = "import earthsciio.prefetch.workers as workers; workers.EXIT_PATIENCE = 1e6; "
    program = PROGRAM.format(here=str(HERE), body=patient + BODIES["while decoding"])
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end of program\n", "")


def test_a_decode_that_ends_by_its_token_is_no_error():
    source = FakeSource(2)
    source.gate(0)
    with PrefetchGroup({"w": source}) as group:
        group.start("forward")
        source.wait_until_reached(0)
        group.cancel(wait=True)
        assert group._engine.errors == {}
        source.gates.clear()
        source.failing[0] = Cancelled("by itself")  # without the token, it is one
        group.start("forward")
        with pytest.raises(Cancelled, match="by itself"):
            group.take(0)
