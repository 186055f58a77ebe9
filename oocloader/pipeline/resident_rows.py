"""All rows where they stay, read once: on the host, or elsewhere by the number of each row.

That does not change the order: it is the same windows of the same rows, gathered from there in place of being
read.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from oocloader.memory import Cost, row_count
from oocloader.metrics import Counters
from oocloader.order import Order, RowSet, RowSpan, place
from oocloader.pipeline.cached_reader import CachedReader
from oocloader.pipeline.epoch_pass import EpochPass, ReadConfig
from oocloader.pipeline.residency import Resident
from oocloader.pipeline.row_storage import positions
from oocloader.reading import Job, RowReader, Target


def read_all(
    read_config: ReadConfig,
    resident: Resident,
    put: Callable[[int, tuple[np.ndarray, ...]], None],
    *,
    on_start: Callable[[EpochPass], None],
) -> Counters:
    """Read every row of `read_config` once, in stored order: `put(first, arrays)` gets a window at a time.

    `first` is the place of its first row among the rows selected; its memory is used again afterwards.
    `on_start` is told the pass that reads. Returns what it read: not all rows where it was closed.
    """
    order = Order(
        read_config.order.rows,
        shuffle=False,
        seed=0,
        block=resident.window,
        window=resident.window,
        chunk_origins=resident.chunk_origins,
    )
    # Batches of one row: a window is delivered as it is.
    stored = dataclasses.replace(read_config, order=order, batch_size=1, drop_remainder=False, gather="never")
    reading = EpochPass(stored, 0)
    on_start(reading)
    first = 0
    try:
        for arrays in reading.windows():
            put(first, arrays)
            first += len(arrays[0])
            del arrays
    finally:
        reading.close()
        for pool in stored.pools:
            pool.clear()
    return reading.counters


class HostRows:
    """All rows of every array in memory of the host: `readers` read them from there once they were put."""

    def __init__(self, read_config: ReadConfig) -> None:
        rows = read_config.order.rows
        self.readers = [CachedReader.in_memory(reader, rows) for reader in read_config.readers]

    @property
    def complete(self) -> bool:
        """Whether nothing has to be read, as where every array was in memory already."""
        return all(reader.complete for reader in self.readers)

    def put(self, first: int, arrays: Sequence[np.ndarray]) -> None:
        """Hold rows of every array, the first of them number `first` of those selected."""
        for reader, rows in zip(self.readers, arrays, strict=True):
            if not reader.complete:
                reader.put(first, rows)

    def close(self) -> None:
        """Let go of the rows."""
        for reader in self.readers:
            reader.close()


class RowNumbers(RowReader):
    """The place of each row among those selected, int64, read as if it were stored: never from storage.

    What crosses to a device that holds all rows already.
    """

    row_access = True
    dtype = np.dtype(np.int64)

    def __init__(self, rows: RowSet) -> None:
        self.shape = (rows.stop,)
        self._rows = rows

    def jobs(self, spans: Sequence[RowSpan], target: Target) -> list[Job]:
        def write() -> None:
            for span in positions(self._rows, spans):
                place(target.rows, span.dest_index, span.stored_rows())

        return [write]

    def cost(self, spans: Sequence[RowSpan]) -> Cost:
        return Cost(0, 0, row_count(spans) * self.row_nbytes)


def with_row_numbers(read_config: ReadConfig) -> ReadConfig:
    """`read_config` with the number of each row in place of the rows."""
    return dataclasses.replace(read_config, readers=[RowNumbers(read_config.order.rows)], gather="never")
