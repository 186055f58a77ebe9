"""Rows held in memory: each is found by its number in the store, whatever was selected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numbered import rows_array
from oocloader.metrics.counters import Counters
from oocloader.order.order import Order, RowSet
from oocloader.order.row_spans import RowSpan
from oocloader.order.selection import row_set
from oocloader.pipeline.cached_reader import CachedReader
from oocloader.pipeline.row_storage import MemoryStorage, positions
from oocloader.reading.memory_reader import MemoryReader
from oocloader.reading.row_reader import Target
from oocloader.reading.shared_chunks import SharedChunks

ROWS = 200


def filled(reader: CachedReader, spans: list[RowSpan], rows: int) -> tuple[list[int], Counters]:
    """The stored rows that land in a buffer of `rows`; -1 where none does."""
    out = np.full((rows, *reader.shape[1:]), -1, reader.dtype)
    counters = Counters()
    for job in reader.jobs(spans, Target(out, SharedChunks(lambda lo, hi: 0), counters)):
        job()
    return out[:, 0].tolist(), counters


def held(rows: RowSet) -> CachedReader:
    """Rows held in memory, of a store whose rows are all -2 by now."""
    members = np.arange(rows.start, rows.stop) if rows.picked is None else rows.picked
    array = np.repeat(members[:, np.newaxis], 3, 1).astype(np.int32)
    store = MemoryReader(np.full((ROWS, 3), -2, np.int32))
    return CachedReader(store, rows, MemoryStorage(array.shape, array.dtype, array))


SELECTIONS = [None, slice(20, 150), np.arange(0, ROWS, 3), np.r_[np.arange(4, 9), np.arange(50, 120), 199]]


@pytest.mark.parametrize("selection", SELECTIONS, ids=["all", "slice", "third", "runs"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_every_window_of_an_order(selection: Any, shuffle: bool) -> None:
    rows = row_set(selection, ROWS)
    order = Order(rows, shuffle=shuffle, seed=3, block=7, window=40)
    reader = held(rows)
    seen: list[int] = []
    for window in order.windows(1):
        found, counters = filled(reader, list(window.spans), window.rows)
        expected = np.empty(window.rows, np.int64)
        for span in window.spans:
            count = np.arange(span.stop - span.start) if span.row_index is None else span.row_index
            expected[span.dest_index] = span.start + count
        assert found == expected.tolist()
        assert counters.copied_bytes == window.rows * 12
        seen += found
    assert sorted(seen) == list(
        np.arange(ROWS)[rows.start : rows.stop] if rows.picked is None else rows.picked
    )


@given(data=st.data())
def test_rows_to_scattered_places(data: st.DataObject) -> None:
    """Also where the rest of the buffer is somebody else's."""
    rows = row_set(data.draw(st.sampled_from(SELECTIONS)), ROWS)
    members = np.arange(rows.start, rows.stop) if rows.picked is None else rows.picked
    wanted = np.array(sorted(data.draw(st.sets(st.sampled_from(members.tolist()), min_size=1))))
    dest_index = np.array(data.draw(st.permutations(range(2 * len(wanted)))))[: len(wanted)]
    span = RowSpan(int(wanted[0]), int(wanted[-1]) + 1, wanted - wanted[0], dest_index)
    found, _ = filled(held(rows), [span], 2 * len(wanted))
    expected = np.full(2 * len(wanted), -1)
    expected[dest_index] = wanted
    assert found == expected.tolist()


def test_positions_of_neighbours_are_neighbours() -> None:
    rows = row_set(np.arange(0, ROWS, 3), ROWS)
    (span,) = positions(rows, [RowSpan(30, 61, np.arange(0, 31, 3), slice(0, 11))])
    assert (span.start, span.stop, span.row_index) == (10, 21, None)
    (span,) = positions(rows, [RowSpan(30, 61, np.array([0, 30]), slice(0, 2))])
    assert (span.start, span.stop) == (10, 21)
    assert span.row_index is not None
    assert span.row_index.tolist() == [0, 10]


def test_what_is_held_is_not_handed_out() -> None:
    array = rows_array(10)
    reader = CachedReader.in_memory(MemoryReader(array), RowSet(0, 10))
    assert reader.complete
    assert reader.map(0, 5) is None
    assert reader.view([]) is None
    assert filled(held(RowSet(0, 10)), [], 0)[0] == []
