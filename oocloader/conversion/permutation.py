"""A random order of any number of rows that takes no memory: each place is computed, both ways.

A Feistel network of six rounds over the numbers below the next power of four, whose rounds mix with the
finalizer of SplitMix64; what falls outside the rows is sent through again until it falls inside. So the
order is a function of the number of rows and the seed alone, on any machine and with any version of NumPy.
"""

from __future__ import annotations

import numpy as np

_ROUNDS = 6
_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
# Numbers mixed at once: they stay in the processor's cache.
_STEP = 1 << 15


class Permutation:
    """The order of `rows` rows that belongs to `seed`, an int of 0 or more."""

    def __init__(self, rows: int, seed: int) -> None:
        self.rows = rows
        self._half = np.uint64(max(1, -(-max(1, (rows - 1).bit_length()) // 2)))
        self._low = np.uint64((1 << int(self._half)) - 1)
        key = 0
        # All bits of a seed count, however many it has.
        while True:
            key = _mixed(key ^ (seed & _MASK))
            seed >>= 64
            if not seed:
                break
        key = _mixed(key ^ rows)
        self._keys = [np.uint64(_mixed(key + number * _GOLDEN)) for number in range(1, _ROUNDS + 1)]

    def old(self, new: np.ndarray) -> np.ndarray:
        """Which rows come to the places `new`; both int64 (n,)."""
        return self._walked(new, self._keys, forward=True)

    def new(self, old: np.ndarray) -> np.ndarray:
        """The places that the rows `old` come to; both int64 (n,)."""
        return self._walked(old, self._keys[::-1], forward=False)

    def _walked(self, numbers: np.ndarray, keys: list[np.uint64], *, forward: bool) -> np.ndarray:
        out = np.empty(len(numbers), np.int64)
        for at in range(0, len(numbers), _STEP):
            found = self._rounds(numbers[at : at + _STEP].astype(np.uint64), keys, forward=forward)
            # At most three in four numbers fall outside, and each walk ends, since the rounds are one to one.
            outside = np.flatnonzero(found >= self.rows)
            while len(outside):
                found[outside] = self._rounds(found[outside], keys, forward=forward)
                outside = outside[found[outside] >= self.rows]
            out[at : at + _STEP] = found.view(np.int64)
        return out

    def _rounds(self, numbers: np.ndarray, keys: list[np.uint64], *, forward: bool) -> np.ndarray:
        left, right = numbers >> self._half, numbers & self._low
        if not forward:
            left, right = right, left
        for key in keys:
            left, right = right, left ^ (_mixed_array(right + key) & self._low)
        if not forward:
            left, right = right, left
        mixed: np.ndarray = (left << self._half) | right
        return mixed


def _mixed(value: int) -> int:
    value = (value + _GOLDEN) & _MASK
    value = ((value ^ (value >> 30)) * _FIRST) & _MASK
    value = ((value ^ (value >> 27)) * _SECOND) & _MASK
    return value ^ (value >> 31)


def _mixed_array(values: np.ndarray) -> np.ndarray:
    """What `_mixed` makes of each, without its addition; `values` is overwritten."""
    values ^= values >> np.uint64(30)
    values *= np.uint64(_FIRST)
    values ^= values >> np.uint64(27)
    values *= np.uint64(_SECOND)
    values ^= values >> np.uint64(31)
    return values
