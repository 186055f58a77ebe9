"""What is said of chunks and rows that cannot be read: file, array, chunk, rows."""

import math
from typing import TypeVar

import numpy as np

from oocloader.errors import CorruptChunkError, StoreError
from oocloader.reading.layout import Layout

Error = TypeVar("Error", bound=StoreError)


class error_context:  # noqa: N801  # read as `with error_context(...)`, like contextlib.suppress
    """A context: errors from within say which array and rows were to be read.

    `rows`: the first and the one behind the last, or the number of the chunk that holds them.
    """

    __slots__ = ("_layout", "_rows")

    # No generator, and rows are worked out when they are needed: this surrounds each read of a small chunk.
    def __init__(self, layout: Layout, rows: tuple[int, int] | int) -> None:
        self._layout = layout
        self._rows = rows

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if not isinstance(error, StoreError) or error.array is not None:
            return
        rows = rows_of(self._layout, self._rows) if isinstance(self._rows, int) else self._rows
        what = error.message.removeprefix(f"{error.file}: ")
        raise rows_error(type(error), what, file=error.file, array=self._layout.array, rows=rows) from error


def rows_error(kind: type[Error], what: str, *, file: str | None, array: str, rows: tuple[int, int]) -> Error:
    """The error for rows that cannot be read, the first and the one behind the last."""
    where = f"{file}: array {array!r}, rows {rows[0]} to {rows[1] - 1}"
    return kind(f"{where}: {what}", file=file, array=array, rows=rows)


def rows_of(layout: Layout, chunk: int) -> tuple[int, int]:
    """The first row of a chunk and the one behind its last."""
    first = chunk // math.prod(layout.grid[1:]) * layout.chunk_shape[0]
    return first, min(first + layout.chunk_shape[0], layout.shape[0])


def damaged(layout: Layout, chunk: int, reason: str) -> CorruptChunkError:
    """The error to raise for a stored chunk."""
    path, what = layout.files.path(int(layout.file[chunk])), f"damaged: {reason}"
    return damaged_chunk(layout.array, layout.shape, layout.chunk_shape, chunk, path=path, reason=what)


def damaged_chunk(
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
