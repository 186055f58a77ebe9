"""Blosc2, HDF5 filter 32026: a contiguous frame that holds the data in one Blosc2 chunk.

Formats: README_CFRAME_FORMAT, README_CHUNK_FORMAT and README_B2ND_METALAYER of c-blosc2. The chunk is
decoded by imagecodecs, which does not read frames (2026.3), so it is found in them here. Left to h5py with
hdf5plugin, which reads one thread at a time, whole chunks came at 0.18 to 0.98 of the speed, in the median
0.78: three shapes, uint8 and float32, lz4 and zstd, one thread, medians of nine in turns.
"""

import itertools
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from oocloader.codecs.chain import OWN, CodecError, Compressor, scratch
from oocloader.codecs.compressors import blosc_sizes
from oocloader.codecs.library import fill, fits, load

_MAGIC = b"\x9e\xa8b2frame\0"
_HEADER_NBYTES = struct.Struct(">i")
_SIZES = struct.Struct(">qxq")
_COUNT = struct.Struct(">H")
_OFFSET = struct.Struct(">xi")
_CONTENT = struct.Struct(">xI")
_AT_HEADER_NBYTES, _AT_SIZES, _AT_META_COUNT = 11, 30, 92
_ZERO, _NAN, _UNSET = 1, 2, 4
"""Special values that stand for a whole chunk."""


@dataclass(frozen=True, slots=True)
class Blosc2(Compressor):
    """A frame that holds `shape` elements of `itemsize` bytes, or fewer or more bytes without a shape.

    The filter cuts its data into n-dimensional blocks ("b2nd"), padded at the edges, if it is the whole
    HDF5 chunk and not what another filter made of it.
    """

    shape: tuple[int, ...]
    itemsize: int
    name: str = "blosc2"
    function: Callable[..., Any] = field(default_factory=lambda: load("blosc2_decode"), repr=False)

    def scratch(self, nbytes: int) -> int:
        # No block is longer than the chunk, so that padding less than doubles an axis.
        return nbytes << len(self.shape)

    def decode(self, stored: np.ndarray, out: np.ndarray) -> np.ndarray:
        try:
            return self._decode(stored, out)
        except (struct.error, msgspec.MsgspecError) as error:
            raise CodecError(f"blosc2: damaged frame: {error}") from error

    def _decode(self, stored: np.ndarray, out: np.ndarray) -> np.ndarray:
        if stored[: len(_MAGIC)].tobytes() != _MAGIC:
            raise CodecError("blosc2: no contiguous frame")
        (start,) = _HEADER_NBYTES.unpack_from(stored.data, _AT_HEADER_NBYTES)
        if not _AT_META_COUNT < start < stored.size:
            raise CodecError(f"blosc2: a header of {start} bytes in a frame of {stored.size}")
        decoded, size = _SIZES.unpack_from(stored.data, _AT_SIZES)
        block = self._block_shape(stored[:start])
        if block is None or (self._straight(block) and decoded == self._nbytes):
            fits("blosc2", decoded, out)
            return self._chunk(stored[start:], out[:decoded], empty=size == 0)
        fits("blosc2", self._nbytes, out)
        grid = tuple(-(-n // b) for n, b in zip(self.shape, block, strict=True))
        padded = math.prod(grid) * math.prod(block) * self.itemsize
        if decoded != padded:
            raise CodecError(f"blosc2: the frame claims {decoded} bytes, its blocks have {padded}")
        blocks = self._chunk(stored[start:], scratch(OWN, padded), empty=size == 0)
        chunk = out[: self._nbytes]
        element = np.dtype(f"u{self.itemsize}" if self.itemsize in (1, 2, 4, 8) else f"V{self.itemsize}")
        _join(blocks.view(element).reshape(grid + block), chunk.view(element).reshape(self.shape))
        return chunk

    @property
    def _nbytes(self) -> int:
        return math.prod(self.shape) * self.itemsize

    def _straight(self, block: tuple[int, ...]) -> bool:
        """Whether blocks that follow one another are the chunk in C order."""
        cut = next((axis for axis, length in enumerate(block) if length > 1), len(block))
        return block[cut + 1 :] == self.shape[cut + 1 :]

    def _block_shape(self, header: np.ndarray) -> tuple[int, ...] | None:
        """Shape of a block, `None` where the frame knows of no dimensions."""
        (count,) = _COUNT.unpack_from(header.data, _AT_META_COUNT)
        at = _AT_META_COUNT + _COUNT.size
        for _ in range(count):
            length = int(header[at]) & 0x1F if at < header.size else 0
            name = header[at + 1 : at + 1 + length].tobytes()
            (offset,) = _OFFSET.unpack_from(header.data, at + 1 + length)
            at += 1 + length + _OFFSET.size
            if name in (b"b2nd", b"caterva"):
                return self._of_meta(header, offset)
        return None

    def _of_meta(self, header: np.ndarray, offset: int) -> tuple[int, ...]:
        if not 0 < offset < header.size:
            raise CodecError("blosc2: damaged frame: dimensions outside the header")
        (length,) = _CONTENT.unpack_from(header.data, offset)
        start = offset + _CONTENT.size
        meta = msgspec.msgpack.decode(header[start : start + length].tobytes(), type=list[Any])
        if len(meta) < 5 or list(self.shape) != meta[2] or list(self.shape) != meta[3]:
            raise CodecError(f"blosc2: the frame is not of the chunk's shape {self.shape}")
        block = msgspec.convert(meta[4], tuple[int, ...])
        whole = len(block) == len(self.shape)
        if not (whole and all(0 < b <= n for b, n in zip(block, self.shape, strict=True))):
            raise CodecError(f"blosc2: blocks of shape {block} in a chunk of shape {self.shape}")
        return block

    def _chunk(self, chunks: np.ndarray, out: np.ndarray, *, empty: bool) -> np.ndarray:
        """Decode the first of `chunks` to fill `out`; `empty`: there is only the index, of special values."""
        if empty:
            return self._special(chunks, out)
        decoded, size = blosc_sizes("blosc2", chunks)
        if decoded != out.size:
            raise CodecError(f"blosc2: a chunk of {decoded} bytes in a frame of {out.size}")
        return fill("blosc2", self.function, chunks[:size], out, numthreads=1)

    def _special(self, chunks: np.ndarray, out: np.ndarray) -> np.ndarray:
        index = fill("blosc2", self.function, chunks, np.empty(8, np.uint8), numthreads=1)
        place = int(index.view("<i8")[0])
        kind = place >> 56 & 0x7
        if place < 0 and kind in (_ZERO, _UNSET):
            out[:] = 0
        elif place < 0 and kind == _NAN and self.itemsize in (4, 8) and out.size % self.itemsize == 0:
            out.view(f"<f{self.itemsize}")[:] = np.nan
        else:
            raise CodecError(f"blosc2: a chunk of the special value {kind}")
        return out


def _join(blocks: np.ndarray, out: np.ndarray) -> None:
    """Lay `blocks`, of shape (*grid, *block), side by side in `out` and leave their padding out."""
    ndim = out.ndim
    grid, block = blocks.shape[:ndim], blocks.shape[ndim:]
    alternating = [axis for pair in zip(range(ndim), range(ndim, 2 * ndim), strict=True) for axis in pair]
    # Along each axis: the whole blocks, and what the last one holds where it is padded.
    spans = []
    for n, g, b in zip(out.shape, grid, block, strict=True):
        whole, rest = divmod(n, b)
        spans.append([p for p in ((0, whole, b), (whole, g, rest)) if p[0] < p[1] and p[2]])
    for combination in itertools.product(*spans):
        source = tuple(slice(first, last) for first, last, _ in combination)
        source += tuple(slice(length) for _, _, length in combination)
        place = tuple(
            slice(first * b, first * b + (last - first) * length)
            for (first, last, length), b in zip(combination, block, strict=True)
        )
        cells = [size for first, last, length in combination for size in (last - first, length)]
        # Splitting axes of a slice makes a view, also where the slice is not contiguous.
        out[place].reshape(cells)[...] = blocks[source].transpose(alternating)
