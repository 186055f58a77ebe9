"""Writes HDF5: h5py makes file and datasets, chunks are encoded elsewhere and written directly."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import h5py
import numpy as np
from h5py._objects import phil  # h5py's own lock, which it names nowhere else

from oocloader.conversion.encode import hdf5_filter
from oocloader.conversion.plan import ArrayPlan, Plan

_PAGE = 4096
# Aligning what is smaller than a page wastes most of the page: only while that is little in all.
_MOST_SMALL_CHUNKS = 256


class Hdf5Writer:
    """A new HDF5 file at `path`, which does not exist yet; HDF5 1.10 and later read it."""

    def __init__(self, path: str, plan: Plan) -> None:
        chunks = sum(array.chunks for array in plan.arrays)
        self._output = _Output(path)
        self._file: Any = None
        try:
            self._file = h5py.File(
                self._output,
                "x",
                libver=("v110", "v110"),
                track_order=True,
                alignment_interval=_PAGE,
                alignment_threshold=1 if chunks <= _MOST_SMALL_CHUNKS else _PAGE,
            )
            self._datasets = {array.name: self._create(array, plan) for array in plan.arrays}
        except BaseException:
            self.abandon()
            raise

    def _create(self, array: ArrayPlan, plan: Plan) -> Any:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        if not plan.codec.raw:
            number, values = hdf5_filter(plan.codec, array.dtype.itemsize, array.chunk_nbytes)
            # Optional: the chunks come encoded, so that the filter need not be installed here.
            properties.set_filter(number, h5py.h5z.FLAG_OPTIONAL, values)
        if array.fill:
            properties.set_fill_value(array.fill_value)
        dataset = self._file.create_dataset(
            array.name, array.shape, array.dtype, chunks=array.chunk_shape, dcpl=properties
        )
        for name, value in array.attrs.items():
            try:
                dataset.attrs[name] = value
            except (TypeError, ValueError):
                # What HDF5 has no type for, such as None or lists of lists, as JSON.
                dataset.attrs[name] = json.dumps(value)
        return dataset

    def sink(self, array: ArrayPlan) -> _Dataset:
        """Where the chunks of one array of the plan go."""
        return _Dataset(self._datasets[array.name].id, array)

    def close(self) -> None:
        """Complete the file."""
        self._file.close()
        self._output.close()

    def abandon(self) -> None:
        """Let go of a file that is not wanted any more."""
        self._output.discard = True
        if self._file is not None:
            self._file.close()
        self._output.close()


class _Output:
    """The file as HDF5 sees it.

    Where HDF5 writes by itself and fails, it cannot close the file either (its disk is full, say), and the
    process crashes later. Here everything can be discarded, so that closing succeeds.
    """

    def __init__(self, path: str) -> None:
        self.discard = False
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)
        self._at = 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_CUR:
            offset += self._at
        elif whence == os.SEEK_END:
            offset += os.fstat(self._fd).st_size
        self._at = offset
        return offset

    def tell(self) -> int:
        return self._at

    def read(self, nbytes: int) -> bytes:
        found = os.pread(self._fd, nbytes, self._at)
        self._at += len(found)
        return found

    def readinto(self, buffer: Any) -> int:
        found = os.preadv(self._fd, [buffer], self._at)
        self._at += found
        return found

    def write(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        total = view.nbytes
        while view and not self.discard:
            written = os.pwrite(self._fd, view, self._at)
            self._at += written
            view = view[written:]
        return total

    def truncate(self, size: int) -> int:
        if not self.discard:
            os.ftruncate(self._fd, size)
        return size

    def flush(self) -> None:
        """Nothing is kept here; whoever publishes the file syncs it."""

    def close(self) -> None:
        """Close the file; safe to call twice."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class _Dataset:
    """The chunks of one dataset. Filled in order, by one thread at a time."""

    def __init__(self, dataset: Any, array: ArrayPlan) -> None:
        self.stored_nbytes = 0
        self._dataset = dataset
        self._chunk_rows = array.chunk_rows
        self._rest = (0,) * (len(array.shape) - 1)

    def write(self, first_chunk: int, data: np.ndarray, sizes: Sequence[int]) -> None:
        """Store chunks `first_chunk` on: one behind the other in `data` (uint8, 1-d), `sizes` bytes long."""
        at = 0
        # h5py enters HDF5 one thread at a time, except here, where it forgets to (seen in 3.14): another
        # thread that uses any HDF5 file meanwhile would corrupt the library's memory.
        with phil:
            for chunk, nbytes in enumerate(sizes, first_chunk):
                self._dataset.write_direct_chunk(
                    (chunk * self._chunk_rows, *self._rest), data[at : at + nbytes]
                )
                at += nbytes
        self.stored_nbytes += at
