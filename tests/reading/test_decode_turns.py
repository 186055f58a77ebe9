"""Whose turn it is to decode, by clocks that the test sets."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from oocloader.reading import decode_turns
from oocloader.reading.decode_turns import QuickJobs

CHUNKS = 10


@pytest.fixture
def worked(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Have the thread compute for so many seconds."""
    clock = [0.0]
    monkeypatch.setattr("oocloader.reading.decode_turns.time.thread_time", lambda: clock[0])
    monkeypatch.setattr(decode_turns, "HANDOVER_S", 1.0)

    def work(seconds: float) -> None:
        clock[0] += seconds

    return work


def in_turn(jobs: QuickJobs, worked: Callable[[float], None], seconds: float, reading: float = 0.0) -> bool:
    """Whether a job that takes so long is carried out in its turn."""
    seen: list[bool] = []

    def job() -> float:
        seen.append(decode_turns._turn.locked())
        worked(seconds)
        return reading

    jobs.run(job, CHUNKS)
    assert not decode_turns._turn.locked()
    return seen[0]


def test_quick_jobs_are_carried_out_in_turn(worked: Callable[[float], None]) -> None:
    jobs = QuickJobs()
    # Nothing is known of the first; each tells of the next.
    assert [in_turn(jobs, worked, seconds) for seconds in (9, 9, 11, 9, 9)] == [
        False,
        True,
        True,
        False,
        True,
    ]


def test_a_job_that_waits_for_the_disk_lets_others_go_on(
    monkeypatch: pytest.MonkeyPatch, worked: Callable[[float], None]
) -> None:
    monkeypatch.setattr(decode_turns, "_SIDE_BY_SIDE", 3)
    jobs = QuickJobs()
    # That tells nothing where jobs are not in turn anyway.
    assert not in_turn(jobs, worked, 5, reading=6)
    assert in_turn(jobs, worked, 5, reading=4)
    assert in_turn(jobs, worked, 5, reading=6)
    assert [in_turn(jobs, worked, 5, reading=6) for _ in range(3)] == [False, False, True]
    assert [in_turn(jobs, worked, 5) for _ in range(4)] == [False, False, True, True]


def test_a_job_that_fails_is_over(worked: Callable[[float], None]) -> None:
    jobs = QuickJobs()
    in_turn(jobs, worked, 1)

    def fail() -> float:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        jobs.run(fail, CHUNKS)
    assert in_turn(jobs, worked, 1)


FORKED = """
import os, warnings
warnings.simplefilter("ignore")
from oocloader.reading import decode_turns

jobs = decode_turns.QuickJobs()
decode_turns.HANDOVER_S = 1.0
jobs.run(lambda: 0.0, 1)
decode_turns._turn.__enter__()
child = os.fork()
if child == 0:
    code = 1
    try:
        jobs.run(lambda: 0.0, 1)
        code = 0
    finally:
        os._exit(code)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_forked_child_does_not_wait_for_whose_turn_it_was() -> None:
    # It hangs where the child waits.
    subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=60)
