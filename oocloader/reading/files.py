"""Reading byte ranges of a store's files, and noticing when one of them changed."""

import ctypes
import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from oocloader.errors import ChangedError, ClosedError, StoreError
from oocloader.local_files import FileState
from oocloader.reading.layout import Files
from oocloader.reading.locks import Lock
from oocloader.reading.page_cache import Fetcher, advise

# Up to this many files stay open; stores of one file a chunk open each for as long as it is read.
_MOST_OPEN = 64
# The system takes no more places with one call (IOV_MAX).
_MOST_VECTORS = 1024


class _Descriptor:
    """An open file, closed with the last reference: never under a thread that still reads from it."""

    __slots__ = ("fd",)

    def __init__(self, path: str) -> None:
        self.fd = -1
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


class FileReader:
    """Reads `files`, which must still be what they were when the store was opened. Thread-safe.

    A file that was replaced or removed while it is open here goes on being what it was.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._hold = len(files.names) <= _MOST_OPEN
        self._open: dict[int, _Descriptor] = {}
        self._lock = Lock()
        self._fetcher = Fetcher()
        self._closed = False

    @contextmanager
    def opened(self, index: int) -> Iterator[int]:
        """The descriptor of file `index`, checked to be unchanged."""
        file = self._descriptor(index)
        try:
            self._check(index, file.fd)
            yield file.fd
        finally:
            # The traceback of an error must not keep the file open.
            del file

    def _descriptor(self, index: int) -> _Descriptor:
        with self._lock:
            if self._closed:
                path = self._files.path(index)
                raise ClosedError(f"{path}: the store is closed; open it again", file=path)
            file = self._open.get(index)
            if file is None and self._hold:
                file = self._open[index] = self._opened(index)
        return file or self._opened(index)

    def will_need(self, index: int, ranges: Iterable[tuple[int, int]]) -> None:
        """Have bytes fetched from the disk meanwhile, `(offset, nbytes)` of each range.

        What cannot be read fails where it is read.
        """
        try:
            # Whether it has changed is looked at where it is read: each look lets another thread have the
            # interpreter, and waits for it.
            file = self._descriptor(index)
            path = self._files.path(index)
            end = int(self._files.size[index])
            for offset, nbytes in ranges:
                # What a damaged table of chunks claims to lie behind the end would be advised for minutes.
                if offset < end:
                    self._fetcher.want(file.fd, path, offset, min(nbytes, end - offset))
        except (OSError, ClosedError):
            pass

    def check(self, index: int) -> None:
        """Raise `ChangedError` where file `index` is not what it was."""
        with self.opened(index):
            pass

    def read_at(self, index: int, offset: int, out: np.ndarray) -> int:
        """As `read`, of a file that is opened for it, or open already."""
        with self.opened(index) as fd:
            return self.read(fd, index, offset, out)

    def read(self, fd: int, index: int, offset: int, out: np.ndarray) -> int:
        """Fill `out` (uint8, 1-d) with the bytes at `offset` of file `index`: the number of system calls."""
        view = out.data
        calls = 0
        while view.nbytes:
            try:
                got = os.preadv(fd, [view], offset)
            except OSError as error:
                raise _unreadable(self._files.path(index), error) from error
            calls += 1
            if got == 0:
                path = self._files.path(index)
                found = os.fstat(fd).st_size
                raise ChangedError(
                    f"{path}: the file ends at byte {found}, but bytes up to {offset + view.nbytes} are "
                    "expected: it was truncated; restore it or open it again",
                    file=path,
                )
            view = view[got:]
            offset += got
        return calls

    def read_each(
        self, fd: int, index: int, offsets: Sequence[int], rows: np.ndarray, places: Sequence[int]
    ) -> None:
        """Fill rows `places` of `rows` (uint8, 2-d) with the bytes at `offsets` of file `index`, one each."""
        nbytes = rows.shape[1]
        for offset in offsets:
            advise(fd, offset, nbytes)
        view = rows.reshape(-1).data
        for offset, place in zip(offsets, places, strict=True):
            row = view[place * nbytes : (place + 1) * nbytes]
            try:
                whole = os.preadv(fd, [row], offset) == nbytes
            except OSError:
                whole = False
            if not whole:
                # The rest of it, or the error that says what is wrong.
                self.read(fd, index, offset, rows[place])

    def read_scattered(
        self, fd: int, index: int, offset: int, rows: np.ndarray, places: np.ndarray, vectors: np.ndarray
    ) -> int:
        """Fill rows `places` (int64) of `rows` (uint8, 2-d) with the bytes from `offset` on; the calls made.

        They lie one behind the other in file `index`. `vectors` are the `scatter_vectors` of `places`.
        """
        preadv = _preadv()
        calls = 0
        for lo in range(0, len(places), _MOST_VECTORS):
            part = vectors[lo : lo + _MOST_VECTORS]
            begin, nbytes = offset + lo * rows.shape[1], len(part) * rows.shape[1]
            calls += 1
            if preadv(fd, part.ctypes.data, len(part), begin) != nbytes:
                # The rest of it, or the error that says what is wrong.
                for number, place in enumerate(places[lo : lo + len(part)].tolist()):
                    calls += self.read(fd, index, begin + number * rows.shape[1], rows[place])
        return calls

    def close(self) -> None:
        """Close every descriptor; reading afterwards is an error."""
        with self._lock:
            self._closed = True
            self._open.clear()
        self._fetcher.close()

    def _opened(self, index: int) -> _Descriptor:
        path = self._files.path(index)
        try:
            return _Descriptor(path)
        except FileNotFoundError as error:
            raise ChangedError(
                f"{path}: the file was removed since the store was opened; restore it or open it again",
                file=path,
            ) from error
        except OSError as error:
            raise _unreadable(path, error) from error

    def _check(self, index: int, fd: int) -> None:
        now, then = FileState.of(fd), self._files.state(index)
        if now == then:
            return
        what = "it was modified since the store was opened"
        if now.nbytes != then.nbytes:
            what = f"it has {now.nbytes} bytes now and had {then.nbytes} when the store was opened"
        path = self._files.path(index)
        raise ChangedError(f"{path}: the file changed: {what}; open the store again", file=path)


def scatter_vectors(rows: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The address and the bytes of rows `places` (int64) of `rows` (2-d), as preadv(2) has it: (places, 2).

    Good for as long as `rows`. Raises `ValueError` for rows that are not writable and in C order, and
    `IndexError` for places beyond them: the system would write to whatever lies there.
    """
    if not rows.flags.carray:
        raise ValueError("rows are not writable, or not in C order")
    if len(places) and not (places.min() >= 0 and places.max() < len(rows)):
        raise IndexError(f"places beyond the {len(rows)} rows")
    vectors = np.empty((len(places), 2), np.uintp)
    vectors[:, 0] = places * rows.strides[0] + rows.ctypes.data
    vectors[:, 1] = rows.shape[1] * rows.itemsize
    return vectors


@functools.cache
def _preadv() -> Any:
    """The system's preadv(2), without the interpreter held: `os.preadv` wants an object of Python a row."""
    library = ctypes.CDLL(None)
    # Where offsets are of 32 bits by default, the former takes 64; musl has the latter alone.
    preadv = getattr(library, "preadv64", None) or library.preadv
    preadv.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64]
    preadv.restype = ctypes.c_ssize_t
    return preadv


def _unreadable(path: str, error: OSError) -> StoreError:
    return StoreError(f"{path}: cannot be read: {error.strerror}", file=path)
