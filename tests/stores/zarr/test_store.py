"""Zarr stores against zarr-python."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
import zarr.codecs
import zarr.codecs.numcodecs as v3_numcodecs
import zarr.storage
from hypothesis import given, settings
from hypothesis import strategies as st

import oocloader as ooc
from numbered import rows_array
from oocloader.reading import mapped_rows
from zarr_checks import SHAPE, check_against_zarr, check_equal, fill

DTYPES = ("bool", "uint8", "int16", "int32", "uint64", "float16", "float32", "float64", "complex64")
CHUNKS = ((23, 9, 4), (5, 9, 4), (8, 4, 3))
# Writing takes zarr-python milliseconds a chunk, so only these meet every dtype.
THOROUGH = ("raw", "zstd")

V2: dict[str, dict[str, Any]] = {
    "raw": {"compressors": None},
    "zstd": {"compressors": numcodecs.Zstd(1)},
    "gzip": {"compressors": numcodecs.GZip(1)},
    "zlib": {"compressors": numcodecs.Zlib(1)},
    "bz2": {"compressors": numcodecs.BZ2(1)},
    "lzma": {"compressors": numcodecs.LZMA()},
    "lz4": {"compressors": numcodecs.LZ4()},
    "blosc": {"compressors": numcodecs.Blosc(cname="lz4", shuffle=1)},
    "blosc bits": {"compressors": numcodecs.Blosc(cname="zstd", shuffle=2)},
    "shuffle, zlib": {"filters": [numcodecs.Shuffle(4)], "compressors": numcodecs.Zlib(1)},
    "fletcher32": {"filters": [numcodecs.Fletcher32()], "compressors": None},
}
# Made when used: zarr-python warns of each codec that has no specification.
V3: dict[str, Callable[[], dict[str, Any]]] = {
    "raw": lambda: {"compressors": None},
    "zstd": lambda: {"compressors": zarr.codecs.ZstdCodec(level=1, checksum=True)},
    "gzip": lambda: {"compressors": zarr.codecs.GzipCodec(level=1)},
    "blosc": lambda: {"compressors": zarr.codecs.BloscCodec(cname="lz4")},
    "crc32c": lambda: {"compressors": zarr.codecs.Crc32cCodec()},
    "zstd, crc32c": lambda: {"compressors": [zarr.codecs.ZstdCodec(level=1), zarr.codecs.Crc32cCodec()]},
    "transpose": lambda: {"filters": zarr.codecs.TransposeCodec(order=(2, 0, 1)), "compressors": None},
    "transpose, zstd": lambda: {"filters": zarr.codecs.TransposeCodec(order=(1, 2, 0))},
    "big-endian": lambda: {"serializer": zarr.codecs.BytesCodec(endian="big")},
    "numcodecs.lz4": lambda: {"compressors": v3_numcodecs.LZ4()},
    "numcodecs.shuffle": lambda: {
        "compressors": [v3_numcodecs.Shuffle(elementsize=4), v3_numcodecs.Zlib(level=1)]
    },
    "numcodecs.crc32": lambda: {"compressors": v3_numcodecs.CRC32()},
}


@pytest.mark.parametrize("codecs", V2)
def test_format_2_equals_zarr(tmp_path: Path, codecs: str) -> None:
    group = zarr.open_group(tmp_path / "x.zarr", mode="w", zarr_format=2)
    dtypes = (*DTYPES, ">i2", ">f4", ">c16") if codecs in THOROUGH else ("uint8", "int32", ">f4")
    for number, (dtype, chunks) in enumerate((d, c) for d in dtypes for c in CHUNKS):
        order: Any = "CF"[number % 2]
        separator: Any = "./"[number % 3 % 2]
        fill(
            group,
            f"{dtype} {chunks}",
            dtype,
            chunks=chunks,
            order=order,
            chunk_key_encoding={"name": "v2", "separator": separator},
            **V2[codecs],
        )
    check_against_zarr(tmp_path / "x.zarr", reader="direct")


@pytest.mark.parametrize("codecs", V3)
def test_format_3_equals_zarr(tmp_path: Path, codecs: str) -> None:
    group = zarr.open_group(tmp_path / "x.zarr", mode="w")
    dtypes = DTYPES if codecs in THOROUGH else ("uint8", "int32", "float64")
    for number, (dtype, chunks) in enumerate((d, c) for d in dtypes for c in CHUNKS):
        keys: Any = {"name": ("default", "v2")[number % 3 % 2], "separator": "/."[number % 2]}
        options = V3[codecs]()
        if codecs == "big-endian" and np.dtype(dtype).itemsize == 1:
            options = {}
        fill(group, f"{dtype} {chunks}", dtype, chunks=chunks, chunk_key_encoding=keys, **options)
    check_against_zarr(tmp_path / "x.zarr", reader="direct")


FILTERS: dict[str, tuple[str, Callable[[], Any], Callable[[], Any]]] = {
    "delta": ("i4", lambda: numcodecs.Delta("i4"), lambda: v3_numcodecs.Delta(dtype="i4")),
    "fixedscaleoffset": (
        "f8",
        lambda: numcodecs.FixedScaleOffset(offset=1, scale=10, dtype="f8", astype="i4"),
        lambda: v3_numcodecs.FixedScaleOffset(offset=1, scale=10, dtype="f8", astype="i4"),
    ),
    "bitround": (
        "f4",
        lambda: numcodecs.BitRound(keepbits=12),
        lambda: v3_numcodecs.BitRound(keepbits=12),
    ),
    "packbits": ("bool", numcodecs.PackBits, v3_numcodecs.PackBits),
    "quantize": (
        "f4",
        lambda: numcodecs.Quantize(digits=2, dtype="f4"),
        lambda: v3_numcodecs.Quantize(digits=2, dtype="f4"),
    ),
}


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("name", FILTERS)
def test_filters(tmp_path: Path, name: str, zarr_format: Any) -> None:
    dtype, v2, v3 = FILTERS[name]
    group = zarr.open_group(tmp_path / "x.zarr", mode="w", zarr_format=zarr_format)
    x = rows_array(SHAPE[0], dtype, sample_shape=SHAPE[1:])
    if dtype.startswith("f"):
        x = x / np.dtype(dtype).type(7)
    for chunks in CHUNKS:
        filters = [v2() if zarr_format == 2 else v3()]
        group.create_array(str(chunks), shape=SHAPE, dtype=dtype, chunks=chunks, filters=filters)[...] = x
    check_against_zarr(tmp_path / "x.zarr", reader="direct")
    with ooc.open_store(tmp_path / "x.zarr") as store:
        assert name in store.arrays[str(CHUNKS[0])].codecs[0]


class TestHierarchy:
    def test_array_at_the_root_is_named_after_the_store(self, tmp_path: Path) -> None:
        for zarr_format in (2, 3):
            path = tmp_path / f"train{zarr_format}.zarr"
            zarr.create_array(path, data=rows_array(20), chunks=(6, 4, 4), zarr_format=zarr_format)
            with ooc.open_store(path) as store:
                assert list(store.arrays) == [f"train{zarr_format}"] == [store.only_array()]
                check_equal(store, f"train{zarr_format}", rows_array(20))

    @pytest.mark.parametrize("zarr_format", [2, 3])
    def test_groups_within_groups(self, tmp_path: Path, zarr_format: Any) -> None:
        path = tmp_path / "x.zarr"
        group = zarr.open_group(path, mode="w", zarr_format=zarr_format)
        for name in ("a", "part10", "part2", "deep/er/b"):
            group.create_array(name, data=rows_array(20, "i4"), chunks=(6, 4, 4), attributes={"of": name})
        group.create_group("empty")
        with ooc.open_store(path) as store:
            assert list(store.arrays) == ["a", "deep/er/b", "part2", "part10"]
            assert store.arrays["deep/er/b"].attrs == {"of": "deep/er/b"}
            assert store.arrays["a"].chunk_shape == (6, 4, 4)
        check_against_zarr(path, reader="direct")

    def test_folder_of_arrays_is_a_group(self, tmp_path: Path) -> None:
        path = tmp_path / "x"
        zarr.create_array(path / "a", data=rows_array(20), zarr_format=2)
        zarr.create_array(path / "b/c", data=rows_array(20))
        (path / "notes").mkdir()
        (path / "notes/read.me").write_text("nothing")
        with ooc.open_store(path) as store:
            assert list(store.arrays) == ["a", "b/c"]
            check_equal(store, "b/c", rows_array(20))

    def test_link_to_a_folder_above(self, tmp_path: Path) -> None:
        path = tmp_path / "x.zarr"
        zarr.open_group(path, mode="w").create_array("a", data=rows_array(20))
        (path / "again").symlink_to(path)
        with ooc.open_store(path) as store:
            assert list(store.arrays) == ["a"]

    def test_empty_group_is_a_store(self, tmp_path: Path) -> None:
        zarr.open_group(tmp_path / "x.zarr", mode="w")
        with (
            ooc.open_store(tmp_path / "x.zarr") as store,
            pytest.raises(ooc.DataError, match="holds no arrays"),
        ):
            store.only_array()

    def test_consolidated_metadata_is_not_trusted(self, tmp_path: Path) -> None:
        for zarr_format in (2, 3):
            path = tmp_path / f"x{zarr_format}.zarr"
            group = zarr.open_group(path, mode="w", zarr_format=zarr_format)
            group.create_array("x", data=rows_array(20), chunks=(8, 4, 4))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                zarr.consolidate_metadata(path)
            zarr.create_array(path / "y", data=np.arange(20), zarr_format=zarr_format)
            with ooc.open_store(path) as store:
                assert list(store.arrays) == ["x", "y"]
                check_equal(store, "y", np.arange(20))

    def test_chunks_of_a_larger_array_that_was_here_before(self, tmp_path: Path) -> None:
        path = tmp_path / "x.zarr"
        array = zarr.create_array(path, data=rows_array(50), chunks=(6, 4, 2))
        size = sum(file.stat().st_size for file in (path / "c").rglob("*") if file.is_file())
        with ooc.open_store(path) as store:
            assert store.arrays["x"].stored_nbytes == size
        document = json.loads((path / "zarr.json").read_text())
        document["shape"] = [20, 4, 4]
        (path / "zarr.json").write_text(json.dumps(document))
        (path / "c/00").mkdir()
        (path / "c/00/0").write_text("not a chunk")
        (path / "c/0/.DS_Store").write_text("not a chunk")
        assert array.shape[0] == 50
        with ooc.open_store(path) as store:
            check_equal(store, "x", rows_array(20))
            assert 0 < store.arrays["x"].stored_nbytes < size

    def test_coordinates_are_not_the_only_array(self, tmp_path: Path) -> None:
        path = tmp_path / "x.zarr"
        group = zarr.open_group(path, mode="w")
        group.create_array("x", data=rows_array(20), dimension_names=["t", "a", "b"])
        group.create_array("t", data=np.arange(20), dimension_names=["t"])
        old = zarr.open_group(tmp_path / "old.zarr", mode="w", zarr_format=2)
        old.create_array("x", data=rows_array(20), attributes={"_ARRAY_DIMENSIONS": ["t", "a", "b"]})
        old.create_array("t", data=np.arange(20), attributes={"_ARRAY_DIMENSIONS": ["t"]})
        for each in (path, tmp_path / "old.zarr"):
            with ooc.open_store(each) as store:
                assert store.only_array() == "x"
                check_equal(store, "t", np.arange(20))

    @pytest.mark.parametrize(
        ("dtype", "attrs", "words"),
        [
            ("uint8", {"scale_factor": 0.5, "add_offset": 0.0}, "scale_factor of its attributes is not"),
            ("int64", {"_FillValue": "//////////8="}, "_FillValue"),
            ("float32", {"_FillValue": -1.0, "missing_value": "NaN"}, "_FillValue of"),
            ("float32", {"_FillValue": "AADAfw=="}, ""),
            ("float64", {"_FillValue": "NaN", "scale_factor": 1}, ""),
        ],
    )
    def test_packed(self, tmp_path: Path, dtype: str, attrs: Any, words: str) -> None:
        path = tmp_path / "x.zarr"
        zarr.create_array(path, data=rows_array(20, dtype), attributes=attrs)
        with ooc.open_store(path) as store:
            if words:
                with pytest.warns(UserWarning, match=f"as stored; {words}"):
                    store["x"]
            check_equal(store, "x", rows_array(20, dtype))

    def test_sparse_matrices_are_named_and_their_members_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "cells.zarr"
        group = zarr.open_group(path, mode="w", zarr_format=2)
        made = group.create_group("X", attributes={"encoding-type": "csr_matrix", "shape": [40, 12]})
        for name in ("data", "indices", "indptr"):
            made.create_array(name, data=np.arange(9))
        group.create_array("layers/raw", data=rows_array(40))
        with ooc.open_store(path) as store:
            assert list(store.arrays) == ["X", "layers/raw"]
            with pytest.raises(
                ooc.UnsupportedArrayError, match=r"group \(csr_matrix 40 x 12\), not an array"
            ):
                store["X"]
            with pytest.raises(ooc.UnsupportedArrayError, match="not samples"):
                store["X/data"]
            check_equal(store, "layers/raw", rows_array(40))


class TestNotLoadable:
    def test_is_listed_with_the_reason(self, tmp_path: Path) -> None:
        path = tmp_path / "x.zarr"
        group = zarr.open_group(path, mode="w")
        old = zarr.open_group(path / "old", mode="w", zarr_format=2)
        words = {
            "fixed": r"string \(fixed_length_utf32\).*integer codes",
            "varying": r"string \(string\).*integer codes",
            "times": r"numpy\.datetime64",
            "compound": "compound, with fields a, b",
            "scalar": "0-d",
            "rows": r"empty: shape \(0, 3\)",
            "raw": "raw_bytes|r24|opaque",
            "old/fixed": "string",
            "old/varying": "string",
            "old/times": r"datetime64\[s\]",
            "old/compound": "compound, with fields a, b",
        }
        compound = np.zeros(4, [("a", "<i4"), ("b", "<f8")])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # zarr-python, of dtypes without a specification
            for where in (group, old):
                where.create_array("fixed", data=np.array(["a", "øl"]))
                where.create_array("varying", shape=(3,), dtype=str)[...] = np.array(["a", "bb", ""], object)
                where.create_array("times", data=np.arange(4).astype("M8[s]"))
                where.create_array("compound", data=compound)
            group.create_array("scalar", shape=(), dtype="f4")
            group.create_array("rows", shape=(0, 3), chunks=(1, 3), dtype="f4")
            group.create_array("raw", shape=(4,), dtype=np.dtype("V3"))
        group.create_array("x", data=rows_array(12))
        with ooc.open_store(path) as store:
            assert set(store.arrays) == {*words, "x"}
            for name, pattern in words.items():
                with pytest.raises(
                    ooc.UnsupportedArrayError, match=f"'{name}' cannot be loaded: .*({pattern})"
                ):
                    store[name]
            check_equal(store, "x", rows_array(12))

    @pytest.mark.parametrize("zarr_format", [2, 3])
    def test_unknown_codec(self, tmp_path: Path, zarr_format: Any) -> None:
        path = tmp_path / "x.zarr"
        group = zarr.open_group(path, mode="w", zarr_format=zarr_format)
        group.create_array("pose", data=rows_array(10, "f4"), chunks=(4, 4, 4))
        group.create_array("camera", data=rows_array(10), chunks=(1, 4, 4))
        file = path / "camera" / ("zarr.json" if zarr_format == 3 else ".zarray")
        document = json.loads(file.read_text())
        if zarr_format == 3:
            document["codecs"][-1] = {"name": "imagecodecs_jpegxl", "configuration": {"level": 99}}
        else:
            document["compressor"] = {"id": "imagecodecs_jpegxl", "level": 99}
        file.write_text(json.dumps(document))
        with ooc.open_store(path) as store:
            assert store.arrays["camera"].codecs[-1] == "imagecodecs_jpegxl"
            assert store.arrays["camera"].stored_nbytes > 0
            with pytest.raises(
                ooc.UnsupportedArrayError,
                match=r"'camera'.*imagecodecs_jpegxl.*pip install imagecodecs-numcodecs",
            ):
                store["camera"]
            check_equal(store, "pose", rows_array(10, "f4"))

    @pytest.mark.parametrize(
        ("member", "value", "words"),
        [
            ("storage_transformers", [{"name": "acme"}], "storage transformers"),
            ("chunk_grid", {"name": "rectilinear", "configuration": {}}, "chunk grid is rectilinear"),
            ("chunk_key_encoding", {"name": "hashed"}, "chunk key encoding is hashed"),
            ("acme", {"must_understand": True}, "extension 'acme'"),
            ("data_type", "float8_e4m3", "float8_e4m3"),
            ("shape", [-1], "damaged.*shape"),
            ("shape", [20, 4], "damaged.*differ in length"),
            ("fill_value", "red", "damaged.*fill value"),
            ("chunk_grid", 5, "damaged.*chunk grid"),
            ("codecs", [], "codec"),
            ("codecs", True, "damaged.*codecs"),
            ("codecs", [5], "no codec"),
        ],
    )
    def test_metadata_of_another_kind(self, tmp_path: Path, member: str, value: Any, words: str) -> None:
        path = tmp_path / "x.zarr"
        group = zarr.open_group(path, mode="w")
        group.create_array("x", data=rows_array(20), chunks=(6, 4, 4))
        group.create_array("y", data=np.arange(20))
        file = path / "x/zarr.json"
        document = json.loads(file.read_text())
        document[member] = value
        file.write_text(json.dumps(document))
        with ooc.open_store(path) as store:
            with pytest.raises(ooc.UnsupportedArrayError, match=f"'x' cannot be loaded: .*{words}"):
                store["x"]
            check_equal(store, "y", np.arange(20))

    def test_extension_that_need_not_be_understood(self, tmp_path: Path) -> None:
        path = tmp_path / "x.zarr"
        zarr.create_array(path, data=rows_array(20))
        document = json.loads((path / "zarr.json").read_text())
        document["acme"] = {"must_understand": False}
        (path / "zarr.json").write_text(json.dumps(document))
        with ooc.open_store(path) as store:
            check_equal(store, "x", rows_array(20))

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"zarr_format": 3, "node_type": "array"}', "\udcff"])
    def test_damaged_metadata(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "x.zarr"
        group = zarr.open_group(path, mode="w")
        group.create_array("x", data=rows_array(20))
        group.create_array("y", data=np.arange(20))
        (path / "x/zarr.json").write_text(text, errors="surrogateescape")
        with ooc.open_store(path) as store:
            with pytest.raises(
                ooc.UnsupportedArrayError, match="'x' cannot be loaded: its metadata is damaged"
            ):
                store["x"]
            check_equal(store, "y", np.arange(20))
        with pytest.raises(ooc.StoreError, match="metadata of the store is damaged") as caught:
            ooc.open_store(path / "x")
        assert "\n" not in str(caught.value)


class TestDamaged:
    def test_chunks_of_the_wrong_length(self, tmp_path: Path) -> None:
        for name, codecs in {"raw": None, "zstd": zarr.codecs.ZstdCodec()}.items():
            path = tmp_path / f"{name}.zarr"
            zarr.create_array(path, data=rows_array(50), chunks=(10, 4, 4), compressors=codecs)
            os.truncate(path / "c/1/0/0", os.path.getsize(path / "c/1/0/0") // 2)
            os.truncate(path / "c/3/0/0", 0)
            with ooc.open_store(path) as store:
                for rows, chunk in (((0, 50), "1"), ((10, 20), "1"), ((30, 40), "3")):
                    with pytest.raises(ooc.CorruptChunkError, match=rf"'{name}'.*chunk \({chunk}, 0, 0\)"):
                        store[name].read(*rows)
                assert np.array_equal(store[name].read(20, 30), rows_array(50)[20:30])

    def test_chunk_removed_meanwhile(self, tmp_path: Path) -> None:
        path = tmp_path / "x.zarr"
        zarr.create_array(path, data=rows_array(50), chunks=(10, 4, 4))
        with ooc.open_store(path) as store:
            (path / "c/2/0/0").unlink()
            assert np.array_equal(store["x"].read(0, 20), rows_array(20))
            # Also where chunks of other files are read together with it.
            for start, stop in ((20, 30), (0, 50)):
                with pytest.raises(ooc.ChangedError, match=r"c/2/0/0.*rows 20 to .*removed") as caught:
                    store["x"].read(start, stop)
                assert caught.value.rows == (20, 30)

    @pytest.mark.parametrize(("most", "mapped"), [(6, 6 * 4096), (5, 0)])
    def test_so_many_files_are_not_mapped_at_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, mapped: int
    ) -> None:
        x = np.arange(6 * 4096, dtype=np.uint8).reshape(6, 4096)
        zarr.create_array(tmp_path / "x.zarr", data=x, chunks=(1, 4096), compressors=None)
        monkeypatch.setattr(mapped_rows, "_MOST_FILES", most)
        with ooc.Loader(tmp_path / "x.zarr", batch_size=3, window=6, device="/CPU:0") as loader:
            assert np.array_equal(np.concatenate([batch.numpy() for batch in loader]), x)
            assert loader.counters is not None
            assert loader.counters.mapped_bytes == mapped


@settings(max_examples=25)
@given(
    data=st.data(), dtype=st.sampled_from(DTYPES), zarr_format=st.sampled_from([2, 3]), sharded=st.booleans()
)
def test_any_array(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, dtype: str, zarr_format: Any, sharded: bool
) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=3)))
    chunks = tuple(data.draw(st.integers(1, n)) for n in shape)
    options: dict[str, Any] = {}
    if zarr_format == 3 and sharded:
        options["shards"] = tuple(c * data.draw(st.integers(1, 3)) for c in chunks)
    if zarr_format == 2:
        options["order"] = data.draw(st.sampled_from("CF"))
    if zarr_format == 2:
        options.update(V2[data.draw(st.sampled_from(["raw", "zstd", "lz4", "blosc", "fletcher32"]))])
    else:
        options.update(V3[data.draw(st.sampled_from(["raw", "zstd", "blosc", "zstd, crc32c"]))]())
    x = np.random.default_rng(data.draw(st.integers(0, 9))).integers(0, 2, shape).astype(dtype)
    start = data.draw(st.integers(0, shape[0]))
    path = tmp_path_factory.mktemp("zarr") / "x.zarr"
    group = zarr.open_group(path, mode="w", zarr_format=zarr_format)
    made = group.create_array("x", shape=shape, dtype=dtype, chunks=chunks, fill_value=1, **options)
    made[start:] = x[start:]
    check_against_zarr(path, reader="direct")
