"""Rows of an array that is not kept by rows, in bounded memory: each box is read once, turned, laid aside.

Where a row is spread over the whole file (Fortran order, chunks that hold many rows and a part of each,
another axis made the rows), reading some rows touches everything. So the array is read box by box as it is
kept, once; each box is turned so that its rows follow each other, and written to a temporary file. Then a
run of rows is one run of bytes in every box there. Each byte of the source is read once, written once and
read once more.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from oocloader.conversion.scratch import SpooledRows, TwoBuffers
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

# Smaller boxes mean smaller runs of bytes in the temporary file.
BOX_NBYTES = 32 << 20
# Of some tried with items of 1 to 4 bytes, the tiles that were turned fastest, twice as fast as the whole.
_TILE_ROWS, _TILE_COLUMNS = 256, 384


@dataclass(frozen=True, slots=True)
class _SpooledBox:
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


class TransposedRows(SpooledRows[_SpooledBox]):
    """Rows of an array along `axis`, from `start` on, by way of a temporary file in `folder`.

    `shape` is that of the rows that are given out; `threads` read the source.
    """

    def __init__(
        self, reader: RowReader, *, axis: int, start: int, shape: tuple[int, ...], folder: str, threads: int
    ) -> None:
        super().__init__(folder, dtype=reader.dtype, threads=threads)
        self._axis = axis
        self._boxes = list(_spooled_boxes(reader, axis, start, shape[0]))

    def _parts(self) -> list[_SpooledBox]:
        return self._boxes

    def _buffer_shape(self) -> tuple[int, ...]:
        return (max(math.prod(box_shape(spooled.box)) for spooled in self._boxes),)

    def _lay_aside(self, part: _SpooledBox, memory: TwoBuffers) -> int:
        """Read a box and lay it aside, rows first."""
        order = part.reader.chunk_geometry.order
        lengths = in_order(box_shape(part.box), order)
        count = math.prod(lengths)
        values, turned = memory.first[:count].reshape(lengths), memory.second[:count]
        part.reader.read_box(part.box, values)
        at = order.index(self._axis)
        if at > 0:
            rows_first = np.moveaxis(values, at, 0)
            turn(rows_first, turned.reshape(rows_first.shape))
        self._scratch.write(turned if at > 0 else values, part.offset)
        return values.nbytes

    def read(self, start: int, stop: int, out: np.ndarray) -> None:
        """Fill `out` with rows `start:stop`."""
        self.prepare(lambda nbytes: None)
        for spooled in self._boxes:
            lo, hi = max(start, spooled.start), min(stop, spooled.stop)
            if lo >= hi:
                continue
            rows = np.empty((hi - lo, *in_order(box_shape(spooled.across), spooled.axes)), self._dtype)
            self._scratch.read(rows, spooled.offset + (lo - spooled.start) * spooled.row_nbytes)
            axes = (1 + spooled.axes.index(axis) for axis in range(len(spooled.axes)))
            out[(slice(lo - start, hi - start), *spooled.across)] = rows.transpose(0, *axes)


def _spooled_boxes(reader: RowReader, axis: int, start: int, rows: int) -> Iterator[_SpooledBox]:
    """The boxes that hold rows `start` on along `axis`, one behind the other in the temporary file."""
    offset = 0
    for part, box, shift in boxes_of(reader, most_nbytes=BOX_NBYTES):
        # Boxes of parts that are joined count rows from the part's first.
        moved_by = start - shift if axis == 0 else start
        within = within_rows(box, axis, moved_by, moved_by + rows)
        if within is None:
            continue
        lengths = box_shape(within)
        nbytes = math.prod(lengths) * reader.dtype.itemsize
        across = list(within)
        if axis != 0:
            across[0] = slice(within[0].start + shift, within[0].stop + shift)
        along = across.pop(axis)
        yield _SpooledBox(
            reader=part,
            box=within,
            start=along.start - moved_by,
            stop=along.stop - moved_by,
            across=tuple(across),
            offset=offset,
            row_nbytes=nbytes // lengths[axis],
            axes=tuple(n - (n > axis) for n in part.chunk_geometry.order if n != axis),
        )
        offset += nbytes


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
