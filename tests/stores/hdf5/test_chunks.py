"""Where the chunks of a dataset lie."""

from __future__ import annotations

import ctypes
import re
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from hdf5_checks import check_against_h5py
from numbered import rows_array
from oocloader.stores.hdf5 import chunks as hdf5_chunks
from oocloader.stores.hdf5 import file as hdf5_file
from oocloader.stores.hdf5 import readers as hdf5_readers


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
