"""Rows that another library reads: whole chunks, once, by one thread at a time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from library import Library
from numbered import rows_array
from oocloader.errors import ChangedError, ClosedError, StoreError
from oocloader.metrics.counters import Counters
from oocloader.order.order import Order, RowSet
from oocloader.reading.jobs import JOB_NBYTES
from oocloader.reading.read_rows import read_rows
from oocloader.reading.row_reader import Target
from oocloader.reading.shared_chunks import SharedChunks

ROWS = 300
SAMPLE = (5, 2)


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_library_reads_whole_chunks_once_and_one_at_a_time(shuffle: bool) -> None:
    source = Library(rows_array(ROWS, sample_shape=SAMPLE))
    reader = source.reader(40)
    order = Order(RowSet(0, ROWS), shuffle=shuffle, seed=1, block=7, window=30)
    shared_chunks, counters = SharedChunks(order.rows.count), Counters()
    with ThreadPoolExecutor(4) as pool:
        jobs = [
            job
            for window in order.windows(0)
            for job in reader.jobs(
                window.spans, Target(np.empty((window.rows, *SAMPLE), np.uint8), shared_chunks, counters)
            )
        ]
        for done in [pool.submit(job) for job in jobs]:
            done.result()
    assert sorted(source.asked) == [(at, min(at + 40, ROWS)) for at in range(0, ROWS, 40)]
    assert not source.together
    assert counters.chunks_decoded == counters.read_calls == 8


def test_a_library_without_chunks_reads_about_four_megabytes() -> None:
    source = Library(np.arange(3 * JOB_NBYTES // 8 + 5))
    reader = source.reader(None)
    assert reader.chunk_rows == JOB_NBYTES // 8
    assert source.reader(10**9).chunk_rows == len(source.array)
    out = np.zeros_like(source.array)
    read_rows(reader, 0, len(out), out)
    assert np.array_equal(out, source.array)
    assert max(stop - start for start, stop in source.asked) * 8 == JOB_NBYTES
    assert reader.scratch_nbytes == 2 * JOB_NBYTES  # the library's rows, and ours


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            OSError("Can't synchronously read data\n (filter returned failure)"),
            "Can't synchronously read data",
        ),
        (KeyError(), "KeyError"),
        (ZeroDivisionError("by zero"), "by zero"),
    ],
)
def test_an_error_of_a_library_says_where(error: Exception, reason: str) -> None:
    source = Library(rows_array(ROWS))
    source.failing[80] = error
    with pytest.raises(StoreError) as caught:
        read_rows(source.reader(40), 0, 100, np.zeros((100, 4, 4), np.uint8))
    assert str(caught.value) == f"data.h5: array 'g/x', rows 80 to 119: cannot be read: {reason}"
    assert (caught.value.file, caught.value.array, caught.value.rows) == ("data.h5", "g/x", (80, 120))
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [ChangedError("data.h5: changed"), ClosedError("closed")])
def test_an_error_of_our_own_stays(error: Exception) -> None:
    source = Library(rows_array(ROWS))
    source.failing[0] = error
    with pytest.raises(type(error)) as caught:
        read_rows(source.reader(40), 0, 1, np.zeros((1, 4, 4), np.uint8))
    assert caught.value is error


def test_close_waits_for_the_library() -> None:
    source = Library(rows_array(ROWS))
    reader = source.reader(300)
    started, go_on = threading.Event(), threading.Event()
    read = source.read

    def slow(start: int, stop: int, out: np.ndarray) -> None:
        started.set()
        go_on.wait(10)
        assert source.closed == 0
        read(start, stop, out)

    reader._read_rows = slow
    with ThreadPoolExecutor(2) as pool:
        reading = pool.submit(read_rows, reader, 0, 1, np.zeros((1, 4, 4), np.uint8))
        started.wait(10)
        closing = pool.submit(reader.close)
        go_on.set()
        reading.result(timeout=10)
        closing.result(timeout=10)
    assert source.closed == 1
