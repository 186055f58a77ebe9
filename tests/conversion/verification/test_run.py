"""Verification: a store alone, against its source, against another store; damage and differences by name."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from damaged import flip, only
from numbered import rows_array
from oocloader.cli import main
from oocloader.conversion import convert
from oocloader.conversion.verification import verify
from oocloader.errors import SettingError, StoreError


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
@pytest.mark.parametrize("codec", ["none", "zstd", "gzip"])
def test_a_new_store_is_good(tmp_path: Path, suffix: str, codec: str) -> None:
    x, y = rows_array(1003, "float32"), np.arange(1003)
    np.save(tmp_path / "x.npy", x)
    convert({"x": x, "y": y}, tmp_path / f"out{suffix}", codec=codec, chunk_rows=64)
    alone = verify(tmp_path / f"out{suffix}")
    assert alone.ok
    assert [(array.name, array.by, array.rows) for array in alone.arrays] == [
        ("x", "manifest", 1003),
        ("y", "manifest", 1003),
    ]
    beside = verify(tmp_path / f"out{suffix}", {"x": tmp_path / "x.npy"})
    assert beside.ok
    assert only(beside).by == "comparison"
    assert "x: 1,003 rows: the same" in str(beside)


def test_stores_of_others_are_decoded(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=rows_array(100, "int32"), chunks=(10, 4, 4), compression="gzip")
        file.create_dataset("words", data=["a", "b"])
        file["scalar"] = 3.0
    found = {array.name: array for array in verify(tmp_path / "x.h5").arrays}
    assert found["x"].by == "decoding"
    assert found["x"].ok
    assert "no manifest" in found["x"].lines()[0]
    assert found["words"].skipped
    assert found["scalar"].skipped
    assert found["words"].ok
    with h5py.File(tmp_path / "x.h5") as file:
        place = file["x"].id.get_chunk_info(4)
    with open(tmp_path / "x.h5", "r+b") as raw:
        raw.seek(place.byte_offset)
        raw.write(bytes(place.size))
    report = verify(tmp_path / "x.h5")
    assert [damage.chunk for array in report.arrays for damage in array.damaged] == [(4, 0, 0)]
    assert not report.ok


def test_two_stores(tmp_path: Path) -> None:
    x, y = rows_array(100, "int16"), np.arange(100)
    convert({"x": x, "y": y}, tmp_path / "a.h5", codec="zstd", chunk_rows=7)
    convert({"y": y, "x": x}, tmp_path / "b.zarr", chunk_rows=20)
    assert verify(tmp_path / "a.h5", tmp_path / "b.zarr").ok
    convert({"x": x, "z": y}, tmp_path / "c.zarr")
    report = verify(tmp_path / "a.h5", tmp_path / "c.zarr")
    assert not report.ok
    assert {array.name: array.ok for array in report.arrays} == {"x": True, "y": False, "z": False}
    assert f"z: is in {tmp_path}/c.zarr, but not in {tmp_path}/a.h5" in str(report)
    assert f"y: is in {tmp_path}/a.h5, but not in {tmp_path}/c.zarr" in str(report)


def test_names_that_the_store_lacks(tmp_path: Path) -> None:
    convert({"x": np.arange(5), "y": np.arange(5)}, tmp_path / "out.zarr")
    report = verify(tmp_path / "out.zarr", {"x": np.arange(5), "z": np.arange(5)})
    assert [(array.name, array.ok) for array in report.arrays] == [("z", False), ("x", True)]


@pytest.mark.parametrize(
    ("names", "lost", "bad"),
    [
        (["x", "y"], "x/zarr.json", ["x"]),
        (["g/x", "y"], "g/x/zarr.json", ["g/x"]),
        (["x"], "x/zarr.json", ["x"]),
        (["x", "y"], "zarr.json", []),  # a group needs none
    ],
)
def test_arrays_that_are_none_any_more(tmp_path: Path, names: list[str], lost: str, bad: list[str]) -> None:
    convert({name: np.arange(9) for name in names}, tmp_path / "o.zarr")
    (tmp_path / "o.zarr" / lost).unlink()
    found = verify(tmp_path / "o.zarr")
    assert {check.name for check in found.arrays} == set(names)
    assert [check.name for check in found.arrays if not check.ok] == bad
    assert "lost or damaged" in str(found) or not bad


def test_arrays_that_an_hdf5_file_lost(tmp_path: Path) -> None:
    convert({name: np.arange(9) for name in ("g/x", "g/y", "z")}, tmp_path / "o.h5")
    text = (tmp_path / "o.h5").read_bytes()
    with h5py.File(tmp_path / "o.h5", "r+") as file:
        del file["g"]
        end = file.id.get_filesize()
    left = (tmp_path / "o.h5").read_bytes()[:end]
    # As where the table of a group was damaged: the manifest is the old one.
    (tmp_path / "o.h5").write_bytes(left + text[text.rindex(b'{"oocloader_manifest"') :])
    found = verify(tmp_path / "o.h5")
    assert {check.name: check.ok for check in found.arrays} == {"g/x": False, "g/y": False, "z": True}
    assert verify(f"{tmp_path}/o.h5::z").ok


def test_nothing_to_verify(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "empty.h5", "w"):
        pass
    with pytest.raises(StoreError, match=r"empty\.h5: holds no arrays"):
        verify(tmp_path / "empty.h5")
    with pytest.raises(SettingError):
        verify(3)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["good.zarr"], 0, ("good.zarr: good", "good: 20 rows: as they were written")),
        (["good.zarr", "x.npy"], 0, ("compared with x.npy", "the same")),
        (["good.zarr", "other.npy"], 1, ("1 value differs", "first at row 7")),
        (["bad.zarr"], 1, ("bad.zarr: bad", "1 chunk damaged", "chunk (1,), rows 10 to 19", "bad.zarr/c.1")),
        (["good.zarr", "--array", "x=x.npy"], 0, ("the same",)),
        (["two.h5", "--array", "a=x.npy"], 0, ("a: 20 rows: the same",)),
        (["two.h5", "--array=a=x.npy", "--array=b=other.npy"], 1, ("b: 20 rows: 1 value differs",)),
        (["two.h5::a", "x.npy"], 0, ("the same",)),
    ],
)
def test_command(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    words: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    x = np.arange(20)
    np.save("x.npy", x)
    np.save("other.npy", np.where(x == 7, 0, x))
    convert("x.npy", "good.zarr", chunk_rows=10)
    convert("x.npy", "bad.zarr", chunk_rows=10)
    convert({"a": "x.npy", "b": "x.npy"}, "two.h5")
    flip(tmp_path / "bad.zarr" / "c.1", 3)
    assert main(["verify", *arguments]) == code
    out, err = capsys.readouterr()
    assert err == ""
    assert all(word in out for word in words), out


def test_command_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", np.arange(20))
    convert(tmp_path / "x.npy", tmp_path / "x.zarr", chunk_rows=10)
    flip(tmp_path / "x.zarr" / "c.1", 8)
    assert main(["verify", f"{tmp_path}/x.zarr", f"{tmp_path}/x.npy", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is False
    assert found["store"] == f"{tmp_path}/x.zarr"
    array = found["arrays"][0]
    assert array["differences"] == 1
    assert array["first"] == {"row": 11, "index": [], "found": str(11 ^ 0x10), "expected": "11"}
    assert array["damaged"][0]["chunk"] == [1]
    assert array["damaged"][0]["rows"] == [10, 20]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["none.zarr"], 1, "none.zarr"),
        (["a", "b", "c"], 2, "a store and one to compare it with, got 3"),
        (["a", "b", "--array", "x=y"], 2, "the store alone, got 2"),
        (["a", "--array", "x"], 2, "NAME=SOURCE"),
        ([], 2, "STORE"),
    ],
)
def test_command_refuses(
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, words: str
) -> None:
    assert main(["verify", *arguments]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert words in err
