"""General compressors."""

from __future__ import annotations

import gzip

import h5py
import numcodecs
import numpy as np
import pytest

from codec_samples import (
    decode,
    noise,
    pipeline,
    smooth,
)
from oocloader.codecs import hdf5
from oocloader.codecs.chain import CodecError
from oocloader.codecs.zarr import v2


@pytest.mark.parametrize(
    ("storage", "precision"), [("I8", 7), ("I16", 12), ("I32", 20), ("I32", 28), ("I64", 40)]
)
def test_szip_of_integers_with_unused_bits(storage: str, precision: int) -> None:
    kind = getattr(h5py.h5t, f"STD_{storage}LE").copy()
    kind.set_precision(precision)
    data = smooth((64, 32), kind.dtype) % 50
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk((16, 32))
    properties.set_szip(4, 8)
    with h5py.File("precision.h5", "w", driver="core", backing_store=False) as file:
        made = h5py.h5d.create(file.id, b"x", kind, h5py.h5s.create_simple(data.shape), properties)
        dataset = h5py.Dataset(made)
        dataset[...] = data
        file.flush()
        chain = hdf5.chain(pipeline(dataset), dtype=data.dtype, chunk_shape=(16, 32))
        for row in range(0, 64, 16):
            mask, stored = made.read_direct_chunk((row, 0))
            expected = dataset[row : row + 16]
            assert decode(chain, stored, expected.nbytes, mask) == expected.tobytes()


def test_szip_of_broken_elements_is_an_error_and_not_what_was_in_memory() -> None:
    chain = hdf5.chain([(4, 0, (141, 8, 32, 8), b"")], dtype=np.dtype("<i4"), chunk_shape=(4,))
    with pytest.raises(CodecError, match="no elements of 4 bytes"):
        decode(chain, (15).to_bytes(4, "little") + bytes(30), 16)


def test_gzip_files_of_several_members_are_read_as_numcodecs_reads_them() -> None:
    data = noise((5000,), "u1").tobytes()
    decoding = v2(None, {"id": "gzip"}, dtype=np.dtype("u1"), order="C", chunk_shape=(len(data),))
    single = gzip.compress(data)
    parts = gzip.compress(data[:1000]) + gzip.compress(b"") + gzip.compress(data[1000:])
    for stored in (single, parts, single + b"\0" * 7):
        assert numcodecs.GZip().decode(stored) == data
        assert decode(decoding.chain, stored, len(data)) == data
    with pytest.raises(CodecError, match="more than 4999 bytes"):
        decode(decoding.chain, parts, 4999)


@pytest.mark.parametrize(
    "codec", ["gzip", "zlib", "crc32", "adler32", "crc32c", "fletcher32", "jenkins_lookup3"]
)
def test_a_wrong_checksum_is_called_so(codec: str) -> None:
    data = smooth((500,), "u1").tobytes()
    stored = bytearray(numcodecs.get_codec({"id": codec}).encode(np.frombuffer(data, "u1")))
    checksum_at = {"gzip": -8, "zlib": -1, "crc32": 0, "adler32": 0}.get(codec, -1)
    stored[checksum_at] ^= 0x10
    decoding = v2([{"id": codec}], None, dtype=np.dtype("u1"), order="C", chunk_shape=(500,))
    with pytest.raises(CodecError, match=f"{codec}.*checksum"):
        decode(decoding.chain, bytes(stored), 500)


def test_a_wrong_zstd_checksum_is_called_so() -> None:
    stored = bytearray(numcodecs.Zstd(checksum=True).encode(smooth((500,), "u1")))
    stored[-1] ^= 0x10
    decoding = v2(None, {"id": "zstd"}, dtype=np.dtype("u1"), order="C", chunk_shape=(500,))
    with pytest.raises(CodecError, match=r"zstd.*checksum"):
        decode(decoding.chain, bytes(stored), 500)
