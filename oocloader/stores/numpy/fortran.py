"""Rows of an array kept column by column (`.npy` with fortran_order), without holding the whole of it.

In such a file the values of one element of the sample, for all rows, lie next to each other: a *run*.
Some rows are a span out of every run, so they are read in bands of many rows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np

from oocloader.memory import Cost, banded_cost
from oocloader.metrics import Counters
from oocloader.order import RowSpan
from oocloader.reading import JOB_NBYTES, Box, ChunkGeometry, FileReader, Files, Job, Target, runs_of

BAND_NBYTES = 32 << 20
# Pieces of neighbouring runs this close are read with one call: each call costs more than the bytes between.
_GAP_NBYTES = 16 << 10


class FortranReader:
    """Rows of the only array of a file of runs, which begins at byte `offset` of the only file."""

    row_access = False
    chunk_origins: tuple[int, ...] = (0,)
    mapped_nbytes = 0

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, files: Files, offset: int) -> None:
        self._files = FileReader(files)
        self._stored_dtype = dtype
        self._offset = offset
        self.shape = shape
        self.dtype = dtype.newbyteorder("=")
        elements = math.prod(shape[1:])
        # Position in a row, C order, of each run.
        self._places = np.arange(elements).reshape(shape[1:]).ravel(order="F")
        row_nbytes = elements * dtype.itemsize
        self.chunk_rows: int | None = min(shape[0], max(1, BAND_NBYTES // row_nbytes))
        self.scratch_nbytes = JOB_NBYTES + self.chunk_rows * row_nbytes

    def jobs(self, spans: Sequence[RowSpan], target: Target) -> list[Job]:
        assert self.chunk_rows is not None
        return target.shared_chunks.jobs(
            spans,
            target.rows,
            rows=self.shape[0],
            band_rows=self.chunk_rows,
            decode=lambda band, lo, hi, out: self._band_jobs(lo, hi, out, target.counters),
        )

    @property
    def chunk_geometry(self) -> ChunkGeometry:
        axes = range(len(self.shape))
        return ChunkGeometry((1,) * len(axes), tuple(reversed(axes)))

    @property
    def run_nbytes(self) -> int:
        """Bytes that lie next to each other where a band is read."""
        assert self.chunk_rows is not None
        return self.chunk_rows * self.dtype.itemsize

    def read_box(self, box: Box, out: np.ndarray) -> None:
        """Fill `out` with a box, its axes reversed: one call for each run of bytes in the file."""
        offsets, run = runs_of(box[::-1], self.shape[::-1], self.dtype.itemsize)
        flat = out.reshape(-1).view(np.uint8)
        with self._files.opened(0) as fd:
            for at, offset in enumerate(offsets.tolist()):
                self._files.read(fd, 0, self._offset + offset, flat[at * run : (at + 1) * run])
        if self._stored_dtype != self.dtype:
            out.byteswap(inplace=True)

    def map(self, start: int, stop: int) -> np.ndarray | None:
        return None

    def view(self, spans: Sequence[RowSpan]) -> np.ndarray | None:
        return None

    def fresh_view(self) -> np.ndarray | None:
        return None

    def cost(self, spans: Sequence[RowSpan]) -> Cost:
        assert self.chunk_rows is not None
        row_nbytes = len(self._places) * self.dtype.itemsize
        return banded_cost(spans, rows=self.shape[0], band_rows=self.chunk_rows, row_nbytes=row_nbytes)

    def close(self) -> None:
        self._files.close()

    def _band_jobs(self, lo: int, hi: int, out: np.ndarray, counters: Counters) -> list[Job]:
        together = (self.shape[0] - (hi - lo)) * self.dtype.itemsize <= _GAP_NBYTES
        rows = self.shape[0] if together else hi - lo
        step = max(1, JOB_NBYTES // (rows * self.dtype.itemsize))
        runs = len(self._places)
        return [
            self._job(first, min(first + step, runs), lo, hi, out, counters, together=together)
            for first in range(0, runs, step)
        ]

    def _job(
        self, first: int, last: int, lo: int, hi: int, out: np.ndarray, counters: Counters, *, together: bool
    ) -> Job:
        itemsize = self.dtype.itemsize
        run_nbytes = self.shape[0] * itemsize
        begin = self._offset + first * run_nbytes + lo * itemsize

        def read() -> None:
            calls = 0
            began = time.perf_counter()
            with self._files.opened(0) as fd:
                if together:
                    # The last run ends with the wanted rows, so that nothing behind the data is read.
                    span = np.empty((last - first - 1) * run_nbytes + (hi - lo) * itemsize, np.uint8)
                    calls = self._files.read(fd, 0, begin, span)
                    total = span.nbytes
                    found = np.lib.stride_tricks.as_strided(
                        span[: (hi - lo) * itemsize].view(self._stored_dtype),
                        (last - first, hi - lo),
                        (run_nbytes, itemsize),
                    )
                else:
                    found = np.empty((last - first, hi - lo), self._stored_dtype)
                    total = found.nbytes
                    for run in range(last - first):
                        span = found[run].view(np.uint8)
                        calls += self._files.read(fd, 0, begin + run * run_nbytes, span)
            read_at = time.perf_counter()
            flat = out.reshape(hi - lo, -1)
            flat[:, self._places[first:last]] = found.T
            counters.add(
                read_calls=calls,
                read_bytes=total,
                copied_bytes=found.nbytes,
                read_s=read_at - began,
                gather_s=time.perf_counter() - read_at,
            )

        return read
