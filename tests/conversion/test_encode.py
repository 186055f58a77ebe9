"""Codec names, and encoded chunks that the reference libraries decode."""

from __future__ import annotations

from typing import Any

import imagecodecs
import numcodecs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocloader.conversion.encode import Codec, encoded_bound, encoder
from oocloader.errors import SettingError


@pytest.mark.parametrize(
    ("text", "name", "level"),
    [
        ("none", "none", 0),
        ("zstd", "zstd", 1),
        ("zstd:22", "zstd", 22),
        ("gzip", "gzip", 4),
        ("gzip:9", "gzip", 9),
        ("lz4", "lz4", 1),
        ("blosc", "blosc", 5),
        ("blosc:1", "blosc", 1),
    ],
)
def test_parse(text: str, name: str, level: int) -> None:
    codec = Codec.parse(text)
    assert codec == Codec(name, level)
    assert Codec.parse(str(codec)) == codec


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lzma", "'lzma' is unknown; choose one of none, zstd, gzip, lz4, blosc"),
        ("none:1", "'none:1' is unknown"),
        ("", "'' is unknown"),
        ("zstd:", "'zstd:': the level of zstd is a whole number from 1 to 22"),
        ("zstd:23", "from 1 to 22"),
        ("zstd:0", "from 1 to 22"),
        ("gzip:10", "from 1 to 9"),
        ("gzip:-1", "from 1 to 9"),
        ("blosc:fast", "from 1 to 9"),
        (None, "expected a name such as 'zstd:1', got None"),
    ],
)
def test_parse_refuses(text: Any, words: str) -> None:
    with pytest.raises(SettingError) as caught:
        Codec.parse(text)
    assert words in str(caught.value)


# How other libraries undo each codec, by the format it was encoded for.
_DECODERS: dict[tuple[str, str], Any] = {
    ("zstd", "zarr"): numcodecs.Zstd().decode,
    ("zstd", "hdf5"): numcodecs.Zstd().decode,
    ("gzip", "zarr"): numcodecs.GZip().decode,
    ("gzip", "hdf5"): numcodecs.Zlib().decode,
    ("lz4", "zarr"): numcodecs.LZ4().decode,
    ("lz4", "hdf5"): imagecodecs.lz4h5_decode,
    ("blosc", "zarr"): numcodecs.Blosc().decode,
    ("blosc", "hdf5"): numcodecs.Blosc().decode,
}


@pytest.mark.parametrize("level", ["", ":9"])
@pytest.mark.parametrize("key", _DECODERS, ids="-".join)
@given(
    data=st.binary(min_size=1, max_size=3000),
    repeat=st.integers(1, 50),
    itemsize=st.sampled_from([1, 2, 4, 8]),
)
def test_other_libraries_decode(
    key: tuple[str, Any], level: str, data: bytes, repeat: int, itemsize: int
) -> None:
    name, store_format = key
    raw = np.frombuffer((data * repeat * itemsize), np.uint8)
    encode = encoder(Codec.parse(name + level), store_format, itemsize)
    assert encode is not None
    room = np.full(encoded_bound(raw.size) + 64, 0xAB, np.uint8)
    encoded = encode(raw, room[:-64])
    assert bytes(_DECODERS[key](encoded.tobytes())) == raw.tobytes()
    assert encoded.tobytes() == room[: encoded.size].tobytes()
    assert (room[-64:] == 0xAB).all()


def test_incompressible_chunks_fit() -> None:
    rng = np.random.default_rng(1)
    for nbytes in (1, 2, 16, 1000, 65_537, 3_000_001):
        raw = rng.integers(0, 256, nbytes, dtype=np.uint8)
        for name, store_format in _DECODERS:
            encode = encoder(Codec.parse(name), store_format, 4)  # type: ignore[arg-type] # the keys are formats
            assert encode is not None
            encoded = encode(raw, np.empty(encoded_bound(nbytes), np.uint8))
            assert nbytes <= encoded.size <= encoded_bound(nbytes)


def test_raw_needs_no_encoder() -> None:
    assert encoder(Codec.parse("none"), "zarr", 1) is None
    assert Codec.parse("none").raw
    assert not Codec.parse("zstd").raw
