"""Jobs: what threads carry out, in any order."""

import functools
import threading
from collections.abc import Callable, Sequence

Job = Callable[[], object]
# About this many bytes are one job: large enough that a system call and a Python call do not count.
JOB_NBYTES = 4 << 20


def then(jobs: Sequence[Job], done: Callable[[], object]) -> list[Job]:
    """`jobs`, of which the last to end calls `done`; where one fails nobody does."""
    left = len(jobs)
    lock = threading.Lock()

    def run(job: Job) -> None:
        nonlocal left
        job()
        with lock:
            left -= 1
            last = left == 0
        if last:
            done()

    return [functools.partial(run, job) for job in jobs]
