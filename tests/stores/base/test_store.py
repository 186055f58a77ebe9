"""What every store promises, whatever keeps it; and arrays in memory."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr

import oocloader as ooc
from numbered import Numbered, numbers_of, rows_array

MAKERS = (
    "npy",
    "column order",
    "npz",
    "deflated",
    "memory",
    "list",
    "h5",
    "gzip",
    "scaleoffset",
    "zarr",
    "shards",
)


@pytest.fixture(params=MAKERS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A store of one array `x` of 100 rows, int32 (4, 4), row i carrying i."""
    x = rows_array(100, "i4")
    kind = request.param
    source: Any = {"x": x}
    if kind == "npy":
        np.save(tmp_path / "x.npy", x)
        source = tmp_path / "x.npy"
    elif kind == "column order":
        np.save(tmp_path / "x.npy", np.asfortranarray(x))
        source = tmp_path / "x.npy"
    elif kind == "npz":
        np.savez(tmp_path / "x.npz", x=x)
        source = tmp_path / "x.npz"
    elif kind == "deflated":
        np.savez_compressed(tmp_path / "x.npz", x=x)
        source = tmp_path / "x.npz"
    elif kind == "list":
        source = {"x": [x[:33], x[33:34], x[34:]]}
    elif kind in ("h5", "gzip", "scaleoffset"):
        options: Any = {"h5": {}, "gzip": {"compression": "gzip"}, "scaleoffset": {"scaleoffset": 0}}[kind]
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file.create_dataset("x", data=x, chunks=(7, 4, 3), **options)
        source = tmp_path / "x.h5"
    elif kind in ("zarr", "shards"):
        shards = (21, 4, 3) if kind == "shards" else None
        zarr.create_array(tmp_path / "x.zarr", data=x, chunks=(7, 4, 3), shards=shards)
        source = tmp_path / "x.zarr"
    with ooc.open_store(source) as opened:
        yield opened


class TestContract:
    def test_info(self, store: ooc.Store) -> None:
        assert list(store.arrays) == ["x"] == [store.only_array()]
        info = store.arrays["x"]
        assert isinstance(info, ooc.ArrayInfo)
        assert (info.name, info.shape, info.dtype) == ("x", (100, 4, 4), np.dtype("i4"))
        assert info.nbytes == 6400
        assert info.stored_nbytes > 0
        assert info.reader in ("direct", "library")
        assert bool(info.reason) == (info.reader == "library")
        assert info.attrs == {}
        assert hash(info) == hash(store["x"].info)
        with pytest.raises(TypeError):
            store.arrays["z"] = info  # type: ignore[index]  # read-only on purpose

    @pytest.mark.parametrize(("start", "stop"), [(0, 100), (0, 0), (99, 100), (100, 100), (13, 64), (7, 14)])
    def test_rows(self, store: ooc.Store, start: int, stop: int) -> None:
        rows = store["x"].read(start, stop)
        assert rows.shape == (stop - start, 4, 4)
        assert rows.dtype == np.dtype("i4")
        assert rows.flags.c_contiguous
        assert rows.flags.writeable
        assert numbers_of(rows) == list(range(start, stop)) if start < stop else rows.size == 0

    def test_rows_are_the_callers_own(self, store: ooc.Store) -> None:
        store["x"].read(0, 100)[...] = -1
        assert numbers_of(store["x"].read(0, 100)) == list(range(100))

    def test_out_is_filled_and_nothing_else(self, store: ooc.Store) -> None:
        memory = np.full((60, 4, 4), -7, "i4")
        out = memory[10:50]
        assert store["x"].read(np.int64(30), 70, out=out) is out
        assert numbers_of(out) == list(range(30, 70))
        assert (memory[:10] == -7).all()
        assert (memory[50:] == -7).all()

    @pytest.mark.parametrize(
        ("out", "words"),
        [
            (np.zeros((5, 4, 3), "i4"), r"out must be int32 \(5, 4, 4\), got int32 \(5, 4, 3\)"),
            (np.zeros((4, 4, 4), "i4"), r"got int32 \(4, 4, 4\)"),
            (np.zeros((5, 4, 4), "f4"), "got float32"),
            (np.zeros((5, 4, 4), ">i4"), "got >i4"),
            (np.zeros((5, 4, 4), "i4", order="F"), "C order"),
            (np.zeros((10, 4, 4), "i4")[::2], "C order"),
            (np.broadcast_to(np.zeros((), "i4"), (5, 4, 4)), "writable"),
            ([[0]], "got list"),
        ],
    )
    def test_out_that_does_not_fit(self, store: ooc.Store, out: Any, words: str) -> None:
        with pytest.raises(ooc.SettingError, match=f"'x'.*{words}") as caught:
            store["x"].read(5, 10, out=out)
        assert caught.value.array == "x"

    @pytest.mark.parametrize(
        ("start", "stop"), [(-1, 3), (0, 101), (5, 4), (100, 101), (1.5, 3), ("a", 3), (None, None)]
    )
    def test_rows_that_are_not_there(self, store: ooc.Store, start: Any, stop: Any) -> None:
        with pytest.raises(ooc.SettingError, match="'x': rows"):
            store["x"].read(start, stop)

    def test_many_threads(self, store: ooc.Store) -> None:
        ranges = [(i * 9 % 90, i * 9 % 90 + 10) for i in range(40)]
        found: dict[int, list[int]] = {}
        start = threading.Barrier(8)

        def read(worker: int) -> None:
            start.wait()
            for i in range(worker, len(ranges), 8):
                found[i] = numbers_of(store["x"].read(*ranges[i]))

        threads = [threading.Thread(target=read, args=(worker,)) for worker in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == {i: list(range(*rows)) for i, rows in enumerate(ranges)}

    def test_unknown_name(self, store: ooc.Store) -> None:
        with pytest.raises(ooc.ArrayNotFoundError, match="no array 'X'; it has 'x'") as caught:
            store["X"]
        assert isinstance(caught.value, KeyError)
        assert caught.value.array == "X"
        with pytest.raises(ooc.SettingError, match="named by a string"):
            store[3]  # type: ignore[index]  # what people try

    def test_closed(self, store: ooc.Store) -> None:
        array = store["x"]
        array.read(0, 10)
        store.close()
        store.close()
        for read in (lambda: array.read(0, 10), lambda: array.reader):
            with pytest.raises(ooc.ClosedError):
                read()


def test_each_kind_holds_both_arrays(any_store: Numbered) -> None:
    with ooc.open_store(any_store.source) as store:
        assert list(store.arrays) == ["x", "y"]
        assert np.array_equal(store["x"].read(0, any_store.rows), any_store.x)
        assert np.array_equal(store["y"].read(0, any_store.rows), any_store.y)


class TestNames:
    @pytest.fixture
    def many(self) -> ooc.Store:
        arrays = {f"group/part_{i}": np.arange(3) for i in range(30)}
        return ooc.open_store({**arrays, "images": np.arange(3), "labels": np.arange(3)})

    def test_close_names_come_first_and_not_all_are_listed(self, many: ooc.Store) -> None:
        with pytest.raises(ooc.ArrayNotFoundError, match=r"'label'; it has 'labels', .* and 12 more$"):
            many["label"]

    def test_a_group_is_no_array(self, many: ooc.Store) -> None:
        with pytest.raises(ooc.ArrayNotFoundError, match=r"'group' in .* is a group.*'group/part_0'"):
            many["group"]

    def test_several(self, many: ooc.Store) -> None:
        with pytest.raises(ooc.DataError, match=r"several arrays.*name the one to load"):
            many.only_array()

    def test_an_array_that_cannot_be_loaded_counts_as_one(self, tmp_path: Path) -> None:
        """Labels beside compound features are not taken for the features."""
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file["x"] = np.zeros(32, [("a", "i4")])
            file["y"] = np.arange(32)
            file["mean"] = 1.5
        with (
            ooc.open_store(tmp_path / "x.h5") as store,
            pytest.raises(ooc.DataError, match="several arrays: 'x', 'y'"),
        ):
            store.only_array()

    def test_single_values_do_not_count(self, tmp_path: Path) -> None:
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file["mean"] = 1.5
            file["none"] = np.zeros((0, 3))
            file["x"] = np.arange(32)
        with ooc.open_store(tmp_path / "x.h5") as store:
            assert store.only_array() == "x"
        with h5py.File(tmp_path / "x.h5", "a") as file:
            del file["x"]
        with (
            ooc.open_store(tmp_path / "x.h5") as store,
            pytest.raises(ooc.DataError, match=r"'mean': it is 0-d.*'none': it is empty"),
        ):
            store.only_array()
