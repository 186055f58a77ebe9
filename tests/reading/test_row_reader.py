"""Rows from memory, from another library, from files and from several stores, all by one contract."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from chunked import Flip, write_layout
from library import Library
from numbered import rows_array
from oocloader.metrics.counters import Counters
from oocloader.order.order import Order, RowSet
from oocloader.reading.chunk_reader import ChunkReader
from oocloader.reading.joined_reader import JoinedReader
from oocloader.reading.memory_reader import MemoryReader
from oocloader.reading.read_rows import read_rows
from oocloader.reading.row_reader import RowReader, Target
from oocloader.reading.shared_chunks import SharedChunks

ROWS = 300
SAMPLE = (5, 2)


def memory(array: np.ndarray, folder: Path) -> RowReader:
    return MemoryReader(array)


def library(array: np.ndarray, folder: Path) -> RowReader:
    return Library(array).reader()


def unchunked_library(array: np.ndarray, folder: Path) -> RowReader:
    return Library(array).reader(None)


def chunks(array: np.ndarray, folder: Path) -> RowReader:
    return ChunkReader(write_layout(folder, array, (64, 2, 2), step=Flip()))


def raw(array: np.ndarray, folder: Path) -> RowReader:
    return ChunkReader(write_layout(folder, array))


def joined(array: np.ndarray, folder: Path) -> RowReader:
    kinds = (memory, library, chunks, raw, unchunked_library)
    cuts = np.linspace(0, len(array), len(kinds) + 1).astype(int)
    return JoinedReader(
        [
            kind(array[start:stop], folder / str(at))
            for at, (kind, start, stop) in enumerate(zip(kinds, cuts, cuts[1:], strict=False))
        ]
    )


MAKERS = (memory, library, unchunked_library, chunks, raw, joined)
Maker = Callable[[np.ndarray, Path], RowReader]


@pytest.mark.parametrize("make", MAKERS)
class TestEveryReader:
    """What holds for all of them."""

    @pytest.mark.parametrize("dtype", ["bool", "uint8", ">i2", "float32"])
    def test_rows(self, make: Maker, tmp_path: Path, dtype: str) -> None:
        array = rows_array(ROWS, dtype, sample_shape=SAMPLE)
        reader = make(array, tmp_path)
        assert reader.shape == array.shape
        assert reader.dtype == array.dtype.newbyteorder("=")
        assert reader.dtype.isnative
        for start, stop in ((0, ROWS), (17, 18), (59, 61), (0, 1), (100, 250)):
            out = np.zeros((stop - start, *SAMPLE), reader.dtype)
            read_rows(reader, start, stop, out)
            assert np.array_equal(out, array[start:stop])

    @pytest.mark.parametrize("shuffle", [False, True])
    @pytest.mark.parametrize(("block", "window"), [(20, 80), (7, 33), (1, 2), (400, 400)])
    @pytest.mark.parametrize("every", [1, 3, 50])
    def test_a_pass(
        self, make: Maker, tmp_path: Path, shuffle: bool, block: int, window: int, every: int
    ) -> None:
        array = rows_array(ROWS, sample_shape=SAMPLE)
        picked = np.arange(1, ROWS, every)
        rows = RowSet(1, ROWS) if every == 1 else RowSet(1, int(picked[-1]) + 1, picked)
        reader = make(array, tmp_path)
        order = Order(
            rows, shuffle=shuffle, seed=5, block=block, window=window, chunk_origins=reader.chunk_origins
        )
        shared_chunks = SharedChunks(rows.count)
        with ThreadPoolExecutor(3) as pool:
            for at in order.windows(0):
                out = np.full((at.rows, *SAMPLE), 99, reader.dtype)
                expected = out.copy()
                for span in at.spans:
                    brought = array[span.start : span.stop]
                    expected[span.dest_index] = brought if span.row_index is None else brought[span.row_index]
                for done in [
                    pool.submit(job) for job in reader.jobs(at.spans, Target(out, shared_chunks, Counters()))
                ]:
                    done.result()
                assert np.array_equal(out, expected)
        assert shared_chunks.held_nbytes == 0

    def test_what_is_read_is_the_callers_own(self, make: Maker, tmp_path: Path) -> None:
        array = rows_array(ROWS, sample_shape=SAMPLE)
        reader = make(array.copy(), tmp_path)
        out = np.zeros((ROWS, *SAMPLE), np.uint8)
        read_rows(reader, 0, ROWS, out)
        out[:] = 200
        again = np.zeros_like(out)
        read_rows(reader, 0, ROWS, again)
        assert np.array_equal(again, array)

    def test_close_twice(self, make: Maker, tmp_path: Path) -> None:
        reader = make(rows_array(ROWS, sample_shape=SAMPLE), tmp_path)
        reader.close()
        reader.close()
