"""Counters of one pass: what was read, decoded and waited for."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class Counters:
    """Sums over one pass; `add` is thread-safe.

    `sent_bytes` went to the device.
    `read_s` and `decode_s` are summed over threads. `starved_s`: the pipeline waited for rows to be read;
    `wait_s`: the consumer waited for its next window; `wall_s`: from the first `next` to the end.
    """

    rows: int = 0
    batches: int = 0
    windows: int = 0
    read_calls: int = 0
    read_bytes: int = 0
    chunks_decoded: int = 0
    decoded_bytes: int = 0
    copied_bytes: int = 0
    mapped_bytes: int = 0
    sent_bytes: int = 0
    read_s: float = 0.0
    decode_s: float = 0.0
    starved_s: float = 0.0
    wait_s: float = 0.0
    wall_s: float = 0.0
    started_s: float = field(default_factory=time.perf_counter)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, **amounts: float) -> None:
        """Add to the counters named."""
        with self._lock:
            for name, amount in amounts.items():
                setattr(self, name, getattr(self, name) + amount)

    def include(self, other: Counters) -> None:
        """Add what `other` read and decoded; what it delivered is not counted again."""
        self.add(**{name: getattr(other, name) for name in _WORK})


_WORK = (
    "read_calls",
    "read_bytes",
    "chunks_decoded",
    "decoded_bytes",
    "copied_bytes",
    "mapped_bytes",
    "read_s",
    "decode_s",
)
