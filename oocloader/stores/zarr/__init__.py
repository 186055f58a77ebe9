"""Zarr groups and arrays, formats 2 and 3: their metadata and where their chunks lie."""
