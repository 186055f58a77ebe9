"""The first windows of the next epoch, read while the last of this one is used."""

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
    read is handed out to that very pass alone, else dropped. `make_pass(at, all_taken)` makes a pass, which
    calls `all_taken` when its last window was taken. Neither may keep this alive. Thread-safe.
    """

    def __init__(
        self, make_pass: Callable[[At, Callable[[], None]], EpochPass], coming: Callable[[], At | None]
    ) -> None:
        self._make_pass = make_pass
        self._coming = coming
        self._lock = threading.Lock()
        self._prefetched: tuple[At, EpochPass] | None = None
        self._closed = False
        self._process = os.getpid()

    def begin(self, at: At) -> EpochPass:
        """The pass that starts at `at`: the one that was read ahead, or a new one."""
        with self._lock:
            prefetched, self._prefetched = self._prefetched, None
        if prefetched is not None:
            if prefetched[0] == at:
                return prefetched[1]
            prefetched[1].close()
        return self._new_pass(at)

    def prefetch(self) -> None:
        """Start to read the pass that is to come. Does not wait for it."""
        at = self._coming()
        if at is None:
            return
        with self._lock:
            dropped = self._prefetched
            if self._closed or (dropped is not None and dropped[0] == at):
                return
            coming = self._new_pass(at)
            self._prefetched = at, coming
            coming.start_reading()
        if dropped is not None:
            dropped[1].close()

    def close(self) -> None:
        """Drop what was read ahead, and read no more. Safe to call twice."""
        with self._lock:
            self._closed = True
            prefetched, self._prefetched = self._prefetched, None
        if prefetched is not None:
            prefetched[1].close()

    def __del__(self) -> None:
        # A forked child has none of the threads that it would wait for.
        if os.getpid() == self._process:
            self.close()

    def _new_pass(self, at: At) -> EpochPass:
        # A pass may live for as long as its last batch does; it must not keep what was read ahead.
        this = weakref.ref(self)

        def all_taken() -> None:
            next_epoch = this()
            if next_epoch is not None:
                next_epoch.prefetch()

        return self._make_pass(at, all_taken)
