from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from oocloader.conversion import worker_threads
from oocloader.conversion.worker_threads import results_in_order

PATIENCE_S = 20


def ours() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("test-worker")]


def test_results_come_in_order_whichever_is_done_first() -> None:
    later = threading.Event()

    def square(number: int) -> int:
        if number == 0:
            assert later.wait(PATIENCE_S)
        if number == 2:
            later.set()
        return number * number

    work = results_in_order(square, range(20), threads=3, name="test-worker")
    assert list(work) == [number * number for number in range(20)]
    assert list(results_in_order(square, [], threads=3, name="test-worker")) == []
    assert ours() == []


@pytest.mark.parametrize(("threads", "ahead"), [(1, 1), (3, 3), (2, 7)])
def test_no_more_items_are_asked_for_than_are_ahead(threads: int, ahead: int) -> None:
    asked = 0

    def items() -> Iterator[int]:
        nonlocal asked
        for number in range(30):
            asked += 1
            yield number

    taken = 0
    for _ in results_in_order(abs, items(), threads=threads, name="test-worker", ahead=ahead):
        assert asked <= taken + ahead
        taken += 1
    assert taken == 30


def test_the_first_error_ends_it_behind_the_results_before_it() -> None:
    begun: list[int] = []
    stop = threading.Event()

    def failing(number: int) -> int:
        begun.append(number)
        if number == 5:
            raise MemoryError(number)
        return number

    seen: list[int] = []
    work = results_in_order(failing, range(1_000_000), threads=3, name="test-worker", stop=stop)
    with pytest.raises(MemoryError, match="5"):
        seen.extend(work)
    assert stop.is_set()
    assert len(begun) < 1000
    assert seen == [0, 1, 2, 3, 4]
    assert ours() == []


def test_an_error_is_noticed_while_an_earlier_one_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_threads, "_PATIENCE_AFTER_ERROR_S", 0.01)
    monkeypatch.setattr(worker_threads, "_PATIENCE_S", 0.01)
    release = threading.Event()

    def stuck(number: int) -> int:
        if number == 0:
            assert release.wait(PATIENCE_S)
        elif number == 1:
            raise ValueError("broken")
        return number

    with pytest.raises(ValueError, match="broken"):
        list(results_in_order(stuck, range(9), threads=2, name="test-worker"))
    release.set()
    for thread in threading.enumerate():
        if thread.name.startswith("test-worker"):
            thread.join(PATIENCE_S)
    assert ours() == []


def test_errors_of_the_items_and_of_the_caller_end_it() -> None:
    def items() -> Iterator[int]:
        yield from range(3)
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        list(results_in_order(abs, items(), threads=2, name="test-worker"))
    stop = threading.Event()
    with closing(results_in_order(abs, range(1000), threads=2, name="test-worker", stop=stop)) as work:
        assert next(work) == 0
        assert not stop.is_set()
    assert stop.is_set()
    assert ours() == []


def test_ctrl_c_ends_it_soon() -> None:
    done: list[int] = []

    def slow(number: int) -> int:
        if number == 1:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            time.sleep(0.2)
        return number

    started = time.monotonic()
    work = results_in_order(slow, range(1_000_000), threads=1, name="test-worker")
    with pytest.raises(KeyboardInterrupt):
        done.extend(work)
    assert done == [0, 1]  # what was under way is done
    assert time.monotonic() - started < 5
    assert ours() == []
