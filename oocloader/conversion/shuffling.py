"""Rows in a random order, in bounded memory: two passes through buckets.

The first pass reads the rows in order and throws each into the bucket of its new place, a run of places that
fits in memory; buckets are regions of a temporary file. The second reads bucket by bucket and gives out its
rows in their new order. Each byte of the source is read once, written once and read once more.
"""

from collections.abc import Iterator
from concurrent.futures import Future

import numpy as np

from oocloader.conversion.derived_rows import Advance, Rows
from oocloader.conversion.scratch import SpooledRows, TwoBuffers
from oocloader.order import STORED, RandomPermutation
from oocloader.sizes import nbytes_of_row

# Rows that are read at once in the first pass: larger runs come to each bucket from more of them.
BLOCK_NBYTES = 32 << 20
_MOST_BLOCK_ROWS = 1 << 20

# First row of a block, where its rows go in each bucket, and where those of the block behind it go.
_Block = tuple[int, "Future[np.ndarray]", "Future[np.ndarray]"]


def order_of(rows: int, seed: int) -> RandomPermutation:
    """The order that belongs to this number of rows and `seed`, an int of 0 or more."""
    # Another domain than a loader's: a loader of the same seed does not apply one permutation twice.
    return RandomPermutation(seed, 0, rows, domain=STORED)


class ShuffledRows(SpooledRows[_Block]):
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
        super().__init__(folder, dtype=dtype, threads=threads)
        self._rows = rows
        self._order = order
        self._shape = shape
        self._row_nbytes = nbytes_of_row(shape, dtype)
        self._bucket_rows = bucket_rows
        self._block_rows = max(1, min(BLOCK_NBYTES // self._row_nbytes, _MOST_BLOCK_ROWS, shape[0]))

    def prepare(self, advance: Advance) -> None:
        self._rows.prepare(advance)
        super().prepare(advance)

    def _buffer_shape(self) -> tuple[int, ...]:
        return (self._block_rows, *self._shape[1:])

    def _parts(self) -> Iterator[_Block]:
        # Rows of a bucket lie in the order of the source, whichever thread is first: each block says where
        # the one behind it goes on.
        places: Future[np.ndarray] = Future()
        places.set_result(np.arange(0, self._shape[0], self._bucket_rows))
        for start in range(0, self._shape[0], self._block_rows):
            following: Future[np.ndarray] = Future()
            yield start, places, following
            places = following

    def _lay_aside(self, part: _Block, memory: TwoBuffers) -> int:
        """Read a block and lay its rows into their buckets."""
        start, places, following = part
        stop = min(start + self._block_rows, self._shape[0])
        try:
            bucket = self._order.places(start, stop) // self._bucket_rows
            counts = np.bincount(bucket, minlength=-(-self._shape[0] // self._bucket_rows))
            following.set_result(places.result() + counts)
        except BaseException as error:
            following.set_exception(error)
            raise
        found, sorted_rows = memory.first[: stop - start], memory.second[: stop - start]
        by_bucket = np.argsort(bucket, kind="stable")
        self._rows.read(start, stop, found)
        np.take(found, by_bucket, axis=0, out=sorted_rows, mode="clip")
        used = np.flatnonzero(counts)
        runs = np.cumsum(counts)[used], counts[used], places.result()[used]
        for end, count, place in zip(*(run.tolist() for run in runs), strict=True):
            self._scratch.write(sorted_rows[end - count : end], place * self._row_nbytes)
        return found.nbytes

    def read(self, start: int, stop: int, out: np.ndarray) -> None:
        """Fill `out` with the rows that come to places `start:stop`."""
        self.prepare(lambda nbytes: None)
        size = self._bucket_rows
        for bucket in range(start // size, -(-stop // size)):
            first, last = bucket * size, min((bucket + 1) * size, self._shape[0])
            lo, hi = max(start, first), min(stop, last)
            self._read_bucket(first, last, lo, hi, out[lo - start : hi - start])

    def _read_bucket(self, first: int, last: int, lo: int, hi: int, out: np.ndarray) -> None:
        # Rows lie in the order of the source: the rank of each place's row is where it lies.
        ranks = np.empty(last - first, np.int64)
        ranks[np.argsort(self._order.stretch(first, last), kind="stable")] = np.arange(last - first)
        wanted = ranks[lo - first : hi - first]
        low, high = int(wanted.min()), int(wanted.max()) + 1
        found = np.empty((high - low, *self._shape[1:]), self._dtype)
        self._scratch.read(found, (first + low) * self._row_nbytes)
        np.take(found, wanted - low, axis=0, out=out, mode="clip")

    def close(self) -> None:
        self._rows.close()
        super().close()


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
