"""Bitshuffle, HDF5 filter 32008: bits of equal weight together, block by block, compressed or not."""

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oocloader.codecs.chain import OWN, CodecError, Compressor, Step, scratch
from oocloader.codecs.library import call, fill, fits, load

_HEADER = struct.Struct(">qi")
_LENGTH = struct.Struct(">i")
_GROUP = 8
"""Elements whose bits are exchanged."""


@dataclass(frozen=True, slots=True)
class Bitshuffle(Step):
    """The bit shuffle alone, of elements of `itemsize` bytes in blocks of `block` elements.

    `block` 0 is the default of the format. Up to seven elements left over at the end stay as they are.
    """

    itemsize: int
    block: int = 0
    name: str = "bitshuffle"
    function: Callable[..., Any] = field(default_factory=lambda: load("bitshuffle_decode"), repr=False)

    def decode(self, stored: np.ndarray, out: np.ndarray) -> np.ndarray:
        if stored.size % self.itemsize:
            raise CodecError(f"bitshuffle: {stored.size} bytes are no elements of {self.itemsize} bytes")
        filled = out[: fits(self.name, stored.size, out)]
        if stored.size:
            # imagecodecs takes any element size by the dtype, but only 1, 2, 4 and 8 by its `itemsize`.
            element = np.dtype(f"V{self.itemsize}")
            source, place = stored.view(element), filled.view(element)
            call(self.name, self.function, source, place, blocksize=self.block)
        return filled


@dataclass(frozen=True, slots=True)
class CompressedBitshuffle(Compressor):
    """The bit shuffle with compressed blocks.

    Stored are the decoded size (int64) and the block size in bytes (int32), then each block behind its
    stored length (int32), all big-endian; at the end the elements left over. Blocks of 8 KiB are usual,
    so `join` decodes all of them by one library call: a call for each would spend more time on the GIL
    than on the data.

    `join(stored, blocks, out, block)`: decode the `blocks`, slices of `stored` which decode to `block` bytes
    each but for the last, to fill `out`.
    """

    itemsize: int
    join: Callable[[np.ndarray, list[slice], np.ndarray, int], None]
    name: str = "bitshuffle"

    def scratch(self, nbytes: int) -> int:
        return nbytes

    def decode(self, stored: np.ndarray, out: np.ndarray) -> np.ndarray:
        if stored.size < _HEADER.size:
            raise CodecError(f"{self.name}: {stored.size} bytes are no stream")
        total, block = _HEADER.unpack_from(stored.data)
        fits(self.name, total, out)
        if total % self.itemsize or block <= 0 or block % (_GROUP * self.itemsize):
            raise CodecError(f"{self.name}: {total} bytes in blocks of {block} bytes are no whole elements")
        left = total // self.itemsize % _GROUP * self.itemsize
        main = total - left
        blocks = _blocks(stored, -(-main // block))
        end = blocks[-1].stop if blocks else _HEADER.size
        if stored.size - end < left:
            raise CodecError(f"{self.name}: the stream stops early, after {stored.size} bytes")
        shuffled = scratch(OWN, total)
        if blocks:
            self.join(stored, blocks, shuffled[:main], block)
        shuffled[main:] = stored[end : end + left]
        return Bitshuffle(self.itemsize, block // self.itemsize).decode(shuffled, out)


def zstd_blocks(itemsize: int) -> CompressedBitshuffle:
    decoder = load("zstd_decode")

    def join(stored: np.ndarray, blocks: list[slice], out: np.ndarray, block: int) -> None:
        # Zstandard frames that follow one another are one stream.
        view = stored.data
        frames = np.frombuffer(b"".join([view[place] for place in blocks]), np.uint8)
        fill("bitshuffle (zstd)", decoder, frames, out)

    return CompressedBitshuffle(itemsize, join)


def lz4_blocks(itemsize: int) -> CompressedBitshuffle:
    framed, single = load("lz4h5_decode"), load("lz4_decode")

    def join(stored: np.ndarray, blocks: list[slice], out: np.ndarray, block: int) -> None:
        lengths = [place.stop - place.start for place in blocks]
        if block in lengths[:-1] or lengths[-1] == out.size - block * (len(blocks) - 1):
            # The framing below would have such blocks stored uncompressed.
            for number, place in enumerate(blocks):
                part = out[number * block : (number + 1) * block]
                fill("bitshuffle (lz4)", single, stored[place], part)
            return
        # HDF5's LZ4 filter frames its blocks in the same way, and has nothing left over at the end.
        total, _ = _HEADER.unpack_from(stored.data)
        if total != out.size:
            stored = stored[: blocks[-1].stop].copy()
            _HEADER.pack_into(stored.data, 0, out.size, block)
        fill("bitshuffle (lz4)", framed, stored, out)

    return CompressedBitshuffle(itemsize, join)


def _blocks(stored: np.ndarray, count: int) -> list[slice]:
    """Where each of `count` blocks lies behind its stored length; all of them are there."""
    view, size = stored.data, stored.size
    unpack, step = _LENGTH.unpack_from, _LENGTH.size
    blocks = []
    at = _HEADER.size
    for _ in range(count):
        if at + step > size:
            raise CodecError(f"bitshuffle: the stream stops early, after {size} bytes")
        (length,) = unpack(view, at)
        start, at = at + step, at + step + length
        if length <= 0 or at > size:
            raise CodecError(f"bitshuffle: a block of {length} bytes ends at {at}, {size} are stored")
        blocks.append(slice(start, at))
    return blocks
