"""Aligned memory that is reused, and private copy-on-write mappings of file bytes.

TensorFlow takes a NumPy array without copying where its address is a multiple of 64 bytes, and may
later write into it. So whatever is handed out is either a pool buffer, refilled before it is reused,
or a private mapping made for one window and dropped with it.
"""

import ctypes
import functools
import mmap
import os
from collections import deque
from collections.abc import Callable, Sequence
from ctypes import c_int, c_int64, c_size_t, c_void_p
from typing import Any

import numpy as np

ALIGNMENT = 64
PAGE = mmap.PAGESIZE
# Linux maps the cached pages around the one that is touched too, 64 KiB of them.
FAULT_NBYTES = 64 << 10
# Below this size huge pages waste more memory than they save page faults.
_HUGE = 4 << 20


class _Lease:
    """Memory lent to arrays: views of such an array keep this object alive; `release` runs when it dies.

    NumPy shortens chains of views to the first object that is no array, so the lease sits there.
    `release` may run in any thread, a TensorFlow one included: it must neither wait nor raise.
    """

    __slots__ = ("__array_interface__", "_release")

    def __init__(self, address: int, nbytes: int, release: Callable[[], object]) -> None:
        place = (address, False)
        self.__array_interface__ = {"shape": (nbytes,), "typestr": "|u1", "data": place, "version": 3}
        self._release = release

    def __del__(self) -> None:
        self._release()


def allocate(nbytes: int) -> np.ndarray:
    """A new page-aligned buffer, uint8 (nbytes,)."""
    # Not shared, as Python would have it: shared memory gets no huge pages, and forked children write to it.
    memory = mmap.mmap(-1, max(nbytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if nbytes >= _HUGE:
        try:
            memory.madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            pass  # a kernel without huge pages: the buffer works all the same
    return np.frombuffer(memory, np.uint8, nbytes)


class Pool:
    """Buffers of `nbytes`, each lent again once nobody holds it or a view of it.

    `take` never waits: where every buffer is still held it allocates. At most `keep` free buffers are
    kept for reuse. Thread-safe.
    """

    def __init__(self, nbytes: int, *, keep: int) -> None:
        self.nbytes = nbytes
        self._free: deque[np.ndarray] = deque(maxlen=keep)

    def take(self) -> np.ndarray:
        """A buffer, uint8 (nbytes,), contents undefined."""
        try:
            memory = self._free.pop()
        except IndexError:
            memory = allocate(self.nbytes)
        lease = _Lease(memory.ctypes.data, self.nbytes, functools.partial(self._free.append, memory))
        return np.asarray(lease)

    def clear(self) -> None:
        """Let go of the free buffers."""
        self._free.clear()


@functools.cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = c_void_p
    libc.mmap.argtypes = [c_void_p, c_size_t, c_int, c_int, c_int, c_int64]
    libc.munmap.argtypes = [c_void_p, c_size_t]
    return libc


_FAILED = c_void_p(-1).value
_MAP_FIXED = 0x10


def map_private(pieces: Sequence[tuple[int, int, int]]) -> np.ndarray | None:
    """Map `(fd, offset, nbytes)` pieces one behind the other, privately and writable; uint8 (sum of nbytes,).

    Writes stay in this mapping. `None` where the pieces cannot lie gaplessly in memory on a multiple
    of 64 bytes (all pieces but the first must start, and all but the last end, on a page border), or
    the system refuses. The descriptors may be closed afterwards.
    """
    if pieces[0][1] % ALIGNMENT:
        return None
    return _map(pieces, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE)


def map_shared(pieces: Sequence[tuple[int, int, int]]) -> np.ndarray | None:
    """Like `map_private`, at any address, to read from only: nothing that TensorFlow gets may lie in it."""
    return _map(pieces, mmap.PROT_READ, mmap.MAP_SHARED)


def _map(pieces: Sequence[tuple[int, int, int]], protection: int, kind: int) -> np.ndarray | None:
    libc = _libc()
    lead = pieces[0][1] % PAGE
    ends = [offset + nbytes for _, offset, nbytes in pieces]
    if any(offset % PAGE for _, offset, _ in pieces[1:]) or any(end % PAGE for end in ends[:-1]):
        return None
    total = lead + sum(nbytes for _, _, nbytes in pieces)
    if len(pieces) == 1:
        fd, offset, _ = pieces[0]
        base = libc.mmap(None, total, protection, kind, fd, offset - lead)
        if base == _FAILED:
            return None
    else:
        base = libc.mmap(None, total, protection, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        if base == _FAILED:
            return None
        at = base
        for fd, offset, nbytes in pieces:
            before = offset % PAGE
            if libc.mmap(at, nbytes + before, protection, kind | _MAP_FIXED, fd, offset - before) == _FAILED:
                libc.munmap(base, total)
                return None
            at += nbytes + before
    lease = _Lease(base + lead, total - lead, functools.partial(libc.munmap, base, total))
    return np.asarray(lease)


_REMOTE = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "ceph", "gpfs", "beegfs", "afs", "9p", "glusterfs")
)


@functools.lru_cache(maxsize=256)
def on_local_file_system(folder: str) -> bool:
    """Whether `folder` is on a file system of this machine, as far as the mount table tells.

    A mapping of a remote file turns a lost connection into SIGBUS, so those are only ever read.
    """
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as table:
            mounts = [line.split()[1:3] for line in table]
    except OSError:
        return False
    folder = os.path.realpath(folder)
    best, kind = "", ""
    for point, name in mounts:
        point = point.replace("\\040", " ")
        inside = folder == point or folder.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, name
    return kind not in _REMOTE and not kind.startswith("fuse")
