"""Where a set of rows is cut into blocks or windows, without a list of the cuts where one is not needed."""

import bisect
from collections.abc import Sequence
from typing import Protocol

import numpy as np


class Boundaries(Protocol):
    """Ascending positions in a set of rows, the first 0 and the last its length, int64. Immutable."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: np.ndarray) -> np.ndarray: ...


class RegularBoundaries:
    """Boundaries at multiples of `size` from each of some starts, worked out: memory for the starts alone.

    Run `i` begins with boundary number `numbers[i]` at position `begins[i]`; its next is at `seconds[i]`, and
    each one after it `size` further.

    No row of the bench is quicker for it: it stays for its memory. Listed, blocks of one row of 2 * 10**8
    take 1.6 GB more and seconds before a pass can be planned; blocks of 100 rows of 10**9 take 80 MB more.
    """

    def __init__(self, numbers: list[int], begins: list[int], seconds: list[int], size: int) -> None:
        self._numbers, self._begins, self._seconds = map(np.array, (numbers, begins, seconds))
        self._size = size

    def __len__(self) -> int:
        return int(self._numbers[-1]) + 1

    def __getitem__(self, index: np.ndarray) -> np.ndarray:
        run = np.searchsorted(self._numbers, index, side="right") - 1
        beyond = index - self._numbers[run]
        return np.where(beyond == 0, self._begins[run], self._seconds[run] + (beyond - 1) * self._size)


def of_neighbours(start: int, stop: int, size: int, chunk_origins: Sequence[int]) -> RegularBoundaries:
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
        # ... up to its last, from which the next cut is the farthest start of a part that can be reached.
        at, number = _farthest(chunk_origins, last + size, stop), number + inner + 1
        seconds.append(second - start)
        numbers.append(number)
        begins.append(at - start)
    return RegularBoundaries(numbers, begins, [*seconds, stop - start], size)


def _farthest(chunk_origins: Sequence[int], reach: int, stop: int) -> int:
    """The last of `chunk_origins` and `stop` that is not beyond `reach`."""
    return stop if stop <= reach else chunk_origins[bisect.bisect_right(chunk_origins, reach) - 1]


def of_picked(picked: np.ndarray, size: int, chunk_origins: Sequence[int]) -> np.ndarray:
    """Cut sorted row numbers (int64) as `of_neighbours` cuts neighbouring rows."""
    start = np.asarray(chunk_origins, np.int64)[np.searchsorted(chunk_origins, picked, side="right") - 1]
    cell = start + (picked - start) // size * size
    cuts = [0, *(np.flatnonzero(np.diff(cell)) + 1).tolist(), len(picked)]
    merged = [0]
    while merged[-1] < cuts[-1]:
        merged.append(cuts[bisect.bisect_right(cuts, merged[-1] + size) - 1])
    return np.array(merged, np.int64)
