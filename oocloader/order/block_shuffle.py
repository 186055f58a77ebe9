"""Windows of blocks from all over the rows, and the part of them that a shard gets."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oocloader.order.epoch_cache import EpochCache
from oocloader.order.permutation import BLOCKS, argsorted, permutation, raw
from oocloader.order.row_set import RowSet, Window
from oocloader.order.row_spans import RowSpan, runs

# About this many blocks are drawn at once, so that drawing takes little more memory than its result.
_DRAWN_AT_ONCE = 1 << 18


@dataclass(frozen=True, slots=True, weakref_slot=True)
class DrawnBlocks:
    """Which blocks make which window of an epoch.

    `blocks`: int32 (slots, windows), -1 for none; `first`: where windows begin, int64 (windows + 1,).
    """

    epoch: int
    blocks: np.ndarray
    first: np.ndarray


class BlockShuffle:
    """The blocks of each window of each epoch: one from each of as many stretches as it has blocks."""

    def __init__(
        self, rows: RowSet, seed: int, block: int, window: int, chunk_origins: Sequence[int]
    ) -> None:
        self.rows = rows
        self.seed = seed
        self.boundaries = rows.boundaries(min(block, window), chunk_origins)
        self.blocks = len(self.boundaries) - 1
        # Rows that fit in one window are one.
        self.windows = 1 if len(rows) <= window else -(-self.blocks // max(1, window // block))
        self.drawn = EpochCache(self._draw).of

    def _draw(self, epoch: int) -> DrawnBlocks:
        windows = self.windows
        slots = -(-self.blocks // windows)
        # The stretches start at another block each epoch, so that the short last one moves about.
        offset = int(raw(self.seed, epoch, 0, 1, skip=slots * windows)[0] % np.uint64(self.blocks))
        drawn = np.empty((slots, windows), np.int32 if self.blocks < 2**31 else np.int64)
        rows = np.zeros(windows, np.int64)
        step = max(1, _DRAWN_AT_ONCE // windows)
        for slot in range(0, slots, step):
            count = min(step, slots - slot)
            keys = raw(self.seed, epoch, 0, count * windows, skip=slot * windows).reshape(count, windows)
            blocks = argsorted(keys)
            blocks += np.arange(slot, slot + count)[:, np.newaxis] * windows
            beyond = blocks >= self.blocks
            blocks += offset
            blocks[blocks >= self.blocks] -= self.blocks
            blocks[beyond] = 0
            sizes = self.boundaries[blocks + 1] - self.boundaries[blocks]
            sizes[beyond] = 0
            blocks[beyond] = -1
            rows += sizes.sum(axis=0)
            drawn[slot : slot + count] = blocks
        return DrawnBlocks(epoch, drawn, np.concatenate([[0], np.cumsum(rows)]))


class BlockWindows:
    """The windows of blocks of an epoch: the part of each that lies in rows `lo:hi` of the epoch."""

    def __init__(self, shuffle: BlockShuffle, epoch: int, lo: int, hi: int) -> None:
        self._shuffle = shuffle
        self._drawn = shuffle.drawn(epoch)
        self._lo, self._hi = lo, hi
        first = self._drawn.first
        begin, end = 0, len(first) - 1
        if hi - lo < len(shuffle.rows):
            begin = int(np.searchsorted(first, lo, side="right")) - 1
            end = int(np.searchsorted(first, hi, side="left"))
        self._begin = begin
        self.first = np.clip(first[begin : end + 1], lo, hi) - lo

    def window(self, index: int) -> Window:
        shuffle, drawn = self._shuffle, self._drawn
        number = index + self._begin
        begin, end = drawn.first[number : number + 2].tolist()
        lo, hi = max(begin, self._lo), min(end, self._hi)
        column = drawn.blocks[:, number]
        blocks = column[column >= 0].astype(np.int64)
        in_part = (lo, hi) != (begin, end)
        if in_part:
            random = raw(shuffle.seed, drawn.epoch, number, 1, domain=BLOCKS)[0]
            blocks = blocks[_spread(len(blocks), int(random % np.uint64(len(blocks))))]
        begins, ends = shuffle.boundaries[blocks], shuffle.boundaries[blocks + 1]
        if in_part:
            begins, ends = _within(begins, ends, lo - begin, hi - begin)
        ascending = np.argsort(begins)
        begins, ends = begins[ascending], ends[ascending]
        # Neighbouring blocks are read as one span.
        first, behind = runs(begins, ends)
        begins, ends = begins[first], ends[behind - 1]
        dest_index = permutation(shuffle.seed, drawn.epoch, number + 1, hi - lo)
        places = itertools.pairwise([0, *np.cumsum(ends - begins).tolist()])
        spans = [
            shuffle.rows.span(start, stop, dest_index[at:to])
            for start, stop, (at, to) in zip(begins.tolist(), ends.tolist(), places, strict=True)
        ]
        return Window(index, lo - self._lo, hi - lo, tuple(spans))

    def stretch(self, lo: int, hi: int) -> list[RowSpan]:
        raise TypeError("rows shuffled in blocks have no stretches")


def _spread(n: int, first: int) -> np.ndarray:
    """The numbers below `n` in an order of which any stretch is spread evenly over them, int64 (n,).

    Steps of a golden section leave the most even gaps of all (Swierczkowski 1958).

    >>> _spread(8, 3).tolist()
    [3, 0, 5, 2, 7, 4, 1, 6]
    """
    step = max(1, round(n * 0.6180339887498949))
    while math.gcd(step, n) > 1:
        step += 1
    return (first + np.arange(n, dtype=np.int64) * step) % n


def _within(begins: np.ndarray, ends: np.ndarray, lo: int, hi: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows `lo:hi` of what the ranges hold one behind the other."""
    behind = np.cumsum(ends - begins)
    before = behind - (ends - begins)
    begins, ends = begins + np.maximum(0, lo - before), ends - np.maximum(0, behind - hi)
    some = begins < ends
    return begins[some], ends[some]
