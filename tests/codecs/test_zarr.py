"""Zarr codecs, against zarr-python and numcodecs: what these write is decoded to what they read."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
import zarr.codecs as zc
import zarr.codecs.numcodecs as zn
from hypothesis import given, settings
from hypothesis import strategies as st

from codec_samples import decode, noise, smooth
from oocloader.codecs.chain import CodecError, NoChain
from oocloader.codecs.zarr import Decoding, Sharding, v2, v3

pytestmark = [
    pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification"),
    pytest.mark.filterwarnings("ignore:The data type .* does not have a Zarr V3 specification"),
]

SHAPES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((104,), (32,)),
    ((20, 33), (8, 11)),
    ((9, 20, 6), (4, 20, 4)),
)


def parse(metadata: Mapping[str, Any], dtype: np.dtype) -> Decoding | Sharding:
    """What is made of a ``.zarray`` or ``zarr.json``."""
    if metadata["zarr_format"] == 2:
        return v2(
            metadata["filters"],
            metadata["compressor"],
            dtype=np.dtype(metadata["dtype"]),
            order=metadata["order"],
            chunk_shape=tuple(metadata["chunks"]),
        )
    chunk_shape = tuple(metadata["chunk_grid"]["configuration"]["chunk_shape"])
    return v3(metadata["codecs"], dtype=dtype, chunk_shape=chunk_shape)


def values_of(decoding: Decoding, stored: bytes, chunk_shape: tuple[int, ...]) -> np.ndarray:
    """`stored` as an array of `chunk_shape`."""
    count = int(np.prod(chunk_shape))
    decoded = decode(decoding.chain, stored, count * decoding.dtype.itemsize)
    values = np.frombuffer(decoded, decoding.dtype)
    if decoding.axes is None:
        return values.reshape(chunk_shape)
    placed = values.reshape([chunk_shape[axis] for axis in decoding.axes])
    return placed.transpose(np.argsort(decoding.axes))


Written = tuple[Decoding | Sharding, tuple[int, ...], list[tuple[bytes, np.ndarray]]]


def write(data: np.ndarray, chunk_shape: tuple[int, ...], **options: Any) -> Written:
    """The decoding, the chunk (or shard) shape, and each chunk with the values that zarr-python reads."""
    store: dict[str, Any] = {}
    array = zarr.create_array(store, shape=data.shape, dtype=data.dtype, chunks=chunk_shape, **options)
    array[...] = data
    metadata = json.loads(store["zarr.json" if "zarr.json" in store else ".zarray"].to_bytes())
    outer = array.shards or array.chunks
    prefix, separator = ("c/", "/") if array.metadata.zarr_format == 3 else ("", ".")
    read = np.asarray(array[...])
    chunks = []
    for place in itertools.product(*(range(-(-n // c)) for n, c in zip(data.shape, outer, strict=True))):
        stored = store.get(prefix + separator.join(map(str, place)))
        if stored is not None:
            corner = np.multiply(place, outer)
            chunks.append((stored.to_bytes(), read[tuple(map(slice, corner, np.add(corner, outer)))]))
    return parse(metadata, data.dtype), outer, chunks


def assert_equal_to_zarr(written: Written) -> None:
    decoding, chunk_shape, chunks = written
    assert isinstance(decoding, Decoding)
    assert chunks
    for stored, expected in chunks:
        found = values_of(decoding, stored, chunk_shape)[tuple(map(slice, expected.shape))]
        np.testing.assert_array_equal(found, expected)


V2_COMPRESSORS: dict[str, Any] = {
    "none": None,
    "zlib": numcodecs.Zlib(3),
    "gzip": numcodecs.GZip(3),
    "bz2": numcodecs.BZ2(1),
    "lzma": numcodecs.LZMA(),
    "lzma alone": numcodecs.LZMA(format=2),
    "lzma raw": numcodecs.LZMA(format=3, filters=[{"id": 33, "preset": 1}]),
    "zstd": numcodecs.Zstd(3),
    "zstd with checksum": numcodecs.Zstd(3, checksum=True),
    "lz4": numcodecs.LZ4(),
    "blosc": numcodecs.Blosc(),
    "blosc zlib": numcodecs.Blosc("zlib", 3, numcodecs.Blosc.BITSHUFFLE),
    "blosc blosclz": numcodecs.Blosc("blosclz", 9, numcodecs.Blosc.NOSHUFFLE),
    "blosc zstd": numcodecs.Blosc("zstd", 3, numcodecs.Blosc.SHUFFLE, blocksize=256),
}


@pytest.mark.parametrize("dtype", ["u1", "?", "<i2", ">i4", "<f4", ">f8", "<c8"])
@pytest.mark.parametrize("name", V2_COMPRESSORS)
def test_format_2_compressors(name: str, dtype: str) -> None:
    for order, (shape, chunk_shape) in itertools.product("CF", SHAPES):
        data = (smooth if order == "C" else noise)(shape, dtype)
        data = np.nan_to_num(data) if data.dtype.kind in "fc" else data
        options = {"zarr_format": 2, "compressors": V2_COMPRESSORS[name], "filters": None, "order": order}
        assert_equal_to_zarr(write(data, chunk_shape, **options))


V2_FILTERS: list[tuple[str, list[Any]]] = [
    ("<i4", [numcodecs.Shuffle(4)]),
    ("<i4", [numcodecs.Shuffle()]),
    (">f8", [numcodecs.Shuffle(8)]),
    ("<i2", [numcodecs.Shuffle(1)]),
    ("<i4", [numcodecs.CRC32()]),
    ("<i4", [numcodecs.CRC32(location="end")]),
    ("<i4", [numcodecs.Adler32()]),
    ("<i4", [numcodecs.Adler32(location="end")]),
    ("<i4", [numcodecs.CRC32C()]),
    ("<i4", [numcodecs.CRC32C(location="start")]),
    ("<i4", [numcodecs.Fletcher32()]),
    ("u1", [numcodecs.Fletcher32()]),
    ("<i4", [numcodecs.JenkinsLookup3()]),
    ("<i4", [numcodecs.JenkinsLookup3(initval=7)]),
    ("<i4", [numcodecs.Delta("<i4")]),
    (">i4", [numcodecs.Delta(">i4", ">i2")]),
    ("<f8", [numcodecs.Delta("<f8")]),
    ("<i4", [numcodecs.AsType("<i2", "<i4")]),
    ("<i4", [numcodecs.AsType(">i2", "<i4")]),
    ("<f4", [numcodecs.AsType("<f4", "<f4")]),
    ("<f4", [numcodecs.FixedScaleOffset(3, 10, "<f4", "<i4")]),
    (">f8", [numcodecs.FixedScaleOffset(3, 10, ">f8", "<i2")]),
    ("<f8", [numcodecs.FixedScaleOffset(0.5, 8, "<f8")]),
    ("<f8", [numcodecs.Quantize(2, "<f8")]),
    ("<f8", [numcodecs.Quantize(1, "<f8", "<f4")]),
    ("<f4", [numcodecs.BitRound(4)]),
    ("<f8", [numcodecs.BitRound(7)]),
    ("?", [numcodecs.PackBits()]),
    ("<f4", [numcodecs.FixedScaleOffset(3, 10, "<f4", "<i4"), numcodecs.Delta("<i4"), numcodecs.Shuffle(4)]),
    ("?", [numcodecs.PackBits(), numcodecs.Delta("u1"), numcodecs.CRC32C()]),
]


@pytest.mark.parametrize(("dtype", "filters"), V2_FILTERS, ids=repr)
def test_format_2_filters(dtype: str, filters: list[Any]) -> None:
    for compressor in (None, numcodecs.Zstd()):
        for order, (shape, chunk_shape) in itertools.product("CF", SHAPES):
            options = {"zarr_format": 2, "compressors": compressor, "filters": filters, "order": order}
            assert_equal_to_zarr(write(smooth(shape, dtype), chunk_shape, **options))


def quietly(make: Any, *args: Any, **options: Any) -> Any:
    """A codec that zarr-python warns of when it is made."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make(*args, **options)


V3_COMPRESSORS: dict[str, Any] = {
    "none": None,
    "gzip": zc.GzipCodec(level=3),
    "zstd": zc.ZstdCodec(level=3),
    "zstd with checksum": zc.ZstdCodec(level=3, checksum=True),
    "blosc": zc.BloscCodec(cname="lz4", shuffle="shuffle"),
    "blosc zstd": zc.BloscCodec(cname="zstd", shuffle="bitshuffle"),
    "crc32c": zc.Crc32cCodec(),
    "zstd, crc32c": [zc.ZstdCodec(), zc.Crc32cCodec()],
    "crc32c, gzip": [zc.Crc32cCodec(), zc.GzipCodec()],
    "blosc, gzip": [zc.BloscCodec(), zc.GzipCodec()],
    **{
        f"numcodecs {make.__name__}": quietly(make)
        for make in (
            zn.Adler32,
            zn.BZ2,
            zn.Blosc,
            zn.CRC32,
            zn.CRC32C,
            zn.Fletcher32,
            zn.GZip,
            zn.JenkinsLookup3,
            zn.LZ4,
            zn.LZMA,
            zn.Shuffle,
            zn.Zlib,
            zn.Zstd,
        )
    },
    "numcodecs Shuffle, Zstd": [quietly(zn.Shuffle, elementsize=2), quietly(zn.Zstd)],
}


@pytest.mark.parametrize(
    ("dtype", "endian"), [("u1", None), ("?", None), ("i4", "little"), ("f8", "big"), ("c8", "big")]
)
@pytest.mark.parametrize("name", V3_COMPRESSORS)
def test_format_3_compressors(name: str, dtype: str, endian: Any) -> None:
    for make, (shape, chunk_shape) in zip([smooth, noise, smooth], SHAPES, strict=True):
        data = np.nan_to_num(make(shape, dtype)) if np.dtype(dtype).kind in "fc" else make(shape, dtype)
        written = write(
            data,
            chunk_shape,
            zarr_format=3,
            compressors=V3_COMPRESSORS[name],
            serializer=zc.BytesCodec(endian=endian) if endian else "auto",
        )
        assert_equal_to_zarr(written)
        decoding = written[0]
        assert isinstance(decoding, Decoding)
        assert decoding.dtype == np.dtype(dtype).newbyteorder(">" if endian == "big" else "<")


V3_FILTERS: list[tuple[str, list[Any]]] = [
    ("i4", [quietly(zn.Delta, dtype="int32")]),
    ("i4", [quietly(zn.Delta, dtype="<i4", astype="<i2")]),
    ("i4", [quietly(zn.AsType, encode_dtype="<i2", decode_dtype="<i4")]),
    ("i4", [quietly(zn.AsType, encode_dtype="<i2")]),
    ("f4", [quietly(zn.FixedScaleOffset, offset=3, scale=10, dtype="float32", astype="int32")]),
    ("f8", [quietly(zn.FixedScaleOffset, offset=3, scale=10)]),
    ("f8", [quietly(zn.Quantize, digits=1, dtype="float64")]),
    ("f4", [quietly(zn.Quantize, digits=1)]),
    ("f4", [quietly(zn.BitRound, keepbits=4)]),
    ("?", [quietly(zn.PackBits)]),
    (
        "f4",
        [quietly(zn.FixedScaleOffset, offset=3, scale=8, astype="int32"), quietly(zn.Delta, dtype="int32")],
    ),
    ("f4", [zc.TransposeCodec(order=(2, 0, 1)), quietly(zn.BitRound, keepbits=9)]),
]


@pytest.mark.parametrize(("dtype", "filters"), V3_FILTERS, ids=repr)
def test_format_3_filters(dtype: str, filters: list[Any]) -> None:
    ranks = (3,) if isinstance(filters[0], zc.TransposeCodec) else (1, 2, 3)
    for shape, chunk_shape in (pair for pair in SHAPES if len(pair[0]) in ranks):
        for compressor in (None, zc.ZstdCodec()):
            written = write(smooth(shape, dtype), chunk_shape, filters=filters, compressors=compressor)
            assert_equal_to_zarr(written)


def bytes_codec(endian: str) -> dict[str, Any]:
    return {"name": "bytes", "configuration": {"endian": endian}}


@pytest.mark.parametrize(
    ("codec", "stored_dtype", "encode"),
    [
        (
            {"name": "numcodecs.delta", "configuration": {"dtype": "<i4"}},
            ">i4",
            lambda x: np.diff(x, prepend=0),
        ),
        ({"name": "numcodecs.astype", "configuration": {"encode_dtype": "<i2"}}, ">i2", lambda x: x),
        ({"name": "numcodecs.astype", "configuration": {"encode_dtype": ">i2"}}, ">i2", lambda x: x),
    ],
)
def test_filters_before_big_endian_bytes(codec: dict[str, Any], stored_dtype: str, encode: Any) -> None:
    # zarr-python 3.1 reads neither back, since it hands the filter bytes in the other order.
    data = smooth((50,), "<i4")
    decoding = v3([codec, bytes_codec("big")], dtype=data.dtype, chunk_shape=(50,))
    assert isinstance(decoding, Decoding)
    stored = encode(data).astype(stored_dtype).tobytes()
    np.testing.assert_array_equal(values_of(decoding, stored, (50,)), data)


@pytest.mark.parametrize(
    ("orders", "axes"),
    [
        ([(2, 1, 0)], (2, 1, 0)),
        ([(1, 2, 0)], (1, 2, 0)),
        ([(1, 2, 0), (2, 0, 1)], None),
        ([(1, 2, 0), (0, 2, 1)], (1, 0, 2)),
        ([(0, 1, 2)], None),
    ],
)
def test_transposes_are_composed(orders: list[tuple[int, ...]], axes: tuple[int, ...] | None) -> None:
    filters = [zc.TransposeCodec(order=order) for order in orders]
    written = write(smooth((9, 20, 6), "i4"), (4, 20, 5), filters=filters, compressors=zc.ZstdCodec())
    assert_equal_to_zarr(written)
    decoding = written[0]
    assert isinstance(decoding, Decoding)
    assert decoding.axes == axes


def test_transposes_that_move_only_axes_of_length_1_are_none() -> None:
    for shape, order, axes in [
        ((5, 1, 6), (0, 2, 1), None),
        ((5, 1, 6), (2, 1, 0), (2, 1, 0)),
        ((5,), (0,), None),
    ]:
        decoding = v3([transpose(order), bytes_codec("little")], dtype=np.dtype("i4"), chunk_shape=shape)
        assert isinstance(decoding, Decoding)
        assert decoding.axes == axes
    assert v2(None, None, dtype=np.dtype("i4"), order="F", chunk_shape=(7,)).axes is None
    assert v2(None, None, dtype=np.dtype("i4"), order="F", chunk_shape=(7, 2)).axes == (1, 0)


def transpose(order: Any) -> dict[str, Any]:
    return {"name": "transpose", "configuration": {"order": order}}


def test_transposes_of_early_drafts_are_read() -> None:
    for order, axes in (("F", (1, 0)), ("C", None)):
        decoding = v3([transpose(order), {"name": "endian"}], dtype=np.dtype("i4"), chunk_shape=(3, 4))
        assert isinstance(decoding, Decoding)
        assert decoding.axes == axes


SHARDS: list[tuple[str, dict[str, Any]]] = [
    ("raw", {"compressors": None}),
    ("zstd, index at the start", {"compressors": zc.ZstdCodec(), "index_location": "start"}),
    ("crc32c", {"compressors": [zc.ZstdCodec(), zc.Crc32cCodec()]}),
    ("big-endian", {"serializer": zc.BytesCodec(endian="big"), "compressors": zc.GzipCodec()}),
    ("transposed", {"filters": [zc.TransposeCodec(order=(1, 0))], "compressors": zc.ZstdCodec()}),
]


def inner_chunks(sharding: Sharding, shard: bytes) -> Iterator[tuple[tuple[int, ...], bytes]]:
    """Grid place and stored bytes of each chunk that is there."""
    start = len(shard) - sharding.index_nbytes if sharding.index_at_end else 0
    index = sharding.read_index(np.frombuffer(shard, np.uint8)[start : start + sharding.index_nbytes])
    assert index.shape == (*sharding.grid, 2)
    for place in np.ndindex(*sharding.grid):
        offset, size = (int(value) for value in index[place])
        if offset != 2**64 - 1:
            yield place, shard[offset : offset + size]


def read_shard(sharding: Sharding, shard: bytes, shape: tuple[int, ...], fill: Any) -> np.ndarray:
    """A shard of `shape` as an array."""
    out = np.full(shape, fill)
    for place, stored in inner_chunks(sharding, shard):
        corner = np.multiply(place, sharding.chunk_shape)
        if isinstance(sharding.inner, Sharding):
            values = read_shard(sharding.inner, stored, sharding.chunk_shape, fill)
        else:
            values = values_of(sharding.inner, stored, sharding.chunk_shape)
        out[tuple(map(slice, corner, np.add(corner, sharding.chunk_shape)))] = values
    return out


@pytest.mark.parametrize("options", [row[1] for row in SHARDS], ids=[row[0] for row in SHARDS])
def test_shards_are_read_by_their_index(options: dict[str, Any]) -> None:
    options = dict(options)
    location = options.pop("index_location", "end")
    data = smooth((50, 14), "i4")
    data[8:12] = 0  # chunks of the fill value, which are not written
    written = write(
        data, (4, 7), shards={"shape": (20, 14), "index_location": location}, fill_value=0, **options
    )
    sharding, shard_shape, chunks = written
    assert isinstance(sharding, Sharding)
    assert (sharding.chunk_shape, sharding.grid) == ((4, 7), (5, 2))
    assert sharding.index_at_end == (location == "end")
    assert len(chunks) == 3
    for stored, expected in chunks:
        found = read_shard(sharding, stored, shard_shape, 0)
        np.testing.assert_array_equal(found[: len(expected)], expected)
    assert len(list(inner_chunks(sharding, chunks[0][0]))) == 8


def test_shards_in_shards() -> None:
    inner = zc.ShardingCodec(
        chunk_shape=(2, 7), codecs=[zc.BytesCodec(), zc.ZstdCodec()], index_location="start"
    )
    outer = zc.ShardingCodec(chunk_shape=(10, 7), codecs=[inner])
    data = smooth((40, 14), "i2")
    written = write(data, (20, 14), serializer=outer, filters=None, compressors=None)
    sharding, shard_shape, chunks = written
    assert isinstance(sharding, Sharding)
    assert isinstance(sharding.inner, Sharding)
    assert sharding.names == ("sharding_indexed", "sharding_indexed", "zstd")
    assert sharding.inner.grid == (5, 1)
    for stored, expected in chunks:
        np.testing.assert_array_equal(read_shard(sharding, stored, shard_shape, 0), expected)


def test_damaged_shard_indexes_are_errors_that_say_checksum() -> None:
    sharding, _, [(shard, _), *_] = write(smooth((20,), "i4"), (5,), shards=(10,), compressors=None)
    assert isinstance(sharding, Sharding)
    index = np.frombuffer(shard, np.uint8)[-sharding.index_nbytes :]
    for place in range(index.size):
        damaged = index.copy()
        damaged[place] ^= 1
        with pytest.raises(CodecError, match="checksum"):
            sharding.read_index(damaged)
    with pytest.raises(CodecError, match="index of 35 bytes"):
        sharding.read_index(index[1:])


def test_names_are_the_codecs_as_they_are_stored() -> None:
    filters: list[dict[str, Any]] = [{"id": "bitround", "keepbits": 3}, {"id": "crc32c"}]
    compressor = {"id": "zstd"}
    decoding = v2(filters, compressor, dtype=np.dtype("<f4"), order="C", chunk_shape=(4,))
    assert decoding.names == ("bitround", "crc32c", "zstd")
    assert [step.name for step in decoding.chain.steps] == ["zstd", "crc32c"]
    found = v3(
        [transpose([1, 0]), "bytes", {"name": "numcodecs.lz4"}, "crc32c"],
        dtype=np.dtype("u1"),
        chunk_shape=(4, 5),
    )
    assert found.names == ("transpose", "numcodecs.lz4", "crc32c")
    bitround = v2(filters[:1], None, dtype=np.dtype("<f4"), order="C", chunk_shape=(4,))
    assert bitround.chain.raw
    assert bitround.names == ("bitround",)


SHARDED: dict[str, Any] = {
    "name": "sharding_indexed",
    "configuration": {"chunk_shape": [5], "codecs": ["bytes"], "index_codecs": ["bytes"]},
}


def sharded(**changed: Any) -> dict[str, Any]:
    return {"name": "sharding_indexed", "configuration": {**SHARDED["configuration"], **changed}}


@pytest.mark.parametrize(
    ("codecs", "codec", "package"),
    [
        (["bytes", "acme"], "acme", None),
        (["bytes", "numcodecs.acme"], "acme", None),
        (["bytes", {"name": "numcodecs.zfpy"}], "zfpy", "zfpy"),
        ([{"name": "numcodecs.pcodec"}], "numcodecs.pcodec", "pcodec"),
        (["vlen-utf8"], "vlen-utf8", None),
        (["bytes", "numcodecs.imagecodecs_jpegxl"], "imagecodecs_jpegxl", "imagecodecs-numcodecs"),
        (["bytes", {"name": "blosc", "configuration": {"cname": "snappy"}}], "blosc", None),
        (
            ["bytes", {"name": "numcodecs.jenkins_lookup3", "configuration": {"prefix": [1]}}],
            "jenkins_lookup3",
            None,
        ),
        (["bytes", {"name": "numcodecs.lzma", "configuration": {"format": 9}}], "lzma", None),
        (["bytes", 7], "7", None),
        (["bytes", {"name": "zstd", "configuration": [1]}], "zstd", None),
        (["zstd", "bytes"], "zstd", None),
        (["bytes", "bytes"], "bytes", None),
        (["bytes", "transpose"], "transpose", None),
        (["bytes", "numcodecs.delta"], "numcodecs.delta", None),
        ([], "bytes", None),
        (["transpose", "bytes"], "transpose", None),
        ([transpose([0, 1]), "bytes"], "transpose", None),
        ([transpose(["0"]), "bytes"], "transpose", None),
        ([transpose(0), "bytes"], "transpose", None),
        (["bytes", {"name": "numcodecs.shuffle", "configuration": {"elementsize": "4"}}], "shuffle", None),
        (
            [{"name": "numcodecs.delta", "configuration": {"dtype": "i4"}}, transpose([0]), "bytes"],
            "transpose",
            None,
        ),
        ([{"name": "numcodecs.delta", "configuration": {}}, "bytes"], "delta", None),
        ([{"name": "numcodecs.delta", "configuration": {"dtype": "O"}}, "bytes"], "delta", None),
        ([{"name": "numcodecs.delta", "configuration": {"dtype": "f4"}}, "bytes"], "numcodecs.delta", None),
        ([SHARDED, "zstd"], "zstd", None),
        ([transpose([0]), SHARDED], "sharding_indexed", None),
        ([sharded(chunk_shape=[4])], "sharding_indexed", None),
        ([sharded(chunk_shape=[5, 1])], "sharding_indexed", None),
        ([sharded(chunk_shape=[0])], "sharding_indexed", None),
        ([sharded(chunk_shape=["5"])], "sharding_indexed", None),
        ([sharded(codecs=["bytes", "acme"])], "acme", None),
        ([sharded(index_codecs=["bytes", "zstd"])], "sharding_indexed", None),
        ([sharded(index_codecs=[transpose([1, 0]), "bytes"])], "sharding_indexed", None),
    ],
)
def test_format_3_codecs_that_are_not_decoded_here_are_named(
    codecs: Sequence[Any], codec: str, package: str | None
) -> None:
    with pytest.raises(NoChain) as caught:
        v3(codecs, dtype=np.dtype("<i4"), chunk_shape=(10,))
    assert codec in str(caught.value.codec)
    assert caught.value.package == package
    assert codec in caught.value.reason


def test_format_2_codecs_that_are_not_decoded_here_are_named() -> None:
    with pytest.raises(NoChain, match="imagecodecs_jpegxl") as caught:
        v2(None, {"id": "imagecodecs_jpegxl", "level": 99}, dtype=np.dtype("u1"), order="C", chunk_shape=(4,))
    assert caught.value.package == "imagecodecs-numcodecs"
    with pytest.raises(NoChain, match="zstd is no codec"):
        v2(["zstd"], None, dtype=np.dtype("u1"), order="C", chunk_shape=(4,))  # type: ignore[list-item]
    with pytest.raises(NoChain, match="vlen-utf8"):
        v2([{"id": "vlen-utf8"}], None, dtype=np.dtype("O"), order="C", chunk_shape=(4,))


@settings(max_examples=60)
@given(
    data=st.data(),
    dtype=st.sampled_from(["u1", "<i2", ">i4", "<f8"]),
    order=st.sampled_from("CF"),
    shapes=st.sampled_from(SHAPES),
    make=st.sampled_from([smooth, noise]),
)
def test_any_format_2_stack(data: st.DataObject, dtype: str, order: str, shapes: Any, make: Any) -> None:
    itemsize = np.dtype(dtype).itemsize
    # numcodecs refuses to shuffle what is no whole number of elements, so shuffles come first.
    filters = data.draw(st.sampled_from([[], [numcodecs.Shuffle(itemsize)], [numcodecs.Delta(dtype)]]))
    tail = st.sampled_from(
        [numcodecs.CRC32(), numcodecs.CRC32C(), numcodecs.Fletcher32(), numcodecs.Zstd(), numcodecs.LZ4()]
    )
    filters = filters + data.draw(st.lists(tail, max_size=3))
    compressor = data.draw(st.sampled_from(list(V2_COMPRESSORS.values())))
    values = np.nan_to_num(make(shapes[0], dtype)) if "f" in dtype else make(shapes[0], dtype)
    options = {"zarr_format": 2, "compressors": compressor, "filters": filters or None, "order": order}
    with np.errstate(all="ignore"):
        assert_equal_to_zarr(write(values, shapes[1], **options))


def test_uncompressed_arrays_load_no_codec_library() -> None:
    program = """
import sys, numpy as np
from oocloader.codecs.zarr import v2, v3
v2(None, None, dtype=np.dtype("<f4"), order="C", chunk_shape=(4,))
v3(["bytes"], dtype=np.dtype("u1"), chunk_shape=(4,))
assert not {"numcodecs", "imagecodecs", "zarr", "h5py"} & set(sys.modules), sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
