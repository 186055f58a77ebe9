"""Checksums beside the data."""

from __future__ import annotations

import pytest

from codec_samples import (
    HDF5_FILTERS,
    decode,
    hdf5_chunks,
    smooth,
)
from oocloader.codecs.chain import CodecError


def test_fletcher32_with_bytes_of_halves_swapped_is_right_as_in_hdf5() -> None:
    [chunk] = hdf5_chunks(smooth((50,), "<i4"), (50,), [HDF5_FILTERS["fletcher32"]])
    sum_ = chunk.stored[-4:]
    swapped = bytes([sum_[1], sum_[0], sum_[3], sum_[2]])
    assert swapped != sum_
    assert decode(chunk.chain, chunk.stored[:-4] + swapped, len(chunk.decoded)) == chunk.decoded
    with pytest.raises(CodecError, match="checksum"):
        decode(chunk.chain, chunk.stored[:-4] + sum_[::-1], len(chunk.decoded))
