"""What a pass did, and where its time went."""

from __future__ import annotations

from oocloader.metrics.counters import Counters, major_faults
from oocloader.metrics.report import Reading, Report, make_report

__all__ = [
    "Counters",
    "Reading",
    "Report",
    "major_faults",
    "make_report",
]
