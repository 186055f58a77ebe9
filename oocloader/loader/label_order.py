"""Whether labels are stored in order, found out from a few of them."""

import numpy as np

from oocloader.errors import OocloaderError
from oocloader.metrics import Counters
from oocloader.order import RowSet
from oocloader.reading import RowReader, SharedChunks, Target

# Labels in random order of two equal classes look sorted once in 10**70 times, with 1 % in one class
# once in 400.
_STRETCHES = 32
_STRETCH_ROWS = 8
# Chunks are decoded whole: no more of them than this, in bytes.
_MOST_NBYTES = 16 << 20
_FEWEST_STRETCHES = 4


def sorted_labels(reader: RowReader, rows: RowSet) -> bool:
    """Whether rows are stored class by class: as far as evenly spread samples tell, labels ascend or descend
    all the way, and repeat.

    Only for integers, one a row; else, and where even a few would cost much to read, False. Reads 256
    labels, and decodes 16 MiB of chunks at most.
    """
    if reader.dtype.kind not in "iu" or len(reader.shape) != 1 or len(rows) < 2:
        return False
    decoded = reader.dtype.itemsize * (1 if reader.row_access else reader.chunk_rows or 1)
    stretches = min(_STRETCHES, _MOST_NBYTES // decoded)
    if stretches < _FEWEST_STRETCHES:
        return False
    try:
        labels = _sampled(reader, rows, stretches)
    except OocloaderError:
        return False  # it comes out where the rows are read for good
    # Labels that hardly repeat are no classes: numbers of rows, times of measurements.
    if labels[0] == labels[-1] or 2 * len(np.unique(labels)) > len(labels):
        return False
    ascending = labels if labels[0] < labels[-1] else labels[::-1]
    return bool((ascending[1:] >= ascending[:-1]).all())


def _sampled(reader: RowReader, rows: RowSet, stretches: int) -> np.ndarray:
    length = max(1, min(_STRETCH_ROWS, len(rows) // stretches))
    found: list[np.ndarray] = []
    for first in np.unique(np.linspace(0, len(rows) - length, stretches).astype(np.int64)).tolist():
        labels = np.empty(length, reader.dtype)
        span = rows.span(first, first + length)
        for job in reader.jobs([span], Target(labels, SharedChunks(lambda lo, hi: 0), Counters())):
            job()
        found.append(labels)
    return np.concatenate(found)
