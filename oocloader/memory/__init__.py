"""How large windows may be.

- `alignment`: what arrays cost by row, and at which rows cutting cuts no chunk
- `window_size`: what `window=` and `block=` ask for, and the rows of a window and a block
- `budget_errors`: budgets that are too small, and what would do
- `budget`: windows, threads and the memory they take, from all of these
- `cost`: the bytes that are read for some rows
- `mixing`: how well windows mix
"""

from oocloader.memory.alignment import BLOCK, LIGHT, Column, chunk_alignment
from oocloader.memory.budget import DeviceMemory, Sizes, choose, device_share, host_share
from oocloader.memory.cost import Cost, banded_cost, merged_ranges, row_count
from oocloader.memory.mixing import CLASSES, POOR, mixing
from oocloader.memory.window_size import (
    DEVICE_WINDOWS,
    HOST_WINDOWS,
    LARGEST_WINDOW,
    RequestedRows,
    SizingInputs,
)

__all__ = [
    "BLOCK",
    "CLASSES",
    "DEVICE_WINDOWS",
    "HOST_WINDOWS",
    "LARGEST_WINDOW",
    "LIGHT",
    "POOR",
    "Column",
    "Cost",
    "DeviceMemory",
    "RequestedRows",
    "Sizes",
    "SizingInputs",
    "banded_cost",
    "choose",
    "chunk_alignment",
    "device_share",
    "host_share",
    "merged_ranges",
    "mixing",
    "row_count",
]
