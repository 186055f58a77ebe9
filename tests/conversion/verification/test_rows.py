"""Damaged chunks are found and named: their place in the grid, their rows, their file and bytes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.codecs import GzipCodec

from damaged import chunk_place, flip, only
from numbered import rows_array
from oocloader.conversion import convert
from oocloader.conversion.verification import verify


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
@pytest.mark.parametrize("codec", ["none", "zstd", "lz4"])
@pytest.mark.parametrize("checksum", [False, True])
def test_every_damaged_chunk_is_named(tmp_path: Path, suffix: str, codec: str, checksum: bool) -> None:
    store = tmp_path / f"out{suffix}"
    x = np.random.default_rng(0).integers(0, 9, (95, 300), dtype=np.int16)
    convert({"x": x, "y": np.arange(95)}, store, codec=codec, chunk_rows=10, checksum=checksum)
    for chunk in (2, 5, 9):
        path, offset = chunk_place(store, "x", chunk)
        flip(path, offset + 70)
    report = verify(store)
    assert not report.ok
    damaged, good = report.arrays
    assert good.ok
    assert [damage.chunk for damage in damaged.damaged] == [(2, 0), (5, 0), (9, 0)]
    assert [damage.rows for damage in damaged.damaged] == [(20, 30), (50, 60), (90, 95)]
    for damage in damaged.damaged:
        path, offset = chunk_place(store, "x", damage.chunk[0])
        assert damage.where.startswith(f"in {path}")
        assert (f"at bytes {offset} to " in damage.where) == (suffix == ".h5")
        if checksum:
            assert ("fletcher32" if suffix == ".h5" else "crc32c") in damage.reason
    assert "3 chunks damaged" in str(report)
    assert f"chunk (5, 0), rows 50 to 59, in {chunk_place(store, 'x', 5)[0]}" in str(report)


def test_damage_in_a_shard_is_named(tmp_path: Path) -> None:
    x = rows_array(400, "int32", sample_shape=(4,))
    convert({"x": x}, tmp_path / "out.zarr", chunk_rows=2)
    shard = tmp_path / "out.zarr" / "x" / "c.3.0"
    flip(shard, 2 * 32 + 5)
    damage = only(verify(tmp_path / "out.zarr")).damaged
    root: Any = zarr.open_group(tmp_path / "out.zarr", mode="r")
    rows_a_shard = root["x"].shards[0]
    assert [found.chunk for found in damage] == [(3 * rows_a_shard // 2 + 2, 0)]
    assert damage[0].where == f"in {shard} at bytes 64 to 95"


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("how", ["missing", "short", "empty"])
def test_chunk_files_that_are_not_whole(tmp_path: Path, codec: str, how: str) -> None:
    convert({"x": rows_array(50, "int64") + 1}, tmp_path / "out.zarr", codec=codec, chunk_rows=10)
    path = tmp_path / "out.zarr" / "x" / "c.3.0.0"
    if how == "missing":
        path.unlink()
    else:
        os.truncate(path, 0 if how == "empty" else path.stat().st_size - 1)
    found = only(verify(tmp_path / "out.zarr"))
    assert [damage.rows for damage in found.damaged] == [(30, 40)]
    assert ("not in" in found.damaged[0].where) == (how == "missing")


def test_chunks_that_cut_the_samples(tmp_path: Path) -> None:
    x = rows_array(40, "int32")
    zarr.create_array(tmp_path / "x.zarr", data=x, chunks=(10, 2, 2), compressors=GzipCodec())
    assert verify(tmp_path / "x.zarr", x).ok
    path = tmp_path / "x.zarr" / "c" / "2" / "1" / "0"
    path.write_bytes(b"nothing")
    found = only(verify(tmp_path / "x.zarr"))
    assert [damage.chunk for damage in found.damaged] == [(2, 1, 0)]
    assert found.damaged[0].where == f"in {path}"
