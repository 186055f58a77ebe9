"""Rows that lie far apart in their files, each read by a call of its own with as little else as can be."""

from __future__ import annotations

import numpy as np

from oocloader.reading.files import FileReader
from oocloader.reading.layout import Layout


def lone(row_index: np.ndarray, gap: int) -> bool:
    """Whether most picked rows (int64, ascending) have no neighbour within `gap`."""
    return 2 * int(np.count_nonzero(np.diff(row_index) > gap + 1)) >= len(row_index)


def read_lone(layout: Layout, files: FileReader, rows: np.ndarray, out: np.ndarray) -> int:
    """Stored `rows` (int64) of raw chunks of whole rows to those of `out`; how many of them are stored.

    `out`: (rows, *sample_shape) of the stored dtype, C order.
    """
    chunks = rows // layout.chunk_shape[0]
    file = layout.file[chunks]
    out[file < 0] = layout.fill
    offsets = layout.offset[chunks] + (rows - chunks * layout.chunk_shape[0]) * layout.row_nbytes
    flat = out.reshape(len(rows), -1).view(np.uint8)
    for index in np.unique(file[file >= 0]).tolist():
        here = np.flatnonzero(file == index)
        with files.opened(index) as fd:
            files.read_each(fd, index, offsets[here].tolist(), flat, here.tolist())
    return int(np.count_nonzero(file >= 0))
