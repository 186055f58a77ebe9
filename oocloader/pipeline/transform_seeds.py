"""The user's function of a batch, and the seed that it gets."""

import functools
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
        parameters = inspect.signature(getattr(transform, "python_function", transform)).parameters
    except (TypeError, ValueError):  # builtins have no signature
        return False
    if (seed := parameters.get("seed")) is None:
        return False
    if seed.kind is inspect.Parameter.POSITIONAL_ONLY:
        raise SettingError("transform=: its parameter seed must be one that can be given by name")
    return seed.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def batch_seed(seed: int, epoch: int, batch: int) -> np.ndarray:
    """The seed of batch number `batch` of a pass, by the loader's `seed` alone: int32 (2,)."""
    return packed_seeds(seed, epoch, batch, batch + 1).view("<i4").astype(np.int32)


def packed_seeds(seed: int, epoch: int, start: int, stop: int) -> np.ndarray:
    """The seeds of batches `start:stop`, each as one int64 (little-endian: its first half is low)."""
    groups = range(start // _DRAWN, -(-stop // _DRAWN))
    drawn = np.concatenate([np.zeros(0, np.uint64), *(_draws(seed, epoch, group) for group in groups)])
    first = start // _DRAWN * _DRAWN
    return drawn[start - first : stop - first].astype("<u8").view("<i8")


# The next batch is nearly always of the same group; passes of two datasets may take turns.
@functools.lru_cache(maxsize=4)
def _draws(seed: int, epoch: int, group: int) -> np.ndarray:
    key = np.array([seed, (epoch << 32) | _STREAM], np.uint64)
    counter = np.array([0, group, 0, 0], np.uint64)
    return np.random.Philox(key=key, counter=counter).random_raw(_DRAWN)
