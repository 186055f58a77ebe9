"""Residency: whether all rows stay on the device, and what that takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from oocloader.errors import SettingError
from oocloader.memory import DEVICE_WINDOWS, LARGEST_WINDOW, Column, chunk_alignment
from oocloader.sizes import MIB, rows_in

Residency = Literal["auto", "stream", "device"]
RESIDENCIES: tuple[Residency, ...] = get_args(Residency)
# Rows are brought to the device this many bytes at a time: their number is no part of the order.
LOAD_NBYTES = 32 * MIB


def parse_residency(value: object) -> Residency:
    """`value`, or the error that names what there is."""
    for known in RESIDENCIES:
        if value == known:
            return known
    raise SettingError(f'residency={value!r} must be "auto", "stream" or "device"')


@dataclass(frozen=True, slots=True)
class Resident:
    """What residency on a device takes: bytes of rows, and bytes of all, windows and batches included.

    `window` rows are read and copied at a time, counted from `chunk_origins`.
    """

    rows_nbytes: int
    device_nbytes: int
    window: int
    chunk_origins: tuple[int, ...]

    @classmethod
    def of(
        cls, rows: int, columns: Sequence[Column], *, batch_size: int, window: int | None, chosen: int
    ) -> Resident:
        """What it takes to keep `rows` rows of all `columns` on a device.

        `window` is the number of rows that was asked for, `chosen` what it came to be. The sum does not
        depend on the budget that chose it, so that it is the smallest budget that works.
        """
        row_nbytes = max(1, sum(column.row_nbytes for column in columns))
        alignment = chunk_alignment(columns, shuffle=False)
        unit = max(alignment.unit, alignment.smallest)
        loaded = min(chosen, rows, rows_in(LOAD_NBYTES, row_nbytes * unit) * unit)
        largest = rows_in(LARGEST_WINDOW, row_nbytes) if window is None else window
        # Windows of row numbers, int64, cross when rows no longer do.
        numbers = DEVICE_WINDOWS * 8 * (min(rows, max(largest, unit)) + batch_size)
        batches = 2 * batch_size * (row_nbytes + sum(column.delivered_row_nbytes for column in columns))
        loading = 2 * min(rows, max(unit, LOAD_NBYTES // row_nbytes)) * row_nbytes
        rows_nbytes = rows * row_nbytes
        device_nbytes = rows_nbytes + max(loading, numbers) + batches
        return cls(rows_nbytes, device_nbytes, loaded, alignment.chunk_origins)

    def check_fits(self, device_memory: int | None) -> None:
        """Raise `SettingError` where a written budget is too small to keep all rows on the device."""
        if device_memory is None or self.device_nbytes <= device_memory:
            return
        raise SettingError(
            f"device_memory={device_memory} is too small for residency='device': the rows take "
            f"{self.rows_nbytes} bytes, windows and batches {self.device_nbytes - self.rows_nbytes}; give at "
            f"least device_memory={self.device_nbytes}, or residency='stream'"
        )

    def check_host(self, free: int | None) -> None:
        """Raise `SettingError` where the host, being the device, has not the memory."""
        if free is not None and self.rows_nbytes > free:
            raise SettingError(
                f"residency='device' keeps {self.rows_nbytes} bytes of rows, and {free} bytes of memory are "
                "free; use residency='stream'"
            )

    def stays(self, residency: str, *, on_host: bool, device_budget: int | None) -> bool:
        """Whether all rows stay: "auto" lets them where a device that is not the host has twice the room."""
        if residency != "auto":
            return residency == "device"
        if on_host or device_budget is None:
            return False
        return 2 * self.rows_nbytes <= device_budget and self.device_nbytes <= device_budget
