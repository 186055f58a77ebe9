"""Zarr stores as zarr-python sees them: their files, shards, chunks and attributes."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr

from numbered import rows_array
from oocloader.conversion import convert
from oocloader.stores import open_store
from stored import bits, files_of, opened, reference, same_bits


def test_zarr_makes_few_files(tmp_path: Path) -> None:
    x = rows_array(400_000, "uint8", sample_shape=(16,))
    for chunk_rows, most in ((None, 36), (1, 36), (20_000, 36)):
        path = tmp_path / f"{chunk_rows}.zarr"
        convert({"x": x}, path, chunk_rows=chunk_rows)
        assert len(files_of(path)) <= most
        root: Any = zarr.open(path, mode="r")
        found = root["x"]
        rows = 1000 if chunk_rows == 1 else len(x)  # zarr-python takes its time over single rows
        assert np.array_equal(found[-rows:], x[-rows:])
        assert found.chunks[0] == (chunk_rows or 4096)
        assert (found.shards is None) == (chunk_rows == 20_000)
        with open_store(path) as store:
            assert np.array_equal(store["x"].read(0, len(x)), x)


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("rows", [64, 65, 127, 128, 300, 301])
def test_shards_of_any_filling(tmp_path: Path, codec: str, rows: int) -> None:
    expected = bits((rows * 3 - 1, 7), "i4")
    convert({"x": expected}, tmp_path / "out.zarr", chunk_rows=3, codec=codec)
    assert same_bits(reference(tmp_path / "out.zarr", "x"), expected)
    assert len(files_of(tmp_path / "out.zarr")) <= 67


def test_zarr_keeps_every_value_apart_from_the_fill_value(tmp_path: Path) -> None:
    nothing = np.zeros((500, 3), "f4")
    nothing[:, 1] = -0.0
    convert(nothing, tmp_path / "out.zarr", chunk_rows=100)
    assert len(files_of(tmp_path / "out.zarr")) == 7  # every chunk is there, zero or not
    assert same_bits(reference(tmp_path / "out.zarr"), nothing)


CODECS = ("none", "zstd:3", "gzip:1", "lz4", "blosc")


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("dtype", ["?", "u1", "i2", "f4", "f8", "c8"])
def test_zarr_2(tmp_path: Path, codec: str, dtype: str) -> None:
    x = rows_array(130, dtype if dtype != "c8" else "f4").astype(dtype)
    convert({"x": x}, tmp_path / "g.zarr", zarr_format=2, codec=codec, chunk_rows=30)
    convert(x, tmp_path / "a.zarr", zarr_format=2, codec=codec)
    for path, name in (("g.zarr", "x"), ("a.zarr", "")):
        found = opened(tmp_path / path)
        found = found[name] if name else found
        assert found.metadata.zarr_format == 2
        assert found.dtype == x.dtype
        assert np.array_equal(found[:], x)
        with open_store(tmp_path / path) as store:
            array = store[store.only_array()]
            assert array.info.reader == "direct"
            assert np.array_equal(array.read(0, 130), x)
    assert sorted(os.listdir(tmp_path / "g.zarr/x")) == [
        *([".oocloader-manifest", ".zarray", ".zattrs"]),
        *(f"{n}.0.0" for n in range(5)),
    ]


@pytest.mark.parametrize(
    ("shards", "chunk_rows", "chunk", "shard"),
    [
        ("auto", 10, 10, 40),
        ("auto", 100, 100, None),
        ("none", 10, 10, None),
        (200, 10, 10, 200),
        ("200", 10, 10, 200),
        (5000, 10, 10, 1000),
        (300, None, 300, 300),
    ],
)
def test_shards(tmp_path: Path, shards: Any, chunk_rows: int | None, chunk: int, shard: int | None) -> None:
    x = rows_array(1000, "uint8")
    convert({"x": x}, tmp_path / "o.zarr", shards=shards, chunk_rows=chunk_rows)
    found = opened(tmp_path / "o.zarr")["x"]
    assert found.chunks[0] == chunk
    assert found.shards == (None if shard is None else (shard, 4, 4))
    assert np.array_equal(found[:], x)
    assert len(os.listdir(tmp_path / "o.zarr/x")) == 2 + math.ceil(1000 / (shard or chunk))


@pytest.mark.parametrize("version", [2, 3])
def test_numbers_that_json_has_not(tmp_path: Path, version: Any) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = np.arange(5)
        file["x"].attrs.update({"c": 1 + 2j, "cs": np.array([1j, 2]), "long": np.longdouble(0.5)})
    convert(tmp_path / "x.h5", tmp_path / "o.zarr", zarr_format=version)
    found = dict(opened(tmp_path / "o.zarr")["x"].attrs)
    assert found == {"c": [1, 2], "cs": [[0, 1], [2, 0]], "long": 0.5}
    convert(tmp_path / "x.h5", tmp_path / "o.h5")
    with h5py.File(tmp_path / "o.h5") as file:
        assert file["x"].attrs["c"] == 1 + 2j
        assert file["x"].attrs["cs"].tolist() == [1j, 2]
