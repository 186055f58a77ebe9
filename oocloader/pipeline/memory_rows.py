"""Rows kept decoded in memory, and where each row of a selection has its place among them."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from oocloader.errors import ClosedError
from oocloader.memory import Cost, row_count
from oocloader.order import Piece, RowSet, place
from oocloader.reading import Job, MemoryReader, Target, gather_jobs


def positions(rows: RowSet, pieces: Sequence[Piece]) -> list[Piece]:
    """`pieces` of stored rows, all members of `rows`, as pieces of the array that holds these members alone.

    >>> positions(RowSet(10, 20), [Piece(12, 15, None, slice(0, 3))])
    [Piece(start=2, stop=5, pick=None, dest=slice(0, 3, None))]
    """
    found = []
    for piece in pieces:
        if rows.picked is None:
            at, until = piece.start - rows.start, piece.stop - rows.start
            found.append(Piece(at, until, piece.pick, piece.dest))
            continue
        wanted = np.arange(piece.start, piece.stop) if piece.pick is None else piece.start + piece.pick
        place = np.searchsorted(rows.picked, wanted)
        # What a piece picks ascends, so as many places as there are between the ends are all of them.
        first, last = int(place[0]), int(place[-1])
        pick = None if last - first + 1 == len(place) else place - first
        found.append(Piece(first, last + 1, pick, piece.dest))
    return found


class KeptRows:
    """The rows of a selection in an array in memory, `(len(rows), *sample_shape)`, asked for by stored row.

    `shape` is that of the stored array. The array may be filled later, but before rows are asked for; it is
    neither written to nor handed out. Thread-safe.
    """

    row_access = True
    chunk_rows: int | None = None
    starts: tuple[int, ...] = (0,)
    scratch_nbytes = 0
    gathered_nbytes = 0

    def __init__(self, array: np.ndarray, rows: RowSet, stored_rows: int) -> None:
        self.array: np.ndarray | None = array
        self.shape = (stored_rows, *array.shape[1:])
        self.dtype = array.dtype
        self._rows = rows

    def jobs(self, pieces: Sequence[Piece], target: Target) -> list[Job]:
        array = self.array
        if array is None:
            raise ClosedError("the Loader is closed; make another one")
        return kept_jobs(array, positions(self._rows, pieces), target)

    def map(self, start: int, stop: int) -> np.ndarray | None:
        return None

    def view(self, pieces: Sequence[Piece]) -> np.ndarray | None:
        return None

    def view_again(self) -> np.ndarray | None:
        return None

    def cost(self, pieces: Sequence[Piece]) -> Cost:
        return Cost(0, 0, row_count(pieces) * math.prod(self.shape[1:]) * self.dtype.itemsize)

    def close(self) -> None:
        """Let go of the array."""
        self.array = None


def kept_jobs(array: np.ndarray, pieces: Sequence[Piece], target: Target) -> list[Job]:
    """Jobs that bring rows of `array`, by their place in it, to their places in `target`."""
    if not pieces:
        return []
    if all(piece.pick is None and isinstance(piece.dest, slice) for piece in pieces):
        return MemoryReader(array).jobs(pieces, target)
    spans = [
        (dest.start, dest.stop) if isinstance(dest, slice) else (int(dest.min()), int(dest.max()) + 1)
        for dest in (piece.dest for piece in pieces)
    ]
    filled = max(stop for _, stop in spans) - min(start for start, _ in spans)
    # A gather writes its part of the buffer from end to end, so all rows of that part must be asked for.
    if filled == sum(piece.rows for piece in pieces):
        return gather_jobs(array, pieces, target.rows, target.counters)
    return [functools.partial(_put, array, piece, target) for piece in pieces]


def _put(array: np.ndarray, piece: Piece, target: Target) -> None:
    rows = array[piece.start : piece.stop]
    place(target.rows, piece.dest, rows if piece.pick is None else rows[piece.pick])
    target.counters.add(copied_bytes=target.rows[:1].nbytes * piece.rows)
