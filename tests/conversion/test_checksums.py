"""Checksums of chunks: h5py and zarr-python accept them, and refuse what is damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np
import pytest
import zarr

from numbered import rows_array
from oocloader.conversion import convert
from oocloader.conversion.chunking import check_chunk
from oocloader.conversion.encode import Codec
from oocloader.errors import CorruptChunkError, SettingError
from oocloader.stores import ArrayInfo, open_store

assert hdf5plugin.FILTERS  # imported so that h5py decodes what it cannot by itself


@pytest.mark.parametrize("codec", ["none", "zstd", "gzip", "blosc"])
@pytest.mark.parametrize("dtype", ["u1", "f8", "?", "i2"])
@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
def test_other_libraries_read_them_and_find_damage(
    tmp_path: Path, suffix: str, codec: str, dtype: str
) -> None:
    # Odd numbers of bytes too, where fletcher32 is peculiar.
    x = (rows_array(103, "int64", sample_shape=(5, 3)) % 2).astype(dtype)
    path = tmp_path / f"out{suffix}"
    convert({"x": x}, path, codec=codec, checksum=True, chunk_rows=11)

    def read() -> np.ndarray:
        if suffix == ".h5":
            with h5py.File(path) as file:
                assert file["x"].fletcher32
                return np.asarray(file["x"][...])
        root: Any = zarr.open_group(path, mode="r")
        return np.asarray(root["x"][...])

    assert read().tobytes() == x.tobytes()
    with open_store(path) as store:
        assert store.arrays["x"].reader == "direct"
        assert ("fletcher32" if suffix == ".h5" else "crc32c") in store.arrays["x"].codecs
        assert store["x"].read(0, 103).tobytes() == x.tobytes()
    if suffix == ".h5":
        with h5py.File(path) as file:
            target, at = path, file["x"].id.get_chunk_info(4).byte_offset
    else:
        target, at = path / "x" / "c.4.0.0", 0
    with open(target, "r+b") as raw:
        raw.seek(at + 3)
        byte = raw.read(1)[0]
        raw.seek(at + 3)
        raw.write(bytes([byte ^ 4]))
    with pytest.raises((OSError, ValueError), match=r"(?i)checksum|filter|can't"):
        read()
    with open_store(path) as store:
        store["x"].read(0, 44)
        with pytest.raises(CorruptChunkError, match="checksum"):
            store["x"].read(44, 55)


def test_shards_too(tmp_path: Path) -> None:
    x = rows_array(300, "int32")
    convert({"x": x}, tmp_path / "out.zarr", checksum=True, chunk_rows=2)
    root: Any = zarr.open_group(tmp_path / "out.zarr", mode="r")
    assert root["x"].shards is not None
    assert np.array_equal(root["x"][...], x)


def test_chunks_of_hdf5_need_room_for_them() -> None:
    def check(nbytes: int, store_format: Any, checksum: bool) -> None:
        info = ArrayInfo("x", (1, nbytes), np.dtype("u1"))
        check_chunk(info, 1, store_format, Codec("none"), checksum=checksum)

    limit = (4 << 30) - 1
    check(limit, "hdf5", False)
    check(limit, "zarr", True)
    check(limit - 4, "hdf5", True)
    with pytest.raises(SettingError, match="and a checksum: take fewer rows a chunk"):
        check(limit - 3, "hdf5", True)
