"""What the arrays of a new store are called, and names that they cannot have."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
import pytest
import zarr

from oocloader.conversion import convert
from oocloader.errors import SettingError


def test_names_of_a_single_array(tmp_path: Path) -> None:
    np.save(tmp_path / "photos.npy", np.arange(10))
    (tmp_path / "parts").mkdir()
    for part in (1, 2):
        np.save(tmp_path / "parts" / f"{part}.npy", np.arange(5))
    formats: list[Literal[2, 3]] = [2, 3]
    for version in formats:
        zarr.create_array(tmp_path / f"root{version}.zarr", data=np.arange(9), zarr_format=version)
        group = zarr.create_group(tmp_path / f"group{version}.zarr", zarr_format=version)
        group.create_array("inner", data=np.arange(9))
    for number, (source, in_zarr, in_hdf5) in enumerate(
        [
            (tmp_path / "photos.npy", None, "photos"),
            (np.arange(10), None, "array"),
            ([np.arange(4), np.arange(6)], None, "array"),
            ({"x": tmp_path / "photos.npy"}, "x", "x"),
            (f"{tmp_path}/*.npy", None, "photos"),
            (tmp_path / "parts", None, "parts"),
            (tmp_path / "root2.zarr", None, "root2"),
            (tmp_path / "root3.zarr", None, "root3"),
            (tmp_path / "group2.zarr", "inner", "inner"),
            (tmp_path / "group3.zarr", "inner", "inner"),
        ]
    ):
        convert(source, tmp_path / f"{number}.zarr")
        convert(source, tmp_path / f"{number}.h5")
        root: Any = zarr.open(tmp_path / f"{number}.zarr", mode="r")
        assert isinstance(root, zarr.Array) if in_zarr is None else list(root) == [in_zarr]
        with h5py.File(tmp_path / f"{number}.h5") as file:
            assert list(file) == [in_hdf5]


@pytest.mark.parametrize("suffix", [".zarr", ".h5"])
@pytest.mark.parametrize(
    "name", ["a/../b", "..", ".", "/a", "a//b", "a/", "zarr.json", "g/.zarray", "a\0b", "a\udcffb"]
)
def test_names_that_no_array_can_have_are_refused_before_anything_is_written(
    tmp_path: Path, name: str, suffix: str
) -> None:
    with pytest.raises(SettingError, match="cannot be the name of an array"):
        convert({name: np.arange(10)}, tmp_path / f"out{suffix}")
    assert list(tmp_path.iterdir()) == []


def test_zarr_takes_a_backslash_for_a_slash(tmp_path: Path) -> None:
    x = np.arange(10)
    convert({"a\\b": x, "y": x}, tmp_path / "x.h5")
    with pytest.raises(SettingError, match="cannot be the name of an array"):
        convert({"a\\b": x, "y": x}, tmp_path / "x.zarr")
    assert os.listdir(tmp_path) == ["x.h5"]
