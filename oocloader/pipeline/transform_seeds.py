"""The user's function of a batch, and the seed that it gets."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from oocloader.errors import SettingError

# Seeds are drawn this many batches at a time.
_DRAWN = 1024
# Windows take the streams from 0 on; a pass never has as many.
_STREAM = 0xFFFFFFFF


def wants_seed(transform: Callable[..., Any]) -> bool:
    """Whether `transform` has a parameter named `seed`. Raises `SettingError` where it is no function."""
    if not callable(transform):
        raise SettingError(
            f"transform={transform!r} must be a function of the parts of an element, such as "
            "lambda x, y: (x / 255, y)"
        )
    try:
        found = inspect.signature(getattr(transform, "python_function", transform)).parameters.get("seed")
    except (TypeError, ValueError):  # builtins have no signature
        return False
    if found is None:
        return False
    if found.kind is inspect.Parameter.POSITIONAL_ONLY:
        raise SettingError("transform=: its parameter seed must be one that can be given by name")
    return found.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Seeds:
    """The seed of every batch of one pass: a function of the loader's seed, the pass and the batch alone."""

    def __init__(self, seed: int, epoch: int) -> None:
        self._key = np.array([seed, (epoch << 32) | _STREAM], np.uint64)
        self._drawn: tuple[int, np.ndarray] | None = None

    def of(self, batch: int) -> np.ndarray:
        """The seed of batch number `batch`, int32 (2,)."""
        return self.packed(batch, batch + 1).view("<i4").astype(np.int32)

    def packed(self, start: int, stop: int) -> np.ndarray:
        """The seeds of batches `start:stop`, each as one int64 (little-endian: its first half is low)."""
        return np.array([self._one(batch) for batch in range(start, stop)], "<u8").view("<i8")

    def _one(self, batch: int) -> np.uint64:
        group, at = divmod(batch, _DRAWN)
        if self._drawn is None or self._drawn[0] != group:
            draws = np.random.Philox(key=self._key, counter=np.array([0, group, 0, 0], np.uint64))
            self._drawn = (group, draws.random_raw(_DRAWN))
        drawn: np.uint64 = self._drawn[1][at]
        return drawn
