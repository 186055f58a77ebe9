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
class Piece:
    """Stored rows to put into a buffer: rows `start:stop`, or of these those at `pick` (int64, from `start`).

    Row `i` of them goes to row `dest[i]` of the buffer (int64); a slice stands for its rows in turn.
    """

    start: int
    stop: int
    pick: np.ndarray | None
    dest: Dest

    @property
    def rows(self) -> int:
        """Number of rows delivered."""
        return self.stop - self.start if self.pick is None else len(self.pick)

    def shifted(self, by: int) -> Piece:
        """The same rows, `by` rows further on in the buffer."""
        if by == 0:
            return self
        if isinstance(self.dest, slice):
            return Piece(self.start, self.stop, self.pick, slice(self.dest.start + by, self.dest.stop + by))
        return Piece(self.start, self.stop, self.pick, self.dest + by)


def place(out: np.ndarray, dest: Dest, rows: np.ndarray) -> None:
    """Put `rows` (n, *sample_shape) at `dest` of `out` (rows, *sample_shape), in the dtype of `out`.

    What of a sample lies in a row in both is copied as one opaque item: runs of 96 bytes, of chunks that cut
    samples, twice as fast, scattered rows of 256 bytes 1.6 times.
    """
    if rows.dtype == out.dtype and rows.size:
        items = _items(out, rows)
        # NumPy lets other threads run while it assigns, but not for few items to a slice.
        if not isinstance(dest, slice) or items[1].size > _FEW_ITEMS:
            out, rows = items
    out[dest] = rows


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


def cut(piece: Piece, rows: int) -> list[Piece]:
    """A piece in parts that span at most `rows` stored rows each."""
    if piece.stop - piece.start <= rows:
        return [piece]
    parts = []
    for start in range(piece.start, piece.stop, rows):
        part = within(piece, start, min(start + rows, piece.stop))
        if part is not None:
            parts.append(part)
    return parts


def shared_out(piece: Piece, rows: int) -> list[Piece]:
    """A piece in parts that deliver at most `rows` rows each."""
    if piece.pick is None or len(piece.pick) <= rows:
        return cut(piece, rows) if piece.pick is None else [piece]
    edges = range(rows, len(piece.pick), rows)
    stops = [*(piece.start + piece.pick[list(edges)]).tolist(), piece.stop]
    starts = [piece.start, *stops[:-1]]
    parts = (within(piece, *part) for part in zip(starts, stops, strict=True))
    return [part for part in parts if part is not None]


def grouped(parts: Sequence[Piece], rows: int) -> list[list[Piece]]:
    """Parts in groups that span at most so many stored rows, or of one part."""
    groups: list[list[Piece]] = []
    left = 0
    for part in parts:
        spanned = part.stop - part.start
        if not groups or spanned > left:
            groups.append([])
            left = rows
        groups[-1].append(part)
        left -= spanned
    return groups


def within(piece: Piece, lo: int, hi: int) -> Piece | None:
    """The part of a piece in stored rows `lo:hi`, None where there is none."""
    start, stop = max(lo, piece.start), min(hi, piece.stop)
    if start >= stop:
        return None
    pick = piece.pick
    if pick is None:
        first, last = start - piece.start, stop - piece.start
    else:
        first, last = np.searchsorted(pick, (start - piece.start, stop - piece.start)).tolist()
        if first == last:
            return None
        pick = None if last - first == stop - start else pick[first:last] - (start - piece.start)
    dest = piece.dest
    if isinstance(dest, slice):
        return Piece(start, stop, pick, slice(dest.start + first, dest.start + last))
    return Piece(start, stop, pick, dest[first:last])


def apart(piece: Piece, gap: int) -> list[Piece]:
    """A piece in parts, cut where more than `gap` stored rows between two picked ones are not wanted."""
    if piece.pick is None:
        return [piece]
    first = np.concatenate([[0], np.flatnonzero(np.diff(piece.pick) > gap + 1) + 1])
    last = np.append(first[1:], len(piece.pick)) - 1
    starts, stops = (piece.start + piece.pick[first]).tolist(), (piece.start + piece.pick[last] + 1).tolist()
    parts = (within(piece, *part) for part in zip(starts, stops, strict=True))
    return [part for part in parts if part is not None]


def split(pieces: Sequence[Piece], band_rows: int) -> list[tuple[int, list[Piece]]]:
    """Ascending pieces by band: (band, its pieces), each band once."""
    found: list[tuple[int, list[Piece]]] = []
    for piece in pieces:
        for band in range(piece.start // band_rows, (piece.stop - 1) // band_rows + 1):
            part = within(piece, band * band_rows, (band + 1) * band_rows)
            if part is None:
                continue
            if found and found[-1][0] == band:
                found[-1][1].append(part)
            else:
                found.append((band, [part]))
    return found
