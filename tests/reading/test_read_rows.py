"""Rows at once: by one thread where there is little to read, by several where there is much."""

from __future__ import annotations

import functools
import importlib
import threading
import time
import types
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from oocloader.memory import Cost
from oocloader.order.row_spans import RowSpan
from oocloader.reading.jobs import JOB_NBYTES, Job
from oocloader.reading.read_rows import read_rows
from oocloader.reading.row_reader import RowReader, Target

# The package gives its function by the same name.
module = importlib.import_module("oocloader.reading.read_rows")

ROWS = 12
ROW_NBYTES = JOB_NBYTES // 4


class Jobs(RowReader):
    """A job a row, each of which carries out `work` with its number; rows carry their numbers."""

    shape = (ROWS, ROW_NBYTES)
    dtype = np.dtype("u1")

    def __init__(self, work: Callable[[int], object], *, calls: int = 0) -> None:
        self.work = work
        self.calls = calls
        self.done: list[int] = []
        self.threads: set[str] = set()

    def jobs(self, spans: Sequence[RowSpan], target: Target) -> list[Job]:
        (span,) = spans
        assert span.row_index is None

        def job(at: int) -> None:
            self.threads.add(threading.current_thread().name)
            self.work(span.start + at)
            target.rows[at] = span.start + at
            target.counters.add(chunks_decoded=self.calls)
            self.done.append(span.start + at)

        return [functools.partial(job, at) for at in range(span.rows)]

    def cost(self, spans: Sequence[RowSpan]) -> Cost:
        raise NotImplementedError


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "usable_cores", lambda: 4)


def read(reader: Jobs, start: int = 0, stop: int = ROWS, **options: int) -> np.ndarray:
    out = np.full((stop - start, ROW_NBYTES), 99, np.uint8)
    read_rows(reader, start, stop, out, **options)
    return out


@pytest.mark.parametrize(
    ("options", "least", "most"), [({}, 2, 4), ({"most_threads": 2}, 2, 2), ({"most_threads": 1}, 1, 1)]
)
def test_several_threads_where_there_is_much_to_read(options: dict[str, int], least: int, most: int) -> None:
    reader = Jobs(lambda number: time.sleep(0.02))
    assert np.array_equal(read(reader, **options)[:, -1], np.arange(ROWS))
    assert sorted(reader.done) == list(range(ROWS))
    assert least <= len(reader.threads) <= most
    assert threading.current_thread().name in reader.threads
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("oocloader-rows")]


@pytest.mark.parametrize(
    ("start", "stop", "takes_s", "calls"),
    [
        (2, 5, 0.02, 0),  # few bytes
        (0, ROWS, 0.0, 0),  # quickly read
        (0, ROWS, 0.005, 10_000),  # by many quick calls of a library
    ],
)
def test_one_thread_where_others_would_not_help(
    monkeypatch: pytest.MonkeyPatch, start: int, stop: int, takes_s: float, calls: int
) -> None:
    # A clock of its own: each job takes what it is said to.
    ticks = iter([0.0, takes_s])
    monkeypatch.setattr(module, "time", types.SimpleNamespace(perf_counter=lambda: next(ticks)))
    reader = Jobs(lambda number: None, calls=calls)
    out = read(reader, start, stop)
    assert np.array_equal(out[:, 0], np.arange(start, stop))
    assert reader.done == list(range(start, stop))
    assert reader.threads == {threading.current_thread().name}


@pytest.mark.parametrize("failing", [0, 5])
def test_an_error_ends_all(failing: int) -> None:
    def work(number: int) -> None:
        time.sleep(0.02)
        if number == failing:
            raise ValueError(f"row {number}")

    reader = Jobs(work)
    with pytest.raises(ValueError, match=f"row {failing}"):
        read(reader)
    assert len(reader.done) < ROWS - 1
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("oocloader-rows")]


def test_of_several_errors_that_of_the_first_rows_is_raised() -> None:
    together = threading.Barrier(4)

    def work(number: int) -> None:
        if number == 0:
            time.sleep(0.02)
            return
        together.wait(timeout=10)
        raise ValueError(f"row {number}")

    with pytest.raises(ValueError, match=r"row 1$"):
        read(Jobs(work))
