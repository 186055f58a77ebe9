"""Where blocks and windows cut no chunk, or chunks that are cheap to keep."""

from __future__ import annotations

import pytest

from oocloader.memory.alignment import BLOCK, ChunkAlignment, Column, chunk_alignment
from oocloader.sizes import MIB


def column(
    row_nbytes: int, chunk_rows: int | None, *, access: bool = False, chunk_origins: tuple[int, ...] = (0,)
) -> Column:
    return Column(
        "x", row_nbytes, row_nbytes, chunk_rows, 1000, row_access=access, chunk_origins=chunk_origins
    )


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        ([column(10, None, access=True)], ChunkAlignment(1, 1, (0,))),
        ([column(10, 64)], ChunkAlignment(64, 64, (0,))),
        ([column(10, 64), column(500, 100)], ChunkAlignment(1600, 100, (0,))),
        ([column(300, 64), column(300, 100)], ChunkAlignment(1600, 1600, (0,))),
        ([column(300, 64), column(500, 100)], ChunkAlignment(100, 100, (0,))),  # 1,600 rows would be too much
        ([column(8, 5000), column(12288, 256)], ChunkAlignment(256, 256, (0,))),
        ([column(8, 128), column(12288, 256)], ChunkAlignment(256, 256, (0,))),
        ([column(8, 512), column(200, 256)], ChunkAlignment(512, 256, (0,))),
        # What is decoded goes before what is larger, if it is not small beside it.
        ([column(100, 100, access=True), column(8, 64)], ChunkAlignment(1600, 64, (0,))),
        ([column(1000, None, access=True), column(100, 64)], ChunkAlignment(64, 64, (0,))),
        ([column(12288, None, access=True), column(8, 5000)], ChunkAlignment(1, 1, (0,))),
        ([column(12288, None, access=True), column(8, 64)], ChunkAlignment(64, 1, (0,))),
        ([column(10, 100, access=True)], ChunkAlignment(100, 1, (0,))),
        ([column(BLOCK, 100, access=True)], ChunkAlignment(1, 1, (0,))),
        ([column(10, 64, chunk_origins=(0, 100))], ChunkAlignment(64, 64, (0, 100))),
        ([column(10, 64, chunk_origins=(0, 100)), column(1, 10)], ChunkAlignment(64, 64, (0, 100))),
        (
            [column(10, 64, chunk_origins=(0, 100)), column(1, 10, chunk_origins=(0, 100))],
            ChunkAlignment(320, 320, (0, 100)),
        ),
    ],
)
def test_alignment(columns: list[Column], found: ChunkAlignment) -> None:
    assert chunk_alignment(columns, shuffle=True) == found


GIB = 1024 * MIB


@pytest.mark.parametrize(
    ("columns", "rows", "window_rows", "unit"),
    [
        # Chunks of 64 and of 100 rows join where windows hold enough blocks of them, or nobody asked.
        ([column(280, 64), column(8, 100)], 10_000, None, 1600),
        ([column(280, 64), column(8, 100)], 10_000, 32 * 1600, 1600),
        ([column(280, 64), column(8, 100)], 10_000, 32 * 1600 - 1, 64),
        ([column(280, 64), column(8, 100)], 10_000, 2000, 64),
        ([column(280, 64), column(8, 100)], 10**7, 2000, 1600),  # 80 MB of labels are not kept for that
        # The smaller chunks decide, though their array is the smaller one.
        ([column(4, 256), column(8, 1000)], 100_000, 10_000, 256),
        ([column(4, 256), column(8, 100_000)], 100_000, 10_000, 256),
        ([column(4, 256), column(8, 100)], 100_000, 10_000, 100),
        ([column(4, 256), column(8, 1000)], 10**8, 10**6, 32_000),
        # Chunks that need no decoding may be cut anywhere.
        ([column(100, 5000, access=True)], 100_000, 10_000, 1),
        ([column(100, 256, access=True)], 100_000, 10_000, 256),
        ([column(100, None, access=True), column(4, 5000)], 100_000, 10_000, 1),
        ([column(100, None, access=True), column(4, 5000)], GIB, 10_000, 5000),
        # What must be decoded is not cut, however few blocks a window holds.
        ([column(12288, 256)], 80_000, 1000, 256),
        ([column(12288, 256), column(8, 100)], 80_000, 1000, 256),
    ],
)
def test_blocks_are_so_small_that_a_window_asked_for_mixes(
    columns: list[Column], rows: int, window_rows: int | None, unit: int
) -> None:
    assert chunk_alignment(columns, shuffle=True, rows=rows, window_rows=window_rows).unit == unit
    in_order = chunk_alignment(columns, shuffle=False)
    assert chunk_alignment(columns, shuffle=False, rows=rows, window_rows=window_rows) == in_order


def test_larger_chunks_that_need_no_decoding_are_kept_whole_in_stored_order() -> None:
    raw = [column(12288, 1000, access=True)]
    assert chunk_alignment(raw, shuffle=True) == ChunkAlignment(1, 1, (0,))
    assert chunk_alignment(raw, shuffle=False) == ChunkAlignment(1000, 1, (0,))
