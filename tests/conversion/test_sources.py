"""Sources in any orientation, raw files, casts, axes, ranges of rows and shuffles, against NumPy."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from numbered import rows_array
from oocloader.conversion import convert, shuffling, transposing
from oocloader.conversion.casting import cast_values
from oocloader.conversion.derived_rows import StoredRows
from oocloader.conversion.new_array import is_spread
from oocloader.conversion.scratch import Scratch
from oocloader.conversion.shuffling import ShuffledRows, order_of
from oocloader.conversion.transposing import TransposedRows, turn
from oocloader.errors import ChangedError, ClosedError, DataError, SettingError, StoreError
from oocloader.order.permutation import RandomPermutation
from oocloader.reading.boxes import Box
from oocloader.stores import open_store

SHAPE = (500, 6, 7, 3)
X = np.arange(np.prod(SHAPE), dtype="i4").reshape(SHAPE)


@pytest.fixture
def small_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays of a megabyte are treated as those of a terabyte are: spread, in many boxes and blocks."""
    monkeypatch.setattr("oocloader.conversion.new_array.BOX_NBYTES", 0)
    monkeypatch.setattr("oocloader.conversion.new_array._LEAST_RUN_NBYTES", 1 << 40)
    monkeypatch.setattr("oocloader.conversion.new_array._MOST_BAND_NBYTES", 0)
    monkeypatch.setattr(transposing, "BOX_NBYTES", 5000)
    monkeypatch.setattr(transposing, "_TILE_ROWS", 100)
    monkeypatch.setattr(transposing, "_TILE_COLUMNS", 5)
    monkeypatch.setattr(shuffling, "BLOCK_NBYTES", 20_000)


def new_array(path: Path, name: str = "") -> np.ndarray:
    if path.suffix == ".h5":
        with h5py.File(path) as file:
            return np.asarray(file[name or next(iter(file))][...])
    found: Any = zarr.open(path, mode="r")
    return np.asarray(found[name][...] if name else found[...])


def made(folder: Path, kind: str) -> Any:
    """X in a store of that kind."""
    path = folder / "x"
    match kind:
        case "npy":
            np.save(path, X.astype(">i4"))
            return f"{path}.npy"
        case "fortran":
            np.save(path, np.asfortranarray(X))
            return f"{path}.npy"
        case "big-endian fortran":
            np.save(path, np.asfortranarray(X.astype(">i4")))
            return f"{path}.npy"
        case "npz fortran":
            np.savez_compressed(path, x=np.asfortranarray(X))
            return f"{path}.npz"
        case "parts":
            path.mkdir()
            for number, (start, stop) in enumerate([(0, 9), (9, 300), (300, 500)]):
                part = X[start:stop] if number % 2 else np.asfortranarray(X[start:stop])
                np.save(path / f"part{number * 7}.npy", part)
            return path
        case "memory":
            return X
    with h5py.File(f"{path}.h5", "w") as file:
        chunks = {"chunks": (64, 6, 7, 3), "across": (500, 2, 7, 1), "tiles": (64, 4, 4, 2)}[kind]
        file.create_dataset("x", data=X, chunks=chunks, compression="gzip")
    return f"{path}.h5"


KINDS = (
    "npy",
    "fortran",
    "big-endian fortran",
    "npz fortran",
    "parts",
    "memory",
    "chunks",
    "across",
    "tiles",
)


@pytest.mark.usefixtures("small_boxes")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("axis", [0, 2, -1])
@pytest.mark.parametrize("rows", [None, "1:3"])
@pytest.mark.parametrize("seed", [None, 5])
def test_rows_of_any_source(tmp_path: Path, kind: str, axis: int, rows: Any, seed: int | None) -> None:
    convert(made(tmp_path, kind), tmp_path / "out.h5", axis=axis, rows=rows, shuffle=seed)
    taken = slice(1, 3) if rows else slice(None)
    expected = np.moveaxis(X, axis, 0)[taken]
    if seed is not None:
        expected = expected[order_of(len(expected), seed).stretch(0, len(expected))]
    found = new_array(tmp_path / "out.h5")
    assert found.dtype == expected.dtype
    assert np.array_equal(found, expected)
    assert not any(name.startswith(".") for name in os.listdir(tmp_path))


@pytest.mark.usefixtures("small_boxes")
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.data(),
    shape=hnp.array_shapes(min_dims=1, max_dims=4, max_side=30).filter(lambda shape: np.prod(shape) < 30_000),
    order=st.sampled_from("CF"),
)
def test_any_shape_axis_and_chunk(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, shape: tuple[int, ...], order: Any
) -> None:
    folder = tmp_path_factory.mktemp("any")
    expected = np.arange(np.prod(shape)).reshape(shape)
    if data.draw(st.booleans()):
        np.save(folder / "x.npy", np.asarray(expected, order=order))
        source = folder / "x.npy"
    else:
        source = folder / "x.h5"
        chunks = tuple(data.draw(st.integers(1, length)) for length in shape)
        with h5py.File(source, "w") as file:
            file.create_dataset("x", data=expected, chunks=chunks)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    expected = np.moveaxis(expected, axis, 0)
    start = data.draw(st.integers(0, len(expected) - 1))
    stop = data.draw(st.integers(start + 1, len(expected)))
    chunk_rows = data.draw(st.none() | st.integers(1, len(expected)))
    convert(source, folder / "o.h5", axis=axis, rows=slice(start, stop), chunk_rows=chunk_rows)
    assert np.array_equal(new_array(folder / "o.h5"), expected[start:stop])


@pytest.mark.usefixtures("small_boxes")
@pytest.mark.parametrize("kind", ["fortran", "across", "npy"])
def test_the_source_is_read_once(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = np.zeros(SHAPE, int)
    with open_store(made(tmp_path, kind)) as store:
        reader: Any = store[store.only_array()].reader
        original = type(reader).read_box

        def counting(self: Any, box: Box, out: np.ndarray) -> None:
            counts[box] += 1
            original(self, box, out)

        monkeypatch.setattr(type(reader), "read_box", counting)
        rows = TransposedRows(reader, axis=0, start=0, shape=SHAPE, folder=str(tmp_path), threads=2)
        told: list[int] = []
        rows.prepare(told.append)
        for start in (0, 100, 100, 37):
            out = np.empty((50, *SHAPE[1:]), "i4")
            rows.read(start, start + 50, out)
            assert np.array_equal(out, X[start : start + 50])
        rows.close()
    assert (counts == 1).all()
    assert sum(told) == X.nbytes


def test_what_is_spread_goes_by_boxes_and_what_is_not_does_not(tmp_path: Path) -> None:
    def spread(array: Any, axis: int = 0) -> bool:
        with open_store(array) as store:
            return is_spread(store[store.only_array()].reader, axis)

    def npy(name: str, shape: tuple[int, ...], dtype: str = "u1", **options: Any) -> Path:
        np.lib.format.open_memmap(tmp_path / name, "w+", dtype, shape, **options)  # sparse
        return tmp_path / name

    def hdf5(name: str, shape: tuple[int, ...], chunks: tuple[int, ...]) -> Path:
        with h5py.File(tmp_path / name, "w") as file:
            file.create_dataset("x", shape, "u1", chunks=chunks, compression="gzip")
        return tmp_path / name

    assert not spread(npy("c.npy", (80_000, 64, 64, 3)))
    assert spread(npy("c.npy", (80_000, 64, 64, 3)), 3)
    assert spread(npy("f.npy", (80_000, 64, 64, 3), fortran_order=True))
    # The columns of a table lie together in long runs.
    assert not spread(npy("t.npy", (10_000_000, 8), "f4", fortran_order=True))
    assert not spread(npy("s.npy", (100, 64, 64, 3), fortran_order=True))
    assert not spread(hdf5("a.h5", (80_000, 64, 64, 3), (256, 32, 32, 1)))
    assert spread(hdf5("b.h5", (80_000, 64, 64, 3), (80_000, 1, 1, 3)))
    assert not spread([tmp_path / "c.npy", tmp_path / "c.npy"])
    assert spread([tmp_path / "c.npy", tmp_path / "f.npy"])


def test_turning_a_matrix() -> None:
    values = np.arange(700 * 500, dtype="u2").reshape(500, 700).T
    for turned in (values, values[::2], values.reshape(700, 50, 10), values.reshape(70, 10, 500)):
        out = np.zeros(turned.shape, "u2")
        turn(turned, out)
        assert np.array_equal(out, turned)


def test_shuffles_keep_arrays_together_and_say_where_rows_came_from(tmp_path: Path) -> None:
    x, y = rows_array(3000, "uint8", sample_shape=(50,)), np.arange(3000)
    for name in ("a.zarr", "b.zarr"):
        convert({"x": x, "y": y}, tmp_path / name, shuffle=11, shuffle_index="origin", codec="zstd")
    order = new_array(tmp_path / "a.zarr", "origin")
    assert order.dtype == np.int64
    assert np.array_equal(np.sort(order), y)
    assert np.array_equal(new_array(tmp_path / "a.zarr", "y"), y[order])
    assert np.array_equal(new_array(tmp_path / "a.zarr", "x"), x[order])
    assert np.array_equal(new_array(tmp_path / "b.zarr", "origin"), order)
    convert(y, tmp_path / "c.zarr", shuffle=12)
    assert not np.array_equal(new_array(tmp_path / "c.zarr"), y[order])
    # Of a range of rows, the numbers are those in the source.
    convert(y, tmp_path / "d.zarr", shuffle=11, shuffle_index="origin", rows=slice(1000, 1500))
    assert np.array_equal(new_array(tmp_path / "d.zarr", "origin"), new_array(tmp_path / "d.zarr", "array"))
    assert set(new_array(tmp_path / "d.zarr", "array")) == set(range(1000, 1500))


@pytest.mark.parametrize("name", ["a.zarr", "a.h5"])
def test_the_order_of_a_shuffle_is_verified_in_full(tmp_path: Path, name: str) -> None:
    x = rows_array(3000, "uint8", sample_shape=(50,))
    convert({"x": x}, tmp_path / name, shuffle=11, shuffle_index="origin", verify="full")
    assert np.array_equal(new_array(tmp_path / name, "x"), x[new_array(tmp_path / name, "origin")])


def test_the_order_is_always_the_same() -> None:
    """Whoever changes these numbers makes conversions that cannot be repeated."""
    assert order_of(10, 0).stretch(0, 10).tolist() == [5, 4, 2, 7, 9, 0, 8, 3, 1, 6]
    assert order_of(100_000, 42).stretch(0, 5).tolist() == [16599, 1200, 15157, 73918, 21275]
    assert order_of(100_000, 2**64 + 42).stretch(0, 5).tolist() == [69812, 65251, 55929, 47528, 65391]
    # A loader of the same seed and number of rows puts them in another order.
    assert RandomPermutation(42, 0, 100_000).stretch(0, 5).tolist() != [16599, 1200, 15157, 73918, 21275]


@pytest.mark.parametrize("bucket_rows", [1, 7, 100, 1000])
def test_buckets_of_any_size(tmp_path: Path, bucket_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffling, "BLOCK_NBYTES", 1500)
    x = rows_array(500, "uint8", sample_shape=(10,))
    order = order_of(500, 1)
    expected = x[order.stretch(0, 500)]
    with open_store(x) as store:
        rows = ShuffledRows(
            StoredRows(store["array"]),
            order,
            shape=x.shape,
            dtype=x.dtype,
            bucket_rows=bucket_rows,
            folder=str(tmp_path),
            threads=3,
        )
        for start, stop in ((0, 500), (3, 4), (90, 310), (499, 500)):
            out = np.empty((stop - start, 10), np.uint8)
            rows.read(start, stop, out)
            assert np.array_equal(out, expected[start:stop])
        rows.close()
        with pytest.raises(ClosedError):
            rows.read(0, 1, np.empty((1, 10), np.uint8))


@pytest.mark.parametrize("options", [{"shuffle": 1}, {"axis": 1}])
def test_a_source_that_shrinks_in_the_first_pass(tmp_path: Path, options: Any) -> None:
    np.save(tmp_path / "x.npy", rows_array(100, "uint8", sample_shape=(300, 300)))
    original = Scratch.write

    def cutting(self: Scratch, data: np.ndarray, offset: int) -> None:
        os.truncate(tmp_path / "x.npy", 1000)
        original(self, data, offset)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scratch, "write", cutting)
        patch.setattr(transposing, "BOX_NBYTES", 1_000_000)
        patch.setattr(shuffling, "BLOCK_NBYTES", 1_000_000)
        with pytest.raises(ChangedError, match=r"x\.npy"):
            convert(tmp_path / "x.npy", tmp_path / "out.zarr", **options)
    assert os.listdir(tmp_path) == ["x.npy"]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("oocloader")]


@pytest.mark.parametrize("options", [{"shuffle": 1}, {"axis": 1}])
def test_no_room_for_temporary_files(tmp_path: Path, options: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = rows_array(100, "uint8")
    monkeypatch.setattr("shutil.disk_usage", lambda folder: (1 << 40, 0, 2 * x.nbytes - 1))
    convert(x, tmp_path / "a.zarr")
    with pytest.raises(StoreError, match=r"b\.zarr: no space"):
        convert(x, tmp_path / "b.zarr", **options)


# -- raw files


@pytest.mark.parametrize("dtype", ["u1", "<i2", ">f4", "c16", "?"])
@pytest.mark.parametrize("shape", [(40, 3, 5), (-1, 3, 5), "40,3,5", "-1, 15"])
def test_raw_files(tmp_path: Path, dtype: str, shape: Any) -> None:
    x = (np.arange(600) % 2 if dtype == "?" else np.arange(600) % 120).reshape(40, 15).astype(dtype)
    x.tofile(tmp_path / "x.bin")
    convert(tmp_path / "x.bin", tmp_path / "x.zarr", shape=shape, dtype=dtype)
    expected = x.reshape(40, 15) if shape == "-1, 15" else x.reshape(40, 3, 5)
    found = new_array(tmp_path / "x.zarr")
    assert found.dtype == np.dtype(dtype).newbyteorder("=")
    assert np.array_equal(found, expected)


def test_raw_files_beside_others(tmp_path: Path) -> None:
    x, y = rows_array(90, "uint16"), np.arange(90)
    x.tofile(tmp_path / "x.raw")
    np.save(tmp_path / "y.npy", y)
    source = {"x": str(tmp_path / "x.raw"), "y": tmp_path / "y.npy"}
    convert(source, tmp_path / "o.h5", shape={"x": (-1, 4, 4)}, dtype={"x": "u2", "y": "f4"})
    assert np.array_equal(new_array(tmp_path / "o.h5", "x"), x)
    assert new_array(tmp_path / "o.h5", "y").dtype == np.float32


@pytest.mark.parametrize(
    ("source", "options", "kind", "words"),
    [
        (
            "x.bin",
            {"shape": (10, 3), "dtype": "f4"},
            DataError,
            ("x.bin", "has 100 bytes", "120 are expected"),
        ),
        ("x.bin", {"shape": (-1, 3), "dtype": "f4"}, DataError, ("x.bin", "100 bytes", "multiple of 12")),
        ("x.bin", {"shape": (-1, 101), "dtype": "u1"}, DataError, ("x.bin", "multiple of 101")),
        ("x.bin", {"shape": (25,)}, SettingError, ("x.bin", "dtype")),
        ("x.bin", {"shape": (5, -1), "dtype": "f4"}, SettingError, ("shape", "(5, -1)")),
        ("x.bin", {"shape": "5x5", "dtype": "f4"}, SettingError, ("shape", "'5x5'")),
        ("x.bin", {"shape": (25,), "dtype": "U4"}, SettingError, ("dtype", "'U4'")),
        ("x.bin", {"shape": (25,), "dtype": "g"}, SettingError, ("dtype", "'g'")),
        ("none.bin", {"shape": (25,), "dtype": "f4"}, StoreError, ("none.bin", "no such file")),
        (".", {"shape": (25,), "dtype": "f4"}, StoreError, (".", "is a folder")),
        ("x.npy", {"shape": (25,), "dtype": "f4"}, SettingError, ("x.npy", "a .npy file", "leave it out")),
        ({"x": "x.bin"}, {"shape": (25,), "dtype": "f4"}, SettingError, ("shape", "{'x': ")),
        ({"x": "x.bin"}, {"shape": {"y": (25,)}, "dtype": "f4"}, SettingError, ("shape", "'y'", "'x'")),
        ("x.bin", {"shape": {"x": (25,)}, "dtype": "f4"}, SettingError, ("shape", "by name")),
        (np.arange(25), {"shape": (25,), "dtype": "f4"}, SettingError, ("shape", "ndarray")),
        ("x.bin", {}, StoreError, ("x.bin", "not a store")),
        ("x.npy", {"axis": 1}, SettingError, ("axis", "(10,)", "got 1", "-1 to 0")),
        ("x.npy", {"axis": "one"}, SettingError, ("axis", "'one'")),
        ("x.npy", {"axis": {"y": 0}}, SettingError, ("axis", "'y'", "'x'")),
        ("x.npy", {"rows": "5:5"}, SettingError, ("rows", "10 rows", "5:5")),
        ("x.npy", {"rows": slice(0, 9, 2)}, SettingError, ("rows", "slice(0, 9, 2)")),
        ("x.npy", {"rows": "all"}, SettingError, ("rows", "1000:2000", "'all'")),
        ("x.npy", {"dtype": "M8[s]"}, SettingError, ("dtype", "'M8[s]'")),
        ("x.npy", {"dtype": {"y": "f4"}}, SettingError, ("dtype", "'y'", "'x'")),
        ("x.npy", {"lossy": True}, SettingError, ("lossy", "dtype")),
        ("x.npy", {"shuffle": -1}, SettingError, ("shuffle", "-1")),
        ("x.npy", {"shuffle": 0.5}, SettingError, ("shuffle", "0.5")),
        ("x.npy", {"shuffle_index": "i"}, SettingError, ("shuffle_index", "shuffle")),
        ("x.npy", {"shuffle": 1, "shuffle_index": "x"}, SettingError, ("shuffle_index", "'x'")),
        ("x.npy", {"shuffle": 1, "shuffle_index": "a/../b"}, SettingError, ("a/../b",)),
        ({"g/x": "x.npy", "g": "x.npy"}, {}, SettingError, ("'g/x'", "beside 'g'", "rename")),
        (
            {"g": "x.npy", "z": "x.npy"},
            {"shuffle": 1, "shuffle_index": "g/i/j"},
            SettingError,
            ("beside 'g'",),
        ),
        ({"x": "x.npy", "z": "z.npy"}, {"rows": "0:5"}, DataError, ("'x' has 10", "'z' has 12")),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_written(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: Any,
    options: Any,
    kind: type[Exception],
    words: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.bin").write_bytes(bytes(100))
    np.save("x.npy", np.arange(10))
    np.save("z.npy", np.arange(12))
    before = sorted(os.listdir())
    with pytest.raises(kind) as caught:
        convert(source, "out.h5", **options)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert "\n" not in str(caught.value)
    assert sorted(os.listdir()) == before


def test_zarr_takes_a_backslash_for_a_slash(tmp_path: Path) -> None:
    x = np.arange(10)
    convert({"a\\b": x, "y": x}, tmp_path / "x.h5")
    with pytest.raises(SettingError, match="cannot be the name of an array"):
        convert({"a\\b": x, "y": x}, tmp_path / "x.zarr")
    assert os.listdir(tmp_path) == ["x.h5"]


def test_rows_are_those_of_the_axis(tmp_path: Path) -> None:
    x, y = X[:, :, 0, 0].T.copy(), np.arange(500)
    convert({"x": x, "y": y}, tmp_path / "o.zarr", axis={"x": 1})
    assert np.array_equal(new_array(tmp_path / "o.zarr", "x"), x.T)
    assert np.array_equal(new_array(tmp_path / "o.zarr", "y"), y)


# -- dtypes

NUMBERS = ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16")


def _survives(value: Any, old: np.dtype, new: np.dtype) -> bool:
    """Whether a Python number is the same in another dtype, by Python's exact arithmetic."""
    number = value.item()
    if isinstance(number, complex):
        parts = [number.real, number.imag] if new.kind == "c" else [number.real]
        if new.kind != "c" and number.imag != 0:
            return False
    else:
        parts = [number]
    inner = np.dtype(f"f{new.itemsize // 2}") if new.kind == "c" else new
    return all(_part_survives(part, inner) for part in parts)


def _part_survives(number: Any, new: np.dtype) -> bool:
    if new.kind == "f":
        if number != number or number in (float("inf"), float("-inf")):
            return True
        with np.errstate(all="ignore"):
            try:
                there = new.type(number)
            except OverflowError:
                return False
        return bool(np.isfinite(there)) and there.item() == number
    if number != number or number in (float("inf"), float("-inf")) or number != int(number):
        return False
    low, high = (0, 1) if new.kind == "b" else (int(np.iinfo(new).min), int(np.iinfo(new).max))
    return low <= int(number) <= high


def _edges(dtype: np.dtype) -> Iterator[Any]:
    if dtype.kind == "b":
        yield from (False, True)
    elif dtype.kind in "iu":
        limits = np.iinfo(dtype)
        low, high = int(limits.min), int(limits.max)
        yield from (0, 1, low, high, high - 1, high // 2 + 1, high // 3)
        yield from (n for n in (255, 256, 2048, 2049, 2**24 + 1, 2**31, 2**53 + 1, 2**63) if n <= high)
    else:
        info = np.finfo(np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype)
        values = [0.0, -0.0, 1.0, -1.0, 0.5, 0.1, 127.0, 128.0, 255.0, 256.0, -129.0]
        values += [float("nan"), float("inf"), float(info.max), float(info.min), float(info.tiny)]
        values += [65504.0, 2.0**31, 2.0**63, 2.0**64]
        for value in values:
            if abs(value) <= float(info.max) or not np.isfinite(value):
                yield complex(value, 0) if dtype.kind == "c" else value
        if dtype.kind == "c":
            yield 1 + 2j


@pytest.mark.parametrize(("old", "new"), list(itertools.product(NUMBERS, NUMBERS)))
def test_values_that_survive_and_values_that_do_not(old: str, new: str) -> None:
    for value in _edges(np.dtype(old)):
        values = np.array([value], old)
        out = np.empty(1, new)
        lost = cast_values(values, out, lossy=False)
        assert (lost is None) == _survives(values[0], values.dtype, out.dtype), (value, out)
        if lost is None:
            assert np.array_equal(out.astype(complex), values.astype(complex), equal_nan=True)


@pytest.mark.parametrize(
    ("value", "old", "new", "expected"),
    [
        (0.1, "f8", "f4", np.float32(0.1)),
        (2.5, "f4", "i1", 2),
        (-2.6, "f8", "i4", -3),
        (127.4, "f4", "i1", 127),
        (127.6, "f4", "i1", None),
        (-0.6, "f4", "u1", None),
        (-0.4, "f4", "u1", 0),
        (300, "i4", "u1", None),
        (1e39, "f8", "f4", None),
        (float("nan"), "f4", "i4", None),
        (float("nan"), "f8", "f2", float("nan")),
        (float("inf"), "f8", "f2", float("inf")),
        (2**24 + 1, "i4", "f4", 2**24),
        (2, "i4", "?", None),
        (1 + 1j, "c8", "f4", None),
        (0.1 + 1j, "c16", "c8", np.complex64(0.1 + 1j)),
        (2.0**63, "f8", "i8", None),
    ],
)
def test_lossy_rounds_but_stays_in_range(value: Any, old: str, new: str, expected: Any) -> None:
    out = np.empty(1, new)
    lost = cast_values(np.array([value], old), out, lossy=True)
    if expected is None:
        assert lost == 0
    else:
        assert lost is None
        assert np.array_equal(out, np.array([expected], new), equal_nan=True)


def test_casting_says_where_a_value_is_lost(tmp_path: Path) -> None:
    x = np.zeros((3000, 5, 7), "f8")
    x[2345, 3, 6] = 0.1
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(DataError, match=r"x\.npy: array 'x', row 2345 .*\(3, 6\): 0\.1 .*--lossy") as caught:
        convert(tmp_path / "x.npy", tmp_path / "o.h5", dtype="f4")
    assert caught.value.rows == (2345, 2346)
    assert os.listdir(tmp_path) == ["x.npy"]
    convert(tmp_path / "x.npy", tmp_path / "o.h5", dtype="f4", lossy=True)
    assert np.array_equal(new_array(tmp_path / "o.h5"), x.astype("f4"))
    x[2345, 3, 6] = 1e300
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(DataError, match="outside what float32 can hold; take a wider dtype"):
        convert(tmp_path / "x.npy", tmp_path / "p.h5", dtype="f4", lossy=True)


def test_casting_one_of_several(tmp_path: Path) -> None:
    x, y = rows_array(200, "float64"), np.arange(200)
    convert({"x": x, "y": y}, tmp_path / "o.zarr", dtype={"x": "f4"}, rows=slice(-200, None))
    assert new_array(tmp_path / "o.zarr", "x").dtype == np.float32
    assert np.array_equal(new_array(tmp_path / "o.zarr", "x"), x)
    assert new_array(tmp_path / "o.zarr", "y").dtype == np.int64


_PEAK = """
import json, sys
import h5py, imagecodecs, numcodecs, tqdm, zarr
import oocloader.conversion.zarr_writer, oocloader.stores.hdf5.store
from oocloader.conversion import convert

def resident(key):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(key)) / 1024

before = resident("VmRSS")
convert(sys.argv[1], sys.argv[2], **json.loads(sys.argv[3]))
print(resident("VmHWM") - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "options"), [("fortran", {}), ("across", {}), ("npy", {"shuffle": 1})])
def test_memory_stays_small(tmp_path: Path, kind: str, options: dict[str, Any]) -> None:
    # 600 MB of zeros that take no room on the disk, and a 9 at the end.
    shape = (50_000, 64, 64, 3)
    if kind == "across":
        with h5py.File(tmp_path / "x.h5", "w") as file:
            made = file.create_dataset("x", shape, "u1", chunks=(5000, 16, 16, 3))
            made[-1, -1, -1, -1] = 9
        source = tmp_path / "x.h5"
    else:
        source = tmp_path / "x.npy"
        mapped = np.lib.format.open_memmap(source, "w+", "u1", shape, fortran_order=kind == "fortran")
        mapped[-1, -1, -1, -1] = 9
        del mapped
    command = [sys.executable, "-c", _PEAK, str(source), str(tmp_path / "o.zarr"), json.dumps(options)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    assert float(done.stdout) < 250
    with open_store(tmp_path / "o.zarr") as store:
        array = store[store.only_array()]
        place = 49_999
        if "shuffle" in options:
            place = int(order_of(50_000, 1).places(49_999, 50_000)[0])
        rows = array.read(place, place + 1)
    assert rows.sum() == rows[0, -1, -1, -1] == 9
    shutil.rmtree(tmp_path / "o.zarr")  # pytest keeps the folder
