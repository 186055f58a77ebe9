"""Where the chunks of a new store go: runs of bytes of its files, which any thread may put there."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Extent:
    """A run of bytes of a file.

    - `nbytes`: of chunks, from byte `offset` of the file at `path` on
    - `tail`: what follows them there besides chunks
    - `ends`: whether the file ends behind that
    """

    path: str
    offset: int
    nbytes: int
    tail: bytes = b""
    ends: bool = False


@dataclass(frozen=True, slots=True)
class Placement:
    """Where some chunks go: byte `offsets` of each in its file, and the same as `extents`, in order."""

    offsets: list[int]
    extents: list[Extent]


def extents_of(path: str, offsets: Sequence[int], sizes: Sequence[int]) -> list[Extent]:
    """Chunks in one file, those that follow each other as one extent.

    >>> [(extent.offset, extent.nbytes) for extent in extents_of("x", [0, 4, 96], [4, 6, 2])]
    [(0, 10), (96, 2)]
    """
    extents: list[Extent] = []
    first = 0
    for chunk in range(1, len(sizes) + 1):
        if chunk == len(sizes) or offsets[chunk] != offsets[chunk - 1] + sizes[chunk - 1]:
            extents.append(Extent(path, offsets[first], sum(sizes[first:chunk])))
            first = chunk
    return extents


def put(extents: Sequence[Extent], data: np.ndarray, *, stopped: Callable[[], bool]) -> bool:
    """Write `data` (uint8, 1-d), the chunks of `extents`; False where stopped before one of them."""
    at = 0
    for extent in extents:
        if stopped():
            return False
        _put(extent, data[at : at + extent.nbytes])
        at += extent.nbytes
    return True


def put_tail(extent: Extent) -> None:
    """Write what follows the chunks, which are there."""
    behind = Extent(extent.path, extent.offset + extent.nbytes, 0, extent.tail, extent.ends)
    _put(behind, np.empty(0, np.uint8))


def _put(extent: Extent, data: np.ndarray) -> None:
    # Opened anew for each: several threads write to one file, and no descriptor outlives an error.
    fd = os.open(extent.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        end = pwrite_all(fd, data.data, extent.offset)
        end = pwrite_all(fd, memoryview(extent.tail), end)
        if extent.ends:
            # What an interrupted conversion wrote beyond this is not ours.
            os.ftruncate(fd, end)
    finally:
        os.close(fd)


def pwrite_all(fd: int, view: memoryview, offset: int) -> int:
    """Write all of `view` (bytes) from `offset` of a file on; where it ends."""
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written
    return offset
