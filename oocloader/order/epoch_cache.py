"""What takes a while to work out for an epoch, remembered for the latest ones."""

import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
# Passes of neighbouring epochs may run side by side.
_EPOCHS_HELD = 2


class EpochCache(Generic[T]):
    """What `make` gave for the latest epochs asked for, and for those still in use. Thread-safe."""

    def __init__(self, make: Callable[[int], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._in_use: weakref.WeakValueDictionary[int, T] = weakref.WeakValueDictionary()
        self._latest: deque[T] = deque(maxlen=_EPOCHS_HELD)

    def of(self, epoch: int) -> T:
        with self._lock:
            value = self._in_use.get(epoch)
            if value is None:
                value = self._in_use[epoch] = self._make(epoch)
                self._latest.append(value)
            return value
