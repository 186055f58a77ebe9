"""What is left of a pass that other shards began: every row once, in as many batches for each."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocloader.errors import SettingError
from oocloader.order.order import Order, RowSequence, RowSet, Shuffle, Window
from oocloader.order.resharding import History, row_sequence
from orders import delivered, members, orders, pass_of


def rows_of(order: Order, found: RowSequence, epoch: int, *, position: int = 0) -> np.ndarray:
    """The stored rows of a course in order, by its windows."""
    parts = [np.empty(0, np.int64)]
    for window in found.windows(epoch, position=position):
        rows = delivered(order, window)[window.begin : window.rows - window.unused]
        if position > window.first:
            rows = rows[position - window.first :]
        parts.append(rows)
    return np.concatenate(parts)


@st.composite
def histories(draw: st.DrawFn) -> tuple[Order, History, int, dict[str, int | bool]]:
    """An order, what shards of it have delivered one after another, and how many go on."""
    order = draw(orders())
    options: dict[str, int | bool] = {
        "batch_size": draw(st.integers(2, 12)),
        "drop_remainder": draw(st.booleans()),
    }
    history: list[tuple[int, int]] = []
    rows = len(order.rows)
    for _ in range(draw(st.integers(1, 3))):
        count = draw(st.integers(1, max(1, min(5, rows))))
        try:
            most = min(
                row_sequence(order.of_shard((index, count)), tuple(history), **options)[1].batches  # type: ignore[arg-type]  # two kinds
                for index in range(count)
            )
        except SettingError:
            break
        if not most:
            break
        batches = draw(st.integers(1, most))
        history.append((count, batches))
        if batches == most:
            break
    return order, tuple(history), draw(st.integers(1, 5)), options


@given(case=histories(), epoch=st.integers(0, 2**32 - 1))
def test_every_row_once_through_any_number_of_restarts(
    case: tuple[Order, History, int, dict[str, int | bool]], epoch: int
) -> None:
    order, history, count, options = case
    seen: list[np.ndarray] = [np.empty(0, np.int64)]
    for times, (shards, batches) in enumerate(history):
        for index in range(shards):
            shard = order.of_shard((index, shards))
            found, cut = row_sequence(shard, history[:times], **options)  # type: ignore[arg-type]  # two kinds
            assert found.total == cut.rows
            seen.append(rows_of(order, found, epoch)[: cut.row(batches)])
    if not options["drop_remainder"] and len(order.rows) - sum(map(len, seen)) < count > 1:
        with pytest.raises(SettingError, match="too few"):
            row_sequence(order.of_shard((0, count)), history, **options)  # type: ignore[arg-type]  # two kinds
        return
    last = [
        row_sequence(order.of_shard((index, count)), history, **options)  # type: ignore[arg-type]  # two kinds
        for index in range(count)
    ]
    assert len({cut.batches for _, cut in last}) == 1
    left = [rows_of(order, found, epoch) for found, _ in last]
    assert max(map(len, left)) - min(map(len, left)) <= 1
    assert np.array_equal(np.sort(np.concatenate([*seen, *left])), members(order.rows))


@given(case=histories(), data=st.data())
def test_the_tail_and_the_stretches_of_what_is_left(
    case: tuple[Order, History, int, dict[str, int | bool]], data: st.DataObject
) -> None:
    order, history, count, options = case
    index = data.draw(st.integers(0, count - 1))
    try:
        found, _ = row_sequence(order.of_shard((index, count)), history, **options)  # type: ignore[arg-type]  # two kinds
    except SettingError:
        return
    whole = rows_of(order, found, 3)
    assert len(whole) == found.total
    windows = list(found.windows(3))
    assert [window.index for window in windows] == list(range(len(windows)))
    assert [window.first for window in windows] == [
        sum(w.rows - w.unused - w.begin for w in windows[:at]) for at in range(len(windows))
    ]
    position = data.draw(st.integers(0, found.total))
    assert np.array_equal(rows_of(order, found, 3, position=position), whole[position:])
    lo = data.draw(st.integers(0, found.total))
    hi = data.draw(st.integers(lo, found.total))
    if order.shuffle != "window":
        stretch = Window(0, lo, hi - lo, tuple(found.stretch(lo, hi, epoch=3)))
        assert np.array_equal(delivered(order, stretch), whole[lo:hi])
    stored = found.stored(lo, hi)
    if stored is not None:
        assert np.array_equal(np.arange(*stored), whole[lo:hi])
    assert found.count(0, 10**6) >= found.total


def test_without_a_history_it_is_the_order_itself() -> None:
    order = Order(RowSet(0, 100), shuffle=True, seed=1, block=4, window=20, shard=(1, 2))
    found, cut = row_sequence(order, (), batch_size=8, drop_remainder=False)
    assert found is order
    assert (cut.rows, cut.batches) == (50, 7)


@pytest.mark.parametrize("shuffle", [False, "window", "global"])
def test_fewer_shards_go_on(shuffle: Shuffle) -> None:
    """Four shards of 25 rows have delivered two batches of five each; two go on with 30 rows each."""
    order = Order(RowSet(0, 100), shuffle=shuffle, seed=1, block=4, window=20)
    old = [pass_of(order.of_shard((index, 4)), 6) for index in range(4)]
    left = np.concatenate([rows[10:] for rows in old])
    for index in range(2):
        found, cut = row_sequence(order.of_shard((index, 2)), ((4, 2),), batch_size=5, drop_remainder=False)
        assert np.array_equal(rows_of(order, found, 6), left[index * 30 : index * 30 + 30])
        assert cut.batches == 6


def test_fewer_rows_left_than_shards() -> None:
    order = Order(RowSet(0, 22), shuffle=False, seed=1, block=4, window=20, shard=(0, 4))
    with pytest.raises(SettingError, match="2 rows are too few for 4 shards"):
        row_sequence(order, ((2, 2),), batch_size=5, drop_remainder=False)
    assert row_sequence(order, ((2, 2),), batch_size=5, drop_remainder=True)[1].batches == 0
