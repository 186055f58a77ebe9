"""Tiles: neighbouring chunks of a band put to their rows together."""

from __future__ import annotations

import itertools
import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chunked import Flip, write_layout
from numbered import rows_array
from oocloader.errors import ChangedError, CorruptChunkError
from oocloader.metrics.counters import Counters
from oocloader.order.row_spans import RowSpan
from oocloader.reading.chunk_reader import ChunkReader
from oocloader.reading.layout import Layout
from oocloader.reading.row_reader import Target
from oocloader.reading.shared_chunks import SharedChunks
from oocloader.reading.tiles import Tiling


def layout_of(
    folder: Path,
    sample_shape: tuple[int, ...],
    chunk: tuple[int, ...],
    *,
    axes: tuple[int, ...] | None = None,
) -> tuple[Layout, np.ndarray]:
    """Two bands of three rows, uint16."""
    array = rows_array(6, "uint16", sample_shape=sample_shape)
    return write_layout(folder, array, (3, *chunk), axes=axes), array


@pytest.mark.parametrize(
    ("sample_shape", "chunk", "most_chunks", "expected"),
    [
        ((8, 6), (2, 2), 1000, 12),
        ((8, 6), (2, 2), 11, 6),
        # No more than divide the axis evenly.
        ((8, 6), (2, 2), 5, 3),
        ((8, 6), (2, 2), 2, 1),
        ((8, 6), (2, 6), 3, 2),
        ((8, 6), (8, 2), 3, 3),
        ((8, 6), (2, 2), 0, 1),
        # At the edge of samples there would be more in the chunks than in the rows.
        ((8, 6), (3, 2), 1000, 1),
        ((8, 6), (16, 2), 1000, 1),
        ((), (), 1000, 1),
        ((8, 6), (8, 6), 1000, 1),
    ],
)
def test_chunks_of_a_tile(
    tmp_path: Path,
    sample_shape: tuple[int, ...],
    chunk: tuple[int, ...],
    most_chunks: int,
    expected: int,
) -> None:
    layout, _ = layout_of(tmp_path, sample_shape, chunk)
    assert Tiling(layout, most_nbytes=most_chunks * layout.chunk_nbytes).chunks == expected


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(data=st.data())
def test_tiles_are_the_rows(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    chunk = tuple(data.draw(st.lists(st.integers(1, 3), max_size=3)))
    sample_shape = tuple(size * data.draw(st.integers(1, 4)) for size in chunk)
    axes = data.draw(st.none() | st.permutations(range(len(chunk) + 1)).map(tuple))
    layout, array = layout_of(tmp_path_factory.mktemp("layout"), sample_shape, chunk, axes=axes)
    most = data.draw(st.integers(0, 80))
    tiling = Tiling(layout, most_nbytes=most * layout.chunk_nbytes)
    assert tiling.chunks == 1 or tiling.chunks <= most
    stored = np.fromfile(layout.files.path(0), np.uint8)
    across = math.prod(layout.grid[1:])
    tiles = across // tiling.chunks
    found = np.zeros_like(array)
    for band, number in itertools.product(range(2), range(tiles)):
        at = int(layout.offset[band * across + number * tiling.chunks])
        decoded = stored[at : at + tiling.chunks * layout.chunk_nbytes]
        part = tiling.of(found[3 * band : 3 * band + 3], number)
        values = tiling.values(decoded)
        assert np.shares_memory(part, found)
        assert np.shares_memory(values, stored)
        part[...] = values
    assert np.array_equal(found, array)


def test_a_chunk_at_the_edge_has_more_than_its_rows(tmp_path: Path) -> None:
    layout, array = layout_of(tmp_path, (5, 4), (3, 4))
    tiling = Tiling(layout)
    assert tiling.of(array, 0).shape == (6, 3, 4)
    assert np.array_equal(tiling.of(array, 1), array[:, 3:])
    assert tiling.values(np.zeros(layout.chunk_nbytes, np.uint8)).shape == (3, 3, 4)


def test_where_tiles_lie_is_remembered_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oocloader.reading.tiles._MOST_PARTS", 2)
    layout, array = layout_of(tmp_path, (12,), (3,))
    tiling = Tiling(layout, most_nbytes=0)
    for _ in range(2):
        for number in range(4):
            assert np.array_equal(tiling.of(array, number), array[:, 3 * number : 3 * number + 3])
    assert len(tiling._parts) == 2


def reading(layout: Layout) -> tuple[np.ndarray, Counters]:
    reader, counters = ChunkReader(layout), Counters()
    out = np.zeros(layout.shape, reader.dtype)
    rows = layout.shape[0]
    for job in reader.jobs(
        [RowSpan(0, rows, None, slice(0, rows))], Target(out, SharedChunks(lambda lo, hi: 0), counters)
    ):
        job()
    reader.close()
    return out, counters


@pytest.mark.parametrize("step", [None, Flip()], ids=["raw", "flipped"])
def test_tiles_are_read_with_few_calls(tmp_path: Path, step: Flip | None) -> None:
    array = rows_array(6, "uint16", sample_shape=(8, 6))
    layout = write_layout(tmp_path, array, (3, 2, 2), step=step)
    found, counters = reading(layout)
    assert np.array_equal(found, array)
    assert (counters.read_calls, counters.read_bytes, counters.chunks_decoded) == (2, array.nbytes, 24)


def test_chunks_among_those_of_other_tiles_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = rows_array(4, "uint16", sample_shape=(8, 256))
    layout = write_layout(tmp_path, array, (4, 1, 64))
    # Each of the first half is followed by one of the other.
    order = np.arange(32).reshape(2, 16).T.reshape(-1)
    data = np.fromfile(layout.files.path(0), np.uint8).reshape(32, -1)
    data[order].tofile(layout.files.path(0))
    layout.offset[order] = np.arange(32) * layout.chunk_nbytes
    stat = os.stat(layout.files.path(0))
    layout.files.mtime_ns[0] = stat.st_mtime_ns
    monkeypatch.setattr(
        "oocloader.reading.tiles.Tiling.__init__.__kwdefaults__", {"most_nbytes": 16 * layout.chunk_nbytes}
    )
    found, counters = reading(layout)
    assert np.array_equal(found, array)
    assert counters.read_bytes == array.nbytes


@pytest.mark.parametrize("step", [None, Flip()], ids=["raw", "flipped"])
def test_what_is_wrong_with_a_tile(tmp_path: Path, step: Flip | None) -> None:
    array = rows_array(6, "uint16", sample_shape=(8, 6))
    layout = write_layout(tmp_path / "short", array, (3, 2, 2), step=step)
    layout.stored[17] -= 1
    with pytest.raises(CorruptChunkError, match=r"chunk \(1, 1, 2\), rows 3 to 5: damaged"):
        reading(layout)
    layout = write_layout(tmp_path / "beyond", array, (3, 2, 2), step=step)
    layout.offset[12:] += 1
    with pytest.raises(CorruptChunkError, match=r"chunk \(1, 3, 2\), rows 3 to 5: damaged: it ends at byte"):
        reading(layout)
    layout = write_layout(tmp_path / "cut", array, (3, 2, 2), step=step)
    os.truncate(layout.files.path(0), 300)
    with pytest.raises(ChangedError, match=r"array 'x', rows 0 to 2: the file changed"):
        reading(layout)
