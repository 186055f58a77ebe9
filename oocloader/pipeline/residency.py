"""Residency: whether all rows stay on the device, what that takes, and how they get there once.

What is kept does not change the order: it is the same windows of the same rows, gathered from what was
kept in place of being read.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from oocloader.errors import SettingError
from oocloader.memory import DEVICE_WINDOWS, LARGEST_WINDOW, Column, Cost, cuts, row_count
from oocloader.metrics import Counters
from oocloader.order import Order, RowSet, RowSpan, place
from oocloader.pipeline.epoch_pass import EpochPass, ReadConfig
from oocloader.pipeline.memory_rows import MemoryRows, positions
from oocloader.reading import Job, MemoryReader, RowReader, Target, allocate
from oocloader.sizes import MIB

Residency = Literal["auto", "stream", "device"]
RESIDENCIES: tuple[Residency, ...] = ("auto", "stream", "device")
# Rows are brought to the device this many bytes at a time: their number is no part of the order.
LOAD_NBYTES = 32 * MIB


@dataclass(frozen=True, slots=True)
class Resident:
    """What residency on a device takes: bytes of rows, and bytes of all, windows and batches included.

    `window` rows are read and copied at a time, counted from `chunk_origins`.
    """

    rows_nbytes: int
    device_nbytes: int
    window: int
    chunk_origins: tuple[int, ...]


def parse_residency(value: object) -> Residency:
    """`value`, or the error that names what there is."""
    for known in RESIDENCIES:
        if value == known:
            return known
    raise SettingError(f'residency={value!r} must be "auto", "stream" or "device"')


def resident(
    rows: int, columns: Sequence[Column], *, batch_size: int, window: int | None, chosen: int
) -> Resident:
    """What it takes to keep `rows` rows of all `columns` on a device.

    `window` is the number of rows that was asked for, `chosen` what it came to be. The sum does not depend
    on the budget that chose it, so that it is the smallest budget that works.
    """
    row_nbytes = max(1, sum(column.row_nbytes for column in columns))
    found = cuts(columns, shuffle=False)
    unit = max(found.unit, found.smallest)
    loaded = min(chosen, rows, max(1, LOAD_NBYTES // row_nbytes // unit) * unit)
    largest = max(1, LARGEST_WINDOW // row_nbytes) if window is None else window
    # Windows of row numbers, int64, cross when rows no longer do.
    numbers = DEVICE_WINDOWS * 8 * (min(rows, max(largest, unit)) + batch_size)
    batches = 2 * batch_size * (row_nbytes + sum(column.delivered_row_nbytes for column in columns))
    loading = 2 * min(rows, max(unit, LOAD_NBYTES // row_nbytes)) * row_nbytes
    kept = rows * row_nbytes
    return Resident(kept, kept + max(loading, numbers) + batches, loaded, found.chunk_origins)


def check_fits(what: Resident, device_memory: int | None) -> None:
    """Raise `SettingError` where a written budget is too small to keep all rows on the device."""
    if device_memory is None or what.device_nbytes <= device_memory:
        return
    raise SettingError(
        f"device_memory={device_memory} is too small for residency='device': the rows take "
        f"{what.rows_nbytes} bytes, windows and batches {what.device_nbytes - what.rows_nbytes}; give at "
        f"least device_memory={what.device_nbytes}, or residency='stream'"
    )


def is_resident(residency: str, what: Resident, *, on_host: bool, device_budget: int | None) -> bool:
    """Whether all rows are kept: "auto" does where a device that is not the host has twice the room."""
    if residency != "auto":
        return residency == "device"
    if on_host or device_budget is None:
        return False
    return 2 * what.rows_nbytes <= device_budget and what.device_nbytes <= device_budget


def check_host(what: Resident, free: int | None) -> None:
    """Raise `SettingError` where the host, being the device, has not the memory."""
    if free is not None and what.rows_nbytes > free:
        raise SettingError(
            f"residency='device' keeps {what.rows_nbytes} bytes of rows, and {free} bytes of memory are "
            "free; use residency='stream'"
        )


def load(
    read_config: ReadConfig,
    what: Resident,
    put: Callable[[int, tuple[np.ndarray, ...]], None],
    *,
    begun: Callable[[EpochPass], None],
) -> Counters:
    """Read every row of `read_config` once, in stored order: `put(first, arrays)` gets a window at a time.

    `first` is the place of its first row among the rows selected; its memory is used again afterwards.
    `begun` is told the pass that reads. Returns what it read; fewer rows than there are where it was closed.
    """
    order = Order(
        read_config.order.rows,
        shuffle=False,
        seed=0,
        block=what.window,
        window=what.window,
        chunk_origins=what.chunk_origins,
    )
    # Batches of one row: a window is delivered as it is.
    stored = dataclasses.replace(read_config, order=order, batch_size=1, drop_remainder=False, gather="never")
    reading = EpochPass(stored, 0)
    begun(reading)
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
    """The rows of a feed in memory of the host. `read_config` is the same feed, reading from there."""

    def __init__(self, read_config: ReadConfig) -> None:
        rows = read_config.order.rows
        readers: list[RowReader] = [_kept(reader, rows) for reader in read_config.readers]
        self.read_config = dataclasses.replace(read_config, readers=readers)
        self._filled = [
            (number, reader.array)
            for number, reader in enumerate(readers)
            if isinstance(reader, MemoryRows) and reader.array is not None and reader.array.flags.writeable
        ]

    @property
    def complete(self) -> bool:
        """Whether nothing has to be read: every array was in memory already."""
        return not self._filled

    def put(self, first: int, arrays: Sequence[np.ndarray]) -> None:
        """Take rows of every array, the first of them number `first` of those selected."""
        for number, array in self._filled:
            array[first : first + len(arrays[number])] = arrays[number]

    def close(self) -> None:
        """Let go of the rows."""
        self._filled = []
        for reader in self.read_config.readers:
            reader.close()


def _kept(reader: RowReader, rows: RowSet) -> MemoryRows:
    """Rows of `reader` in memory: where they are, if they are there already, else in an array to fill."""
    if isinstance(reader, MemoryReader):
        there = reader.view([])
        if there is not None:
            there = there.view()
            there.flags.writeable = False
            return MemoryRows(there, RowSet(0, len(there)), len(there))
    shape = (len(rows), *reader.shape[1:])
    array = allocate(math.prod(shape) * reader.dtype.itemsize).view(reader.dtype).reshape(shape)
    return MemoryRows(array, rows, reader.shape[0])


class RowNumbers(RowReader):
    """The place of each row among those selected, int64, read as if it were stored: never from storage.

    What crosses to a device that keeps all rows already.
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
        return Cost(0, 0, row_count(spans) * self.dtype.itemsize)


def numbers_of(read_config: ReadConfig) -> ReadConfig:
    """The feed of row numbers in the order of `read_config`."""
    return dataclasses.replace(read_config, readers=[RowNumbers(read_config.order.rows)], gather="never")
