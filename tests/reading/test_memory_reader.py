"""Rows of an array in memory."""

from __future__ import annotations

import numpy as np

from numbered import rows_array
from oocloader.metrics.counters import Counters
from oocloader.order.row_spans import RowSpan
from oocloader.reading.jobs import JOB_NBYTES
from oocloader.reading.memory_reader import MemoryReader
from oocloader.reading.read_rows import read_rows
from oocloader.reading.row_reader import Target
from oocloader.reading.shared_chunks import SharedChunks


def test_memory_is_never_mapped() -> None:
    reader = MemoryReader(rows_array(10))
    assert reader.map(0, 10) is None
    assert (reader.chunk_rows, reader.row_access) == (None, True)


def test_strided_memory() -> None:
    array = rows_array(50, "float32", sample_shape=(6, 4))[::2, 1::2, ::-1]
    out = np.zeros(array.shape, np.float32)
    read_rows(MemoryReader(array), 0, 25, out)
    assert np.array_equal(out, array)


def test_large_pieces_are_several_jobs() -> None:
    array = np.arange(3 * JOB_NBYTES // 8)
    out = np.zeros_like(array)
    jobs = MemoryReader(array).jobs(
        [RowSpan(0, len(array), None, slice(0, len(array)))],
        Target(out, SharedChunks(lambda lo, hi: 0), Counters()),
    )
    assert len(jobs) == 3
    for job in jobs:
        job()
    assert np.array_equal(out, array)
