"""Rows on their way to the new store: what is copied, read one way or another."""

from collections.abc import Callable, Sequence
from typing import Protocol, SupportsIndex

import numpy as np

from oocloader.reading import RowReader, read_rows
from oocloader.stores import ArrayInfo, StoredArray

Advance = Callable[[int], object]
"""Told how many bytes more are done."""


class Rows(Protocol):
    """Rows of an array. Thread-safe."""

    def prepare(self, advance: Advance) -> None:
        """Do what comes before the first row can be read; nothing where that was done."""

    def read(self, start: int, stop: int, out: np.ndarray) -> None:
        """Fill `out`, `(stop - start, *sample_shape)`, native byte order and C order."""

    def close(self) -> None:
        """Let go of temporary files, not of the source; what is under way ends with an error."""


class StoredRows:
    """Rows `first` on of an array of a store, as they are. `threads` read what one call asks for."""

    def __init__(self, array: StoredArray, first: int = 0, *, threads: int = 1) -> None:
        self._array = array
        self._first = first
        self._threads = threads

    def prepare(self, advance: Advance) -> None:
        pass

    def read(self, start: int, stop: int, out: np.ndarray) -> None:
        first, last = self._first + start, self._first + stop
        read_rows(self._array.reader, first, last, out, most_threads=self._threads)

    def close(self) -> None:
        pass


class DerivedArray(StoredArray):
    """An array whose rows are made of another's: `info` describes them, `rows` fills them.

    `base` is the array of the source, `None` where there is none.
    """

    def __init__(self, info: ArrayInfo, rows: Rows, base: StoredArray | None) -> None:
        super().__init__(
            info,
            None,
            store=info.name if base is None else base.store,
            parts=() if base is None else base.parts,
        )
        self._rows = rows
        self._base = base

    @property
    def reader(self) -> RowReader:
        """That of the source, whose rows are others."""
        return super().reader if self._base is None else self._base.reader

    @property
    def decoded_rows(self) -> int:
        """As many as of the source, where there is one."""
        return 0 if self._base is None else self._base.decoded_rows

    def prepare(self, advance: Advance) -> None:
        """Make the pass over the source that comes before the first row can be read, if there is one."""
        self._rows.prepare(advance)

    def read(self, start: SupportsIndex, stop: SupportsIndex, out: np.ndarray | None = None) -> np.ndarray:
        first, last = self._checked_rows(start, stop)
        shape = (last - first, *self.info.shape[1:])
        if out is None:
            out = np.empty(shape, self.info.dtype)
        else:
            self._check_out(out, shape)
        if first < last:
            self._rows.read(first, last, out)
        return out

    def close(self) -> None:
        """Let go of temporary files; safe to call twice."""
        self._rows.close()


def moved(sequence: Sequence[int], axis: int) -> tuple[int, ...]:
    """What an array's axes, or their lengths, are when `axis` has become the first.

    >>> moved((10, 20, 30), 2)
    (30, 10, 20)
    """
    items = list(sequence)
    return (items.pop(axis), *items)
