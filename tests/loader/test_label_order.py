"""Labels in order are noticed from a few samples, and read in bounded amounts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr

import oocloader as ooc
from oocloader.loader.label_order import sorted_labels
from oocloader.order.order import RowSet
from oocloader.reading.memory_reader import MemoryReader

CLASSES = np.arange(5000) // 500
RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (CLASSES, True),
        (CLASSES[::-1], True),
        (CLASSES.astype("u1"), True),
        (np.repeat([0, 1], [4000, 1000]), True),
        (np.repeat(np.arange(3), 2), True),
        (np.arange(40) // 4, True),
        (np.arange(200) // 20, True),
        (RANDOM.permutation(CLASSES), False),
        (np.arange(5000) % 10, False),
        (np.arange(5000), False),  # numbers of rows, no classes
        (np.zeros(5000, "i4"), False),
        (np.roll(CLASSES, 700), False),
        (CLASSES.astype("f4"), False),
        (CLASSES[:, np.newaxis], False),
        (np.array([3]), False),
        (np.array([3, 4]), False),
    ],
)
def test_in_memory(labels: np.ndarray, expected: bool) -> None:
    assert sorted_labels(MemoryReader(labels), RowSet(0, len(labels))) is expected


def test_only_the_rows_that_are_used() -> None:
    labels = np.where(np.arange(5000) % 2, CLASSES, 0)
    odd = np.arange(1, 5000, 2, dtype=np.int64)
    reader = MemoryReader(labels)
    assert not sorted_labels(reader, RowSet(0, 5000))
    assert sorted_labels(reader, RowSet(1, 5000, odd))
    assert not sorted_labels(reader, RowSet(0, 450))


@pytest.mark.parametrize("kind", ["raw", "zstd", "gzip"])
def test_stored(tmp_path: Path, kind: str) -> None:
    if kind == "gzip":
        with h5py.File(tmp_path / "y.h5", "w") as file:
            file.create_dataset("y", data=CLASSES, chunks=(100,), compression="gzip")
        path = tmp_path / "y.h5"
    else:
        options: dict[str, Any] = {"compressors": None} if kind == "raw" else {}
        path = tmp_path / "y.zarr"
        zarr.create_array(path, data=CLASSES, chunks=(100,), **options)
    with ooc.open_store(path) as store:
        assert sorted_labels(store[store.only_array()].reader, RowSet(0, 5000))


def test_a_chunk_too_large_to_look_into_is_left_alone(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "y.h5", "w") as file:
        file.create_dataset("y", shape=(1 << 20,), dtype="i8", chunks=(1 << 20,), compression="gzip")
    with ooc.open_store(tmp_path / "y.h5") as store:
        reader = store["y"].reader
        reader.jobs = None  # type: ignore[assignment, method-assign]  # reading would fail
        assert not sorted_labels(reader, RowSet(0, 1 << 20))


def test_labels_that_cannot_be_read_are_no_error_here(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "y.zarr", data=CLASSES, chunks=(100,))
    (tmp_path / "y.zarr" / "c" / "3").write_bytes(b"damaged")
    with ooc.open_store(tmp_path / "y.zarr") as store:
        assert not sorted_labels(store[store.only_array()].reader, RowSet(0, 5000))
