"""Rows kept decoded in memory, and where each row of a selection has its place among them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from oocloader.errors import ClosedError
from oocloader.memory import Cost, row_count
from oocloader.order import RowSet, RowSpan
from oocloader.reading import Job, MemoryReader, RowReader, Target, gather_jobs


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


class MemoryRows(RowReader):
    """The rows of a selection in an array in memory, `(len(rows), *sample_shape)`, asked for by stored row.

    `shape` is that of the stored array. The array may be filled later, but before rows are asked for; it is
    neither written to nor handed out. Thread-safe.
    """

    row_access = True

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

    def cost(self, spans: Sequence[RowSpan]) -> Cost:
        return Cost(0, 0, row_count(spans) * self.row_nbytes)

    def close(self) -> None:
        """Let go of the array."""
        self.array = None


def memory_jobs(array: np.ndarray, spans: Sequence[RowSpan], target: Target) -> list[Job]:
    """Jobs that copy rows of `array`, by their place in it, to their places in `target`."""
    if any(span.row_index is not None or not isinstance(span.dest_index, slice) for span in spans):
        dest_rows = [span.dest_rows() for span in spans]
        filled = max(int(rows.max()) for rows in dest_rows) + 1 - min(int(rows.min()) for rows in dest_rows)
        # A gather writes its part of the buffer from end to end, so all rows of that part must be asked for.
        if filled == row_count(spans):
            return gather_jobs(array, spans, target.rows, target.counters)
    return MemoryReader(array).jobs(spans, target)
