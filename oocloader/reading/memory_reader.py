"""Rows of an array in memory."""

import functools
import time
from collections.abc import Sequence

import numpy as np

from oocloader.memory import Cost, row_count
from oocloader.order import RowSpan, cut
from oocloader.reading.boxes import Box, ChunkGeometry
from oocloader.reading.jobs import JOB_NBYTES, Job
from oocloader.reading.row_reader import RowReader, Target
from oocloader.sizes import rows_in


class MemoryReader(RowReader):
    """Rows of an array in memory, copied: TensorFlow may write into what it is handed."""

    row_access = True

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        self.shape = array.shape
        self.dtype = array.dtype.newbyteorder("=")

    def jobs(self, spans: Sequence[RowSpan], target: Target) -> list[Job]:
        rows = rows_in(JOB_NBYTES, self.row_nbytes)
        return [functools.partial(self._copy, part, target) for span in spans for part in cut(span, rows)]

    def _copy(self, span: RowSpan, target: Target) -> None:
        began = time.perf_counter()
        span.copy(self._array, target.rows)
        nbytes = self.row_nbytes * span.rows
        target.counters.add(copied_bytes=nbytes, gather_s=time.perf_counter() - began)

    def view(self, spans: Sequence[RowSpan]) -> np.ndarray | None:
        return self._array if self._array.flags.c_contiguous and self._array.dtype == self.dtype else None

    def cost(self, spans: Sequence[RowSpan]) -> Cost:
        nbytes = row_count(spans) * self.row_nbytes
        return Cost(nbytes, nbytes, nbytes)

    @property
    def chunk_geometry(self) -> ChunkGeometry:
        strides = self._array.strides
        order = sorted(range(len(self.shape)), key=lambda axis: -abs(strides[axis]))
        return ChunkGeometry((1,) * len(self.shape), tuple(order))

    def read_box(self, box: Box, out: np.ndarray) -> None:
        out[...] = self._array[box].transpose(self.chunk_geometry.order)
