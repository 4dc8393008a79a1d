"""Ctrl-C wherever it may land in a decode: the next one works, and nothing is left behind."""

from __future__ import annotations

import subprocess
import sys

import h5py
import numpy as np

PROGRAM = """
import faulthandler, sys, threading
faulthandler.dump_traceback_later(50, exit=True)
sys.unraisablehook = lambda report: None
threading._limbo = {{}}  # where an interrupted Thread.start leaves its thread
import numpy as np
from earthsciio import DataSource, Provider
from earthsciio.decode import changes, threads

def read():
    return Provider(DataSource("s", "netcdf", {path!r}, ("v",))).materialize()["v"].data.tobytes()

expected = read()

class Interrupt:
    def __init__(self, n):
        self.n, self.count = n, 0

    def __call__(self, frame, event, arg):
        name = frame.f_code.co_filename
        if event in ("call", "c_return") and name in (threads.__file__, threading.__file__, changes.__file__):
            self.count += 1
            if self.count == self.n:  # which also ends the profiling
                raise KeyboardInterrupt

def interrupted(n):
    threads._close()
    threads._pool = threads._Pool()  # so that threads are started, too
    hook = Interrupt(n)
    sys.setprofile(hook)
    try:
        read()
    except KeyboardInterrupt:
        pass
    except RuntimeError as error:  # Thread.start waits by a Condition, and breaks its lock
        assert isinstance(error.__context__, KeyboardInterrupt)
    finally:
        sys.setprofile(None)
    assert read() == expected
    assert not threads._pool.working
    assert not threads._pool.jobs
    return hook.count

places = interrupted(10**9)
for n in range(1, places):
    interrupted(n)
print(places)
"""


def test_an_interrupt_in_a_decode_leaves_threads_that_decode(tmp_path):
    with h5py.File(tmp_path / "v.nc", "w") as file:
        data = np.arange(64 * 256, dtype="f4").reshape(64, 256)
        file.create_dataset("v", data=data, chunks=(8, 256), compression="gzip")
    program = PROGRAM.format(path=str(tmp_path / "v.nc"))
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20
