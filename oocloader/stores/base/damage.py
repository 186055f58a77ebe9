"""The error for a part of an array that is damaged in its file."""

from __future__ import annotations

import numpy as np

from oocloader.errors import CorruptChunkError


def damaged(
    array: str,
    shape: tuple[int, ...],
    chunk_shape: tuple[int, ...],
    number: int,
    *,
    path: str,
    reason: str,
    unit: str = "chunk",
) -> CorruptChunkError:
    """The error for the chunk of that `number` in the grid; `unit` is what people call it."""
    grid = [-(-n // c) for n, c in zip(shape, chunk_shape, strict=True)]
    index = tuple(int(i) for i in np.unravel_index(number, grid))
    first, last = index[0] * chunk_shape[0], min((index[0] + 1) * chunk_shape[0], shape[0])
    what = f"{path}: array {array!r}, {unit} {index}, rows {first} to {last - 1}: {reason}"
    what += "; restore the file from a copy"
    return CorruptChunkError(what, file=path, array=array, chunk=index, rows=(first, last))
