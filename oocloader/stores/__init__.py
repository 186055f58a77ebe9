"""Stores: a path (or several, or arrays in memory) becomes named arrays and the layouts to read them by.

The libraries of a format are loaded when a store of that format is opened, not before.
"""

from __future__ import annotations

from oocloader.stores.base import ArrayInfo, Store, StoredArray
from oocloader.stores.fortran import FortranReader
from oocloader.stores.inspection import ArrayReport, inspect_store
from oocloader.stores.joined import side_by_side
from oocloader.stores.raw import open_raw, raw_shape
from oocloader.stores.source import open_store
from oocloader.stores.sparse import MEMBERS, sparse_kind

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
