"""Transformations of array elements: shuffles of bytes, differences, scales, packed bits."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from oocloader.codecs.chain import CodecError, Step
from oocloader.codecs.library import call, fits


@dataclass(frozen=True, slots=True)
class Shuffle(Step):
    """Bytes of equal place in elements of `itemsize` bytes together; a rest shorter than one at the end.

    numcodecs' function for it keeps the GIL; NumPy's strided copies are as fast and do not.
    """

    itemsize: int
    name: str = "shuffle"

    def decode(self, stored: np.ndarray, out: np.ndarray) -> np.ndarray:
        filled = out[: fits("shuffle", stored.size, out)]
        rows = stored.size // self.itemsize
        whole = rows * self.itemsize
        planes = stored[:whole].reshape(self.itemsize, rows)
        elements = filled[:whole].reshape(rows, self.itemsize)
        for place, plane in enumerate(planes):
            elements[:, place] = plane
        filled[whole:] = stored[whole:]
        return filled


@dataclass(frozen=True, slots=True)
class Elementwise(Step):
    """A numcodecs filter (`codec`) that makes one element of dtype `decoded` of each of dtype `encoded`.

    Not reused but made anew for each chunk are the arrays that the filter computes with.
    """

    name: str
    codec: Any
    encoded: np.dtype
    decoded: np.dtype

    def most(self, nbytes: int) -> int:
        return nbytes // self.decoded.itemsize * self.encoded.itemsize

    def decode(self, stored: np.ndarray, out: np.ndarray) -> np.ndarray:
        count, rest = divmod(stored.size, self.encoded.itemsize)
        if rest:
            raise CodecError(f"{self.name}: {stored.size} bytes are no elements of {self.encoded}")
        filled = out[: fits(self.name, count * self.decoded.itemsize, out)]
        # Damaged values may not fit the decoded dtype; numcodecs takes them as they come.
        with np.errstate(all="ignore"):
            call(self.name, self.codec.decode, stored, filled)
        return filled


@dataclass(frozen=True, slots=True)
class PackBits(Step):
    """numcodecs' packed booleans: the number of unused bits at the end, then eight booleans a byte."""

    codec: Any
    name: str = "packbits"

    encoded: ClassVar[np.dtype] = np.dtype(np.uint8)
    decoded: ClassVar[np.dtype] = np.dtype(np.bool_)

    def most(self, nbytes: int) -> int:
        return 1 + -(-nbytes // 8)

    def decode(self, stored: np.ndarray, out: np.ndarray) -> np.ndarray:
        unused = int(stored[0]) if stored.size else 8
        count = 8 * (stored.size - 1) - unused
        if unused > 7 or count < 0:
            raise CodecError(f"packbits: {stored.size} bytes with {unused} unused bits")
        filled = out[: fits("packbits", count, out)]
        call("packbits", self.codec.decode, stored, filled)
        return filled
