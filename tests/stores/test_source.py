"""What `open_store` takes, and what it says of anything else; stores joined and side by side."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import oocloader as ooc
from numbered import rows_array
from oocloader.paths import natural_key
from oocloader.stores.joined import common_name


def write_parts(folder: Path, kind: str, sizes: list[int], *, stem: str = "part_") -> list[Path]:
    """Parts numbered from 1 that hold rows 0, 1, 2, ... one behind the other, and labels where a part may."""
    folder.mkdir(exist_ok=True)
    first = 0
    paths = []
    for number, size in enumerate(sizes, start=1):
        x = rows_array(range(first, first + size))
        y = np.arange(first, first + size)
        path = folder / f"{stem}{number}.{kind}"
        if kind == "npy":
            np.save(path, x)
        elif kind == "h5":
            with h5py.File(path, "w") as file:
                file.create_dataset("x", data=x, chunks=(max(1, min(4, size)), 4, 4), maxshape=(None, 4, 4))
                file.create_dataset("y", data=y, maxshape=(None,))
                file["mean"] = 1.5
        else:
            group = zarr.open_group(path, mode="w")
            group.create_array("x", data=x, chunks=(4, 4, 4))
            group.create_array("y", data=y, chunks=(3,))
        paths.append(path)
        first += size
    return paths


def check_rows(store: ooc.Store, name: str, rows: int) -> None:
    array = store[name]
    assert array.info.shape == (rows, 4, 4)
    for start, stop in ((0, rows), (rows // 3, rows // 2), (rows - 1, rows)):
        assert np.array_equal(array.read(start, stop), rows_array(range(start, stop)))


SIZES = [5, 7, 1, 4, 6, 3, 8, 2, 9, 10, 11, 3]
TOTAL = sum(SIZES)


class TestJoined:
    @pytest.mark.parametrize("kind", ["npy", "h5", "zarr"])
    @pytest.mark.parametrize("how", ["list", "shuffled list", "glob", "paths"])
    def test_in_natural_order(self, tmp_path: Path, kind: str, how: str) -> None:
        """Parts 10 to 12 come after part 9, not after part 1."""
        paths = [str(path) for path in write_parts(tmp_path / "in", kind, SIZES)]
        sources: dict[str, Any] = {
            "list": paths,
            "shuffled list": sorted(paths),
            "glob": str(tmp_path / "in" / f"part_*.{kind}"),
            "paths": tuple(map(Path, reversed(paths))),
        }
        assert sources["shuffled list"] != paths
        with ooc.open_store(sources[how]) as store:
            name = "part" if kind == "npy" else "x"
            assert store.stored[name].parts == tuple(paths)
            assert store.arrays[name].reader == "direct"
            check_rows(store, name, TOTAL)
            if kind != "npy":
                assert np.array_equal(store["y"].read(0, TOTAL), np.arange(TOTAL))

    def test_folder_of_npy_parts(self, tmp_path: Path) -> None:
        write_parts(tmp_path / "train.parts", "npy", SIZES)
        (tmp_path / "train.parts" / "._part_1.npy").write_bytes(b"what macOS leaves behind")
        (tmp_path / "train.parts" / "notes.txt").write_text("not a part")
        with ooc.open_store(tmp_path / "train.parts") as store:
            assert list(store.arrays) == ["train"]
            assert store.arrays["train"].stored_nbytes == TOTAL * 16
            check_rows(store, "train", TOTAL)

    def test_arrays_in_memory_in_the_order_given(self) -> None:
        with ooc.open_store([rows_array(range(3)), rows_array(range(3, 20))]) as store:
            check_rows(store, "array", 20)

    def test_one_array_of_each_store(self, tmp_path: Path) -> None:
        paths = write_parts(tmp_path / "in", "h5", SIZES)
        for source in (f"{tmp_path}/in/*.h5::x", [f"{path}::x" for path in paths]):
            with ooc.open_store(source) as store:
                assert len(store.arrays) == 1
                check_rows(store, store.only_array(), TOTAL)

    def test_parts_of_different_kinds(self, tmp_path: Path) -> None:
        first, second = write_parts(tmp_path / "in", "npy", [5, 7])
        zarr.create_array(tmp_path / "in/part_2.zarr", data=np.load(second), chunks=(3, 4, 4))
        np.savez_compressed(tmp_path / "in/part_3.npz", x=rows_array(range(12, 20)))
        parts = [first, tmp_path / "in/part_2.zarr", tmp_path / "in/part_3.npz"]
        with ooc.open_store(parts) as store:
            assert store.arrays["part"].reader == "library"
            assert "part_3.npz" in store.arrays["part"].reason
            check_rows(store, "part", 20)

    def test_parts_without_rows_add_nothing(self, tmp_path: Path) -> None:
        write_parts(tmp_path / "in", "npy", [0, 5, 0, 7, 0])
        with ooc.open_store(tmp_path / "in") as store:
            check_rows(store, "in", 12)
        write_parts(tmp_path / "none", "npy", [0, 0])
        with (
            ooc.open_store(tmp_path / "none") as store,
            pytest.raises(ooc.UnsupportedArrayError, match="empty"),
        ):
            store.only_array()

    @pytest.mark.parametrize(
        ("other", "words"),
        [
            (rows_array(5)[:, :3], r"samples of shape \(3, 4\), but .*part_1\.npy has \(4, 4\)"),
            (rows_array(5, "i2"), r"dtype int16, but .*part_1\.npy has uint8"),
            (np.zeros((0, 3, 3), "u1"), r"samples of shape \(3, 3\)"),
        ],
    )
    def test_parts_that_do_not_fit(self, tmp_path: Path, other: np.ndarray, words: str) -> None:
        write_parts(tmp_path / "in", "npy", [5, 7])
        np.save(tmp_path / "in/part_3.npy", other)
        with pytest.raises(ooc.DataError, match=rf"part_3\.npy.*{words}") as caught:
            ooc.open_store(tmp_path / "in")
        assert str(caught.value.file).endswith("part_3.npy")

    @pytest.mark.parametrize("lacks", [1, 2])
    def test_part_that_lacks_an_array(self, tmp_path: Path, lacks: int) -> None:
        paths = write_parts(tmp_path / "in", "h5", [5, 7])
        with h5py.File(paths[lacks - 1], "a") as file:
            del file["y"]
        with pytest.raises(
            ooc.DataError, match=rf"part_{lacks}\.h5 has no array 'y'.*part_{3 - lacks}\.h5 has"
        ):
            ooc.open_store(paths)

    def test_part_that_cannot_be_loaded(self, tmp_path: Path) -> None:
        paths = write_parts(tmp_path / "in", "h5", [5, 7])
        with h5py.File(paths[1], "a") as file:
            del file["y"]
            file["y"] = ["a"] * 7
        with ooc.open_store(paths) as store:
            check_rows(store, "x", 12)
            with pytest.raises(ooc.UnsupportedArrayError, match=r"'y'.*in part .*part_2\.h5.*string"):
                store["y"]
            with pytest.raises(ooc.UnsupportedArrayError, match=r"'mean'.*0-d"):
                store["mean"]

    def test_damaged_part_leaves_nothing_open(self, tmp_path: Path) -> None:
        paths = write_parts(tmp_path / "in", "h5", [5, 7])
        os.truncate(paths[1], 2000)
        with pytest.raises(ooc.StoreError, match=r"part_2\.h5"):
            ooc.open_store(paths)
        assert not h5py.h5f.get_obj_ids(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE)

    @pytest.mark.parametrize(
        ("paths", "name"),
        [
            (["x_1.npy", "x_2.npy"], "x"),
            (["a/train-001.npy", "b/train-002.npy"], "train"),
            (["1.npy", "2.npy"], "array"),
            (["x.npy", "y.npy"], "array"),
            (["only.part.npy"], "only"),
        ],
    )
    def test_name_of_what_has_none(self, paths: list[str], name: str) -> None:
        assert common_name(paths) == name

    @given(st.lists(st.integers(0, 10**6), unique=True), st.text("ab/_"))
    def test_natural_order_is_that_of_numbers(self, numbers: list[int], stem: str) -> None:
        names = [f"{stem}{number}.npy" for number in numbers]
        assert sorted(names, key=natural_key) == [f"{stem}{number}.npy" for number in sorted(numbers)]

    @given(st.lists(st.text("a1²0.")))
    def test_natural_order_takes_any_name(self, names: list[str]) -> None:
        assert sorted(sorted(names, key=natural_key)) == sorted(names)


class TestSideBySide:
    def test_of_different_kinds(self, tmp_path: Path) -> None:
        np.save(tmp_path / "images.npy", rows_array(20))
        with h5py.File(tmp_path / "labels.h5", "w") as file:
            file["group/y"] = np.arange(20)
            file["other"] = np.arange(3)
        write_parts(tmp_path / "parts", "npy", [5, 15])
        source = {
            "x": tmp_path / "images.npy",
            "y": f"{tmp_path}/labels.h5::group/y",
            "w": np.ones(20, "f4"),
            "z": str(tmp_path / "parts" / "*.npy"),
        }
        with ooc.open_store(source) as store:
            assert list(store.arrays) == list(source)
            assert [info.name for info in store.arrays.values()] == list(source)
            check_rows(store, "x", 20)
            check_rows(store, "z", 20)
            assert np.array_equal(store["y"].read(5, 9), np.arange(5, 9))
            assert len(store.stored["z"].parts) == 2
            assert store["y"].store.endswith("labels.h5")

    def test_value_of_several_arrays(self, tmp_path: Path) -> None:
        (path,) = write_parts(tmp_path / "in", "h5", [5])
        with pytest.raises(ooc.DataError, match=r"part_1\.h5 has several arrays: 'x', 'y'"):
            ooc.open_store({"x": path})

    @pytest.mark.parametrize(
        ("source", "words"),
        [
            ({}, "empty"),
            ({3: np.zeros(3)}, "named by strings"),
            ({"": np.zeros(3)}, "named by strings"),
            ({"x": {"y": np.zeros(3)}}, "dict within a dict"),
            ({"x": 3}, "builtins.int"),
        ],
    )
    def test_nonsense(self, source: Any, words: str) -> None:
        with pytest.raises(ooc.SettingError, match=words):
            ooc.open_store(source)

    def test_warns_once_of_packed_values(self, tmp_path: Path) -> None:
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file["x"] = rows_array(5)
            file["x"].attrs["scale_factor"] = 2.0
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            store = ooc.open_store({"a": f"{tmp_path}/x.h5::x"})
        with store:
            with pytest.warns(UserWarning, match=r"x\.h5: array 'a'.*scale_factor"):
                store["a"]
            store["a"]


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
