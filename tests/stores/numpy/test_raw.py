"""Raw binary files, whose shape and dtype the user says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oocloader as ooc
from oocloader.stores.numpy.raw import open_raw, raw_shape


@pytest.mark.parametrize("shape", [(-1, 2), (5, 2)])
def test_values(tmp_path: Path, shape: tuple[int, ...]) -> None:
    x = np.arange(10, dtype=">i2").reshape(5, 2)
    x.tofile(tmp_path / "x.bin")
    with open_raw(str(tmp_path / "x.bin"), shape, np.dtype(">i2")) as store:
        assert np.array_equal(store["x"].read(0, 5), x)


@pytest.mark.parametrize(
    ("shape", "dtype", "kind", "words"),
    [
        ((-1, 3), "<i2", ooc.DataError, "a multiple of 6"),
        ((4, 2), "<i2", ooc.DataError, "16 are expected"),
        ((-1, 2), "M8[s]", ooc.UnsupportedArrayError, "cannot be loaded"),
    ],
)
def test_that_do_not_fit(tmp_path: Path, shape: tuple[int, ...], dtype: str, kind: Any, words: str) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(bytes(20 if dtype != "M8[s]" else 32))
    with pytest.raises(kind, match=words):
        open_raw(str(path), shape, np.dtype(dtype))


def test_files_that_have_a_shape_of_their_own(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(3))
    with pytest.raises(ooc.SettingError, match=r"is a \.npy file"):
        open_raw(str(tmp_path / "x.npy"), (-1,), np.dtype("i8"))
    with pytest.raises(ooc.StoreError, match="is a folder"):
        open_raw(str(tmp_path), (-1,), np.dtype("i8"))


@pytest.mark.parametrize("shape", ["", "2,x", "0,2", "2,-1", 5, (2.5,), "-2"])
def test_what_is_no_shape(shape: Any) -> None:
    with pytest.raises(ooc.SettingError, match="shape"):
        raw_shape(shape)
