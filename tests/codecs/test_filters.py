"""Transformations of array elements."""

from __future__ import annotations

import numcodecs
import numpy as np
import pytest

from oocloader.codecs.chain import CodecError
from oocloader.codecs.filters import Elementwise, PackBits, Shuffle


def test_shuffle_leaves_what_is_no_whole_element() -> None:
    out = np.zeros(7, np.uint8)
    assert Shuffle(3).decode(np.frombuffer(b"adbecfz", np.uint8), out).tobytes() == b"abcdefz"


@pytest.mark.parametrize("count", [0, 1, 8, 13])
def test_packed_bits(count: int) -> None:
    values = np.arange(count) % 3 == 0
    step = PackBits(numcodecs.PackBits())
    stored = np.frombuffer(bytes(step.codec.encode(values)), np.uint8)
    assert stored.size == step.most(count)
    assert step.decode(stored, np.zeros(count, np.uint8)).tobytes() == values.tobytes()


@pytest.mark.parametrize("stored", [b"", b"\x09\x00", b"\x07"])
def test_packed_bits_that_cannot_be(stored: bytes) -> None:
    with pytest.raises(CodecError, match="unused bits"):
        PackBits(numcodecs.PackBits()).decode(np.frombuffer(stored, np.uint8), np.zeros(8, np.uint8))


def test_elements_of_another_size() -> None:
    codec = numcodecs.AsType("<i2", "<f4")
    step = Elementwise("astype", codec, np.dtype("<i2"), np.dtype("<f4"))
    out = np.zeros(12, np.uint8)
    step.decode(np.array([1, -2, 300], "<i2").view(np.uint8), out)
    assert out.view("<f4").tolist() == [1, -2, 300]
    with pytest.raises(CodecError, match="no elements"):
        step.decode(np.zeros(3, np.uint8), out)
