"""Runs of bytes: what is read with one call, by tables of where chunks lie."""

from __future__ import annotations

import numpy as np
import pytest

from oocloader.codecs.chain import Chain
from oocloader.errors import CorruptChunkError
from oocloader.reading.byte_ranges import (
    GAP_NBYTES,
    TOGETHER_NBYTES,
    RowRun,
    RowRuns,
    chunk_runs,
    in_file_order,
    near_each_other,
    stretches,
)
from oocloader.reading.layout import Files, Layout

ROW, CHUNK_ROWS = 10, 4
CHUNK = ROW * CHUNK_ROWS


def layout_of(places: list[tuple[int, int]], *, stored: list[int] | None = None, columns: int = 1) -> Layout:
    """Chunks of 4 rows of 10 bytes at (file, offset); file -1: not there. `columns` of them make a row."""
    shared_chunks = len(places) // columns
    return Layout(
        array="x",
        shape=(shared_chunks * CHUNK_ROWS, columns * ROW),
        dtype=np.dtype("u1"),
        chunk_shape=(CHUNK_ROWS, ROW),
        files=Files("/nowhere", ("a", "b", "c"), np.full(3, 1 << 30), np.zeros(3, np.int64)),
        file=np.array([file for file, _ in places], np.int32),
        offset=np.array([offset for _, offset in places], np.int64),
        stored=np.array(stored or [CHUNK if file >= 0 else 0 for file, _ in places], np.int64),
        mask=np.zeros(len(places), np.uint32),
        chain=Chain(),
        axes=None,
        fill=np.zeros((), np.uint8),
    )


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (0, 4, [(0, 100, 40, 0)]),
        (1, 3, [(0, 110, 20, 0)]),
        # The second chunk follows the first, the third lies elsewhere, the fourth is in another file.
        (2, 14, [(0, 120, 60, 0), (0, 500, 40, 6), (1, 0, 20, 10)]),
        (12, 24, [(1, 0, 40, 0), (-1, 0, 80, 4)]),
        (23, 24, [(-1, 30, 10, 0)]),
    ],
)
def test_runs_of_rows(start: int, stop: int, expected: list[tuple[int, int, int, int]]) -> None:
    layout = layout_of([(0, 100), (0, 140), (0, 500), (1, 0), (-1, 0), (-1, 0)])
    found = RowRuns(layout).of(start, stop)
    # Where nothing is stored there is no offset.
    assert [(run.file, run.offset * (run.file >= 0), run.nbytes, run.at) for run in found] == [
        (file, offset * (file >= 0), nbytes, at) for file, offset, nbytes, at in expected
    ]
    assert [run.row for run in found] == [start + run.at for run in found]


def test_a_raw_chunk_of_another_size_is_damaged() -> None:
    layout = layout_of([(0, 0), (0, 40), (0, 80)], stored=[40, 39, 40])
    assert RowRuns(layout).of(0, 4) == [RowRun(0, 0, 40, 0, 0)]
    with pytest.raises(CorruptChunkError, match="39 stored bytes, expected 40") as caught:
        RowRuns(layout).of(0, 12)
    assert caught.value.chunk == (1, 0)


def test_runs_of_several_ranges() -> None:
    layout = layout_of([(0, 100), (0, 140), (0, 500), (1, 0), (-1, 0), (-1, 0)])
    # Each range begins a run, also where the one before ends there.
    assert RowRuns(layout).of_each([(1, 3), (3, 9), (14, 23)]) == [
        [RowRun(0, 110, 20, 0, 1)],
        [RowRun(0, 130, 50, 0, 3), RowRun(0, 500, 10, 5, 8)],
        [RowRun(1, 20, 20, 0, 14), RowRun(-1, 0, 70, 2, 16)],
    ]
    with pytest.raises(CorruptChunkError, match="39 stored bytes"):
        RowRuns(layout_of([(0, 0), (0, 40)], stored=[40, 39])).of_each([(0, 2), (6, 7)])


def test_what_lies_near_is_fetched_together() -> None:
    far = 300 + GAP_NBYTES
    runs = [(0, 100, 50), (0, 200, 50), (0, far, 7), (-1, 0, 9), (1, 0, 5), (1, 5, 5), (0, 3, 4), (0, 2, 1)]
    made = [RowRun(file, offset, nbytes, 0, 0) for file, offset, nbytes in runs]
    # What lies before the run before it is wanted by itself.
    assert list(near_each_other(made)) == [
        (0, [(100, 150), (far, 7)]),
        (1, [(0, 10)]),
        (0, [(3, 4), (2, 1)]),
    ]


def chunks_of(layout: Layout, chunks: list[int]) -> list[tuple[int, int, int, list[int]]]:
    return [
        (run.file, run.begin, run.end, [chunk for chunk, *_ in run.chunks])
        for run in chunk_runs(layout, chunks)
    ]


def test_runs_of_chunks() -> None:
    near, far = 140 + GAP_NBYTES, 1000 + 3 * GAP_NBYTES
    layout = layout_of([(0, 100), (0, near), (0, far), (1, 0), (-1, 0), (-1, 0), (1, 40)])
    assert chunks_of(layout, [0, 1, 2, 3]) == [
        (0, 100, near + 40, [0, 1]),
        (0, far, far + 40, [2]),
        (1, 0, 40, [3]),
    ]
    # Between others may lie chunks that nobody wants, of other rows.
    assert chunks_of(layout, [3, 6]) == [(1, 0, 40, [3]), (1, 40, 80, [6])]
    assert chunks_of(layout, [4, 5]) == [(-1, 0, 0, [4, 5])]
    run = next(chunk_runs(layout, [0, 1]))
    assert run.chunks == [(0, 0, 0, 40), (1, 1, near - 100, 40)]


def test_no_run_of_chunks_is_too_long() -> None:
    nbytes = TOGETHER_NBYTES // 2
    layout = layout_of([(0, at * nbytes) for at in range(5)], stored=[nbytes] * 5)
    assert [chunks for *_, chunks in chunks_of(layout, [0, 1, 2, 3, 4])] == [[0, 1], [2, 3], [4]]


def test_chunks_that_cut_rows_are_of_one_band() -> None:
    layout = layout_of([(0, at * CHUNK) for at in range(6)], columns=3)
    assert [[band for _, band, *_ in run.chunks] for run in chunk_runs(layout, [0, 1, 2, 3, 4, 5])] == [
        [0, 0, 0, 1, 1, 1]
    ]


def test_file_order() -> None:
    layout = layout_of([(2, 80), (2, 0), (0, 50), (1, 7), (0, 10), (-1, 0)])
    # Files in the order of their rows, and in each of them the chunks as they lie.
    assert in_file_order(layout, np.arange(5)).tolist() == [1, 0, 4, 2, 3]
    assert in_file_order(layout, np.array([2, 4])).tolist() == [4, 2]


def test_stretches_to_fetch() -> None:
    layout = layout_of([(0, 0), (0, 60), (1, 0), (1, 900), (-1, 0)])
    # Chunks of a file that lie far apart are not fetched with all that lies between them.
    assert list(stretches(layout, range(5))) == [(0, 0, 100)]
    assert list(stretches(layout, [3])) == [(1, 900, 40)]
    assert list(stretches(layout, [4])) == []
