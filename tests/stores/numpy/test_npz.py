"""Arrays of `.npz` files against NumPy."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oocloader as ooc
from npy_checks import check_reads
from numbered import rows_array
from oocloader.stores.base import zipped
from oocloader.stores.numpy import fortran, npz


class TestNpz:
    @pytest.mark.parametrize("dtype", ["u1", ">f4", "?", "<c8"])
    @pytest.mark.parametrize("order", "CF")
    @pytest.mark.parametrize("save_as", [np.savez, np.savez_compressed])
    def test_values_equal_numpy(self, tmp_path: Path, save_as: Any, order: Any, dtype: str) -> None:
        path = tmp_path / "pack.npz"
        x = np.asarray(rows_array(31, dtype, sample_shape=(4, 5)), dtype=dtype, order=order)
        save_as(path, **{"x": x, "deep/y": np.arange(31), "words": np.array(["a", "b"])})
        with ooc.open_store(path) as store, np.load(path) as expected:
            assert list(store.arrays) == ["x", "deep/y", "words"]
            direct = save_as is np.savez
            assert store.arrays["x"].reader == ("direct" if direct else "library")
            assert bool(store.arrays["x"].reason) != direct
            assert store.arrays["x"].codecs == (() if direct else ("deflate",))
            assert store.arrays["words"].reader == "none"
            check_reads(store, "x", expected["x"])
            check_reads(store, "deep/y", expected["deep/y"])
            with pytest.raises(ooc.DataError, match=r"several arrays: 'x', 'deep/y', 'words'"):
                store.only_array()

    def test_objects_are_listed_and_never_unpickled(self, tmp_path: Path) -> None:
        path = tmp_path / "pack.npz"
        np.savez(path, o=np.array([[1], {}], object), x=np.arange(3), allow_pickle=True)
        with ooc.open_store(path) as store:
            assert store.arrays["o"].reader == "none"
            assert "object" in store.arrays["o"].reason
            check_reads(store, "x", np.arange(3))

    def test_another_compression_is_listed_with_the_remedy(self, tmp_path: Path) -> None:
        path = tmp_path / "pack.npz"
        member = io.BytesIO()
        np.save(member, np.arange(5))
        with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
            archive.writestr("x.npy", member.getvalue())
        with (
            ooc.open_store(path) as store,
            pytest.raises(ooc.UnsupportedArrayError, match=r"bzip2.*numpy\.savez"),
        ):
            store["x"]

    def test_truncated_archive(self, tmp_path: Path) -> None:
        path = tmp_path / "pack.npz"
        np.savez(path, x=rows_array(50))
        os.truncate(path, os.path.getsize(path) - 10)
        with pytest.raises(ooc.StoreError, match=r"pack\.npz.*truncated"):
            ooc.open_store(path)

    def test_member_shorter_than_its_header_says(self, tmp_path: Path) -> None:
        path = tmp_path / "pack.npz"
        whole = io.BytesIO()
        np.save(whole, np.arange(100))
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.npy", whole.getvalue()[:-8])
            archive.writestr("y.npy", b"not a header at all")
        with ooc.open_store(path) as store:
            assert "truncated" in store.arrays["x"].reason
            assert "not a .npy" in store.arrays["y"].reason

    def test_damaged_deflate_stream(self, tmp_path: Path) -> None:
        path = tmp_path / "pack.npz"
        np.savez_compressed(path, x=np.random.default_rng(0).integers(0, 4, 40_000).astype("u1"))
        member = zipped.members(str(path))["x.npy"]
        raw = bytearray(path.read_bytes())
        raw[member.header_offset + member.compress_size // 2] ^= 0x10
        path.write_bytes(raw)
        with (
            ooc.open_store(path) as store,
            pytest.raises(ooc.CorruptChunkError, match=r"pack\.npz.*'x'.*damaged"),
        ):
            store["x"].read(0, 40_000)

    def test_column_order_in_pieces(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fortran, "_BAND_NBYTES", 1000)
        monkeypatch.setattr(npz, "_PIECE_NBYTES", 700)
        x = np.asfortranarray(rows_array(50, "<i4", sample_shape=(3, 4)))
        np.savez_compressed(tmp_path / "pack.npz", x=x)
        with ooc.open_store(tmp_path / "pack.npz") as store:
            check_reads(store, "x", x)
