"""Blosc2 frames."""

from __future__ import annotations

import numpy as np
import pytest

from codec_samples import (
    HDF5_FILTERS,
    FilterSpec,
    assert_equal_to_h5py,
    decode,
    hdf5_chunks,
    noise,
    smooth,
)
from oocloader.codecs.chain import CodecError


def blosc2_in_blocks(block_nbytes: int) -> FilterSpec:
    number, values = HDF5_FILTERS["blosc2"]
    return number, (values[0], block_nbytes, *values[2:])


@pytest.mark.parametrize("block_nbytes", [32, 256, 4096])
@pytest.mark.parametrize(
    ("shape", "chunk_shape"),
    [
        ((1003,), (333,)),
        ((20, 33), (7, 11)),
        ((64, 12), (16, 12)),
        ((12, 64), (12, 16)),
        ((9, 20, 6), (4, 20, 5)),
        ((64, 1, 1), (64, 1, 1)),
        ((1, 40, 40), (1, 40, 40)),
        ((5, 6, 7, 8), (3, 3, 3, 3)),
        ((16, 9, 7, 5, 3), (16, 9, 7, 5, 3)),
    ],
)
@pytest.mark.parametrize("dtype", ["u1", "<i4", ">f8"])
def test_blosc2_blocks_are_laid_side_by_side(
    dtype: str, shape: tuple[int, ...], chunk_shape: tuple[int, ...], block_nbytes: int
) -> None:
    filters = [blosc2_in_blocks(block_nbytes)]
    assert_equal_to_h5py(list(hdf5_chunks(smooth(shape, dtype), chunk_shape, filters)))


def test_blosc2_elements_of_any_size_are_laid_side_by_side() -> None:
    values = noise((20, 33, 3), "u1").view("V3").reshape(20, 33)
    assert_equal_to_h5py(list(hdf5_chunks(values, (7, 11), [blosc2_in_blocks(96)])))


@pytest.mark.parametrize("value", [0, 7, np.nan])
def test_blosc2_chunks_of_one_value(value: float) -> None:
    for chunk_shape in ((40, 40), (13, 7)):
        data = np.full((40, 40), value, "f4")
        assert_equal_to_h5py(list(hdf5_chunks(data, chunk_shape, [HDF5_FILTERS["blosc2"]])))


def test_blosc2_frames_of_special_values() -> None:
    # Blosc2 writes NaN frames for whole arrays only, so the index of a frame of zeros is exchanged.
    [chunk] = hdf5_chunks(np.zeros((40, 40), "f4"), (40, 40), [HDF5_FILTERS["blosc2"]])
    place = chunk.stored.rindex(b"\x81")
    for kind, expected in ((1, 0), (2, np.nan), (4, 0)):
        stored = chunk.stored[:place] + bytes([0x80 | kind]) + chunk.stored[place + 1 :]
        found = np.frombuffer(decode(chunk.chain, stored, len(chunk.decoded)), "f4")
        np.testing.assert_array_equal(found, np.float32(expected))
    stored = chunk.stored[:place] + b"\x85" + chunk.stored[place + 1 :]
    with pytest.raises(CodecError, match="special value 5"):
        decode(chunk.chain, stored, len(chunk.decoded))
