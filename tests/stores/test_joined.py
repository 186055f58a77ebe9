"""Several stores as one: joined along the rows, or side by side."""

from __future__ import annotations

import os
import warnings
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
from parts import check_rows, write_parts

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
