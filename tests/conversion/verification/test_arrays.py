"""One array against another, or against what it was when it was written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from damaged import only
from oocloader.conversion import convert
from oocloader.conversion.verification import arrays, compare, verify
from oocloader.errors import ChangedError


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
@pytest.mark.parametrize("dtype", ["?", "u1", "i2", "f4", "f8", "c16"])
def test_differences_are_counted_and_the_first_is_named(tmp_path: Path, suffix: str, dtype: str) -> None:
    x = (np.arange(300 * 5).reshape(300, 5) % 2).astype(dtype)
    convert({"x": x}, tmp_path / f"out{suffix}", chunk_rows=16)
    other = x.copy()
    for row, column in ((77, 3), (77, 4), (290, 0)):
        other[row, column] = 0 if other[row, column] else 1
    found = only(verify(tmp_path / f"out{suffix}", {"x": other}))
    assert not found.ok
    assert found.differences == 3
    assert found.first is not None
    assert (found.first.row, found.first.index) == (77, (3,))
    assert (found.first.found, found.first.expected) == (str(x[77, 3]), str(other[77, 3]))
    assert not found.damaged
    assert "3 values differ, first at row 77, index (3,):" in found.lines()[0]


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (np.zeros((99, 4), "f4"), "it is float32 (100, 4), in array in memory it is float32 (99, 4)"),
        (np.zeros((100, 4), "f8"), "it is float32 (100, 4), in array in memory it is float64 (100, 4)"),
        (np.array(["a", "b"]), "<U1"),
    ],
)
def test_what_cannot_be_compared(tmp_path: Path, other: np.ndarray, words: str) -> None:
    convert(np.zeros((100, 4), "f4"), tmp_path / "x.zarr")
    found = only(verify(tmp_path / "x.zarr", other))
    assert not found.ok
    assert words in found.problem


def test_changed_by_others_with_the_manifest_in_place(tmp_path: Path) -> None:
    convert({"x": np.arange(100)}, tmp_path / "out.zarr", chunk_rows=10)
    root: Any = zarr.open_group(tmp_path / "out.zarr", mode="r+")
    root["x"].resize((90,))
    found = only(verify(tmp_path / "out.zarr"))
    assert "it is int64 (90,), when it was written it was int64 (100,)" in found.problem


@pytest.mark.parametrize("many", [False, True])
def test_memory_and_threads_do_not_change_the_result(tmp_path: Path, many: bool) -> None:
    # Above what is read at once, so that pieces are several.
    x = np.random.default_rng(0).integers(0, 200, (5000, 64, 64), dtype=np.uint8)
    convert({"x": x}, tmp_path / "out.zarr", codec="none", chunk_rows=400 if many else 5000)
    other = x.copy()
    other[[17, 3000, 4999], 5, 6] ^= 1
    found = only(verify(tmp_path / "out.zarr", other))
    assert found.differences == 3
    assert found.first is not None
    assert (found.first.row, found.first.index) == (17, (5, 6))


def test_files_that_change_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "x.npy", np.arange(9_000_000))
    convert(tmp_path / "x.npy", tmp_path / "x.zarr")
    real = compare.differing

    def changing(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
        os.utime(tmp_path / "x.npy", ns=(1, 1))
        return real(found, expected)

    monkeypatch.setattr(arrays, "differing", changing)
    with pytest.raises(ChangedError, match=r"x\.npy"):
        verify(tmp_path / "x.zarr", tmp_path / "x.npy")
