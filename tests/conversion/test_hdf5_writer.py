"""HDF5 files as h5py sees them: aligned chunks, one behind the other, and what they say of their codec."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr

from numbered import rows_array
from oocloader.conversion import convert
from oocloader.conversion.hdf5_writer import Hdf5Writer
from stored import bits

MIB = 1 << 20


@pytest.mark.parametrize(
    ("rows", "chunk_rows", "codec", "aligned"),
    [
        (1000, 300, "none", ["x", "y"]),
        (50, 7, "zstd", ["x", "y"]),
        # Of many chunks, those smaller than a page are not aligned: the gaps would be larger than the data.
        (1000, 7, "none", ["x"]),
        (20_000, 4, "none", ["x"]),
    ],
)
def test_hdf5_data_is_aligned(
    tmp_path: Path, rows: int, chunk_rows: int, codec: str, aligned: list[str]
) -> None:
    x = bits((rows, 40, 40), "u1")
    convert({"x": x, "y": np.arange(rows)}, tmp_path / "out.h5", chunk_rows=chunk_rows, codec=codec)
    with h5py.File(tmp_path / "out.h5") as file:
        for name in aligned:
            dataset = file[name].id
            numbers = range(0, dataset.get_num_chunks(), 7)
            assert not any(dataset.get_chunk_info(number).byte_offset % 4096 for number in numbers)
    assert (tmp_path / "out.h5").stat().st_size < 1.3 * x.nbytes + MIB


def test_hdf5_chunks_follow_each_other(tmp_path: Path) -> None:
    convert(rows_array(4000, "uint8", sample_shape=(64, 64)), tmp_path / "out.h5")
    with h5py.File(tmp_path / "out.h5") as file:
        chunks = [
            file["array"].id.get_chunk_info(number) for number in range(file["array"].id.get_num_chunks())
        ]
    assert len(chunks) == 250
    # The table of chunks lies somewhere between them.
    assert sum(b.byte_offset == a.byte_offset + a.size for a, b in itertools.pairwise(chunks)) >= 246


def test_hdf5_says_how_it_is_packed(tmp_path: Path) -> None:
    expected = {"zstd:3": "32015", "gzip:2": "gzip", "lz4": "32004", "blosc": "32001"}
    for codec, number in expected.items():
        path = tmp_path / f"{codec[:2]}.h5"
        convert(np.arange(1000.0), path, codec=codec)
        with h5py.File(path) as file:
            # As h5py and hdf5plugin set it.
            properties = file["array"].id.get_create_plist()
            assert properties.get_nfilters() == 1
            assert properties.get_filter(0)[1] == h5py.h5z.FLAG_OPTIONAL
            assert list(file["array"]._filters) == [number]


def test_writer_is_not_left_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(Hdf5Writer, "_create", lambda self, array, plan: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        convert(np.arange(10), tmp_path / "out.h5")
    assert len(os.listdir("/proc/self/fd")) == files


def test_attributes_that_hdf5_has_no_type_for_are_json(tmp_path: Path) -> None:
    attrs: dict[str, Any] = {"nothing": None, "tree": {"a": [1, {"b": 2}]}, "mixed": [1, "a", None]}
    zarr.create_array(tmp_path / "x.zarr", data=np.arange(5), attributes=attrs)
    convert(tmp_path / "x.zarr", tmp_path / "x.h5")
    with h5py.File(tmp_path / "x.h5") as file:
        assert {name: json.loads(value) for name, value in file["x"].attrs.items()} == attrs
