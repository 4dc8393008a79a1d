"""What transforms, listeners and signal handlers do to the group they belong to: nothing waits for itself."""

from __future__ import annotations

import gc
import signal
import threading
import weakref
from contextlib import suppress

import numpy as np
import pytest
from fake import FakeSource, hours, quiet, values

from earthsciio.errors import EarthSciIOWarning, GroupStateError
from earthsciio.events import DecodeFinished, DecodeStarted, OrderStarted, Submitted, Taken, Waited
from earthsciio.prefetch import PrefetchGroup
from earthsciio.prefetch.workers import Crew

MODES = {"synchronous": {"workers": 0}, "a worker": {"depth": 1}, "three": {"depth": 3, "workers": 3}}
all_modes = pytest.mark.parametrize("mode", MODES.values(), ids=MODES.keys())


class Odd(BaseException):
    """Neither an Exception nor one of Python's own."""


def ours() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("prefetch-")]


# spec: G2.5
@pytest.mark.parametrize("call", ["cancel", "cancel and wait", "start", "take"])
@all_modes
def test_a_transform_that_calls_its_group_gets_an_error(mode, call):
    source, errors = FakeSource(3), []

    def transform(key, dataset):
        calls = {
            "cancel": group.cancel,
            "cancel and wait": lambda: group.cancel(wait=True),
            "start": lambda: group.start("forward"),
            "take": lambda: group.take(1),
        }
        with pytest.raises(GroupStateError, match=r"one thread|amid one another") as caught:
            calls[call]()
        errors.append(caught.value)
        return dataset

    with PrefetchGroup({"w": source}, transform=transform, **mode) as group:
        group.start("forward")
        for k in range(3):
            np.testing.assert_array_equal(values(group.take(k)["w"]), source.expected(hours(k)))
    assert len(errors) == 3


# spec: G2.5
@all_modes
def test_a_transform_that_closes_its_group_ends_the_take(mode):
    def transform(key, dataset):
        group.close()
        return dataset

    group = PrefetchGroup({"w": FakeSource(3)}, transform=transform, **mode)
    with suppress(GroupStateError):  # a worker may have closed it before it returns
        group.start("forward")
    with pytest.raises(GroupStateError, match="closed"):
        group.take(0)
    group.close()
    assert ours() == []
    assert group._engine.ledger.nbytes == 0


# spec: G2.5
@pytest.mark.parametrize("kind", [OrderStarted, Submitted, DecodeStarted, DecodeFinished, Waited, Taken])
@all_modes
def test_a_listener_that_closes_its_group_ends_it(mode, kind):
    def listener(event):
        if isinstance(event, kind):
            group.close()

    group = PrefetchGroup({"w": FakeSource(3)}, listeners=[listener], **mode)
    with pytest.raises(GroupStateError, match="closed"):
        group.start("forward")
        for k in range(3):
            group.take(k)
    group.close()
    assert ours() == []
    assert group._engine.ledger.nbytes == 0


# spec: G2.5
@all_modes
def test_a_listener_that_cancels_is_dropped_with_a_warning(mode):
    source = FakeSource(3)

    def listener(event):
        if isinstance(event, Taken):
            group.cancel(wait=True)

    with PrefetchGroup({"w": source}, listeners=[listener], **mode) as group:
        group.start("forward")
        with pytest.warns(EarthSciIOWarning, match="amid one another"):
            group.take(0)
        group.take(1)


# spec: G2.5
def test_a_signal_handler_may_close_the_group_amid_a_take():
    source = FakeSource(2)
    source.gate(0)
    main = threading.main_thread().ident
    group = PrefetchGroup({"w": source})
    group.start("forward")
    source.wait_until_reached(0)

    def consumer_waits_and_then():
        for _ in range(20_000):
            if group._engine.changes.waiting >= 2:  # the thread that reads ahead, and the consumer
                break
            threading.Event().wait(0.001)
        signal.pthread_kill(main, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, lambda *_: group.close())
    sender = threading.Thread(target=consumer_waits_and_then)
    try:
        sender.start()
        with pytest.raises(GroupStateError, match="closed"):
            group.take(0)
    finally:
        sender.join()
        signal.signal(signal.SIGUSR1, before)
    assert ours() == []


# spec: G6.4
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, Odd])
@pytest.mark.parametrize("workers", [1, 3])
def test_what_is_no_exception_in_a_transform_is_an_error_of_the_take(workers, error):
    source, faulty = FakeSource(3), [True]

    def transform(key, dataset):
        if dataset.times[0] == hours(1) and faulty:
            raise error
        return dataset

    with PrefetchGroup({"w": source}, transform=transform, workers=workers) as group:
        group.start("forward")
        group.take(0)
        with pytest.raises(GroupStateError, match=f"hit by {error.__name__}"):
            group.take(1)
        faulty.clear()
        group.start("forward", from_=1)
        for k in (1, 2):
            np.testing.assert_array_equal(values(group.take(k)["w"]), source.expected(hours(k)))


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, Odd])
@pytest.mark.parametrize("kind", [Submitted, DecodeStarted, DecodeFinished])
@pytest.mark.parametrize("workers", [1, 3])
def test_whatever_a_listener_raises_on_a_worker_disturbs_nothing(workers, kind, error):
    source = FakeSource(3)

    def listener(event):
        if isinstance(event, kind):
            raise error

    with PrefetchGroup({"w": source}, listeners=[listener], workers=workers) as group:
        group.start("forward")
        for k in range(3):
            np.testing.assert_array_equal(values(group.take(k)["w"]), source.expected(hours(k)))
        assert not group._emitter


@pytest.mark.parametrize("kind", [Submitted, DecodeStarted, DecodeFinished, Waited, Taken])
@all_modes
def test_an_interrupt_in_a_listener_of_the_consumer_moves_nothing(mode, kind):
    source, raised = FakeSource(3), []

    def listener(event):
        if isinstance(event, kind) and event.thread == threading.main_thread().name and not raised:
            raised.append(event)
            raise KeyboardInterrupt

    with PrefetchGroup({"w": source}, listeners=[listener], **mode) as group:
        group.start("forward")
        for k in range(3):
            try:
                epoch = group.take(k)
            except KeyboardInterrupt:
                epoch = group.take(k)
            assert epoch["w"].changed
            np.testing.assert_array_equal(values(epoch["w"]), source.expected(hours(k)))
    assert raised or kind not in (Waited, Taken)


def test_closing_beside_a_start_leaves_no_thread():
    """Whatever comes first, and wherever between: the thread that starts is held at each of its steps."""
    for step in range(4):
        source = FakeSource(3)
        group = PrefetchGroup({"w": source}, workers=2)
        group.boundaries()
        go_on, there, real = threading.Event(), threading.Event(), Crew.ensure
        calls = []

        def held(crew, *args, calls=calls, step=step, there=there, go_on=go_on, real=real):
            calls.append(args)
            if len(calls) == step + 1:
                there.set()
                assert go_on.wait(20)
            real(crew, *args)

        starting = threading.Thread(target=group.start, args=["forward"])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Crew, "ensure", held)
            starting.start()
            if step < 3:
                assert there.wait(20)
            else:
                starting.join(20)
            group.close()
            go_on.set()
            starting.join(20)
            assert not starting.is_alive()
        assert ours() == []


@pytest.mark.parametrize("collecting", [True, False])
@pytest.mark.parametrize("circle", ["an error", "a transform", "a listener"])
def test_a_group_that_is_forgotten_in_a_circle_ends_its_threads(circle, collecting):
    """The garbage collector finds it, whenever it runs: no thread that idles refers to it."""
    source = FakeSource(4)
    if circle == "an error":
        source.failing[2] = OSError("bad")

    class Model:
        def transform(self, key, dataset):
            return dataset

        def listen(self, event):
            pass

    def use():
        model = Model()
        group = model.group = PrefetchGroup(
            {"w": source},
            depth=2,
            workers=2,
            transform=model.transform if circle == "a transform" else None,
            listeners=[model.listen] if circle == "a listener" else [],
        )
        group.start("forward")
        try:
            for k in range(4):
                group.take(k)
        except OSError:
            assert circle == "an error"
        quiet(group, source)
        return weakref.ref(group)

    enabled = gc.isenabled()
    if not collecting:
        gc.disable()
    try:
        group = use()
        threads = ours()
        source.failing.clear()  # the source refers to the error, too, and that to the frames it went through
        assert len(threads) == 3 or collecting
        gc.collect()
    finally:
        if enabled:
            gc.enable()
    assert group() is None
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
