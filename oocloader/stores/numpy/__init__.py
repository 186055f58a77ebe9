"""Arrays that are one run of bytes: `.npy`, members of an `.npz`, raw files, arrays in memory.

The way through: `npy` reads the header and says where the values begin; `npz` does so for members of a zip
archive; `raw` is told what a header would say; `memory` has nothing to read. `fortran` reads rows of arrays
that are kept column by column; `inflate` reads members that are compressed.
"""

from oocloader.stores.numpy.fortran import FortranReader
from oocloader.stores.numpy.memory import open_memory
from oocloader.stores.numpy.npy import MAGIC, open_npy
from oocloader.stores.numpy.npz import open_npz
from oocloader.stores.numpy.raw import open_raw, raw_shape

__all__ = ["MAGIC", "FortranReader", "open_memory", "open_npy", "open_npz", "open_raw", "raw_shape"]
