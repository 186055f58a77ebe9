"""The border between two passes: the next one's first windows are read while the last of this one is used."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable

from oocloader.passes import Feed, Pass


class Border:
    """Reads ahead into the pass that is to come, whose number `coming` foretells (None: nobody can tell).

    By then the pass before holds nothing that it has read ahead, so that memory stays what it was. What was
    read is handed out to that very pass alone, else dropped. Thread-safe.
    """

    def __init__(self, feed: Feed, coming: Callable[[], int | None]) -> None:
        self._feed = feed
        self._coming = coming
        self._lock = threading.Lock()
        self._next: Pass | None = None
        self._closed = False
        self._process = os.getpid()

    def begin(self, epoch: int, *, start: int = 0) -> Pass:
        """Pass number `epoch` from batch `start` on: the one that was read ahead, or a new one."""
        with self._lock:
            found, self._next = self._next, None
        if found is not None:
            if (found.epoch, found.start) == (epoch, start):
                return found
            found.close()
        return self._new(epoch, start)

    def read_ahead(self) -> None:
        """Start to read the pass that is to come. Does not wait for it."""
        epoch = self._coming()
        if epoch is None:
            return
        with self._lock:
            dropped = self._next
            if self._closed or (dropped is not None and (dropped.epoch, dropped.start) == (epoch, 0)):
                return
            self._next = self._new(epoch, 0)
            self._next.start_reading()
        if dropped is not None:
            dropped.close()

    def close(self) -> None:
        """Drop what was read ahead, and read no more. Safe to call twice."""
        with self._lock:
            self._closed = True
            found, self._next = self._next, None
        if found is not None:
            found.close()

    def __del__(self) -> None:
        # A forked child has none of the threads that it would wait for.
        if os.getpid() == self._process:
            self.close()

    def _new(self, epoch: int, start: int) -> Pass:
        # A pass may live for as long as its last batch does; it must not keep the border, nor what is read.
        border = weakref.ref(self)

        def taken() -> None:
            found = border()
            if found is not None:
                found.read_ahead()

        return Pass(self._feed, epoch, start=start, taken=taken)
