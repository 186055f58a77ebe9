"""Bytes that reading takes, against the bytes that were read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import oocloader as ooc
from numbered import rows_array
from oocloader.memory.cost import Cost, banded_cost, merged_ranges, row_count, rows_by_band
from oocloader.metrics.counters import Counters
from oocloader.order.order import RowSet
from oocloader.order.row_spans import RowSpan
from oocloader.reading.row_reader import RowReader, Target
from oocloader.reading.shared_chunks import SharedChunks

ROWS = 700
SAMPLE = (8, 16)  # rows of 128 bytes
EVERY = RowSet(0, ROWS)
RUN = RowSet(130, 301)
SOME = RowSet(3, 644, np.array([3, 4, 5, 64, 200, 201, 643], np.int64))
THIRDS = RowSet(0, 700, np.arange(0, 700, 3, dtype=np.int64))


def span(start: int, stop: int, row_index: list[int] | None = None) -> RowSpan:
    rows = stop - start if row_index is None else len(row_index)
    return RowSpan(start, stop, None if row_index is None else np.array(row_index, np.int64), slice(0, rows))


@pytest.mark.parametrize(
    ("spans", "band_rows", "expected"),
    [
        ([], 10, {}),
        ([span(0, 10)], 10, {0: 10}),
        ([span(9, 21)], 10, {0: 1, 1: 10, 2: 1}),
        ([span(0, 4), span(6, 12), span(30, 31)], 10, {0: 8, 1: 2, 3: 1}),
        ([span(5, 40, [0, 1, 5, 34])], 10, {0: 2, 1: 1, 3: 1}),
        ([span(5, 8, [0, 2]), span(8, 9)], 10, {0: 3}),
    ],
)
def test_rows_by_band(spans: list[RowSpan], band_rows: int, expected: dict[int, int]) -> None:
    bands, rows = rows_by_band(spans, band_rows)
    assert dict(zip(bands.tolist(), rows.tolist(), strict=True)) == expected


@given(rows=st.sets(st.integers(0, 300), min_size=1), band_rows=st.integers(1, 400))
def test_rows_by_band_counts_each_row(rows: set[int], band_rows: int) -> None:
    picked = np.array(sorted(rows), np.int64)
    found = RowSet(int(picked[0]), int(picked[-1]) + 1, picked).span(0, len(picked))
    bands, counts = rows_by_band([found], band_rows)
    expected = np.unique(picked // band_rows, return_counts=True)
    assert np.array_equal(bands, expected[0])
    assert np.array_equal(counts, expected[1])
    assert row_count([found]) == len(rows)


@pytest.mark.parametrize(("gap", "read"), [(0, 4), (1, 5), (2, 5), (94, 5), (95, 100)])
def test_spans(gap: int, read: int) -> None:
    first, behind = merged_ranges([span(10, 110, [0, 2, 3, 99]), span(120, 125)], gap)
    assert (behind - first).sum() == read + 5
    assert (first[0], behind[-2], first[-1], behind[-1]) == (10, 110, 120, 125)


def test_the_share_of_a_chunk_is_what_its_rows_have() -> None:
    stored = np.array([100, 40, 7])
    every = banded_cost([span(0, 25)], rows=25, band_rows=10, row_nbytes=3, stored=stored)
    assert every == Cost(147, 147, 75)
    some = banded_cost([span(9, 12)], rows=25, band_rows=10, row_nbytes=3, stored=stored)
    assert some == Cost(10 + 8, 140, 60)
    last = banded_cost([span(23, 25)], rows=25, band_rows=10, row_nbytes=3, stored=stored)
    assert last == Cost(round(7 * 2 / 5), 7, 15)
    assert banded_cost([span(9, 12)], rows=25, band_rows=10, row_nbytes=3) == Cost(9, 60, 60)
    assert some + last == Cost(21, 147, 75)


def gzip(folder: Path, x: np.ndarray) -> str:
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("x", data=x, chunks=(64, *SAMPLE), compression="gzip")
    return str(folder / "x.h5")


def cut_samples(folder: Path, x: np.ndarray) -> str:
    with h5py.File(folder / "cut.h5", "w") as file:
        file.create_dataset("x", data=x, chunks=(50, 4, 16), compression="gzip")
    return str(folder / "cut.h5")


def zstd(folder: Path, x: np.ndarray) -> str:
    zarr.create_array(folder / "zstd.zarr", data=x, chunks=(64, *SAMPLE))
    return str(folder / "zstd.zarr")


def raw_chunks(folder: Path, x: np.ndarray) -> str:
    zarr.create_array(folder / "raw.zarr", data=x, chunks=(64, *SAMPLE), compressors=None)
    return str(folder / "raw.zarr")


def holes(folder: Path, x: np.ndarray) -> str:
    array = zarr.create_array(
        folder / "holes.zarr", shape=x.shape, dtype=x.dtype, chunks=(64, *SAMPLE), compressors=None
    )
    array[128:320] = x[128:320]
    return str(folder / "holes.zarr")


def contiguous(folder: Path, x: np.ndarray) -> str:
    np.save(folder / "x.npy", x)
    return str(folder / "x.npy")


def joined(folder: Path, x: np.ndarray) -> list[str]:
    zarr.create_array(folder / "a.zarr", data=x[:300], chunks=(64, *SAMPLE))
    np.save(folder / "b.npy", x[300:])
    return [str(folder / "a.zarr"), str(folder / "b.npy")]


@pytest.mark.parametrize("rows", [EVERY, RUN, SOME, THIRDS], ids=["every", "run", "some", "thirds"])
@pytest.mark.parametrize("make", [gzip, cut_samples, zstd, raw_chunks, holes, contiguous, joined])
def test_what_is_read_is_what_was_said(
    tmp_path: Path, make: Callable[[Path, np.ndarray], str | list[str]], rows: RowSet
) -> None:
    x = rows_array(ROWS, "uint8", sample_shape=SAMPLE)
    with ooc.open_store(make(tmp_path, x)) as store:
        reader = store[store.only_array()].reader
        wanted = rows.span(0, len(rows))
        cost = reader.cost([wanted])
        counters = read(reader, wanted, rows, x)
    assert cost.read_nbytes == counters.read_bytes
    assert cost.wanted_nbytes <= cost.read_nbytes
    assert cost.touched_nbytes >= len(rows) * 128
    if rows is EVERY:
        assert cost.wanted_nbytes == cost.read_nbytes
        assert cost.touched_nbytes == x.nbytes


def read(reader: RowReader, wanted: RowSpan, rows: RowSet, x: np.ndarray) -> Counters:
    counters = Counters()
    out = np.empty((len(rows), *SAMPLE), np.uint8)
    for job in reader.jobs([wanted], Target(out, SharedChunks(rows.count), counters)):
        job()
    there = x[wanted.stored_rows()]
    if not np.array_equal(out, there):  # rows that the store with holes does not have
        assert not out[(out != there).any(axis=(1, 2))].any()
    return counters


def test_rows_of_memory_columns_and_libraries(tmp_path: Path) -> None:
    x = rows_array(ROWS, "uint8", sample_shape=SAMPLE)
    some = [SOME.span(0, len(SOME))]
    with ooc.open_store(x) as store:
        assert store["array"].reader.cost(some) == Cost(7 * 128, 7 * 128, 7 * 128)
    np.save(tmp_path / "columns.npy", np.asfortranarray(x))
    with ooc.open_store(tmp_path / "columns.npy") as store:
        assert store["columns"].reader.cost(some) == Cost(7 * 128, x.nbytes, x.nbytes)
    with h5py.File(tmp_path / "scale.h5", "w") as file:
        file.create_dataset("x", data=x, chunks=(64, *SAMPLE), scaleoffset=0)
    with ooc.open_store(tmp_path / "scale.h5") as store:
        assert store.arrays["x"].reader == "library"
        # Rows 3 to 5, 64, 200 to 201 and 643 lie in four chunks, the last of which has 60 rows.
        assert store["x"].reader.cost(some) == Cost(7 * 128, 252 * 128, 252 * 128)
