"""Forked children: what they can use of their parent's, and what they are told."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PACKAGE = HERE.parents[1] / "earthsciio"

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")


def run(what, folder):
    """In a process of its own: this one has threads of other tests."""
    done = subprocess.run(
        [sys.executable, HERE / "forking.py", what, folder],
        capture_output=True,
        text=True,
        timeout=115,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("done"), done.stdout + done.stderr


# spec: P2.9, G2.6
def test_a_child_forked_while_every_lock_is_held_reads_and_is_refused_the_group(tmp_path):
    run("every_lock_held", tmp_path)


# spec: P2.9
def test_a_fork_waits_for_a_compilation_or_the_child_says_that_it_cannot_read(tmp_path):
    run("compiling", tmp_path)


# spec: P2.9
def test_a_pool_of_forked_processes_reads_beside_a_running_group(tmp_path):
    run("pool", tmp_path)


# spec: P2.9
def test_parent_and_child_share_no_handle(tmp_path):
    run("at_once", tmp_path)


#: Locks that no child meets: a group refuses it; files and pool are made anew; these calls end before or
#: never begin; tickets are drawn to wait for a thread.
OWN = {
    "forks.py", "prefetch/engine.py", "formats/files.py", "decode/threads.py", "decode/pool.py", "warm.py",
    "decode/changes.py",
}  # fmt: skip


# spec: P2.9
def test_every_lock_is_one_that_a_child_has_anew():
    made = re.compile(r"threading\.(R?Lock|Condition|Semaphore)\b(?=\()|=threading\.R?Lock")
    found = {
        str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if made.search(path.read_text())
    }
    assert found <= OWN
