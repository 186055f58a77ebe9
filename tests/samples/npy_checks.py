"""Writing and checking arrays of NumPy files."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np

import oocloader as ooc

DTYPES = (
    "?",
    "u1",
    "i1",
    "<u2",
    ">i2",
    "<i4",
    ">u4",
    ">i8",
    "<f2",
    ">f2",
    "<f4",
    ">f4",
    "<f8",
    ">f8",
    "<c8",
    ">c16",
)


def save(path: Path, array: np.ndarray, version: tuple[int, int] | None = None) -> str:
    with warnings.catch_warnings(), open(path, "wb") as stream:
        warnings.simplefilter("ignore")  # NumPy says that format 2 and 3 are new
        np.lib.format.write_array(stream, array, version=version)
    return str(path)


def check_reads(store: ooc.Store, name: str, expected: np.ndarray) -> None:
    """Every third range of rows, and the whole, against `expected`."""
    array = store[name]
    assert array.info.shape == expected.shape
    assert array.info.dtype == expected.dtype.newbyteorder("=")
    for start in range(0, len(expected), 3):
        for stop in {start, start + 1, min(start + 5, len(expected)), len(expected)}:
            found = array.read(start, stop)
            assert found.dtype == array.info.dtype
            assert found.flags.c_contiguous
            assert found.tobytes() == np.ascontiguousarray(expected[start:stop], array.info.dtype).tobytes()
