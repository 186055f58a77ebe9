"""Tiles: chunks that lie side by side in samples, put to their rows together.

A chunk that cuts samples is copied in short runs, and a small one takes less time than the call that copies
it. Chunks of a tile have consecutive numbers: all of a sample's last axes, and some of the axis before.

In `tools/bench.py --only floor`, medians of 9 pairs: chunks of 16x16x16x3 are loaded 1.6 times as fast as one
by one where they are raw HDF5, and 1.07 times with LZ4.
"""

import math

import numpy as np

from oocloader.reading.layout import Layout

# As much stays in the processor's cache from when it is read until it is copied.
TILE_NBYTES = 256 << 10
# To remember where in samples a tile lies takes about half a kilobyte.
_MOST_PARTS = 4096
# Chunks of a tile that take more than so many times their bytes in the file lie among those of other tiles.
_COMPACT = 1.1


class Tiling:
    """The tiles of a layout, each of at most `most_nbytes` or of one chunk. Thread-safe.

    `chunks`: how many make one. The tiles of a band are numbered in the order of their chunks. Where chunks
    go beyond the edge of samples, each is a tile.
    """

    def __init__(self, layout: Layout, *, most_nbytes: int = TILE_NBYTES) -> None:
        self._layout = layout
        self._sizes = layout.chunk_shape[1:]
        self._along = _along(layout, most_nbytes // max(1, layout.chunk_nbytes))
        self.chunks = math.prod(self._along)
        self._parts: dict[int, tuple[slice, ...]] = {}
        # Axes of samples that a tile has several chunks of.
        several = [axis for axis, count in enumerate(self._along) if count > 1]
        order = layout.axes or tuple(range(len(layout.shape)))
        stored = tuple(layout.chunk_shape[axis] for axis in order)
        self._stored_shape = (*(self._along[axis] for axis in several), *stored)
        place = [len(several) + order.index(axis) for axis in range(len(layout.shape))]
        self._transposed = [place[0]]
        self._split: list[int] = []
        for axis, size in enumerate(self._sizes):
            if axis in several:
                self._transposed.append(several.index(axis))
                self._split.append(self._along[axis])
            self._transposed.append(place[axis + 1])
            self._split.append(size)

    def values(self, decoded: np.ndarray) -> np.ndarray:
        """The rows of a tile from the decoded bytes of its chunks, one behind the other: a view.

        Shape (rows of a chunk, *shape of a tile in samples), each axis that has several chunks as two. In the
        byte order of the store.
        """
        return decoded.view(self._layout.dtype).reshape(self._stored_shape).transpose(self._transposed)

    def of(self, rows: np.ndarray, number: int) -> np.ndarray:
        """What of `rows` (rows, *sample_shape) lies in tile `number` of a band: a view.

        Shaped as `values`, or smaller at the edge of samples.
        """
        part = rows[self._part(number)]
        return part if self.chunks == 1 else part.reshape(len(rows), *self._split)

    def _part(self, number: int) -> tuple[slice, ...]:
        part = self._parts.get(number)
        if part is None:
            layout = self._layout
            index = np.unravel_index(number * self.chunks, layout.grid[1:])
            begins = [int(i) * size for i, size in zip(index, self._sizes, strict=True)]
            spans = zip(begins, self._sizes, self._along, layout.shape[1:], strict=True)
            part = (slice(None), *(slice(lo, min(lo + size * n, end)) for lo, size, n, end in spans))
            if len(self._parts) < _MOST_PARTS:
                self._parts[number] = part
        return part


def _along(layout: Layout, most: int) -> tuple[int, ...]:
    """How many chunks a tile of at most so many has along each axis of samples."""
    grid, sizes, sample_shape = layout.grid[1:], layout.chunk_shape[1:], layout.shape[1:]
    along = [1] * len(grid)
    if any(length % size for length, size in zip(sample_shape, sizes, strict=True)):
        return tuple(along)
    for axis in reversed(range(len(grid))):
        fitting = range(1, max(1, min(grid[axis], most)) + 1)
        along[axis] = max(count for count in fitting if grid[axis] % count == 0)
        most //= along[axis]
        if along[axis] < grid[axis]:
            break
    return tuple(along)


def are_compact(layout: Layout, together: int) -> bool:
    """Whether tiles of so many chunks take little more of a file than the bytes of their chunks."""
    file, offset, stored = _columns(layout, together)
    there = file >= 0
    ends = np.where(there, offset + stored, 0).max(axis=1)
    begins = np.where(there, offset, np.iinfo(np.int64).max).min(axis=1)
    # Chunks in files of their own have nothing between them.
    in_one = there.any(axis=1) & ((file == file.max(axis=1, keepdims=True)) | ~there).all(axis=1)
    spanned, held = (ends - begins)[in_one].sum(), np.where(there, stored, 0).sum(axis=1)[in_one].sum()
    return bool(spanned <= _COMPACT * held)


def are_runs(layout: Layout, together: int) -> np.ndarray:
    """Whether the chunks of each tile of so many are raw and lie one behind the other: bool (tiles,)."""
    file, offset, stored = _columns(layout, together)
    if not layout.chain.raw:
        return np.zeros(len(file), bool)
    behind = offset[:, :1] + np.arange(together) * layout.chunk_nbytes
    there = (file == file[:, :1]) & (file >= 0)
    return np.asarray((there & (offset == behind) & (stored == layout.chunk_nbytes)).all(axis=1))


def _columns(layout: Layout, together: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """File, offset and stored bytes of the chunks of each tile: (tiles, chunks) each."""
    shape = -1, together
    return layout.file.reshape(shape), layout.offset.reshape(shape), layout.stored.reshape(shape)
