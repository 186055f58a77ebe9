"""Where decoded rows are held, by their place among those selected: in memory, or in a file."""

import logging
import math
import threading
from collections.abc import Sequence

import numpy as np

from oocloader.errors import ClosedError
from oocloader.memory import row_count
from oocloader.order import RowSet, RowSpan, place
from oocloader.pipeline.cache_file import CacheFile, CacheFileWriter
from oocloader.reading import Job, MemoryReader, RowReader, Target, allocate, gather_jobs

logger = logging.getLogger("oocloader")


class MemoryStorage:
    """Rows in an array in memory `(rows, *sample_shape)`, which is neither written to once it is complete nor
    handed out.

    The array is allocated when it is to be filled. With `rows`, an array that is there already, it is
    `complete` from the start: all rows can be had from here.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, rows: np.ndarray | None = None) -> None:
        self.complete = rows is not None
        self._shape = shape
        self._dtype = dtype
        self._rows = rows
        self._closed = False
        self._allocating = threading.Lock()

    def start_filling(self) -> bool:
        """Whether rows are to be written here now. May find that it is complete."""
        with self._allocating:
            if self._rows is None and not self._closed:
                nbytes = math.prod(self._shape) * self._dtype.itemsize
                self._rows = allocate(nbytes).view(self._dtype).reshape(self._shape)
        return not self._closed

    def write(self, spans: Sequence[RowSpan], rows: np.ndarray) -> None:
        """Hold the rows of `spans`, at their places in `rows`."""
        stored = self._rows
        if stored is None:  # closed
            return
        for span in spans:
            to = slice(None) if span.row_index is None else span.row_index
            place(stored[span.start : span.stop], to, rows[span.dest_index])

    def finish_filling(self) -> None:
        """Every row was written: from now on it is complete."""
        self.complete = True

    def jobs(self, spans: Sequence[RowSpan], target: Target) -> list[Job]:
        """What fills `target` with `spans`, once complete."""
        rows = self._rows
        if rows is None:
            raise _closed()
        return _memory_jobs(rows, spans, target)

    def map(self, start: int, stop: int) -> np.ndarray | None:
        """Rows as a private mapping, or None, once complete."""
        return None

    def close(self) -> None:
        """Let go of it; what is not complete is lost."""
        with self._allocating:
            self._closed = True
            self.complete = False
            self._rows = None


class FileStorage:
    """Like `MemoryStorage`, in a file that one process fills and all read.

    `gather`: shuffled rows may be gathered from a mapping of the file, which then counts as resident.
    """

    def __init__(self, file: CacheFile, *, gather: bool) -> None:
        self._file = file
        self._gather = gather
        self._writer: CacheFileWriter | None = None
        self._reader: RowReader | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._open_if_complete()

    @property
    def complete(self) -> bool:
        return self._reader is not None

    def _open_if_complete(self) -> None:
        if self._file.is_complete():
            self._reader = self._file.reader()

    def start_filling(self) -> bool:
        with self._lock:
            if self._writer is not None:
                return True
            if self._closed or self._reader is not None:
                return False
            self._writer = CacheFileWriter.try_start(self._file)
            if self._writer is None:
                self._open_if_complete()
            return self._writer is not None

    def write(self, spans: Sequence[RowSpan], rows: np.ndarray) -> None:
        writer = self._writer
        if writer is not None:
            writer.write(spans, rows)

    def finish_filling(self) -> None:
        with self._lock:
            writer, self._writer = self._writer, None
            if writer is None:
                return
            if writer.finish():
                self._open_if_complete()
                return
            self._closed = True
            array = self._file.array
            logger.warning(
                "oocloader: %s: array %r changed while its rows were read for cache=%r: "
                "nothing is kept of it",
                *(array.store, array.info.name, self._file.folder),
            )

    def jobs(self, spans: Sequence[RowSpan], target: Target) -> list[Job]:
        reader = self._reader
        if reader is None:
            raise _closed()
        view = reader.view(spans) if self._gather else None
        return reader.jobs(spans, target) if view is None else _memory_jobs(view, spans, target)

    def map(self, start: int, stop: int) -> np.ndarray | None:
        return None if self._reader is None else self._reader.map(start, stop)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            writer, self._writer = self._writer, None
            reader, self._reader = self._reader, None
        if writer is not None:
            writer.give_up()
        if reader is not None:
            reader.close()


RowStorage = MemoryStorage | FileStorage


def _closed() -> ClosedError:
    return ClosedError("the Loader is closed; make another one")


def positions(rows: RowSet, spans: Sequence[RowSpan]) -> list[RowSpan]:
    """`spans` of stored rows, all members of `rows`, as spans of the array that holds these members alone.

    >>> positions(RowSet(10, 20), [RowSpan(12, 15, None, slice(0, 3))])
    [RowSpan(start=2, stop=5, row_index=None, dest_index=slice(0, 3, None))]
    """
    if rows.picked is None:
        return [span.from_row(rows.start) for span in spans]
    picked = rows.picked
    # What a span picks ascends, and so do its places.
    return [RowSpan.of(np.searchsorted(picked, span.stored_rows()), span.dest_index) for span in spans]


def _memory_jobs(array: np.ndarray, spans: Sequence[RowSpan], target: Target) -> list[Job]:
    """Jobs that copy rows of `array`, by their place in it, to their places in `target`."""
    if any(span.row_index is not None or not isinstance(span.dest_index, slice) for span in spans):
        dest_rows = [span.dest_rows() for span in spans]
        filled = max(int(rows.max()) for rows in dest_rows) + 1 - min(int(rows.min()) for rows in dest_rows)
        # A gather writes its part of the buffer from end to end, so all rows of that part must be asked for.
        if filled == row_count(spans):
            return gather_jobs(array, spans, target.rows, target.counters)
    return MemoryReader(array).jobs(spans, target)
