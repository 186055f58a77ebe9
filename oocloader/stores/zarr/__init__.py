"""Zarr groups and arrays, formats 2 and 3: their metadata, and where their chunks lie.

The way through: `tree` is the keys of a store, in a folder or in a zip archive; `store` lists the arrays
among them; `metadata` is what one of them says of itself; `chunks` reads shard indexes and makes its layout;
`library` asks zarr-python for the rows of the others.
"""

from oocloader.stores.zarr.store import open_zarr_folder, open_zarr_zip

__all__ = ["open_zarr_folder", "open_zarr_zip"]
