"""What is said of rows that cannot be read: file, array, chunk, rows."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from chunk_forms import FORMS, read, written
from chunked import write_layout
from numbered import rows_array
from oocloader.errors import ChangedError, StoreError
from oocloader.reading.chunk_reader import ChunkReader
from oocloader.reading.layout import Layout
from oocloader.reading.read_errors import damaged, error_context, rows_of


@pytest.mark.parametrize("form", ["one run", "whole rows", "whole rows, a file each", "cut across"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda path: os.truncate(path, 20), "the file changed: it has 20 bytes now and had"),
        (lambda path: os.utime(path, ns=(0, 1)), "the file changed: it was modified since"),
        (os.remove, "the file was removed since"),
    ],
)
def test_changed_files(tmp_path: Path, form: str, change: Callable[[str], None], words: str) -> None:
    layout, expected = written(tmp_path, FORMS[form])
    reader = ChunkReader(layout)
    across = int(np.prod(layout.grid[1:]))
    path = layout.files.path(int(layout.file[2 * across if len(layout.file) > 2 * across else 0]))
    change(path)
    first = 2 * layout.chunk_shape[0] if len(layout.file) > 2 * across else 0
    with pytest.raises(ChangedError) as caught:
        read(reader, first, first + 1)
    assert str(caught.value).startswith(f"{path}: array 'x', rows {first} to ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.file == path
    assert caught.value.array == "x"
    assert caught.value.rows is not None
    assert caught.value.rows[0] == first
    if form.endswith("each"):
        assert np.array_equal(read(reader, 0, 3), expected[:3])
    elif form == "one run":
        with pytest.raises(ChangedError, match=words):
            reader.map(0, 16)


def test_an_error_of_the_disk_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(5, "Input/output error")

    for form in ("one run", "cut across"):
        layout, _ = written(tmp_path / form, FORMS[form])
        with monkeypatch.context() as patched:
            patched.setattr(os, "preadv", fail)
            with pytest.raises(StoreError) as caught:
                read(ChunkReader(layout), 64, 65)
        path = layout.files.path(0)
        assert str(caught.value).startswith(f"{path}: array 'x', rows 64 to ")
        assert str(caught.value).endswith("cannot be read: Input/output error")


def layout_of(folder: Path) -> Layout:
    return write_layout(folder, rows_array(450, sample_shape=(4, 3)), (64, 3, 2))


@pytest.mark.parametrize(("chunk", "rows"), [(0, (0, 64)), (3, (0, 64)), (4, (64, 128)), (31, (448, 450))])
def test_rows_of_a_chunk(tmp_path: Path, chunk: int, rows: tuple[int, int]) -> None:
    layout = layout_of(tmp_path)
    assert rows_of(layout, chunk) == rows
    error = damaged(layout, chunk, "because")
    assert error.rows == rows
    assert error.chunk == (chunk // 4, chunk // 2 % 2, chunk % 2)
    assert str(error).endswith(
        f"rows {rows[0]} to {rows[1] - 1}: damaged: because; restore the file from a copy"
    )


@pytest.mark.parametrize(("rows", "told"), [((3, 9), "rows 3 to 8"), (4, "rows 64 to 127")])
def test_errors_get_to_know_array_and_rows(tmp_path: Path, rows: tuple[int, int] | int, told: str) -> None:
    layout = layout_of(tmp_path)
    with pytest.raises(ChangedError) as caught, error_context(layout, rows):
        raise ChangedError("/data/a: it grew", file="/data/a")
    assert str(caught.value) == f"/data/a: array 'x', {told}: it grew"
    assert (caught.value.file, caught.value.array) == ("/data/a", "x")
    # Whoever knows less does not say it again.
    with pytest.raises(ChangedError) as outer, error_context(layout, (0, 1)):
        raise caught.value
    assert outer.value is caught.value


def test_errors_of_others_stay_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^no$"), error_context(layout_of(tmp_path), 0):
        raise ValueError("no")
