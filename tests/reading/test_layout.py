"""Where chunks lie, and what follows from it."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chunked import write_layout
from numbered import rows_array
from oocloader.local_files import FileState
from oocloader.reading.layout import Files, Layout

ARRAY = rows_array(450, "int16", sample_shape=(4, 3))


@pytest.mark.parametrize(
    ("options", "grid", "whole_rows"),
    [
        ({}, (1, 1, 1), True),
        ({"axes": (2, 1, 0)}, (1, 1, 1), False),
        ({"chunk_shape": (64, 4, 3)}, (8, 1, 1), True),
        ({"chunk_shape": (64, 4, 3), "axes": (0, 2, 1)}, (8, 1, 1), False),
        ({"chunk_shape": (450, 3, 3)}, (1, 2, 1), False),
        ({"chunk_shape": (100, 3, 2)}, (5, 2, 2), False),
        ({"chunk_shape": (1000, 7, 5)}, (1, 1, 1), False),  # samples are only a part of what is stored
    ],
)
def test_chunks_of_an_array(
    tmp_path: Path, options: dict[str, Any], grid: tuple[int, ...], whole_rows: bool
) -> None:
    layout = write_layout(tmp_path, ARRAY, **options)
    assert layout.grid == grid
    assert layout.whole_rows is whole_rows
    assert len(layout.file) == len(layout.offset) == len(layout.stored) == len(layout.mask) == math.prod(grid)
    assert layout.row_nbytes == ARRAY[0].nbytes == 24
    chunk = np.zeros(options.get("chunk_shape", ARRAY.shape), ARRAY.dtype)
    assert layout.chunk_nbytes == chunk.nbytes == layout.stored[0]


def test_one_run_of_bytes(tmp_path: Path) -> None:
    path = tmp_path / "rows.bin"
    path.write_bytes(b"head" + ARRAY.tobytes())
    layout = Layout.contiguous("x", ARRAY.shape, ARRAY.dtype, Files.of(str(path)), 4)
    assert (layout.grid, layout.whole_rows, layout.chunk_nbytes) == ((1, 1, 1), True, ARRAY.nbytes)
    with open(layout.files.path(int(layout.file[0])), "rb") as stream:
        stream.seek(int(layout.offset[0]))
        assert stream.read(int(layout.stored[0])) == ARRAY.tobytes()
    assert layout.fill.shape == ()
    assert layout.fill.dtype == ARRAY.dtype


def test_an_array_without_rows_or_of_numbers(tmp_path: Path) -> None:
    path = tmp_path / "rows.bin"
    path.write_bytes(b"")
    files = Files.of(str(path))
    empty = Layout.contiguous("x", (0, 4), np.dtype("f4"), files, 0)
    assert (empty.row_nbytes, empty.chunk_nbytes, empty.stored.tolist()) == (16, 0, [0])
    numbers = Layout.contiguous("x", (0,), np.dtype("f8"), files, 0)
    assert numbers.row_nbytes == 8


def test_a_file_as_it_is_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.bin"
    path.write_bytes(b"12345")
    os.utime(path, ns=(1, 2_000_000_001))
    monkeypatch.chdir(tmp_path)
    files = Files.of("rows.bin")
    monkeypatch.chdir("/")
    assert files.path(0) == str(path)
    assert files.state(0) == FileState(5, 2_000_000_001) == FileState.of(str(path))
    path.write_bytes(b"123456")
    assert files.state(0) != FileState.of(str(path))
