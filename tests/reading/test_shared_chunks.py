"""Bands that windows share: decoded once, kept as long as they are needed, never waited for in vain."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocloader.errors import ClosedError
from oocloader.order.order import Order, RowSet
from oocloader.order.row_spans import RowSpan
from oocloader.reading.jobs import Job
from oocloader.reading.shared_chunks import Band, SharedChunks


class Chunked:
    """Rows that carry their numbers, in bands: records every band decoded, in `parts` jobs each."""

    def __init__(self, rows: int, band_rows: int, *, parts: int = 1, direct: bool = False) -> None:
        self.rows = np.arange(rows)
        self.decoded: Counter[int] = Counter()
        self.into: list[np.ndarray] = []
        self._band_rows = band_rows
        self._parts = parts
        self._direct = direct
        self._lock = threading.Lock()

    def jobs(self, shared_chunks: SharedChunks, spans: Sequence[RowSpan], out: np.ndarray) -> list[Job]:
        claim = shared_chunks.claim(
            spans, out, rows=len(self.rows), band_rows=self._band_rows, whole=not self._direct
        )
        jobs = [job for band, parts in claim.unshared.items() for job in self._place(band, parts, out)]
        for band in claim.bands:
            jobs += band.jobs(self._decode(band))
        return jobs + claim.copies

    def _decode(self, band: Band) -> list[Job]:
        self.into.append(band.rows)

        def decode(part: int) -> None:
            band.rows[part :: self._parts] = self.rows[band.lo : band.hi][part :: self._parts]
            self._record(band.number)

        return [partial(decode, part) for part in range(self._parts)]

    def _place(self, band: int, parts: list[RowSpan], out: np.ndarray) -> list[Job]:
        def read() -> None:
            for part in parts:
                rows = self.rows[part.start : part.stop]
                out[part.dest_index] = rows if part.row_index is None else rows[part.row_index]
            self._record(band, self._parts)

        return [read]

    def _record(self, band: int, parts: int = 1) -> None:
        with self._lock:
            self.decoded[band] += parts


def run(jobs: Sequence[Job]) -> None:
    for job in jobs:
        job()


@given(
    rows=st.integers(1, 300),
    every=st.integers(1, 5),
    band_rows=st.integers(1, 350),
    block=st.integers(1, 60),
    blocks=st.integers(1, 5),
    shuffle=st.booleans(),
    parts=st.integers(1, 3),
    direct=st.booleans(),
    ahead=st.integers(1, 4),
)
def test_a_pass_decodes_each_band_once(
    rows: int,
    every: int,
    band_rows: int,
    block: int,
    blocks: int,
    shuffle: bool,
    parts: int,
    direct: bool,
    ahead: int,
) -> None:
    picked = np.arange(0, rows, every)
    chosen = RowSet(0, rows) if every == 1 else RowSet(0, int(picked[-1]) + 1, picked)
    order = Order(chosen, shuffle=shuffle, seed=3, block=block, window=block * blocks)
    source = Chunked(rows, band_rows, parts=parts, direct=direct)
    shared_chunks = SharedChunks(chosen.count)
    waiting: list[tuple[np.ndarray, np.ndarray, list[Job]]] = []

    def finish() -> None:
        out, expected, jobs = waiting.pop(0)
        run(jobs)
        assert np.array_equal(out, expected)

    for window in order.windows(0):
        out = np.full(window.rows, -1)
        expected = out.copy()
        for span in window.spans:
            brought = np.arange(span.start, span.stop)
            expected[span.dest_index] = brought if span.row_index is None else brought[span.row_index]
        waiting.append((out, expected, source.jobs(shared_chunks, window.spans, out)))
        if len(waiting) == ahead:
            finish()
    while waiting:
        finish()
    assert source.decoded == dict.fromkeys(np.unique(picked // band_rows).tolist(), parts)
    assert shared_chunks.held_nbytes == 0


def test_whole_bands_are_decoded_to_their_place() -> None:
    source = Chunked(100, 10)
    out = np.full(40, -1)
    run(source.jobs(SharedChunks(RowSet(0, 100).count), [RowSpan(20, 60, None, slice(0, 40))], out))
    assert np.array_equal(out, np.arange(20, 60))
    assert all(np.shares_memory(into, out) for into in source.into)
    assert len(source.into) == 4


def test_bands_of_one_window_are_placed_without_a_buffer() -> None:
    source = Chunked(100, 10, direct=True)
    out = np.full(10, -1)
    shared_chunks = SharedChunks(RowSet(0, 100).count)
    run(source.jobs(shared_chunks, [RowSpan(20, 30, None, np.arange(9, -1, -1))], out))
    assert np.array_equal(out, np.arange(29, 19, -1))
    assert source.into == []


def test_a_shared_band_is_kept_until_its_rows_were_asked_for() -> None:
    source = Chunked(100, 10, direct=True)
    shared_chunks = SharedChunks(RowSet(0, 100).count)
    out = np.empty(4, np.int64)
    for start, kept in ((0, 80), (4, 80), (8, 80), (12, 80), (16, 0)):
        jobs = source.jobs(shared_chunks, [RowSpan(start, start + 4, None, slice(0, 4))], out)
        assert shared_chunks.held_nbytes == kept
        run(jobs)
        assert np.array_equal(out, np.arange(start, start + 4))
    assert source.decoded == {0: 1, 1: 1}


def test_an_error_reaches_every_window_of_the_band() -> None:
    failure = OSError("no such luck")

    def fail() -> None:
        raise failure

    shared_chunks = SharedChunks(RowSet(0, 100).count)
    out = np.empty(4, np.int64)
    first, second, third = (
        shared_chunks.claim([RowSpan(at, at + 3, None, slice(0, 3))], out, rows=9, band_rows=9)
        for at in (0, 3, 6)
    )
    decode = first.bands[0].jobs([lambda: None, fail])
    decode[0]()
    for jobs in (decode[1:], second.copies, third.copies):
        with pytest.raises(OSError, match="no such luck") as caught:
            run(jobs)
        assert caught.value is failure


@pytest.mark.parametrize("asked", [1, 2], ids=["rows left", "all rows asked for"])
def test_cancel_frees_who_waits(asked: int) -> None:
    """Also where every row of the band was asked for, so that nothing keeps it but the windows."""
    part = object()
    whole = SharedChunks(RowSet(0, 1000).count)
    shared_chunks = whole.of_part(part, 100)
    assert whole.of_part(part, 100) is shared_chunks
    source = Chunked(9, 9)
    out = np.empty(9, np.int64)
    jobs = [
        source.jobs(shared_chunks, [RowSpan(at, at + 3, None, slice(at, at + 3))], out)
        for at in (0, 3, 6)[: asked + 1]
    ]
    with ThreadPoolExecutor() as pool:
        waits = [pool.submit(run, later) for later in jobs[1:]]
        whole.cancel()
        for wait in waits:
            with pytest.raises(ClosedError):
                wait.result(timeout=5)
    assert whole.held_nbytes == 0
    # The one that decodes ends as if nothing had happened: its window is dropped.
    run(jobs[0])
    for cancelled in (whole, shared_chunks, whole.of_part(object(), 0)):
        with pytest.raises(ClosedError):
            source.jobs(cancelled, [RowSpan(0, 3, None, slice(0, 3))], out)


def test_parts_have_bands_of_their_own() -> None:
    first, second = Chunked(10, 4), Chunked(30, 4)
    whole = SharedChunks(RowSet(0, 40).count)
    out = np.empty(40, np.int64)
    for start in range(0, 40, 5):
        for source, begin in ((first, 0), (second, 10)):
            rows = len(source.rows)
            if begin <= start < begin + rows:
                at = start - begin
                span = RowSpan(at, at + 5, None, slice(start, start + 5))
                run(source.jobs(whole.of_part(source, begin), [span], out))
    assert np.array_equal(out, np.r_[0:10, 0:30])
    assert first.decoded == {0: 1, 1: 1, 2: 1}
    assert second.decoded == dict.fromkeys(range(8), 1)
    assert whole.held_nbytes == 0
