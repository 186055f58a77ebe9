"""The seed of a batch: a function of the loader's seed, the pass and the batch, and of nothing else."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocloader.errors import SettingError
from oocloader.pipeline.transform_seeds import batch_seed, packed_seeds, wants_seed


class Augment:
    def __call__(self, x: Any, seed: Any) -> Any:
        return x

    def without(self, x: Any) -> Any:
        return x


def positional(x: Any, seed: Any, /) -> Any:
    return x


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        (lambda x: x, False),
        (lambda x, y: (x, y), False),
        (lambda x, seed: x, True),
        (lambda x, *, seed: x, True),
        (lambda x, seed=None: x, True),
        (lambda *parts, **named: parts, False),
        (Augment(), True),
        (Augment().without, False),
        (functools.partial(Augment(), seed=3), True),
        (functools.partial(lambda scale, x, seed: x, 2), True),
        (abs, False),
    ],
)
def test_wants_seed(transform: Callable[..., Any], expected: bool) -> None:
    assert wants_seed(transform) is expected


@pytest.mark.parametrize("bad", [3, "flip", [abs], {}])
def test_what_is_no_function(bad: Any) -> None:
    with pytest.raises(SettingError, match="must be a function of the parts of an element"):
        wants_seed(bad)


def test_a_seed_that_cannot_be_given_by_name() -> None:
    with pytest.raises(SettingError, match="transform=: its parameter seed must be one that can be given by"):
        wants_seed(positional)


def test_seeds_are_what_they_were_in_earlier_versions() -> None:
    """A run that is resumed after an upgrade must augment as it would have."""
    assert batch_seed(0, 0, 0).tolist() == [1504145694, -906632852]
    assert batch_seed(7, 3, 5000).tolist() == [-707463026, 270330031]


@given(
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 2**32 - 1),
    start=st.integers(0, 5000),
    count=st.integers(1, 1500),
)
def test_seeds_by_one_and_in_a_row_are_the_same(seed: int, epoch: int, start: int, count: int) -> None:
    packed = packed_seeds(seed, epoch, start, start + count)
    assert packed.dtype == np.int64
    halves = packed.view(np.int32).reshape(count, 2)
    for at in {0, count // 2, count - 1}:
        one = batch_seed(seed, epoch, start + at)
        assert one.dtype == np.int32
        assert one.shape == (2,)
        assert np.array_equal(one, halves[at])


def test_no_two_batches_share_a_seed() -> None:
    seen = {
        int(number)
        for seed in (0, 1, 2**63)
        for epoch in (0, 1, 2)
        for number in packed_seeds(seed, epoch, 0, 3000)
    }
    assert len(seen) == 3 * 3 * 3000
