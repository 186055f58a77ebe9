"""Rows of several stores, one behind the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunked import Flip, write_layout
from library import Library
from numbered import rows_array
from oocloader.order.order import Order, RowSet
from oocloader.reading.chunk_reader import ChunkReader
from oocloader.reading.joined_reader import JoinedReader
from oocloader.reading.memory_reader import MemoryReader
from oocloader.reading.row_reader import RowReader


def raw(array: np.ndarray, folder: Path) -> RowReader:
    return ChunkReader(write_layout(folder, array))


def parts(lengths: Sequence[int], chunk_rows: Sequence[int | None]) -> JoinedReader:
    readers: list[RowReader] = []
    for rows, chunk in zip(lengths, chunk_rows, strict=True):
        array = rows_array(rows)
        readers.append(MemoryReader(array) if chunk is None else Library(array).reader(chunk))
    return JoinedReader(readers)


@pytest.mark.parametrize(
    ("lengths", "chunks", "chunk_rows", "chunk_origins"),
    [
        ([100, 50], [None, None], None, (0,)),
        ([100, 50], [10, 10], 10, (0,)),
        ([105, 50, 30], [10, 10, 10], 10, (0, 105)),
        ([105, 55, 30], [10, 10, 10], 10, (0, 105, 160)),
        ([100, 50], [20, 10], 20, (0,)),
        ([100, 50, 10], [10, 20, 10], 20, (0, 150)),
        ([100, 50, 10], [20, 15, 20], 20, (0, 100, 115, 130, 145, 150)),
        ([100, 50], [15, 20], 20, (0, 15, 30, 45, 60, 75, 90, 100)),
        ([100, 55, 10], [None, 20, None], 20, (0, 155)),
        ([5, 5, 100], [20, 20, 20], 20, (0, 5, 10)),
        ([100], [7], 7, (0,)),
    ],
)
def test_where_chunks_of_parts_begin(
    lengths: list[int], chunks: list[int | None], chunk_rows: int | None, chunk_origins: tuple[int, ...]
) -> None:
    reader = parts(lengths, chunks)
    assert reader.chunk_rows == chunk_rows
    assert reader.chunk_origins == chunk_origins


def test_parts_of_parts() -> None:
    inner = parts([105, 50], [10, 10])
    assert JoinedReader([parts([33], [10]), inner]).chunk_origins == (0, 33, 138)


@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=4),
    data=st.data(),
    shuffle=st.booleans(),
    blocks=st.integers(1, 3),
    per_window=st.integers(1, 4),
)
def test_no_chunk_of_a_part_is_cut(
    lengths: list[int], data: st.DataObject, shuffle: bool, blocks: int, per_window: int
) -> None:
    """Blocks and windows that are multiples of `chunk_rows` from `chunk_origins` take chunks whole."""
    chunk_rows = [data.draw(st.integers(1, 20)) for _ in lengths]
    reader = parts(lengths, list(chunk_rows))
    assert reader.chunk_rows is not None
    total = sum(lengths)
    block = blocks * reader.chunk_rows
    order = Order(
        RowSet(0, total),
        shuffle=shuffle,
        seed=0,
        block=block,
        window=per_window * block,
        chunk_origins=reader.chunk_origins,
    )
    first = np.cumsum([0, *lengths])
    taken: Counter[tuple[int, int]] = Counter()
    for window in order.windows(0):
        rows = np.concatenate([np.arange(span.start, span.stop) for span in window.spans])
        part = np.searchsorted(first, rows, side="right") - 1
        taken.update(
            set(
                zip(part.tolist(), ((rows - first[part]) // np.array(chunk_rows)[part]).tolist(), strict=True)
            )
        )
    assert set(taken.values()) == {1}


def test_rows_of_parts_are_mapped_where_one_part_has_them(tmp_path: Path) -> None:
    array = rows_array(128, sample_shape=(8, 8))
    reader = JoinedReader([raw(array[:64], tmp_path / "a"), raw(array[64:], tmp_path / "b")])
    assert reader.row_access
    for start, stop in ((0, 64), (3, 9), (64, 128), (70, 71)):
        found = reader.map(start, stop)
        assert found is not None
        assert np.array_equal(found, array[start:stop])
    assert reader.map(63, 65) is None


def test_parts_are_read_alone_only_if_all_are(tmp_path: Path) -> None:
    array = rows_array(64, sample_shape=(8, 8))
    assert not JoinedReader(
        [
            raw(array, tmp_path / "a"),
            ChunkReader(write_layout(tmp_path / "b", array, (64, 2, 2), step=Flip())),
        ]
    ).row_access


def test_close_closes_every_part() -> None:
    sources = [Library(rows_array(10)), Library(rows_array(20))]
    JoinedReader([source.reader() for source in sources]).close()
    assert [source.closed for source in sources] == [1, 1]
