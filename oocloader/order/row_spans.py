"""Which stored rows go where in a buffer."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

Dest = slice | np.ndarray

# Below that NumPy keeps the interpreter to itself.
_FEW_ITEMS = 500
# Runs this long are copied as fast as they are.
_LARGE_NBYTES = 4096


@dataclass(frozen=True, slots=True)
class RowSpan:
    """Stored rows to put into a buffer: rows `start:stop`, or of these those at `row_index` (int64, from
    `start`).

    Row `i` of them goes to row `dest_index[i]` of the buffer (int64); a slice stands for its rows in turn.
    """

    start: int
    stop: int
    row_index: np.ndarray | None
    dest_index: Dest

    @classmethod
    def of(cls, rows: np.ndarray, dest_index: Dest) -> RowSpan:
        """The span of ascending stored rows (int64, at least one).

        >>> RowSpan.of(np.array([7, 8, 9]), slice(0, 3))
        RowSpan(start=7, stop=10, row_index=None, dest_index=slice(0, 3, None))
        """
        start, stop = int(rows[0]), int(rows[-1]) + 1
        return cls(start, stop, None if stop - start == len(rows) else rows - start, dest_index)

    @property
    def rows(self) -> int:
        """Number of rows delivered."""
        return self.stop - self.start if self.row_index is None else len(self.row_index)

    def stored_rows(self) -> np.ndarray:
        """The stored rows, int64 (rows,)."""
        return np.arange(self.start, self.stop) if self.row_index is None else self.start + self.row_index

    def dest_rows(self) -> np.ndarray:
        """The rows of the buffer that they go to, int64 (rows,)."""
        dest = self.dest_index
        return np.arange(dest.start, dest.stop) if isinstance(dest, slice) else dest

    def shifted(self, by: int) -> RowSpan:
        """The same rows, `by` rows further on in the buffer."""
        dest = self.dest_index
        return replace(
            self,
            dest_index=slice(dest.start + by, dest.stop + by) if isinstance(dest, slice) else dest + by,
        )

    def from_row(self, first: int) -> RowSpan:
        """The same rows, counted from stored row `first`."""
        return replace(self, start=self.start - first, stop=self.stop - first)

    def copy(self, rows: np.ndarray, out: np.ndarray, *, first: int = 0) -> None:
        """Copy the rows to their places in `out` from `rows`, which begin with stored row `first`."""
        rows = rows[self.start - first : self.stop - first]
        place(out, self.dest_index, rows if self.row_index is None else rows[self.row_index])


def place(out: np.ndarray, dest_index: Dest, rows: np.ndarray) -> None:
    """Put `rows` (n, *sample_shape) at `dest_index` of `out` (rows, *sample_shape), in the dtype of `out`.

    What of a sample lies in a row in both is copied as one opaque item: runs of 96 bytes, of chunks that cut
    samples, twice as fast, scattered rows of 256 bytes 1.6 times.
    """
    if rows.dtype == out.dtype and rows.size:
        items = _items(out, rows)
        # NumPy lets other threads run while it assigns, but not for few items to a slice.
        if not isinstance(dest_index, slice) or items[1].size > _FEW_ITEMS:
            out, rows = items
    out[dest_index] = rows


def _items(out: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same memory, with trailing axes that lie in a row in both, but for the first, as one item."""
    nbytes = itemsize = out.itemsize
    axes = out.ndim
    while axes > 1 and out.strides[axes - 1] == rows.strides[axes - 1] == nbytes:
        axes -= 1
        nbytes *= out.shape[axes]
    if nbytes == itemsize or nbytes >= _LARGE_NBYTES:
        return out, rows
    item = _opaque(nbytes)
    if axes == 1 and out.flags.c_contiguous and rows.flags.c_contiguous:
        return out.reshape(-1).view(item), rows.reshape(-1).view(item)
    # These axes follow each other in memory, so this copies nothing.
    flat = (*out.shape[:axes], nbytes // itemsize), (*rows.shape[:axes], nbytes // itemsize)
    return out.reshape(flat[0]).view(item)[..., 0], rows.reshape(flat[1]).view(item)[..., 0]


@functools.lru_cache(maxsize=256)
def _opaque(nbytes: int) -> np.dtype:
    # `np.dtype((np.void, nbytes))` loses a Ctrl-C that comes meanwhile (NumPy 2.4).
    return np.dtype(f"V{nbytes}")


def within(span: RowSpan, lo: int, hi: int) -> RowSpan | None:
    """The part of a span in stored rows `lo:hi`, None where there is none."""
    start, stop = max(lo, span.start), min(hi, span.stop)
    if start >= stop:
        return None
    row_index = span.row_index
    if row_index is None:
        first, last = start - span.start, stop - span.start
    else:
        first, last = np.searchsorted(row_index, (start - span.start, stop - span.start)).tolist()
        if first == last:
            return None
        row_index = None if last - first == stop - start else row_index[first:last] - (start - span.start)
    dest = span.dest_index
    if isinstance(dest, slice):
        return RowSpan(start, stop, row_index, slice(dest.start + first, dest.start + last))
    return RowSpan(start, stop, row_index, dest[first:last])


def _parts(span: RowSpan, ranges: Iterable[tuple[int, int]]) -> list[RowSpan]:
    return [part for lo, hi in ranges if (part := within(span, lo, hi)) is not None]


def cut(span: RowSpan, rows: int) -> list[RowSpan]:
    """A span in parts that span at most `rows` stored rows each."""
    if span.stop - span.start <= rows:
        return [span]
    return _parts(span, ((start, start + rows) for start in range(span.start, span.stop, rows)))


def shared_out(span: RowSpan, rows: int) -> list[RowSpan]:
    """A span in parts that deliver at most `rows` rows each."""
    if span.row_index is None:
        return cut(span, rows)
    stops = [*(span.start + span.row_index[rows::rows]).tolist(), span.stop]
    return _parts(span, zip([span.start, *stops[:-1]], stops, strict=True))


def runs(begins: np.ndarray, ends: np.ndarray, gap: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Where ranges `begins:ends` (int64 each) fall into runs: the first of each run, and the one behind it.

    A run goes on where the next range begins with the end of the one before, or at most `gap` behind it.

    >>> [found.tolist() for found in runs(np.array([0, 5, 9]), np.array([4, 9, 12]))]
    [[0, 1], [1, 3]]
    """
    between = begins[1:] - ends[:-1]
    cuts = np.flatnonzero((between < 0) | (between > gap)) + 1
    return np.concatenate([[0], cuts]), np.append(cuts, len(begins))


def apart(span: RowSpan, gap: int) -> list[RowSpan]:
    """A span in parts, cut where more than `gap` stored rows between two picked ones are not wanted."""
    if span.row_index is None:
        return [span]
    rows = span.stored_rows()
    first, behind = runs(rows, rows + 1, gap)
    return _parts(span, zip(rows[first].tolist(), (rows[behind - 1] + 1).tolist(), strict=True))


def grouped(parts: Sequence[RowSpan], rows: int) -> list[list[RowSpan]]:
    """Parts in groups that span at most so many stored rows, or of one part."""
    groups: list[list[RowSpan]] = []
    left = 0
    for part in parts:
        spanned = part.stop - part.start
        if not groups or spanned > left:
            groups.append([])
            left = rows
        groups[-1].append(part)
        left -= spanned
    return groups


def split(spans: Sequence[RowSpan], band_rows: int) -> list[tuple[int, list[RowSpan]]]:
    """Ascending spans by band of `band_rows` stored rows: (band, its spans), each band once."""
    bands: dict[int, list[RowSpan]] = {}
    for span in spans:
        for band in range(span.start // band_rows, (span.stop - 1) // band_rows + 1):
            part = within(span, band * band_rows, (band + 1) * band_rows)
            if part is not None:
                bands.setdefault(band, []).append(part)
    return list(bands.items())
