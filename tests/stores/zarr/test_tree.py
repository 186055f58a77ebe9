"""Keys in folders and in zip archives."""

from __future__ import annotations

import shutil
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
import zarr
import zarr.codecs
import zarr.storage

import oocloader as ooc
from oocloader.stores.zarr.tree import Below
from zarr_checks import check_equal, fill


def zip_folder(folder: Path, path: Path, method: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", method) as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                archive.write(file, file.relative_to(folder).as_posix())


class TestZip:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        path = tmp_path / "x.zarr"
        group = zarr.open_group(path, mode="w")
        for dtype in ("uint8", "float32"):
            fill(group, dtype, dtype, chunks=(5, 4, 4), shards=(10, 12, 4))
        fill(group, "separate", "int16", chunks=(5, 4, 4))
        old = zarr.open_group(path / "old", mode="w", zarr_format=2)
        fill(old, "order", "int16", chunks=(5, 9, 4), order="F", compressors=None)
        old.attrs["note"] = "kept"
        return path

    def test_stored_members_are_read_directly(self, folder: Path, tmp_path: Path) -> None:
        path = tmp_path / "x.zip"
        zip_folder(folder, path)
        with ooc.open_store(folder) as expected, ooc.open_store(path) as store:
            assert dict(store.arrays) == dict(expected.arrays)
            for name, info in store.arrays.items():
                assert info.reader == "direct"
                check_equal(store, name, expected[name].read(0, 23))

    def test_deflated_members_are_left_to_the_library(self, folder: Path, tmp_path: Path) -> None:
        path = tmp_path / "x.zarr.zip"
        zip_folder(folder, path, zipfile.ZIP_DEFLATED)
        with ooc.open_store(folder) as expected, ooc.open_store(path) as store:
            assert list(store.arrays) == list(expected.arrays)
            for name, info in store.arrays.items():
                # Where no chunk was written there is none to unpack.
                assert info.reader == ("direct" if name.endswith("none") else "library")
                check_equal(store, name, expected[name].read(0, 23))
            assert "deflate" in store.arrays["uint8/holes"].reason

    def test_last_of_several_entries_counts(self, tmp_path: Path) -> None:
        path = tmp_path / "grown.zarr.zip"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # zipfile, of names that are there twice
            with zarr.storage.ZipStore(path, mode="w") as target:
                array = zarr.create_array(target, shape=(10, 4), chunks=(10, 4), dtype="f4")
                array[...] = 1
                array.append(np.full((10, 4), 2, "f4"))
                array.append(np.full((10, 4), 3, "f4"))
                array[:10] = 9
        with ooc.open_store(path) as store:
            check_equal(
                store, "grown", np.repeat(np.array([[9], [2], [3]], "f4"), 10, axis=0).repeat(4, axis=1)
            )

    def test_folder_zipped_with_its_name(self, folder: Path, tmp_path: Path) -> None:
        shutil.make_archive(str(tmp_path / "whole"), "zip", tmp_path, "x.zarr")
        with ooc.open_store(tmp_path / "whole.zip") as store, ooc.open_store(folder) as expected:
            assert list(store.arrays) == [f"x.zarr/{name}" for name in expected.arrays]
            check_equal(store, "x.zarr/separate/holes", expected["separate/holes"].read(0, 23))

    def test_data_in_front_of_the_archive(self, folder: Path, tmp_path: Path) -> None:
        path = tmp_path / "x.zip"
        zip_folder(folder, path)
        # zipfile corrects the offsets of archives that something was put before.
        path.write_bytes(b"PK\x03\x04" + bytes(96) + path.read_bytes())
        with ooc.open_store(folder) as expected, ooc.open_store(path) as store:
            check_equal(store, "separate/holes", expected["separate/holes"].read(0, 23))


def test_keys_are_looked_up_where_they_are_known() -> None:
    assert Below.of("c/", "/", (7, 1, 1)) == Below(2, "0/0")
    assert Below.of("", "/", (7, 3, 1)) == Below(2, "0")
    assert Below.of("c/", "/", (1, 1, 1)) == Below(2, "0/0")
    assert Below.of("c/", "/", (7, 3)) == Below.of("c/", "/", (7,)) == Below.of("", ".", (7, 1)) == Below()
