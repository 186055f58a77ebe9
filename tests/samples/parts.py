"""Stores in parts that are joined along the rows."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import zarr

import oocloader as ooc
from numbered import rows_array


def write_parts(folder: Path, kind: str, sizes: list[int], *, stem: str = "part_") -> list[Path]:
    """Parts numbered from 1 that hold rows 0, 1, 2, ... one behind the other, and labels where a part may."""
    folder.mkdir(exist_ok=True)
    first = 0
    paths = []
    for number, size in enumerate(sizes, start=1):
        x = rows_array(range(first, first + size))
        y = np.arange(first, first + size)
        path = folder / f"{stem}{number}.{kind}"
        if kind == "npy":
            np.save(path, x)
        elif kind == "h5":
            with h5py.File(path, "w") as file:
                file.create_dataset("x", data=x, chunks=(max(1, min(4, size)), 4, 4), maxshape=(None, 4, 4))
                file.create_dataset("y", data=y, maxshape=(None,))
                file["mean"] = 1.5
        else:
            group = zarr.open_group(path, mode="w")
            group.create_array("x", data=x, chunks=(4, 4, 4))
            group.create_array("y", data=y, chunks=(3,))
        paths.append(path)
        first += size
    return paths


def check_rows(store: ooc.Store, name: str, rows: int) -> None:
    array = store[name]
    assert array.info.shape == (rows, 4, 4)
    for start, stop in ((0, rows), (rows // 3, rows // 2), (rows - 1, rows)):
        assert np.array_equal(array.read(start, stop), rows_array(range(start, stop)))
