"""Runs of raw rows to places all over a buffer, and what is asked of the system for it."""

from __future__ import annotations

import os
import random
import tracemalloc
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chunk_forms import deliver, run
from chunked import write_layout
from numbered import rows_array
from oocloader.errors import ChangedError, CorruptChunkError
from oocloader.metrics.counters import Counters
from oocloader.order.order import Order, RowSet
from oocloader.order.row_spans import RowSpan
from oocloader.reading import files
from oocloader.reading.chunk_reader import ChunkReader
from oocloader.reading.layout import Layout
from oocloader.reading.row_reader import Target
from oocloader.reading.shared_chunks import SharedChunks
from orders import pass_of

ROWS = 600
# One sample is read to its place, the other passes through.
LARGE, SMALL = (16, 64), (4, 3)
FORMS: dict[str, dict[str, Any]] = {
    "one run": {},
    "chunks": {"chunk_shape": 64},
    "chunks apart": {"chunk_shape": 64, "gap": 70_000},
    "chunks backwards": {"chunk_shape": 100, "backwards": True, "lead": 5},
    "a file each": {"chunk_shape": 50, "file_each": True},
    "some missing": {"chunk_shape": 64, "missing": {0, 2, 3}, "fill": 7},
    "all missing": {"chunk_shape": 64, "missing": set(range(10)), "fill": 7},
}


def made(
    folder: Path, form: dict[str, Any], sample_shape: tuple[int, ...], dtype: str
) -> tuple[Layout, np.ndarray]:
    """A layout, and the rows that are to be read of it."""
    array = rows_array(ROWS, dtype, sample_shape=sample_shape)
    options = dict(form)
    if "chunk_shape" in options:
        options["chunk_shape"] = (options["chunk_shape"], *sample_shape)
    layout = write_layout(folder, array, **options)
    expected = array.astype(array.dtype.newbyteorder("="))
    for chunk in form.get("missing", ()):
        expected[64 * chunk : 64 * chunk + 64] = 7
    return layout, expected


def blocks(rows: int, *, of: int, seed: int = 0) -> tuple[list[RowSpan], np.ndarray]:
    """Every other block of `of` rows to places drawn, and the stored row of each place."""
    starts = range(0, rows, 2 * of)
    stretches = [(start, min(start + of, rows)) for start in starts]
    stored = np.concatenate([np.arange(*stretch) for stretch in stretches])
    dest_index = np.random.default_rng(seed).permutation(len(stored))
    spans, at = [], 0
    for start, stop in stretches:
        spans.append(RowSpan(start, stop, None, dest_index[at : at + stop - start]))
        at += stop - start
    numbers = np.empty_like(stored)
    numbers[dest_index] = stored
    return spans, numbers


def brought(layout: Layout, spans: Sequence[RowSpan], *, threads: int = 1) -> tuple[np.ndarray, Counters]:
    """What the jobs make of a buffer, done in any order."""
    reader, counters = ChunkReader(layout), Counters()
    out = np.full((sum(span.rows for span in spans), *layout.shape[1:]), 99, reader.dtype)
    jobs = reader.jobs(spans, Target(out, SharedChunks(lambda lo, hi: 0), counters))
    jobs = random.Random(0).sample(jobs, len(jobs))
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(job) for job in jobs]:
            done.result()
    reader.close()
    return out, counters


@pytest.mark.parametrize("dtype", ["uint8", ">i2", "float64"])
@pytest.mark.parametrize("sample_shape", [LARGE, SMALL], ids=["large", "small"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("few", [False, True])
def test_rows_are_brought_to_their_places(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    form: dict[str, Any],
    sample_shape: tuple[int, ...],
    dtype: str,
    few: bool,
) -> None:
    layout, expected = made(tmp_path, form, sample_shape, dtype)
    if few:
        # Several calls a run, several jobs, and little that passes through at once.
        monkeypatch.setattr("oocloader.reading.files._MOST_VECTORS", 3)
        monkeypatch.setattr("oocloader.reading.raw_rows.JOB_NBYTES", 20 * layout.row_nbytes)
        monkeypatch.setattr("oocloader.reading.raw_rows.SCRATCH_NBYTES", 7 * layout.row_nbytes)
    spans, numbers = blocks(ROWS, of=17)
    found, counters = brought(layout, spans, threads=3)
    assert np.array_equal(found, expected[numbers])
    missing = np.isin(numbers // 64, list(form.get("missing", ())))
    assert counters.read_bytes == np.count_nonzero(~missing) * layout.row_nbytes
    scatters = sample_shape == LARGE and dtype != ">i2"
    assert counters.copied_bytes == (0 if scatters else found.nbytes)
    assert (counters.gather_s > 0) == (not scatters)


def test_a_run_is_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout, expected = made(tmp_path, {"chunk_shape": 64}, LARGE, "uint8")
    calls: list[tuple[int, int]] = []
    preadv = files._preadv()

    def counted(fd: int, vectors: int, count: int, offset: int) -> int:
        calls.append((count, offset))
        return int(preadv(fd, vectors, count, offset))

    monkeypatch.setattr(files, "_preadv", lambda: counted)
    spans, numbers = blocks(ROWS, of=40)
    found, counters = brought(layout, spans)
    assert np.array_equal(found, expected[numbers])
    # Chunks that follow each other are one run.
    assert calls == [(span.rows, span.start * layout.row_nbytes) for span in spans]
    assert counters.read_calls == len(spans)


def test_what_lies_near_is_fetched_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout, _ = made(tmp_path, {"chunk_shape": 64, "gap": 70_000}, SMALL, "uint8")
    wanted: list[tuple[int, list[tuple[int, int]]]] = []
    monkeypatch.setattr(
        files.FileReader, "will_need", lambda self, file, ranges: wanted.append((file, list(ranges)))
    )
    spans, _ = blocks(ROWS, of=16)
    brought(layout, spans)
    # Two blocks of a chunk have little between them, two chunks much.
    ranges = [(int(offset), 48 * 12) for offset in layout.offset[:9]]
    assert wanted == [(0, [*ranges, (int(layout.offset[9]), 16 * 12)])]


@pytest.mark.parametrize("sample_shape", [LARGE, (), SMALL], ids=["large", "labels", "small"])
def test_a_thread_needs_no_more_memory_than_is_told(tmp_path: Path, sample_shape: tuple[int, ...]) -> None:
    rows = 1 << 18 if sample_shape != LARGE else 1 << 12
    layout = write_layout(tmp_path, np.zeros((rows, *sample_shape), np.uint8))
    reader = ChunkReader(layout)
    spans, _ = blocks(rows, of=64)
    out = np.empty((sum(span.rows for span in spans), *sample_shape), np.uint8)
    jobs = reader.jobs(spans, Target(out, SharedChunks(lambda lo, hi: 0), Counters()))
    # Besides, there are objects of the interpreter's.
    with ThreadPoolExecutor(1) as thread:
        tracemalloc.start()
        thread.submit(lambda: [job() for job in jobs]).result()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak <= reader.scratch_nbytes + (256 << 10)


@pytest.mark.parametrize("got", [-1, 0, 1, 1500, 5000])
def test_what_a_call_leaves_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, got: int) -> None:
    layout, expected = made(tmp_path, {}, LARGE, "uint8")
    preadv = files._preadv()

    def short(fd: int, vectors: int, count: int, offset: int) -> int:
        # It may have filled some places, and part of one.
        if got > 0:
            preadv(fd, vectors, count // 2, offset)
        return got

    monkeypatch.setattr(files, "_preadv", lambda: short)
    spans, numbers = blocks(ROWS, of=17)
    assert np.array_equal(brought(layout, spans)[0], expected[numbers])


def test_the_system_is_given_no_other_memory() -> None:
    rows = np.zeros((4, 8), np.uint8)
    assert files.scatter_vectors(rows, np.array([3, 0])).tolist() == [
        [rows.ctypes.data + 24, 8],
        [rows.ctypes.data, 8],
    ]
    for place in (4, -1):
        with pytest.raises(IndexError, match="beyond the 4 rows"):
            files.scatter_vectors(rows, np.array([0, place]))
    with pytest.raises(ValueError, match="C order"):
        files.scatter_vectors(rows[:, ::2], np.array([0]))
    rows.flags.writeable = False
    with pytest.raises(ValueError, match="not writable"):
        files.scatter_vectors(rows, np.array([0]))


@pytest.mark.parametrize("sample_shape", [LARGE, SMALL], ids=["large", "small"])
def test_what_is_wrong_is_told_with_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sample_shape: tuple[int, ...]
) -> None:
    spans, _ = blocks(ROWS, of=17)
    layout, _ = made(tmp_path / "odd", {"chunk_shape": 64}, sample_shape, "uint8")
    layout.stored[3] -= 1
    with pytest.raises(CorruptChunkError, match=r"chunk \(3, 0, 0\), rows 192 to 255: damaged"):
        brought(layout, spans)
    layout, _ = made(tmp_path / "cut", {}, sample_shape, "uint8")
    os.truncate(layout.files.path(0), 300 * layout.row_nbytes)
    with pytest.raises(ChangedError, match=r"array 'x', rows 0 to 16: the file changed"):
        brought(layout, spans)
    # It may be cut while it is read: the first run beyond is told of.
    monkeypatch.setattr("oocloader.reading.files.FileReader._check", lambda *_: None)
    with pytest.raises(ChangedError, match=r"rows 306 to 322: the file ends at byte .* it was truncated"):
        brought(layout, spans)


def test_rows_far_apart_are_not_read_with_what_lies_between(tmp_path: Path) -> None:
    array = rows_array(3000, sample_shape=(64, 64))
    reader = ChunkReader(write_layout(tmp_path, array))
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
    reader = ChunkReader(write_layout(tmp_path, array, **options))
    for chunk in options.get("missing", ()):
        array[chunk * 50 : (chunk + 1) * 50] = 7
    picked = np.flatnonzero(np.arange(1000) % 3 == 1)
    for shuffle in (False, "global"):
        order = Order(RowSet(1, 998, picked), shuffle=shuffle, seed=2, block=1, window=400)
        found, counters = deliver(reader, order, threads=3)
        assert np.array_equal(found, array[pass_of(order)])
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
        deliver(ChunkReader(layout), order)
    reader = ChunkReader(write_layout(tmp_path / "cut", array))
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
    reader = ChunkReader(write_layout(tmp_path, array))
    out = np.zeros_like(array)
    target = Target(out, SharedChunks(RowSet(0, 40_000).count), Counters())
    jobs = reader.jobs([RowSpan(0, 40_000, None, slice(0, 40_000))], target)
    assert len(jobs) == 3
    run(jobs, threads=threads)
    assert np.array_equal(out, array)


@pytest.mark.parametrize("kind", ["slices", "picked", "scattered"])
def test_small_pieces_are_one_job(tmp_path: Path, kind: str) -> None:
    array = np.arange(1 << 16)
    reader = ChunkReader(write_layout(tmp_path, array))
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
