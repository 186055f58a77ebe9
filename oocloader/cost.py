"""What reading rows costs: stored bytes that are read for them, against the bytes that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oocloader.order import RowSet
from oocloader.pieces import Piece


@dataclass(frozen=True, slots=True)
class Cost:
    """What it takes to read some rows of an array once, bytes.

    - `wanted_nbytes`: stored bytes that hold just these rows, their share of compressed chunks included
    - `read_nbytes`: stored bytes that are read, each chunk once
    - `touched_nbytes`: the chunks that are decoded whole for them, decoded; rows read alone count as such

    Where a library does the reading, stored bytes are not known and decoded ones stand for them.
    """

    wanted_nbytes: int
    read_nbytes: int
    touched_nbytes: int

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.wanted_nbytes + other.wanted_nbytes,
            self.read_nbytes + other.read_nbytes,
            self.touched_nbytes + other.touched_nbytes,
        )


def piece_of(rows: RowSet, lo: int, hi: int) -> Piece:
    """Members `lo:hi` of `rows`, at least one, to the rows of a buffer in turn."""
    stored = rows.stored(lo, hi)
    whole = slice(0, hi - lo)
    if isinstance(stored, tuple):
        return Piece(*stored, None, whole)
    return Piece(int(stored[0]), int(stored[-1]) + 1, stored - stored[0], whole)


def row_count(pieces: Sequence[Piece]) -> int:
    """Rows of `pieces`."""
    return sum(piece.rows for piece in pieces)


def rows_by_band(pieces: Sequence[Piece], band_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Bands that ascending `pieces` touch, each once, and the rows wanted of each: int64, int64.

    >>> bands, rows = rows_by_band([Piece(5, 25, None, slice(0, 20))], 10)
    >>> bands.tolist(), rows.tolist()
    ([0, 1, 2], [5, 10, 5])
    """
    bands: list[np.ndarray] = []
    rows: list[np.ndarray] = []
    for piece in pieces:
        if piece.pick is None:
            touched = np.arange(piece.start // band_rows, (piece.stop - 1) // band_rows + 1, dtype=np.int64)
            first, last = touched * band_rows, (touched + 1) * band_rows
            counts = np.minimum(last, piece.stop) - np.maximum(first, piece.start)
        else:
            touched, counts = np.unique((piece.start + piece.pick) // band_rows, return_counts=True)
        bands.append(touched)
        rows.append(counts)
    if not bands:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    unique, at = np.unique(np.concatenate(bands), return_inverse=True)
    return unique, np.bincount(at, np.concatenate(rows)).astype(np.int64)


def rows_spanned(pieces: Sequence[Piece], gap: int) -> int:
    """Rows read where up to `gap` unwanted ones between two picked ones are read along.

    >>> rows_spanned([Piece(0, 100, np.array([0, 2, 3, 99]), slice(0, 4))], 1)
    5
    """
    spanned = 0
    for piece in pieces:
        spanned += piece.rows
        if piece.pick is not None and gap > 0:
            between = np.diff(piece.pick) - 1
            spanned += int(between[between <= gap].sum())
    return spanned


def banded_cost(
    pieces: Sequence[Piece], *, rows: int, band_rows: int, row_nbytes: int, stored: np.ndarray | None = None
) -> Cost:
    """The cost where bands of `band_rows` rows are read whole.

    `rows`: of the whole array. `stored`: stored bytes of every band, int64; None: as many as decoded.
    """
    bands, wanted = rows_by_band(pieces, band_rows)
    held = np.minimum(band_rows, rows - bands * band_rows)
    touched = int(held.sum()) * row_nbytes
    if stored is None:
        return Cost(int(wanted.sum()) * row_nbytes, touched, touched)
    read = stored[bands]
    # Whole bands to the byte, of the others the share that their rows have.
    share = np.where(wanted == held, read, read / held * wanted)
    return Cost(round(float(share.sum())), int(read.sum()), touched)
