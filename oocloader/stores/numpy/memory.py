"""Arrays in memory as a store."""

from __future__ import annotations

import numpy as np

from oocloader.errors import SettingError
from oocloader.reading import MemoryReader
from oocloader.stores.base import ArrayInfo, Store, StoredArray, native, refusal

NAME = "array"
WHERE = "array in memory"


def open_memory(array: np.ndarray) -> Store:
    """A store of one array, named "array". Its rows are copied when they are read."""
    if isinstance(array, np.ma.MaskedArray):
        raise SettingError("a masked array has no plain values: fill it first, with .filled(value)")
    plain = np.asarray(array)
    reason = refusal(plain.dtype, plain.shape)
    info = ArrayInfo(
        NAME,
        plain.shape,
        native(plain.dtype),
        stored_nbytes=plain.nbytes,
        reader="none" if reason else "direct",
        reason=reason,
    )
    return Store(WHERE, [StoredArray(info, None if reason else lambda: MemoryReader(plain), store=WHERE)])
