"""What `open_store` takes, and what it says of anything else; stores joined and side by side."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr

import oocloader as ooc
from numbered import rows_array
from parts import check_rows, write_parts

SIZES = [5, 7, 1, 4, 6, 3, 8, 2, 9, 10, 11, 3]
TOTAL = sum(SIZES)


class TestOneArray:
    def test_named_behind_the_path(self, tmp_path: Path) -> None:
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file["group/y"] = np.arange(9)
            file["group/z"] = np.arange(9)
        for name in ("group/y", "/group/y"):
            with ooc.open_store(f"{tmp_path}/x.h5::{name}") as store:
                assert list(store.arrays) == ["group/y"]
                assert np.array_equal(store["group/y"].read(0, 9), np.arange(9))
        with pytest.raises(ooc.ArrayNotFoundError, match=r"no array 'group/x'; it has 'group/[yz]'"):
            ooc.open_store(f"{tmp_path}/x.h5::group/x")
        with pytest.raises(ooc.ArrayNotFoundError, match=r"'group' in .* is a group"):
            ooc.open_store(f"{tmp_path}/x.h5::group")

    def test_path_that_holds_the_separator(self, tmp_path: Path) -> None:
        folder = tmp_path / "a::b"
        folder.mkdir()
        np.save(folder / "x.npy", rows_array(5))
        for source in (folder / "x.npy", f"{folder}/x.npy::x"):
            with ooc.open_store(source) as store:
                check_rows(store, "x", 5)

    def test_name_with_glob_characters(self, tmp_path: Path) -> None:
        np.save(tmp_path / "x[1].npy", rows_array(5))
        with ooc.open_store(tmp_path / "x[1].npy") as store:
            check_rows(store, "x[1]", 5)

    def test_home_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        np.save(tmp_path / "x.npy", rows_array(5))
        with ooc.open_store("~/x.npy") as store:
            check_rows(store, "x", 5)

    def test_relative_path_and_another_folder_later(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_parts(tmp_path / "in", "h5", [5])
        write_parts(tmp_path / "in", "zarr", [5])
        write_parts(tmp_path / "in", "npy", [5])
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "in")
        stores = [ooc.open_store(f"part_1.{kind}") for kind in ("h5", "zarr", "npy")]
        monkeypatch.chdir(tmp_path / "elsewhere")
        for store, name in zip(stores, ("x", "x", "part_1"), strict=True):
            with store:
                check_rows(store, name, 5)


class TestRefused:
    @pytest.mark.parametrize(
        "source", ["http://host/x.zarr", "https://host/x.npy", "s3://bucket/x.zarr::a", "file:///x.h5"]
    )
    def test_urls(self, source: str) -> None:
        with pytest.raises(ooc.StoreError, match="URLs are not supported") as caught:
            ooc.open_store(source)
        assert caught.value.file == source

    @pytest.mark.parametrize("source", ["gone.npy", "gone.h5::x", "gone", "in/gone.zarr"])
    def test_missing(self, tmp_path: Path, source: str) -> None:
        with pytest.raises(ooc.StoreError, match=r"gone.*: no such file or folder") as caught:
            ooc.open_store(tmp_path / source)
        assert isinstance(caught.value, OSError)

    def test_glob_without_a_match(self, tmp_path: Path) -> None:
        with pytest.raises(ooc.StoreError, match=r"\*\.npy: no file or folder matches"):
            ooc.open_store(f"{tmp_path}/*.npy")

    def test_missing_part(self, tmp_path: Path) -> None:
        (path,) = write_parts(tmp_path / "in", "npy", [5])
        with pytest.raises(ooc.StoreError, match=r"gone\.npy: no such file"):
            ooc.open_store([path, tmp_path / "gone.npy"])

    @pytest.mark.parametrize(
        ("source", "words"),
        [
            (3, "got builtins.int"),
            (None, "got builtins.NoneType"),
            ([], "list of parts is empty"),
            ([1, 2], "got one of int"),
            (["x.npy", np.zeros(3)], "got one of ndarray, str"),
            ([["x.npy"]], "got one of list"),
            (b"x.npy", "got builtins.bytes"),
            ("", "a path is empty"),
        ],
    )
    def test_of_another_type(self, source: Any, words: str) -> None:
        with pytest.raises(ooc.SettingError, match=words):
            ooc.open_store(source)

    def test_objects_of_the_libraries(self, tmp_path: Path) -> None:
        with (
            h5py.File(tmp_path / "x.h5", "w") as file,
            pytest.raises(ooc.SettingError, match=r"h5py.*give the path"),
        ):
            ooc.open_store(file.create_dataset("x", data=[1]))
        with pytest.raises(ooc.SettingError, match=r"zarr.*give the path"):
            ooc.open_store(zarr.create_array(tmp_path / "x.zarr", data=np.arange(3)))

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b"", "it is empty"),
            (b"hello world", "begins with b'hello wo'"),
            (b"CDF\x01" + bytes(50), "netCDF 3"),
            (b"\x93NUMPZ" + bytes(50), "begins with"),
            (bytes(2000), "begins with"),
        ],
    )
    def test_files_of_another_kind(self, tmp_path: Path, content: bytes, words: str) -> None:
        path = tmp_path / "x.h5"
        path.write_bytes(content)
        with pytest.raises(ooc.StoreError, match=rf"x\.h5: not a store \(.*\): .*{words}"):
            ooc.open_store(path)

    def test_metadata_file_of_zarr(self, tmp_path: Path) -> None:
        zarr.create_array(tmp_path / "x.zarr", data=np.arange(3))
        with pytest.raises(ooc.StoreError, match="give the folder"):
            ooc.open_store(tmp_path / "x.zarr" / "zarr.json")

    def test_zip_of_another_kind(self, tmp_path: Path) -> None:
        with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
            archive.writestr("read.me", "hello")
        with pytest.raises(ooc.StoreError, match=r"x\.zip: a zip archive with neither"):
            ooc.open_store(tmp_path / "x.zip")

    def test_folders_of_another_kind(self, tmp_path: Path) -> None:
        (tmp_path / "docs").mkdir()
        (tmp_path / "docs" / "read.me").write_text("hello")
        with pytest.raises(ooc.StoreError, match=r"docs: a folder that is no store"):
            ooc.open_store(tmp_path / "docs")
        write_parts(tmp_path / "in", "h5", [5] * 11)
        with pytest.raises(ooc.StoreError, match=r"such as part_1\.h5: name one, or join them by a glob"):
            ooc.open_store(tmp_path / "in")

    def test_folder_of_many_folders_is_given_up(self, tmp_path: Path) -> None:
        for i in range(40):
            for j in range(40):
                (tmp_path / f"docs/{i}/{j}/deeper").mkdir(parents=True)
        with pytest.raises(ooc.StoreError, match="no store"):
            ooc.open_store(tmp_path / "docs")

    def test_neither_file_nor_folder(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(ooc.StoreError, match="neither a file nor a folder"):
            ooc.open_store(tmp_path / "pipe")

    def test_no_rights(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refused(path: Any) -> None:
            raise PermissionError(13, "Permission denied")

        zarr.create_array(tmp_path / "x.zarr", data=np.arange(3))
        monkeypatch.setattr(os, "scandir", refused)
        with pytest.raises(ooc.StoreError, match=r"x\.zarr: cannot be read: Permission denied"):
            ooc.open_store(tmp_path / "x.zarr")


def test_libraries_are_loaded_when_a_store_needs_them(tmp_path: Path) -> None:
    """Reading a `.npy`, or a Zarr store without codecs, loads no library of formats or codecs."""
    np.save(tmp_path / "x.npy", rows_array(5))
    zarr.create_array(tmp_path / "x.zarr", data=rows_array(5), compressors=None)
    code = """if True:
        import sys
        import oocloader as ooc
        for path in sys.argv[1:]:
            with ooc.open_store(path) as store:
                store["x"].read(0, 5)
        print(sorted({"h5py", "zarr", "numcodecs", "imagecodecs", "tensorflow"} & set(sys.modules)))
    """
    arguments = [sys.executable, "-c", code, str(tmp_path / "x.npy"), str(tmp_path / "x.zarr")]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
