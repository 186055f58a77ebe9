"""Which stored rows go where in a buffer."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

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

    @property
    def rows(self) -> int:
        """Number of rows delivered."""
        return self.stop - self.start if self.row_index is None else len(self.row_index)

    def shifted(self, by: int) -> RowSpan:
        """The same rows, `by` rows further on in the buffer."""
        if by == 0:
            return self
        if isinstance(self.dest_index, slice):
            return RowSpan(
                self.start,
                self.stop,
                self.row_index,
                slice(self.dest_index.start + by, self.dest_index.stop + by),
            )
        return RowSpan(self.start, self.stop, self.row_index, self.dest_index + by)


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


def cut(span: RowSpan, rows: int) -> list[RowSpan]:
    """A span in parts that span at most `rows` stored rows each."""
    if span.stop - span.start <= rows:
        return [span]
    parts = []
    for start in range(span.start, span.stop, rows):
        part = within(span, start, min(start + rows, span.stop))
        if part is not None:
            parts.append(part)
    return parts


def shared_out(span: RowSpan, rows: int) -> list[RowSpan]:
    """A span in parts that deliver at most `rows` rows each."""
    if span.row_index is None or len(span.row_index) <= rows:
        return cut(span, rows) if span.row_index is None else [span]
    edges = range(rows, len(span.row_index), rows)
    stops = [*(span.start + span.row_index[list(edges)]).tolist(), span.stop]
    starts = [span.start, *stops[:-1]]
    parts = (within(span, *part) for part in zip(starts, stops, strict=True))
    return [part for part in parts if part is not None]


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
    dest_index = span.dest_index
    if isinstance(dest_index, slice):
        return RowSpan(start, stop, row_index, slice(dest_index.start + first, dest_index.start + last))
    return RowSpan(start, stop, row_index, dest_index[first:last])


def apart(span: RowSpan, gap: int) -> list[RowSpan]:
    """A span in parts, cut where more than `gap` stored rows between two picked ones are not wanted."""
    if span.row_index is None:
        return [span]
    first = np.concatenate([[0], np.flatnonzero(np.diff(span.row_index) > gap + 1) + 1])
    last = np.append(first[1:], len(span.row_index)) - 1
    starts, stops = (
        (span.start + span.row_index[first]).tolist(),
        (span.start + span.row_index[last] + 1).tolist(),
    )
    parts = (within(span, *part) for part in zip(starts, stops, strict=True))
    return [part for part in parts if part is not None]


def split(spans: Sequence[RowSpan], band_rows: int) -> list[tuple[int, list[RowSpan]]]:
    """Ascending spans by band: (band, its spans), each band once."""
    found: list[tuple[int, list[RowSpan]]] = []
    for span in spans:
        for band in range(span.start // band_rows, (span.stop - 1) // band_rows + 1):
            part = within(span, band * band_rows, (band + 1) * band_rows)
            if part is None:
                continue
            if found and found[-1][0] == band:
                found[-1][1].append(part)
            else:
                found.append((band, [part]))
    return found
