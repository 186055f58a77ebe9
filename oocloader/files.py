"""Reading byte ranges of a store's files, and noticing when one of them changed."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from oocloader.errors import ChangedError, ClosedError, StoreError
from oocloader.layout import Files

# Up to this many files stay open; stores of one file a chunk open each for as long as it is read.
_KEPT_OPEN = 64

# After so many reads that the page cache had all of, files are taken to lie there, until one finds a gap:
# to ask for what is there already costs as much as reading a third of it.
_SURE_READS = 16
_NO_WAIT = getattr(os, "RWF_NOWAIT", 0)


class _Descriptor:
    """An open file, closed with the last reference: never under a thread that still reads from it."""

    __slots__ = ("fd",)

    def __init__(self, path: str) -> None:
        self.fd = -1
        self.fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


class FileReader:
    """Reads `files`, which must still be what they were when the store was opened. Thread-safe.

    A file that was replaced or removed while it is open here goes on being what it was.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._keep = len(files.names) <= _KEPT_OPEN
        self._open: dict[int, _Descriptor] = {}
        self._lock = threading.Lock()
        self._closed = False
        # Reads in a row that waited for nothing. Threads that count at the same time may lose one.
        self._cached_reads = 0
        self._no_wait = _NO_WAIT

    @contextmanager
    def opened(self, index: int) -> Iterator[int]:
        """The descriptor of file `index`, checked to be unchanged."""
        with self._lock:
            if self._closed:
                path = self._files.path(index)
                raise ClosedError(f"{path}: the store is closed; open it again", file=path)
            file = self._open.get(index)
            if file is None and self._keep:
                file = self._open[index] = self._opened(index)
        if file is None:
            file = self._opened(index)
        try:
            self._check(index, file.fd)
            yield file.fd
        finally:
            # The traceback of an error must not keep the file open.
            del file

    def will_need(self, index: int, offset: int, nbytes: int) -> None:
        """Have these bytes fetched from the disk meanwhile. What cannot be read fails where it is read."""
        if hasattr(os, "posix_fadvise") and not self._cached:
            try:
                with self.opened(index) as fd:
                    os.posix_fadvise(fd, offset, nbytes, os.POSIX_FADV_WILLNEED)
            except (OSError, ClosedError):
                pass

    def check(self, index: int) -> None:
        """Raise `ChangedError` where file `index` is not what it was."""
        with self.opened(index):
            pass

    def read(self, fd: int, index: int, offset: int, out: np.ndarray) -> int:
        """Fill `out` (uint8, 1-d) with the bytes at `offset` of file `index`: the number of system calls."""
        path = self._files.path(index)
        view = out.data
        calls = 0
        while view.nbytes:
            try:
                got = self._preadv(fd, view, offset)
            except OSError as error:
                raise _unreadable(path, error) from error
            calls += 1
            if got == 0:
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
        if not self._cached:
            for offset in offsets:
                _advise(fd, offset, nbytes)
        view = rows.reshape(-1).data
        for offset, place in zip(offsets, places, strict=True):
            row = view[place * nbytes : (place + 1) * nbytes]
            try:
                whole = self._preadv(fd, row, offset) == nbytes
            except OSError:
                whole = False
            if not whole:
                # The rest of it, or the error that says what is wrong.
                self.read(fd, index, offset, rows[place])

    @property
    def _cached(self) -> bool:
        """Whether what is read seems to lie in the page cache."""
        return self._cached_reads >= _SURE_READS

    def _preadv(self, fd: int, view: memoryview, offset: int) -> int:
        """One call, or two where something has to be waited for; the bytes read."""
        got = -1
        if self._no_wait:
            try:
                got = os.preadv(fd, [view], offset, self._no_wait)
            except BlockingIOError:
                pass
            except OSError as error:
                if error.errno != errno.EOPNOTSUPP:
                    raise
                self._no_wait = 0
        if got == view.nbytes:
            self._cached_reads += 1
            return got
        self._cached_reads = 0
        return got if got > 0 else os.preadv(fd, [view], offset)

    def close(self) -> None:
        """Close every descriptor; reading afterwards is an error."""
        with self._lock:
            self._closed = True
            self._open.clear()

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
        now = os.fstat(fd)
        size, mtime_ns = int(self._files.size[index]), int(self._files.mtime_ns[index])
        if now.st_size == size and now.st_mtime_ns == mtime_ns:
            return
        path = self._files.path(index)
        if now.st_size != size:
            what = f"it has {now.st_size} bytes now and had {size} when the store was opened"
        else:
            what = "it was modified since the store was opened"
        raise ChangedError(f"{path}: the file changed: {what}; open the store again", file=path)


def _advise(fd: int, offset: int, nbytes: int) -> None:
    if hasattr(os, "posix_fadvise"):
        try:
            os.posix_fadvise(fd, offset, nbytes, os.POSIX_FADV_WILLNEED)
        except OSError:
            pass  # what cannot be read fails where it is read


def _unreadable(path: str, error: OSError) -> StoreError:
    return StoreError(f"{path}: cannot be read: {error.strerror}", file=path)
