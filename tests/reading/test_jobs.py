"""Jobs in any order: what comes behind all of them."""

from __future__ import annotations

import functools
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from oocloader.reading.jobs import then


@pytest.mark.parametrize("count", [1, 2, 7])
def test_the_last_to_end_goes_on(count: int) -> None:
    events: list[object] = []
    jobs = then([functools.partial(events.append, at) for at in range(count)], lambda: events.append("done"))
    assert len(jobs) == count
    shuffled = random.Random(count).sample(jobs, count)
    for job in shuffled[:-1]:
        job()
    assert "done" not in events
    shuffled[-1]()
    assert events[-1] == "done"
    assert sorted(events[:-1], key=str) == list(range(count))


def test_the_one_that_ends_last_need_not_begin_last() -> None:
    release = threading.Event()
    done: list[str] = []
    slow, quick = then([release.wait, lambda: None], lambda: done.append(threading.current_thread().name))
    with ThreadPoolExecutor(1, "slow") as pool:
        waiting = pool.submit(slow)
        quick()
        assert done == []
        release.set()
        waiting.result()
    assert done == ["slow_0"]


def test_where_one_fails_nobody_goes_on() -> None:
    done: list[int] = []

    def fail() -> None:
        raise ValueError("no")

    first, failing, last = then([int, fail, int], lambda: done.append(1))
    first()
    with pytest.raises(ValueError, match="no"):
        failing()
    last()
    assert done == []


def test_many_threads_end_it_once() -> None:
    done: list[int] = []
    jobs = then([int] * 1000, lambda: done.append(1))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda job: job(), jobs))
    assert done == [1]
