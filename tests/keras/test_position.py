"""Where training is in the data."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oocloader.keras.position import DataPosition


@given(batches=st.integers(0, 6), steps=st.lists(st.integers(1, 30), max_size=5))
def test_steps_add_up(batches: int, steps: list[int]) -> None:
    start = DataPosition(3, batches)
    position, begun = start, 0
    for count in steps:
        position, more = position.advanced(count, pass_batches=7)
        begun += more
    assert (position, begun) == start.advanced(sum(steps), pass_batches=7)
    assert 7 * position.epoch + position.batches == 7 * 3 + batches + sum(steps)
