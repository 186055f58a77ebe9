"""A deflated stretch of a file as bytes that can be read from any position, in bounded memory."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass

import numpy as np

from oocloader.errors import CorruptChunkError
from oocloader.reading import FileReader

# Small, since each checkpoint keeps the input that its decompressor has not taken yet.
_INPUT_NBYTES = 16 << 10
_OUTPUT_NBYTES = 1 << 20
# A checkpoint is about 60 KB; going back costs decoding this many bytes at most.
_MIN_SPACING_NBYTES = 4 << 20
_CHECKPOINTS = 128


@dataclass(slots=True)
class _Point:
    """A decompressor that has given `out` bytes and next takes the byte at `taken`, both from the start."""

    out: int
    taken: int
    # zlib.decompressobj returns an object whose type has no public name.
    decompressor: zlib._Decompress

    def copy(self) -> _Point:
        return _Point(self.out, self.taken, self.decompressor.copy())


class InflatedBytes:
    """`stored` deflated bytes at `offset` of the only file, `nbytes` when unpacked. Not thread-safe.

    Going forward decodes every byte once; a decompressor is kept every few megabytes to go back to. The
    checksum `crc` is verified when the end is reached.
    """

    def __init__(
        self, files: FileReader, *, offset: int, stored: int, nbytes: int, crc: int, store: str, array: str
    ) -> None:
        self._files = files
        self._offset = offset
        self._stored = stored
        self._nbytes = nbytes
        self._crc = crc
        self._store = store
        self._array = array
        self._spacing = max(_MIN_SPACING_NBYTES, nbytes // _CHECKPOINTS)
        self._points = [_Point(0, 0, zlib.decompressobj(-zlib.MAX_WBITS))]
        self._at = self._points[0].copy()
        self._summed = 0
        self._sum = 0

    def read(self, position: int, out: np.ndarray) -> None:
        """Fill `out`, uint8 (n,), with the unpacked bytes from `position`. Raises `CorruptChunkError`."""
        nearest = max((point for point in self._points if point.out <= position), key=lambda point: point.out)
        if self._at.out > position or nearest.out > self._at.out:
            self._at = nearest.copy()
        done = 0
        with self._files.opened(0) as fd:
            while done < out.nbytes:
                wanted = position + done
                if self._at.out < wanted:
                    self._next(fd, wanted - self._at.out)
                    continue
                got = self._next(fd, out.nbytes - done)
                out[done : done + len(got)] = np.frombuffer(got, np.uint8)
                done += len(got)

    def _next(self, fd: int, at_most: int) -> bytes:
        """The next bytes, at least one."""
        at = self._at
        # Stopping at checkpoints keeps them in step, whatever pieces are asked for.
        until_point = self._spacing - at.out % self._spacing
        at_most = min(at_most, until_point, _OUTPUT_NBYTES)
        got = b""
        while not got:
            left = self._stored - at.taken
            piece = os.pread(fd, min(_INPUT_NBYTES, left), self._offset + at.taken)
            try:
                got = at.decompressor.decompress(piece, at_most)
            except zlib.error as error:
                raise self._damaged(str(error)) from error
            at.taken += len(piece) - len(at.decompressor.unconsumed_tail)
            if not got and (at.decompressor.eof or not piece):
                raise self._damaged(f"it unpacks to {at.out} bytes, expected {self._nbytes}")
        self._verify(at.out, got)
        at.out += len(got)
        if at.out % self._spacing == 0 and at.out > self._points[-1].out:
            self._points.append(at.copy())
        return got

    def _verify(self, position: int, got: bytes) -> None:
        fresh = got[self._summed - position :] if position <= self._summed else b""
        if not fresh:
            return
        self._sum = zlib.crc32(fresh, self._sum)
        self._summed += len(fresh)
        if self._summed == self._nbytes and self._sum != self._crc:
            raise self._damaged("its checksum (CRC-32) is wrong")

    def _damaged(self, reason: str) -> CorruptChunkError:
        return CorruptChunkError(
            f"{self._store}: array {self._array!r} is damaged: {reason}; restore the file from a copy",
            file=self._store,
            array=self._array,
        )
