"""What is written besides the rows: fill values and attributes, from any format to any."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr

from oocloader.conversion import convert
from oocloader.errors import SettingError
from oocloader.stores import open_store
from stored import opened

# -- fill values


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [
        ("<f4", "000080bf"),
        ("<f4", "00000080"),  # -0.0
        ("<f4", "2301c07f"),  # a NaN with a payload
        ("<f4", "0000c0ff"),  # a negative NaN
        ("<f8", "010000000000f87f"),
        ("<f2", "017e"),
        ("<i8", "ffffffffffffff7f"),
        ("<u8", "ffffffffffffffff"),
        ("|b1", "01"),
        ("<f4", "0000807f"),
        ("<c8", "2301c07f00000080"),
        ("<f4", "00000000"),
    ],
)
@pytest.mark.parametrize("suffix", [".zarr", ".h5"])
def test_fill_values_keep_their_bits(tmp_path: Path, dtype: str, bits: str, suffix: str) -> None:
    fill = np.frombuffer(bytes.fromhex(bits), dtype)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_fill_value(fill.reshape(()))
        made = file.create_dataset("x", (100, 3), dtype, chunks=(10, 3), dcpl=properties)
        made[:50] = np.ones((50, 3), dtype)
    convert(tmp_path / "x.h5", tmp_path / f"a{suffix}")
    # Over and over, so that what is written is read.
    convert(tmp_path / f"a{suffix}", tmp_path / "b.zarr")
    convert(tmp_path / "b.zarr", tmp_path / "c.h5")
    with h5py.File(tmp_path / "c.h5") as file:
        assert np.asarray(file["x"].fillvalue).tobytes() == fill.tobytes()
        rows = file["x"][:]
    assert rows[:50].tobytes() == np.ones((50, 3), dtype).tobytes()
    assert rows[50:].tobytes() == fill.tobytes() * 150
    found = opened(tmp_path / "b.zarr")["x"]
    assert np.array_equal(found[:].view(np.uint8), rows.view(np.uint8))
    assert np.array_equal(found.fill_value, fill[0], equal_nan=fill.dtype.kind in "fc")


# -- attributes


@pytest.mark.parametrize("source", [".zarr", ".h5"])
@pytest.mark.parametrize("suffix", [".zarr", ".h5"])
@pytest.mark.parametrize("version", [2, 3])
def test_attributes_come_along(tmp_path: Path, source: str, suffix: str, version: Any) -> None:
    attrs: dict[str, Any] = {
        "units": "Kelvin",
        "é": "ü",
        "count": 3,
        "scale": 0.25,
        "names": ["a", "b"],
        "numbers": [1.5, 2.5],
        "yes": True,
        "long": "x" * 70_000,
    }
    if source == ".h5":
        with h5py.File(tmp_path / "in.h5", "w", libver="v110") as file:
            file["x"] = np.arange(10)
            for name, value in attrs.items():
                file["x"].attrs[name] = value
            file["y"] = np.arange(10)
            file["y"].attrs["only"] = "y"
            file["x"].make_scale("time")
            file["y"].dims[0].attach_scale(file["x"])
    else:
        group = zarr.create_group(tmp_path / "in.zarr")
        group.create_array("x", data=np.arange(10), attributes=attrs)
        group.create_array("y", data=np.arange(10), attributes={"only": "y"})
    if suffix == ".h5" and version == 2:
        version = 3
    convert(tmp_path / f"in{source}", tmp_path / f"out{suffix}", zarr_format=version)
    with open_store(tmp_path / f"out{suffix}") as store:
        assert dict(store.arrays["x"].attrs) == attrs
        assert dict(store.arrays["y"].attrs) == {"only": "y"}
    if suffix == ".h5":
        with h5py.File(tmp_path / "out.h5") as file:
            assert file["x"].attrs["units"] == "Kelvin"
            assert list(file["x"].attrs["names"]) == ["a", "b"]
            assert not h5py.h5ds.is_scale(file["x"].id)
    else:
        assert dict(opened(tmp_path / "out.zarr")["x"].attrs) == attrs


@pytest.mark.parametrize("name", ["", "a\0b", "a\udcff"])
def test_names_of_attributes_that_hdf5_has_not(tmp_path: Path, name: str) -> None:
    zarr.create_array(tmp_path / "x.zarr", data=np.arange(5), attributes={"good": 1, name: 2})
    with pytest.raises(SettingError, match="HDF5 has no attributes of the name"):
        convert(tmp_path / "x.zarr", tmp_path / "x.h5")
    convert(tmp_path / "x.zarr", tmp_path / "y.zarr")
    assert sorted(os.listdir(tmp_path)) == ["x.zarr", "y.zarr"]
