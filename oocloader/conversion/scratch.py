"""Rows laid aside in a file without a name, which is gone with the process, however that ends."""

import os
import secrets
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import closing
from functools import partial
from typing import Generic, TypeVar

import numpy as np

from oocloader.conversion.derived_rows import Advance
from oocloader.conversion.extents import pwrite_all
from oocloader.conversion.worker_threads import results_in_order
from oocloader.errors import ClosedError, StoreError


class Scratch:
    """Bytes at any place of a file in `folder`. Thread-safe. Raises `OSError` where the disk is full."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        path = os.path.join(folder, f".oocloader-scratch-{secrets.token_hex(4)}")
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.unlink(path)

    def write(self, data: np.ndarray, offset: int) -> None:
        """Put `data`, C-contiguous, at byte `offset`."""
        pwrite_all(self._open(), data.reshape(-1).view(np.uint8).data, offset)

    def read(self, out: np.ndarray, offset: int) -> None:
        """Fill `out`, C-contiguous, from byte `offset`."""
        view = out.reshape(-1).view(np.uint8).data
        while view:
            got = os.preadv(self._open(), [view], offset)
            if got == 0:
                raise StoreError(
                    f"{self._folder}: the temporary file there ends at byte {offset}; check the disk",
                    file=self._folder,
                )
            view, offset = view[got:], offset + got

    def _open(self) -> int:
        if self._fd < 0:
            raise ClosedError("the conversion was given up")
        return self._fd

    def close(self) -> None:
        """Let go of the file and its room; safe to call twice."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


_Part = TypeVar("_Part")


class TwoBuffers(threading.local):
    """Memory of each thread for itself: two arrays of one kind."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.first, self.second = np.empty(shape, dtype), np.empty(shape, dtype)


class SpooledRows(ABC, Generic[_Part]):
    """Rows of `dtype` that a first pass over the source lays in a temporary file, to be read from there.

    `folder` is where the file is; `threads` read the source, part by part.
    """

    def __init__(self, folder: str, *, dtype: np.dtype, threads: int) -> None:
        self._scratch = Scratch(folder)
        self._dtype = dtype
        self._threads = threads
        self._lock = threading.Lock()
        self._is_spooled = False

    def prepare(self, advance: Advance) -> None:
        """Read the whole source, once."""
        with self._lock:
            if self._is_spooled:
                return
            lay_aside = partial(self._lay_aside, memory=TwoBuffers(self._buffer_shape(), self._dtype))
            name = "oocloader-first-pass"
            with closing(
                results_in_order(lay_aside, self._parts(), threads=self._threads, name=name)
            ) as work:
                for nbytes in work:
                    advance(nbytes)
            self._is_spooled = True

    @abstractmethod
    def _parts(self) -> Iterable[_Part]:
        """What the source is read by."""

    @abstractmethod
    def _buffer_shape(self) -> tuple[int, ...]:
        """Shape of each of the arrays that `_lay_aside` gets."""

    @abstractmethod
    def _lay_aside(self, part: _Part, memory: TwoBuffers) -> int:
        """Read a part and write it to the temporary file; how many bytes that were. Thread-safe."""

    def close(self) -> None:
        """Let go of the temporary file; what is under way ends with a `ClosedError`."""
        self._scratch.close()
