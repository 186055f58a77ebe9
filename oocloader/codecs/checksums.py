"""Checksums stored before or after the data: verified, then cut off."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from oocloader.codecs.chain import CodecError, Step
from oocloader.codecs.library import load

_NBYTES = 4


@dataclass(frozen=True, slots=True)
class Checksum(Step):
    """Four bytes, little-endian, with `function(data)` of the rest.

    `halves_swapped`: the checksum with the bytes of each half swapped is right too. HDF5 accepts
    fletcher32 so, since its versions before 1.6.3 wrote it that way.
    """

    name: str
    function: Callable[..., Any]
    at_end: bool = True
    halves_swapped: bool = False

    views: ClassVar[bool] = True

    def most(self, nbytes: int) -> int:
        return nbytes + _NBYTES

    def decode(self, stored: np.ndarray, out: np.ndarray) -> np.ndarray:
        if stored.size < _NBYTES:
            raise CodecError(f"{self.name}: {stored.size} bytes have no room for a checksum")
        data, checksum = stored[_NBYTES:], stored[:_NBYTES]
        if self.at_end:
            data, checksum = stored[:-_NBYTES], stored[-_NBYTES:]
        expected = int.from_bytes(checksum.tobytes(), "little")
        actual = int(self.function(data))
        if actual != expected and not (self.halves_swapped and _swapped(actual) == expected):
            raise CodecError(f"{self.name}: checksum of the data is {actual:#010x}, stored {expected:#010x}")
        return data


def _swapped(value: int) -> int:
    """The two bytes of each 16-bit half exchanged.

    >>> hex(_swapped(0x11223344))
    '0x22114433'
    """
    return (value & 0x00FF00FF) << 8 | value >> 8 & 0x00FF00FF


def fletcher32() -> Checksum:
    """The checksum of HDF5 filter 3, which netCDF-4 and numcodecs share."""
    return Checksum("fletcher32", load("h5checksum_fletcher32"), halves_swapped=True)


def numcodecs_checksum(name: str, *, at_end: bool) -> Checksum:
    """``crc32``, ``adler32`` or ``crc32c`` as numcodecs stores it."""
    if name == "crc32c":
        # The one function here that keeps the GIL; it sums 20 GB/s.
        from numcodecs.checksum32 import CRC32C

        return Checksum(name, CRC32C.checksum, at_end)
    return Checksum(name, load(f"deflate_{name}"), at_end)


def jenkins_lookup3(initval: int) -> Checksum:
    return Checksum("jenkins_lookup3", partial(load("h5checksum_lookup3"), value=initval))
