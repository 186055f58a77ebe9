"""Chunks in shards."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import zarr
import zarr.codecs
import zarr.storage
from hypothesis import given, settings
from hypothesis import strategies as st

import oocloader as ooc
from numbered import rows_array
from zarr_checks import SHAPE, check_against_zarr


class TestShards:
    @pytest.mark.parametrize("location", ["start", "end"])
    @pytest.mark.parametrize("dtype", ["uint8", "float32"])
    @pytest.mark.parametrize(
        ("chunks", "shards"), [((1, 9, 4), (8, 9, 4)), ((2, 5, 2), (4, 10, 4)), ((5, 3, 4), (25, 9, 4))]
    )
    def test_values_equal_zarr(
        self, tmp_path: Path, chunks: Any, shards: Any, dtype: str, location: Any
    ) -> None:
        """Shards never written, chunks that equal the fill value, and chunks beyond the array."""
        group = zarr.open_group(tmp_path / "x.zarr", mode="w")
        x = rows_array(SHAPE[0], dtype, sample_shape=SHAPE[1:])
        x[2:4] = 1
        for name, codecs in {"raw": None, "zstd": zarr.codecs.ZstdCodec()}.items():
            made = group.create_array(
                name,
                shape=SHAPE,
                chunks=chunks,
                shards={"shape": shards, "index_location": location},
                dtype=dtype,
                fill_value=1,
                compressors=codecs,
            )
            made[:5] = x[:5]
            made[17:] = x[17:]
        check_against_zarr(tmp_path / "x.zarr", reader="direct")
        with ooc.open_store(tmp_path / "x.zarr") as store:
            assert store.arrays["raw"].chunk_shape == chunks
            assert store.arrays["zstd"].codecs == ("sharding_indexed", "zstd")

    def test_transposed_big_endian_and_nested(self, tmp_path: Path) -> None:
        group = zarr.open_group(tmp_path / "x.zarr", mode="w")
        x = rows_array(24, "int32", sample_shape=(8, 4))
        inner = zarr.codecs.ShardingCodec(
            chunk_shape=(2, 4, 4),
            codecs=[
                zarr.codecs.TransposeCodec(order=(2, 1, 0)),
                zarr.codecs.BytesCodec(endian="big"),
                zarr.codecs.ZstdCodec(),
            ],
            index_location="start",
        )
        group.create_array(
            "nested",
            shape=x.shape,
            chunks=(12, 8, 4),
            dtype="int32",
            fill_value=-1,
            serializer=zarr.codecs.ShardingCodec(chunk_shape=(4, 8, 4), codecs=[inner]),
            compressors=None,
        )[3:22] = x[3:22]
        check_against_zarr(tmp_path / "x.zarr", reader="direct")
        with ooc.open_store(tmp_path / "x.zarr") as store:
            assert store.arrays["nested"].chunk_shape == (2, 4, 4)

    @pytest.mark.parametrize(
        ("filters", "compressors"),
        [([zarr.codecs.TransposeCodec(order=(1, 0))], None), (None, [zarr.codecs.GzipCodec()])],
    )
    def test_codecs_around_shards_are_left_to_the_library(
        self, tmp_path: Path, filters: Any, compressors: Any
    ) -> None:
        group = zarr.open_group(tmp_path / "x.zarr", mode="w")
        group.create_array(
            "x",
            shape=(20, 8),
            chunks=(8, 8),
            dtype="int32",
            filters=filters,
            compressors=compressors,
            serializer=zarr.codecs.ShardingCodec(chunk_shape=(4, 4)),
        )[...] = rows_array(20, "int32", sample_shape=(8,))
        check_against_zarr(tmp_path / "x.zarr", reader="library")
        with ooc.open_store(tmp_path / "x.zarr") as store:
            assert "sharding_indexed" in store.arrays["x"].reason

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        path = tmp_path / "x.zarr"
        made = zarr.create_array(
            path, shape=(50, 7), chunks=(1, 7), shards=(20, 7), dtype="f4", compressors=None
        )
        made[...] = 1 + rows_array(50, "f4", sample_shape=(7,))
        return path

    def test_index_with_a_wrong_checksum(self, path: Path) -> None:
        shard = path / "c/1/0"
        raw = bytearray(shard.read_bytes())
        raw[-10] ^= 1
        shard.write_bytes(raw)
        with ooc.open_store(path) as store:
            with pytest.raises(
                ooc.CorruptChunkError, match=r"c/1/0.*'x', shard \(1, 0\), rows 20 to 39.*checksum"
            ) as caught:
                store["x"].read(0, 1)
            assert caught.value.rows == (20, 40)

    @pytest.mark.parametrize("kept", [0, 10, 500])
    def test_truncated(self, path: Path, kept: int) -> None:
        os.truncate(path / "c/2/0", kept)
        with (
            ooc.open_store(path) as store,
            pytest.raises(ooc.CorruptChunkError, match=r"c/2/0.*shard \(2, 0\), rows 40 to 49"),
        ):
            store["x"].read(0, 1)

    @given(st.data())
    @settings(max_examples=20)
    def test_random_damage_is_noticed(
        self, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
    ) -> None:
        """Every byte of these shards is under a checksum."""
        path = tmp_path_factory.mktemp("zarr") / "x.zarr"
        x = rows_array(20, "f4", sample_shape=(7,))
        made = zarr.create_array(
            path,
            shape=(20, 7),
            chunks=(2, 7),
            shards=(10, 7),
            dtype="f4",
            compressors=zarr.codecs.Crc32cCodec(),
        )
        made[...] = x
        shard = path / "c/1/0"
        raw = bytearray(shard.read_bytes())
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        shard.write_bytes(raw[: data.draw(st.sampled_from([len(raw), len(raw) - 1]))])
        with ooc.open_store(path) as store, pytest.raises(ooc.CorruptChunkError):
            store["x"].read(0, 20)
