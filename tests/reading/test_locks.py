"""Locks and stores in a forked child, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from oocloader.reading.locks import Lock

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")

HELD = """
import os, threading, warnings
warnings.simplefilter("ignore")
from oocloader.reading.locks import Lock

lock, held, over = Lock(), threading.Event(), threading.Event()

def hold():
    with lock:
        held.set()
        over.wait()

threading.Thread(target=hold).start()
held.wait()
child = os.fork()
if child == 0:
    code = 1
    try:
        with lock:
            code = 0 if lock.locked() else 2
    finally:
        os._exit(code)
ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert lock.locked()
over.set()
raise SystemExit(ended)
"""

IN_THE_MIDDLE = """
import os, warnings
warnings.simplefilter("ignore")
from oocloader.reading.locks import Lock

lock = Lock()
with lock:
    child = os.fork()
if child == 0:
    os._exit(3 if lock.locked() else 0)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""

READ = """
import os, sys, threading, warnings
warnings.simplefilter("ignore")
import numpy as np
from oocloader.reading.files import FileReader
import oocloader as ooc

held, over = threading.Event(), threading.Event()
check = FileReader._check

def waiting(self, index, fd):
    check(self, index, fd)
    if threading.current_thread().name == "other":
        with self._lock:
            held.set()
            over.wait()

FileReader._check = waiting
store = ooc.open_store(sys.argv[1])
threading.Thread(target=lambda: store["x"].read(0, 9), name="other").start()
held.wait()
child = os.fork()
if child == 0:
    code = 1
    try:
        code = 0 if np.array_equal(store["x"].read(0, 9), np.arange(9)) else 2
    finally:
        os._exit(code)
ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
over.set()
raise SystemExit(ended)
"""


def run(program: str, *arguments: str) -> int:
    """Exit status; it hangs where the child waits."""
    return subprocess.run([sys.executable, "-c", program, *arguments], timeout=60).returncode


def test_a_child_takes_a_lock_that_another_thread_held() -> None:
    assert run(HELD) == 0


def test_a_child_forked_by_whoever_held_a_lock() -> None:
    assert run(IN_THE_MIDDLE) == 0


def test_a_child_reads_a_store_that_another_thread_was_reading(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(100))
    assert run(READ, str(tmp_path / "x.npy")) == 0


def test_a_lock_is_a_lock() -> None:
    lock = Lock()
    assert not lock.locked()
    with lock:
        assert lock.locked()
    assert not lock.locked()
