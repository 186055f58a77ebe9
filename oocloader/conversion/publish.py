"""Makes a new store appear under its name only when it is complete and on the disk."""

import contextlib
import ctypes
import errno
import functools
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import Any

from oocloader.errors import StoreError
from oocloader.local_files import sync_folder

# Of linux/fs.h and fcntl.h.
_AT_FDCWD = -100
_RENAME_NOREPLACE, _RENAME_EXCHANGE = 1, 2
# Of linux/fs.h: wait for writes under way, start writing, wait for that.
_SYNC_FILE_RANGE_ALL = 1 | 2 | 4
# A file is synced in steps of this size, since nothing can interrupt the system while it syncs.
_SYNC_NBYTES = 32 << 20


class DiscardedError(StoreError):
    """A new store was written that nobody can want, and is discarded."""


@contextlib.contextmanager
def aside(destination: str) -> Iterator[str]:
    """A new name beside `destination`; whatever lies there in the end is removed, unless it was renamed."""
    folder, name = os.path.split(destination)
    path = os.path.join(folder, f".{name}.oocloader-{secrets.token_hex(4)}")
    try:
        yield path
    finally:
        remove(path)


def remove(path: str) -> None:
    """Remove a file or folder if it is there, also where Ctrl-C falls into it."""
    try:
        _remove(path)
    except KeyboardInterrupt:
        _remove(path)
        raise


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            os.unlink(path)


def size_of(path: str) -> int:
    """Bytes of a file, or of all files in a folder."""
    if not os.path.isdir(path):
        return os.stat(path).st_size
    files = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
    return sum(os.stat(file).st_size for file in files)


def sync(path: str) -> None:
    """Wait until a file, or a folder with all that is in it, is on the disk."""
    if os.path.isdir(path):
        for folder, _, names in os.walk(path, topdown=False):
            for name in names:
                _sync_file(os.path.join(folder, name))
            sync_folder(folder)
    else:
        _sync_file(path)


def _sync_file(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        sync_range = _libc_function("sync_file_range")
        if sync_range is not None:
            # What does not work here, fsync still does.
            for at in range(0, os.fstat(fd).st_size, _SYNC_NBYTES):
                offset, nbytes = ctypes.c_int64(at), ctypes.c_int64(_SYNC_NBYTES)
                if sync_range(fd, offset, nbytes, _SYNC_FILE_RANGE_ALL) != 0:
                    break
        os.fsync(fd)
    finally:
        os.close(fd)


def publish(path: str, destination: str, *, overwrite: bool) -> None:
    """Rename the complete store at `path` to `destination`, both in one folder.

    With `overwrite`, what is there stays until the new store takes its name: a file is replaced, a
    folder is exchanged with the new one and then removed. Where the system cannot exchange folders the
    old one is renamed first, so that for a moment nothing has the name. Without `overwrite`, what
    came to be there meanwhile is kept: `StoreError`.
    """
    if overwrite:
        _replace(path, destination)
    else:
        _rename_new(path, destination)
    sync_folder(os.path.dirname(destination))


def _replace(path: str, destination: str) -> None:
    if not os.path.lexists(destination) or not (os.path.isdir(path) or os.path.isdir(destination)):
        os.replace(path, destination)
    elif _rename(path, destination, _RENAME_EXCHANGE):
        remove(path)
    else:
        with aside(destination) as old:
            try:
                os.rename(destination, old)
                os.rename(path, destination)
            except BaseException:
                if os.path.lexists(old) and not os.path.lexists(destination):
                    os.rename(old, destination)
                raise


def _rename_new(path: str, destination: str) -> None:
    try:
        if _rename(path, destination, _RENAME_NOREPLACE):
            return
        if os.path.lexists(destination):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        os.rename(path, destination)
    except FileExistsError:
        raise DiscardedError(
            f"{destination}: someone else made it in the meantime; that one is kept, this one discarded",
            file=destination,
        ) from None


def _rename(path: str, destination: str, flag: int) -> bool:
    """renameat2 with one flag; False where system or file system lacks it. Raises `OSError` otherwise."""
    rename = _libc_function("renameat2")
    if rename is None:
        return False
    source, target = os.fsencode(path), os.fsencode(destination)
    if rename(_AT_FDCWD, source, _AT_FDCWD, target, ctypes.c_uint(flag)) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code), destination)


@functools.cache
def _libc_function(name: str) -> Callable[..., int] | None:
    if sys.platform != "linux":
        return None
    libc: Any = ctypes.CDLL(None, use_errno=True)
    function: Callable[..., int] | None = getattr(libc, name, None)
    return function
