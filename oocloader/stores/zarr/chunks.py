"""Where the chunks of a Zarr array lie, in files of their own or in shards, as a `Layout`."""

import math
from dataclasses import dataclass

import numpy as np

from oocloader.codecs import CodecError
from oocloader.codecs.zarr import Decoding, Sharding
from oocloader.errors import CorruptChunkError
from oocloader.reading import FileReader, Files, Layout, damaged_chunk
from oocloader.stores.zarr.metadata import ArrayMetadata, grid_of
from oocloader.stores.zarr.tree import Objects

_ABSENT = np.uint64(2**64 - 1)


@dataclass(frozen=True, slots=True)
class _Table:
    """Where the chunks of `chunk_shape` lie: columns of one entry a chunk, C order; file -1 where absent."""

    chunk_shape: tuple[int, ...]
    file: np.ndarray
    offset: np.ndarray
    stored: np.ndarray


def stored_chunks(metadata: ArrayMetadata, objects: Objects) -> tuple[np.ndarray, np.ndarray]:
    """Which objects are chunks of the array, and the number of each in its grid."""
    grid = metadata.grid
    which, cells = metadata.keys.indices(objects.keys, len(grid))
    inside = (cells < np.array(grid, np.int64)).all(axis=1)
    return which[inside], np.ravel_multi_index(tuple(cells[inside].T), grid)


def inner_chunk_shape(decoding: Decoding | Sharding, chunk_shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of what is decoded as one: the chunk, or the innermost chunk of a shard."""
    while isinstance(decoding, Sharding):
        chunk_shape, decoding = decoding.chunk_shape, decoding.inner
    return chunk_shape


def array_layout(
    name: str, metadata: ArrayMetadata, objects: Objects, decoding: Decoding | Sharding
) -> Layout:
    """The layout of the array called `name`. Reads the indexes of shards.

    Raises `CorruptChunkError` where one is damaged.
    """
    which, cells = stored_chunks(metadata, objects)
    count = math.prod(metadata.grid)
    zeros = np.zeros(count, np.int64)
    table = _Table(metadata.chunk_shape, np.full(count, -1, np.int32), zeros, zeros.copy())
    table.file[cells] = objects.file[which]
    table.offset[cells] = objects.offset[which]
    table.stored[cells] = objects.stored[which]
    files = FileReader(objects.files)
    try:
        while isinstance(decoding, Sharding):
            table = _inside_shards(name, metadata.shape, table, decoding, objects.files, files)
            decoding = decoding.inner
    finally:
        files.close()
    return Layout(
        array=name,
        shape=metadata.shape,
        dtype=decoding.dtype,
        chunk_shape=table.chunk_shape,
        files=objects.files,
        file=table.file,
        offset=table.offset,
        stored=table.stored,
        mask=np.zeros(len(table.file), np.uint32),
        chain=decoding.chain,
        axes=decoding.axes,
        fill=_in_order_of(metadata.fill, decoding.dtype),
    )


def _in_order_of(fill: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """`fill` in the byte order of `dtype`, bit by bit: a cast could quieten a NaN."""
    return fill if fill.dtype == dtype else fill.byteswap().view(dtype)


def _inside_shards(
    name: str, shape: tuple[int, ...], shards: _Table, sharding: Sharding, files: Files, reader: FileReader
) -> _Table:
    """The chunks that the shards hold."""

    def at_fault(shard: int, reason: str) -> CorruptChunkError:
        path, reason = files.path(int(shards.file[shard])), f"damaged: {reason}"
        return damaged_chunk(name, shape, shards.chunk_shape, shard, path=path, reason=reason, unit="shard")

    outer, inside = grid_of(shape, shards.chunk_shape), sharding.grid
    present = np.flatnonzero(shards.file >= 0)
    index = np.full((len(shards.file), *inside, 2), _ABSENT)
    for shard in present.tolist():
        try:
            index[shard] = _read_index(shards, shard, sharding, reader)
        except CodecError as error:
            raise at_fault(shard, f"its index: {error}") from error
    at, stored = index[..., 0], index[..., 1]
    there = (at != _ABSENT) | (stored != _ABSENT)
    size = shards.stored.astype(np.uint64).reshape(-1, *(1 for _ in inside))
    wrong = there & ((at > size) | (stored > size - np.minimum(at, size)))
    if wrong.any():
        shard = int(np.argwhere(wrong)[0][0])
        raise at_fault(shard, "its index points outside of it")
    begin = shards.offset.reshape(size.shape)
    columns = (
        np.where(there, shards.file.reshape(size.shape), np.int32(-1)),
        np.where(there, at.astype(np.int64) + begin, 0),
        np.where(there, stored.astype(np.int64), 0),
    )
    grid = grid_of(shape, sharding.chunk_shape)
    return _Table(sharding.chunk_shape, *(_as_one_grid(column, outer, inside, grid) for column in columns))


def _as_one_grid(
    column: np.ndarray, outer: tuple[int, ...], inside: tuple[int, ...], grid: tuple[int, ...]
) -> np.ndarray:
    """A column (shards, *inside) as a column over `grid`, which leaves out what lies beyond the array."""
    ndim = len(outer)
    axes = [axis + half for axis in range(ndim) for half in (0, ndim)]
    by_axis = column.reshape(*outer, *inside).transpose(axes)
    whole = by_axis.reshape([o * i for o, i in zip(outer, inside, strict=True)])
    return np.ascontiguousarray(whole[tuple(slice(n) for n in grid)]).reshape(-1)


def _read_index(shards: _Table, shard: int, sharding: Sharding, reader: FileReader) -> np.ndarray:
    nbytes, size = sharding.index_nbytes, int(shards.stored[shard])
    if size < nbytes:
        raise CodecError(f"the shard has {size} bytes, its index alone takes {nbytes}")
    begin = int(shards.offset[shard]) + (size - nbytes if sharding.index_at_end else 0)
    stored = np.empty(nbytes, np.uint8)
    file = int(shards.file[shard])
    with reader.opened(file) as fd:
        reader.read(fd, file, begin, stored)
    return sharding.read_index(stored)
