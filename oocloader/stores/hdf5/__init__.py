"""HDF5 files: the arrays in them and where their chunks lie."""
