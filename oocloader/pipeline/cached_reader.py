"""Decoded rows held for later passes, as they are read or before: a reader in place of the store's.

It hands on what the store's reader reads and holds it, until every row is there; from then on it reads from
there. The order of rows is none of its business.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Sequence

import numpy as np

from oocloader.memory import Cost
from oocloader.order import RowSet, RowSpan, apart, cut
from oocloader.pipeline.row_storage import MemoryStorage, RowStorage, positions
from oocloader.reading import JOB_NBYTES, Job, MemoryReader, RowReader, SharedChunks, Target, then
from oocloader.sizes import rows_in

# So many bytes that earlier passes did not deliver (those left over from whole batches) are fetched at once.
_FETCHED_NBYTES = 64 << 20


class CachedReader(RowReader):
    """The rows of `inner`, those in `rows` held in `storage` as they are read, then read from there.

    Passes may be given up, run side by side, or leave rows out: what each reads is held. Rows beyond `rows`,
    which a shard reads of a pass that another number of shards began, come from `inner`.
    """

    def __init__(self, inner: RowReader, rows: RowSet, storage: RowStorage) -> None:
        self.inner = inner
        self.shape = inner.shape
        self.dtype = inner.dtype
        self.chunk_rows = inner.chunk_rows
        self.chunk_origins = inner.chunk_origins
        self.scratch_nbytes = inner.scratch_nbytes
        self._rows = rows
        self._storage = storage
        self._lock = threading.Lock()
        # One bit a row: those that are held.
        self._is_held = np.zeros(-(-len(rows) // 8), np.uint8)
        self._missing = len(rows)
        self._pass: weakref.ref[SharedChunks] | None = None

    @classmethod
    def in_memory(cls, inner: RowReader, rows: RowSet) -> CachedReader:
        """Rows to be held in memory; those of an array that lies there already stay where they are."""
        if isinstance(inner, MemoryReader) and (array := inner.view([])) is not None:
            return cls(inner, RowSet(0, len(array)), MemoryStorage(array.shape, array.dtype, array))
        return cls(inner, rows, MemoryStorage((len(rows), *inner.shape[1:]), inner.dtype))

    @property
    def complete(self) -> bool:
        """Whether rows come from where they are held."""
        return self._storage.complete

    @property
    def row_access(self) -> bool:
        return self._storage.complete or self.inner.row_access

    def put(self, first: int, rows: np.ndarray) -> None:
        """Hold rows that were read elsewhere, the first of them number `first` of those selected."""
        if self._storage.start_filling():
            self._hold([RowSpan(first, first + len(rows), None, slice(0, len(rows)))], rows)

    def jobs(self, spans: Sequence[RowSpan], target: Target) -> list[Job]:
        if not all(self._covers(span.start, span.stop) for span in spans):
            return self.inner.jobs(spans, target)
        filling = not self._storage.complete and self._storage.start_filling()
        # Finished by another process, perhaps.
        if self._storage.complete:
            return self._storage.jobs(positions(self._rows, spans), target)
        jobs = self.inner.jobs(spans, target)
        if not filling:
            return jobs
        jobs = then(jobs, lambda: self._hold(positions(self._rows, spans), target.rows))
        return jobs + self._jobs_for_the_rest(target)

    def map(self, start: int, stop: int) -> np.ndarray | None:
        if not self._storage.complete or not self._covers(start, stop):
            return None
        (span,) = positions(self._rows, [RowSpan(start, stop, None, slice(0, stop - start))])
        return self._storage.map(span.start, span.stop)

    def cost(self, spans: Sequence[RowSpan]) -> Cost:
        return self.inner.cost(spans)

    def close(self) -> None:
        """Let go of what is held; the reader of the store is left open."""
        self._storage.close()

    def _covers(self, start: int, stop: int) -> bool:
        """Whether the rows selected among these stored ones are among those to be held."""
        return self._rows.start <= start and stop <= self._rows.stop

    def _hold(self, spans: Sequence[RowSpan], rows: np.ndarray) -> None:
        self._storage.write(spans, rows)
        with self._lock:
            if self._missing == 0:
                return
            for span in spans:
                at = span.stored_rows()
                byte, bit = at >> 3, (1 << (at & 7)).astype(np.uint8)
                self._missing -= int(np.count_nonzero((self._is_held[byte] & bit) == 0))
                np.bitwise_or.at(self._is_held, byte, bit)
            if self._missing:
                return
        self._storage.finish_filling()

    def _jobs_for_the_rest(self, target: Target) -> list[Job]:
        """In a new pass, jobs that read the few rows which the ones before left out."""
        before, self._pass = self._pass, weakref.ref(target.shared_chunks)
        with self._lock:
            few = 0 < self._missing <= min(len(self._rows) // 2, _FETCHED_NBYTES // max(1, self.row_nbytes))
            if before is None or before() is target.shared_chunks or not few:
                return []
            is_held = np.unpackbits(self._is_held, count=len(self._rows), bitorder="little")
        missing = np.flatnonzero(is_held == 0)
        step = rows_in(JOB_NBYTES, self.row_nbytes)
        parts = (
            part for run in apart(RowSpan.of(missing, slice(0, len(missing))), 0) for part in cut(run, step)
        )
        return [functools.partial(self._fetch, part.start, part.stop, target) for part in parts]

    def _fetch(self, first: int, last: int, target: Target) -> None:
        """Read members `first:last` of those selected, which no pass delivers now."""
        span = self._rows.span(first, last)
        rows = np.empty((last - first, *self.shape[1:]), self.dtype)
        # Chunks of its own: those that the pass shares count on the rows that it delivers.
        for job in self.inner.jobs([span], Target(rows, SharedChunks(lambda lo, hi: 0), target.counters)):
            job()
        self._hold([RowSpan(first, last, None, span.dest_index)], rows)
