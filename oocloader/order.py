"""Which rows come when: a pure function of rows, seed, epoch, shuffle, block, window and where parts start.

A pass is a sequence of windows. In stored order a window is the next stretch of rows. Shuffled, the
rows are cut into blocks; every window draws one block from each of as many equal stretches of the array
as it has blocks, so that a window is a fair sample of rows stored in order of their class, and its rows
are permuted within it. Both are cut at multiples of their length, counted from the start of the store
or of the part of it, so that chunks stay whole.

Random numbers are the raw output of Philox 4x64-10 (Salmon et al. 2011, "Parallel random numbers: as
easy as 1, 2, 3"), keyed by seed, epoch and window: the stream does not change between NumPy versions.
"""

from __future__ import annotations

import bisect
import itertools
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from oocloader.pieces import Dest, Piece


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


@dataclass(frozen=True, slots=True)
class Window:
    """The rows staged together: `rows` of them, the first at position `first` of the pass."""

    index: int
    first: int
    rows: int
    pieces: tuple[Piece, ...]


class Order:
    """The windows of every pass over `rows`.

    `block` and `window` are rows, and a window never has more; where shuffled, it holds about
    `window // block` blocks. `starts`, ascending from 0, are the stored rows at which chunks begin
    anew: where several stores are joined, the first row of each. Thread-safe.
    """

    def __init__(
        self,
        rows: RowSet,
        *,
        shuffle: bool,
        seed: int,
        block: int,
        window: int,
        starts: Sequence[int] = (0,),
    ) -> None:
        self.rows = rows
        self.shuffle = shuffle
        self.seed = seed
        self.block = block
        self.window = window
        self._lock = threading.Lock()
        self._drawn: tuple[int, np.ndarray, np.ndarray] | None = None
        if shuffle:
            self._edges = _stretches(rows, min(block, window), starts)
            per_window = max(1, window // block)
            # Rows that fit in one window are one.
            self._count = 1 if len(rows) <= window else -(-(len(self._edges) - 1) // per_window)
        else:
            self._edges = _stretches(rows, window, starts)
            self._count = len(self._edges) - 1

    def __len__(self) -> int:
        """Number of windows of a pass."""
        return self._count

    def first(self, epoch: int) -> np.ndarray:
        """Positions of the first row of every window, and the end: int64 (windows + 1,)."""
        return self._draw(epoch)[1] if self.shuffle else self._edges

    def windows(self, epoch: int, *, position: int = 0) -> Iterator[Window]:
        """The windows of a pass from the one that holds row `position` of the pass."""
        first = self.first(epoch)
        begin = int(np.searchsorted(first, position, side="right")) - 1
        for index in range(max(0, begin), self._count):
            yield self.at(epoch, index)

    def at(self, epoch: int, index: int) -> Window:
        """Window `index` of pass `epoch`."""
        if not self.shuffle:
            lo, hi = int(self._edges[index]), int(self._edges[index + 1])
            return Window(index, lo, hi - lo, tuple(self.stretch(lo, hi)))
        slots, first = self._draw(epoch)
        column = slots[:, index]
        chosen = np.sort(column[column >= 0])
        rows = int(first[index + 1] - first[index])
        dest = permutation(self.seed, epoch, index + 1, rows)
        pieces = []
        at = 0
        # Neighbouring blocks are read as one piece.
        for run in np.split(chosen, np.flatnonzero(np.diff(chosen) != 1) + 1):
            lo, hi = int(self._edges[run[0]]), int(self._edges[run[-1] + 1])
            pieces += self._pieces(lo, hi, dest, at)
            at += hi - lo
        return Window(index, int(first[index]), rows, tuple(pieces))

    def stretch(self, lo: int, hi: int) -> list[Piece]:
        """Members `lo:hi` of the rows, in stored order, to consecutive rows of a buffer."""
        return self._pieces(lo, hi, None, 0) if lo < hi else []

    def _pieces(self, lo: int, hi: int, dest: np.ndarray | None, at: int) -> list[Piece]:
        stored = self.rows.stored(lo, hi)
        to: Dest = slice(at, at + hi - lo) if dest is None else dest[at : at + hi - lo]
        if isinstance(stored, tuple):
            return [Piece(*stored, None, to)]
        return [Piece(int(stored[0]), int(stored[-1]) + 1, stored - stored[0], to)]

    def _draw(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Blocks of every window, int64 (slots, windows) with -1 for none, and where windows begin."""
        with self._lock:
            if self._drawn is None or self._drawn[0] != epoch:
                self._drawn = (epoch, *self._deal(epoch))
            return self._drawn[1:]

    def _deal(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        blocks, windows = len(self._edges) - 1, self._count
        slots = -(-blocks // windows)
        raw = _raw(self.seed, epoch, 0, slots * windows + 1)
        # The stretches start at another block each epoch, so that the short last one moves about.
        cards = np.full(slots * windows, -1, np.int64)
        cards[:blocks] = (np.arange(blocks) + int(raw[-1] % np.uint64(blocks))) % blocks
        shuffled = np.argsort(raw[:-1].reshape(slots, windows), axis=1, kind="stable")
        dealt = np.take_along_axis(cards.reshape(slots, windows), shuffled, axis=1)
        sizes = np.append(np.diff(self._edges), 0)[dealt].sum(axis=0)
        return dealt, np.concatenate([[0], np.cumsum(sizes)])


def permutation(seed: int, epoch: int, stream: int, n: int) -> np.ndarray:
    """A random permutation of `range(n)`, int64 (n,), the same for the same numbers everywhere.

    Random keys carry their own index in the low bits, so that one plain sort orders both.
    """
    bits = np.uint64(max(1, (n - 1).bit_length()) if n else 1)
    low = (np.uint64(1) << bits) - np.uint64(1)
    keys = (_raw(seed, epoch, stream, n) & ~low) | np.arange(n, dtype=np.uint64)
    keys.sort()
    return (keys & low).astype(np.int64)


def _raw(seed: int, epoch: int, stream: int, n: int) -> np.ndarray:
    key = np.array([seed, (epoch << 32) | stream], np.uint64)
    return np.random.Philox(key=key).random_raw(n)


def _stretches(rows: RowSet, size: int, starts: Sequence[int]) -> np.ndarray:
    """Cut the set into runs of at most `size`: positions in the set, int64, 0 and len included.

    Cuts lie at multiples of `size` in the store, counted from the last of `starts`. Where few rows lie
    between two cuts, as many neighbours as fit are one.
    """
    if rows.picked is None and len(starts) == 1:
        inner = np.arange(rows.start // size * size + size, rows.stop, size, dtype=np.int64) - rows.start
        return np.concatenate([[0], inner, [len(rows)]])
    if rows.picked is None:
        parts = itertools.pairwise([*starts, rows.stop])
        cuts = np.concatenate([np.arange(*part, size, dtype=np.int64) for part in parts])
        edges = cuts[(cuts > rows.start) & (cuts < rows.stop)] - rows.start
    else:
        start = np.asarray(starts, np.int64)[np.searchsorted(starts, rows.picked, side="right") - 1]
        cell = start + (rows.picked - start) // size * size
        edges = np.flatnonzero(np.diff(cell)) + 1
    return _merged([0, *edges.tolist(), len(rows)], size)


def _merged(edges: list[int], size: int) -> np.ndarray:
    """The fewest of ascending `edges` that leave no gap over `size`, where none is over it: int64."""
    kept = [0]
    while kept[-1] < edges[-1]:
        kept.append(edges[bisect.bisect_right(edges, kept[-1] + size) - 1])
    return np.array(kept, np.int64)
