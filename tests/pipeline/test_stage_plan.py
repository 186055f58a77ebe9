"""How windows become stages of whole batches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocloader.order.order import Order, RowSet
from oocloader.order.shards import batching
from oocloader.pipeline.stage_plan import plan_stages, stage_rows


@given(
    rows=st.integers(1, 200),
    window=st.integers(1, 90),
    batch_size=st.integers(1, 70),
    drop_remainder=st.booleans(),
    shuffle=st.booleans(),
    data=st.data(),
)
def test_stages_are_whole_batches(
    rows: int, window: int, batch_size: int, drop_remainder: bool, shuffle: bool, data: st.DataObject
) -> None:
    order = Order(RowSet(0, rows), shuffle=shuffle, seed=4, block=max(1, window // 4), window=window)
    batches = rows // batch_size if drop_remainder else -(-rows // batch_size)
    position = batch_size * data.draw(st.integers(0, batches))
    end = max(position, rows // batch_size * batch_size if drop_remainder else rows)
    at, carried = position, 0
    cut = batching(rows, (0, 1), batch_size=batch_size, drop_remainder=drop_remainder)
    for plan in plan_stages(order, 3, cut, start=position // batch_size):
        assert plan.first == at
        assert plan.carried == carried
        assert plan.held == carried + sum(window.rows for window in plan.windows)
        assert plan.held <= stage_rows(order, batch_size)
        # The place of a row in the buffer and in the pass agree.
        assert plan.skipped == (position - plan.windows[0].first if at == position and not carried else 0)
        assert plan.delivered % batch_size == 0 or at + plan.delivered == end
        assert plan.delivered or plan.skipped
        at += plan.delivered
        carried = plan.held - plan.skipped - plan.delivered
        assert 0 <= carried < batch_size or at == end or not plan.delivered
    assert at == end


@pytest.mark.parametrize(
    ("rows", "window", "batch_size", "delivered"),
    [
        (10, 4, 4, [4, 4, 2]),
        (10, 5, 4, [4, 6]),
        (10, 3, 4, [4, 4, 2]),
        (10, 1, 4, [4, 4, 2]),
        (10, 100, 4, [10]),
        (10, 4, 100, [10]),
        (12, 4, 6, [6, 6]),
        (1, 1, 1, [1]),
    ],
)
def test_rows_that_fill_no_batch_come_first_in_the_next_stage(
    rows: int, window: int, batch_size: int, delivered: list[int]
) -> None:
    cut = batching(rows, (0, 1), batch_size=batch_size, drop_remainder=False)
    plans = plan_stages(
        Order(RowSet(0, rows), shuffle=False, seed=4, block=max(1, window // 4), window=window), 0, cut
    )
    assert [plan.delivered for plan in plans] == delivered


def test_a_start_in_the_middle_of_a_window_skips_its_first_rows() -> None:
    order = Order(RowSet(0, 20), shuffle=False, seed=0, block=2, window=8)
    cut = batching(20, (0, 1), batch_size=5, drop_remainder=False)
    first, *rest = plan_stages(order, 0, cut, start=2)
    # Batch 2 begins with row 10, the third of the window of rows 8 to 15.
    assert (first.windows[0].first, first.skipped, first.first, first.delivered) == (8, 2, 10, 5)
    assert first.held == 8
    assert [(plan.first, plan.carried, plan.delivered, plan.held) for plan in rest] == [(15, 1, 5, 5)]


def test_the_buffer_holds_a_window_and_what_fills_no_batch() -> None:
    assert stage_rows(Order(RowSet(0, 100), shuffle=False, seed=0, block=2, window=8), 5) == 13
    assert stage_rows(Order(RowSet(0, 6), shuffle=False, seed=0, block=2, window=8), 5) == 11
