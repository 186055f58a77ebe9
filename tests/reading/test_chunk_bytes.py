"""Chunks read from files and decoded: how much is held, and what is said of damaged ones."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from chunk_forms import FORMS, ROWS, read, written
from chunked import Flip, write_layout
from numbered import rows_array
from oocloader.codecs import chain
from oocloader.errors import CorruptChunkError
from oocloader.reading.chunk_reader import ChunkReader


def test_gaps_do_not_add_up(tmp_path: Path) -> None:
    """A thousand small chunks, each with a gap behind it that is small enough to read."""
    array = rows_array(4, sample_shape=(1000, 2))
    layout = write_layout(tmp_path, array, (4, 1, 2), gap=60_000)
    reader = ChunkReader(layout)

    def held() -> int:
        assert np.array_equal(read(reader, 0, 4), array)
        return int(chain._buffers.stored.nbytes)

    with ThreadPoolExecutor(1) as fresh:
        assert fresh.submit(held).result() <= reader.scratch_nbytes < 5 << 20


@pytest.mark.parametrize("form", ["whole rows", "cut across", "whole rows, a file each"])
@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.parametrize("stored", [5, 10_000, 2**40])
def test_a_chunk_of_another_size(tmp_path: Path, form: str, coded: bool, stored: int) -> None:
    """The table of chunks says so, rightly or not: what it names is damaged, not read beyond, not guessed."""
    flip = Flip() if coded else None
    layout, expected = written(tmp_path, FORMS[form], step=flip)
    chunk = 3
    layout.stored[chunk] = stored
    reader = ChunkReader(layout)
    index = tuple(int(i) for i in np.unravel_index(chunk, layout.grid))
    first = index[0] * layout.chunk_shape[0]
    with pytest.raises(CorruptChunkError) as caught:
        read(reader, first, first + 2)
    assert f"array 'x', chunk {index}, rows {first} to {first + layout.chunk_shape[0] - 1}: damaged: " in str(
        caught.value
    )
    assert caught.value.chunk == index
    assert caught.value.rows == (first, first + layout.chunk_shape[0])
    assert caught.value.file == layout.files.path(int(layout.file[chunk]))
    if not coded and layout.whole_rows:
        with pytest.raises(CorruptChunkError, match=f"{stored} stored bytes, expected {layout.chunk_nbytes}"):
            reader.map(first, first + 2)
    last = layout.chunk_shape[0] * (layout.grid[0] - 1)
    assert np.array_equal(read(reader, last, ROWS), expected[last:])


def test_a_chunk_that_does_not_decode(tmp_path: Path) -> None:
    flip = Flip()
    layout, expected = written(tmp_path, {"chunk_shape": (64, 4, 3)}, step=flip)
    flip.damaged.add((~expected[128:192]).tobytes())
    reader = ChunkReader(layout)
    with pytest.raises(CorruptChunkError) as caught:
        read(reader, 100, 300)
    assert str(caught.value) == (
        f"{tmp_path}/data.bin: array 'x', chunk (2, 0, 0), rows 128 to 191: damaged: flip: not what it was; "
        "restore the file from a copy"
    )
    assert np.array_equal(read(reader, 192, 300), expected[192:300])
