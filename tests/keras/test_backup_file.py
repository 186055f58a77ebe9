"""A backup is whole or not there, holds every dtype to the bit, and says so where it is damaged."""

from __future__ import annotations

import multiprocessing
import os
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from oocloader.errors import StoreError
from oocloader.keras.backup_file import NAME, Backup, prepare, read, restored, write

ARRAYS: dict[str, np.ndarray] = {
    "float32": np.array([[1.5, -0.0, np.nan], [np.inf, 2, 3]], np.float32),
    "NaN with a payload": np.array([0x7FC12345], np.uint32).view(np.float32),
    "scalar": np.array(7, np.int64),
    "empty": np.zeros((0, 4), np.float16),
    "bool": np.array([True, False]),
    "bfloat16": np.array([1.5, -2, np.nan], ml_dtypes.bfloat16),
    "float8": np.array([[1, 2], [3, 4]], ml_dtypes.float8_e4m3fn),
    "scalar bfloat16": np.array(3, ml_dtypes.bfloat16),
    "Fortran order": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
}
FACTS = {"epoch": 3, "best": float("inf"), "names": ["ä", None], "nested": {"x": [1, 2.5]}}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert read(str(tmp_path)) is None
    write(str(tmp_path), Backup(FACTS, ARRAYS))
    found = read(str(tmp_path))
    assert found is not None
    assert found.facts == FACTS
    assert list(found.arrays) == list(ARRAYS)
    for name, array in ARRAYS.items():
        got = restored(found.arrays[name], array.dtype)
        assert (got.dtype, got.shape) == (array.dtype, array.shape)
        assert got.tobytes() == array.tobytes(), name
    # One file, readable by others.
    assert os.listdir(tmp_path) == [NAME]
    with np.load(tmp_path / NAME) as file:
        np.testing.assert_array_equal(file["float32"], ARRAYS["float32"])


def test_a_new_one_takes_the_place_of_the_old(tmp_path: Path) -> None:
    for number in range(3):
        write(str(tmp_path), Backup({"number": number}, {"a": np.full(9, number)}))
        found = read(str(tmp_path))
        assert found is not None
        assert (found.facts["number"], found.arrays["a"].tolist()) == (number, [number] * 9)
        assert os.listdir(tmp_path) == [NAME]


@pytest.mark.parametrize("at", ["fsync", "replace"])
def test_a_failure_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    write(str(tmp_path), Backup({"number": 1}, {}))

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, at, fails)
    with pytest.raises(StoreError, match=r"training\.npz: the backup cannot be written: No space"):
        write(str(tmp_path), Backup({"number": 2}, {"a": np.zeros(1000)}))
    monkeypatch.undo()
    found = read(str(tmp_path))
    assert found is not None
    assert found.facts["number"] == 1
    assert os.listdir(tmp_path) == [NAME]


def test_the_order_in_which_it_reaches_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is synced under another name before it is renamed, and the folder after."""
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(fd: int) -> None:
        calls.append(f"sync {Path(os.readlink(f'/proc/self/fd/{fd}')).name[:14]}")
        fsync(fd)

    def replaced(source: str, target: str) -> None:
        calls.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    folder = tmp_path / "folder"
    folder.mkdir()
    write(str(folder), Backup({}, {"a": np.zeros(3)}))
    assert calls == [f"sync .{NAME}-", "rename", "sync folder"]


def test_every_byte_counts(tmp_path: Path) -> None:
    """A flipped bit anywhere is damage, or changes nothing that is read."""
    whole = Backup({"number": 1}, {"a": np.arange(5, dtype=np.int16), "b": np.array(2.5)})
    write(str(tmp_path), whole)
    path = tmp_path / NAME
    data = path.read_bytes()
    damaged, messages = 0, set[str]()
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << at % 8
        path.write_bytes(changed)
        try:
            found = read(str(tmp_path))
        except StoreError as error:
            damaged += 1
            messages.add(error.message)
            continue
        assert found is not None
        assert found.facts["number"] == 1
        for name, array in whole.arrays.items():
            assert found.arrays[name].tobytes() == array.tobytes()
    assert damaged > len(data) / 2
    assert all(message.startswith(f"{path}: ") and "\n" not in message for message in messages)


@pytest.mark.parametrize("kept", [0, 1, 30, 0.5, 0.99])
def test_cut_off(tmp_path: Path, kept: float) -> None:
    write(str(tmp_path), Backup(FACTS, ARRAYS))
    path = tmp_path / NAME
    data = path.read_bytes()
    path.write_bytes(data[: int(kept * len(data) if isinstance(kept, float) else kept)])
    with pytest.raises(StoreError, match=r"the backup is damaged: .*; delete it to train from the start"):
        read(str(tmp_path))


def test_a_later_format(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / NAME, "w") as file:
        file.writestr("facts.json", '{"format": 2}')
    with pytest.raises(StoreError, match="a backup of format 2, expected 1: another version of oocloader"):
        read(str(tmp_path))


def test_prepare(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    prepare(str(folder))
    (folder / f".{NAME}-0123").write_bytes(b"interrupted")
    (folder / "mine.txt").write_text("kept")
    write(str(folder), Backup({}, {}))
    prepare(str(folder))
    assert sorted(os.listdir(folder)) == ["mine.txt", NAME]
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file: cannot be used as the folder of a backup: File exists"):
        prepare(str(tmp_path / "file"))


def _writes(folder: str) -> None:
    for number in range(10_000):
        write(folder, Backup({"number": number}, {"a": np.full(20_000, number)}))


@pytest.mark.slow
def test_a_reader_never_sees_half(tmp_path: Path) -> None:
    write(str(tmp_path), Backup({"number": -1}, {"a": np.full(20_000, -1)}))
    writer = multiprocessing.get_context("spawn").Process(target=_writes, args=(str(tmp_path),), daemon=True)
    writer.start()
    seen: set[Any] = set()
    try:
        while len(seen) < 20:
            found = read(str(tmp_path))
            assert found is not None
            assert set(found.arrays["a"].tolist()) == {found.facts["number"]}
            seen.add(found.facts["number"])
    finally:
        writer.kill()
        writer.join()
    found = read(str(tmp_path))
    assert found is not None
    assert set(found.arrays["a"].tolist()) == {found.facts["number"]}
