"""What is said of chunks and rows that cannot be read: file, array, chunk, rows."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import numpy as np

from oocloader.errors import CorruptChunkError, StoreError
from oocloader.layout import Layout


@contextlib.contextmanager
def rows_named(layout: Layout, rows: tuple[int, int]) -> Iterator[None]:
    """Errors from within say which array and rows were to be read."""
    try:
        yield
    except StoreError as error:
        if error.array is not None:
            raise
        what = error.message.removeprefix(f"{error.file}: ")
        raise type(error)(
            f"{error.file}: array {layout.array!r}, rows {rows[0]} to {rows[1] - 1}: {what}",
            file=error.file,
            array=layout.array,
            rows=rows,
        ) from error


def rows_of(layout: Layout, chunk: int) -> tuple[int, int]:
    """The first row of a chunk and the one behind its last."""
    first = chunk // math.prod(layout.grid[1:]) * layout.chunk_shape[0]
    return first, min(first + layout.chunk_shape[0], layout.shape[0])


def damaged(layout: Layout, chunk: int, reason: str) -> CorruptChunkError:
    """The error to raise for a stored chunk."""
    index = tuple(int(i) for i in np.unravel_index(chunk, layout.grid))
    rows = rows_of(layout, chunk)
    path = layout.files.path(int(layout.file[chunk]))
    return CorruptChunkError(
        f"{path}: array {layout.array!r}, chunk {index}, rows {rows[0]} to {rows[1] - 1}: "
        f"damaged: {reason}; restore the file from a copy",
        file=path,
        array=layout.array,
        chunk=index,
        rows=rows,
    )
