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

    def __len__(self) -> int:
        return self.stop - self.start if self.picked is None else len(self.picked)

    def count(self, lo: int, hi: int) -> int:
        """How many of the stored rows `lo:hi` are in the set."""
        if self.picked is None:
            return max(0, min(hi, self.stop) - max(lo, self.start))
        return int(np.searchsorted(self.picked, hi) - np.searchsorted(self.picked, lo))

    def stored(self, lo: int, hi: int) -> np.ndarray | tuple[int, int]:
        """Members `lo:hi` of the set: `(first, last + 1)` where they are neighbours, else row numbers."""
        if self.picked is None:
            return self.start + lo, self.start + hi
        rows = self.picked[lo:hi]
        if len(rows) and rows[-1] - rows[0] + 1 == len(rows):
            return int(rows[0]), int(rows[-1]) + 1
        return rows

    def members(self, at: np.ndarray) -> np.ndarray:
        """The stored rows of members number `at` (int64)."""
        return self.start + at if self.picked is None else self.picked[at]

    def part(self, lo: int, hi: int) -> RowSet:
        """Members `lo:hi` as a set of their own."""
        stored = self.stored(lo, hi)
        if isinstance(stored, tuple):
            return RowSet(*stored)
        if len(stored) == 0:
            return RowSet(0, 0)
        return RowSet(int(stored[0]), int(stored[-1]) + 1, stored)

    def edges(self, size: int, chunk_origins: Sequence[int]) -> boundaries.Boundaries:
        """Cut the set into runs of at most `size`: positions in it."""
        if self.picked is None:
            return boundaries.regular(self.start, self.stop, size, chunk_origins)
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


def span_of(rows: RowSet, lo: int, hi: int, to: Dest) -> RowSpan:
    """Members `lo:hi` of a set to `to` of a buffer."""
    stored = rows.stored(lo, hi)
    if isinstance(stored, tuple):
        return RowSpan(*stored, None, to)
    return RowSpan(int(stored[0]), int(stored[-1]) + 1, stored - stored[0], to)
