"""Sources of any kind and orientation, raw files, and what cannot be, against NumPy."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from numbered import rows_array
from oocloader.conversion import convert
from oocloader.conversion.shuffling import order_of
from oocloader.errors import DataError, SettingError, StoreError
from oocloader.stores import open_store
from spread import X, use_small_boxes, written
from stored import reference


@pytest.fixture
def small_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_boxes(monkeypatch)


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
    convert(written(tmp_path, kind), tmp_path / "out.h5", axis=axis, rows=rows, shuffle=seed)
    taken = slice(1, 3) if rows else slice(None)
    expected = np.moveaxis(X, axis, 0)[taken]
    if seed is not None:
        expected = expected[order_of(len(expected), seed).stretch(0, len(expected))]
    found = reference(tmp_path / "out.h5")
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
    assert np.array_equal(reference(folder / "o.h5"), expected[start:stop])


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
    found = reference(tmp_path / "x.zarr")
    assert found.dtype == np.dtype(dtype).newbyteorder("=")
    assert np.array_equal(found, expected)


def test_raw_files_beside_others(tmp_path: Path) -> None:
    x, y = rows_array(90, "uint16"), np.arange(90)
    x.tofile(tmp_path / "x.raw")
    np.save(tmp_path / "y.npy", y)
    source = {"x": str(tmp_path / "x.raw"), "y": tmp_path / "y.npy"}
    convert(source, tmp_path / "o.h5", shape={"x": (-1, 4, 4)}, dtype={"x": "u2", "y": "f4"})
    assert np.array_equal(reference(tmp_path / "o.h5", "x"), x)
    assert reference(tmp_path / "o.h5", "y").dtype == np.float32


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
