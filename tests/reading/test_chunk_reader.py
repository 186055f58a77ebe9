"""Chunks of a layout into rows, against the array they were written from."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chunk_forms import FORMS, ROWS, deliver, read, written
from chunked import Flip, open_files
from oocloader.errors import ClosedError
from oocloader.order.order import Order, RowSet
from oocloader.reading.chunk_reader import ChunkReader
from orders import pass_of


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("coded", [False, True], ids=["raw", "flipped"])
@pytest.mark.parametrize("dtype", ["bool", "uint8", ">i2", "float16", ">f4", "float64", "complex64"])
def test_rows_are_those_written(tmp_path: Path, form: dict[str, Any], coded: bool, dtype: str) -> None:
    layout, expected = written(tmp_path, form, step=Flip() if coded else None, dtype=dtype)
    reader = ChunkReader(layout)
    assert reader.shape == expected.shape
    assert reader.dtype == expected.dtype
    assert reader.dtype.isnative
    for start, stop in ((0, ROWS), (0, 1), (ROWS - 1, ROWS), (63, 65), (100, 301), (64, 128)):
        assert np.array_equal(read(reader, start, stop), expected[start:stop])
    for shuffle, rows in (
        (False, RowSet(0, ROWS)),
        (True, RowSet(0, ROWS)),
        (True, RowSet(33, 400)),
        (False, RowSet(1, ROWS, np.arange(1, ROWS, 3))),
        (True, RowSet(1, ROWS, np.arange(1, ROWS, 3))),
    ):
        order = Order(rows, shuffle=shuffle, seed=1, block=16, window=130)
        found, _ = deliver(reader, order)
        assert np.array_equal(found, expected[pass_of(order)])


@pytest.mark.parametrize(
    ("form", "calls", "nbytes"),
    [
        ({}, 1, 450 * 12),
        ({"chunk_shape": (64, 4, 3)}, 1, 450 * 12),  # neighbours in the file, the last one cut
        ({"chunk_shape": (64, 4, 3), "gap": 10}, 8, 450 * 12),
        ({"chunk_shape": (64, 4, 3), "backwards": True}, 8, 450 * 12),
        ({"chunk_shape": (64, 4, 3), "missing": {2, 3}}, 2, (450 - 128) * 12),
        ({"chunk_shape": (64, 4, 3), "file_each": True}, 8, 450 * 12),
        # What cuts rows is read whole, with small gaps.
        ({"chunk_shape": (64, 4, 2)}, 1, 512 * 16),
        ({"chunk_shape": (64, 4, 2), "gap": 100}, 1, 512 * 16 + 15 * 100),
        ({"chunk_shape": (64, 4, 2), "gap": 70_000}, 16, 512 * 16),
    ],
)
def test_neighbours_are_read_with_one_call(
    tmp_path: Path, form: dict[str, Any], calls: int, nbytes: int
) -> None:
    layout, expected = written(tmp_path, form)
    found, counters = deliver(
        ChunkReader(layout), Order(RowSet(0, ROWS), shuffle=False, seed=0, block=1, window=ROWS)
    )
    assert np.array_equal(found, expected)
    assert (counters.read_calls, counters.read_bytes) == (calls, nbytes)


# -- what goes wrong


@pytest.mark.parametrize("form", ["one run", "whole rows", "cut across, a file each"])
def test_closed(tmp_path: Path, form: str) -> None:
    # Errors of tests before hold their readers in cycles, which may go at any time.
    gc.collect()
    before = len(open_files())
    reader = ChunkReader(written(tmp_path, FORMS[form])[0])
    read(reader, 0, 10)
    reader.close()
    reader.close()
    with pytest.raises(ClosedError, match="the store is closed"):
        read(reader, 0, 10)
    assert len(open_files()) == before


@pytest.mark.parametrize(
    ("form", "coded", "chunk_rows", "row_access"),
    [
        ("one run", False, None, True),
        ("one run", True, ROWS, False),
        ("one run, Fortran order", False, ROWS, False),
        ("whole rows", False, 64, True),
        ("whole rows", True, 64, False),
        ("cut across", False, 64, False),
        ("Fortran chunks", False, 64, False),
    ],
)
def test_how_rows_are_read(
    tmp_path: Path, form: str, coded: bool, chunk_rows: int | None, row_access: bool
) -> None:
    reader = ChunkReader(written(tmp_path, FORMS[form], step=Flip() if coded else None)[0])
    assert (reader.chunk_rows, reader.row_access, reader.chunk_origins) == (chunk_rows, row_access, (0,))
    assert reader.scratch_nbytes > 0
