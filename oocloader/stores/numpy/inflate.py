"""A deflated stretch of a file as bytes that can be read from any position, in bounded memory."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass

import numpy as np

from oocloader.errors import CorruptChunkError
from oocloader.reading import FileReader
from oocloader.stores.base.zipped import Member

# Small, since each checkpoint keeps the input that its decompressor has not taken yet.
_INPUT_NBYTES = 16 << 10
_OUTPUT_NBYTES = 1 << 20
# A checkpoint is about 60 KB; going back costs decoding this many bytes at most.
_MIN_SPACING_NBYTES = 4 << 20
_CHECKPOINTS = 128


@dataclass(slots=True)
class _Checkpoint:
    """A decompressor that has given `out` bytes and next takes the byte at `taken`, both from the start."""

    out: int
    taken: int
    # zlib.decompressobj returns an object whose type has no public name.
    decompressor: zlib._Decompress

    def copy(self) -> _Checkpoint:
        return _Checkpoint(self.out, self.taken, self.decompressor.copy())


class InflatedBytes:
    """The bytes of a deflated `member`, which begin at `offset` of the only file. Not thread-safe.

    Going forward decodes every byte once; a decompressor is kept every few megabytes to go back to. The
    checksum is verified when the end is reached. `store` and `array` are for messages.
    """

    def __init__(self, files: FileReader, member: Member, offset: int, *, store: str, array: str) -> None:
        self._files = files
        self._member = member
        self._offset = offset
        self._store = store
        self._array = array
        self._spacing = max(_MIN_SPACING_NBYTES, member.file_size // _CHECKPOINTS)
        self._checkpoints = [_Checkpoint(0, 0, zlib.decompressobj(-zlib.MAX_WBITS))]
        self._at = self._checkpoints[0].copy()
        self._summed = 0
        self._sum = 0

    def read(self, position: int, out: np.ndarray) -> None:
        """Fill `out`, uint8 (n,), with the unpacked bytes from `position`. Raises `CorruptChunkError`."""
        nearest = next(point for point in reversed(self._checkpoints) if point.out <= position)
        if self._at.out > position or nearest.out > self._at.out:
            self._at = nearest.copy()
        done = 0
        with self._files.opened(0) as fd:
            while done < out.nbytes:
                skipped = position - self._at.out
                data = self._next(fd, skipped if skipped > 0 else out.nbytes - done)
                if skipped <= 0:
                    out[done : done + len(data)] = np.frombuffer(data, np.uint8)
                    done += len(data)

    def _next(self, fd: int, at_most: int) -> bytes:
        """The next bytes, at least one."""
        at = self._at
        # Stopping at checkpoints keeps them in step, whatever pieces are asked for.
        at_most = min(at_most, self._spacing - at.out % self._spacing, _OUTPUT_NBYTES)
        data = b""
        while not data:
            left = self._member.compress_size - at.taken
            piece = os.pread(fd, min(_INPUT_NBYTES, left), self._offset + at.taken)
            try:
                data = at.decompressor.decompress(piece, at_most)
            except zlib.error as error:
                raise self._damaged(str(error)) from error
            at.taken += len(piece) - len(at.decompressor.unconsumed_tail)
            if not data and (at.decompressor.eof or not piece):
                raise self._damaged(f"it unpacks to {at.out} bytes, expected {self._member.file_size}")
        self._verify(data[self._summed - at.out :])
        at.out += len(data)
        if at.out % self._spacing == 0 and at.out > self._checkpoints[-1].out:
            self._checkpoints.append(at.copy())
        return data

    def _verify(self, unsummed: bytes) -> None:
        self._sum = zlib.crc32(unsummed, self._sum)
        self._summed += len(unsummed)
        if unsummed and self._summed == self._member.file_size and self._sum != self._member.CRC:
            raise self._damaged("its checksum (CRC-32) is wrong")

    def _damaged(self, reason: str) -> CorruptChunkError:
        what = f"{self._store}: array {self._array!r} is damaged: {reason}; restore the file from a copy"
        return CorruptChunkError(what, file=self._store, array=self._array)
