"""Which rows come when, by rows, seed, epoch, shuffle, block, window, shard and where parts start alone.

A pass is a sequence of windows. In stored order a window is the next stretch of rows. Shuffled by
window, the rows are cut into blocks; every window draws one block from each of as many equal stretches
of the array as it has blocks, so that a window is a fair sample of rows stored in order of their class,
and its rows are permuted within it. Both are cut at multiples of their length, counted from the start of
the store or of the part of it, so that chunks stay whole. Shuffled globally, a window is the next stretch
of one permutation of all rows.

A shard is a range of this sequence. The blocks of a window that it takes in part come in an order that
spreads any part of them over the array, so that it is a fair sample too; rows are permuted within the part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, Protocol

import numpy as np

from oocloader.order.block_shuffle import BlockShuffle, BlockWindows
from oocloader.order.epoch_cache import EpochCache
from oocloader.order.permutation import RandomPermutation
from oocloader.order.row_set import RowSet, Window, span_of
from oocloader.order.row_spans import RowSpan
from oocloader.order.shards import Shard, share

__all__ = ["Order", "RowSequence", "RowSet", "Shuffle", "Window"]

Shuffle = Literal[False, "window", "global"]

# The numbers of so many single rows take ten megabytes, which would be more than small rows themselves.
_SCATTERED_AT_ONCE = 1 << 18


class RowSequence(Protocol):
    """What a pass goes through: an `Order`, or what is left of several. Thread-safe."""

    shuffle: Shuffle
    total: int
    """Rows of the pass."""

    def windows(self, epoch: int, *, position: int = 0) -> Iterator[Window]:
        """The windows of a pass from the one that holds row `position` of the pass."""

    def stretch(self, lo: int, hi: int, *, epoch: int = 0) -> list[RowSpan]:
        """Rows `lo:hi` of a pass to consecutive rows of a buffer, where rows are not dealt in blocks."""

    def stored(self, lo: int, hi: int) -> tuple[int, int] | None:
        """The stored rows that are rows `lo:hi` of an unshuffled pass, where they are neighbours."""

    def count(self, lo: int, hi: int) -> int:
        """How many of the stored rows `lo:hi` the pass may deliver: never fewer than it does."""


class Order:
    """The windows of every pass over `rows`, or over the part of them that is a shard's.

    `shuffle`: False, "window" (True) or "global". `block` and `window` are rows, and a window never has
    more; where shuffled by window, it holds about `window // block` blocks. `chunk_origins`, ascending from
    0, are the stored rows at which chunks begin anew: where several stores are joined, the first row of each.
    Memory does not grow with neighbouring rows, only with blocks. Thread-safe.
    """

    def __init__(
        self,
        rows: RowSet,
        *,
        shuffle: bool | Shuffle,
        seed: int,
        block: int,
        window: int,
        chunk_origins: Sequence[int] = (0,),
        shard: Shard = (0, 1),
    ) -> None:
        self.rows = rows
        self.shuffle: Shuffle = "window" if shuffle is True else shuffle
        self.seed = seed
        self.block = block
        self.window = window
        self.chunk_origins = chunk_origins
        self.shard = shard
        lo, hi = share(len(rows), shard)
        self.total = hi - lo
        self._mine = (lo, hi)
        self._windows: _InOrder | BlockWindows | _PermutedRows
        if not self.shuffle:
            self._windows = _InOrder(rows.part(lo, hi), window, chunk_origins)
        elif self.shuffle == "global":
            self._windows = _PermutedRows(rows, seed, window, (lo, hi))
        else:
            self._windows = BlockWindows(BlockShuffle(rows, seed, block, window, chunk_origins), (lo, hi))

    def of_shard(self, shard: Shard) -> Order:
        """The same order for another shard; what was dealt is shared."""
        other = Order.__new__(Order)
        other.__dict__.update(self.__dict__)
        lo, hi = share(len(self.rows), shard)
        other.shard, other.total, other._mine = shard, hi - lo, (lo, hi)
        if isinstance(self._windows, _InOrder):
            other._windows = _InOrder(self.rows.part(lo, hi), self.window, self.chunk_origins)
        else:
            other._windows = self._windows.of(lo, hi)
        return other

    def __len__(self) -> int:
        """Number of windows of a pass; that of a shard's part of them may be another in another epoch."""
        return self._windows.count(0)

    def first(self, epoch: int) -> np.ndarray:
        """Positions of the first row of every window, and the end: int64 (windows + 1,)."""
        return self._windows.first(epoch)

    def windows(self, epoch: int, *, position: int = 0) -> Iterator[Window]:
        """The windows of a pass from the one that holds row `position` of the pass."""
        # Held until the end, so that passes of many epochs side by side do not make it over and over.
        made = self._windows.made(epoch)
        begin = int(np.searchsorted(self.first(epoch), position, side="right")) - 1
        for index in range(max(0, begin), self._windows.count(epoch)):
            yield self.at(epoch, index)
        del made

    def at(self, epoch: int, index: int) -> Window:
        """Window `index` of pass `epoch`."""
        return self._windows.window(epoch, index)

    def stretch(self, lo: int, hi: int, *, epoch: int = 0) -> list[RowSpan]:
        """Rows `lo:hi` of a pass to consecutive rows of a buffer; unshuffled or "global" alone."""
        if lo >= hi:
            return []
        if isinstance(self._windows, BlockWindows):
            raise TypeError("rows dealt in blocks have no stretches")
        return self._windows.stretch(epoch, lo, hi)

    def stored(self, lo: int, hi: int) -> tuple[int, int] | None:
        """The stored rows that are rows `lo:hi` of an unshuffled pass, where they are neighbours."""
        found = self._windows.rows.stored(lo, hi) if isinstance(self._windows, _InOrder) else None
        return found if isinstance(found, tuple) else None

    def count(self, lo: int, hi: int) -> int:
        """How many of the stored rows `lo:hi` a pass may deliver: never fewer than it does."""
        return self._windows.rows.count(lo, hi)


class _InOrder:
    """Windows in stored order of all of `rows`."""

    def __init__(self, rows: RowSet, window: int, chunk_origins: Sequence[int]) -> None:
        self.rows = rows
        self._edges = rows.edges(window, chunk_origins)

    def made(self, epoch: int) -> object:
        return None

    def count(self, epoch: int) -> int:
        return len(self._edges)

    def first(self, epoch: int) -> np.ndarray:
        return self._edges.at(np.arange(len(self._edges) + 1))

    def window(self, epoch: int, index: int) -> Window:
        lo, hi = self._edges.at(np.array([index, index + 1])).tolist()
        return Window(index, lo, hi - lo, tuple(self.stretch(epoch, lo, hi)))

    def stretch(self, epoch: int, lo: int, hi: int) -> list[RowSpan]:
        return [span_of(self.rows, lo, hi, slice(0, hi - lo))]


class _PermutedRows:
    """Windows of a permutation of all rows, of which `mine` are delivered."""

    def __init__(self, rows: RowSet, seed: int, window: int, mine: tuple[int, int]) -> None:
        self.rows = rows
        self._seed = seed
        self._window = min(window, _SCATTERED_AT_ONCE)
        self._lo, self._hi = mine
        self._orders = EpochCache(lambda epoch: RandomPermutation(seed, epoch, len(rows)))

    def of(self, lo: int, hi: int) -> _PermutedRows:
        return _PermutedRows(self.rows, self._seed, self._window, (lo, hi))

    def made(self, epoch: int) -> object:
        return self._orders.of(epoch)

    def count(self, epoch: int) -> int:
        return -(-(self._hi - self._lo) // self._window)

    def first(self, epoch: int) -> np.ndarray:
        return np.minimum(np.arange(self.count(epoch) + 1) * self._window, self._hi - self._lo)

    def window(self, epoch: int, index: int) -> Window:
        lo = index * self._window
        hi = min(lo + self._window, self._hi - self._lo)
        return Window(index, lo, hi - lo, tuple(self.stretch(epoch, lo, hi)))

    def stretch(self, epoch: int, lo: int, hi: int) -> list[RowSpan]:
        members = self._orders.of(epoch).stretch(self._lo + lo, self._lo + hi)
        dest_index = np.argsort(members)
        stored = self.rows.members(members[dest_index])
        start, stop = int(stored[0]), int(stored[-1]) + 1
        row_index = None if stop - start == len(stored) else stored - start
        return [RowSpan(start, stop, row_index, dest_index)]
