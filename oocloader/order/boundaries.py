"""Where a set of rows is cut into blocks or windows, without a list of the cuts where one is not needed."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Protocol

import numpy as np


class Boundaries(Protocol):
    """Ascending positions in a set of rows, the first 0 and the last its length. Immutable."""

    def __len__(self) -> int:
        """Number of stretches between edges."""

    def at(self, index: np.ndarray | int) -> np.ndarray:
        """Edges number `index` (0 to `len`), int64."""


class ListedBoundaries:
    """Edges one by one."""

    def __init__(self, edges: np.ndarray) -> None:
        self._edges = edges

    def __len__(self) -> int:
        return len(self._edges) - 1

    def at(self, index: np.ndarray | int) -> np.ndarray:
        return np.asarray(self._edges[index])


class RegularBoundaries:
    """Edges at multiples of `size` from each of some starts, worked out: memory for the starts alone.

    Run `i` begins with edge number `numbers[i]` at position `begins[i]`; its next is at `seconds[i]`, and
    each one after it `size` further.
    """

    def __init__(self, numbers: list[int], begins: list[int], seconds: list[int], size: int) -> None:
        self._numbers = np.array(numbers, np.int64)
        self._begins = np.array(begins, np.int64)
        self._seconds = np.array(seconds, np.int64)
        self._size = size

    def __len__(self) -> int:
        return int(self._numbers[-1])

    def at(self, index: np.ndarray | int) -> np.ndarray:
        index = np.asarray(index)
        run = np.searchsorted(self._numbers, index, side="right") - 1
        beyond = index - self._numbers[run]
        return np.where(beyond == 0, self._begins[run], self._seconds[run] + (beyond - 1) * self._size)


def regular(start: int, stop: int, size: int, chunk_origins: Sequence[int]) -> RegularBoundaries:
    """Cut the stored rows `start:stop` into runs of at most `size`.

    Cuts lie at multiples of `size` in the store, counted from the last of `chunk_origins`. Where few rows lie
    between two cuts, as many neighbours as fit are one.
    """
    numbers, begins, seconds = [0], [0], []
    at, number = start, 0
    while at < stop:
        part = bisect.bisect_right(chunk_origins, at) - 1
        end = min(chunk_origins[part + 1] if part + 1 < len(chunk_origins) else stop, stop)
        # From here the cuts of this part follow each other in steps of `size` ...
        second = chunk_origins[part] + ((at - chunk_origins[part]) // size + 1) * size
        inner = max(0, -(-(end - second) // size))
        if len(chunk_origins) > 1 and _farthest(chunk_origins, at + size, stop) > second:
            inner = 0
        last = second + (inner - 1) * size if inner else at
        # ... up to its last, from which the next edge is the farthest start of a part that can be reached.
        after = _farthest(chunk_origins, last + size, stop)
        seconds.append(second - start)
        at, number = after, number + inner + 1
        numbers.append(number)
        begins.append(at - start)
    seconds.append(stop - start)
    return RegularBoundaries(numbers, begins, seconds, size)


def _farthest(chunk_origins: Sequence[int], reach: int, stop: int) -> int:
    """The last of `chunk_origins` and `stop` that is not beyond `reach`."""
    return stop if stop <= reach else chunk_origins[bisect.bisect_right(chunk_origins, reach) - 1]


def of_picked(picked: np.ndarray, size: int, chunk_origins: Sequence[int]) -> ListedBoundaries:
    """Cut sorted row numbers (int64) as `regular` cuts neighbouring rows."""
    start = np.asarray(chunk_origins, np.int64)[np.searchsorted(chunk_origins, picked, side="right") - 1]
    cell = start + (picked - start) // size * size
    edges = [0, *(np.flatnonzero(np.diff(cell)) + 1).tolist(), len(picked)]
    kept = [0]
    while kept[-1] < edges[-1]:
        kept.append(edges[bisect.bisect_right(edges, kept[-1] + size) - 1])
    return ListedBoundaries(np.array(kept, np.int64))
