"""Rows kept decoded in memory, and where each row of a selection has its place among them."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from oocloader.errors import ClosedError
from oocloader.memory import Cost, row_count
from oocloader.order import RowSet, RowSpan
from oocloader.reading import Job, MemoryReader, Target, gather_jobs
from oocloader.sizes import nbytes_of_row


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


class MemoryRows:
    """The rows of a selection in an array in memory, `(len(rows), *sample_shape)`, asked for by stored row.

    `shape` is that of the stored array. The array may be filled later, but before rows are asked for; it is
    neither written to nor handed out. Thread-safe.
    """

    row_access = True
    chunk_rows: int | None = None
    chunk_origins: tuple[int, ...] = (0,)
    scratch_nbytes = 0
    mapped_nbytes = 0

    def __init__(self, array: np.ndarray, rows: RowSet, stored_rows: int) -> None:
        self.array: np.ndarray | None = array
        self.shape = (stored_rows, *array.shape[1:])
        self.dtype = array.dtype
        self._rows = rows

    def jobs(self, spans: Sequence[RowSpan], target: Target) -> list[Job]:
        array = self.array
        if array is None:
            raise ClosedError("the Loader is closed; make another one")
        return memory_jobs(array, positions(self._rows, spans), target)

    def map(self, start: int, stop: int) -> np.ndarray | None:
        return None

    def view(self, spans: Sequence[RowSpan]) -> np.ndarray | None:
        return None

    def fresh_view(self) -> np.ndarray | None:
        return None

    def cost(self, spans: Sequence[RowSpan]) -> Cost:
        return Cost(0, 0, row_count(spans) * nbytes_of_row(self.shape, self.dtype))

    def close(self) -> None:
        """Let go of the array."""
        self.array = None


def memory_jobs(array: np.ndarray, spans: Sequence[RowSpan], target: Target) -> list[Job]:
    """Jobs that bring rows of `array`, by their place in it, to their places in `target`."""
    if not spans:
        return []
    if all(span.row_index is None and isinstance(span.dest_index, slice) for span in spans):
        return MemoryReader(array).jobs(spans, target)
    ends = [(int(dest.min()), int(dest.max()) + 1) for dest in (span.dest_rows() for span in spans)]
    filled = max(stop for _, stop in ends) - min(start for start, _ in ends)
    # A gather writes its part of the buffer from end to end, so all rows of that part must be asked for.
    if filled == sum(span.rows for span in spans):
        return gather_jobs(array, spans, target.rows, target.counters)
    return [functools.partial(_put, array, span, target) for span in spans]


def _put(array: np.ndarray, span: RowSpan, target: Target) -> None:
    span.copy(array, target.rows)
    target.counters.add(copied_bytes=target.rows[:1].nbytes * span.rows)
