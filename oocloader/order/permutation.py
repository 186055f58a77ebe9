"""Random permutations that are the same everywhere, whole or at any stretch of their positions.

Random numbers are the raw output of Philox 4x64-10 (Salmon et al. 2011, "Parallel random numbers: as
easy as 1, 2, 3"), keyed by seed, epoch and stream: the stream does not change between NumPy versions.
"""

import math
from functools import cached_property

import numpy as np

# The domains of the random numbers of one seed and epoch, so that none is used for two things.
WINDOWS, BLOCKS, ROWS, SPLIT, STORED, SEEDS = range(6)
# Up to this many numbers are permuted at once: exactly uniform, in half a megabyte.
_AT_ONCE = 1 << 16
# With four, the 100,000 neighbours of a permutation are as far apart as chance has them.
_ROUNDS = 8
# Numbers that go through at once, in the processor's cache: a million took twice the time each.
_STEP = 1 << 15
# Of the finalisers of splitmix64 (Steele, Lea, Flood 2014).
_MIX1, _MIX2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_HALF = np.uint64(32)
_MASK = (1 << 64) - 1


def raw(seed: int, epoch: int, stream: int, n: int, *, domain: int = WINDOWS, skip: int = 0) -> np.ndarray:
    """`n` random numbers, uint64, from number `skip` of the stream on."""
    key = np.array([seed, (epoch << 32) | stream], np.uint64)
    # A step of the counter makes four numbers.
    steps, lead = divmod(skip, 4)
    counter = np.array([steps, 0, 0, domain], np.uint64)
    return np.random.Philox(key=key, counter=counter).random_raw(lead + n)[lead:]


def permutation(seed: int, epoch: int, stream: int, n: int, *, domain: int = WINDOWS) -> np.ndarray:
    """A random permutation of `range(n)`, int64 (n,), the same for the same numbers everywhere.

    Random keys carry their own index in the low bits, so that one plain sort orders both.
    """
    bits = np.uint64(max(1, (n - 1).bit_length()) if n else 1)
    low = (np.uint64(1) << bits) - np.uint64(1)
    keys = (raw(seed, epoch, stream, n, domain=domain) & ~low) | np.arange(n, dtype=np.uint64)
    keys.sort()
    return (keys & low).astype(np.int64)


def argsorted(keys: np.ndarray) -> np.ndarray:
    """What sorts each row of random keys (uint64, 2-d), the first of equal ones first: int64, 2-d.

    Keys that carry their own index are sorted several times as fast; rows where that would hide which key is
    less, one in millions, are sorted as they are.
    """
    n = keys.shape[1]
    bits = np.uint64(max(1, (n - 1).bit_length()))
    low = (np.uint64(1) << bits) - np.uint64(1)
    packed = (keys & ~low) | np.arange(n, dtype=np.uint64)
    packed.sort(axis=1)
    order = (packed & low).astype(np.int64)
    packed >>= bits
    for row in np.flatnonzero((packed[:, 1:] == packed[:, :-1]).any(axis=1)):
        order[row] = np.argsort(keys[row], kind="stable")
    return order


class RandomPermutation:
    """A random permutation of `range(n)` of which any stretch is worked out alone, both ways. Thread-safe.

    A Feistel network over pairs (left, right) with `left * width + right` a little more than the numbers
    there are; what falls behind them goes through it again (Black and Rogaway 2002, "Ciphers with
    arbitrary finite domains"). All bits of `seed` count, an int of 0 or more.
    """

    def __init__(self, seed: int, epoch: int, n: int, *, domain: int = ROWS) -> None:
        self.n = n
        seed = _folded(seed)
        self._all = permutation(seed, epoch, 0, n, domain=domain) if n <= _AT_ONCE else None
        self._keys = list(enumerate(raw(seed, epoch, 1, _ROUNDS, domain=domain)))
        height = math.isqrt(max(0, n - 1)) + 1
        self._sides = np.uint64(height), np.uint64(-(-n // height))

    def stretch(self, lo: int, hi: int) -> np.ndarray:
        """The numbers at positions `lo:hi`, int64 (hi - lo,)."""
        return self._walked(lo, hi, back=False) if self._all is None else self._all[lo:hi]

    def places(self, lo: int, hi: int) -> np.ndarray:
        """The positions of the numbers `lo:hi`, int64 (hi - lo,)."""
        return self._walked(lo, hi, back=True) if self._all is None else self._all_places[lo:hi]

    @cached_property
    def _all_places(self) -> np.ndarray:
        assert self._all is not None
        places = np.empty_like(self._all)
        places[self._all] = np.arange(self.n)
        return places

    def _walked(self, lo: int, hi: int, *, back: bool) -> np.ndarray:
        out = np.empty(hi - lo, np.uint64)
        for at in range(lo, hi, _STEP):
            numbers = out[at - lo : at - lo + _STEP]
            numbers[:] = self._through(np.arange(at, at + len(numbers), dtype=np.uint64), back=back)
            # Each walk ends, since the network is one to one.
            beyond = np.flatnonzero(numbers >= np.uint64(self.n))
            while len(beyond):
                numbers[beyond] = self._through(numbers[beyond], back=back)
                beyond = beyond[numbers[beyond] >= np.uint64(self.n)]
        return out.view(np.int64)

    def _through(self, numbers: np.ndarray, *, back: bool) -> np.ndarray:
        width = self._sides[1]
        left = numbers // width
        halves = [left, numbers - left * width]
        mixed, shifted = np.empty_like(left), np.empty_like(left)
        for turn, key in reversed(self._keys) if back else self._keys:
            side = turn % 2
            half, length = halves[side], self._sides[side]
            np.add(halves[1 - side], key, out=mixed)
            mixed ^= np.right_shift(mixed, np.uint64(30), out=shifted)
            mixed *= _MIX1
            mixed ^= np.right_shift(mixed, np.uint64(27), out=shifted)
            mixed *= _MIX2
            mixed >>= _HALF
            # A number below the side's length, without dividing.
            mixed *= length
            mixed >>= _HALF
            # Modulo the length: of the two that can be right, the wrong one is larger, since below zero
            # numbers go on from 2**64.
            if back:
                half -= mixed
                np.minimum(half, np.add(half, length, out=shifted), out=half)
            else:
                half += mixed
                np.minimum(half, np.subtract(half, length, out=shifted), out=half)
        through: np.ndarray = halves[0] * width + halves[1]
        return through


def _folded(seed: int) -> int:
    """A seed of any size in 64 bits; one that has no more is itself."""
    low = seed & _MASK
    while seed := seed >> 64:
        low = int(raw(low, 0, 0, 1, domain=SEEDS)[0]) ^ (seed & _MASK)
    return low
