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

import copy
import functools
from collections.abc import Iterator, Sequence
from typing import Literal, Protocol

import numpy as np

from oocloader.order.block_shuffle import BlockShuffle, BlockWindows
from oocloader.order.epoch_cache import EpochCache
from oocloader.order.permutation import RandomPermutation
from oocloader.order.row_set import RowSet, Window
from oocloader.order.row_spans import RowSpan
from oocloader.order.shards import Shard, share

__all__ = ["Order", "RowSequence", "RowSet", "Shuffle", "Window"]

Shuffle = Literal[False, "window", "global"]

# The numbers of so many single rows take ten megabytes, which would be more than small rows themselves.
_SINGLE_AT_ONCE = 1 << 18


class RowSequence(Protocol):
    """What a pass goes through: an `Order`, or what is left of several. Thread-safe."""

    shuffle: Shuffle
    total: int
    """Rows of the pass."""

    def windows(self, epoch: int, *, position: int = 0) -> Iterator[Window]:
        """The windows of a pass from the one that holds row `position` of the pass."""

    def stretch(self, lo: int, hi: int, *, epoch: int = 0) -> list[RowSpan]:
        """Rows `lo:hi` of a pass to consecutive rows of a buffer, where rows are not shuffled in blocks."""

    def stored(self, lo: int, hi: int) -> tuple[int, int] | None:
        """The stored rows that are rows `lo:hi` of an unshuffled pass, where they are neighbours."""

    def count(self, lo: int, hi: int) -> int:
        """How many of the stored rows `lo:hi` the pass may deliver: never fewer than it does."""


class EpochWindows(Protocol):
    """The windows of one pass over rows `lo:hi` of the epoch."""

    @property
    def first(self) -> np.ndarray:
        """Positions of the first row of every window, and the end: int64 (windows + 1,)."""

    def window(self, index: int) -> Window: ...

    def stretch(self, lo: int, hi: int) -> list[RowSpan]:
        """Rows `lo:hi` of the pass to consecutive rows of a buffer."""


class Order:
    """The windows of every pass over `rows`, or over the part of them that is a shard's.

    `shuffle`: False, "window" (True) or "global". `block` and `window` are rows, and a window never has
    more; where shuffled by window, it holds about `window // block` blocks. `chunk_origins`, ascending from
    0, are the stored rows at which chunks begin anew: where several stores are joined, the first row of each.
    Memory does not grow with neighbouring rows, only with blocks and windows. Thread-safe.
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
        if self.shuffle == "window":
            self._blocks = BlockShuffle(rows, seed, block, window, chunk_origins)
        self._permutations = EpochCache(lambda epoch: RandomPermutation(seed, epoch, len(rows)))
        self._take(shard)

    def of_shard(self, shard: Shard) -> Order:
        """The same order for another shard; what was worked out for an epoch is shared."""
        other = copy.copy(self)
        other._take(shard)
        return other

    def _take(self, shard: Shard) -> None:
        self.shard = shard
        self._lo, self._hi = share(len(self.rows), shard)
        self.total = self._hi - self._lo
        # The stored rows that a pass may deliver.
        self._delivered = self.rows if self.shuffle else self.rows.part(self._lo, self._hi)
        if not self.shuffle:
            self._in_order = _InOrder(self._delivered, self.window, self.chunk_origins)

    def _of_epoch(self, epoch: int) -> EpochWindows:
        if self.shuffle == "window":
            return BlockWindows(self._blocks, epoch, self._lo, self._hi)
        if self.shuffle == "global":
            permutation = self._permutations.of(epoch)
            return _Permuted(self.rows, permutation, min(self.window, _SINGLE_AT_ONCE), self._lo, self._hi)
        return self._in_order

    def __len__(self) -> int:
        """Number of windows of a pass; that of a shard's part of them may be another in another epoch."""
        if self.shuffle == "window" and self.total == len(self.rows):
            return self._blocks.windows
        return len(self.first(0)) - 1

    def first(self, epoch: int) -> np.ndarray:
        """Positions of the first row of every window, and the end: int64 (windows + 1,)."""
        return self._of_epoch(epoch).first

    def windows(self, epoch: int, *, position: int = 0) -> Iterator[Window]:
        """The windows of a pass from the one that holds row `position` of the pass."""
        # Held until the end, so that passes of many epochs side by side do not work it out over and over.
        windows = self._of_epoch(epoch)
        first = windows.first
        begin = int(np.searchsorted(first, position, side="right")) - 1
        for index in range(max(0, begin), len(first) - 1):
            yield windows.window(index)

    def at(self, epoch: int, index: int) -> Window:
        """Window `index` of pass `epoch`."""
        return self._of_epoch(epoch).window(index)

    def stretch(self, lo: int, hi: int, *, epoch: int = 0) -> list[RowSpan]:
        """Rows `lo:hi` of a pass to consecutive rows of a buffer; unshuffled or "global" alone."""
        return self._of_epoch(epoch).stretch(lo, hi) if lo < hi else []

    def stored(self, lo: int, hi: int) -> tuple[int, int] | None:
        """The stored rows that are rows `lo:hi` of an unshuffled pass, where they are neighbours."""
        span = None if self.shuffle or lo >= hi else self._delivered.span(lo, hi)
        return None if span is None or span.row_index is not None else (span.start, span.stop)

    def count(self, lo: int, hi: int) -> int:
        """How many of the stored rows `lo:hi` a pass may deliver: never fewer than it does."""
        return self._delivered.count(lo, hi)


class _InOrder:
    """Windows in stored order of all of `rows`, the same in each epoch."""

    def __init__(self, rows: RowSet, window: int, chunk_origins: Sequence[int]) -> None:
        self._rows = rows
        self._boundaries = rows.boundaries(window, chunk_origins)

    @property
    def first(self) -> np.ndarray:
        return self._boundaries[np.arange(len(self._boundaries))]

    def window(self, index: int) -> Window:
        lo, hi = self._boundaries[np.array([index, index + 1])].tolist()
        return Window(index, lo, hi - lo, tuple(self.stretch(lo, hi)))

    def stretch(self, lo: int, hi: int) -> list[RowSpan]:
        return [self._rows.span(lo, hi)]


class _Permuted:
    """Windows of a permutation of all rows, of which its positions `lo:hi` are delivered."""

    def __init__(self, rows: RowSet, permutation: RandomPermutation, window: int, lo: int, hi: int) -> None:
        self._rows = rows
        self._permutation = permutation
        self._window, self._lo, self._hi = window, lo, hi

    @functools.cached_property
    def first(self) -> np.ndarray:
        total = self._hi - self._lo
        return np.minimum(np.arange(-(-total // self._window) + 1) * self._window, total)

    def window(self, index: int) -> Window:
        lo, hi = self.first[index : index + 2].tolist()
        return Window(index, lo, hi - lo, tuple(self.stretch(lo, hi)))

    def stretch(self, lo: int, hi: int) -> list[RowSpan]:
        members = self._permutation.stretch(self._lo + lo, self._lo + hi)
        dest_index = np.argsort(members)
        return [RowSpan.of(self._rows.members(members[dest_index]), dest_index)]
