"""zarr-python as the reader of arrays whose chunks are not decoded here."""

import warnings
from typing import Any

import numpy as np

from oocloader.reading import Box, ChunkGeometry, LibraryReader
from oocloader.stores.base import ArrayInfo
from oocloader.stores.zarr.metadata import ArrayMetadata
from oocloader.stores.zarr.tree import FolderTree, Tree


def library_refusal(tree: Tree, prefix: str, metadata: ArrayMetadata) -> str:
    """Why zarr-python does not open the array, empty where it does."""
    try:
        store, _ = _opened(tree, prefix, metadata)
        store.close()
    except Exception as error:  # an unknown codec, dtype or grid: each has an exception of its own
        return " ".join(str(error).split()) or type(error).__name__
    return ""


def library_reader(tree: Tree, prefix: str, metadata: ArrayMetadata, info: ArrayInfo) -> LibraryReader:
    """A reader that asks zarr-python for rows."""
    store, array = _opened(tree, prefix, metadata)

    def read_box(box: Box, out: np.ndarray) -> None:
        out[...] = array[box]

    return LibraryReader(
        lambda start, stop, out: read_box((slice(start, stop),), out),
        shape=info.shape,
        dtype=info.dtype,
        chunk_rows=metadata.chunk_shape[0],
        store=tree.path,
        array=info.name,
        close=store.close,
        chunk_geometry=ChunkGeometry(metadata.chunk_shape, tuple(range(len(info.shape)))),
        read_box=read_box,
    )


def _opened(tree: Tree, prefix: str, metadata: ArrayMetadata) -> tuple[Any, Any]:
    import zarr
    import zarr.storage

    store: Any
    if isinstance(tree, FolderTree):
        store = zarr.storage.LocalStore(tree.path, read_only=True)
    else:
        store = zarr.storage.ZipStore(tree.path, mode="r")
    with warnings.catch_warnings():
        # That a codec has no final specification is no news to who only reads.
        warnings.simplefilter("ignore")
        array = zarr.open_array(store=store, path=prefix.rstrip("/"), mode="r", zarr_format=metadata.version)
    return store, array
