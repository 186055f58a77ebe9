"""Stores: a path (or several, or arrays in memory) becomes named arrays and the layouts to read them by.

The libraries of a format are loaded when a store of that format is opened, not before.
"""

from __future__ import annotations

from oocloader.stores.base import ArrayInfo, Store, StoredArray
from oocloader.stores.source import open_store

__all__ = ["ArrayInfo", "Store", "StoredArray", "open_store"]
