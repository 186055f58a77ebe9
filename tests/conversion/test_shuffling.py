"""Rows in a random order: the same one always, of every array, through buckets of any size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from numbered import rows_array
from oocloader.conversion import convert, shuffling
from oocloader.conversion.derived_rows import StoredRows
from oocloader.conversion.shuffling import ShuffledRows, order_of
from oocloader.errors import ClosedError
from oocloader.order.permutation import RandomPermutation
from oocloader.stores import open_store
from stored import reference


def test_shuffles_keep_arrays_together_and_say_where_rows_came_from(tmp_path: Path) -> None:
    x, y = rows_array(3000, "uint8", sample_shape=(50,)), np.arange(3000)
    for name in ("a.zarr", "b.zarr"):
        convert({"x": x, "y": y}, tmp_path / name, shuffle=11, shuffle_index="origin", codec="zstd")
    order = reference(tmp_path / "a.zarr", "origin")
    assert order.dtype == np.int64
    assert np.array_equal(np.sort(order), y)
    assert np.array_equal(reference(tmp_path / "a.zarr", "y"), y[order])
    assert np.array_equal(reference(tmp_path / "a.zarr", "x"), x[order])
    assert np.array_equal(reference(tmp_path / "b.zarr", "origin"), order)
    convert(y, tmp_path / "c.zarr", shuffle=12)
    assert not np.array_equal(reference(tmp_path / "c.zarr"), y[order])
    # Of a range of rows, the numbers are those in the source.
    convert(y, tmp_path / "d.zarr", shuffle=11, shuffle_index="origin", rows=slice(1000, 1500))
    assert np.array_equal(reference(tmp_path / "d.zarr", "origin"), reference(tmp_path / "d.zarr", "array"))
    assert set(reference(tmp_path / "d.zarr", "array")) == set(range(1000, 1500))


@pytest.mark.parametrize("name", ["a.zarr", "a.h5"])
def test_the_order_of_a_shuffle_is_verified_in_full(tmp_path: Path, name: str) -> None:
    x = rows_array(3000, "uint8", sample_shape=(50,))
    convert({"x": x}, tmp_path / name, shuffle=11, shuffle_index="origin", verify="full")
    assert np.array_equal(reference(tmp_path / name, "x"), x[reference(tmp_path / name, "origin")])


def test_the_order_is_always_the_same() -> None:
    """Whoever changes these numbers makes conversions that cannot be repeated."""
    assert order_of(10, 0).stretch(0, 10).tolist() == [5, 4, 2, 7, 9, 0, 8, 3, 1, 6]
    assert order_of(100_000, 42).stretch(0, 5).tolist() == [16599, 1200, 15157, 73918, 21275]
    assert order_of(100_000, 2**64 + 42).stretch(0, 5).tolist() == [69812, 65251, 55929, 47528, 65391]
    # A loader of the same seed and number of rows puts them in another order.
    assert RandomPermutation(42, 0, 100_000).stretch(0, 5).tolist() != [16599, 1200, 15157, 73918, 21275]


@pytest.mark.parametrize("bucket_rows", [1, 7, 100, 1000])
def test_buckets_of_any_size(tmp_path: Path, bucket_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffling, "BLOCK_NBYTES", 1500)
    x = rows_array(500, "uint8", sample_shape=(10,))
    order = order_of(500, 1)
    expected = x[order.stretch(0, 500)]
    with open_store(x) as store:
        rows = ShuffledRows(
            StoredRows(store["array"]),
            order,
            shape=x.shape,
            dtype=x.dtype,
            bucket_rows=bucket_rows,
            folder=str(tmp_path),
            threads=3,
        )
        for start, stop in ((0, 500), (3, 4), (90, 310), (499, 500)):
            out = np.empty((stop - start, 10), np.uint8)
            rows.read(start, stop, out)
            assert np.array_equal(out, expected[start:stop])
        rows.close()
        with pytest.raises(ClosedError):
            rows.read(0, 1, np.empty((1, 10), np.uint8))
