"""The order of a shuffled conversion: one to one, reproducible, well mixed, computed both ways."""

from __future__ import annotations

import collections

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocloader.conversion.permutation import Permutation


@given(rows=st.integers(1, 5000), seed=st.integers(0, 2**130))
def test_one_to_one_both_ways(rows: int, seed: int) -> None:
    order = Permutation(rows, seed)
    every = np.arange(rows)
    old = order.old(every)
    assert np.array_equal(np.sort(old), every)
    assert np.array_equal(order.new(old), every)
    assert np.array_equal(order.old(every[rows // 2 :]), old[rows // 2 :])


@pytest.mark.parametrize("rows", [2**40 + 1, 10**12, 2**62 - 3])
def test_more_rows_than_any_memory_holds(rows: int) -> None:
    order = Permutation(rows, 7)
    some = np.array([0, 1, rows // 3, rows - 2, rows - 1])
    old = order.old(some)
    assert ((old >= 0) & (old < rows)).all()
    assert np.array_equal(order.new(old), some)


def test_the_order_is_always_the_same() -> None:
    # Whoever changes these numbers makes conversions that cannot be repeated.
    assert Permutation(10, 0).old(np.arange(10)).tolist() == [5, 9, 6, 8, 7, 1, 4, 0, 3, 2]
    assert Permutation(1000, 42).old(np.arange(5)).tolist() == [961, 876, 305, 731, 423]
    assert Permutation(1000, 2**64 + 42).old(np.arange(5)).tolist() != [961, 876, 305, 731, 423]


def test_every_order_is_as_likely() -> None:
    found = collections.Counter(
        tuple(Permutation(4, seed).old(np.arange(4)).tolist()) for seed in range(6000)
    )
    assert len(found) == 24
    # 250 each, give or take five standard deviations.
    assert all(abs(count - 250) < 78 for count in found.values())


@pytest.mark.parametrize("rows", [10_000, 65_536, 100_003])
def test_rows_are_spread_evenly(rows: int) -> None:
    old = Permutation(rows, 3).old(np.arange(rows))
    counts = np.histogram2d(np.arange(rows), old, bins=20, range=[[0, rows], [0, rows]])[0]
    expected = rows / 400
    # Chi squared of 361 degrees of freedom: 361, give or take five standard deviations of 27.
    assert abs(((counts - expected) ** 2 / expected).sum() - 361) < 135
    assert abs(np.corrcoef(old[1:], old[:-1])[0, 1]) < 0.06
