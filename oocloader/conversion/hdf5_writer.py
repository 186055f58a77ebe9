"""Writes HDF5: h5py makes file and datasets, and says where chunks go; their bytes are written elsewhere."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import h5py
import numpy as np
from h5py._objects import phil  # h5py's own lock, which it names nowhere else

from oocloader.conversion.encode import hdf5_filter
from oocloader.conversion.extents import Placement, extents_of, pwrite_all
from oocloader.conversion.sinks import Sink
from oocloader.conversion.store_plan import StoredArrayPlan, StorePlan
from oocloader.errors import StoreError

_PAGE = 4096
# Aligning what is smaller than a page wastes most of the page: only while that is little in all.
_MOST_SMALL_CHUNKS = 256


class Hdf5Writer:
    """A new HDF5 file at `path`, or the rest of one that was broken off; HDF5 1.10 and later read it.

    HDF5 is asked to write chunks that are none, and tells by that where it puts them; the bytes are put there
    by whoever has them, several threads at once.

    What HDF5 knows of a file that is broken off is lost, but its chunks lie where they were put. HDF5 puts
    the same chunks in the same places when it is asked in the same order: so it is asked again.
    """

    def __init__(self, path: str, plan: StorePlan) -> None:
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
            self._output.check()
        except BaseException:
            self.abandon()
            raise

    def _create(self, array: StoredArrayPlan, plan: StorePlan) -> Any:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        if not plan.codec.raw:
            number, values = hdf5_filter(plan.codec, array.dtype.itemsize, array.chunk_nbytes)
            # Optional: the chunks come encoded, so that the filter need not be installed here.
            properties.set_filter(number, h5py.h5z.FLAG_OPTIONAL, values)
        if plan.checksum:
            properties.set_fletcher32()
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

    def sink(self, array: StoredArrayPlan) -> _Dataset:
        """Where the chunks of one array of the plan go."""
        return _Dataset(self._datasets[array.name].id, array, self._output)

    def close(self) -> None:
        """Complete the file."""
        self._close()
        self._output.check()
        self._output.complete()

    def abandon(self) -> None:
        """Let go of a file that is not wanted any more."""
        self._output.discard = True
        if self._file is not None:
            self._close()
        self._output.close()

    def _close(self) -> None:
        # Ctrl-C reaches the main thread alone, and would seem to HDF5 a failure of the disk.
        with ThreadPoolExecutor(1) as elsewhere:
            elsewhere.submit(self._file.close).result()


class _Output:
    """The file as HDF5 sees it: empty at first, also where it is not.

    Where HDF5 writes by itself and fails, it cannot close the file either (its disk is full, say), and the
    process crashes later; h5py passes errors from here on as others, or later. So HDF5 never hears of any:
    `check` raises what failed, and everything after that is discarded, so that closing succeeds.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.discard = False
        self._failed: OSError | None = None
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._at = 0
        self._size = 0
        self._watched = (-1, -1)
        self._watched_offset = -1

    def watch(self, chunk: np.ndarray) -> None:
        """Notice where the bytes of `chunk` (uint8, 1-d) are put, and put nothing there."""
        self._watched = (_address(chunk), chunk.nbytes)
        self._watched_offset = -1

    def watched_offset(self) -> int:
        """Where HDF5 put the bytes watched for, -1 if it did not."""
        self._watched = (-1, -1)
        return self._watched_offset

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_CUR:
            offset += self._at
        elif whence == os.SEEK_END:
            offset += self._size
        self._at = offset
        return offset

    def tell(self) -> int:
        return self._at

    def read(self, nbytes: int) -> bytes:
        data = os.pread(self._fd, nbytes, self._at)
        self._at += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        nbytes = os.preadv(self._fd, [buffer], self._at)
        self._at += nbytes
        return nbytes

    def write(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        total = view.nbytes
        self._size = max(self._size, self._at + total)
        if total == self._watched[1] and _address(np.frombuffer(view, np.uint8)) == self._watched[0]:
            self._watched_offset = self._at
            self._at += total
            return total
        try:
            if not self.discard:
                self._at = pwrite_all(self._fd, view, self._at)
        except OSError as error:
            self._failed, self.discard = error, True
        return total

    def truncate(self, size: int) -> int:
        self._size = size
        return size

    def check(self) -> None:
        """Raise what failed in writing for HDF5, if anything did."""
        if self._failed is not None:
            raise self._failed

    def flush(self) -> None:
        """Nothing is kept here; whoever publishes the file syncs it."""

    def complete(self) -> None:
        """Close the file, which is all there now."""
        if self._fd >= 0:
            os.ftruncate(self._fd, self._size)
        self.close()

    def close(self) -> None:
        """Close the file; safe to call twice."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _address(data: np.ndarray) -> int:
    address: int = data.__array_interface__["data"][0]
    return address


class _Dataset(Sink):
    """The chunks of one dataset."""

    def __init__(self, dataset: Any, array: StoredArrayPlan, output: _Output) -> None:
        super().__init__()
        self._dataset = dataset
        self._output = output
        self._chunk_rows = array.chunk_rows
        self._across = (0,) * (len(array.shape) - 1)
        # Stands for every chunk, and is never looked at: it takes no memory.
        self._nothing = np.empty(0, np.uint8)

    def path_of(self, chunk: int) -> str:
        return self._output.path

    def _moved(self) -> str:
        return (
            f"{self._output.path}: HDF5 {h5py.version.hdf5_version} lays out files otherwise than the version"
            " that this one was begun with; go on with that version, or begin anew"
        )

    def place(self, first_chunk: int, sizes: Sequence[int]) -> Placement:
        if max(sizes) > self._nothing.nbytes:
            self._nothing = np.empty(max(sizes), np.uint8)
        offsets = []
        # h5py enters HDF5 one thread at a time, except here, where it forgets to (seen in 3.14): another
        # thread that uses any HDF5 file meanwhile would corrupt the library's memory.
        with phil:
            for chunk, nbytes in enumerate(sizes, first_chunk):
                part = self._nothing[:nbytes]
                self._output.watch(part)
                self._dataset.write_direct_chunk((chunk * self._chunk_rows, *self._across), part)
                offsets.append(self._output.watched_offset())
        self._output.check()
        if min(offsets) < 0:
            what = f"HDF5 {h5py.version.hdf5_version} does not write chunks as they are"
            raise StoreError(f"{self._output.path}: {what}", file=self._output.path)
        self.stored_nbytes += sum(sizes)
        return Placement(offsets, extents_of(self._output.path, offsets, sizes))
