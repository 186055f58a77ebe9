"""Where every chunk of an array lies: file, offset, stored bytes, filter mask."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oocloader.codecs import Chain
from oocloader.local_files import FileState
from oocloader.sizes import nbytes_of_row


@dataclass(frozen=True, slots=True)
class Files:
    """The files that chunks lie in, and what they were when the store was opened.

    File `i` is `os.path.join(root, names[i])`, `size[i]` bytes (int64) long, last modified at
    `mtime_ns[i]` (int64, nanoseconds).
    """

    root: str
    names: Sequence[str]
    size: np.ndarray
    mtime_ns: np.ndarray

    def path(self, index: int) -> str:
        return os.path.join(self.root, self.names[index])

    def state(self, index: int) -> FileState:
        """What file `index` was when the store was opened."""
        return FileState(int(self.size[index]), int(self.mtime_ns[index]))

    @classmethod
    def of(cls, path: str) -> Files:
        """A single file as it is now."""
        state = FileState.of(path)
        root, name = os.path.split(os.path.abspath(path))
        return cls(root, (name,), np.array([state.nbytes]), np.array([state.mtime_ns]))


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the chunks of one array lie and how their bytes become rows.

    Chunks are numbered in C order over `grid`; each table has one entry a chunk.

    - `shape`, `chunk_shape`: of the array and of a whole chunk, axis 0 the rows. An array that is
      one run of bytes (`.npy`, contiguous HDF5) is one chunk of the array's own shape.
    - `dtype`: of the decoded bytes, byte order included.
    - `file`: int32, index into `files`; -1 where nothing is stored and `fill` stands for every value.
    - `offset`, `stored`: int64, bytes; `mask`: uint32, bit i set where filter i was skipped.
    - `axes`: the decoded bytes are the chunk transposed by `axes` in C order (Fortran order: all
      axes reversed); `None` where they are in C order already.
    - `fill`: 0-d array of `dtype`.

    Chunks at the edge are stored in full (`chunk_shape`), as HDF5 and Zarr do.
    """

    array: str
    shape: tuple[int, ...]
    dtype: np.dtype
    chunk_shape: tuple[int, ...]
    files: Files
    file: np.ndarray
    offset: np.ndarray
    stored: np.ndarray
    mask: np.ndarray
    chain: Chain
    axes: tuple[int, ...] | None
    fill: np.ndarray

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of chunks along each axis."""
        return tuple(-(-n // c) for n, c in zip(self.shape, self.chunk_shape, strict=True))

    @property
    def chunk_nbytes(self) -> int:
        """Decoded size of a whole chunk, bytes."""
        return math.prod(self.chunk_shape) * self.dtype.itemsize

    @property
    def row_nbytes(self) -> int:
        """Decoded size of one row, bytes."""
        return nbytes_of_row(self.shape, self.dtype)

    @property
    def whole_rows(self) -> bool:
        """Whether every chunk holds whole rows, so that its decoded bytes are consecutive rows in C order."""
        return self.axes is None and self.chunk_shape[1:] == self.shape[1:]

    @classmethod
    def contiguous(
        cls, array: str, shape: tuple[int, ...], dtype: np.dtype, files: Files, offset: int
    ) -> Layout:
        """One run of uncompressed bytes at `offset` of the only file."""
        nbytes = math.prod(shape) * dtype.itemsize
        return cls(
            array=array,
            shape=shape,
            dtype=dtype,
            chunk_shape=shape,
            files=files,
            file=np.zeros(1, np.int32),
            offset=np.array([offset], np.int64),
            stored=np.array([nbytes], np.int64),
            mask=np.zeros(1, np.uint32),
            chain=Chain(),
            axes=None,
            fill=np.zeros((), dtype),
        )
