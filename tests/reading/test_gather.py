"""Rows gathered from an array that holds all of them, to the places of a window."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numbered import rows_array
from oocloader.metrics.counters import Counters
from oocloader.order.order import Order
from oocloader.order.row_spans import RowSpan
from oocloader.reading.buffers import FAULT_NBYTES
from oocloader.reading.gather import GATHERED_NBYTES, gather_jobs
from oocloader.reading.jobs import JOB_NBYTES
from orders import delivered, orders

STORED = rows_array(400, "int16", sample_shape=(3, 2))


@settings(max_examples=40)
@given(order=orders(), epoch=st.integers(0, 9), at=st.integers(0, 10**6), fresh=st.booleans())
def test_rows_of_any_window(order: Order, epoch: int, at: int, fresh: bool) -> None:
    window = order.at(epoch, at % len(order))
    out, counters = np.full((window.rows, 3, 2), -1, np.int16), Counters()
    for job in gather_jobs(STORED, window.spans, out, counters, fresh_view=STORED.copy if fresh else None):
        job()
    assert np.array_equal(out, STORED[delivered(order, window)])
    assert counters.copied_bytes == out.nbytes


def test_only_the_places_of_the_spans_are_written() -> None:
    out = np.full((20, 3, 2), -1, np.int16)
    spans = [
        RowSpan(10, 14, None, np.array([9, 6, 8, 5])),
        RowSpan(100, 120, np.array([3, 19]), np.array([7, 4])),
    ]
    for job in gather_jobs(STORED, spans, out, Counters()):
        job()
    assert np.array_equal(out[4:10], STORED[[119, 13, 11, 103, 12, 10]])
    assert (out[:4] == -1).all()
    assert (out[10:] == -1).all()


@pytest.mark.parametrize("fresh", [False, True])
def test_much_is_several_jobs(fresh: bool) -> None:
    """Each with a view of its own, where these are made anew."""
    row_nbytes = 1 << 20
    stored = np.empty((100, row_nbytes), np.uint8)
    stored[:] = np.arange(100)[:, np.newaxis]
    out = np.zeros((60, row_nbytes), np.uint8)
    numbers = np.random.default_rng(0).permutation(100)[:60]
    spans = [
        RowSpan(int(number), int(number) + 1, None, slice(at, at + 1)) for at, number in enumerate(numbers)
    ]
    made: list[int] = []

    def view() -> np.ndarray:
        made.append(1)
        return stored.view()

    jobs = gather_jobs(stored, spans, out, Counters(), fresh_view=view if fresh else None)
    per_job = GATHERED_NBYTES // (row_nbytes + FAULT_NBYTES) if fresh else JOB_NBYTES // row_nbytes
    assert len(jobs) == -(-60 // per_job) > 1
    for job in random.Random(0).sample(jobs, len(jobs)):
        job()
    assert np.array_equal(out[:, 0], numbers)
    assert np.array_equal(out[:, -1], numbers)
    assert len(made) == (len(jobs) if fresh else 0)


def test_a_view_that_cannot_be_made_anew_is_used_as_it_is() -> None:
    out = np.zeros((5, 3, 2), np.int16)
    for job in gather_jobs(
        STORED, [RowSpan(7, 12, None, slice(0, 5))], out, Counters(), fresh_view=lambda: None
    ):
        job()
    assert np.array_equal(out, STORED[7:12])
