"""Another library that reads rows: what it was asked for, and errors of its own."""

from __future__ import annotations

import threading
import time

import numpy as np

from oocloader.reading.library_reader import LibraryReader


class Library:
    """Another library: reads rows of `array`, records which, and notices when two threads come at once."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.asked: list[tuple[int, int]] = []
        self.failing: dict[int, Exception] = {}
        self.together = False
        self.closed = 0
        self._busy = threading.Lock()

    def read(self, start: int, stop: int, out: np.ndarray) -> None:
        self.together |= not self._busy.acquire(blocking=False)
        self.asked.append((start, stop))
        time.sleep(0.0001)
        error = self.failing.get(start)
        if error is None:
            assert out.flags.c_contiguous
            out[...] = self.array[start:stop]
        self._busy.release()
        if error is not None:
            raise error

    def close(self) -> None:
        self.closed += 1

    def reader(self, chunk_rows: int | None = 40) -> LibraryReader:
        return LibraryReader(
            self.read,
            shape=self.array.shape,
            dtype=self.array.dtype,
            chunk_rows=chunk_rows,
            store="data.h5",
            array="g/x",
            close=self.close,
        )
