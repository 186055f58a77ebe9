"""The mixing figure against rows that were really shuffled."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocloader.memory.alignment import Column
from oocloader.memory.budget import choose
from oocloader.memory.mixing import CLASSES, POOR, _class_entropy, _log_factorial, mixing
from oocloader.memory.window_size import RequestedRows, SizingInputs
from oocloader.order.order import Order, RowSet
from oocloader.sizes import MIB


def entropy(labels: np.ndarray, batch_size: int) -> float:
    """The mean entropy of whole batches of `labels`."""
    found = []
    for at in range(0, len(labels) - batch_size + 1, batch_size):
        shares = np.bincount(labels[at : at + batch_size]) / batch_size
        shares = shares[shares > 0]
        found.append(-(shares * np.log(shares)).sum())
    return float(np.mean(found))


def simulated(rows: int, block: int, window: int, batch_size: int, epochs: int) -> float:
    """The mean entropy of batches of class-sorted rows in the loader's order, against a full shuffle's."""
    order = Order(RowSet(0, rows), shuffle=True, seed=5, block=block, window=window)
    labels = np.arange(rows) * CLASSES // rows
    random = np.random.default_rng(5)
    here, full = [], []
    for epoch in range(epochs):
        shuffled = []
        for found in order.windows(epoch):
            numbers = np.empty(found.rows, np.int64)
            for span in found.spans:
                numbers[span.dest_index] = np.arange(span.start, span.stop)
            shuffled.append(labels[numbers])
        here.append(entropy(np.concatenate(shuffled), batch_size))
        full.append(entropy(random.permutation(labels), batch_size))
    return float(np.mean(here) / np.mean(full))


@pytest.mark.parametrize(
    ("rows", "block", "window", "batch_size", "epochs"),
    [
        (100_000, 256, 10_000, 128, 2),
        (100_000, 64, 10_000, 128, 2),
        (100_000, 256, 4096, 128, 3),
        (100_000, 256, 3072, 128, 3),
        (100_000, 256, 2048, 128, 3),
        (100_000, 256, 1024, 128, 3),
        (100_000, 256, 256, 64, 2),
        (30_000, 1, 100, 100, 2),
        (10_000, 10, 100, 1000, 5),  # batches of ten windows
        (7000, 100, 1600, 50, 40),
        (7000, 700, 1400, 50, 40),
        (5000, 250, 2500, 64, 60),  # stretches of two blocks: good from one beginning, bad from the other
        (5000, 250, 500, 64, 60),
        (20_000, 3000, 6000, 128, 40),  # blocks of more than one class
        (3000, 64, 640, 64, 40),
        (3000, 64, 100, 256, 40),  # windows that do not fill a batch
    ],
)
def test_the_figure_is_what_happens(rows: int, block: int, window: int, batch_size: int, epochs: int) -> None:
    figure = mixing(rows, block=block, window=window, batch_size=batch_size)
    assert figure == pytest.approx(simulated(rows, block, window, batch_size, epochs), abs=0.05)


@given(
    rows=st.integers(1, 10**9),
    block=st.integers(1, 10**6),
    blocks=st.integers(1, 1000),
    batch_size=st.integers(1, 2048),
)
def test_bounds(rows: int, block: int, blocks: int, batch_size: int) -> None:
    figure = mixing(rows, block=block, window=blocks * block, batch_size=min(batch_size, rows))
    assert 0 <= figure <= 1
    if blocks * block >= rows:
        assert figure == 1


def test_more_blocks_mix_better() -> None:
    figures = [mixing(10**6, block=256, window=256 * n, batch_size=128) for n in (1, 2, 4, 8, 12, 16, 32, 64)]
    assert figures == sorted(figures)
    assert figures[4] < POOR < figures[5]


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("row_nbytes", [4, 784, 12288, 150_528])
def test_a_tenth_of_the_rows_mixes_nearly_as_well_as_all(row_nbytes: int, chunked: bool) -> None:
    """Class-sorted labels, 10 classes, 100,000 rows, chunks of 256, batches of 128, defaults otherwise."""
    x = Column("x", row_nbytes, row_nbytes, 256 if chunked else None, MIB, row_access=not chunked)
    sizes = choose(
        SizingInputs(
            rows=100_000,
            columns=(x, Column("y", 8, 8, 256, MIB, row_access=not chunked)),
            batch_size=128,
            shuffle=True,
            window=RequestedRows(10_000),
            threads=2,
            free_host_memory=1 << 40,
        )
    )
    assert mixing(100_000, block=sizes.block, window=sizes.window, batch_size=128) >= 0.98
    assert simulated(100_000, sizes.block, sizes.window, 128, 2) >= 0.98


def test_entropy_of_a_class_against_counting() -> None:
    """Half of four rows are of the class, two are drawn: j = 0, 1, 2 with chance 1/6, 4/6, 1/6."""
    expected = 4 / 6 * -(0.5 * math.log(0.5))
    found = _class_entropy(np.array([0.0, 0.5, 1.0]), 4, 2)
    assert found.tolist() == pytest.approx([0, expected, 0], abs=1e-7)


def test_log_factorial() -> None:
    n = np.array([0.0, 1, 2, 5, 20, 1000, 10**9])
    assert _log_factorial(n).tolist() == pytest.approx([math.lgamma(k + 1) for k in n], abs=1e-6, rel=1e-12)
