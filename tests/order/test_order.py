"""Which rows come when: every row once, in windows of their size, the same everywhere."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocloader.order.order import Order, RowSet, Shuffle, Window
from oocloader.order.permutation import permutation
from orders import SHUFFLES, delivered, members, orders, pass_of, row_sets

EPOCHS = st.integers(0, 2**32 - 1)


@given(order=orders(), epoch=EPOCHS)
def test_every_row_once(order: Order, epoch: int) -> None:
    rows = pass_of(order, epoch)
    assert np.array_equal(np.sort(rows), members(order.rows))
    if not order.shuffle:
        assert np.array_equal(rows, members(order.rows))


@given(order=orders(), epoch=EPOCHS)
def test_windows_follow_each_other_and_are_never_larger_than_asked(order: Order, epoch: int) -> None:
    windows = list(order.windows(epoch))
    assert [window.index for window in windows] == list(range(len(order)))
    assert all(1 <= window.rows <= order.window for window in windows)
    firsts = np.cumsum([0, *(window.rows for window in windows)])
    assert [window.first for window in windows] == firsts[:-1].tolist()
    assert order.first(epoch).tolist() == firsts.tolist()
    for window in windows:
        assert sum(span.rows for span in window.spans) == window.rows
        # Pieces ascend and do not overlap, as readers expect.
        edges = [edge for span in window.spans for edge in (span.start, span.stop)]
        assert edges == sorted(edges)


@given(order=orders(), epoch=EPOCHS, data=st.data())
def test_windows_from_a_position_are_the_tail_of_the_pass(
    order: Order, epoch: int, data: st.DataObject
) -> None:
    total = len(order.rows)
    position = data.draw(st.integers(0, total))
    begun = list(order.windows(epoch, position=position))
    whole = list(order.windows(epoch))
    assert [window.index for window in begun] == [w.index for w in whole if w.first + w.rows > position]
    assert np.array_equal(
        pass_of(order, epoch, position=position),
        pass_of(order, epoch)[total - sum(window.rows for window in begun) :],
    )


@given(order=orders(shuffle=True), epoch=EPOCHS)
def test_an_order_is_a_function_of_its_numbers(order: Order, epoch: int) -> None:
    def made() -> Order:
        return Order(order.rows, shuffle=True, seed=order.seed, block=order.block, window=order.window)

    other, expected = made(), pass_of(made(), epoch)
    # What was asked before leaves no trace.
    pass_of(other, (epoch + 1) % 2**32)
    assert np.array_equal(pass_of(other, epoch), expected)
    assert np.array_equal(delivered(other, other.at(epoch, 0)), expected[: other.at(epoch, 0).rows])


@given(rows=st.integers(30, 400), seed=st.integers(0, 2**64 - 2), epoch=st.integers(0, 2**32 - 2))
def test_another_seed_or_epoch_is_another_order(rows: int, seed: int, epoch: int) -> None:
    def made(seed: int) -> Order:
        return Order(RowSet(0, rows), shuffle=True, seed=seed, block=8, window=64)

    first = pass_of(made(seed), epoch)
    assert not np.array_equal(first, pass_of(made(seed + 1), epoch))
    assert not np.array_equal(first, pass_of(made(seed), epoch + 1))


def test_unshuffled_passes_are_alike() -> None:
    order = Order(RowSet(3, 100), shuffle=False, seed=1, block=4, window=16)
    assert np.array_equal(pass_of(order, 0), pass_of(order, 5))
    assert [window.rows for window in order.windows(0)] == [13, 16, 16, 16, 16, 16, 4]


GOLDEN = """
from oocloader.order.order import Order, RowSet
import numpy as np
order = Order(RowSet(0, 23), shuffle=True, seed=7, block=3, window=9)
for epoch in (0, 1, 2**32 - 1):
    rows = []
    for window in order.windows(epoch):
        buffer = np.empty(window.rows, np.int64)
        for span in window.spans:
            buffer[span.dest_index] = np.arange(span.start, span.stop)
        rows += buffer.tolist()
    print(rows)
"""


def test_an_order_is_the_same_in_every_process_and_release() -> None:
    """Runs that are to be repeated rely on these very numbers: change them and say so in the changelog."""
    done = subprocess.run([sys.executable, "-c", GOLDEN], capture_output=True, text=True, check=True)
    order = Order(RowSet(0, 23), shuffle=True, seed=7, block=3, window=9)
    here = [pass_of(order, epoch).tolist() for epoch in (0, 1, 2**32 - 1)]
    assert done.stdout.splitlines() == [str(rows) for rows in here]
    assert here == [
        [17, 1, 2, 0, 16, 15, 18, 19, 22, 21, 8, 20, 6, 7, 10, 14, 3, 9, 13, 4, 11, 5, 12],
        [7, 19, 0, 6, 2, 20, 8, 18, 1, 9, 21, 22, 11, 10, 17, 12, 4, 3, 16, 13, 15, 14, 5],
        [12, 14, 20, 18, 13, 19, 8, 1, 0, 21, 2, 6, 7, 22, 9, 15, 11, 17, 10, 5, 3, 16, 4],
    ]
    assert permutation(7, 0, 0, 10).tolist() == [8, 4, 1, 6, 3, 2, 7, 5, 9, 0]


@given(order=orders(shuffle=False), data=st.data())
def test_stretch_brings_members_in_order(order: Order, data: st.DataObject) -> None:
    total = len(order.rows)
    lo = data.draw(st.integers(0, total))
    hi = data.draw(st.integers(lo, total))
    window = Window(0, lo, hi - lo, tuple(order.stretch(lo, hi)))
    assert np.array_equal(delivered(order, window), members(order.rows)[lo:hi])


@st.composite
def sharded(draw: st.DrawFn) -> list[Order]:
    """An order for every shard, up to as many as there are rows."""
    order = draw(orders())
    count = draw(st.integers(1, min(12, len(order.rows))))
    if draw(st.booleans()):
        return [order.of_shard((index, count)) for index in range(count)]
    return [
        Order(
            order.rows,
            shuffle=order.shuffle,
            seed=order.seed,
            block=order.block,
            window=order.window,
            chunk_origins=order.chunk_origins,
            shard=(index, count),
        )
        for index in range(count)
    ]


@given(shards=sharded(), epoch=EPOCHS)
def test_every_row_in_one_shard(shards: list[Order], epoch: int) -> None:
    parts = [pass_of(order, epoch) for order in shards]
    assert np.array_equal(np.sort(np.concatenate(parts)), members(shards[0].rows))
    assert [len(part) for part in parts] == [order.total for order in shards]
    assert max(order.total for order in shards) - min(order.total for order in shards) <= 1
    if not shards[0].shuffle:
        assert np.array_equal(np.concatenate(parts), members(shards[0].rows))


@given(shards=sharded(), epoch=EPOCHS, data=st.data())
def test_windows_of_a_shard(shards: list[Order], epoch: int, data: st.DataObject) -> None:
    order = data.draw(st.sampled_from(shards))
    windows = list(order.windows(epoch))
    assert all(1 <= window.rows <= order.window for window in windows)
    firsts = np.cumsum([0, *(window.rows for window in windows)])
    assert [window.first for window in windows] == firsts[:-1].tolist()
    assert order.first(epoch).tolist() == firsts.tolist()
    for at, window in enumerate(windows):
        assert window.index == at
        assert np.array_equal(delivered(order, order.at(epoch, at)), delivered(order, window))
        edges = [edge for span in window.spans for edge in (span.start, span.stop)]
        assert edges == sorted(edges)
    position = data.draw(st.integers(0, order.total))
    tail = [delivered(order, window) for window in windows if window.first + window.rows > position]
    assert np.array_equal(
        pass_of(order, epoch, position=position), np.concatenate([np.empty(0, np.int64), *tail])
    )


@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_a_shard_of_one_is_the_whole(shuffle: Shuffle) -> None:
    order = Order(RowSet(0, 500), shuffle=shuffle, seed=3, block=16, window=64)
    alone = Order(RowSet(0, 500), shuffle=shuffle, seed=3, block=16, window=64, shard=(0, 1))
    assert np.array_equal(pass_of(order, 4), pass_of(alone, 4))


@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_shards_are_the_same_in_every_release(shuffle: Shuffle) -> None:
    """Runs that are to be repeated rely on these very numbers."""
    shards = [
        Order(RowSet(0, 13), shuffle=shuffle, seed=7, block=2, window=6, shard=(index, 3))
        for index in range(3)
    ]
    assert [pass_of(order, 1).tolist() for order in shards] == GOLDEN_SHARDS[shuffle]


GOLDEN_SHARDS: dict[Shuffle, list[list[int]]] = {
    False: [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11, 12]],
    "window": [[6, 7, 2, 3], [0, 8, 9, 1], [12, 10, 5, 4, 11]],
    "global": [[3, 1, 9, 11], [7, 5, 0, 12], [6, 2, 8, 4, 10]],
}


@pytest.mark.parametrize("shuffle", ["window", "global"])
def test_what_shards_leave_out_changes(shuffle: Shuffle) -> None:
    """With full batches of ten alone, 3 of each shard's 53 rows are left out, others every time."""
    order = Order(RowSet(0, 106), shuffle=shuffle, seed=0, block=4, window=20)
    shards = [order.of_shard((index, 2)) for index in range(2)]
    left = [frozenset(row for shard in shards for row in pass_of(shard, epoch)[50:]) for epoch in range(5)]
    assert all(len(rows) == 6 for rows in left)
    assert len(set(left)) == 5


@given(rows=row_sets(), seed=st.integers(0, 2**64 - 1), epoch=EPOCHS, data=st.data())
def test_global_windows_are_one_piece_and_their_length_leaves_the_order_alone(
    rows: RowSet, seed: int, epoch: int, data: st.DataObject
) -> None:
    def made(window: int) -> Order:
        return Order(rows, shuffle="global", seed=seed, block=1, window=window)

    order = made(data.draw(st.integers(1, 500)))
    assert all(len(window.spans) == 1 for window in order.windows(epoch))
    whole = pass_of(order, epoch)
    assert np.array_equal(whole, pass_of(made(data.draw(st.integers(1, 500))), epoch))
    lo = data.draw(st.integers(0, len(rows)))
    hi = data.draw(st.integers(lo, len(rows)))
    stretch = Window(0, lo, hi - lo, tuple(order.stretch(lo, hi, epoch=epoch)))
    assert np.array_equal(delivered(order, stretch), whole[lo:hi])


HUGE = """
import resource, time
from oocloader.order.order import Order, RowSet
from oocloader.memory import Column, RequestedRows, SizingInputs, choose

before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
longest = 0.0
for row_nbytes in (3072, 64):
    for shuffle in (False, "window", "global"):
        for shard in ((0, 1), (2, 5)):
            began = time.process_time()
            column = Column("x", row_nbytes, row_nbytes, 256, 1 << 20, row_access=shuffle == "global")
            sizes = choose(SizingInputs(
                rows=10**9, columns=(column,), batch_size=128, shuffle=bool(shuffle),
                block=RequestedRows(1) if shuffle == "global" else None, threads=2, free_host_memory=1 << 30))
            order = Order(RowSet(0, 10**9), shuffle=shuffle, seed=1, block=sizes.block, window=sizes.window,
                          chunk_origins=(0, 7 * 10**8 + 1), shard=shard)
            assert order.first(0)[-1] == order.total
            for window in (order.at(0, 0), order.at(0, len(order) - 1)):
                assert sum(span.rows for span in window.spans) == window.rows
            longest = max(longest, time.process_time() - began)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024, longest)
"""


def test_a_billion_rows_are_planned_in_a_moment_and_a_hundred_megabytes() -> None:
    done = subprocess.run([sys.executable, "-c", HUGE], capture_output=True, text=True, check=True)
    mebibytes, seconds = done.stdout.split()
    assert int(mebibytes) < 95
    # A second where nothing else runs; a busy machine stretches the processor's seconds too.
    assert float(seconds) < 5
