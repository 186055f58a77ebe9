"""Values in another dtype: which survive, against Python's exact arithmetic, and what is said of others."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from numbered import rows_array
from oocloader.conversion import convert
from oocloader.conversion.casting import cast_values
from oocloader.errors import DataError
from stored import reference

NUMBERS = ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16")


def _survives(value: Any, old: np.dtype, new: np.dtype) -> bool:
    """Whether a Python number is the same in another dtype, by Python's exact arithmetic."""
    number = value.item()
    if isinstance(number, complex):
        parts = [number.real, number.imag] if new.kind == "c" else [number.real]
        if new.kind != "c" and number.imag != 0:
            return False
    else:
        parts = [number]
    inner = np.dtype(f"f{new.itemsize // 2}") if new.kind == "c" else new
    return all(_part_survives(part, inner) for part in parts)


def _part_survives(number: Any, new: np.dtype) -> bool:
    if new.kind == "f":
        if number != number or number in (float("inf"), float("-inf")):
            return True
        with np.errstate(all="ignore"):
            try:
                there = new.type(number)
            except OverflowError:
                return False
        return bool(np.isfinite(there)) and there.item() == number
    if number != number or number in (float("inf"), float("-inf")) or number != int(number):
        return False
    low, high = (0, 1) if new.kind == "b" else (int(np.iinfo(new).min), int(np.iinfo(new).max))
    return low <= int(number) <= high


def _edges(dtype: np.dtype) -> Iterator[Any]:
    if dtype.kind == "b":
        yield from (False, True)
    elif dtype.kind in "iu":
        limits = np.iinfo(dtype)
        low, high = int(limits.min), int(limits.max)
        yield from (0, 1, low, high, high - 1, high // 2 + 1, high // 3)
        yield from (n for n in (255, 256, 2048, 2049, 2**24 + 1, 2**31, 2**53 + 1, 2**63) if n <= high)
    else:
        info = np.finfo(np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype)
        values = [0.0, -0.0, 1.0, -1.0, 0.5, 0.1, 127.0, 128.0, 255.0, 256.0, -129.0]
        values += [float("nan"), float("inf"), float(info.max), float(info.min), float(info.tiny)]
        values += [65504.0, 2.0**31, 2.0**63, 2.0**64]
        for value in values:
            if abs(value) <= float(info.max) or not np.isfinite(value):
                yield complex(value, 0) if dtype.kind == "c" else value
        if dtype.kind == "c":
            yield 1 + 2j


@pytest.mark.parametrize(("old", "new"), list(itertools.product(NUMBERS, NUMBERS)))
def test_values_that_survive_and_values_that_do_not(old: str, new: str) -> None:
    for value in _edges(np.dtype(old)):
        values = np.array([value], old)
        out = np.empty(1, new)
        lost = cast_values(values, out, lossy=False)
        assert (lost is None) == _survives(values[0], values.dtype, out.dtype), (value, out)
        if lost is None:
            assert np.array_equal(out.astype(complex), values.astype(complex), equal_nan=True)


@pytest.mark.parametrize(
    ("value", "old", "new", "expected"),
    [
        (0.1, "f8", "f4", np.float32(0.1)),
        (2.5, "f4", "i1", 2),
        (-2.6, "f8", "i4", -3),
        (127.4, "f4", "i1", 127),
        (127.6, "f4", "i1", None),
        (-0.6, "f4", "u1", None),
        (-0.4, "f4", "u1", 0),
        (300, "i4", "u1", None),
        (1e39, "f8", "f4", None),
        (float("nan"), "f4", "i4", None),
        (float("nan"), "f8", "f2", float("nan")),
        (float("inf"), "f8", "f2", float("inf")),
        (2**24 + 1, "i4", "f4", 2**24),
        (2, "i4", "?", None),
        (1 + 1j, "c8", "f4", None),
        (0.1 + 1j, "c16", "c8", np.complex64(0.1 + 1j)),
        (2.0**63, "f8", "i8", None),
    ],
)
def test_lossy_rounds_but_stays_in_range(value: Any, old: str, new: str, expected: Any) -> None:
    out = np.empty(1, new)
    lost = cast_values(np.array([value], old), out, lossy=True)
    if expected is None:
        assert lost == 0
    else:
        assert lost is None
        assert np.array_equal(out, np.array([expected], new), equal_nan=True)


def test_casting_says_where_a_value_is_lost(tmp_path: Path) -> None:
    x = np.zeros((3000, 5, 7), "f8")
    x[2345, 3, 6] = 0.1
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(DataError, match=r"x\.npy: array 'x', row 2345 .*\(3, 6\): 0\.1 .*--lossy") as caught:
        convert(tmp_path / "x.npy", tmp_path / "o.h5", dtype="f4")
    assert caught.value.rows == (2345, 2346)
    assert os.listdir(tmp_path) == ["x.npy"]
    convert(tmp_path / "x.npy", tmp_path / "o.h5", dtype="f4", lossy=True)
    assert np.array_equal(reference(tmp_path / "o.h5"), x.astype("f4"))
    x[2345, 3, 6] = 1e300
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(DataError, match="outside what float32 can hold; take a wider dtype"):
        convert(tmp_path / "x.npy", tmp_path / "p.h5", dtype="f4", lossy=True)


def test_casting_one_of_several(tmp_path: Path) -> None:
    x, y = rows_array(200, "float64"), np.arange(200)
    convert({"x": x, "y": y}, tmp_path / "o.zarr", dtype={"x": "f4"}, rows=slice(-200, None))
    assert reference(tmp_path / "o.zarr", "x").dtype == np.float32
    assert np.array_equal(reference(tmp_path / "o.zarr", "x"), x)
    assert reference(tmp_path / "o.zarr", "y").dtype == np.int64
