"""The arrays of a new store: rows, axes, attributes, fill values, and by which way rows come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import zarr

from oocloader.conversion import convert
from oocloader.conversion.new_array import is_spread
from oocloader.stores import open_store
from spread import X
from stored import opened, reference


def test_what_is_spread_goes_by_boxes_and_what_is_not_does_not(tmp_path: Path) -> None:
    def spread(array: Any, axis: int = 0) -> bool:
        with open_store(array) as store:
            return is_spread(store[store.only_array()].reader, axis)

    def npy(name: str, shape: tuple[int, ...], dtype: str = "u1", **options: Any) -> Path:
        np.lib.format.open_memmap(tmp_path / name, "w+", dtype, shape, **options)  # sparse
        return tmp_path / name

    def hdf5(name: str, shape: tuple[int, ...], chunks: tuple[int, ...]) -> Path:
        with h5py.File(tmp_path / name, "w") as file:
            file.create_dataset("x", shape, "u1", chunks=chunks, compression="gzip")
        return tmp_path / name

    assert not spread(npy("c.npy", (80_000, 64, 64, 3)))
    assert spread(npy("c.npy", (80_000, 64, 64, 3)), 3)
    assert spread(npy("f.npy", (80_000, 64, 64, 3), fortran_order=True))
    # The columns of a table lie together in long runs.
    assert not spread(npy("t.npy", (10_000_000, 8), "f4", fortran_order=True))
    assert not spread(npy("s.npy", (100, 64, 64, 3), fortran_order=True))
    assert not spread(hdf5("a.h5", (80_000, 64, 64, 3), (256, 32, 32, 1)))
    assert spread(hdf5("b.h5", (80_000, 64, 64, 3), (80_000, 1, 1, 3)))
    assert not spread([tmp_path / "c.npy", tmp_path / "c.npy"])
    assert spread([tmp_path / "c.npy", tmp_path / "f.npy"])


def test_rows_are_those_of_the_axis(tmp_path: Path) -> None:
    x, y = X[:, :, 0, 0].T.copy(), np.arange(500)
    convert({"x": x, "y": y}, tmp_path / "o.zarr", axis={"x": 1})
    assert np.array_equal(reference(tmp_path / "o.zarr", "x"), x.T)
    assert np.array_equal(reference(tmp_path / "o.zarr", "y"), y)


def test_fill_values_are_cast_with_the_rows(tmp_path: Path) -> None:
    for fill, expected in ((-1.0, -1), (0.5, 0)):
        store = tmp_path / f"{fill}.zarr"
        zarr.create_array(store, data=np.ones((9, 2), "f4"), chunks=(3, 2), fill_value=fill)
        convert(store, tmp_path / f"{fill}.h5", dtype="i2")
        with h5py.File(tmp_path / f"{fill}.h5") as file:
            assert file[f"{fill}".partition(".")[0]].fillvalue == expected


def test_names_of_axes_follow_the_axes(tmp_path: Path) -> None:
    attrs: dict[str, Any] = {"_ARRAY_DIMENSIONS": ["time", "y", "x"], "other": ["time", "y", "x"]}
    zarr.create_array(tmp_path / "x.zarr", data=np.zeros((2, 3, 4)), attributes=attrs, zarr_format=2)
    convert(tmp_path / "x.zarr", tmp_path / "o.zarr", axis=2)
    found = opened(tmp_path / "o.zarr")
    assert dict(found.attrs) == {"_ARRAY_DIMENSIONS": ["x", "time", "y"], "other": ["time", "y", "x"]}
