"""Sets of stored rows, and windows of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oocloader.order import boundaries
from oocloader.order.row_spans import Dest, RowSpan


@dataclass(frozen=True, slots=True)
class RowSet:
    """The rows of a store to use: `start:stop`, or the sorted unique numbers `picked` (int64) of these."""

    start: int
    stop: int
    picked: np.ndarray | None = None

    @classmethod
    def of(cls, rows: np.ndarray) -> RowSet:
        """The set of sorted unique stored rows (int64)."""
        if len(rows) == 0:
            return cls(0, 0)
        first, stop = int(rows[0]), int(rows[-1]) + 1
        return cls(first, stop, None if stop - first == len(rows) else rows)

    def __len__(self) -> int:
        return self.stop - self.start if self.picked is None else len(self.picked)

    def count(self, lo: int, hi: int) -> int:
        """How many of the stored rows `lo:hi` are in the set."""
        if self.picked is None:
            return max(0, min(hi, self.stop) - max(lo, self.start))
        return int(np.searchsorted(self.picked, hi) - np.searchsorted(self.picked, lo))

    def members(self, at: np.ndarray) -> np.ndarray:
        """The stored rows of members number `at` (int64)."""
        return self.start + at if self.picked is None else self.picked[at]

    def part(self, lo: int, hi: int) -> RowSet:
        """Members `lo:hi` as a set of their own."""
        if self.picked is None:
            return RowSet(self.start + lo, self.start + hi)
        return RowSet.of(self.picked[lo:hi])

    def span(self, lo: int, hi: int, dest_index: Dest | None = None) -> RowSpan:
        """Members `lo:hi`, at least one, to `dest_index` of a buffer, None: to its rows in turn."""
        dest = slice(0, hi - lo) if dest_index is None else dest_index
        if self.picked is None:
            return RowSpan(self.start + lo, self.start + hi, None, dest)
        return RowSpan.of(self.picked[lo:hi], dest)

    def boundaries(self, size: int, chunk_origins: Sequence[int]) -> boundaries.Boundaries:
        """Where the set is cut into runs of at most `size` members: positions in it."""
        if self.picked is None:
            return boundaries.of_neighbours(self.start, self.stop, size, chunk_origins)
        return boundaries.of_picked(self.picked, size, chunk_origins)


@dataclass(frozen=True, slots=True)
class Window:
    """The rows staged together: `rows` of them, the first that the pass uses at position `first` of it.

    The pass uses rows `begin:end` of the window, nearly always all of them.
    """

    index: int
    first: int
    rows: int
    spans: tuple[RowSpan, ...]
    begin: int = 0
    end: int = -1

    @property
    def unused(self) -> int:
        """Rows at its end that the pass does not use."""
        return 0 if self.end < 0 else self.rows - self.end
