"""What a pass did, and where its time went.

- `counters`: sums over one pass, time waiting for data and time in the model, its newest events
- `bottleneck`: the report's `verdict`: what held the pass up, and what would help
- `trace`: its events as a file for a trace viewer
- `report`: all of that, for people and as JSON
"""

from oocloader.metrics.bottleneck import PassContext
from oocloader.metrics.counters import Counters, major_faults, peak_memory_bytes
from oocloader.metrics.report import Report, make_report

__all__ = [
    "Counters",
    "PassContext",
    "Report",
    "major_faults",
    "make_report",
    "peak_memory_bytes",
]
