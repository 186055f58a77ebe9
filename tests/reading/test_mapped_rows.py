"""Rows as mappings of their files: the same rows, or none where that cannot be."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chunk_forms import ALL, read, written
from chunked import Flip, open_files, write_layout
from numbered import rows_array
from oocloader.errors import ChangedError
from oocloader.order.row_spans import RowSpan
from oocloader.reading.chunk_reader import ChunkReader
from oocloader.reading.layout import Layout

PAGE = 4096


def mapped(reader: ChunkReader, start: int, stop: int) -> np.ndarray:
    found = reader.map(start, stop)
    assert found is not None
    assert found.ctypes.data % 64 == 0
    assert found.shape == (stop - start, *reader.shape[1:])
    return found


def test_map_one_run(tmp_path: Path) -> None:
    array = rows_array(1000, "float32", sample_shape=(8, 4))
    reader = ChunkReader(write_layout(tmp_path, array, lead=128))
    for start, stop in ((0, 1000), (500, 501), (3, 999)):
        found = mapped(reader, start, stop)
        assert np.array_equal(found, array[start:stop])
        found += 1
        assert np.array_equal(read(reader, start, stop), array[start:stop])


@pytest.mark.parametrize("file_each", [False, True])
@pytest.mark.parametrize("gap", [0, PAGE])
def test_map_chunks_on_page_borders(tmp_path: Path, file_each: bool, gap: int) -> None:
    array = rows_array(640, sample_shape=(64, 64))
    form: dict[str, Any] = {"file_each": True} if file_each else {"gap": gap}
    reader = ChunkReader(write_layout(tmp_path, array, (64, 64, 64), **form))
    before = len(open_files())
    found = mapped(reader, 5, 300)
    assert np.array_equal(found, array[5:300])
    found[:] = 0
    assert np.array_equal(read(reader, 5, 300), array[5:300])
    assert len(open_files()) <= before + 10


@pytest.mark.parametrize(
    ("form", "dtype", "rows"),
    [
        ({"lead": 65}, "uint8", (0, 10)),  # not on a multiple of 64 bytes
        ({}, "uint8", (1, 10)),
        ({}, ">f4", (0, 16)),
        ({"axes": (2, 1, 0)}, "uint8", (0, 16)),
        ({"chunk_shape": (64, 4, 2)}, "uint8", (0, 16)),
        ({"chunk_shape": (64, 4, 3), "gap": 1}, "uint8", (0, 128)),  # two chunks, not on page borders
        ({"chunk_shape": (64, 4, 3), "missing": {1}}, "uint8", (0, 128)),
        ({"chunk_shape": (64, 4, 3), "missing": {1}}, "uint8", (64, 128)),
    ],
)
def test_what_cannot_be_mapped_is_read(
    tmp_path: Path, form: dict[str, Any], dtype: str, rows: tuple[int, int]
) -> None:
    layout, expected = written(tmp_path, form, dtype=dtype)
    reader = ChunkReader(layout)
    assert reader.map(*rows) is None
    assert np.array_equal(read(reader, *rows), expected[slice(*rows)])


def test_compressed_chunks_are_not_mapped(tmp_path: Path) -> None:
    layout, _ = written(tmp_path, {}, step=Flip())
    assert ChunkReader(layout).map(0, 16) is None
    assert ChunkReader(layout).view(ALL) is None


def test_files_elsewhere_are_not_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout, expected = written(tmp_path, {})
    monkeypatch.setattr("oocloader.reading.mapped_rows.on_local_file_system", lambda folder: False)
    assert ChunkReader(layout).map(0, 16) is None
    assert np.array_equal(read(ChunkReader(layout), 0, 16), expected[:16])


@pytest.mark.parametrize(
    "form",
    [{}, {"lead": 129}, {"chunk_shape": (64, 4, 3)}, {"chunk_shape": (1, 4, 3)}],
    ids=["one run", "one run anywhere", "chunks side by side", "chunks of one row"],
)
def test_view(tmp_path: Path, form: dict[str, Any]) -> None:
    layout, expected = written(tmp_path, form)
    reader = ChunkReader(layout)
    view = reader.view(ALL)
    assert view is not None
    assert np.array_equal(view, expected)
    assert not view.flags.owndata
    assert reader.view(ALL) is view
    assert reader.mapped_nbytes == expected.nbytes


@pytest.mark.parametrize("gap", [0, PAGE])
def test_view_of_chunks_in_their_own_files(tmp_path: Path, gap: int) -> None:
    array = rows_array(640, sample_shape=(64, 64))
    form: dict[str, Any] = {"gap": gap} if gap else {"file_each": True}
    view = ChunkReader(write_layout(tmp_path, array, (64, 64, 64), **form)).view(ALL)
    assert view is not None
    assert np.array_equal(view, array)


@pytest.mark.parametrize(
    ("form", "dtype"),
    [
        ({}, ">f4"),
        ({"axes": (2, 1, 0)}, "uint8"),
        ({"chunk_shape": (64, 4, 2)}, "uint8"),
        ({"chunk_shape": (64, 4, 3), "gap": 1}, "uint8"),
        ({"chunk_shape": (64, 4, 3), "file_each": True}, "uint8"),
        ({"chunk_shape": (64, 4, 3), "missing": {1}}, "uint8"),
    ],
)
def test_no_view(tmp_path: Path, form: dict[str, Any], dtype: str) -> None:
    layout, _ = written(tmp_path, form, dtype=dtype)
    reader = ChunkReader(layout)
    assert reader.view(ALL) is None
    assert reader.mapped_nbytes == 0


@pytest.mark.parametrize("file_each", [False, True])
def test_a_view_notices_that_its_file_changed(tmp_path: Path, file_each: bool) -> None:
    array = rows_array(64 * 70, sample_shape=(8, 8))
    reader = ChunkReader(write_layout(tmp_path, array, (64, 8, 8), file_each=file_each))
    assert reader.view(ALL) is not None
    path = reader._layout.files.path(len(reader._layout.files.names) - 1)
    os.truncate(path, os.path.getsize(path) - 1)
    last = [RowSpan(64 * 69, 64 * 70, None, slice(0, 64))]
    with pytest.raises(ChangedError, match="changed"):
        reader.view(last)
    if file_each:
        assert reader.view([RowSpan(0, 64, None, slice(0, 64))]) is not None


def test_bytes_behind_the_end_of_a_file_are_not_mapped(tmp_path: Path) -> None:
    """Touching them would end the process."""
    array = rows_array(1024, sample_shape=(4, 4))
    layout = write_layout(tmp_path, array)
    os.truncate(tmp_path / "data.bin", 8000)
    layout = Layout.contiguous(
        "x", array.shape, array.dtype, type(layout.files).of(f"{tmp_path}/data.bin"), 0
    )
    reader = ChunkReader(layout)
    assert reader.map(400, 600) is None
    with pytest.raises(
        ChangedError, match=r"array 'x', rows 400 to 599: the file ends at byte 8000, but bytes"
    ):
        read(reader, 400, 600)
    assert np.array_equal(mapped(reader, 0, 500), array[:500])
