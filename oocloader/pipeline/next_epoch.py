"""The border between two passes: the next one's first windows are read while the last of this one is used."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

from oocloader.pipeline.epoch_pass import EpochPass

At = TypeVar("At")
"""Where a pass starts: whatever tells two passes of a loader apart, compared by `==`."""


class NextEpoch(Generic[At]):
    """Reads ahead into the pass that is to come, as `coming` foretells it (None: nobody can tell).

    By then the pass before holds nothing that it has read ahead, so that memory stays what it was. What was
    read is handed out to that very pass alone, else dropped. `make(at, taken)` makes a pass, which calls
    `taken` when its last window was taken. Neither may keep the border alive. Thread-safe.
    """

    def __init__(
        self, make: Callable[[At, Callable[[], None]], EpochPass], coming: Callable[[], At | None]
    ) -> None:
        self._make = make
        self._coming = coming
        self._lock = threading.Lock()
        self._next: tuple[At, EpochPass] | None = None
        self._closed = False
        self._process = os.getpid()

    def begin(self, at: At) -> EpochPass:
        """The pass that starts at `at`: the one that was read ahead, or a new one."""
        with self._lock:
            found, self._next = self._next, None
        if found is not None:
            if found[0] == at:
                return found[1]
            found[1].close()
        return self._make(at, self._taken())

    def prefetch(self) -> None:
        """Start to read the pass that is to come. Does not wait for it."""
        at = self._coming()
        if at is None:
            return
        with self._lock:
            dropped = self._next
            if self._closed or (dropped is not None and dropped[0] == at):
                return
            coming = self._make(at, self._taken())
            self._next = at, coming
            coming.start_reading()
        if dropped is not None:
            dropped[1].close()

    def close(self) -> None:
        """Drop what was read ahead, and read no more. Safe to call twice."""
        with self._lock:
            self._closed = True
            found, self._next = self._next, None
        if found is not None:
            found[1].close()

    def __del__(self) -> None:
        # A forked child has none of the threads that it would wait for.
        if os.getpid() == self._process:
            self.close()

    def _taken(self) -> Callable[[], None]:
        # A pass may live for as long as its last batch does; it must not keep what was read ahead.
        border = weakref.ref(self)

        def taken() -> None:
            found = border()
            if found is not None:
                found.prefetch()

        return taken
