"""How large windows may be."""

from __future__ import annotations

from oocloader.memory.alignment import BLOCK, LIGHT, Column, cuts
from oocloader.memory.budget import Sizes
from oocloader.memory.cost import Cost, banded_cost, merged_ranges, row_count
from oocloader.memory.mixing import CLASSES, POOR, mixing
from oocloader.memory.window_size import DEVICE_WINDOWS, HOST_WINDOWS, LARGEST_WINDOW

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
    "Sizes",
    "banded_cost",
    "cuts",
    "merged_ranges",
    "mixing",
    "row_count",
]
