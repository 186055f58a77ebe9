"""Chunks that take less to decode than threads take to hand the interpreter over: a thread at a time.

A library decodes a chunk without the interpreter, and then waits for it. Where that is every few
microseconds, threads wait for each other most of the time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from oocloader.reading.locks import Lock

# Two threads were 0.5 to 0.8 times as fast as one for LZ4 chunks of 6 to 25 kB (7 to 15 microseconds), 0.7 to
# 1.3 times for those of 49 kB (20), 1.0 times for zstd chunks of 12 kB (22), and 1.4 to 1.6 times for zstd
# chunks of 49 kB (40).
HANDOVER_S = 25e-6
# Jobs that are carried out side by side before it is tried again whether one at a time is quicker.
_SIDE_BY_SIDE = 64


# Held by whoever decodes quick chunks, of any array.
_turn = Lock()


class QuickJobs:
    """Carries out the jobs of an array: in turn where its chunks have been quick so far. Thread-safe."""

    def __init__(self) -> None:
        self._quick = False
        self._side_by_side = 0

    def run(self, job: Callable[[], float], chunks: int) -> None:
        """Carry out `job`, which decodes so many chunks and returns the seconds that reading them took."""
        self._side_by_side = max(0, self._side_by_side - 1)
        in_turn = self._quick and not self._side_by_side
        with _turn if in_turn else contextlib.nullcontext():
            worked = time.thread_time()
            reading = job()
            worked = time.thread_time() - worked
        # Not the time that passes: beside others, much of it goes by waiting for the interpreter.
        self._quick = worked < chunks * HANDOVER_S
        if in_turn and reading > worked:
            # It waits for the disk, and others need not wait for that.
            self._side_by_side = _SIDE_BY_SIDE
