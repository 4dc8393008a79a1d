"""What listeners are told, and the two that come with the library."""

from __future__ import annotations

import io
import json
import sys
import threading
from itertools import pairwise

import pytest
from fake import FakeSource, quiet

from earthsciio.errors import EarthSciIOWarning
from earthsciio.events import (
    DecodeFinished,
    DecodeStarted,
    Emitter,
    Evicted,
    FetchedAhead,
    OrderStarted,
    Submitted,
    Taken,
    Waited,
)
from earthsciio.prefetch import PrefetchGroup
from earthsciio.prefetch.trace import ChromeTrace


def sweep(listeners, **options):
    source = FakeSource(5)
    with PrefetchGroup({"w": source}, listeners=listeners, **options) as group:
        group.start("forward")
        for k in range(5):
            group.take(k)
        quiet(group, source)


def test_events_tell_the_whole_story():
    events = []
    sweep([events.append])
    kinds = [type(event) for event in events]
    assert kinds.count(OrderStarted) == 1
    for kind in (Submitted, DecodeStarted, DecodeFinished, Waited, Taken):
        assert kinds.count(kind) == 5, kind
    assert kinds.count(FetchedAhead) <= 5
    dropped = [event for event in events if isinstance(event, Evicted)]
    assert len(dropped) == 10  # a sample and a record each
    finished = [event for event in events if isinstance(event, DecodeFinished)]
    assert [event.nbytes for event in finished] == [64] * 5
    assert all(event.thread.endswith("worker-0") for event in finished)
    assert [event.epoch for event in events if isinstance(event, Taken)] == list(range(5))


def test_a_listener_may_look_at_the_group():
    seen = []
    source = FakeSource(4)
    with PrefetchGroup(
        {"w": source}, depth=1, max_bytes=1, listeners=[lambda e: seen.append((group.stats().takes, e))]
    ) as group:
        group.start([0, 1, 0])
        for k in [0, 1, 0]:
            group.take(k)
    assert len(seen) > 5


def test_a_listener_that_raises_is_dropped_with_a_warning():
    calls = []

    def bad(event):
        calls.append(event)
        raise RuntimeError("no")

    emitter = Emitter([bad, calls.append])
    with pytest.warns(EarthSciIOWarning, match="was dropped"):
        emitter(Taken(epoch=0, slot=0))
    emitter(Taken(epoch=1, slot=1))
    assert len(calls) == 3


def test_a_trace_is_the_viewers_json(tmp_path):
    path = tmp_path / "trace.json"
    with ChromeTrace(path, process=3) as trace:
        sweep([trace])
    entries = json.loads(path.read_text())
    assert {entry["pid"] for entry in entries} == {3}
    rows = {entry["tid"]: entry["args"]["name"] for entry in entries if entry["ph"] == "M"}
    spans = [entry for entry in entries if entry["ph"] == "X"]
    decodes = [entry for entry in spans if entry["cat"] == "decode"]
    assert len(decodes) == 5
    assert all("worker" in rows[entry["tid"]] for entry in decodes)
    assert decodes[0]["name"] == "w mem:0[0]"
    assert decodes[0]["args"] == {"nbytes": 64}
    mine = [e for e in spans if rows[e["tid"]] == threading.current_thread().name]
    assert [entry["cat"] for entry in mine] == ["wait"] + ["compute", "wait"] * 4
    for before, after in pairwise(mine):  # the consumer does one thing after the other
        assert before["dur"] >= 0
        assert before["ts"] + before["dur"] <= after["ts"] + 1e-3
    trace(Taken(epoch=9, slot=9))  # after the end: ignored


def test_a_trace_without_events_is_json_and_a_broken_off_one_can_be_mended(tmp_path):
    ChromeTrace(tmp_path / "empty.json").close()
    assert json.loads((tmp_path / "empty.json").read_text()) == []
    trace = ChromeTrace(tmp_path / "killed.json")
    sweep([trace], workers=0)
    trace._file.flush()
    assert len(json.loads((tmp_path / "killed.json").read_text() + "]")) > 10
    trace.close()


def test_rich_is_loaded_only_for_progress():
    import subprocess

    code = "import sys, earthsciio.prefetch, earthsciio.prefetch.progress; sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_progress_draws_on_a_terminal_only():
    from rich.console import Console

    from earthsciio.prefetch.progress import Progress

    for terminal in (True, False):
        text = io.StringIO()
        with Progress(Console(file=text, force_terminal=terminal, width=100)) as progress:
            sweep([progress])
        assert ("5/5" in text.getvalue()) == terminal
