"""Chunks of a layout into rows, against the array they were written from."""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chunked import Flip, open_files, write_layout
from numbered import rows_array
from oocloader.codecs import chain
from oocloader.errors import ChangedError, ClosedError, CorruptChunkError, StoreError
from oocloader.metrics.counters import Counters
from oocloader.order.order import Order, RowSet
from oocloader.order.row_spans import RowSpan
from oocloader.reading.chunk_reader import ChunkReader
from oocloader.reading.jobs import Job
from oocloader.reading.layout import Layout
from oocloader.reading.read_rows import read_rows
from oocloader.reading.row_reader import Target
from oocloader.reading.shared_chunks import SharedChunks

PAGE = 4096


def reader_of(layout: Layout) -> ChunkReader:
    return ChunkReader(layout)


def read(reader: ChunkReader, start: int, stop: int) -> np.ndarray:
    out = np.full((stop - start, *reader.shape[1:]), 99, reader.dtype)
    read_rows(reader, start, stop, out)
    return out


def run(jobs: Sequence[Job], *, threads: int = 1) -> None:
    """The jobs in any order, in this thread or in several."""
    jobs = random.Random(len(jobs)).sample(jobs, len(jobs))
    if threads == 1:
        for job in jobs:
            job()
        return
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(job) for job in jobs]:
            done.result()


def deliver(reader: ChunkReader, order: Order, *, threads: int = 1) -> tuple[np.ndarray, Counters]:
    """A pass: every row of it, in the order of the pass."""
    shared_chunks, counters = SharedChunks(order.rows.count), Counters()
    windows = []
    for window in order.windows(0):
        out = np.full((window.rows, *reader.shape[1:]), 99, reader.dtype)
        run(reader.jobs(window.spans, Target(out, shared_chunks, counters)), threads=threads)
        windows.append(out)
    assert shared_chunks.held_nbytes == 0
    return np.concatenate(windows), counters


def numbers_of(order: Order) -> np.ndarray:
    """The stored rows of a pass."""
    found = []
    for window in order.windows(0):
        rows = np.empty(window.rows, np.int64)
        for span in window.spans:
            brought = np.arange(span.start, span.stop)
            rows[span.dest_index] = brought if span.row_index is None else brought[span.row_index]
        found.append(rows)
    return np.concatenate(found)


FORMS: dict[str, dict[str, Any]] = {
    "one run": {},
    "one run behind a header": {"lead": 129},
    "one run, Fortran order": {"axes": (2, 1, 0)},
    "whole rows": {"chunk_shape": (64, 4, 3)},
    "whole rows apart": {"chunk_shape": (64, 4, 3), "gap": 70_000},
    "whole rows backwards": {"chunk_shape": (100, 4, 3), "backwards": True, "lead": 5},
    "whole rows, a file each": {"chunk_shape": (3, 4, 3), "file_each": True},
    "some missing": {"chunk_shape": (64, 4, 3), "missing": {0, 2, 3}, "fill": 7},
    "all missing": {"chunk_shape": (64, 4, 3), "missing": set(range(8)), "fill": 7},
    "cut across": {"chunk_shape": (64, 3, 2)},
    "cut across, apart": {"chunk_shape": (100, 3, 2), "gap": 70_000},
    "cut across, missing": {"chunk_shape": (64, 3, 2), "missing": {0, 5, 6, 7, 20}, "fill": 1},
    "cut across, transposed": {"chunk_shape": (64, 3, 2), "axes": (2, 0, 1)},
    "cut across, a file each": {"chunk_shape": (64, 3, 2), "file_each": True, "missing": {3}},
    "chunks larger than the array": {"chunk_shape": (1000, 7, 5)},
    "chunks of one row": {"chunk_shape": (1, 4, 3)},
    "tiles": {"chunk_shape": (64, 2, 1)},
    "tiles, missing": {"chunk_shape": (64, 2, 1), "missing": {0, 5, 12, 13, 14, 15, 16, 17}, "fill": 1},
    "tiles, apart": {"chunk_shape": (64, 2, 1), "gap": 1},
    "tiles, a file each": {"chunk_shape": (100, 2, 1), "file_each": True, "missing": {3}},
    "Fortran chunks": {"chunk_shape": (64, 4, 3), "axes": (2, 1, 0)},
}
ROWS = 450
ALL = [RowSpan(0, ROWS, None, slice(0, ROWS))]


def written(
    folder: Path, form: dict[str, Any], *, step: Flip | None = None, dtype: str = "uint8", rows: int = ROWS
) -> tuple[Layout, np.ndarray]:
    """A layout of numbered rows, and the rows that are to be read."""
    array = rows_array(rows, dtype, sample_shape=(4, 3))
    layout = write_layout(folder, array, step=step, **form)
    expected = array.astype(array.dtype.newbyteorder("="))
    chunk_shape = form.get("chunk_shape", array.shape)
    for chunk in form.get("missing", ()):
        corner = np.unravel_index(chunk, layout.grid)
        at = tuple(slice(int(i) * n, (int(i) + 1) * n) for i, n in zip(corner, chunk_shape, strict=True))
        expected[at] = form.get("fill", 0)
    return layout, expected


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("coded", [False, True], ids=["raw", "flipped"])
@pytest.mark.parametrize("dtype", ["bool", "uint8", ">i2", "float16", ">f4", "float64", "complex64"])
def test_rows_are_those_written(tmp_path: Path, form: dict[str, Any], coded: bool, dtype: str) -> None:
    layout, expected = written(tmp_path, form, step=Flip() if coded else None, dtype=dtype)
    reader = reader_of(layout)
    assert reader.shape == expected.shape
    assert reader.dtype == expected.dtype
    assert reader.dtype.isnative
    for start, stop in ((0, ROWS), (0, 1), (ROWS - 1, ROWS), (63, 65), (100, 301), (64, 128)):
        assert np.array_equal(read(reader, start, stop), expected[start:stop])
    for shuffle, rows in (
        (False, RowSet(0, ROWS)),
        (True, RowSet(0, ROWS)),
        (True, RowSet(33, 400)),
        (False, RowSet(1, ROWS, np.arange(1, ROWS, 3))),
        (True, RowSet(1, ROWS, np.arange(1, ROWS, 3))),
    ):
        order = Order(rows, shuffle=shuffle, seed=1, block=16, window=130)
        found, _ = deliver(reader, order)
        assert np.array_equal(found, expected[numbers_of(order)])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(data=st.data())
def test_any_layout_in_any_order(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 60))
    sample_shape = tuple(data.draw(st.lists(st.integers(1, 5), max_size=2)))
    chunk_shape = tuple(data.draw(st.integers(1, n + 2)) for n in (rows, *sample_shape))
    array = rows_array(
        rows, data.draw(st.sampled_from(["uint8", ">i4", "float32"])), sample_shape=sample_shape
    )
    grid = [-(-n // c) for n, c in zip(array.shape, chunk_shape, strict=True)]
    numbers = st.sets(st.integers(0, int(np.prod(grid)) - 1))
    flip = data.draw(st.none() | st.builds(Flip))
    missing = data.draw(numbers)
    layout = write_layout(
        tmp_path_factory.mktemp("layout"),
        array,
        chunk_shape,
        step=flip,
        skipped=data.draw(numbers) if flip else (),
        missing=missing,
        fill=3,
        axes=data.draw(st.none() | st.permutations(range(array.ndim)).map(tuple)),
        file_each=data.draw(st.booleans()),
        gap=data.draw(st.sampled_from([0, 1, 70_000])),
        backwards=data.draw(st.booleans()),
    )
    expected = array.astype(array.dtype.newbyteorder("="))
    for chunk in missing:
        corner = np.unravel_index(chunk, grid)
        expected[
            tuple(slice(int(i) * n, (int(i) + 1) * n) for i, n in zip(corner, chunk_shape, strict=True))
        ] = 3
    window = data.draw(st.integers(1, rows + 5))
    order = Order(
        RowSet(0, rows),
        shuffle=data.draw(st.booleans()),
        seed=0,
        block=data.draw(st.integers(1, window)),
        window=window,
    )
    found, counters = deliver(reader_of(layout), order)
    assert np.array_equal(found, expected[numbers_of(order)])
    if flip:
        assert counters.chunks_decoded == len(layout.file) - len(missing)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(
    ("rows", "block", "window"),
    [
        (RowSet(0, ROWS), 64, 128),
        (RowSet(0, ROWS), 100, 200),
        (RowSet(0, ROWS), 7, 30),
        (RowSet(0, ROWS), 1, 3),
        (RowSet(0, ROWS), 1000, 1000),
        (RowSet(70, 333), 64, 128),
        (RowSet(0, ROWS, np.arange(0, ROWS, 2)), 16, 50),
        (RowSet(5, ROWS, np.arange(5, ROWS, 89)), 2, 4),
    ],
)
def test_chunks_are_decoded_once(
    tmp_path: Path, form: dict[str, Any], shuffle: bool, rows: RowSet, block: int, window: int
) -> None:
    """Whatever windows and blocks cut, and only the chunks that hold a wanted row."""
    flip = Flip()
    layout, expected = written(tmp_path, form, step=flip)
    order = Order(rows, shuffle=shuffle, seed=1, block=block, window=window)
    found, counters = deliver(reader_of(layout), order, threads=3)
    numbers = numbers_of(order)
    assert np.array_equal(found, expected[numbers])
    shared_chunks = np.unique(numbers // layout.chunk_shape[0])
    wanted = np.zeros(layout.grid, bool)
    wanted[shared_chunks] = True
    stored = wanted & (layout.file >= 0).reshape(layout.grid)
    assert len(flip.decoded) == counters.chunks_decoded == stored.sum()
    assert counters.decoded_bytes == stored.sum() * layout.chunk_nbytes


def test_many_threads_decode(tmp_path: Path) -> None:
    flip = Flip()
    layout, expected = written(tmp_path, {"chunk_shape": (64, 3, 2)}, step=flip, rows=20_000)
    order = Order(RowSet(0, 20_000), shuffle=True, seed=1, block=100, window=5000)
    found, _ = deliver(reader_of(layout), order, threads=8)
    assert np.array_equal(found, expected[numbers_of(order)])
    assert len(flip.decoded) == len(layout.file)
    assert len(flip.threads) > 1


def test_whole_chunks_are_decoded_straight_to_their_place(tmp_path: Path) -> None:
    into: list[np.ndarray] = []

    class Watched(Flip):
        def decode(self, stored: np.ndarray, out: np.ndarray) -> np.ndarray:
            into.append(out)
            return super().decode(stored, out)

    layout, expected = written(tmp_path, {"chunk_shape": (64, 4, 3)}, step=Watched())
    out = np.zeros((448, 4, 3), np.uint8)
    read_rows(reader_of(layout), 0, 448, out)
    assert np.array_equal(out, expected[:448])
    assert all(np.shares_memory(there, out) for there in into)
    assert len(into) == 7


@pytest.mark.parametrize(
    ("form", "calls", "nbytes"),
    [
        ({}, 1, 450 * 12),
        ({"chunk_shape": (64, 4, 3)}, 1, 450 * 12),  # neighbours in the file, the last one cut
        ({"chunk_shape": (64, 4, 3), "gap": 10}, 8, 450 * 12),
        ({"chunk_shape": (64, 4, 3), "backwards": True}, 8, 450 * 12),
        ({"chunk_shape": (64, 4, 3), "missing": {2, 3}}, 2, (450 - 128) * 12),
        ({"chunk_shape": (64, 4, 3), "file_each": True}, 8, 450 * 12),
        # What cuts rows is read whole, with small gaps.
        ({"chunk_shape": (64, 4, 2)}, 1, 512 * 16),
        ({"chunk_shape": (64, 4, 2), "gap": 100}, 1, 512 * 16 + 15 * 100),
        ({"chunk_shape": (64, 4, 2), "gap": 70_000}, 16, 512 * 16),
    ],
)
def test_neighbours_are_read_with_one_call(
    tmp_path: Path, form: dict[str, Any], calls: int, nbytes: int
) -> None:
    layout, expected = written(tmp_path, form)
    found, counters = deliver(
        reader_of(layout), Order(RowSet(0, ROWS), shuffle=False, seed=0, block=1, window=ROWS)
    )
    assert np.array_equal(found, expected)
    assert (counters.read_calls, counters.read_bytes) == (calls, nbytes)


def test_gaps_do_not_add_up(tmp_path: Path) -> None:
    """A thousand small chunks, each with a gap behind it that is small enough to read."""
    array = rows_array(4, sample_shape=(1000, 2))
    layout = write_layout(tmp_path, array, (4, 1, 2), gap=60_000)
    reader = reader_of(layout)

    def held() -> int:
        assert np.array_equal(read(reader, 0, 4), array)
        return int(chain._scratch.buffers["stored"].nbytes)

    with ThreadPoolExecutor(1) as fresh:
        assert fresh.submit(held).result() <= reader.scratch_nbytes < 5 << 20


def test_rows_far_apart_are_not_read_with_what_lies_between(tmp_path: Path) -> None:
    array = rows_array(3000, sample_shape=(64, 64))
    reader = reader_of(write_layout(tmp_path, array))
    picked = np.array([0, 1, 7, 100, 101, 102, 1500, 2999])
    order = Order(RowSet(0, 3000, picked), shuffle=False, seed=0, block=8, window=8)
    found, counters = deliver(reader, order)
    assert np.array_equal(found, array[picked])
    # Rows up to 64 KiB apart are read with what lies between them.
    assert (counters.read_calls, counters.read_bytes) == (4, (8 + 3 + 1 + 1) * 4096)


LONE_LAYOUTS: dict[str, dict[str, Any]] = {
    "one run": {},
    "chunks": {"chunk_shape": (64, 5, 3)},
    "chunks backwards": {"chunk_shape": (64, 5, 3), "backwards": True, "gap": 7},
    "files": {"chunk_shape": (100, 5, 3), "file_each": True},
    "missing": {"chunk_shape": (50, 5, 3), "missing": (0, 3, 19), "fill": 7},
}


@pytest.mark.parametrize("dtype", ["uint8", ">i4", "float64"])
@pytest.mark.parametrize("layout", LONE_LAYOUTS)
def test_rows_that_lie_alone_are_read_by_a_call_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str, dtype: str
) -> None:
    monkeypatch.setattr("oocloader.reading.raw_rows.GAP_NBYTES", 0)
    monkeypatch.setattr("oocloader.reading.raw_rows.SCRATCH_NBYTES", 1000)
    monkeypatch.setattr("oocloader.reading.raw_rows.JOB_NBYTES", 10_000)
    array = rows_array(1000, dtype, sample_shape=(5, 3))
    options = LONE_LAYOUTS[layout]
    reader = reader_of(write_layout(tmp_path, array, **options))
    for chunk in options.get("missing", ()):
        array[chunk * 50 : (chunk + 1) * 50] = 7
    picked = np.flatnonzero(np.arange(1000) % 3 == 1)
    for shuffle in (False, "global"):
        order = Order(RowSet(1, 998, picked), shuffle=shuffle, seed=2, block=1, window=400)
        found, counters = deliver(reader, order, threads=3)
        assert np.array_equal(found, array[numbers_of(order)])
        stored = int(np.count_nonzero(~np.isin(picked // 50, options.get("missing", ()))))
        row_nbytes = 15 * array.dtype.itemsize
        assert (counters.read_calls, counters.read_bytes) == (stored, stored * row_nbytes)


def test_what_is_wrong_with_rows_that_lie_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oocloader.reading.raw_rows.GAP_NBYTES", 0)
    array = rows_array(1000, sample_shape=(5, 3))
    picked = np.arange(0, 1000, 5)
    order = Order(RowSet(0, 996, picked), shuffle="global", seed=2, block=1, window=400)
    layout = write_layout(tmp_path / "short", array, (64, 5, 3))
    layout.stored[7] -= 1
    with pytest.raises(CorruptChunkError, match=r"chunk \(7, 0, 0\), rows 448 to 511: damaged"):
        deliver(reader_of(layout), order)
    reader = reader_of(write_layout(tmp_path / "cut", array))
    os.truncate(tmp_path / "cut" / "data.bin", 9000)
    with pytest.raises(ChangedError, match="array 'x', rows"):
        deliver(reader, order)
    # It may be cut while it is read.
    monkeypatch.setattr("oocloader.reading.files.FileReader._check", lambda *_: None)
    with pytest.raises(ChangedError, match=r"rows .*it was truncated"):
        deliver(reader, order)


@pytest.mark.parametrize("threads", [1, 4])
def test_large_pieces_are_several_jobs(tmp_path: Path, threads: int) -> None:
    array = rows_array(40_000, sample_shape=(16, 16))
    reader = reader_of(write_layout(tmp_path, array))
    out = np.zeros_like(array)
    target = Target(out, SharedChunks(RowSet(0, 40_000).count), Counters())
    jobs = reader.jobs([RowSpan(0, 40_000, None, slice(0, 40_000))], target)
    assert len(jobs) == 3
    run(jobs, threads=threads)
    assert np.array_equal(out, array)


@pytest.mark.parametrize("kind", ["slices", "picked", "scattered"])
def test_small_pieces_are_one_job(tmp_path: Path, kind: str) -> None:
    array = np.arange(1 << 16)
    reader = reader_of(write_layout(tmp_path, array))
    spans = []
    for at in range(0, 1 << 15, 64):
        dest_index = np.arange(at, at + 64)[::-1].copy()
        to = slice(at, at + 64) if kind == "slices" else dest_index
        row_index = np.arange(64) * 2 if kind == "picked" else None
        spans.append(RowSpan(2 * at, 2 * at + (128 if kind == "picked" else 64), row_index, to))
    out = np.zeros(1 << 15, np.int64)
    jobs = reader.jobs(spans, Target(out, SharedChunks(lambda lo, hi: 0), Counters()))
    assert len(jobs) == 1
    jobs[0]()
    for span in spans:
        rows = array[span.start : span.stop]
        assert np.array_equal(out[span.dest_index], rows if span.row_index is None else rows[span.row_index])


# -- mappings


def mapped(reader: ChunkReader, start: int, stop: int) -> np.ndarray:
    found = reader.map(start, stop)
    assert found is not None
    assert found.ctypes.data % 64 == 0
    assert found.shape == (stop - start, *reader.shape[1:])
    return found


def test_map_one_run(tmp_path: Path) -> None:
    array = rows_array(1000, "float32", sample_shape=(8, 4))
    reader = reader_of(write_layout(tmp_path, array, lead=128))
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
    reader = reader_of(write_layout(tmp_path, array, (64, 64, 64), **form))
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
    reader = reader_of(layout)
    assert reader.map(*rows) is None
    assert np.array_equal(read(reader, *rows), expected[slice(*rows)])


def test_compressed_chunks_are_not_mapped(tmp_path: Path) -> None:
    layout, _ = written(tmp_path, {}, step=Flip())
    assert reader_of(layout).map(0, 16) is None
    assert reader_of(layout).view(ALL) is None


def test_files_elsewhere_are_not_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout, expected = written(tmp_path, {})
    monkeypatch.setattr("oocloader.reading.mapped_rows.on_local_file_system", lambda folder: False)
    assert reader_of(layout).map(0, 16) is None
    assert np.array_equal(read(reader_of(layout), 0, 16), expected[:16])


@pytest.mark.parametrize(
    "form",
    [{}, {"lead": 129}, {"chunk_shape": (64, 4, 3)}, {"chunk_shape": (1, 4, 3)}],
    ids=["one run", "one run anywhere", "chunks side by side", "chunks of one row"],
)
def test_view(tmp_path: Path, form: dict[str, Any]) -> None:
    layout, expected = written(tmp_path, form)
    reader = reader_of(layout)
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
    view = reader_of(write_layout(tmp_path, array, (64, 64, 64), **form)).view(ALL)
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
    reader = reader_of(layout)
    assert reader.view(ALL) is None
    assert reader.mapped_nbytes == 0


@pytest.mark.parametrize("file_each", [False, True])
def test_a_view_notices_that_its_file_changed(tmp_path: Path, file_each: bool) -> None:
    array = rows_array(64 * 70, sample_shape=(8, 8))
    reader = reader_of(write_layout(tmp_path, array, (64, 8, 8), file_each=file_each))
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
    reader = reader_of(layout)
    assert reader.map(400, 600) is None
    with pytest.raises(
        ChangedError, match=r"array 'x', rows 400 to 599: the file ends at byte 8000, but bytes"
    ):
        read(reader, 400, 600)
    assert np.array_equal(mapped(reader, 0, 500), array[:500])


# -- what goes wrong


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
    reader = reader_of(layout)
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


@pytest.mark.parametrize("form", ["whole rows", "cut across", "whole rows, a file each"])
@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.parametrize("stored", [5, 10_000, pytest.param(2**40, marks=pytest.mark.slow)])
def test_a_chunk_of_another_size(tmp_path: Path, form: str, coded: bool, stored: int) -> None:
    """The table of chunks says so, rightly or not: what it names is damaged, not read beyond, not guessed."""
    flip = Flip() if coded else None
    layout, expected = written(tmp_path, FORMS[form], step=flip)
    chunk = 3
    layout.stored[chunk] = stored
    reader = reader_of(layout)
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
    reader = reader_of(layout)
    with pytest.raises(CorruptChunkError) as caught:
        read(reader, 100, 300)
    assert str(caught.value) == (
        f"{tmp_path}/data.bin: array 'x', chunk (2, 0, 0), rows 128 to 191: damaged: flip: not what it was; "
        "restore the file from a copy"
    )
    assert np.array_equal(read(reader, 192, 300), expected[192:300])


def test_an_error_of_the_disk_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(5, "Input/output error")

    for form in ("one run", "cut across"):
        layout, _ = written(tmp_path / form, FORMS[form])
        with monkeypatch.context() as patched:
            patched.setattr(os, "preadv", fail)
            with pytest.raises(StoreError) as caught:
                read(reader_of(layout), 64, 65)
        path = layout.files.path(0)
        assert str(caught.value).startswith(f"{path}: array 'x', rows 64 to ")
        assert str(caught.value).endswith("cannot be read: Input/output error")


@pytest.mark.parametrize("form", ["one run", "whole rows", "cut across, a file each"])
def test_closed(tmp_path: Path, form: str) -> None:
    # Errors of tests before hold their readers in cycles, which may go at any time.
    gc.collect()
    before = len(open_files())
    reader = reader_of(written(tmp_path, FORMS[form])[0])
    read(reader, 0, 10)
    reader.close()
    reader.close()
    with pytest.raises(ClosedError, match="the store is closed"):
        read(reader, 0, 10)
    assert len(open_files()) == before


# -- what it says of itself


@pytest.mark.parametrize(
    ("form", "coded", "chunk_rows", "row_access"),
    [
        ("one run", False, None, True),
        ("one run", True, ROWS, False),
        ("one run, Fortran order", False, ROWS, False),
        ("whole rows", False, 64, True),
        ("whole rows", True, 64, False),
        ("cut across", False, 64, False),
        ("Fortran chunks", False, 64, False),
    ],
)
def test_how_rows_are_read(
    tmp_path: Path, form: str, coded: bool, chunk_rows: int | None, row_access: bool
) -> None:
    reader = reader_of(written(tmp_path, FORMS[form], step=Flip() if coded else None)[0])
    assert (reader.chunk_rows, reader.row_access, reader.chunk_origins) == (chunk_rows, row_access, (0,))
    assert reader.scratch_nbytes > 0
