"""Arrays in memory as a store."""

import numpy as np

from oocloader.errors import SettingError
from oocloader.reading import MemoryReader
from oocloader.stores.base import Store, StoredArray, described

NAME = "array"
WHERE = "array in memory"


def open_memory(array: np.ndarray) -> Store:
    """A store of one array, named "array". Its rows are copied when they are read."""
    if isinstance(array, np.ma.MaskedArray):
        raise SettingError("a masked array has no plain values: fill it first, with .filled(value)")
    plain = np.asarray(array)
    info = described(NAME, plain.shape, plain.dtype, stored_nbytes=plain.nbytes)
    return Store(WHERE, [StoredArray(info, lambda: MemoryReader(plain), store=WHERE)])
