"""Decoded rows of slow stores, kept for later passes: in memory, or in a folder for later runs too.

A `CachedReader` stands for the store's reader. It hands on what that reads and keeps it, until every row is
there; from then on it reads what was kept. The order of rows is none of its business.
"""

from __future__ import annotations

import functools
import logging
import math
import os
import shutil
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from oocloader.errors import ClosedError, SettingError, StoreError
from oocloader.memory import Cost
from oocloader.order import RowSet, RowSpan, apart, cut, place
from oocloader.paths import local_path
from oocloader.pipeline.cache_file import CacheFile, Filling, cache_file, first_path
from oocloader.pipeline.memory_rows import memory_jobs, positions
from oocloader.reading import JOB_NBYTES, Job, RowReader, SharedChunks, Target, allocate, then
from oocloader.stores import StoredArray

logger = logging.getLogger("oocloader")
# So many bytes that earlier passes did not deliver (those left over from whole batches) are fetched at once.
_FETCHED_NBYTES = 64 << 20
# How often one looks whether another process has filled the file meanwhile.
_LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class Caching:
    """What `cache=` asks for: nothing, memory, or a folder."""

    folder: str | None = None
    in_memory: bool = False

    @classmethod
    def parse(cls, value: object) -> Caching:
        """Raises `SettingError` where it is neither None, "memory" nor a folder, `StoreError` for a URL."""
        if value is None:
            return cls()
        if isinstance(value, str) and value == "memory":
            return cls(in_memory=True)
        if not isinstance(value, str | os.PathLike) or not str(value):
            raise SettingError(f'cache={value!r} must be None, "memory" or a folder')
        remedy = "name a folder of this machine"
        folder = os.path.abspath(local_path(value, option="cache", remedy=remedy))
        if os.path.exists(folder) and not os.path.isdir(folder):
            raise SettingError(f"cache={value!r} is a file; name a folder")
        return cls(folder=folder)

    def of(self, arrays: Sequence[StoredArray], rows: RowSet) -> Caches:
        """The caches of `arrays`, those in memory left out.

        Makes the folder. Raises `StoreError` where it cannot be made or has no room for what is not there.
        """
        if self.folder is None:
            kept = tuple(self.in_memory and os.path.exists(first_path(array)) for array in arrays)
            return Caches(rows, kept, (None,) * len(arrays))
        try:
            os.makedirs(self.folder, exist_ok=True)
            files = tuple(cache_file(self.folder, array, rows) for array in arrays)
            missing = sum(file.nbytes for file in files if file is not None and not file.there())
            free = shutil.disk_usage(self.folder).free
        except OSError as error:
            if isinstance(error, StoreError):
                raise
            what = f"cache={self.folder!r} cannot be used: {error.strerror or error}"
            raise StoreError(what, file=self.folder) from error
        if missing > free:
            raise StoreError(
                f"cache={self.folder!r} has {free} bytes free, and the decoded rows take {missing}; make "
                "room or name another folder",
                file=self.folder,
            )
        return Caches(rows, (False,) * len(arrays), files)


@dataclass(frozen=True, slots=True)
class Caches:
    """Which arrays are kept in memory, and the file of each of the others (None: none)."""

    rows: RowSet
    in_memory: tuple[bool, ...]
    files: tuple[CacheFile | None, ...]

    def __bool__(self) -> bool:
        """Whether rows of any array are kept."""
        return any(self.in_memory) or any(file is not None for file in self.files)

    def memory_nbytes(self, readers: Sequence[RowReader]) -> int:
        """Memory that rows take when all are kept."""
        return sum(
            len(self.rows) * reader.row_nbytes
            for reader, kept in zip(readers, self.in_memory, strict=True)
            if kept
        )

    @property
    def file_nbytes(self) -> int:
        """What mapping all files takes."""
        return sum(file.nbytes for file in self.files if file is not None)

    def readers(self, readers: Sequence[RowReader], *, gather: bool) -> list[RowReader]:
        """`readers`, those of which rows are kept within a `CachedReader`.

        `gather`: shuffled rows may be gathered from a mapping of the files, which then counts as resident.
        """
        found: list[RowReader] = []
        for reader, kept, file in zip(readers, self.in_memory, self.files, strict=True):
            keep: RowStorage | None = None
            if kept:
                keep = MemoryStorage((len(self.rows), *reader.shape[1:]), reader.dtype)
            elif file is not None:
                keep = FileStorage(file, gather=gather)
            found.append(reader if keep is None else CachedReader(reader, self.rows, keep))
        return found


class RowStorage(Protocol):
    """Where rows are kept, by their place among those selected. Thread-safe."""

    @property
    def complete(self) -> bool:
        """Whether all rows can be had from here."""

    def begin(self) -> bool:
        """Whether rows are to be written here now. May find that it is complete."""

    def write(self, spans: Sequence[RowSpan], rows: np.ndarray) -> None:
        """Keep the rows of `spans`, at their places in `rows`."""

    def finish(self) -> None:
        """Every row was written: from now on it is complete."""

    def jobs(self, spans: Sequence[RowSpan], target: Target) -> list[Job]:
        """What fills `target` with `spans`, once complete."""

    def map(self, start: int, stop: int) -> np.ndarray | None:
        """Rows as a private mapping, or None, once complete."""

    def close(self) -> None:
        """Let go of it; what is not complete is lost."""


class MemoryStorage:
    """Rows in an array in memory, made when the first is kept."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.complete = False
        self._shape = shape
        self._dtype = dtype
        self._rows: np.ndarray | None = None
        self._making = threading.Lock()

    def begin(self) -> bool:
        with self._making:
            if self._rows is None:
                nbytes = math.prod(self._shape) * self._dtype.itemsize
                self._rows = allocate(nbytes).view(self._dtype).reshape(self._shape)
        return True

    def write(self, spans: Sequence[RowSpan], rows: np.ndarray) -> None:
        kept = self._rows
        if kept is None:  # closed
            return
        for span in spans:
            if span.row_index is None:
                kept[span.start : span.stop] = rows[span.dest_index]
            else:
                place(kept[span.start : span.stop], span.row_index, rows[span.dest_index])

    def finish(self) -> None:
        self.complete = True

    def jobs(self, spans: Sequence[RowSpan], target: Target) -> list[Job]:
        rows = self._rows
        if rows is None:
            raise ClosedError("the Loader is closed; make another one")
        return memory_jobs(rows, spans, target)

    def map(self, start: int, stop: int) -> np.ndarray | None:
        return None

    def close(self) -> None:
        self.complete = False
        self._rows = None


class FileStorage:
    """Rows in a file that one process fills and all read."""

    def __init__(self, file: CacheFile, *, gather: bool) -> None:
        self._file = file
        self._gather = gather
        self._filling: Filling | None = None
        self._reader: RowReader | None = None
        self._lock = threading.Lock()
        self._looked_s = -math.inf
        self._closed = False
        self._look()

    @property
    def complete(self) -> bool:
        return self._reader is not None

    def _look(self) -> None:
        if self._file.there():
            self._reader = self._file.reader()

    def begin(self) -> bool:
        with self._lock:
            if self._filling is not None:
                return True
            now = time.monotonic()
            if self._closed or self._reader is not None or now < self._looked_s + _LOOK_S:
                return False
            self._looked_s = now
            self._filling = Filling.begin(self._file)
            if self._filling is None:
                self._look()
            return self._filling is not None

    def write(self, spans: Sequence[RowSpan], rows: np.ndarray) -> None:
        filling = self._filling
        if filling is not None:
            filling.write(spans, rows)

    def finish(self) -> None:
        with self._lock:
            filling, self._filling = self._filling, None
            if filling is None:
                return
            if filling.finish():
                self._look()
            else:
                self._closed = True
                logger.warning(
                    "oocloader: %s: array %r changed while its rows were read for cache=%r: "
                    "nothing is kept of it",
                    self._file.array.store,
                    self._file.array.info.name,
                    self._file.folder,
                )

    def jobs(self, spans: Sequence[RowSpan], target: Target) -> list[Job]:
        reader = self._reader
        if reader is None:
            raise ClosedError("the Loader is closed; make another one")
        view = reader.view(spans) if self._gather else None
        return reader.jobs(spans, target) if view is None else memory_jobs(view, spans, target)

    def map(self, start: int, stop: int) -> np.ndarray | None:
        return None if self._reader is None else self._reader.map(start, stop)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            filling, self._filling = self._filling, None
            reader, self._reader = self._reader, None
        if filling is not None:
            filling.give_up()
        if reader is not None:
            reader.close()


class CachedReader(RowReader):
    """The rows of `inner`, those in `rows` kept as they are read and read from there once all are.

    Passes may be given up, run side by side, or leave rows out: what each reads is kept. Rows beyond `rows`,
    which a shard reads of a pass that another number of shards began, come from `inner`.
    """

    def __init__(self, inner: RowReader, rows: RowSet, keep: RowStorage) -> None:
        self.inner = inner
        self.shape = inner.shape
        self.dtype = inner.dtype
        self.chunk_rows = inner.chunk_rows
        self.chunk_origins = inner.chunk_origins
        self.scratch_nbytes = inner.scratch_nbytes
        self._rows = rows
        self._keep = keep
        self._lock = threading.Lock()
        # One bit a row: those that are kept.
        self._have = np.zeros(-(-len(rows) // 8), np.uint8)
        self._missing = len(rows)
        self._pass: weakref.ref[SharedChunks] | None = None

    @property
    def complete(self) -> bool:
        """Whether rows come from where they are kept."""
        return self._keep.complete

    @property
    def row_access(self) -> bool:
        return self._keep.complete or self.inner.row_access

    def jobs(self, spans: Sequence[RowSpan], target: Target) -> list[Job]:
        if not all(self._covers(span.start, span.stop) for span in spans):
            return self.inner.jobs(spans, target)
        if not self._keep.complete:
            filling = self._keep.begin()
            # Finished by another process, perhaps.
            if not self._keep.complete:
                jobs = self.inner.jobs(spans, target)
                if not filling:
                    return jobs
                return [*self._keeping(jobs, spans, target), *self._fetching(target)]
        return self._keep.jobs(positions(self._rows, spans), target)

    def map(self, start: int, stop: int) -> np.ndarray | None:
        if not self._keep.complete or not self._covers(start, stop):
            return None
        (span,) = positions(self._rows, [RowSpan(start, stop, None, slice(0, stop - start))])
        return self._keep.map(span.start, span.stop)

    def cost(self, spans: Sequence[RowSpan]) -> Cost:
        return self.inner.cost(spans)

    def close(self) -> None:
        """Let go of what was kept; the reader of the store is left open."""
        self._keep.close()

    def _covers(self, start: int, stop: int) -> bool:
        """Whether the rows selected among these stored ones are among those that are kept."""
        return self._rows.start <= start and stop <= self._rows.stop

    def _keeping(self, jobs: Sequence[Job], spans: Sequence[RowSpan], target: Target) -> list[Job]:
        """`jobs`, of which the last to end keeps the rows."""
        return then(jobs, lambda: self._take(positions(self._rows, spans), target.rows))

    def _take(self, spans: Sequence[RowSpan], rows: np.ndarray) -> None:
        self._keep.write(spans, rows)
        with self._lock:
            if self._missing == 0:
                return
            for span in spans:
                self._missing -= self._mark(span)
            if self._missing:
                return
        self._keep.finish()

    def _mark(self, span: RowSpan) -> int:
        """Note that rows are kept: how many were not."""
        at = span.stored_rows()
        byte, bit = at >> 3, (1 << (at & 7)).astype(np.uint8)
        new = int(np.count_nonzero((self._have[byte] & bit) == 0))
        np.bitwise_or.at(self._have, byte, bit)
        return new

    def _fetching(self, target: Target) -> list[Job]:
        """In a new pass, jobs that read the few rows which the ones before left out."""
        before, self._pass = self._pass, weakref.ref(target.shared_chunks)
        row_nbytes = max(1, self.row_nbytes)
        with self._lock:
            few = 0 < self._missing <= min(len(self._rows) // 2, _FETCHED_NBYTES // row_nbytes)
            if before is None or before() is target.shared_chunks or not few:
                return []
            have = np.unpackbits(self._have, count=len(self._rows), bitorder="little")
        return self._reading(np.flatnonzero(have == 0), max(1, JOB_NBYTES // row_nbytes), target)

    def _reading(self, places: np.ndarray, step: int, target: Target) -> list[Job]:
        def read(first: int, last: int) -> None:
            span = self._rows.span(first, last)
            rows = np.empty((last - first, *self.shape[1:]), self.dtype)
            # Bands of its own: those of the pass count on the rows that it delivers.
            for job in self.inner.jobs([span], Target(rows, SharedChunks(lambda lo, hi: 0), target.counters)):
                job()
            self._take([RowSpan(first, last, None, span.dest_index)], rows)

        neighbours = RowSpan.of(places, slice(0, len(places)))
        parts = [part for near in apart(neighbours, 0) for part in cut(near, step)]
        return [functools.partial(read, part.start, part.stop) for part in parts]
