"""Orders of rows drawn by Hypothesis, and what they deliver."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from oocloader.order.order import Order, RowSet, Shuffle, Window


def delivered(order: Order, window: Window) -> np.ndarray:
    """The stored rows that a window's spans bring, in the order of the buffer."""
    rows = np.full(window.rows, -1, np.int64)
    for span in window.spans:
        brought = np.arange(span.start, span.stop)
        rows[span.dest_index] = brought if span.row_index is None else brought[span.row_index]
    return rows


def pass_of(order: Order, epoch: int = 0, *, position: int = 0) -> np.ndarray:
    """The stored rows of a pass in order, from the window that holds `position`."""
    parts = [delivered(order, window) for window in order.windows(epoch, position=position)]
    return np.concatenate([np.empty(0, np.int64), *parts])


def members(rows: RowSet) -> np.ndarray:
    return np.arange(rows.start, rows.stop) if rows.picked is None else rows.picked


@st.composite
def row_sets(draw: st.DrawFn, *, most: int = 400) -> RowSet:
    total = draw(st.integers(1, most))
    kind = draw(st.sampled_from(["all", "slice", "picked"]))
    if kind == "all":
        return RowSet(0, total)
    if kind == "slice":
        start = draw(st.integers(0, total - 1))
        return RowSet(start, draw(st.integers(start + 1, total)))
    mask = draw(st.lists(st.booleans(), min_size=total, max_size=total).filter(any))
    picked = np.flatnonzero(mask).astype(np.int64)
    return RowSet(int(picked[0]), int(picked[-1]) + 1, picked)


SHUFFLES: tuple[Shuffle, ...] = (False, "window", "global")


@st.composite
def orders(draw: st.DrawFn, *, shuffle: bool | None = None) -> Order:
    rows = draw(row_sets())
    window = draw(st.integers(1, 500))
    return Order(
        rows,
        shuffle=draw(st.sampled_from(SHUFFLES)) if shuffle is None else shuffle,
        seed=draw(st.integers(0, 2**64 - 1)),
        block=draw(st.integers(1, window)),
        window=window,
        chunk_origins=(0, *sorted(draw(st.sets(st.integers(1, 400), max_size=4)))),
    )
