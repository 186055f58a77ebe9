"""Rows that another library reads."""

import functools
import time
from collections.abc import Callable, Sequence

import numpy as np

from oocloader.errors import OocloaderError, StoreError
from oocloader.memory import Cost, banded_cost
from oocloader.metrics import Counters
from oocloader.order import RowSpan
from oocloader.reading.boxes import Box, ChunkGeometry
from oocloader.reading.jobs import JOB_NBYTES, Job
from oocloader.reading.locks import Lock
from oocloader.reading.read_errors import rows_error
from oocloader.reading.row_reader import RowReader, Target
from oocloader.reading.shared_chunks import Band
from oocloader.sizes import rows_in


class LibraryReader(RowReader):
    """Rows that another library reads: `read_rows(start, stop, out)` fills `out`, by one thread at a time.

    Chunks are read whole, so that none is decoded twice in a pass; so are about four megabytes where
    there are no chunks. `read_box(box, out)` and the `chunk_geometry` of the array are given where the
    library can read boxes; else whole rows are read, and cut.
    """

    def __init__(
        self,
        read_rows: Callable[[int, int, np.ndarray], None],
        *,
        shape: tuple[int, ...],
        dtype: np.dtype,
        chunk_rows: int | None,
        store: str,
        array: str,
        close: Callable[[], None] | None = None,
        chunk_geometry: ChunkGeometry | None = None,
        read_box: Callable[[Box, np.ndarray], None] | None = None,
    ) -> None:
        self._read_rows = read_rows
        self._read_box = read_box
        self._lock = Lock()
        self._store = store
        self.array = array
        self._close = close
        self.shape = shape
        self.dtype = dtype.newbyteorder("=")
        self._band_rows = min(chunk_rows or rows_in(JOB_NBYTES, self.row_nbytes), max(1, shape[0]))
        self.chunk_rows = self._band_rows
        self.chunk_geometry = chunk_geometry or ChunkGeometry(
            (self._band_rows, *shape[1:]), tuple(range(len(shape)))
        )
        # The library reads rows to memory of its own, and shuffled rows go through a buffer.
        self.scratch_nbytes = 2 * self._band_rows * max(1, self.row_nbytes)

    def jobs(self, spans: Sequence[RowSpan], target: Target) -> list[Job]:
        claim = target.shared_chunks.claim(spans, target.rows, rows=self.shape[0], band_rows=self._band_rows)
        jobs: list[Job] = []
        for band in claim.bands:
            jobs += band.jobs([functools.partial(self._read, band, target.counters)])
        return jobs + claim.copies

    def _read(self, band: Band, counters: Counters) -> None:
        took = self._guarded(band.lo, band.hi, lambda: self._read_rows(band.lo, band.hi, band.rows))
        counters.add(read_calls=1, chunks_decoded=1, decoded_bytes=band.rows.nbytes, library_s=took)

    def read_box(self, box: Box, out: np.ndarray) -> None:
        start, stop = box[0].start, box[0].stop
        if (read_box := self._read_box) is not None:
            self._guarded(start, stop, lambda: read_box(box, out))
            return
        cuts_rows = out.shape[1:] != self.shape[1:]
        rows = np.empty((stop - start, *self.shape[1:]), self.dtype) if cuts_rows else out
        self._guarded(start, stop, lambda: self._read_rows(start, stop, rows))
        if cuts_rows:
            out[...] = rows[(slice(None), *box[1:])]

    def _guarded(self, lo: int, hi: int, read: Callable[[], None]) -> float:
        """Have the library read; the seconds that took. Its errors say where."""
        try:
            with self._lock:
                began = time.perf_counter()
                read()
                return time.perf_counter() - began
        except OocloaderError:
            raise
        except Exception as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            what = f"cannot be read: {reason}"
            raise rows_error(StoreError, what, file=self._store, array=self.array, rows=(lo, hi)) from error

    def cost(self, spans: Sequence[RowSpan]) -> Cost:
        return banded_cost(spans, rows=self.shape[0], band_rows=self._band_rows, row_nbytes=self.row_nbytes)

    def close(self) -> None:
        if self._close is not None:
            with self._lock:
                self._close()
