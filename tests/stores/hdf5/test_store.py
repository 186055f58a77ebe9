"""HDF5 stores against h5py."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oocloader as ooc
from hdf5_checks import CHUNKS, DTYPES, FILTERS, SHAPE, check_against_h5py, check_equal, szip_takes
from numbered import rows_array


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
