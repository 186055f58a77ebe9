"""Rows from memory, from another library and from several stores, all by one contract."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunked import Flip, write_layout
from numbered import rows_array
from oocloader.errors import ChangedError, ClosedError, StoreError
from oocloader.metrics.counters import Counters
from oocloader.order.order import Order, RowSet
from oocloader.order.row_spans import RowSpan
from oocloader.reading.chunk_reader import ChunkReader
from oocloader.reading.row_reader import (
    JOB_NBYTES,
    JoinedReader,
    LibraryReader,
    MemoryReader,
    RowReader,
    Target,
    read_rows,
)
from oocloader.reading.shared_chunks import SharedChunks

ROWS = 300
SAMPLE = (5, 2)


class Library:
    """Another library: reads rows of `array`, records which, and notices when two threads come at once."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.asked: list[tuple[int, int]] = []
        self.failing: dict[int, Exception] = {}
        self.together = False
        self.closed = 0
        self._busy = threading.Lock()

    def read(self, start: int, stop: int, out: np.ndarray) -> None:
        self.together |= not self._busy.acquire(blocking=False)
        self.asked.append((start, stop))
        time.sleep(0.0001)
        error = self.failing.get(start)
        if error is None:
            assert out.flags.c_contiguous
            out[...] = self.array[start:stop]
        self._busy.release()
        if error is not None:
            raise error

    def close(self) -> None:
        self.closed += 1

    def reader(self, chunk_rows: int | None = 40) -> LibraryReader:
        return LibraryReader(
            self.read,
            shape=self.array.shape,
            dtype=self.array.dtype,
            chunk_rows=chunk_rows,
            store="data.h5",
            array="g/x",
            close=self.close,
        )


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
        assert shared_chunks.kept_nbytes == 0

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


def test_memory_is_never_mapped() -> None:
    reader = MemoryReader(rows_array(10))
    assert reader.map(0, 10) is None
    assert (reader.chunk_rows, reader.row_access) == (None, True)


def test_strided_memory() -> None:
    array = rows_array(50, "float32", sample_shape=(6, 4))[::2, 1::2, ::-1]
    out = np.zeros(array.shape, np.float32)
    read_rows(MemoryReader(array), 0, 25, out)
    assert np.array_equal(out, array)


def test_large_pieces_are_several_jobs() -> None:
    array = np.arange(3 * JOB_NBYTES // 8)
    out = np.zeros_like(array)
    jobs = MemoryReader(array).jobs(
        [RowSpan(0, len(array), None, slice(0, len(array)))],
        Target(out, SharedChunks(lambda lo, hi: 0), Counters()),
    )
    assert len(jobs) == 3
    for job in jobs:
        job()
    assert np.array_equal(out, array)


# -- another library


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_library_reads_whole_chunks_once_and_one_at_a_time(shuffle: bool) -> None:
    source = Library(rows_array(ROWS, sample_shape=SAMPLE))
    reader = source.reader(40)
    order = Order(RowSet(0, ROWS), shuffle=shuffle, seed=1, block=7, window=30)
    shared_chunks, counters = SharedChunks(order.rows.count), Counters()
    with ThreadPoolExecutor(4) as pool:
        jobs = [
            job
            for window in order.windows(0)
            for job in reader.jobs(
                window.spans, Target(np.empty((window.rows, *SAMPLE), np.uint8), shared_chunks, counters)
            )
        ]
        for done in [pool.submit(job) for job in jobs]:
            done.result()
    assert sorted(source.asked) == [(at, min(at + 40, ROWS)) for at in range(0, ROWS, 40)]
    assert not source.together
    assert counters.chunks_decoded == counters.read_calls == 8


def test_a_library_without_chunks_reads_about_four_megabytes() -> None:
    source = Library(np.arange(3 * JOB_NBYTES // 8 + 5))
    reader = source.reader(None)
    assert reader.chunk_rows == JOB_NBYTES // 8
    assert source.reader(10**9).chunk_rows == len(source.array)
    out = np.zeros_like(source.array)
    read_rows(reader, 0, len(out), out)
    assert np.array_equal(out, source.array)
    assert max(stop - start for start, stop in source.asked) * 8 == JOB_NBYTES
    assert reader.scratch_nbytes == 2 * JOB_NBYTES  # the library's rows, and ours


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            OSError("Can't synchronously read data\n (filter returned failure)"),
            "Can't synchronously read data",
        ),
        (KeyError(), "KeyError"),
        (ZeroDivisionError("by zero"), "by zero"),
    ],
)
def test_an_error_of_a_library_says_where(error: Exception, reason: str) -> None:
    source = Library(rows_array(ROWS))
    source.failing[80] = error
    with pytest.raises(StoreError) as caught:
        read_rows(source.reader(40), 0, 100, np.zeros((100, 4, 4), np.uint8))
    assert str(caught.value) == f"data.h5: array 'g/x', rows 80 to 119: cannot be read: {reason}"
    assert (caught.value.file, caught.value.array, caught.value.rows) == ("data.h5", "g/x", (80, 120))
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [ChangedError("data.h5: changed"), ClosedError("closed")])
def test_an_error_of_our_own_stays(error: Exception) -> None:
    source = Library(rows_array(ROWS))
    source.failing[0] = error
    with pytest.raises(type(error)) as caught:
        read_rows(source.reader(40), 0, 1, np.zeros((1, 4, 4), np.uint8))
    assert caught.value is error


def test_close_waits_for_the_library() -> None:
    source = Library(rows_array(ROWS))
    reader = source.reader(300)
    started, go_on = threading.Event(), threading.Event()
    read = source.read

    def slow(start: int, stop: int, out: np.ndarray) -> None:
        started.set()
        go_on.wait(10)
        assert source.closed == 0
        read(start, stop, out)

    reader._read_rows = slow
    with ThreadPoolExecutor(2) as pool:
        reading = pool.submit(read_rows, reader, 0, 1, np.zeros((1, 4, 4), np.uint8))
        started.wait(10)
        closing = pool.submit(reader.close)
        go_on.set()
        reading.result(timeout=10)
        closing.result(timeout=10)
    assert source.closed == 1


# -- parts


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
    assert not JoinedReader([raw(array, tmp_path / "a"), chunks(array, tmp_path / "b")]).row_access


def test_close_closes_every_part() -> None:
    sources = [Library(rows_array(10)), Library(rows_array(20))]
    JoinedReader([source.reader() for source in sources]).close()
    assert [source.closed for source in sources] == [1, 1]
