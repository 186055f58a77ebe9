"""A file of decoded rows that loaders share: found by what it was made of, or filled aside by one of them.

The file is a `.npy` of the rows selected, in stored order. Its name says which rows of which array it holds
and, behind that, what the store was when they were read; a store that changed has another name, and the file
of the old one is removed. One process fills, under a lock that ends with it, and renames when all rows are
there and on the disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from oocloader.errors import SettingError, StoreError
from oocloader.local_files import is_at, sync_folder, try_lock
from oocloader.order import RowSet, RowSpan, apart, cut
from oocloader.pipeline.origin import name_in_store, origin_of, paths_of
from oocloader.reading import ALIGNMENT, JOB_NBYTES, ChunkReader, Files, Layout, RowReader
from oocloader.sizes import rows_in
from oocloader.stores import StoredArray

PARTIAL = ".partial"


@dataclass(frozen=True, slots=True)
class CacheFile:
    """The file of the rows selected of one array: `shape` (rows, *sample_shape), `dtype`.

    `name` up to its last "-" is the same whatever the store was.
    """

    folder: str
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    origin: str
    array: StoredArray

    @property
    def path(self) -> str:
        return os.path.join(self.folder, self.name)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows."""
        return math.prod(self.shape) * self.dtype.itemsize

    def is_complete(self) -> bool:
        """Whether the file is there, complete."""
        try:
            return os.path.getsize(self.path) == len(_header(self)) + self.nbytes
        except OSError:
            return False

    def reader(self) -> RowReader:
        """What reads the rows, by their place among those selected."""
        files = Files.of(self.path)
        offset = len(_header(self))
        layout = Layout.contiguous(self.array.info.name, self.shape, self.dtype, files, offset)
        return ChunkReader(layout)


def cache_file(folder: str, array: StoredArray, rows: RowSet) -> CacheFile | None:
    """The file for `rows` of an array, None for one in memory. Raises `SettingError` where it could lie."""
    reader = array.reader
    origin = origin_of(array)
    if origin is None:
        return None
    info = array.info
    for kind in ("virtual dataset", "external storage"):
        if kind in info.reason:
            raise SettingError(
                f"cache={folder!r}: array {info.name!r} of {array.store} cannot be kept in a folder: "
                f"{info.reason}, and a change of the files behind it would not be noticed; use "
                "cache='memory'",
                file=array.store,
                array=info.name,
            )
    picked = None if rows.picked is None else hashlib.sha256(rows.picked.tobytes()).hexdigest()
    paths = [os.path.realpath(path) for path in paths_of(array)]
    place = json.dumps([paths, info.name, name_in_store(reader), rows.start, rows.stop, picked])
    state = json.dumps([origin, info.shape, reader.dtype.str])
    label = re.sub(r"[^A-Za-z0-9]+", "_", info.name)[:40].strip("_") or "array"
    name = f"{label}-{_short(place)}-{_short(state)}.npy"
    return CacheFile(folder, name, (len(rows), *info.shape[1:]), reader.dtype, origin, array)


def _short(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:20]


def _header(file: CacheFile) -> bytes:
    """The header of a `.npy` of version 1.0 (numpy.lib.format); rows begin on a multiple of 64 bytes."""
    about = {"descr": np.lib.format.dtype_to_descr(file.dtype), "fortran_order": False, "shape": file.shape}
    text = repr(about)
    length = -(-(len(text) + 11) // ALIGNMENT) * ALIGNMENT - 10
    return b"\x93NUMPY\x01\x00" + length.to_bytes(2, "little") + text.ljust(length - 1).encode() + b"\n"


class CacheFileWriter:
    """A cache file while this process fills it aside. Thread-safe."""

    def __init__(self, file: CacheFile, fd: int) -> None:
        self._file = file
        self._fd = fd
        self._process = os.getpid()
        self._partial = file.path + PARTIAL
        self._offset = len(_header(file))
        self._row_nbytes = file.nbytes // file.shape[0]

    @classmethod
    def try_start(cls, file: CacheFile) -> CacheFileWriter | None:
        """Start to fill, None where another process or loader does.

        Removes what is left of a store that changed. Raises `StoreError` where there is no room.
        """
        path = file.path + PARTIAL
        with _error_context(file):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # Gone or finished meanwhile: what is locked then is not what others see.
            is_ours = bool(try_lock(fd)) and is_at(fd, path)
            if not is_ours or file.is_complete():
                if is_ours:
                    # Another has finished meanwhile, and this one was made just now.
                    os.unlink(path)
                os.close(fd)
                return None
            _remove_stale(file)
            with _error_context(file):
                os.ftruncate(fd, 0)
                # Now, so that a full disk is found before anything is read.
                os.posix_fallocate(fd, 0, len(_header(file)) + file.nbytes)
                os.pwrite(fd, _header(file), 0)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(path)
                os.close(fd)
            raise
        return cls(file, fd)

    def write(self, spans: Sequence[RowSpan], rows: np.ndarray) -> None:
        """Write the rows of `spans`, at their places in `rows`."""
        flat = rows.reshape(len(rows), -1)
        step = rows_in(JOB_NBYTES, self._row_nbytes)
        for part in (part for span in spans for run in apart(span, 0) for part in cut(run, step)):
            self._write(part.start, flat[part.dest_index])

    def _write(self, row: int, rows: np.ndarray) -> None:
        view = np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data
        offset = self._offset + row * self._row_nbytes
        with _error_context(self._file):
            while view.nbytes:
                done = os.pwrite(self._fd, view, offset)
                view, offset = view[done:], offset + done

    def finish(self) -> bool:
        """Sync the file and give it its name. False, and nothing is left, where the store has changed."""
        if origin_of(self._file.array) != self._file.origin:
            self.give_up()
            return False
        with _error_context(self._file):
            os.fsync(self._fd)
            os.rename(self._partial, self._file.path)
            sync_folder(self._file.folder)
        self._close()
        return True

    def give_up(self) -> None:
        """Remove what was written. Safe to call twice."""
        # A forked child has the file open too, but it is not the child's to remove.
        if self._fd >= 0 and os.getpid() == self._process:
            with contextlib.suppress(OSError):
                os.unlink(self._partial)
            self._close()

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        os.close(fd)

    def __del__(self) -> None:
        self.give_up()


def _remove_stale(file: CacheFile) -> None:
    """Remove the files of the same rows of the same array, made of what the store no longer is."""
    same_rows = file.name.rpartition("-")[0] + "-"
    with os.scandir(file.folder) as entries:
        names = [entry.name for entry in entries if entry.name.startswith(same_rows)]
    for name in names:
        if name.removesuffix(PARTIAL) == file.name:
            continue
        path = os.path.join(file.folder, name)
        with contextlib.suppress(OSError):
            if name.endswith(PARTIAL):
                fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
                try:
                    if not try_lock(fd):
                        continue  # somebody who opened the store before it changed
                finally:
                    os.close(fd)
            os.unlink(path)


@contextlib.contextmanager
def _error_context(file: CacheFile) -> Iterator[None]:
    """Errors from within say that it is the cache that cannot be written."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{file.path}: the cache cannot be written ({file.nbytes} bytes): {error.strerror or error}; "
            "make room, name another folder, or leave cache= out",
            file=file.path,
        ) from error
