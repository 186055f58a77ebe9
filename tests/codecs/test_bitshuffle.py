"""Bitshuffled blocks."""

from __future__ import annotations

import imagecodecs
import numpy as np
import pytest

from codec_samples import (
    decode,
    noise,
)
from oocloader.codecs import hdf5


def lz4_block_as_long_as_its_data(nbytes: int) -> tuple[bytes, bytes]:
    """Data of `nbytes` and its LZ4 form, which is of the same length."""
    head = noise((nbytes,), "u1").tobytes()
    for copied in range(4, 64):
        # The more bytes are repeated, the shorter the LZ4 form, which starts a little longer than the data.
        data = (head[: nbytes - 40 - copied] + head[:copied] + head[::-1])[:nbytes]
        encoded = bytes(imagecodecs.lz4_encode(data))
        if len(encoded) == nbytes:
            return data, encoded
    raise AssertionError("no such block found")


@pytest.mark.parametrize("count", [1, 3])
def test_bitshuffled_blocks_that_lz4_left_as_long_as_they_were(count: int) -> None:
    # In the framing of the LZ4 filter, by which other blocks are decoded, these would be uncompressed.
    data, encoded = lz4_block_as_long_as_its_data(128)
    expected = imagecodecs.bitshuffle_decode(np.frombuffer(data, "u1"), blocksize=128).tobytes()
    stored = (128 * count).to_bytes(8, "big") + (128).to_bytes(4, "big")
    stored += (len(encoded).to_bytes(4, "big") + encoded) * count
    chain = hdf5.chain([(32008, 0, (0, 4, 1, 128, 2), b"")], dtype=np.dtype("u1"), chunk_shape=(128 * count,))
    assert decode(chain, stored, 128 * count) == expected * count
