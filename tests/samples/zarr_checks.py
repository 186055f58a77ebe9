"""Zarr arrays of all kinds, and stores against what zarr-python reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import zarr
import zarr.codecs
import zarr.storage

import oocloader as ooc
from numbered import rows_array

SHAPE = (23, 9, 4)


def bits(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array, array.dtype.newbyteorder("=")).tobytes()


def check_equal(store: ooc.Store, name: str, expected: np.ndarray) -> None:
    """The whole and ranges that cut chunks, bit by bit."""
    array = store[name]
    rows = len(expected)
    assert array.info.shape == expected.shape
    assert array.info.dtype == expected.dtype.newbyteorder("=")
    for start, stop in {(0, rows), (0, 1), (rows - 1, rows), (rows // 3, 2 * rows // 3), (rows // 2, rows)}:
        assert bits(array.read(start, stop)) == bits(expected[start:stop])


def check_against_zarr(path: Path, *, reader: str | None = None) -> None:
    """Every array of a group that loads, against what zarr-python reads."""
    group = zarr.open_group(path, mode="r")
    with ooc.open_store(path) as store:
        for name, info in store.arrays.items():
            if reader is not None:
                assert (name, info.reader) == (name, reader), info.reason
            if info.reader != "none":
                expected = group[name]
                assert isinstance(expected, zarr.Array)
                check_equal(store, name, np.asarray(expected[...]))


def fill(group: zarr.Group, name: str, dtype: str, **options: Any) -> None:
    """An array with chunks that were never written and with a last one, and an array with none written."""
    x = rows_array(SHAPE[0], dtype, sample_shape=SHAPE[1:])
    holes = group.create_array(f"{name}/holes", shape=SHAPE, dtype=dtype, fill_value=1, **options)
    holes[9:14] = x[9:14]
    holes[20:] = x[20:]
    group.create_array(f"{name}/none", shape=SHAPE, dtype=dtype, fill_value=1, **options)
