"""Layouts of numbered rows in every form, and their rows as a reader delivers them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from chunked import Flip, write_layout
from numbered import rows_array
from oocloader.metrics.counters import Counters
from oocloader.order.order import Order
from oocloader.order.row_spans import RowSpan
from oocloader.reading.chunk_reader import ChunkReader
from oocloader.reading.jobs import Job
from oocloader.reading.layout import Layout
from oocloader.reading.read_rows import read_rows
from oocloader.reading.row_reader import Target
from oocloader.reading.shared_chunks import SharedChunks


def read(reader: ChunkReader, start: int, stop: int) -> np.ndarray:
    out = np.full((stop - start, *reader.shape[1:]), 99, reader.dtype)
    read_rows(reader, start, stop, out)
    return out


def run(jobs: Sequence[Job], *, threads: int = 1) -> None:
    """The jobs in any order, in this thread or in several."""
    jobs = random.Random(len(jobs)).sample(jobs, len(jobs))
    if threads == 1:
        for job in jobs:
            job()
        return
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(job) for job in jobs]:
            done.result()


def deliver(reader: ChunkReader, order: Order, *, threads: int = 1) -> tuple[np.ndarray, Counters]:
    """A pass: every row of it, in the order of the pass."""
    shared_chunks, counters = SharedChunks(order.rows.count), Counters()
    windows = []
    for window in order.windows(0):
        out = np.full((window.rows, *reader.shape[1:]), 99, reader.dtype)
        run(reader.jobs(window.spans, Target(out, shared_chunks, counters)), threads=threads)
        windows.append(out)
    assert shared_chunks.held_nbytes == 0
    return np.concatenate(windows), counters


FORMS: dict[str, dict[str, Any]] = {
    "one run": {},
    "one run behind a header": {"lead": 129},
    "one run, Fortran order": {"axes": (2, 1, 0)},
    "whole rows": {"chunk_shape": (64, 4, 3)},
    "whole rows apart": {"chunk_shape": (64, 4, 3), "gap": 70_000},
    "whole rows backwards": {"chunk_shape": (100, 4, 3), "backwards": True, "lead": 5},
    "whole rows, a file each": {"chunk_shape": (3, 4, 3), "file_each": True},
    "some missing": {"chunk_shape": (64, 4, 3), "missing": {0, 2, 3}, "fill": 7},
    "all missing": {"chunk_shape": (64, 4, 3), "missing": set(range(8)), "fill": 7},
    "cut across": {"chunk_shape": (64, 3, 2)},
    "cut across, apart": {"chunk_shape": (100, 3, 2), "gap": 70_000},
    "cut across, missing": {"chunk_shape": (64, 3, 2), "missing": {0, 5, 6, 7, 20}, "fill": 1},
    "cut across, transposed": {"chunk_shape": (64, 3, 2), "axes": (2, 0, 1)},
    "cut across, a file each": {"chunk_shape": (64, 3, 2), "file_each": True, "missing": {3}},
    "chunks larger than the array": {"chunk_shape": (1000, 7, 5)},
    "chunks of one row": {"chunk_shape": (1, 4, 3)},
    "tiles": {"chunk_shape": (64, 2, 1)},
    "tiles, missing": {"chunk_shape": (64, 2, 1), "missing": {0, 5, 12, 13, 14, 15, 16, 17}, "fill": 1},
    "tiles, apart": {"chunk_shape": (64, 2, 1), "gap": 1},
    "tiles, a file each": {"chunk_shape": (100, 2, 1), "file_each": True, "missing": {3}},
    "Fortran chunks": {"chunk_shape": (64, 4, 3), "axes": (2, 1, 0)},
}


ROWS = 450


ALL = [RowSpan(0, ROWS, None, slice(0, ROWS))]


def written(
    folder: Path, form: dict[str, Any], *, step: Flip | None = None, dtype: str = "uint8", rows: int = ROWS
) -> tuple[Layout, np.ndarray]:
    """A layout of numbered rows, and the rows that are to be read."""
    array = rows_array(rows, dtype, sample_shape=(4, 3))
    layout = write_layout(folder, array, step=step, **form)
    expected = array.astype(array.dtype.newbyteorder("="))
    chunk_shape = form.get("chunk_shape", array.shape)
    for chunk in form.get("missing", ()):
        corner = np.unravel_index(chunk, layout.grid)
        at = tuple(slice(int(i) * n, (int(i) + 1) * n) for i, n in zip(corner, chunk_shape, strict=True))
        expected[at] = form.get("fill", 0)
    return layout, expected
