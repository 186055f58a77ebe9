"""Numbered steps, carried out by several threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

# How long an interrupted conversion waits for its threads, which notice after the step at hand.
_PATIENCE_S = 1.0

Work = Callable[[int], int]
"""Carries out the step of that number; how many bytes that were."""


def in_steps(
    count: int, make_work: Callable[[], Work], *, threads: int, advance: Callable[[int], object]
) -> None:
    """Carry out steps 0 to `count`, each taken up in that order by the next free thread.

    `make_work` is called once a thread, which may keep memory there. `advance` is told, in the calling
    thread, how many bytes more are done. What a thread raises is raised here, and no step is begun then.
    """
    changed = threading.Condition()
    taken = done = 0
    nbytes = 0
    errors: list[BaseException] = []

    def run() -> None:
        nonlocal taken, done, nbytes
        try:
            work = make_work()
            while True:
                with changed:
                    if errors or taken == count:
                        return
                    taken += 1
                    number = taken - 1
                moved = work(number)
                with changed:
                    done, nbytes = done + 1, nbytes + moved
                    changed.notify_all()
        except BaseException as error:
            with changed:
                errors.append(error)
                changed.notify_all()

    workers = [
        threading.Thread(target=run, name=f"oocloader-first-pass-{number}", daemon=True)
        for number in range(min(threads, count))
    ]
    started: list[threading.Thread] = []
    reported = 0

    def news() -> bool:
        return bool(errors) or done == count or nbytes > reported

    try:
        for worker in workers:
            worker.start()
            started.append(worker)
        finished = count == 0
        while not finished:
            with changed:
                changed.wait_for(news)
                finished = bool(errors) or done == count
                more, reported = nbytes - reported, nbytes
            advance(more)
    except BaseException as error:
        with changed:
            errors.append(error)
        raise
    finally:
        deadline = time.monotonic() + _PATIENCE_S
        for worker in started:
            worker.join(max(0.0, deadline - time.monotonic()))
    if errors:
        raise errors[0]
