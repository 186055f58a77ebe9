"""Rows on their way to a new store, and the array that is made of them, against NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numbered import rows_array, write_store
from oocloader.conversion.derived_rows import Advance, DerivedArray, StoredRows, moved
from oocloader.stores import ArrayInfo, open_store


class Doubled:
    """Twice the number of each row; what it is asked for is listed."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def prepare(self, advance: Advance) -> None:
        self.calls.append("prepare")
        advance(5)

    def read(self, start: int, stop: int, out: np.ndarray) -> None:
        self.calls.append(f"read {start}:{stop}")
        out[:] = 2 * np.arange(start, stop)

    def close(self) -> None:
        self.calls.append("close")


@given(shape=st.lists(st.integers(0, 9), min_size=1, max_size=6), data=st.data())
def test_moved_axes_are_those_of_numpy(shape: list[int], data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    assert moved(shape, axis) == np.moveaxis(np.empty(shape), axis, 0).shape


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("first", [0, 64, 130])
def test_stored_rows_begin_at_the_first(tmp_path: Path, first: int, threads: int) -> None:
    with open_store(write_store(tmp_path, "h5", 500).source) as store:
        rows = StoredRows(store["x"], first, threads=threads)
        for start, stop in ((0, 1), (0, 300), (63, 65), (299, 300)):
            out = np.empty((stop - start, 4, 4), np.uint8)
            rows.read(start, stop, out)
            assert np.array_equal(out, rows_array(range(first + start, first + stop)))
        rows.close()
        # The source is left open.
        assert np.array_equal(store["x"].read(0, 2), rows_array(2))


def test_a_derived_array_reads_what_its_rows_fill() -> None:
    rows = Doubled()
    array = DerivedArray(ArrayInfo("order", (100,), np.dtype("i8")), rows, None)
    advanced: list[int] = []
    array.prepare(advanced.append)
    assert np.array_equal(array.read(3, 9), 2 * np.arange(3, 9))
    out = np.empty(4, np.int64)
    assert array.read(96, 100, out) is out
    assert np.array_equal(out, [192, 194, 196, 198])
    assert array.read(5, 5).shape == (0,)
    array.close()
    assert rows.calls == ["prepare", "read 3:9", "read 96:100", "close"]
    assert advanced == [5]
    assert (array.store, array.decoded_rows) == ("order", 0)


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (3, 2), (0, 101)])
def test_rows_that_are_not_there(start: int, stop: int) -> None:
    rows = Doubled()
    with pytest.raises(ValueError, match="100"):
        DerivedArray(ArrayInfo("order", (100,), np.dtype("i8")), rows, None).read(start, stop)
    assert rows.calls == []


@pytest.mark.parametrize("out", [np.empty(3, "i8"), np.empty(2, "i4"), np.empty((2, 1), "i8")])
def test_memory_that_does_not_fit(out: np.ndarray) -> None:
    rows = Doubled()
    with pytest.raises(ValueError, match="out"):
        DerivedArray(ArrayInfo("order", (100,), np.dtype("i8")), rows, None).read(0, 2, out)
    assert rows.calls == []


def test_a_derived_array_has_store_and_chunks_of_the_source(tmp_path: Path) -> None:
    with open_store(write_store(tmp_path, "h5", 500).source) as store:
        base = store["x"]
        array = DerivedArray(ArrayInfo("x", (500,), np.dtype("i8")), Doubled(), base)
        assert (array.store, array.decoded_rows) == (base.store, 64)
        assert array.reader is base.reader
