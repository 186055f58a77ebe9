"""What is in a store, how it will be read, and whether its chunks suit batches of rows."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from oocloader.sizes import KIB, MIB, nbytes_of_row, nbytes_text
from oocloader.stores.base import ArrayInfo, Store

# A chunk costs about as much to find, read and hand to a codec as 16 KiB cost to decode.
SMALL_CHUNK = 16 * KIB
MANY_CHUNKS = 1000
# A window holds whole rows of chunks, and up to three windows lie on the device.
LARGE_BAND = 256 * MIB


@dataclass(frozen=True, slots=True)
class ArrayReport:
    """One array as `oocloader inspect` shows it; `advice` is a line for each thing worth changing."""

    info: ArrayInfo
    store: str
    parts: tuple[str, ...]
    notice: str
    advice: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """The report in terms of JSON."""
        known = {**asdict(self), **asdict(self.info), "nbytes": self.info.nbytes}
        del known["info"]
        return {name: _plain(value) for name, value in known.items()}


def inspect_store(store: Store) -> list[ArrayReport]:
    """Report what is in a store, and what would be faster.

    Parameters
    ----------
    store : Store
        An open store.

    Returns
    -------
    list of ArrayReport
        One for every array, loadable or not, in file order.

    Examples
    --------
    >>> import numpy as np
    >>> from oocloader import open_store
    >>> with open_store(np.zeros((3, 2))) as store:
    ...     [report.info.name for report in inspect_store(store)]
    ['array']
    """
    return [
        ArrayReport(array.info, array.store, array.parts, array.notice, tuple(advice(array.info)))
        for array in store.stored.values()
    ]


def advice(info: ArrayInfo) -> list[str]:
    """What would make an array load faster or in less memory.

    >>> import numpy as np
    >>> info = ArrayInfo("x", (64, 50, 30), np.dtype("f4"), chunk_shape=(64, 16, 8), codecs=("gzip",))
    >>> advice(info)[0]
    'chunks cut the samples: a row needs 16 chunks; oocloader convert makes chunks of whole rows'
    """
    if info.reader == "none" or not info.shape or not info.nbytes:
        return []
    lines: list[str] = []
    if info.reader == "library":
        reason = info.reason or "it is read by the library"
        lines.append(f"{reason}: one thread at a time; oocloader convert makes it fast")
    if info.chunk_shape is None:
        return lines
    across = math.prod(-(-n // c) for n, c in zip(info.shape[1:], info.chunk_shape[1:], strict=True))
    chunk_nbytes = math.prod(info.chunk_shape) * info.dtype.itemsize
    chunks = across * -(-info.shape[0] // info.chunk_shape[0])
    band_nbytes = info.chunk_shape[0] * nbytes_of_row(info.shape, info.dtype)
    if across > 1:
        what = f"chunks cut the samples: a row needs {across} chunks"
        lines.append(f"{what}; oocloader convert makes chunks of whole rows")
    if chunk_nbytes < SMALL_CHUNK and chunks > MANY_CHUNKS:
        what = f"{chunks} chunks of {nbytes_text(chunk_nbytes)} each cost more to find than to decode"
        lines.append(f"{what}; oocloader convert makes fewer, larger ones")
    if band_nbytes > LARGE_BAND:
        what = f"a window holds at least {nbytes_text(band_nbytes)} ({info.chunk_shape[0]} rows)"
        lines.append(f"{what}, the rows of a chunk; oocloader convert --chunk-rows makes smaller ones")
    return lines


def _plain(value: Any) -> Any:
    """An attribute's value in terms of JSON; what has none is shown as text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)
