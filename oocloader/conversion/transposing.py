"""Rows of an array that is not kept by rows, in bounded memory: each box is read once, turned, laid aside.

Where a row is spread over the whole file (Fortran order, chunks that hold many rows and a part of each,
another axis made the rows), reading some rows touches everything. So the array is read box by box as it is
kept, once; each box is turned so that its rows follow each other, and written to a temporary file. Then a
run of rows is one run of bytes in every box there. Each byte of the source is read once, written once and
read once more.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass

import numpy as np

from oocloader.conversion.derived_rows import Advance
from oocloader.conversion.scratch import Scratch
from oocloader.conversion.thread_steps import Work, in_steps
from oocloader.errors import ClosedError
from oocloader.reading import (
    Box,
    BoxReader,
    JoinedReader,
    RowReader,
    box_shape,
    cut_boxes,
    in_order,
    within_rows,
)
from oocloader.sizes import nbytes_of_row

# Smaller boxes mean smaller runs of bytes in the temporary file.
BOX_NBYTES = 32 << 20
# Of some tried with items of 1 to 4 bytes, the tiles that were turned fastest, twice as fast as the whole.
_TILE_ROWS, _TILE_COLUMNS = 256, 384


@dataclass(frozen=True, slots=True)
class _Kept:
    """A box of the source and where it lies in the temporary file, its rows first.

    - `reader`, `box`: what reads it
    - `start`, `stop`: its rows; `across`: its place in each of them
    - `offset`, `row_nbytes`: in the temporary file, where its rows have their axes in the order `axes`
    """

    reader: BoxReader
    box: Box
    start: int
    stop: int
    across: Box
    offset: int
    row_nbytes: int
    axes: tuple[int, ...]


class TransposedRows:
    """Rows of an array along `axis`, from `start` on, by way of a temporary file in `folder`.

    `shape` and `dtype` are those of the rows that are given out; `threads` read the source.
    """

    def __init__(
        self,
        reader: RowReader,
        *,
        axis: int,
        start: int,
        shape: tuple[int, ...],
        folder: str,
        threads: int,
    ) -> None:
        self._axis = axis
        self._dtype = reader.dtype
        self._shape = shape
        self._row_nbytes = nbytes_of_row(shape, reader.dtype)
        self._folder = folder
        self._threads = threads
        self._kept: list[_Kept] = []
        at = 0
        for part, box, shift in boxes_of(reader, most_nbytes=BOX_NBYTES):
            # Boxes of parts that are joined count rows from the part's first.
            moved_by = (start - shift) if axis == 0 else start
            found = within_rows(box, axis, moved_by, moved_by + shape[0])
            if found is None:
                continue
            lengths = box_shape(found)
            row_nbytes = math.prod(lengths) // lengths[axis] * reader.dtype.itemsize
            dest = list(found)
            if axis != 0:
                dest[0] = slice(found[0].start + shift, found[0].stop + shift)
            rows = dest.pop(axis)
            self._kept.append(
                _Kept(
                    reader=part,
                    box=found,
                    start=rows.start - moved_by,
                    stop=rows.stop - moved_by,
                    across=tuple(dest),
                    offset=at,
                    row_nbytes=row_nbytes,
                    axes=tuple(n - (n > axis) for n in part.chunk_geometry.order if n != axis),
                )
            )
            at += math.prod(lengths) * reader.dtype.itemsize
        self._scratch: Scratch | None = None
        self._ready = False
        self._closed = False
        self._lock = threading.Lock()

    def prepare(self, advance: Advance) -> None:
        """Read the whole source, once."""
        with self._lock:
            if self._ready:
                return
            self._check_open()
            self._scratch = Scratch(self._folder)
            in_steps(len(self._kept), self._make_work, threads=self._threads, advance=advance)
            self._ready = True

    def _make_work(self) -> Work:
        scratch = self._scratch
        assert scratch is not None
        most = max(math.prod(box_shape(kept.box)) for kept in self._kept)
        found, turned = np.empty(most, self._dtype), np.empty(most, self._dtype)

        def work(number: int) -> int:
            self._check_open()
            kept = self._kept[number]
            order = kept.reader.chunk_geometry.order
            lengths = in_order(box_shape(kept.box), order)
            count = math.prod(lengths)
            values = found[:count].reshape(lengths)
            kept.reader.read_box(kept.box, values)
            at = order.index(self._axis)
            if at > 0:
                rows_first = np.moveaxis(values, at, 0)
                turn(rows_first, turned[:count].reshape(rows_first.shape))
            scratch.write((turned if at > 0 else found)[:count], kept.offset)
            return count * self._dtype.itemsize

        return work

    def read(self, start: int, stop: int, out: np.ndarray) -> None:
        """Fill `out` with rows `start:stop`."""
        self.prepare(lambda nbytes: None)
        scratch = self._scratch
        assert scratch is not None
        for kept in self._kept:
            lo, hi = max(start, kept.start), min(stop, kept.stop)
            if lo >= hi:
                continue
            lengths = in_order(box_shape(kept.across), kept.axes)
            found = np.empty((hi - lo, *lengths), self._dtype)
            scratch.read(found, kept.offset + (lo - kept.start) * kept.row_nbytes)
            placed = found.transpose(0, *(1 + kept.axes.index(axis) for axis in range(len(kept.axes))))
            out[(slice(lo - start, hi - start), *kept.across)] = placed

    def close(self) -> None:
        self._closed = True
        if self._scratch is not None:
            self._scratch.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the conversion was given up")


def boxes_of(reader: RowReader, *, most_nbytes: int) -> list[tuple[BoxReader, Box, int]]:
    """Every box of an array as it is kept, in order, what reads it, and the rows before its part."""
    if isinstance(reader, JoinedReader):
        return [
            (part, box, shift + first)
            for first, inner in reader.parts
            for part, box, shift in boxes_of(inner, most_nbytes=most_nbytes)
        ]
    assert isinstance(reader, BoxReader)
    boxes = cut_boxes(
        reader.shape, reader.chunk_geometry, itemsize=reader.dtype.itemsize, most_nbytes=most_nbytes
    )
    return [(reader, box, 0) for box in boxes]


def turn(values: np.ndarray, out: np.ndarray) -> None:
    """Copy `values` to `out`, of the same shape and in C order; by tiles where that transposes a matrix."""
    matrix = np.moveaxis(values, 0, -1)
    if not matrix.flags.c_contiguous:
        out[...] = values
        return
    flat, to = matrix.reshape(-1, len(values)), out.reshape(len(values), -1)
    for row in range(0, len(to), _TILE_ROWS):
        for column in range(0, len(flat), _TILE_COLUMNS):
            rows, columns = slice(row, row + _TILE_ROWS), slice(column, column + _TILE_COLUMNS)
            to[rows, columns] = flat[columns, rows].T
