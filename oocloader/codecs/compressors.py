"""General compressors: byte streams that libraries decode straight to `out`.

imagecodecs decodes most of them, without the GIL; it was nowhere slower than numcodecs, and for gzip
its libdeflate was 1.2 to 1.3 times as fast as zlib-ng and 1.6 to 5 times as fast as zlib. What a library
trusts in a stream, and reads beyond where it is damaged, is checked before it is called.
"""

import bz2
import lzma
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np

from oocloader.codecs.chain import CodecError, Compressor
from oocloader.codecs.library import call, fill, fits, load


@dataclass(frozen=True, slots=True)
class Stream(Compressor):
    """A format whose decoder bounds what it reads and writes by itself, but for no bytes at all.

    `function(stored, out=out)` returns the part of `out` that it filled.
    """

    name: str
    function: Callable[..., Any] = field(repr=False)

    def decode(self, stored: np.ndarray, out: np.ndarray) -> np.ndarray:
        if not stored.size:
            raise CodecError(f"{self.name}: nothing is stored")
        return call(self.name, self.function, stored, out)


def zstd() -> Stream:
    return Stream("zstd", load("zstd_decode"))


def lzf() -> Stream:
    return Stream("lzf", load("lzf_decode"))


@dataclass(frozen=True, slots=True)
class SizedStream(Compressor):
    """A stream behind its decoded size, `size_nbytes` of `byteorder`.

    `function(stored, out=out)` gets what follows the first `skipped` bytes, and an `out` that is as long as
    the size says. `least` is the shortest that can be stored, `element` the size of what is decoded as one.
    """

    name: str
    function: Callable[..., Any] = field(repr=False)
    size_nbytes: int
    byteorder: Literal["little", "big"]
    skipped: int
    least: int
    element: int = 1

    def decode(self, stored: np.ndarray, out: np.ndarray) -> np.ndarray:
        if stored.size < self.least:
            raise CodecError(f"{self.name}: {stored.size} bytes are no stream")
        claim = fits(self.name, int.from_bytes(stored[: self.size_nbytes].tobytes(), self.byteorder), out)
        if claim % self.element:
            # The library leaves the bytes of a broken element as they were.
            raise CodecError(f"{self.name}: {claim} bytes are no elements of {self.element} bytes")
        return fill(self.name, self.function, stored[self.skipped :], out[:claim])


def lz4() -> SizedStream:
    """One LZ4 block behind its decoded size, as numcodecs writes it."""
    return SizedStream("lz4", load("lz4_decode"), 4, "little", skipped=4, least=5)


def lz4_hdf5() -> SizedStream:
    """LZ4 as HDF5 filter 32004 frames it.

    The decoded size (int64) and the block size (int32), then each block behind its stored length
    (int32), all big-endian. A block as long as it decodes to is not compressed; where the last one
    ends, the library takes from the length of `out`.
    """
    return SizedStream("lz4", load("lz4h5_decode"), 8, "big", skipped=0, least=12)


def szip(
    options_mask: int, pixels_per_block: int, bits_per_pixel: int, pixels_per_scanline: int
) -> SizedStream:
    """Szip as HDF5 filter 4 stores it, set by the client values of the filter."""
    function = partial(
        load("szip_decode"),
        options_mask=options_mask,
        pixels_per_block=pixels_per_block,
        bits_per_pixel=bits_per_pixel,
        pixels_per_scanline=pixels_per_scanline,
    )
    element = next(size for size in (1, 2, 4, 8, 16) if 8 * size >= bits_per_pixel)
    return SizedStream("szip", function, 4, "little", skipped=4, least=5, element=element)


@dataclass(frozen=True, slots=True)
class Inflate(Compressor):
    """DEFLATE in a zlib (`gzip=False`) or gzip wrapping, whose checksum is verified.

    libdeflate wants the whole stream and says no more than that it is bad; what it refuses goes
    to zlib, which knows gzip files of several members and tells a wrong checksum from a broken stream.
    """

    name: str
    function: Callable[..., Any] = field(repr=False)
    gzip: bool

    def decode(self, stored: np.ndarray, out: np.ndarray) -> np.ndarray:
        if stored.size < 6:
            raise CodecError(f"{self.name}: {stored.size} bytes are no stream")
        try:
            filled: np.ndarray = self.function(stored, out=out)
        except Exception:
            return self._inflate(stored, out)
        if self.gzip and filled.size != int.from_bytes(stored[-4:].tobytes(), "little"):
            return self._inflate(stored, out)  # not the only member: the last four bytes are its size
        return filled

    def _inflate(self, stored: np.ndarray, out: np.ndarray) -> np.ndarray:
        try:
            return _members(lambda: zlib.decompressobj(31 if self.gzip else 15), stored, out, many=self.gzip)
        except (zlib.error, ValueError) as error:
            why = "the checksum does not match" if "data check" in str(error) else str(error)
            raise CodecError(f"{self.name}: {why}") from error


def deflate(name: str) -> Inflate:
    """DEFLATE in a zlib wrapping: what HDF5 calls gzip, and numcodecs zlib."""
    return Inflate(name, load("deflate_decode"), gzip=False)


def gzip() -> Inflate:
    return Inflate("gzip", load("gzip_decode"), gzip=True)


@dataclass(frozen=True, slots=True)
class Slow(Compressor):
    """bz2 and lzma by the standard library, which decodes to memory of its own, at most `out` and a byte.

    `new` makes a decompressor (`bz2.BZ2Decompressor`, `lzma.LZMADecompressor`) for one stream.
    """

    name: str
    new: Callable[[], Any]

    def decode(self, stored: np.ndarray, out: np.ndarray) -> np.ndarray:
        try:
            return _members(self.new, stored, out, many=True)
        except Exception as error:  # what a library raises on damaged bytes
            raise CodecError(f"{self.name}: {error} (damaged stream or wrong checksum)") from error


def bzip2(name: str = "bz2") -> Slow:
    return Slow(name, bz2.BZ2Decompressor)


def xz(container: int, filters: list[dict[str, Any]] | None) -> Slow:
    """lzma in `container` (`lzma.FORMAT_*`), raw streams with their `filters`."""
    raw = container == lzma.FORMAT_RAW
    return Slow("lzma", partial(lzma.LZMADecompressor, format=container, filters=filters if raw else None))


def _members(new: Callable[[], Any], stored: np.ndarray, out: np.ndarray, *, many: bool) -> np.ndarray:
    """Decode the streams that follow one another in `stored`; one byte more than fits is an error."""
    data: Any = stored.data
    filled = 0
    while True:
        member = new()
        # A limit of 0 would mean none to zlib.
        part = member.decompress(data, out.size - filled + 1)
        if filled + len(part) > out.size:
            raise ValueError(f"decodes to more than {out.size} bytes")
        out[filled : filled + len(part)] = np.frombuffer(part, np.uint8)
        filled += len(part)
        if not member.eof:
            raise ValueError(f"the stream stops early, after {filled} decoded bytes")
        data = member.unused_data.lstrip(b"\0")
        if not (many and data):
            return out[:filled]


_BLOSC = struct.Struct("<BBBBiii")


def blosc_sizes(name: str, stored: np.ndarray) -> tuple[int, int]:
    """Decoded and stored size that the header of a Blosc chunk claims.

    Raises `CodecError` unless the stored size is there and both are sizes.
    """
    if stored.size < _BLOSC.size:
        raise CodecError(f"{name}: {stored.size} bytes are no chunk")
    *_, decoded, block, size = _BLOSC.unpack_from(stored.data)
    if not _BLOSC.size <= size <= stored.size or decoded < 0 or block < 0:
        raise CodecError(f"{name}: the header claims {size} bytes, {stored.size} are stored")
    return decoded, size


@dataclass(frozen=True, slots=True)
class Blosc(Compressor):
    """A Blosc (version 1) chunk. The library trusts the sizes in the header, so they are checked here."""

    name: str = "blosc"
    function: Callable[..., Any] = field(default_factory=lambda: load("blosc_decode"), repr=False)

    def decode(self, stored: np.ndarray, out: np.ndarray) -> np.ndarray:
        decoded, size = blosc_sizes(self.name, stored)
        claim = fits(self.name, decoded, out)
        return fill(self.name, self.function, stored[:size], out[:claim], numthreads=1)
