"""Boxes: cutting arrays as they are kept, and reading any of them from any kind of store."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.codecs import TransposeCodec

from oocloader.reading.boxes import (
    Box,
    BoxReader,
    ChunkGeometry,
    box_shape,
    cut_boxes,
    in_order,
    runs_of,
    within_rows,
)
from oocloader.stores import open_store


@st.composite
def grains(draw: st.DrawFn) -> tuple[tuple[int, ...], ChunkGeometry]:
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    unit = tuple(draw(st.integers(1, 10)) for _ in shape)
    return shape, ChunkGeometry(unit, tuple(draw(st.permutations(range(len(shape))))))


@given(case=grains(), most=st.integers(1, 3000), itemsize=st.sampled_from([1, 2, 8]))
def test_boxes_cover_the_array_once_in_whole_units(
    case: tuple[tuple[int, ...], ChunkGeometry], most: int, itemsize: int
) -> None:
    shape, chunk_geometry = case
    seen = np.zeros(shape, int)
    unit = [min(u, n) for u, n in zip(chunk_geometry.unit, shape, strict=True)]
    boxes = cut_boxes(shape, chunk_geometry, itemsize=itemsize, most_nbytes=most)
    for box in boxes:
        seen[box] += 1
        assert math.prod(box_shape(box)) * itemsize <= max(most, math.prod(unit) * itemsize)
        for part, size, length in zip(box, unit, shape, strict=True):
            assert part.start % size == 0
            assert part.stop % size == 0 or part.stop == length
    assert (seen == 1).all()
    starts = [in_order([part.start for part in box], chunk_geometry.order) for box in boxes]
    assert starts == sorted(starts)


@given(data=st.data(), shape=st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple))
def test_runs_are_the_bytes_of_the_box(data: st.DataObject, shape: tuple[int, ...]) -> None:
    array = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    box = []
    for length in shape:
        start = data.draw(st.integers(0, length - 1))
        box.append(slice(start, data.draw(st.integers(start + 1, length))))
    offsets, run = runs_of(tuple(box), shape, 4)
    content = array.tobytes()
    found = b"".join(content[offset : offset + run] for offset in offsets.tolist())
    assert found == array[tuple(box)].tobytes()


def test_runs_are_as_long_as_they_can_be() -> None:
    offsets, run = runs_of((slice(2, 5), slice(0, 4), slice(0, 6)), (9, 4, 6), 8)
    assert (offsets.tolist(), run) == ([2 * 24 * 8], 3 * 24 * 8)


def test_rows_of_a_box() -> None:
    box = (slice(4, 8), slice(2, 3))
    assert within_rows(box, 0, 0, 4) is None
    assert within_rows(box, 0, 8, 9) is None
    assert within_rows(box, 0, 5, 99) == (slice(5, 8), slice(2, 3))
    assert within_rows(box, 1, 0, 9) == box


X = np.arange(31 * 6 * 10).reshape(31, 6, 10)


def _npy(folder: Path, x: np.ndarray) -> Any:
    np.save(folder / "x.npy", x)
    return folder / "x.npy"


def _hdf5(folder: Path, **options: Any) -> Any:
    with h5py.File(folder / "x.h5", "w") as file:
        made = file.create_dataset("x", X.shape, "i4", fillvalue=-7, **options)
        made[:20] = X[:20]
    return folder / "x.h5"


def _zarr(folder: Path, **options: Any) -> Any:
    array: Any = zarr.create_array(folder / "x.zarr", shape=X.shape, dtype="i4", fill_value=-7, **options)
    array[:20] = X[:20]
    return folder / "x.zarr"


def _virtual(folder: Path, tmp: str = "v.h5") -> Any:
    _hdf5(folder, chunks=(8, 3, 5))
    layout = h5py.VirtualLayout(X.shape, "i4")
    layout[:] = h5py.VirtualSource(folder / "x.h5", "x", X.shape)
    with h5py.File(folder / tmp, "w") as file:
        file.create_virtual_dataset("x", layout)
    return folder / tmp


def _npz(folder: Path) -> Any:
    np.savez_compressed(folder / "x.npz", x=np.asfortranarray(X.astype("i4")))
    return folder / "x.npz"


def _zipped(folder: Path) -> Any:
    store = zarr.storage.ZipStore(folder / "x.zip", mode="w", compression=zipfile.ZIP_DEFLATED)
    array: Any = zarr.create_array(store, shape=X.shape, dtype="i4", fill_value=-7, chunks=(8, 4, 4))
    array[:20] = X[:20]
    store.close()
    return folder / "x.zip"


HALF = np.where(np.arange(31)[:, None, None] < 20, X, -7)


@pytest.mark.parametrize(
    ("make", "expected", "order"),
    [
        (lambda folder: _npy(folder, X.astype("i4")), X, (0, 1, 2)),
        (lambda folder: _npy(folder, X.astype(">i4")), X, (0, 1, 2)),
        (lambda folder: _npy(folder, np.asfortranarray(X.astype("i4"))), X, (2, 1, 0)),
        (lambda folder: _npy(folder, np.asfortranarray(X.astype(">i4"))), X, (2, 1, 0)),
        (_npz, X, (2, 1, 0)),
        (lambda folder: X.astype("i4").transpose(1, 0, 2).copy().transpose(1, 0, 2), X, (1, 0, 2)),
        (lambda folder: _hdf5(folder), HALF, (0, 1, 2)),
        (lambda folder: _hdf5(folder, chunks=(8, 6, 10)), HALF, (0, 1, 2)),
        (lambda folder: _hdf5(folder, chunks=(8, 3, 4)), HALF, (0, 1, 2)),
        (lambda folder: _hdf5(folder, chunks=(31, 1, 10), compression="gzip"), HALF, (0, 1, 2)),
        (_virtual, HALF, (0, 1, 2)),
        (_zipped, HALF, (0, 1, 2)),
        (lambda folder: _zarr(folder, chunks=(8, 4, 4)), HALF, (0, 1, 2)),
        (lambda folder: _zarr(folder, chunks=(4, 3, 5), shards=(8, 6, 10)), HALF, (0, 1, 2)),
        (
            lambda folder: _zarr(folder, chunks=(8, 4, 4), filters=TransposeCodec(order=(2, 0, 1))),
            HALF,
            (0, 1, 2),
        ),
    ],
)
def test_every_reader_reads_any_box(tmp_path: Path, make: Any, expected: np.ndarray, order: Any) -> None:
    boxes: list[Box] = [
        (slice(0, 31), slice(0, 6), slice(0, 10)),
        (slice(3, 4), slice(0, 6), slice(0, 10)),
        (slice(7, 25), slice(1, 6), slice(3, 9)),
        (slice(0, 31), slice(5, 6), slice(0, 1)),
    ]
    with open_store(make(tmp_path)) as store:
        reader = store[store.only_array()].reader
        assert isinstance(reader, BoxReader)
        assert reader.chunk_geometry.order == order
        boxes += cut_boxes(reader.shape, reader.chunk_geometry, itemsize=4, most_nbytes=700)
        for box in boxes:
            out = np.full(in_order(box_shape(box), order), -1, np.int32)
            reader.read_box(box, out)
            assert np.array_equal(out, expected[box].transpose(order))
