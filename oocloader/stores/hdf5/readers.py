"""How an HDF5 dataset is read: chunk bytes from the file, by h5py, or not at all."""

import importlib
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import h5py
import numpy as np

from oocloader.codecs import Chain, NoChain
from oocloader.codecs import hdf5 as codecs
from oocloader.errors import CorruptChunkError
from oocloader.reading import Box, ChunkGeometry, ChunkReader, LibraryReader, MemoryReader, RowReader
from oocloader.stores.base import ArrayInfo
from oocloader.stores.hdf5.chunks import chunked_layout, contiguous_layout, fill_value
from oocloader.stores.hdf5.file import Hdf5File
from oocloader.stores.hdf5.types import plain_dtype, stored_otherwise


@dataclass(frozen=True, slots=True)
class Storage:
    """How a dataset is kept and so read.

    `chain` is given where `reader` is "direct" and the dataset is chunked; `compact` data lies within
    the dataset's header.
    """

    codecs: tuple[str, ...]
    reader: Literal["direct", "library", "none"]
    reason: str = ""
    notice: str = ""
    chain: Chain | None = None
    compact: bool = False


def storage_of(dataset: h5py.Dataset, *, swmr: bool) -> Storage:
    """How `dataset`, which has rows of numbers, is read."""
    properties = dataset.id.get_create_plist()
    kind = properties.get_layout()
    filters: list[codecs.Filter] = [properties.get_filter(i) for i in range(properties.get_nfilters())]
    names = tuple(codecs.filter_name(number, name) for number, _, _, name in filters)
    if kind == h5py.h5d.VIRTUAL:
        return Storage(names, "library", "it is a virtual dataset", _missing_sources(dataset))
    chain: Chain | None = None
    slow = "the file is open for writing (SWMR): the rows it had when it was opened are read" if swmr else ""
    slow = slow or stored_otherwise(dataset)
    if properties.get_external_count():
        slow = slow or "it is kept in other files (external storage)"
    if kind == h5py.h5d.CHUNKED:
        try:
            chain = codecs.chain(filters, dtype=plain_dtype(dataset.dtype), chunk_shape=dataset.chunks)
        except NoChain as error:
            slow = slow or error.reason
        if not hasattr(dataset.id, "chunk_iter"):
            slow = slow or "this HDF5 library cannot list chunks; version 1.14 can"
    if not slow:
        return Storage(names, "direct", chain=chain, compact=kind == h5py.h5d.COMPACT)
    missing = _missing_filters(filters)
    if missing:
        return Storage(names, "none", missing)
    return Storage(names, "library", slow)


def _missing_filters(filters: list[codecs.Filter]) -> str:
    """Which filter the HDF5 library here cannot undo either, and what to install; empty where it can."""
    if not all(_decodes(number) for number, *_ in filters):
        with suppress(ImportError):  # an optional package, which registers its filters for this process
            importlib.import_module("hdf5plugin")
    for number, _, _, name in filters:
        if _decodes(number):
            continue
        _, package = codecs.FILTERS.get(number, ("", None))
        remedy = f"; pip install {package}" if package else ""
        return f"its filter {number} ({codecs.filter_name(number, name)}) cannot be decoded here{remedy}"
    return ""


def _decodes(filter_id: int) -> bool:
    if not h5py.h5z.filter_avail(filter_id):
        return False
    return bool(h5py.h5z.get_filter_info(filter_id) & h5py.h5z.FILTER_CONFIG_DECODE_ENABLED)


def _missing_sources(dataset: h5py.Dataset) -> str:
    """What to warn of where HDF5 gives the fill value for the rows of sources that are not there."""
    folder = os.path.dirname(os.path.abspath(dataset.file.filename))
    sources = {source.file_name for source in dataset.virtual_sources()} - {"."}
    # Names with % stand for any number of files.
    missing = [name for name in sources if "%" not in name and not os.path.exists(os.path.join(folder, name))]
    if not missing:
        return ""
    names = ", ".join(sorted(missing))
    return f"source files of this virtual dataset are missing ({names}): their rows are the fill value"


def make_reader(file: Hdf5File, info: ArrayInfo, storage: Storage) -> RowReader:
    """The reader of the dataset `info.name` of `file`."""
    if storage.reader == "library":
        return _library_reader(file, info)
    with file.opened() as opened:
        dataset = opened[info.name]
        dtype = plain_dtype(dataset.dtype)
        if storage.compact:
            return MemoryReader(dataset[()].astype(info.dtype))
        try:
            if storage.chain is None:
                layout = contiguous_layout(dataset, dtype, info.name)
            else:
                layout = chunked_layout(dataset, dtype, storage.chain, info.name)
        except (RuntimeError, ValueError, ArithmeticError) as error:
            what = f"{file.path}: array {info.name!r}: the list of its chunks is damaged: {error}"
            raise CorruptChunkError(what, file=file.path, array=info.name) from error
    return ChunkReader(layout, ask_fill=lambda: _fill(file, info.name))


def _fill(file: Hdf5File, name: str) -> np.ndarray:
    """The fill value of a dataset, 0-d and in the byte order of the file; zero where there is none."""
    with file.opened() as opened:
        dataset = opened[name]
        return fill_value(dataset, plain_dtype(dataset.dtype))


def _library_reader(file: Hdf5File, info: ArrayInfo) -> LibraryReader:
    def read_box(box: Box, out: np.ndarray) -> None:
        dataset = file.held_open()[info.name]
        # The axes of an array type follow those of the dataset, and are no part of its selection.
        inner = (slice(None),) * dataset.ndim + box[dataset.ndim :]
        # Not read_direct: h5py itself knows forms of numbers that HDF5 does not convert to those of `out`.
        out[...] = dataset[box[: dataset.ndim]][inner]

    chunk_shape = info.chunk_shape
    return LibraryReader(
        lambda start, stop, out: read_box((slice(start, stop),), out),
        shape=info.shape,
        dtype=info.dtype,
        chunk_rows=chunk_shape[0] if chunk_shape else None,
        store=file.path,
        array=info.name,
        chunk_geometry=ChunkGeometry(chunk_shape, tuple(range(len(info.shape)))) if chunk_shape else None,
        read_box=read_box if chunk_shape else None,
    )
