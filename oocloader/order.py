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

import itertools
import math
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

import numpy as np

from oocloader import edges
from oocloader.permutation import BLOCKS, Scattered, permutation, raw
from oocloader.pieces import Dest, Piece
from oocloader.shards import Shard, share

Shuffle = Literal[False, "window", "global"]
T = TypeVar("T")

# About this many cards are dealt at once, so that dealing takes little more memory than its result.
_DEALT_AT_ONCE = 1 << 18
# The numbers of so many single rows take ten megabytes, which would be more than small rows themselves.
_SCATTERED_AT_ONCE = 1 << 18
# Passes of neighbouring epochs may run side by side.
_EPOCHS_KEPT = 2


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
        return RowSet(int(stored[0]), int(stored[-1]) + 1, stored)

    def edges(self, size: int, starts: Sequence[int]) -> edges.Edges:
        """Cut the set into runs of at most `size`: positions in it."""
        if self.picked is None:
            return edges.regular(self.start, self.stop, size, starts)
        return edges.of_picked(self.picked, size, starts)


@dataclass(frozen=True, slots=True)
class Window:
    """The rows staged together: `rows` of them, the first that the pass uses at position `first` of it.

    The pass uses rows `begin:end` of the window, nearly always all of them.
    """

    index: int
    first: int
    rows: int
    pieces: tuple[Piece, ...]
    begin: int = 0
    end: int = -1

    @property
    def unused(self) -> int:
        """Rows at its end that the pass does not use."""
        return 0 if self.end < 0 else self.rows - self.end


class Course(Protocol):
    """What a pass goes through: an `Order`, or what is left of several. Thread-safe."""

    shuffle: Shuffle
    total: int
    """Rows of the pass."""

    def windows(self, epoch: int, *, position: int = 0) -> Iterator[Window]:
        """The windows of a pass from the one that holds row `position` of the pass."""

    def stretch(self, lo: int, hi: int, *, epoch: int = 0) -> list[Piece]:
        """Rows `lo:hi` of a pass to consecutive rows of a buffer, where rows are not dealt in blocks."""

    def stored(self, lo: int, hi: int) -> tuple[int, int] | None:
        """The stored rows that are rows `lo:hi` of an unshuffled pass, where they are neighbours."""

    def count(self, lo: int, hi: int) -> int:
        """How many of the stored rows `lo:hi` the pass may deliver: never fewer than it does."""


class Order:
    """The windows of every pass over `rows`, or over the part of them that is a shard's.

    `shuffle`: False, "window" (True) or "global". `block` and `window` are rows, and a window never has
    more; where shuffled by window, it holds about `window // block` blocks. `starts`, ascending from 0,
    are the stored rows at which chunks begin anew: where several stores are joined, the first row of each.
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
        starts: Sequence[int] = (0,),
        shard: Shard = (0, 1),
    ) -> None:
        self.rows = rows
        self.shuffle: Shuffle = "window" if shuffle is True else shuffle
        self.seed = seed
        self.block = block
        self.window = window
        self.starts = starts
        self.shard = shard
        lo, hi = share(len(rows), shard)
        self.total = hi - lo
        self._mine = (lo, hi)
        self._windows: _InOrder | _Dealt | _Scattered
        if not self.shuffle:
            self._windows = _InOrder(rows.part(lo, hi), window, starts)
        elif self.shuffle == "global":
            self._windows = _Scattered(rows, seed, window, (lo, hi))
        else:
            self._windows = _Dealt(_Deals(rows, seed, block, window, starts), (lo, hi))

    def of_shard(self, shard: Shard) -> Order:
        """The same order for another shard; what was dealt is shared."""
        other = Order.__new__(Order)
        other.__dict__.update(self.__dict__)
        lo, hi = share(len(self.rows), shard)
        other.shard, other.total, other._mine = shard, hi - lo, (lo, hi)
        if isinstance(self._windows, _InOrder):
            other._windows = _InOrder(self.rows.part(lo, hi), self.window, self.starts)
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

    def stretch(self, lo: int, hi: int, *, epoch: int = 0) -> list[Piece]:
        """Rows `lo:hi` of a pass to consecutive rows of a buffer; unshuffled or "global" alone."""
        if lo >= hi:
            return []
        if isinstance(self._windows, _Dealt):
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

    def __init__(self, rows: RowSet, window: int, starts: Sequence[int]) -> None:
        self.rows = rows
        self._edges = rows.edges(window, starts)

    def made(self, epoch: int) -> object:
        return None

    def count(self, epoch: int) -> int:
        return len(self._edges)

    def first(self, epoch: int) -> np.ndarray:
        return self._edges.at(np.arange(len(self._edges) + 1))

    def window(self, epoch: int, index: int) -> Window:
        lo, hi = self._edges.at(np.array([index, index + 1])).tolist()
        return Window(index, lo, hi - lo, tuple(self.stretch(epoch, lo, hi)))

    def stretch(self, epoch: int, lo: int, hi: int) -> list[Piece]:
        return [_piece(self.rows, lo, hi, slice(0, hi - lo))]


class _Scattered:
    """Windows of a permutation of all rows, of which `mine` are delivered."""

    def __init__(self, rows: RowSet, seed: int, window: int, mine: tuple[int, int]) -> None:
        self.rows = rows
        self._seed = seed
        self._window = min(window, _SCATTERED_AT_ONCE)
        self._lo, self._hi = mine
        self._orders = _Recent(lambda epoch: Scattered(seed, epoch, len(rows)))

    def of(self, lo: int, hi: int) -> _Scattered:
        return _Scattered(self.rows, self._seed, self._window, (lo, hi))

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

    def stretch(self, epoch: int, lo: int, hi: int) -> list[Piece]:
        members = self._orders.of(epoch).stretch(self._lo + lo, self._lo + hi)
        dest = np.argsort(members)
        stored = self.rows.members(members[dest])
        start, stop = int(stored[0]), int(stored[-1]) + 1
        pick = None if stop - start == len(stored) else stored - start
        return [Piece(start, stop, pick, dest)]


@dataclass(frozen=True, slots=True, weakref_slot=True)
class _Deal:
    """Which blocks make which window of an epoch.

    `blocks`: int32 (slots, windows), -1 for none; `first`: where windows begin, int64 (windows + 1,).
    """

    blocks: np.ndarray
    first: np.ndarray


class _Deals:
    """The blocks of every window of every epoch."""

    def __init__(self, rows: RowSet, seed: int, block: int, window: int, starts: Sequence[int]) -> None:
        self.rows = rows
        self.seed = seed
        self.edges = rows.edges(min(block, window), starts)
        per_window = max(1, window // block)
        # Rows that fit in one window are one.
        self.windows = 1 if len(rows) <= window else -(-len(self.edges) // per_window)
        self.of = _Recent(self._deal).of

    def _deal(self, epoch: int) -> _Deal:
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
            cards = np.argsort(keys, axis=1, kind="stable")
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
        return _Deal(dealt, np.concatenate([[0], np.cumsum(rows)]))


class _Dealt:
    """Windows of blocks: the part of each that lies in rows `mine` of the epoch."""

    def __init__(self, deals: _Deals, mine: tuple[int, int]) -> None:
        self.rows = deals.rows
        self._deals = deals
        self._lo, self._hi = mine
        self._whole = self._hi - self._lo == len(deals.rows)

    def of(self, lo: int, hi: int) -> _Dealt:
        return _Dealt(self._deals, (lo, hi))

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
        dest = permutation(self._deals.seed, epoch, number + 1, hi - lo)
        # Neighbouring blocks are read as one piece.
        apart = np.flatnonzero(begins[1:] != ends[:-1])
        begins, ends = begins[[0, *(apart + 1)]], ends[[*apart, len(ends) - 1]]
        places = [0, *np.cumsum(ends - begins).tolist()]
        pieces = [
            _piece(self.rows, first, last, dest[at:to])
            for first, last, (at, to) in zip(
                begins.tolist(), ends.tolist(), itertools.pairwise(places), strict=True
            )
        ]
        return Window(index, lo - self._lo, hi - lo, tuple(pieces))

    def _range(self, first: np.ndarray) -> tuple[int, int]:
        """The windows of the epoch that hold rows of this part."""
        if self._whole:
            return 0, len(first) - 1
        begin = int(np.searchsorted(first, self._lo, side="right")) - 1
        return begin, int(np.searchsorted(first, self._hi, side="left"))


class _Recent(Generic[T]):
    """What was made for the latest epochs asked for, and for those still in use. Thread-safe."""

    def __init__(self, make: Callable[[int], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._used: weakref.WeakValueDictionary[int, T] = weakref.WeakValueDictionary()
        self._latest: deque[T] = deque(maxlen=_EPOCHS_KEPT)

    def of(self, epoch: int) -> T:
        with self._lock:
            found = self._used.get(epoch)
            if found is None:
                found = self._used[epoch] = self._make(epoch)
                self._latest.append(found)
            return found


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


def _piece(rows: RowSet, lo: int, hi: int, to: Dest) -> Piece:
    stored = rows.stored(lo, hi)
    if isinstance(stored, tuple):
        return Piece(*stored, None, to)
    return Piece(int(stored[0]), int(stored[-1]) + 1, stored - stored[0], to)
