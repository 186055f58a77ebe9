"""Chunks decoded straight to their rows, each once, whatever windows and blocks cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chunk_forms import FORMS, ROWS, deliver, written
from chunked import Flip, write_layout
from numbered import rows_array
from oocloader.order.order import Order, RowSet
from oocloader.reading.chunk_reader import ChunkReader
from oocloader.reading.read_rows import read_rows
from orders import pass_of


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(data=st.data())
def test_any_layout_in_any_order(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 60))
    sample_shape = tuple(data.draw(st.lists(st.integers(1, 5), max_size=2)))
    chunk_shape = tuple(data.draw(st.integers(1, n + 2)) for n in (rows, *sample_shape))
    array = rows_array(
        rows, data.draw(st.sampled_from(["uint8", ">i4", "float32"])), sample_shape=sample_shape
    )
    grid = [-(-n // c) for n, c in zip(array.shape, chunk_shape, strict=True)]
    numbers = st.sets(st.integers(0, int(np.prod(grid)) - 1))
    flip = data.draw(st.none() | st.builds(Flip))
    missing = data.draw(numbers)
    layout = write_layout(
        tmp_path_factory.mktemp("layout"),
        array,
        chunk_shape,
        step=flip,
        skipped=data.draw(numbers) if flip else (),
        missing=missing,
        fill=3,
        axes=data.draw(st.none() | st.permutations(range(array.ndim)).map(tuple)),
        file_each=data.draw(st.booleans()),
        gap=data.draw(st.sampled_from([0, 1, 70_000])),
        backwards=data.draw(st.booleans()),
    )
    expected = array.astype(array.dtype.newbyteorder("="))
    for chunk in missing:
        corner = np.unravel_index(chunk, grid)
        expected[
            tuple(slice(int(i) * n, (int(i) + 1) * n) for i, n in zip(corner, chunk_shape, strict=True))
        ] = 3
    window = data.draw(st.integers(1, rows + 5))
    order = Order(
        RowSet(0, rows),
        shuffle=data.draw(st.booleans()),
        seed=0,
        block=data.draw(st.integers(1, window)),
        window=window,
    )
    found, counters = deliver(ChunkReader(layout), order)
    assert np.array_equal(found, expected[pass_of(order)])
    if flip:
        assert counters.chunks_decoded == len(layout.file) - len(missing)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(
    ("rows", "block", "window"),
    [
        (RowSet(0, ROWS), 64, 128),
        (RowSet(0, ROWS), 100, 200),
        (RowSet(0, ROWS), 7, 30),
        (RowSet(0, ROWS), 1, 3),
        (RowSet(0, ROWS), 1000, 1000),
        (RowSet(70, 333), 64, 128),
        (RowSet(0, ROWS, np.arange(0, ROWS, 2)), 16, 50),
        (RowSet(5, ROWS, np.arange(5, ROWS, 89)), 2, 4),
    ],
)
def test_chunks_are_decoded_once(
    tmp_path: Path, form: dict[str, Any], shuffle: bool, rows: RowSet, block: int, window: int
) -> None:
    """Whatever windows and blocks cut, and only the chunks that hold a wanted row."""
    flip = Flip()
    layout, expected = written(tmp_path, form, step=flip)
    order = Order(rows, shuffle=shuffle, seed=1, block=block, window=window)
    found, counters = deliver(ChunkReader(layout), order, threads=3)
    numbers = pass_of(order)
    assert np.array_equal(found, expected[numbers])
    shared_chunks = np.unique(numbers // layout.chunk_shape[0])
    wanted = np.zeros(layout.grid, bool)
    wanted[shared_chunks] = True
    stored = wanted & (layout.file >= 0).reshape(layout.grid)
    assert len(flip.decoded) == counters.chunks_decoded == stored.sum()
    assert counters.decoded_bytes == stored.sum() * layout.chunk_nbytes


def test_many_threads_decode(tmp_path: Path) -> None:
    flip = Flip()
    layout, expected = written(tmp_path, {"chunk_shape": (64, 3, 2)}, step=flip, rows=20_000)
    order = Order(RowSet(0, 20_000), shuffle=True, seed=1, block=100, window=5000)
    found, _ = deliver(ChunkReader(layout), order, threads=8)
    assert np.array_equal(found, expected[pass_of(order)])
    assert len(flip.decoded) == len(layout.file)
    assert len(flip.threads) > 1


def test_whole_chunks_are_decoded_straight_to_their_place(tmp_path: Path) -> None:
    into: list[np.ndarray] = []

    class Watched(Flip):
        def decode(self, stored: np.ndarray, out: np.ndarray) -> np.ndarray:
            into.append(out)
            return super().decode(stored, out)

    layout, expected = written(tmp_path, {"chunk_shape": (64, 4, 3)}, step=Watched())
    out = np.zeros((448, 4, 3), np.uint8)
    read_rows(ChunkReader(layout), 0, 448, out)
    assert np.array_equal(out, expected[:448])
    assert all(np.shares_memory(there, out) for there in into)
    assert len(into) == 7
