"""Random permutations: every number once, the same everywhere, as if by chance."""

from __future__ import annotations

import collections

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oocloader.order.permutation import ROWS, STORED, RandomPermutation, argsorted, permutation, raw

SEEDS = st.integers(0, 2**64 - 1)
LONG_SEEDS = st.integers(0, 2**200)
EPOCHS = st.integers(0, 2**32 - 1)


@given(seed=SEEDS, epoch=EPOCHS, skip=st.integers(0, 50), n=st.integers(0, 50))
def test_raw_from_the_middle_is_the_tail(seed: int, epoch: int, skip: int, n: int) -> None:
    assert np.array_equal(raw(seed, epoch, 3, n, skip=skip), raw(seed, epoch, 3, skip + n)[skip:])
    if n:
        assert not np.array_equal(raw(seed, epoch, 3, n, skip=skip, domain=ROWS), raw(seed, epoch, 3, n))


@settings(max_examples=30)
@given(n=st.one_of(st.integers(1, 300), st.integers(65_500, 70_000)), seed=LONG_SEEDS, epoch=EPOCHS)
@example(n=65_536, seed=0, epoch=0)
@example(n=65_537, seed=0, epoch=0)  # the first that is worked out number by number
@example(n=256 * 257, seed=2**64 - 1, epoch=2**32 - 1)
def test_scattered_has_every_number_once(n: int, seed: int, epoch: int) -> None:
    order = RandomPermutation(seed, epoch, n)
    found, places = order.stretch(0, n), order.places(0, n)
    assert found.dtype == places.dtype == np.int64
    assert np.array_equal(np.sort(found), np.arange(n))
    assert np.array_equal(places[found], np.arange(n))


@settings(max_examples=30)
@given(n=st.sampled_from([1, 7, 1000, 65_537, 10**6, 10**9, 2**40, 2**62 - 3]), seed=SEEDS, data=st.data())
def test_a_stretch_is_worked_out_alone(n: int, seed: int, data: st.DataObject) -> None:
    order = RandomPermutation(seed, 5, n)
    lo = data.draw(st.integers(0, n))
    hi = data.draw(st.integers(lo, min(n, lo + 500)))
    cut = data.draw(st.integers(lo, hi))
    for found, back in ((order.stretch, order.places), (order.places, order.stretch)):
        whole = found(lo, hi)
        assert np.array_equal(whole, np.concatenate([found(lo, cut), found(cut, hi)]))
        assert ((whole >= 0) & (whole < n)).all()
        assert len(np.unique(whole)) == len(whole)
        assert [back(number, number + 1)[0] for number in whole[:20].tolist()] == list(range(lo, hi))[:20]


@pytest.mark.parametrize("back", [False, True])
def test_stretches_longer_than_a_step(back: bool) -> None:
    """169 of the 317 * 316 numbers of the network are not among the 100,003."""
    order = RandomPermutation(1, 0, 100_003)
    some = order.places if back else order.stretch
    assert np.array_equal(
        some(3, 100_000), np.concatenate([some(at, at + 13) for at in range(3, 100_000, 13)])[:99_997]
    )


def test_seed_and_epoch_decide() -> None:
    for n in (1000, 100_000):
        first = RandomPermutation(1, 2, n).stretch(0, n)
        assert np.array_equal(first, RandomPermutation(1, 2, n).stretch(0, n))
        others = [RandomPermutation(seed, 2, n) for seed in (2, 2**64 + 1, 2**65 + 1, 2**128 + 1)]
        for other in (*others, RandomPermutation(1, 3, n), RandomPermutation(1, 2, n, domain=STORED)):
            # One place in all is expected to be the same.
            assert np.count_nonzero(other.stretch(0, n) == first) < 10


def test_scattered_is_the_same_in_every_release() -> None:
    """Runs that are to be repeated rely on these very numbers."""
    assert RandomPermutation(7, 1, 12).stretch(0, 12).tolist() == GOLDEN_SMALL
    assert RandomPermutation(7, 1, 10**9).stretch(500, 508).tolist() == GOLDEN_LARGE


GOLDEN_SMALL = [3, 1, 9, 11, 7, 5, 0, 6, 2, 8, 4, 10]
GOLDEN_LARGE = [887724309, 98007355, 186522319, 327854139, 455189565, 139498465, 796716602, 43139056]


@pytest.mark.parametrize("n", [50_000, 100_000, 1_000_003])
def test_scattered_looks_like_chance(n: int) -> None:
    found = RandomPermutation(11, 0, n).stretch(0, n)
    # Each tenth of the positions has a tenth of each tenth of the rows, within 5 deviations.
    tenth = n // 10
    counts = np.histogram2d(np.arange(n) // tenth, found // tenth, bins=[range(11), range(11)])[0]
    expected = tenth / 10
    assert np.abs(counts - expected).max() < 5 * np.sqrt(expected)
    # Neighbours are as far apart as two rows of a shuffle: a third of the rows on average.
    assert abs(np.abs(np.diff(found)).mean() / n - 1 / 3) < 0.01
    # As many stay neighbours as chance has it: two of a million on average.
    assert np.count_nonzero(np.abs(np.diff(found)) == 1) < 12
    # Low bits are mixed, too.
    bits = np.bincount(found[: n // 2] % 8, minlength=8)
    assert np.abs(bits - n / 16).max() < 5 * np.sqrt(n / 16)


def test_every_order_is_as_likely() -> None:
    found = collections.Counter(
        tuple(RandomPermutation(seed, 0, 4).stretch(0, 4).tolist()) for seed in range(6000)
    )
    assert len(found) == 24
    # 250 each, give or take five standard deviations.
    assert all(abs(count - 250) < 78 for count in found.values())


@pytest.mark.parametrize("n", [10_000, 65_536, 100_003])
def test_rows_are_spread_evenly(n: int) -> None:
    found = RandomPermutation(3, 0, n).stretch(0, n)
    counts = np.histogram2d(np.arange(n), found, bins=20, range=[[0, n], [0, n]])[0]
    expected = n / 400
    # Chi squared of 361 degrees of freedom: 361, give or take five standard deviations of 27.
    assert abs(((counts - expected) ** 2 / expected).sum() - 361) < 135
    assert abs(np.corrcoef(found[1:], found[:-1])[0, 1]) < 0.06


def test_pairs_of_positions_are_independent_of_the_epoch() -> None:
    """Where the first two of 100,003 rows go, over 3,000 epochs: every quarter of a quarter alike."""
    pairs = np.array([RandomPermutation(3, epoch, 100_003).stretch(0, 2) for epoch in range(3000)])
    counts = np.zeros((4, 4), np.int64)
    np.add.at(counts, tuple((pairs // 25_001).T), 1)
    assert counts.min() > 187.5 - 5 * 13.3
    assert counts.max() < 187.5 + 5 * 13.3


@given(n=st.integers(0, 300), seed=SEEDS)
def test_domains_differ(n: int, seed: int) -> None:
    one, other = permutation(seed, 0, 0, n), permutation(seed, 0, 0, n, domain=ROWS)
    assert np.array_equal(np.sort(other), np.arange(n))
    assert n < 30 or not np.array_equal(one, other)


@given(rows=st.integers(1, 6), n=st.integers(1, 70), bits=st.integers(0, 63), seed=SEEDS)
def test_argsorted(rows: int, n: int, bits: int, seed: int) -> None:
    """Also where keys are equal, or differ in the bits that their index takes alone."""
    keys = raw(seed, 0, 0, rows * n).reshape(rows, n)
    for some in (keys, keys >> np.uint64(bits), keys & ~((np.uint64(1) << np.uint64(bits)) - np.uint64(1))):
        assert np.array_equal(argsorted(some), np.argsort(some, axis=1, kind="stable"))


@given(n=st.integers(0, 300), seed=SEEDS, epoch=EPOCHS)
def test_permutation_has_every_number_once(n: int, seed: int, epoch: int) -> None:
    assert np.array_equal(np.sort(permutation(seed, epoch, 3, n)), np.arange(n))


def test_permutation_is_uniform() -> None:
    counts = np.zeros((6, 6), np.int64)
    for epoch in range(6000):
        counts[np.arange(6), permutation(11, epoch, 0, 6)] += 1
    # 1,000 expected in each place, with a deviation of 29.
    assert counts.min() > 850
    assert counts.max() < 1150
