"""HDF5 files: the arrays in them, and where their chunks lie.

The way through: `file` opens a file or says why it cannot be opened; `store` lists its datasets; `types`
and `readers` decide how each is read; `chunks` makes the layout of one that is read directly, with the
chunk index that `btree` reads from the file, or h5py lists.
"""

from oocloader.stores.hdf5.store import open_hdf5

__all__ = ["open_hdf5"]
