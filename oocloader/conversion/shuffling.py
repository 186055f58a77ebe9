"""Rows in a random order, in bounded memory: two passes through buckets.

The first pass reads the rows in order and throws each into the bucket of its new place, a run of places that
fits in memory; buckets are regions of a temporary file. The second reads bucket by bucket and gives out its
rows in their new order. Each byte of the source is read once, written once and read once more.
"""

from __future__ import annotations

import threading

import numpy as np

from oocloader.conversion.derived_rows import Advance, Rows
from oocloader.conversion.scratch import Scratch
from oocloader.conversion.thread_steps import Work, in_steps
from oocloader.errors import ClosedError
from oocloader.order import STORED, RandomPermutation
from oocloader.sizes import nbytes_of_row

# Rows that are read at once in the first pass: larger runs come to each bucket from more of them.
BLOCK_NBYTES = 32 << 20
_MOST_BLOCK_ROWS = 1 << 20


def order_of(rows: int, seed: int) -> RandomPermutation:
    """The order that belongs to this number of rows and `seed`, an int of 0 or more."""
    # Another domain than a loader's: a loader of the same seed does not apply one permutation twice.
    return RandomPermutation(seed, 0, rows, domain=STORED)


class ShuffledRows:
    """The rows of `rows`, `shape` and `dtype`, in the order of a permutation.

    - `bucket_rows`: places of a bucket. Reading whole buckets from their start is cheapest.
    - `folder`: where the temporary file is; `threads` read the source.
    """

    def __init__(
        self,
        rows: Rows,
        order: RandomPermutation,
        *,
        shape: tuple[int, ...],
        dtype: np.dtype,
        bucket_rows: int,
        folder: str,
        threads: int,
    ) -> None:
        self._rows = rows
        self._order = order
        self._shape = shape
        self._dtype = dtype
        self._row_nbytes = nbytes_of_row(shape, dtype)
        self._bucket_rows = bucket_rows
        self._folder = folder
        self._threads = threads
        self._scratch: Scratch | None = None
        self._ready = False
        self._closed = False
        self._lock = threading.Lock()

    def prepare(self, advance: Advance) -> None:
        """Read the whole source, once."""
        self._rows.prepare(advance)
        with self._lock:
            if self._ready:
                return
            self._check_open()
            self._scratch = Scratch(self._folder)
            self._throw(self._scratch, advance)
            self._ready = True

    def _throw(self, scratch: Scratch, advance: Advance) -> None:
        rows, size = self._shape[0], self._bucket_rows
        block_rows = max(1, min(BLOCK_NBYTES // self._row_nbytes, _MOST_BLOCK_ROWS, rows))
        blocks = -(-rows // block_rows)
        # Rows of a bucket lie in the order of the source, whichever thread is first: blocks take their
        # places in turn.
        filled = np.arange(-(-rows // size), dtype=np.int64) * size
        turn = threading.Condition()
        next_block = 0
        given_up = False

        def in_turn(number: int, counts: np.ndarray) -> np.ndarray:
            nonlocal next_block
            with turn:
                turn.wait_for(lambda: next_block == number or given_up)
                if given_up:
                    raise ClosedError("the conversion was given up")
                places = filled.copy()
                filled[:] += counts
                next_block += 1
                turn.notify_all()
            return places

        def give_up() -> None:
            nonlocal given_up
            with turn:
                given_up = True
                turn.notify_all()

        def make_work() -> Work:
            found = np.empty((block_rows, *self._shape[1:]), self._dtype)
            sorted_rows = np.empty_like(found)

            def work(number: int) -> int:
                start = number * block_rows
                count = min(block_rows, rows - start)
                try:
                    self._check_open()
                    bucket = self._order.places(start, start + count) // size
                    by_bucket = np.argsort(bucket, kind="stable")
                    counts = np.bincount(bucket, minlength=len(filled))
                    places = in_turn(number, counts)
                except BaseException:
                    give_up()
                    raise
                self._rows.read(start, start + count, found[:count])
                np.take(found[:count], by_bucket, axis=0, out=sorted_rows[:count], mode="clip")
                ends = np.cumsum(counts)
                used = np.flatnonzero(counts)
                for end, n, place in zip(
                    ends[used].tolist(), counts[used].tolist(), places[used].tolist(), strict=True
                ):
                    scratch.write(sorted_rows[end - n : end], place * self._row_nbytes)
                return count * self._row_nbytes

            return work

        in_steps(blocks, make_work, threads=self._threads, advance=advance)

    def read(self, start: int, stop: int, out: np.ndarray) -> None:
        """Fill `out` with the rows that come to places `start:stop`."""
        self.prepare(lambda nbytes: None)
        size = self._bucket_rows
        for bucket in range(start // size, -(-stop // size)):
            first, last = bucket * size, min((bucket + 1) * size, self._shape[0])
            lo, hi = max(start, first), min(stop, last)
            self._read_bucket(first, last, lo, hi, out[lo - start : hi - start])

    def _read_bucket(self, first: int, last: int, lo: int, hi: int, out: np.ndarray) -> None:
        scratch = self._scratch
        assert scratch is not None
        self._check_open()
        # Rows lie in the order of the source: the rank of each place's row is where it lies.
        ranks = np.empty(last - first, np.int64)
        ranks[np.argsort(self._order.stretch(first, last), kind="stable")] = np.arange(last - first)
        wanted = ranks[lo - first : hi - first]
        low, high = int(wanted.min()), int(wanted.max()) + 1
        found = np.empty((high - low, *self._shape[1:]), self._dtype)
        scratch.read(found, (first + low) * self._row_nbytes)
        np.take(found, wanted - low, axis=0, out=out, mode="clip")

    def close(self) -> None:
        self._closed = True
        self._rows.close()
        if self._scratch is not None:
            self._scratch.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the conversion was given up")


class OrderRows:
    """The permutation itself as rows: at each place the number of the row that came there, plus `first`."""

    def __init__(self, order: RandomPermutation, first: int) -> None:
        self._order = order
        self._first = first

    def prepare(self, advance: Advance) -> None:
        pass

    def read(self, start: int, stop: int, out: np.ndarray) -> None:
        out[:] = self._order.stretch(start, stop) + self._first

    def close(self) -> None:
        pass
