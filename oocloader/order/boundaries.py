"""Where a set of rows is cut into blocks or windows: ascending positions in it, int64.

The first is 0 and the last the length of the set.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

import numpy as np


def of_neighbours(start: int, stop: int, size: int, chunk_origins: Sequence[int]) -> np.ndarray:
    """Cut the stored rows `start:stop` into runs of at most `size`.

    Cuts lie at multiples of `size` in the store, counted from the last of `chunk_origins`. Where few rows lie
    between two cuts, as many neighbours as fit are one.
    """
    cuts: list[np.ndarray] = []
    at = start
    while at < stop:
        part = bisect.bisect_right(chunk_origins, at) - 1
        end = min(chunk_origins[part + 1] if part + 1 < len(chunk_origins) else stop, stop)
        # From here the cuts of this part follow each other in steps of `size` ...
        second = chunk_origins[part] + ((at - chunk_origins[part]) // size + 1) * size
        inner = max(0, -(-(end - second) // size))
        if len(chunk_origins) > 1 and _farthest(chunk_origins, at + size, stop) > second:
            inner = 0
        cuts += [np.array([at]), second + size * np.arange(inner)]
        # ... up to its last, from which the next cut is the farthest start of a part that can be reached.
        at = _farthest(chunk_origins, int(cuts[-1][-1] if inner else at) + size, stop)
    return np.concatenate([*cuts, [stop]]) - start


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
