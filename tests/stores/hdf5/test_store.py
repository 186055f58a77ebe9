"""HDF5 stores against h5py."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oocloader as ooc
from numbered import rows_array
from oocloader.stores.hdf5 import chunks as hdf5_chunks
from oocloader.stores.hdf5 import file as hdf5_file
from oocloader.stores.hdf5 import readers as hdf5_readers

DTYPES = ("?", "u1", ">i2", "<i4", "<f2", ">f4", "<f8", "<c8", ">c16")
PLUGINS = {
    "blosc": hdf5plugin.Blosc(cname="lz4", shuffle=1),
    "blosc, bits": hdf5plugin.Blosc(cname="zstd", shuffle=2),
    "blosc2": hdf5plugin.Blosc2(cname="zstd"),
    "lz4": hdf5plugin.LZ4(),
    "zstd": hdf5plugin.Zstd(clevel=1),
    "bitshuffle": hdf5plugin.Bitshuffle(cname="none"),
    "bitshuffle, lz4": hdf5plugin.Bitshuffle(cname="lz4"),
    "bitshuffle, zstd": hdf5plugin.Bitshuffle(cname="zstd"),
}
FILTERS: dict[str, dict[str, Any]] = {
    "raw": {},
    "gzip": {"compression": "gzip"},
    "shuffle, gzip": {"compression": "gzip", "shuffle": True},
    "shuffle": {"shuffle": True},
    "lzf": {"compression": "lzf"},
    "fletcher32": {"fletcher32": True},
    "shuffle, lzf, fletcher32": {"compression": "lzf", "shuffle": True, "fletcher32": True},
    "szip": {"compression": "szip"},
    **{name: dict(options) for name, options in PLUGINS.items()},
}
SHAPE = (23, 9, 4)
CHUNKS = ((23, 9, 4), (5, 9, 4), (8, 4, 3))


def szip_takes(dtype: str) -> bool:
    return np.dtype(dtype).kind in "iuf"


def check_equal(store: ooc.Store, name: str, expected: np.ndarray) -> None:
    """The whole and ranges that cut chunks, bit by bit."""
    array = store[name]
    wanted = np.ascontiguousarray(expected, expected.dtype.newbyteorder("="))
    assert array.info.shape == wanted.shape
    assert array.info.dtype == wanted.dtype
    rows = len(wanted)
    for start, stop in {(0, rows), (0, 1), (rows - 1, rows), (rows // 3, 2 * rows // 3), (rows // 2, rows)}:
        assert array.read(start, stop).tobytes() == wanted[start:stop].tobytes()


def check_against_h5py(path: Path, *, reader: str | None = None) -> None:
    """Every array that loads, against what h5py reads."""
    with h5py.File(path) as file, ooc.open_store(path) as store:
        for name, info in store.arrays.items():
            if reader is not None:
                assert (name, info.reader) == (name, reader), info.reason
            if info.reader != "none":
                check_equal(store, name, file[name][()])


@pytest.mark.parametrize("filters", FILTERS)
def test_values_equal_h5py(tmp_path: Path, filters: str) -> None:
    """Filters x dtypes x chunk shapes, whole and with chunks that were never written."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        for dtype in DTYPES:
            if filters == "szip" and not szip_takes(dtype):
                continue
            x = rows_array(SHAPE[0], dtype, sample_shape=SHAPE[1:])
            for chunks in CHUNKS:
                name = f"{dtype}/{chunks}"
                file.create_dataset(f"{name}/whole", data=x, dtype=dtype, chunks=chunks, **FILTERS[filters])
                fill = np.array(1, dtype)
                holes = file.create_dataset(
                    f"{name}/holes", SHAPE, dtype, chunks=chunks, fillvalue=fill, **FILTERS[filters]
                )
                holes[9:14] = x[9:14]
                file.create_dataset(f"{name}/none", SHAPE, dtype, chunks=chunks, fillvalue=fill)
    check_against_h5py(path, reader="direct")


INDEXES = {
    "b-tree 1": ("earliest", (23, 9, 4), None),
    "single chunk": ("latest", (23, 9, 4), None),
    "fixed array": ("latest", (5, 4, 3), None),
    "extensible array": ("latest", (5, 4, 3), (None, 9, 4)),
    "b-tree 2": ("latest", (5, 4, 3), (None, None, 4)),
}


@pytest.mark.parametrize("early", [False, True], ids=["late", "early"])
@pytest.mark.parametrize("filters", ["raw", "shuffle, gzip"])
@pytest.mark.parametrize("index", [*INDEXES, "implicit"])
def test_every_kind_of_chunk_index(tmp_path: Path, index: str, filters: str, early: bool) -> None:
    libver, chunks, maxshape = INDEXES.get(index, ("latest", (5, 4, 3), None))
    path = tmp_path / "x.h5"
    x = rows_array(23, "<i4", sample_shape=SHAPE[1:])
    with h5py.File(path, "w", libver=libver) as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk(chunks)
        if filters != "raw":
            properties.set_shuffle()
            properties.set_deflate(4)
        if early or index == "implicit":
            properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        limits = tuple(h5py.h5s.UNLIMITED if n is None else n for n in maxshape or SHAPE)
        space = h5py.h5s.create_simple(SHAPE, limits)
        made = h5py.Dataset(h5py.h5d.create(file.id, b"x", h5py.h5t.STD_I32LE, space, properties))
        made[:10] = x[:10]
        made[16:] = x[16:]
    check_against_h5py(path, reader="direct")


def test_grown_and_shrunk(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    x = rows_array(50, "<f4")
    with h5py.File(path, "w") as file:
        for name, filters in FILTERS.items():
            made = file.create_dataset(
                name, (3, 4, 4), "<f4", chunks=(7, 4, 3), maxshape=(None, None, None), fillvalue=-1, **filters
            )
            made[:] = x[:3]
            made.resize((50, 4, 4))
            made[20:] = x[20:]
            made.resize((31, 4, 2))
            made.resize((33, 4, 4))
    check_against_h5py(path, reader="direct")


class TestUnfilteredEdges:
    """Files that keep chunks which reach beyond the array as they are; h5py shows nothing of it."""

    @staticmethod
    def write(path: Path, x: np.ndarray, chunks: tuple[int, ...], filters: str, *, flag: bool) -> None:
        maps = Path("/proc/self/maps").read_text()
        library = ctypes.CDLL(next(iter(re.findall(r"/\S*libhdf5-[^\s/]*\.so\S*", maps))))
        library.H5Pset_chunk_opts.argtypes = [ctypes.c_int64, ctypes.c_uint]
        with h5py.File(path, "w", libver="latest") as file:
            properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            properties.set_chunk(chunks)
            for name in filters.split(", "):
                {
                    "shuffle": properties.set_shuffle,
                    "gzip": properties.set_deflate,
                    "fletcher32": properties.set_fletcher32,
                }[name]()
            if flag:
                assert library.H5Pset_chunk_opts(properties.id, 2) >= 0
            space = h5py.h5s.create_simple(x.shape)
            kind = h5py.h5t.py_create(x.dtype)
            h5py.Dataset(h5py.h5d.create(file.id, b"x", kind, space, properties))[...] = x

    @pytest.mark.parametrize("flag", [False, True])
    @pytest.mark.parametrize("filters", ["shuffle", "gzip", "shuffle, gzip", "gzip, fletcher32"])
    @pytest.mark.parametrize("chunks", [(4, 5), (4, 3), (10, 3), (10, 5), (1, 1)])
    def test_values_equal_h5py(
        self, tmp_path: Path, chunks: tuple[int, ...], filters: str, flag: bool
    ) -> None:
        # Zeros look the same shuffled or not; the numbers do not.
        x = np.arange(50, dtype="i4").reshape(10, 5) * 70_001
        self.write(tmp_path / "x.h5", x, chunks, filters, flag=flag)
        self.write(tmp_path / "zeros.h5", x * 0, chunks, filters, flag=flag)
        check_against_h5py(tmp_path / "x.h5", reader="direct")
        check_against_h5py(tmp_path / "zeros.h5", reader="direct")

    @pytest.mark.parametrize("flag", [False, True])
    def test_incompressible_edges_have_the_size_of_raw_ones(self, tmp_path: Path, flag: bool) -> None:
        x = np.random.default_rng(2).integers(0, 1 << 31, (13, 7)).astype("u4")
        self.write(tmp_path / "x.h5", x, (4, 4), "shuffle", flag=flag)
        check_against_h5py(tmp_path / "x.h5", reader="direct")


class TestUserBlock:
    @pytest.mark.parametrize("size", [512, 4096])
    def test_values_equal_h5py(self, tmp_path: Path, size: int) -> None:
        path = tmp_path / "x.h5"
        with h5py.File(path, "w", userblock_size=size) as file:
            file.create_dataset("x", data=rows_array(70, "<f4"), chunks=(16, 4, 4))
            file.create_dataset("z", data=rows_array(70, "<f4"), chunks=(16, 4, 4), compression="gzip")
            file["y"] = np.arange(70)
        with open(path, "r+b") as stream:
            stream.write(b"U" * size)
        check_against_h5py(path, reader="direct")

    @pytest.mark.parametrize("left_out", [(True, True), (False, False)])
    def test_of_versions_that_leave_it_out(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_out: tuple[bool, bool]
    ) -> None:
        """As if this HDF5 were one of the other kind: the offsets differ by the block, the sizes do not."""
        path = tmp_path / "x.h5"
        with h5py.File(path, "w", userblock_size=512) as file:
            file.create_dataset("x", data=rows_array(70), chunks=(70, 4, 4))
            file["y"] = np.arange(70)
        with h5py.File(path) as file:
            here = hdf5_file.user_block_left_out()
            offsets = (file["x"].id.get_chunk_info(0).byte_offset, file["y"].id.get_offset())
            monkeypatch.setattr(hdf5_chunks, "user_block_left_out", lambda: left_out)
            chain = hdf5_readers.storage_of(file["x"], swmr=False).chain
            assert chain is not None
            x = hdf5_chunks.chunked_layout(file["x"], np.dtype("u1"), chain, "x")
            y = hdf5_chunks.contiguous_layout(file["y"], np.dtype("i8"), "y")
        assert here == (False, False) or sys.platform != "linux"
        assert [int(x.offset[0]), int(y.offset[0])] == [
            o + 512 * k for o, k in zip(offsets, left_out, strict=True)
        ]


class TestKindsOfStorage:
    def test_contiguous_and_compact(self, tmp_path: Path) -> None:
        path = tmp_path / "x.h5"
        with h5py.File(path, "w") as file:
            for dtype in DTYPES:
                file.create_dataset(f"contiguous/{dtype}", data=rows_array(30, dtype), dtype=dtype)
                file.create_dataset(f"never/{dtype}", (30, 3), dtype, fillvalue=np.array(1, dtype))
                properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
                properties.set_layout(h5py.h5d.COMPACT)
                compact = h5py.h5d.create(
                    file.create_group(f"compact/{dtype}").id,
                    b"x",
                    h5py.h5t.py_create(np.dtype(dtype), logical=True),
                    h5py.h5s.create_simple((30, 4, 4)),
                    properties,
                )
                h5py.Dataset(compact)[...] = rows_array(30, dtype)
        check_against_h5py(path, reader="direct")
        with ooc.open_store(path) as store:
            assert store.arrays["contiguous/u1"].chunk_shape is None
            assert store.arrays["contiguous/u1"].stored_nbytes == 30 * 16

    def test_fill_time_never_reads_as_zero(self, tmp_path: Path) -> None:
        path = tmp_path / "x.h5"
        with h5py.File(path, "w") as file:
            for name, options in {"direct": {}, "library": {"scaleoffset": 0}}.items():
                made = file.create_dataset(
                    name, (10, 2), "i4", chunks=(3, 2), fillvalue=7, fill_time="never", **options
                )
                made[:3] = 5
            file.create_dataset("contiguous", (10, 2), "i4", fillvalue=7, fill_time="never")
        check_against_h5py(path)

    def test_external_storage(self, tmp_path: Path) -> None:
        raw = tmp_path / "raw.bin"
        x = rows_array(40, "<i4")
        raw.write_bytes(x.tobytes())
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file.create_dataset("x", x.shape, x.dtype, external=[(str(raw), 0, h5py.h5f.UNLIMITED)])
        with ooc.open_store(tmp_path / "x.h5") as store:
            assert store.arrays["x"].reader == "library"
            assert "external" in store.arrays["x"].reason
            check_equal(store, "x", x)

    def test_virtual(self, tmp_path: Path) -> None:
        x = rows_array(40, "<i4")
        layout = h5py.VirtualLayout(x.shape, x.dtype)
        for part in range(2):
            with h5py.File(tmp_path / f"part{part}.h5", "w") as file:
                file["x"] = x[20 * part : 20 * part + 20]
            layout[20 * part : 20 * part + 20] = h5py.VirtualSource(f"part{part}.h5", "x", (20, 4, 4))
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file.create_virtual_dataset("x", layout, fillvalue=-1)
        with ooc.open_store(tmp_path / "x.h5") as store:
            assert store.arrays["x"].reader == "library"
            assert "virtual" in store.arrays["x"].reason
            check_equal(store, "x", x)
        (tmp_path / "part1.h5").unlink()
        with (
            ooc.open_store(tmp_path / "x.h5") as store,
            pytest.warns(UserWarning, match=r"part1\.h5.*fill value"),
        ):
            assert (store["x"].read(20, 40) == -1).all()

    @pytest.mark.parametrize(
        ("name", "stored"),
        [
            ("scaleoffset", {"scaleoffset": 0}),
            ("scaleoffset, gzip", {"scaleoffset": 0, "compression": "gzip"}),
            ("zfp", dict(hdf5plugin.Zfp(reversible=True))),
            ("sz3", dict(hdf5plugin.SZ3(absolute=0.1))),
        ],
    )
    def test_filters_that_only_the_library_undoes(self, tmp_path: Path, name: str, stored: Any) -> None:
        path = tmp_path / "x.h5"
        dtype = "f4" if name in ("zfp", "sz3") else "i4"
        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=rows_array(40, dtype), chunks=(16, 4, 4), **stored)
        with ooc.open_store(path) as store:
            assert store.arrays["x"].reader == "library"
            assert name.split(",")[0] in store.arrays["x"].reason
            assert store.arrays["x"].codecs == tuple(name.split(", "))
        check_against_h5py(path)

    def test_incompressible_chunks_skip_their_filter(self, tmp_path: Path) -> None:
        path = tmp_path / "x.h5"
        noise = np.random.default_rng(0).integers(0, 256, (60, 40)).astype("u1")
        noise[20:40] = 7
        with h5py.File(path, "w") as file:
            for name in ("lzf", "gzip", "shuffle, lzf, fletcher32", *PLUGINS):
                file.create_dataset(name, data=noise, chunks=(10, 40), **FILTERS[name])
            tiny = file.create_dataset(
                "tiny", data=np.arange(24, dtype="i4"), chunks=(4,), **PLUGINS["blosc"]
            )
            masks = [tiny.id.get_chunk_info(i).filter_mask for i in range(6)]
            masks += [file["lzf"].id.get_chunk_info(i).filter_mask for i in range(6)]
        assert 0 in masks
        assert any(masks)
        check_against_h5py(path, reader="direct")


class TestDatatypes:
    def test_enums_integers_of_odd_width_and_small_floats(self, tmp_path: Path) -> None:
        path = tmp_path / "x.h5"
        with h5py.File(path, "w") as file:
            space = h5py.h5s.create_simple((40,))
            twelve_bits = h5py.h5t.STD_U16BE.copy()
            twelve_bits.set_precision(12)
            twelve_bits.set_offset(3)
            bfloat16 = h5py.h5t.IEEE_F32LE.copy()
            bfloat16.set_fields(15, 7, 8, 0, 7)
            bfloat16.set_size(2)
            bfloat16.set_ebias(127)
            for name, kind in {
                "twelve": twelve_bits,
                "bfloat16": bfloat16,
                "bits": h5py.h5t.STD_B8LE,
                "more bits": h5py.h5t.STD_B16BE,
                "array": h5py.h5t.array_create(h5py.h5t.IEEE_F32BE, (3, 2)),
            }.items():
                made = h5py.Dataset(h5py.h5d.create(file.id, name.encode(), kind, space))
                x = np.arange(40) if name != "array" else rows_array(40, "f4", sample_shape=(3, 2))
                if "bits" in name:
                    made.id.write(h5py.h5s.ALL, h5py.h5s.ALL, x.astype(kind.dtype), kind)
                else:
                    made[...] = x
            enum = h5py.enum_dtype({"cat": 0, "dog": 40}, basetype=">i2")
            file.create_dataset("enum", data=np.arange(40), dtype=enum, chunks=(7,))
        check_against_h5py(path)
        with ooc.open_store(path) as store:
            readers = {name: info.reader for name, info in store.arrays.items()}
            assert readers == {**dict.fromkeys(readers, "library"), "enum": "direct"}
            assert store.arrays["array"].shape == (40, 3, 2)
            assert store.arrays["enum"].dtype == np.dtype("i2")
            assert store.arrays["enum"].dtype.metadata is None

    def test_complex_of_another_form(self, tmp_path: Path) -> None:
        """With a gap between the parts, which NumPy has not."""
        path = tmp_path / "x.h5"
        with h5py.File(path, "w") as file:
            kind = h5py.h5t.create(h5py.h5t.COMPOUND, 12)
            kind.insert(b"r", 0, h5py.h5t.IEEE_F32LE)
            kind.insert(b"i", 8, h5py.h5t.IEEE_F32LE)
            made = h5py.h5d.create(file.id, b"gap", kind, h5py.h5s.create_simple((20,)))
            h5py.Dataset(made)[...] = np.arange(20) + 1j
        with ooc.open_store(path) as store:
            assert store.arrays["gap"].reader == "library"
            check_equal(store, "gap", (np.arange(20) + 1j).astype("c8"))

    def test_is_listed_with_the_reason(self, tmp_path: Path) -> None:
        path = tmp_path / "x.h5"
        words = {
            "compound": "compound, with fields a, b",
            "null": r"empty \(null\)",
            "scalar": "0-d",
            "no rows": r"empty: shape \(0, 3\)",
            "text": "string.*integer codes",
            "bytes": "string.*integer codes",
            "vlen": "vlen.*int32",
            "reference": "reference",
            "opaque": "opaque",
            "time": "no NumPy equivalent",
            "long double": "float64",
            "times": r"datetime64\[s\]",
        }
        with h5py.File(path, "w") as file:
            compound = np.zeros(4, [("a", ">i4"), ("b", ">f8")])
            file.create_dataset("compound", data=compound, chunks=(2,))
            file["null"] = h5py.Empty("f4")
            file["scalar"] = 3.5
            file["no rows"] = np.zeros((0, 3))
            file["text"] = ["a", "bc"]
            file["bytes"] = np.array([b"abc", b"d"])
            file.create_dataset("vlen", (3,), h5py.vlen_dtype("i4"))
            file["reference"] = np.array([file["text"].ref], h5py.ref_dtype)
            file["opaque"] = np.zeros(4, "V3")
            h5py.h5d.create(file.id, b"time", h5py.h5t.UNIX_D32LE, h5py.h5s.create_simple((4,)))
            file["long double"] = np.zeros(4, np.longdouble)
            file["times"] = np.zeros(4, "M8[s]").astype(h5py.opaque_dtype("M8[s]"))
            file["x"] = rows_array(12)
            file["datatype"] = np.dtype("f4")
        with ooc.open_store(path) as store:
            assert set(store.arrays) == {*words, "x"}
            for name, pattern in words.items():
                with pytest.raises(
                    ooc.UnsupportedArrayError, match=f"'{name}' cannot be loaded: .*{pattern}"
                ):
                    store[name]
            check_equal(store, "x", rows_array(12))


class TestLinks:
    def test_broken_links_are_listed_and_others_followed(self, tmp_path: Path) -> None:
        with h5py.File(tmp_path / "other.h5", "w", userblock_size=512) as file:
            file.create_dataset("deep/x", data=rows_array(30, "<f4"), chunks=(7, 4, 4), compression="gzip")
            file["deep/y"] = np.arange(30)
        path = tmp_path / "x.h5"
        with h5py.File(path, "w") as file:
            file["x"] = rows_array(20)
            file["alias"] = h5py.SoftLink("/x")
            file["group/hard"] = file["x"]
            file["group/loop"] = file["group"]
            file["soft"] = h5py.SoftLink("/nowhere")
            file["gone"] = h5py.ExternalLink("gone.h5", "/d")
            file["lost"] = h5py.ExternalLink("other.h5", "/d")
            file["there"] = h5py.ExternalLink("other.h5", "/deep")
            file[b"na\xefve"] = file["x"]
        with ooc.open_store(path) as store:
            assert set(store.arrays) == {
                "x", "alias", "group/hard", "soft", "gone", "lost", "there/x", "there/y", "na\ufffdve",
            }  # fmt: skip
            for name, words in {
                "soft": "soft link to /nowhere",
                "gone": r"external link to gone\.h5:/d",
                "lost": r"external link to other\.h5:/d",
                "na\ufffdve": "name is not UTF-8",
            }.items():
                with pytest.raises(ooc.UnsupportedArrayError, match=words):
                    store[name]
            for name in ("x", "alias", "group/hard"):
                check_equal(store, name, rows_array(20))
            check_equal(store, "there/x", rows_array(30, "<f4"))
            check_equal(store, "there/y", np.arange(30))
            assert store.arrays["there/y"].reader == "direct"


class TestGroups:
    @pytest.fixture
    def sparse(self, tmp_path: Path) -> Path:
        path = tmp_path / "cells.h5ad"
        with h5py.File(path, "w") as file:
            for name, attrs in {
                "X": {"encoding-type": "csr_matrix", "shape": (40, 12)},
                "layers/old": {"h5sparse_format": "csc", "h5sparse_shape": (40, 12)},
                "matrix": {},
            }.items():
                group = file.create_group(name)
                group.attrs.update(attrs)
                group["data"] = np.arange(9, dtype="f4")
                group["indices"] = np.arange(9)
                group["indptr"] = np.arange(41)
            file["matrix/barcodes"] = ["a", "b"]
            file["layers/raw"] = rows_array(40, "f4")
        return path

    def test_sparse_matrices_are_named_and_their_members_refused(self, sparse: Path) -> None:
        with ooc.open_store(sparse) as store:
            assert set(store.arrays) == {"X", "layers/old", "layers/raw", "matrix"}
            assert store.arrays["X"].shape == (40, 12)
            assert store.arrays["X"].dtype == np.dtype("f4")
            with pytest.raises(ooc.UnsupportedArrayError, match=r"'X'.*group \(csr_matrix 40 x 12\), not an"):
                store["X"]
            with pytest.raises(ooc.UnsupportedArrayError, match=r"'layers/old'.*\(csc 40 x 12\)"):
                store["layers/old"]
            with pytest.raises(ooc.UnsupportedArrayError, match=r"'matrix'.*\(sparse matrix\)"):
                store["matrix"]
            for member in ("X/data", "X/indices", "matrix/indptr"):
                with pytest.raises(ooc.UnsupportedArrayError, match="not samples"):
                    store[member]
            check_equal(store, "layers/raw", rows_array(40, "f4"))
            with pytest.raises(ooc.DataError, match="'X', 'layers/old', 'layers/raw'"):
                store.only_array()

    def test_dimension_scales_are_not_the_only_array(self, tmp_path: Path) -> None:
        path = tmp_path / "packed.nc"
        x = rows_array(50, "u1")
        with h5py.File(path, "w") as file:
            file.create_dataset("t", data=np.arange(50.0)).make_scale("t")
            made = file.create_dataset("x", data=x, chunks=(10, 4, 4))
            made.dims[0].attach_scale(file["t"])
            made.attrs.update(scale_factor=np.array([0.5]), add_offset=0.0, _FillValue=np.uint8(255))
        with ooc.open_store(path) as store:
            assert store.only_array() == "x"
            with pytest.warns(UserWarning, match="as stored; scale_factor, _FillValue") as warned:
                store["x"]
            store["x"]
            assert len(warned) == 1
            check_equal(store, "x", x)
            check_equal(store, "t", np.arange(50.0))
            assert store.arrays["x"].attrs == {"scale_factor": [0.5], "add_offset": 0.0, "_FillValue": 255}

    def test_missing_as_nan_needs_no_warning(self, tmp_path: Path) -> None:
        with h5py.File(tmp_path / "x.nc", "w") as file:
            file["x"] = rows_array(5, "f4")
            file["x"].attrs.update(scale_factor=1.0, _FillValue=np.float32(np.nan), note="a", many=[1, 2])
        with ooc.open_store(tmp_path / "x.nc") as store:
            check_equal(store, "x", rows_array(5, "f4"))


class TestMissingFilters:
    """In a process that did not import hdf5plugin, as users have it."""

    @staticmethod
    def run(code: str, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    @pytest.fixture
    def path(self, tmp_path: Path) -> str:
        path = tmp_path / "x.h5"
        with h5py.File(path, "w") as file:
            for name, options in PLUGINS.items():
                file.create_dataset(name, data=rows_array(40, "u2"), chunks=(16, 4, 4), **options)
            zfp = hdf5plugin.Zfp(reversible=True)
            file.create_dataset("zfp", data=rows_array(40, "f4"), chunks=(16, 4, 4), **zfp)
        return str(path)

    def test_without_the_plugins(self, path: str) -> None:
        code = """if True:
            import sys
            sys.modules["hdf5plugin"] = None  # as if it were not installed
            import oocloader as ooc
            with ooc.open_store(sys.argv[1]) as store:
                for name, info in store.arrays.items():
                    total = store[name].read(0, 40).sum() if info.reader != "none" else info.reason
                    print(name, info.reader, total, sep="|")
        """
        found = dict(line.split("|", 1) for line in self.run(code, path).splitlines())
        total = rows_array(40, "u2").sum()
        reason = "its filter 32013 (zfp) cannot be decoded here; pip install hdf5plugin"
        assert found == {**dict.fromkeys(PLUGINS, f"direct|{total}"), "zfp": f"none|{reason}"}

    def test_the_plugins_are_loaded_where_only_they_decode(self, path: str) -> None:
        code = """if True:
            import sys
            import oocloader as ooc
            with ooc.open_store(sys.argv[1]) as store:
                print(store.arrays["zfp"].reader, int(store["zfp"].read(0, 40).sum()))
        """
        assert self.run(code, path) == f"library {int(rows_array(40, 'f4').sum())}"

    def test_unknown_filter(self, tmp_path: Path) -> None:
        path = tmp_path / "x.h5"
        with h5py.File(path, "w") as file:
            properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            properties.set_chunk((4,))
            properties.set_filter(hdf5plugin.Zstd.filter_id, h5py.h5z.FLAG_OPTIONAL, (1,))
            h5py.h5d.create(file.id, b"x", h5py.h5t.STD_I32LE, h5py.h5s.create_simple((8,)), properties)
            file["y"] = np.arange(8)
        raw = path.read_bytes()
        old = hdf5plugin.Zstd.filter_id.to_bytes(2, "little")
        assert raw.count(old) == 1
        path.write_bytes(raw.replace(old, (40_000).to_bytes(2, "little")))
        with ooc.open_store(path) as store:
            with pytest.raises(ooc.UnsupportedArrayError, match=r"'x'.*filter 40000"):
                store["x"]
            check_equal(store, "y", np.arange(8))


class TestCannotBeOpened:
    def test_truncated(self, tmp_path: Path) -> None:
        path = tmp_path / "x.h5"
        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=rows_array(400, "f4"), chunks=(50, 4, 4))
        size = os.path.getsize(path)
        os.truncate(path, size * 2 // 3)
        with pytest.raises(
            ooc.StoreError, match=rf"x\.h5: the file is truncated: it has {size * 2 // 3} bytes and {size}"
        ):
            ooc.open_store(path)

    @pytest.mark.parametrize("rest", [b"", bytes(600), b"\xff" * 600])
    def test_signature_and_nonsense(self, tmp_path: Path, rest: bytes) -> None:
        path = tmp_path / "x.h5"
        path.write_bytes(b"\x89HDF\r\n\x1a\n" + rest)
        with pytest.raises(ooc.StoreError, match=r"x\.h5: cannot be opened as HDF5: [a-z]") as caught:
            ooc.open_store(path)
        assert "\n" not in str(caught.value)

    def test_open_for_writing_in_this_process(self, tmp_path: Path) -> None:
        path = tmp_path / "x.h5"
        with h5py.File(path, "w") as file:
            file["x"] = np.arange(10)
            with pytest.raises(ooc.StoreError, match=r"x\.h5: is open for writing in this process; close it"):
                ooc.open_store(path)
        with ooc.open_store(path) as store:
            check_equal(store, "x", np.arange(10))

    @pytest.fixture
    def left_open(self, tmp_path: Path) -> Iterator[Path]:
        """A file that another process has open for writing, until the test ends."""
        path = tmp_path / "x.h5"
        code = """if True:
            import sys, h5py
            with h5py.File(sys.argv[1], "w") as file:
                file["x"] = [1, 2]
                file.flush()
                print("ready", flush=True)
                sys.stdin.read()
        """
        with subprocess.Popen(
            [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            yield path
            writer.communicate()

    def test_open_for_writing_in_another_program(self, left_open: Path) -> None:
        with pytest.raises(ooc.StoreError, match="open for writing in another program"):
            ooc.open_store(left_open)

    DIES = """if True:
        import os, sys, h5py, numpy as np
        file = h5py.File(sys.argv[1], "w", libver="latest")
        x = file.create_dataset("x", data=np.ones((8, 4), "f4"), maxshape=(None, 4), chunks=(4, 4))
        file.create_dataset("y", data=np.arange(8))
        if sys.argv[2] == "swmr":
            file.swmr_mode = True
        x.resize((20, 4))
        x[8:] = 2
        file.flush()
        os._exit(0)
    """

    def test_writer_died(self, tmp_path: Path) -> None:
        path = tmp_path / "x.h5"
        subprocess.run([sys.executable, "-c", self.DIES, str(path), "plain"], check=True)
        before = path.read_bytes()
        with pytest.raises(ooc.StoreError, match=r"x\.h5.*open for writing, or its writer ended.*h5clear"):
            ooc.open_store(path)
        assert path.read_bytes() == before

    def test_swmr_is_read_with_the_length_it_had(self, tmp_path: Path) -> None:
        path = tmp_path / "x.h5"
        subprocess.run([sys.executable, "-c", self.DIES, str(path), "swmr"], check=True)
        before = path.read_bytes()
        with ooc.open_store(path) as store:
            assert {info.reader for info in store.arrays.values()} == {"library"}
            assert "SWMR" in store.arrays["x"].reason
            check_equal(store, "x", np.repeat(np.array([[1], [2]], "f4"), [8, 12], axis=0).repeat(4, axis=1))
            check_equal(store, "y", np.arange(8))
        assert path.read_bytes() == before

    def test_file_system_that_cannot_lock(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "x.h5"
        with h5py.File(path, "w") as file:
            file["x"] = np.arange(10)
        opened = h5py.File

        def no_locks(*arguments: Any, **options: Any) -> Any:
            if options.get("locking") is not False:
                raise OSError(37, "Unable to synchronously open file (unable to lock file, errno = 37)")
            return opened(*arguments, **options)

        monkeypatch.setattr(h5py, "File", no_locks)
        with ooc.open_store(path) as store:
            check_equal(store, "x", np.arange(10))


class TestChanged:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        path = tmp_path / "x.h5"
        with h5py.File(path, "w") as file:
            file.create_dataset("direct", data=np.arange(100), chunks=(10,))
            file.create_dataset("library", data=np.arange(100), chunks=(10,), scaleoffset=0)
        return path

    @pytest.mark.parametrize("name", ["direct", "library"])
    def test_before_the_first_read(self, path: Path, name: str) -> None:
        with ooc.open_store(path) as store:
            with h5py.File(path, "a") as file:
                file["more"] = 1
            with pytest.raises(ooc.ChangedError, match=r"x\.h5.*changed since"):
                store[name].read(0, 10)

    @pytest.mark.parametrize("name", ["direct", "library"])
    def test_removed(self, path: Path, name: str) -> None:
        with ooc.open_store(path) as store:
            path.unlink()
            with pytest.raises(ooc.ChangedError, match=r"x\.h5.*removed"):
                store[name].read(0, 10)

    def test_the_file_is_closed_between_uses(self, path: Path) -> None:
        with ooc.open_store(path) as store:
            store["direct"].read(0, 10)
            assert not h5py.h5f.get_obj_ids(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE)
            store["library"].read(0, 10)
            assert h5py.h5f.get_obj_ids(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE)
        assert not h5py.h5f.get_obj_ids(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE)
        store.close()

    @pytest.mark.parametrize("name", ["direct", "library"])
    def test_closed(self, path: Path, name: str) -> None:
        store = ooc.open_store(path)
        array = store[name]
        array.read(0, 10)
        store.close()
        with pytest.raises(ooc.ClosedError, match="closed"):
            array.read(0, 10)


class TestDamaged:
    def test_checksum(self, tmp_path: Path) -> None:
        path = tmp_path / "x.h5"
        with h5py.File(path, "w") as file:
            made = file.create_dataset("x", data=rows_array(40, "f4"), chunks=(8, 4, 4), fletcher32=True)
            made.flush()
            place = made.id.get_chunk_info_by_coord((16, 0, 0)).byte_offset
        with open(path, "r+b") as stream:
            stream.seek(place + 5)
            stream.write(b"\xff")
        with ooc.open_store(path) as store:
            with pytest.raises(ooc.CorruptChunkError, match=r"x\.h5.*'x'.*rows 16 to 23.*checksum") as caught:
                store["x"].read(0, 40)
            assert (caught.value.array, caught.value.rows) == ("x", (16, 24))
            assert np.array_equal(store["x"].read(0, 16), rows_array(40, "f4")[:16])

    @pytest.mark.parametrize("address", [1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 2])
    def test_chunks_outside_the_file(self, tmp_path: Path, address: int) -> None:
        path = tmp_path / "x.h5"
        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=rows_array(40), chunks=(8, 4, 4))
        with h5py.File(path) as file:
            place = file["x"].id.get_chunk_info(3).byte_offset
        raw = path.read_bytes()
        old = place.to_bytes(8, "little")
        assert raw.count(old) == 1
        path.write_bytes(raw.replace(old, address.to_bytes(8, "little")))
        with (
            ooc.open_store(path) as store,
            pytest.raises(ooc.CorruptChunkError, match=r"'x', chunk \(3, 0, 0\), rows 24 to 31.*outside"),
        ):
            store["x"].read(0, 8)

    @settings(max_examples=60)
    @given(st.data())
    def test_random_damage_raises_or_loads(
        self, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
    ) -> None:
        path = tmp_path_factory.mktemp("h5") / "x.h5"
        with h5py.File(path, "w") as file:
            for name in ("raw", "shuffle, gzip", "zstd", "blosc", "lz4"):
                file.create_dataset(name, data=rows_array(20, "i4"), chunks=(6, 4, 4), **FILTERS[name])
        raw = bytearray(path.read_bytes())
        # Chunk data, and the tables that say where chunks lie; the library itself guards the rest.
        with h5py.File(path) as file:
            chunk_origins = [file[name].id.get_chunk_info(0).byte_offset for name in file]
        for _ in range(data.draw(st.integers(1, 3))):
            place = data.draw(st.sampled_from(chunk_origins)) + data.draw(st.integers(0, 100))
            raw[min(place, len(raw) - 1)] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(raw)
        errors = []
        with ooc.open_store(path) as store:
            for name in store.arrays:
                try:
                    store[name].read(0, 20)
                except ooc.OocloaderError as error:
                    errors.append(str(error))
        assert not any("\n" in error for error in errors)


@settings(max_examples=40)
@given(
    data=st.data(),
    dtype=st.sampled_from(DTYPES),
    filters=st.sampled_from(list(FILTERS)),
    libver=st.sampled_from(["earliest", "latest"]),
    grows=st.booleans(),
)
def test_any_dataset(
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
    dtype: str,
    filters: str,
    libver: str,
    grows: bool,
) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=3)))
    chunks = tuple(data.draw(st.integers(1, n)) for n in shape)
    path = tmp_path_factory.mktemp("h5") / "x.h5"
    options = FILTERS["raw"] if filters == "szip" else FILTERS[filters]
    x = np.random.default_rng(data.draw(st.integers(0, 9))).integers(0, 2, shape).astype(dtype)
    start = data.draw(st.integers(0, shape[0]))
    with h5py.File(path, "w", libver=libver) as file:
        maxshape = (None, *shape[1:]) if grows else None
        made = file.create_dataset(
            "x", shape, dtype, chunks=chunks, maxshape=maxshape, fillvalue=np.ones((), dtype), **options
        )
        made[start:] = x[start:]
    check_against_h5py(path, reader="direct")
