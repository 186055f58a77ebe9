"""Stores: a path (or several, or arrays in memory) becomes named arrays and the layouts to read them by.

The way through: `source.open_store` finds out what the user named and opens it; `numpy`, `hdf5` and `zarr`
are the formats, which build on `base`: what a store and an array of it are. `joined` makes one store of
several; `inspection` says what is in a store and what would be faster. The libraries of a format are loaded
when a store of that format is opened, not before.
"""

from oocloader.stores.base import MEMBERS, ArrayInfo, Store, StoredArray, sparse_kind
from oocloader.stores.inspection import ArrayReport, inspect_store
from oocloader.stores.joined import side_by_side
from oocloader.stores.numpy import FortranReader, open_raw, raw_shape
from oocloader.stores.source import open_store

__all__ = [
    "MEMBERS",
    "ArrayInfo",
    "ArrayReport",
    "FortranReader",
    "Store",
    "StoredArray",
    "inspect_store",
    "open_raw",
    "open_store",
    "raw_shape",
    "side_by_side",
    "sparse_kind",
]
