"""Windows of blocks from all over the rows, and the part of them that a shard gets."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oocloader.order.epoch_cache import EpochCache
from oocloader.order.permutation import BLOCKS, argsorted, permutation, raw
from oocloader.order.row_set import RowSet, Window, span_of

# About this many cards are dealt at once, so that dealing takes little more memory than its result.
_DEALT_AT_ONCE = 1 << 18


@dataclass(frozen=True, slots=True, weakref_slot=True)
class EpochBlocks:
    """Which blocks make which window of an epoch.

    `blocks`: int32 (slots, windows), -1 for none; `first`: where windows begin, int64 (windows + 1,).
    """

    blocks: np.ndarray
    first: np.ndarray


class BlockShuffle:
    """The blocks of every window of every epoch."""

    def __init__(
        self, rows: RowSet, seed: int, block: int, window: int, chunk_origins: Sequence[int]
    ) -> None:
        self.rows = rows
        self.seed = seed
        self.edges = rows.edges(min(block, window), chunk_origins)
        per_window = max(1, window // block)
        # Rows that fit in one window are one.
        self.windows = 1 if len(rows) <= window else -(-len(self.edges) // per_window)
        self.of = EpochCache(self._deal).of

    def _deal(self, epoch: int) -> EpochBlocks:
        blocks, windows = len(self.edges), self.windows
        slots = -(-blocks // windows)
        # The stretches start at another block each epoch, so that the short last one moves about.
        turn = int(raw(self.seed, epoch, 0, 1, skip=slots * windows)[0] % np.uint64(blocks))
        dealt = np.empty((slots, windows), np.int32 if blocks < 2**31 else np.int64)
        rows = np.zeros(windows, np.int64)
        step = max(1, _DEALT_AT_ONCE // windows)
        for slot in range(0, slots, step):
            held = min(step, slots - slot)
            keys = raw(self.seed, epoch, 0, held * windows, skip=slot * windows).reshape(held, windows)
            cards = argsorted(keys)
            cards += np.arange(slot, slot + held)[:, np.newaxis] * windows
            beyond = cards >= blocks
            cards += turn
            cards[cards >= blocks] -= blocks
            cards[beyond] = 0
            sizes = self.edges.at(cards + 1) - self.edges.at(cards)
            sizes[beyond] = 0
            cards[beyond] = -1
            rows += sizes.sum(axis=0)
            dealt[slot : slot + held] = cards
        return EpochBlocks(dealt, np.concatenate([[0], np.cumsum(rows)]))


class BlockWindows:
    """Windows of blocks: the part of each that lies in rows `mine` of the epoch. Thread-safe."""

    def __init__(self, deals: BlockShuffle, mine: tuple[int, int]) -> None:
        self.rows = deals.rows
        self._deals = deals
        self._lo, self._hi = mine
        self._whole = self._hi - self._lo == len(deals.rows)

    def of(self, lo: int, hi: int) -> BlockWindows:
        return BlockWindows(self._deals, (lo, hi))

    def made(self, epoch: int) -> object:
        return self._deals.of(epoch)

    def count(self, epoch: int) -> int:
        if self._whole:
            return self._deals.windows
        begin, end = self._range(self._deals.of(epoch).first)
        return end - begin

    def first(self, epoch: int) -> np.ndarray:
        first = self._deals.of(epoch).first
        begin, end = self._range(first)
        return np.asarray(np.clip(first[begin : end + 1], self._lo, self._hi) - self._lo)

    def window(self, epoch: int, index: int) -> Window:
        deal = self._deals.of(epoch)
        number = index + self._range(deal.first)[0]
        begin, end = deal.first[number : number + 2].tolist()
        lo, hi = max(begin, self._lo), min(end, self._hi)
        column = deal.blocks[:, number]
        blocks = column[column >= 0].astype(np.int64)
        if (lo, hi) != (begin, end):
            turn = int(raw(self._deals.seed, epoch, number, 1, domain=BLOCKS)[0] % np.uint64(len(blocks)))
            blocks = blocks[_spread(len(blocks), turn)]
        begins, ends = self._deals.edges.at(blocks), self._deals.edges.at(blocks + 1)
        if (lo, hi) != (begin, end):
            begins, ends = _within(begins, ends, lo - begin, hi - begin)
        ascending = np.argsort(begins)
        begins, ends = begins[ascending], ends[ascending]
        dest_index = permutation(self._deals.seed, epoch, number + 1, hi - lo)
        # Neighbouring blocks are read as one span.
        apart = np.flatnonzero(begins[1:] != ends[:-1])
        begins, ends = begins[[0, *(apart + 1)]], ends[[*apart, len(ends) - 1]]
        places = [0, *np.cumsum(ends - begins).tolist()]
        spans = [
            span_of(self.rows, first, last, dest_index[at:to])
            for first, last, (at, to) in zip(
                begins.tolist(), ends.tolist(), itertools.pairwise(places), strict=True
            )
        ]
        return Window(index, lo - self._lo, hi - lo, tuple(spans))

    def _range(self, first: np.ndarray) -> tuple[int, int]:
        """The windows of the epoch that hold rows of this part."""
        if self._whole:
            return 0, len(first) - 1
        begin = int(np.searchsorted(first, self._lo, side="right")) - 1
        return begin, int(np.searchsorted(first, self._hi, side="left"))


def _spread(n: int, turn: int) -> np.ndarray:
    """The numbers below `n` in an order of which any stretch is spread evenly over them, int64 (n,).

    Steps of a golden section leave the most even gaps of all (Swierczkowski 1958).

    >>> _spread(8, 3).tolist()
    [3, 0, 5, 2, 7, 4, 1, 6]
    """
    step = max(1, round(n * 0.6180339887498949))
    while math.gcd(step, n) > 1:
        step += 1
    return (turn + np.arange(n, dtype=np.int64) * step) % n


def _within(begins: np.ndarray, ends: np.ndarray, lo: int, hi: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows `lo:hi` of what the stretches hold one behind the other."""
    behind = np.cumsum(ends - begins)
    before = behind - (ends - begins)
    cut = begins + np.maximum(0, lo - before), ends - np.maximum(0, behind - hi)
    some = cut[0] < cut[1]
    return cut[0][some], cut[1][some]
