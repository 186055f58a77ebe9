"""What reading rows costs: stored bytes that are read for them, against the bytes that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oocloader.order import RowSpan, runs


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


def row_count(spans: Sequence[RowSpan]) -> int:
    """Rows of `spans`."""
    return sum(span.rows for span in spans)


def rows_by_band(spans: Sequence[RowSpan], band_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Bands that ascending `spans` touch, each once, and the rows wanted of each: int64, int64.

    >>> bands, rows = rows_by_band([RowSpan(5, 25, None, slice(0, 20))], 10)
    >>> bands.tolist(), rows.tolist()
    ([0, 1, 2], [5, 10, 5])
    """
    bands: list[np.ndarray] = []
    rows: list[np.ndarray] = []
    for span in spans:
        if span.row_index is None:
            touched = np.arange(span.start // band_rows, (span.stop - 1) // band_rows + 1, dtype=np.int64)
            first, last = touched * band_rows, (touched + 1) * band_rows
            counts = np.minimum(last, span.stop) - np.maximum(first, span.start)
        else:
            touched, counts = np.unique(span.stored_rows() // band_rows, return_counts=True)
        bands.append(touched)
        rows.append(counts)
    if not bands:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    unique, at = np.unique(np.concatenate(bands), return_inverse=True)
    return unique, np.bincount(at, np.concatenate(rows)).astype(np.int64)


def merged_ranges(spans: Sequence[RowSpan], gap: int) -> tuple[np.ndarray, np.ndarray]:
    """The runs of rows that are read where up to `gap` unwanted rows between two picked ones are read along.

    First rows and rows behind the last: int64, int64.

    >>> first, behind = merged_ranges([RowSpan(10, 110, np.array([0, 2, 3, 99]), slice(0, 4))], 1)
    >>> first.tolist(), behind.tolist()
    ([10, 109], [14, 110])
    """
    first: list[np.ndarray] = [np.zeros(0, np.int64)]
    behind = first.copy()
    for span in spans:
        if span.row_index is None:
            first.append(np.array([span.start]))
            behind.append(np.array([span.stop]))
        else:
            rows = span.stored_rows()
            begins, ends = runs(rows, rows + 1, gap)
            first.append(rows[begins])
            behind.append(rows[ends - 1] + 1)
    return np.concatenate(first), np.concatenate(behind)


def banded_cost(
    spans: Sequence[RowSpan], *, rows: int, band_rows: int, row_nbytes: int, stored: np.ndarray | None = None
) -> Cost:
    """The cost where bands of `band_rows` rows are read whole.

    `rows`: of the whole array. `stored`: stored bytes of every band, int64; None: as many as decoded.
    """
    bands, wanted = rows_by_band(spans, band_rows)
    held = np.minimum(band_rows, rows - bands * band_rows)
    touched = int(held.sum()) * row_nbytes
    if stored is None:
        return Cost(int(wanted.sum()) * row_nbytes, touched, touched)
    read = stored[bands]
    # Whole bands to the byte, of the others the share that their rows have.
    share = np.where(wanted == held, read, read / held * wanted)
    return Cost(round(float(share.sum())), int(read.sum()), touched)
