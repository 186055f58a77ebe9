"""Shares of rows, and their batches: as many for every shard, whatever the numbers."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocloader.errors import SettingError
from oocloader.order.shards import Batching, batching, share


def sizes(cut: Batching) -> list[int]:
    edges = [cut.row(batch) for batch in range(cut.batches + 1)]
    return [stop - start for start, stop in itertools.pairwise(edges)]


@given(rows=st.integers(0, 500), count=st.integers(1, 60))
def test_shares_are_the_rows_and_differ_by_one_at_most(rows: int, count: int) -> None:
    ranges = [share(rows, (index, count)) for index in range(count)]
    assert [lo for lo, _ in ranges] == [0, *(hi for _, hi in ranges[:-1])]
    assert ranges[-1][1] == rows
    lengths = {hi - lo for lo, hi in ranges}
    assert max(lengths) - min(lengths) <= 1


@given(rows=st.integers(1, 300), count=st.integers(1, 12), batch_size=st.integers(1, 40))
def test_every_row_in_as_many_batches_everywhere(rows: int, count: int, batch_size: int) -> None:
    if rows < count or (batch_size == 1 and rows % count):
        # The first shard is one of the shortest.
        with pytest.raises(SettingError, match="drop_remainder=True"):
            batching(rows, (0, count), batch_size=batch_size, drop_remainder=False)
        return
    cuts = [
        batching(rows, (index, count), batch_size=batch_size, drop_remainder=False) for index in range(count)
    ]
    assert len({cut.batches for cut in cuts}) == 1
    assert sum(cut.end for cut in cuts) == rows
    for cut in cuts:
        found = sizes(cut)
        assert sum(found) == cut.rows == cut.end
        assert all(1 <= size <= batch_size for size in found)
        # Only the last may be short, or the last two.
        assert all(size == batch_size for size in found[: -2 if cut.halved else -1])


@given(rows=st.integers(1, 300), count=st.integers(1, 12), batch_size=st.integers(1, 40))
def test_full_batches_alone(rows: int, count: int, batch_size: int) -> None:
    cuts = [
        batching(rows, (index, count), batch_size=batch_size, drop_remainder=True) for index in range(count)
    ]
    assert {cut.batches for cut in cuts} == {rows // count // batch_size}
    for cut in cuts:
        assert sizes(cut) == [batch_size] * cut.batches
        assert cut.end == cut.batches * batch_size <= cut.rows


@pytest.mark.parametrize(
    ("rows", "count", "batch_size", "expected"),
    [
        (7, 2, 3, [[2, 1], [3, 1]]),
        (7, 2, 2, [[2, 1], [2, 2]]),
        (9, 2, 2, [[2, 1, 1], [2, 2, 1]]),
        (9, 2, 4, [[2, 2], [4, 1]]),
        (10, 3, 3, [[2, 1], [2, 1], [3, 1]]),
        (8, 4, 2, [[2], [2], [2], [2]]),
        (5, 1, 2, [[2, 2, 1]]),
        (3, 3, 1, [[1], [1], [1]]),
    ],
)
def test_batches(rows: int, count: int, batch_size: int, expected: list[list[int]]) -> None:
    found = [
        sizes(batching(rows, (index, count), batch_size=batch_size, drop_remainder=False))
        for index in range(count)
    ]
    assert found == expected


def test_a_shard_without_rows_is_refused() -> None:
    with pytest.raises(SettingError, match=r"shard=\(0, 4\): 3 rows are too few for 4 shards"):
        batching(3, (0, 4), batch_size=2, drop_remainder=False)


def test_batches_of_one_cannot_be_halved() -> None:
    with pytest.raises(SettingError, match=r"7 rows in batches of one .* drop_remainder=True"):
        batching(7, (0, 2), batch_size=1, drop_remainder=False)
    # The longer shard is as it is.
    assert batching(7, (1, 2), batch_size=1, drop_remainder=False).batches == 4


@given(rows=st.integers(1, 200), count=st.integers(1, 5), batch_size=st.integers(2, 30), data=st.data())
def test_whole_batches_of_a_stretch(rows: int, count: int, batch_size: int, data: st.DataObject) -> None:
    rows = max(rows, count)
    index = data.draw(st.integers(0, count - 1))
    cut = batching(rows, (index, count), batch_size=batch_size, drop_remainder=data.draw(st.booleans()))
    edges = [cut.row(batch) for batch in range(cut.batches + 1)]
    lo = data.draw(st.sampled_from(edges))
    hi = data.draw(st.integers(lo, max(lo, cut.rows)))
    stop = cut.whole(lo, hi)
    assert stop in edges
    assert lo <= stop <= max(hi, lo)
    # Nothing whole is left but a batch behind a short one.
    behind = [edge for edge in edges if stop < edge <= hi]
    assert not behind or stop - edges[edges.index(stop) - 1] < batch_size
    # Cut every `batch_size`, the rows are these batches.
    held = edges[edges.index(lo) : edges.index(stop) + 1]
    assert [*range(lo, stop, batch_size), stop][: len(held)] == held
