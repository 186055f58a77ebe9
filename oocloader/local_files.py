"""Local files, where more than one part of the program asks the same of them: written atomically, locked,
and recognised as unchanged."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

# What `flock` says where a file system has no locks, and where somebody else holds the lock.
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EINVAL)
_HELD = (errno.EAGAIN, errno.EACCES)


def write_atomically(path: str, write: Callable[[BinaryIO], object]) -> None:
    """Have `write` fill a new file that then takes the place of `path` in one step, and is on the disk.

    A reader finds the old file or the new one, whenever the process or the machine stops. Raises `OSError`;
    the old file is then still there.
    """
    folder, name = os.path.split(path)
    aside = os.path.join(folder, f".{name}-{secrets.token_hex(4)}")
    try:
        with open(aside, "xb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(aside, path)
        sync_folder(folder)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(aside)


def sync_folder(path: str) -> None:
    """Wait until the names in a folder are on the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def try_lock(fd: int) -> bool | None:
    """Lock the open file for this process alone: whether it is now, `None` where there are no locks."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _HELD:
            return False
        if error.errno in _NO_LOCKS:
            return None
        raise
    return True


def is_at(fd: int, path: str) -> bool:
    """Whether `path` still names the open file."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class FileState:
    """What tells a file from itself after somebody wrote to it: its bytes, and nanoseconds of its mtime."""

    nbytes: int
    mtime_ns: int

    @classmethod
    def of(cls, file: str | int) -> FileState:
        """The state of a path or an open descriptor now. Raises `OSError`."""
        found = os.stat(file)
        return cls(found.st_size, found.st_mtime_ns)
