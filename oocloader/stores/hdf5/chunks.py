"""Where the chunks of an HDF5 dataset lie, as a `Layout`."""

import dataclasses
import math
from array import array
from typing import Any

import h5py
import numpy as np

from oocloader.codecs import Chain
from oocloader.errors import StoreError
from oocloader.reading import Files, Layout, damaged_chunk
from oocloader.stores.hdf5.btree import ChunkTable, chunk_table
from oocloader.stores.hdf5.file import user_block_left_out

ALL_SKIPPED = np.uint32(0xFFFFFFFF)
# Listing fewer chunks than this takes the library milliseconds.
_MANY = 1 << 12


def contiguous_layout(dataset: h5py.Dataset, dtype: np.dtype[Any], name: str) -> Layout:
    """The layout of a dataset that is one run of bytes, or that was never written to."""
    files = Files.of(dataset.file.filename)
    offset = dataset.id.get_offset()
    layout = Layout.contiguous(name, dataset.shape, dtype, files, 0)
    if offset is None:
        return dataclasses.replace(layout, file=np.full(1, -1, np.int32), fill=fill_value(dataset, dtype))
    if dataset.file.userblock_size and user_block_left_out()[1]:
        offset += dataset.file.userblock_size
    size, expected, path = int(files.size[0]), offset + int(layout.stored[0]), files.path(0)
    if size < expected:
        what = f"{path}: array {name!r} ends at byte {expected}, but the file has {size}; it is truncated"
        raise StoreError(what, file=path, array=name)
    return dataclasses.replace(layout, offset=np.array([offset], np.int64))


def chunked_layout(dataset: h5py.Dataset, dtype: np.dtype[Any], chain: Chain, name: str) -> Layout:
    """The layout of a chunked dataset. Raises `CorruptChunkError` where its index cannot be right."""
    files = Files.of(dataset.file.filename)
    shape, chunk_shape = dataset.shape, dataset.chunks
    grid = tuple(-(-n // c) for n, c in zip(shape, chunk_shape, strict=True))
    table = _read_index(dataset) if math.prod(grid) >= _MANY else None
    table = table or _ask_library(dataset)
    cells = table.corner // np.array(chunk_shape)
    inside = ((cells >= 0) & (cells < np.array(grid))).all(axis=1)
    cells, offset, stored, mask = (
        column[inside] for column in (cells, table.offset, table.stored, table.mask)
    )
    index = np.ravel_multi_index(tuple(cells.T), grid)
    size = int(files.size[0])
    outside = (offset < 0) | (offset > size) | (stored < 0) | (stored > size - offset)
    if outside.any():
        number, path = int(index[np.flatnonzero(outside)[0]]), files.path(0)
        reason = f"it lies outside the file, which has {size} bytes"
        raise damaged_chunk(name, shape, chunk_shape, number, path=path, reason=reason)
    cut = np.array(shape) % np.array(chunk_shape) > 0
    edge = (cells[:, cut] == np.array(grid)[cut] - 1).any(axis=1)  # chunks that reach beyond the array
    if edge.any() and not chain.raw and _edges_unfiltered(dataset, stored[edge], mask[edge], dtype):
        mask[edge] = ALL_SKIPPED

    def over_grid(column: np.ndarray, absent: int = 0) -> np.ndarray:
        every = np.full(math.prod(grid), absent, column.dtype)
        every[index] = column
        return every

    file = over_grid(np.zeros(len(index), np.int32), absent=-1)
    return Layout(
        array=name,
        shape=shape,
        dtype=dtype,
        chunk_shape=chunk_shape,
        files=files,
        file=file,
        offset=over_grid(offset),
        stored=over_grid(stored),
        mask=over_grid(mask),
        chain=chain,
        axes=None,
        # In a damaged file HDF5 may crash over the fill value, so it is asked for where it counts.
        fill=fill_value(dataset, dtype) if (file < 0).any() else np.zeros((), dtype),
    )


def fill_value(dataset: h5py.Dataset, dtype: np.dtype[Any]) -> np.ndarray:
    """What stands for values that were never written, 0-d; zero where the file says not to fill."""
    properties = dataset.id.get_create_plist()
    given = properties.fill_value_defined() == h5py.h5d.FILL_VALUE_USER_DEFINED
    if not given or properties.get_fill_time() == h5py.h5d.FILL_TIME_NEVER:
        return np.zeros((), dtype)
    return np.asarray(dataset.fillvalue).astype(dtype)


def _ask_library(dataset: h5py.Dataset) -> ChunkTable:
    """The index as HDF5 lists it."""
    corners, columns = array("q"), array("Q")

    def add(chunk: h5py.h5d.StoreInfo) -> None:
        corners.extend(chunk[0])
        columns.extend(chunk[1:])

    dataset.id.chunk_iter(add)
    mask, offset, stored = np.frombuffer(columns, np.uint64).reshape(-1, 3).T
    if dataset.file.userblock_size and user_block_left_out()[0]:
        offset = offset + np.uint64(dataset.file.userblock_size)
    # What no file can have becomes negative here, and is refused by the caller.
    return ChunkTable(
        np.frombuffer(corners, np.int64).reshape(-1, dataset.ndim),
        offset.view(np.int64),
        stored.view(np.int64),
        mask.astype(np.uint32),
    )


def _read_index(dataset: h5py.Dataset) -> ChunkTable | None:
    """The index as it is in the file, None where only the library can say."""
    file = dataset.file
    if file.swmr_mode or file.driver not in ("sec2", "stdio"):
        return None
    # h5py.h5o.get_info tells the address too, but walks the index for it, as long as reading it takes here.
    link = file.id.links.get_info(dataset.name.encode("utf-8", "surrogateescape"))
    if link.type != h5py.h5l.TYPE_HARD:
        return None
    return chunk_table(file.filename, int(link.u), dataset.ndim, base=int(file.userblock_size))


def _edges_unfiltered(
    dataset: h5py.Dataset, stored: np.ndarray, mask: np.ndarray, dtype: np.dtype[Any]
) -> bool:
    """Whether chunks that reach beyond the array are kept as they are, whatever their filter mask says.

    A flag of the dataset (H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS, of libver "latest") that h5py does not show.
    """
    plain = stored == math.prod(dataset.chunks) * dtype.itemsize
    if not plain.any() or (~plain & (mask == 0)).any():
        return False
    # Every one of them is as long as raw bytes are. The flag is in the creation properties, so a dataset
    # made with these, and with a checksum of four bytes for its only filter, tells.
    properties = dataset.id.get_create_plist().copy()
    properties.remove_filter(h5py.h5z.FILTER_ALL)
    properties.set_fletcher32()
    unlimited = (h5py.h5s.UNLIMITED,) * len(dataset.chunks)
    shape = tuple(c + 1 for c in dataset.chunks)
    with h5py.File.in_memory(libver="latest") as file:
        space = h5py.h5s.create_simple(shape, unlimited)
        probe = h5py.h5d.create(file.id, b"probe", dataset.id.get_type(), space, properties)
        corner = h5py.Dataset(probe)
        corner[tuple(np.array(dataset.chunks))] = np.zeros((), dtype)
        written = probe.get_chunk_info_by_coord(dataset.chunks)
    return bool(written.size == math.prod(dataset.chunks) * dtype.itemsize)
