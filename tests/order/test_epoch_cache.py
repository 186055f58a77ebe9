"""What was worked out for an epoch: made once while it is among the latest, or in use."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from oocloader.order.epoch_cache import EpochCache


class Value:
    """What is made for an epoch."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch


class Maker:
    """Makes values, and keeps a list of the epochs it was asked for."""

    def __init__(self) -> None:
        self.made: list[int] = []

    def __call__(self, epoch: int) -> Value:
        self.made.append(epoch)
        return Value(epoch)


def test_the_latest_two_are_remembered() -> None:
    maker = Maker()
    cache = EpochCache(maker)
    for epoch in (4, 5, 4, 5, 4):
        assert cache.of(epoch).epoch == epoch
    assert maker.made == [4, 5]
    cache.of(6)
    gc.collect()
    assert cache.of(5).epoch == 5
    assert maker.made == [4, 5, 6]
    assert cache.of(4).epoch == 4
    assert maker.made == [4, 5, 6, 4]


def test_what_is_in_use_is_not_made_anew() -> None:
    maker = Maker()
    cache = EpochCache(maker)
    held = cache.of(0)
    for epoch in range(1, 6):
        cache.of(epoch)
    assert cache.of(0) is held
    del held
    gc.collect()
    cache.of(0)
    assert maker.made == [0, 1, 2, 3, 4, 5, 0]


def test_threads_that_ask_at_once_get_the_same() -> None:
    maker = Maker()
    together = threading.Barrier(8)
    cache = EpochCache(maker)

    def ask() -> Value:
        together.wait(timeout=10)
        return cache.of(3)

    with ThreadPoolExecutor(8) as pool:
        values = [future.result() for future in [pool.submit(ask) for _ in range(8)]]
    assert maker.made == [3]
    assert len(set(values)) == 1


def test_what_cannot_be_made_is_tried_again() -> None:
    attempts: list[int] = []

    def make(epoch: int) -> Value:
        attempts.append(epoch)
        if len(attempts) == 1:
            raise MemoryError
        return Value(epoch)

    cache = EpochCache(make)
    with pytest.raises(MemoryError):
        cache.of(1)
    assert cache.of(1).epoch == 1
    assert attempts == [1, 1]
