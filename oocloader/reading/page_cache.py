"""Has bytes of files brought to the page cache before they are read, in the way that serves later passes too.

Linux keeps what it reads ahead of a sequential reader in large folios, and what it is advised to fetch
(posix_fadvise) page by page: on Linux 6.18 with ext4 that came from the disk 0.4 times as fast, and what was
read from the page cache afterwards, or touched in a mapping, 0.25 times as fast.
"""

import contextlib
import ctypes
import functools
import os
import threading
from collections import deque
from typing import Any

# What is read in order is read in calls of this size: where the system by itself reads little ahead, it
# still asks the disk for as much as was called for.
_CALL_NBYTES = 4 << 20
# All of it goes to the same memory, which stays in the processor's cache.
_SCRATCH_NBYTES = 64 << 10
# Bytes that begin this close to the end of those before go on with them: behind a gap, or with some of them.
_NEAR_NBYTES = 1 << 20
# Of a longer range Linux fetches less than it was advised to: as much as it reads ahead by itself, or as the
# disk takes at once.
_ADVICE_NBYTES = 512 << 10
# A file is begun in steps: each finds the system reading ahead of the one before, in larger folios.
_STEP_NBYTES = 128 << 10
# More is wanted at once where much is read with one call, or in a forked child, which fetches nothing.
_MOST_WANTED = 1 << 16
# By now there may be something else at the path, of which a pipe would never open.
_OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
# Stores may have a million files, of which few are read at a time.
_MOST_FILES = 64


class Fetcher:
    """Fetches what will be read of some files. Thread-safe, also where the process forks meanwhile.

    What is wanted in the order of a file is read by a thread, which ends when nothing is left to be read.
    What cannot be fetched fails where it is read.
    """

    def __init__(self) -> None:
        self._wanted: deque[tuple[str, int, int]] = deque()
        # Where what was wanted last of each file ends.
        self._ends: dict[str, int] = {}
        # Held while there is a thread. A forked child that inherits it held starts none.
        self._running = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def want(self, fd: int, path: str, offset: int, nbytes: int) -> None:
        """Have these bytes of the file at `path`, which is open as `fd`, fetched. Does not wait for them."""
        if is_cached(fd, offset, nbytes):
            return
        goes_on = abs(offset - self._ends.get(path, 0)) <= _NEAR_NBYTES
        if len(self._ends) >= _MOST_FILES:
            self._ends.clear()
        self._ends[path] = offset + nbytes
        if offset == 0 and _begin(fd, nbytes):
            return
        if not goes_on:
            advise(fd, offset, nbytes)
            return
        # What is wanted first is read first.
        if len(self._wanted) < _MOST_WANTED:
            self._wanted.append((path, offset, nbytes))
        if not self._closed and self._running.acquire(blocking=False):
            self._start()

    def close(self) -> None:
        """Fetch no more, and wait for the thread."""
        self._closed = True
        self._wanted.clear()
        thread = self._thread
        if thread is not None:
            thread.join()

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="oocloader-fetch", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # No more threads, or none at the end of the program: it is read when it is needed.
            self._running.release()
        else:
            self._thread = thread

    def _run(self) -> None:
        while True:
            self._fetch_all()
            self._running.release()
            # Whoever wanted something since has found this thread running.
            if self._closed or not self._wanted or not self._running.acquire(blocking=False):
                return

    def _fetch_all(self) -> None:
        opened, fd = "", -1
        while not self._closed:
            try:
                path, offset, nbytes = self._wanted.popleft()
            except IndexError:
                break
            try:
                if path != opened:
                    if fd >= 0:
                        os.close(fd)
                    # Of its own: the system follows what is read through each descriptor.
                    opened, fd = path, -1
                    fd = os.open(path, _OPEN_FLAGS)
                self._fetch(fd, offset, offset + nbytes)
            except OSError:
                pass
        if fd >= 0:
            os.close(fd)

    def _fetch(self, fd: int, offset: int, end: int) -> None:
        while offset < end and not self._closed:
            got = _read_away(fd, offset, min(_CALL_NBYTES, end - offset))
            if got == 0:
                return
            offset += got


def advise(fd: int, offset: int, nbytes: int) -> None:
    """Tell the system that exactly these bytes will be read."""
    end = offset + nbytes
    with contextlib.suppress(OSError):  # what cannot be read fails where it is read
        for begin in range(offset, end, _ADVICE_NBYTES):
            os.posix_fadvise(fd, begin, min(_ADVICE_NBYTES, end - begin), os.POSIX_FADV_WILLNEED)


def _begin(fd: int, nbytes: int) -> bool:
    """Have the system read ahead from the start of a file, and not wait; False where that cannot be.

    Files of a chunk each are read at once so, where a thread would wait for one after the other.
    """
    for begin in range(0, nbytes, _STEP_NBYTES):
        try:
            _read_away(fd, begin, min(_STEP_NBYTES, nbytes - begin), os.RWF_NOWAIT)
        except BlockingIOError:
            pass  # that is to say, it is on its way
        except OSError:
            return False
    return True


def _read_away(fd: int, offset: int, nbytes: int, flags: int = 0) -> int:
    """Read bytes and drop them; how many came."""
    whole, rest = divmod(nbytes, _SCRATCH_NBYTES)
    scratch = _scratch()
    return os.preadv(fd, [scratch] * whole + [scratch[:rest]] * (rest > 0), offset, flags)


@functools.cache
def _scratch() -> memoryview:
    return memoryview(bytearray(_SCRATCH_NBYTES))


def is_cached(fd: int, offset: int, nbytes: int) -> bool:
    """Whether these bytes seem to lie in the page cache; False where the system does not tell.

    Three of them are looked for. To ask for all that is there already takes a third of the time that reading
    it takes.
    """
    return all(_holds(fd, place) for place in (offset, offset + nbytes // 2, offset + nbytes - 1))


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("nbytes", ctypes.c_uint64))


class _CacheStat(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("cached", "dirty", "written_back", "evicted", "evicted_recently")
    )


class _IoVec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("nbytes", ctypes.c_size_t))


# The number of the system call, the same on all but one of Linux's architectures.
_CACHESTAT = 451


def _holds(fd: int, place: int) -> bool:
    """Whether the page cache holds the byte at `place`."""
    syscall, preadv2 = _calls()
    if syscall is not None:
        # Linux 6.5 and later tell; of files of others that one may not write, some do not.
        where, found = _Range(place, 1), _CacheStat()
        if syscall(_CACHESTAT, fd, ctypes.addressof(where), ctypes.addressof(found), 0) == 0:
            return bool(found.cached)
    if preadv2 is None:
        return False
    # Reads one page ahead where there is none, which the pages around then cannot form a large folio with.
    byte = ctypes.c_char()
    vector = _IoVec(ctypes.addressof(byte), 1)
    return bool(preadv2(fd, ctypes.addressof(vector), 1, place, os.RWF_NOWAIT) == 1)


@functools.cache
def _calls() -> tuple[Any, Any]:
    """The system's `syscall` and `preadv2`, `None` where there is none.

    Called without letting other threads have the interpreter: they wait for nothing, and to get the
    interpreter back may take 5 ms (sys.getswitchinterval).
    """
    if os.uname().machine == "alpha":
        return None, None
    library = ctypes.PyDLL(None)
    syscall, preadv2 = getattr(library, "syscall", None), getattr(library, "preadv2", None)
    if syscall is not None:
        syscall.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint]
        syscall.restype = ctypes.c_long
    if preadv2 is not None:
        preadv2.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_int]
        preadv2.restype = ctypes.c_ssize_t
    return syscall, preadv2
