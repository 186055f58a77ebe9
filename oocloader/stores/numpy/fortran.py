"""Rows of an array kept column by column (`.npy` with fortran_order), without holding the whole of it.

In such a file the values of one element of the sample, for all rows, lie next to each other: a *run*.
Some rows are a span out of every run, so they are read in bands of many rows.
"""

import math
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.lib.stride_tricks import as_strided

from oocloader.memory import Cost, banded_cost
from oocloader.metrics import Counters
from oocloader.order import RowSpan
from oocloader.reading import (
    JOB_NBYTES,
    Box,
    ChunkGeometry,
    FileReader,
    Files,
    Job,
    RowReader,
    Target,
    runs_of,
)
from oocloader.sizes import nbytes_of_row

_BAND_NBYTES = 32 << 20
# Pieces of neighbouring runs this close are read with one call: each call costs more than the bytes between.
_GAP_NBYTES = 16 << 10


def band_rows(shape: Sequence[int], dtype: np.dtype) -> int:
    """Rows of such an array that are read together."""
    return min(shape[0], max(1, _BAND_NBYTES // nbytes_of_row(shape, dtype)))


def places_of_runs(shape: Sequence[int]) -> np.ndarray:
    """Position in a row, C order, of each run.

    >>> places_of_runs((100, 2, 3))
    array([0, 3, 1, 4, 2, 5])
    """
    return np.arange(math.prod(shape[1:])).reshape(shape[1:]).ravel(order="F")


def geometry_of_runs(shape: Sequence[int]) -> ChunkGeometry:
    """What lies together in such an array: nothing but runs."""
    return ChunkGeometry((1,) * len(shape), tuple(reversed(range(len(shape)))))


def read_runs(
    read: Callable[[int, np.ndarray], object],
    box: Box,
    shape: tuple[int, ...],
    dtype: np.dtype,
    out: np.ndarray,
) -> None:
    """Fill `out` with a box, its axes reversed: `read(offset, part)` for each run of bytes in the array.

    `dtype` is that of the file; `out` has native byte order.
    """
    offsets, run = runs_of(box[::-1], shape[::-1], dtype.itemsize)
    flat = out.reshape(-1).view(np.uint8)
    for at, offset in enumerate(offsets.tolist()):
        read(offset, flat[at * run : (at + 1) * run])
    if dtype != out.dtype:
        out.byteswap(inplace=True)


class FortranReader(RowReader):
    """Rows of the only array of a file of runs, which begins at byte `offset` of the only file."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, files: Files, offset: int) -> None:
        self._files = FileReader(files)
        self._stored_dtype = dtype
        self._offset = offset
        self.shape = shape
        self.dtype = dtype.newbyteorder("=")
        self._places = places_of_runs(shape)
        self.chunk_rows = self._band_rows = band_rows(shape, dtype)
        self.scratch_nbytes = JOB_NBYTES + self._band_rows * self.row_nbytes

    def jobs(self, spans: Sequence[RowSpan], target: Target) -> list[Job]:
        claim = target.shared_chunks.claim(spans, target.rows, rows=self.shape[0], band_rows=self._band_rows)
        jobs: list[Job] = []
        for band in claim.bands:
            jobs += band.jobs(self._band_jobs(band.lo, band.hi, band.rows, target.counters))
        return jobs + claim.copies

    @property
    def chunk_geometry(self) -> ChunkGeometry:
        return geometry_of_runs(self.shape)

    @property
    def run_nbytes(self) -> int:
        """Bytes that lie next to each other where a band is read."""
        return self._band_rows * self.dtype.itemsize

    def read_box(self, box: Box, out: np.ndarray) -> None:
        """Fill `out` with a box, its axes reversed: one call for each run of bytes in the file."""
        with self._files.opened(0) as fd:
            read_runs(
                lambda offset, part: self._files.read(fd, 0, self._offset + offset, part),
                box,
                self.shape,
                self._stored_dtype,
                out,
            )

    def cost(self, spans: Sequence[RowSpan]) -> Cost:
        return banded_cost(spans, rows=self.shape[0], band_rows=self._band_rows, row_nbytes=self.row_nbytes)

    def close(self) -> None:
        self._files.close()

    def _band_jobs(self, lo: int, hi: int, out: np.ndarray, counters: Counters) -> list[Job]:
        together = (self.shape[0] - (hi - lo)) * self.dtype.itemsize <= _GAP_NBYTES
        rows = self.shape[0] if together else hi - lo
        step = max(1, JOB_NBYTES // (rows * self.dtype.itemsize))
        runs = len(self._places)
        return [
            partial(self._read, first, min(first + step, runs), lo, hi, out, counters, together=together)
            for first in range(0, runs, step)
        ]

    def _read(
        self, first: int, last: int, lo: int, hi: int, out: np.ndarray, counters: Counters, *, together: bool
    ) -> None:
        itemsize = self.dtype.itemsize
        run_nbytes = self.shape[0] * itemsize
        begin = self._offset + first * run_nbytes + lo * itemsize
        calls = 0
        began = time.perf_counter()
        with self._files.opened(0) as fd:
            if together:
                # The last run ends with the wanted rows, so that nothing behind the data is read.
                span = np.empty((last - first - 1) * run_nbytes + (hi - lo) * itemsize, np.uint8)
                calls = self._files.read(fd, 0, begin, span)
                total = span.nbytes
                wanted = span[: (hi - lo) * itemsize].view(self._stored_dtype)
                runs = as_strided(wanted, (last - first, hi - lo), (run_nbytes, itemsize))
            else:
                runs = np.empty((last - first, hi - lo), self._stored_dtype)
                total = runs.nbytes
                for number, run in enumerate(runs):
                    calls += self._files.read(fd, 0, begin + number * run_nbytes, run.view(np.uint8))
        read_at = time.perf_counter()
        flat = out.reshape(hi - lo, -1)
        flat[:, self._places[first:last]] = runs.T
        counters.add(
            read_calls=calls,
            read_bytes=total,
            copied_bytes=runs.nbytes,
            read_s=read_at - began,
            gather_s=time.perf_counter() - read_at,
        )
