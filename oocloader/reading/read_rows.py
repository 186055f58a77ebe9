"""Rows of a reader into a buffer at once, by several threads where there is much to read."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from oocloader.machine import usable_cores
from oocloader.metrics import Counters
from oocloader.order import RowSpan
from oocloader.reading.jobs import JOB_NBYTES, Job
from oocloader.reading.row_reader import RowReader, Target
from oocloader.reading.shared_chunks import SharedChunks

_MOST_THREADS = 8
# To start a thread and to share the interpreter takes its time too: two threads read what takes one thread
# 1 ms 0.8 times as fast, and what takes it 6 ms 1.2 times.
_ALONE_S = 2e-3
# Where a library decodes a chunk in less, it hands the interpreter over so often that threads wait for each
# other: two threads read LZ4 chunks of 6 to 25 kB (7 to 15 microseconds) 0.5 to 0.8 times as fast as one.
_HANDOVER_S = 25e-6


def read_rows(
    reader: RowReader, start: int, stop: int, out: np.ndarray, *, most_threads: int = _MOST_THREADS
) -> None:
    """Fill `out` with rows `start:stop`, by several threads where there is much to read."""
    target = Target(out, SharedChunks(lambda lo, hi: max(0, min(hi, stop) - max(lo, start))), Counters())
    jobs = reader.jobs([RowSpan(start, stop, None, slice(0, stop - start))], target)
    threads = min(len(jobs), usable_cores(), most_threads)
    if threads > 1 and out.nbytes >= JOB_NBYTES:
        began = time.perf_counter()
        jobs.pop(0)()
        took = time.perf_counter() - began
        # Also where nothing is decoded, and before it is known how quick that is.
        calls = target.counters.read_calls + target.counters.chunks_decoded
        if took * len(jobs) >= _ALONE_S and took >= calls * _HANDOVER_S:
            _run_together(jobs, threads)
            return
    for job in jobs:
        job()


def _run_together(jobs: list[Job], threads: int) -> None:
    """Carry out jobs by several threads, this one included, until one fails: raises the first error."""
    errors: dict[int, BaseException] = {}
    # Shared by the threads: the next of it is one step for the interpreter.
    waiting = enumerate(jobs)
    with ThreadPoolExecutor(threads - 1, "oocloader-rows") as others:
        for _ in range(threads - 1):
            others.submit(_work, waiting, errors)
        # To start a thread takes as long as copying a mebibyte.
        _work(waiting, errors)
    if errors:
        raise errors[min(errors)]


def _work(waiting: Iterator[tuple[int, Job]], errors: dict[int, BaseException]) -> None:
    for number, job in waiting:
        if errors:
            return
        try:
            job()
        except BaseException as error:
            errors[number] = error
