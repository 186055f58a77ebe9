"""What takes a while to make for an epoch, kept for the latest ones."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
# Passes of neighbouring epochs may run side by side.
_EPOCHS_KEPT = 2


class EpochCache(Generic[T]):
    """What was made for the latest epochs asked for, and for those still in use. Thread-safe."""

    def __init__(self, make: Callable[[int], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._used: weakref.WeakValueDictionary[int, T] = weakref.WeakValueDictionary()
        self._latest: deque[T] = deque(maxlen=_EPOCHS_KEPT)

    def of(self, epoch: int) -> T:
        with self._lock:
            found = self._used.get(epoch)
            if found is None:
                found = self._used[epoch] = self._make(epoch)
                self._latest.append(found)
            return found
