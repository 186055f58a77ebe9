"""Sets of stored rows: how many lie where, parts of them, and spans."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocloader.order.order import RowSet, Window
from oocloader.order.row_spans import RowSpan
from orders import members, row_sets


@pytest.mark.parametrize(
    ("rows", "lo", "hi", "count"),
    [
        (RowSet(10, 20), 0, 100, 10),
        (RowSet(10, 20), 12, 15, 3),
        (RowSet(10, 20), 0, 10, 0),
        (RowSet(10, 20), 20, 30, 0),
        (RowSet(10, 20), 15, 12, 0),
        (RowSet(2, 30, np.array([2, 3, 9, 29])), 0, 100, 4),
        (RowSet(2, 30, np.array([2, 3, 9, 29])), 3, 9, 1),
        (RowSet(2, 30, np.array([2, 3, 9, 29])), 3, 10, 2),
        (RowSet(2, 30, np.array([2, 3, 9, 29])), 10, 29, 0),
    ],
)
def test_rows_of_a_set_within_a_stretch(rows: RowSet, lo: int, hi: int, count: int) -> None:
    assert rows.count(lo, hi) == count


def test_stored_rows_of_members() -> None:
    picked = RowSet(2, 30, np.array([2, 3, 4, 9, 29]))
    assert len(picked) == 5
    for rows, lo, hi, stored in (
        (picked, 0, 3, [2, 3, 4]),
        (picked, 3, 4, [9]),
        (RowSet(5, 50), 2, 4, [7, 8]),
    ):
        assert rows.span(lo, hi) == RowSpan(stored[0], stored[-1] + 1, None, slice(0, hi - lo))
    apart = picked.span(1, 4, slice(5, 8))
    assert apart.stored_rows().tolist() == [3, 4, 9]
    assert apart.dest_rows().tolist() == [5, 6, 7]


@given(rows=row_sets(), data=st.data())
def test_part_of_a_set(rows: RowSet, data: st.DataObject) -> None:
    lo = data.draw(st.integers(0, len(rows)))
    hi = data.draw(st.integers(lo, len(rows)))
    part = rows.part(lo, hi)
    assert len(part) == hi - lo
    assert np.array_equal(members(part), members(rows)[lo:hi])


@given(numbers=st.sets(st.integers(0, 60)), data=st.data())
def test_a_set_of_numbers(numbers: set[int], data: st.DataObject) -> None:
    """Neighbours are a stretch, which costs no memory; all else of it is as of its numbers."""
    stored = np.array(sorted(numbers), np.int64)
    rows = RowSet.of(stored)
    assert len(rows) == len(stored)
    assert np.array_equal(members(rows), stored)
    assert (rows.picked is None) == np.array_equal(stored, np.arange(rows.start, rows.stop))
    at = data.draw(st.permutations(range(len(stored))))
    assert np.array_equal(rows.members(np.array(at, np.int64)), stored[at])
    lo, hi = data.draw(st.integers(0, 62)), data.draw(st.integers(0, 62))
    assert rows.count(lo, hi) == len([number for number in numbers if lo <= number < hi]) or lo > hi


@given(rows=row_sets(), size=st.integers(1, 50), origin=st.integers(1, 400))
def test_runs_of_a_set_cover_it(rows: RowSet, size: int, origin: int) -> None:
    cuts = rows.boundaries(size, (0, origin))
    edges = cuts[np.arange(len(cuts))]
    assert (edges[0], edges[-1]) == (0, len(rows))
    assert 1 <= np.diff(edges).min() <= np.diff(edges).max() <= size


def test_a_window_of_which_a_pass_uses_a_part() -> None:
    assert Window(0, 0, 10, ()).unused == 0
    assert Window(0, 0, 10, (), begin=2, end=10).unused == 0
    assert Window(0, 0, 10, (), begin=2, end=7).unused == 3
