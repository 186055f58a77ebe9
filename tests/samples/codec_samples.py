"""Chunks as h5py and zarr-python store them, with the values that these libraries read back."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import h5py
import hdf5plugin
import numpy as np

from oocloader.codecs import hdf5
from oocloader.codecs.chain import Chain

GUARD = 64
"""Bytes on either side of `out` that nothing may write to."""
_GUARD_BYTE = 0xA5

FilterSpec = tuple[int, tuple[int, ...]]
"""A filter id and the client values to set it with."""

SHUFFLE, GZIP, FLETCHER32, SZIP = (2, ()), (1, (4,)), (3, ()), (4, (4, 8))
LZF = (h5py.h5z.FILTER_LZF, ())


def plugin(options: Any) -> FilterSpec:
    """A filter of hdf5plugin, such as `hdf5plugin.Zstd(clevel=3)`."""
    return int(options["compression"]), tuple(int(value) for value in options["compression_opts"])


HDF5_FILTERS: dict[str, FilterSpec] = {
    "shuffle": SHUFFLE,
    "gzip": GZIP,
    "fletcher32": FLETCHER32,
    "szip": SZIP,
    "lzf": LZF,
    "bzip2": plugin(hdf5plugin.BZip2(blocksize=1)),
    "lz4": plugin(hdf5plugin.LZ4()),
    "lz4 in blocks": plugin(hdf5plugin.LZ4(nbytes=512)),
    "zstd": plugin(hdf5plugin.Zstd(clevel=3)),
    "blosc": plugin(hdf5plugin.Blosc(cname="lz4", clevel=5, shuffle=hdf5plugin.Blosc.SHUFFLE)),
    "blosc bitshuffle": plugin(hdf5plugin.Blosc(cname="zstd", clevel=3, shuffle=hdf5plugin.Blosc.BITSHUFFLE)),
    "blosc blosclz": plugin(hdf5plugin.Blosc(cname="blosclz", clevel=9, shuffle=hdf5plugin.Blosc.NOSHUFFLE)),
    "blosc zlib": plugin(hdf5plugin.Blosc(cname="zlib", clevel=1)),
    "blosc2": plugin(hdf5plugin.Blosc2(cname="blosclz", clevel=5)),
    "blosc2 zstd": plugin(hdf5plugin.Blosc2(cname="zstd", clevel=3, filters=hdf5plugin.Blosc2.BITSHUFFLE)),
    "blosc2 delta": plugin(hdf5plugin.Blosc2(cname="lz4", clevel=5, filters=hdf5plugin.Blosc2.DELTA)),
    "bitshuffle": plugin(hdf5plugin.Bitshuffle(cname="none")),
    "bitshuffle blocks": plugin(hdf5plugin.Bitshuffle(nelems=64, cname="none")),
    "bitshuffle lz4": plugin(hdf5plugin.Bitshuffle(cname="lz4")),
    "bitshuffle lz4 blocks": plugin(hdf5plugin.Bitshuffle(nelems=64, cname="lz4")),
    "bitshuffle zstd": plugin(hdf5plugin.Bitshuffle(cname="zstd", clevel=3)),
    "bitshuffle zstd blocks": plugin(hdf5plugin.Bitshuffle(nelems=64, cname="zstd", clevel=1)),
}
"""Every filter that is decoded here, in its variants."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One chunk: what is stored, the mask, and the bytes it decodes to."""

    chain: Chain
    stored: bytes
    mask: int
    decoded: bytes


def hdf5_chunks(
    data: np.ndarray, chunk_shape: tuple[int, ...], filters: Sequence[FilterSpec]
) -> Iterator[Stored]:
    """Every chunk of a dataset of `data` that h5py writes through `filters`.

    The decoded bytes of edge chunks are compared whole: HDF5 pads them with the fill value 0.
    """
    with h5py.File("chunks.h5", "w", driver="core", backing_store=False) as file:
        dataset = dataset_with(file, data.shape, data.dtype, filters, chunk_shape)
        dataset[...] = data
        dataset.flush()
        chain = hdf5.chain(pipeline(dataset), dtype=data.dtype, chunk_shape=chunk_shape)
        for corner in itertools.product(*map(range, [0] * data.ndim, data.shape, chunk_shape)):
            mask, stored = dataset.id.read_direct_chunk(corner)
            piece = dataset[tuple(map(slice, corner, np.add(corner, chunk_shape)))]
            whole = np.zeros(chunk_shape, data.dtype)
            whole[tuple(slice(length) for length in piece.shape)] = piece
            yield Stored(chain, stored, mask, whole.tobytes())


def dataset_with(
    file: h5py.File,
    shape: tuple[int, ...],
    dtype: np.dtype,
    filters: Sequence[FilterSpec],
    chunk_shape: tuple[int, ...] | None = None,
) -> h5py.Dataset:
    """Dataset ``x`` of `file` with any pipeline, in one chunk unless told otherwise."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk(chunk_shape or shape)
    for number, values in filters:
        _add_filter(properties, number, values)
    kind = h5py.h5t.py_create(dtype, logical=True)
    return h5py.Dataset(h5py.h5d.create(file.id, b"x", kind, h5py.h5s.create_simple(shape), properties))


def pipeline(dataset: h5py.Dataset) -> list[hdf5.Filter]:
    properties = dataset.id.get_create_plist()
    return [properties.get_filter(place) for place in range(properties.get_nfilters())]


def _add_filter(properties: Any, number: int, values: tuple[int, ...]) -> None:
    match number:
        case 1:
            properties.set_deflate(*values)
        case 2:
            properties.set_shuffle()
        case 3:
            properties.set_fletcher32()
        case 4:
            properties.set_szip(*values)
        case _:
            properties.set_filter(number, h5py.h5z.FLAG_OPTIONAL, values)


def decode(chain: Chain, stored: bytes, nbytes: int, mask: int = 0) -> bytes:
    """`stored` as `chain` decodes it from read-only memory; fails where it wrote beyond `out`."""
    fenced = np.full(GUARD + nbytes + GUARD, _GUARD_BYTE, np.uint8)
    try:
        chain.decode(np.frombuffer(stored, np.uint8), fenced[GUARD : GUARD + nbytes], mask)
    finally:
        assert (fenced[:GUARD] == _GUARD_BYTE).all()
        assert (fenced[GUARD + nbytes :] == _GUARD_BYTE).all()
    return fenced[GUARD : GUARD + nbytes].tobytes()


def smooth(shape: tuple[int, ...], dtype: Any, seed: int = 1) -> np.ndarray:
    """Values that grow by small steps, so that every codec finds something to compress."""
    dtype = np.dtype(dtype)
    steps = np.random.default_rng(seed).integers(0, 3, shape).reshape(-1)
    values = np.cumsum(steps).reshape(shape)
    if dtype.kind == "b":
        return (values // 5 % 2).astype(dtype)
    if dtype.kind == "c":
        return (values + 1j * (values % 7)).astype(dtype)
    return (values % 120).astype(dtype) if dtype.itemsize == 1 else values.astype(dtype)


def noise(shape: tuple[int, ...], dtype: Any, seed: int = 1) -> np.ndarray:
    """Random bits, which no codec compresses."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape)) * dtype.itemsize
    values = np.random.default_rng(seed).integers(0, 2 if dtype.kind == "b" else 256, count, dtype=np.uint8)
    result: np.ndarray = values.view(dtype).reshape(shape)
    return result


def assert_equal_to_h5py(chunks: Iterable[Stored]) -> None:
    for chunk in chunks:
        assert decode(chunk.chain, chunk.stored, len(chunk.decoded), chunk.mask) == chunk.decoded
