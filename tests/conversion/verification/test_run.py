"""Verification: a store alone, against its source, against another store; damage and differences by name."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.codecs import GzipCodec

from numbered import rows_array
from oocloader.cli import main
from oocloader.conversion import convert
from oocloader.conversion.verification import VerifyReport, arrays, compare, verify
from oocloader.conversion.verification.compare import described, differing, same_bits
from oocloader.conversion.verification.verify_report import ArrayCheck
from oocloader.errors import ChangedError, SettingError, StoreError


def only(report: VerifyReport) -> ArrayCheck:
    assert len(report.arrays) == 1
    return report.arrays[0]


def flip(path: Path, at: int) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 0x10]))


def chunk_place(store: Path, name: str, chunk: int) -> tuple[Path, int]:
    """File and offset of a chunk of whole rows, as h5py or the names of files tell it."""
    if store.suffix == ".h5":
        with h5py.File(store) as file:
            return store, file[name].id.get_chunk_info(chunk).byte_offset
    (path,) = (store / name).glob(f"c.{chunk}.*")
    return path, 0


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


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
@pytest.mark.parametrize("codec", ["none", "zstd", "lz4"])
@pytest.mark.parametrize("checksum", [False, True])
def test_every_damaged_chunk_is_named(tmp_path: Path, suffix: str, codec: str, checksum: bool) -> None:
    store = tmp_path / f"out{suffix}"
    x = np.random.default_rng(0).integers(0, 9, (95, 300), dtype=np.int16)
    convert({"x": x, "y": np.arange(95)}, store, codec=codec, chunk_rows=10, checksum=checksum)
    for chunk in (2, 5, 9):
        path, offset = chunk_place(store, "x", chunk)
        flip(path, offset + 70)
    report = verify(store)
    assert not report.ok
    damaged, good = report.arrays
    assert good.ok
    assert [damage.chunk for damage in damaged.damaged] == [(2, 0), (5, 0), (9, 0)]
    assert [damage.rows for damage in damaged.damaged] == [(20, 30), (50, 60), (90, 95)]
    for damage in damaged.damaged:
        path, offset = chunk_place(store, "x", damage.chunk[0])
        assert damage.where.startswith(f"in {path}")
        assert (f"at bytes {offset} to " in damage.where) == (suffix == ".h5")
        if checksum:
            assert ("fletcher32" if suffix == ".h5" else "crc32c") in damage.reason
    assert "3 chunks damaged" in str(report)
    assert f"chunk (5, 0), rows 50 to 59, in {chunk_place(store, 'x', 5)[0]}" in str(report)


def test_damage_in_a_shard_is_named(tmp_path: Path) -> None:
    x = rows_array(400, "int32", sample_shape=(4,))
    convert({"x": x}, tmp_path / "out.zarr", chunk_rows=2)
    shard = tmp_path / "out.zarr" / "x" / "c.3.0"
    flip(shard, 2 * 32 + 5)
    damage = only(verify(tmp_path / "out.zarr")).damaged
    root: Any = zarr.open_group(tmp_path / "out.zarr", mode="r")
    rows_a_shard = root["x"].shards[0]
    assert [found.chunk for found in damage] == [(3 * rows_a_shard // 2 + 2, 0)]
    assert damage[0].where == f"in {shard} at bytes 64 to 95"


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("how", ["missing", "short", "empty"])
def test_chunk_files_that_are_not_whole(tmp_path: Path, codec: str, how: str) -> None:
    convert({"x": rows_array(50, "int64") + 1}, tmp_path / "out.zarr", codec=codec, chunk_rows=10)
    path = tmp_path / "out.zarr" / "x" / "c.3.0.0"
    if how == "missing":
        path.unlink()
    else:
        os.truncate(path, 0 if how == "empty" else path.stat().st_size - 1)
    found = only(verify(tmp_path / "out.zarr"))
    assert [damage.rows for damage in found.damaged] == [(30, 40)]
    assert ("not in" in found.damaged[0].where) == (how == "missing")


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


def test_chunks_that_cut_the_samples(tmp_path: Path) -> None:
    x = rows_array(40, "int32")
    zarr.create_array(tmp_path / "x.zarr", data=x, chunks=(10, 2, 2), compressors=GzipCodec())
    assert verify(tmp_path / "x.zarr", x).ok
    path = tmp_path / "x.zarr" / "c" / "2" / "1" / "0"
    path.write_bytes(b"nothing")
    found = only(verify(tmp_path / "x.zarr"))
    assert [damage.chunk for damage in found.damaged] == [(2, 1, 0)]
    assert found.damaged[0].where == f"in {path}"


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
@pytest.mark.parametrize("dtype", ["?", "u1", "i2", "f4", "f8", "c16"])
def test_differences_are_counted_and_the_first_is_named(tmp_path: Path, suffix: str, dtype: str) -> None:
    x = (np.arange(300 * 5).reshape(300, 5) % 2).astype(dtype)
    convert({"x": x}, tmp_path / f"out{suffix}", chunk_rows=16)
    other = x.copy()
    for row, column in ((77, 3), (77, 4), (290, 0)):
        other[row, column] = 0 if other[row, column] else 1
    found = only(verify(tmp_path / f"out{suffix}", {"x": other}))
    assert not found.ok
    assert found.differences == 3
    assert found.first is not None
    assert (found.first.row, found.first.index) == (77, (3,))
    assert (found.first.found, found.first.expected) == (str(x[77, 3]), str(other[77, 3]))
    assert not found.damaged
    assert "3 values differ, first at row 77, index (3,):" in found.lines()[0]


def test_bits_count_and_not_values(tmp_path: Path) -> None:
    x = np.array([np.nan, 0.0, 1.0], "f4")
    convert(x, tmp_path / "x.zarr")
    assert verify(tmp_path / "x.zarr", x.copy()).ok
    other = x.copy()
    other.view("u4")[0] ^= 1
    other[1] = -0.0
    found = only(verify(tmp_path / "x.zarr", other))
    assert found.differences == 2
    assert found.first is not None
    assert (found.first.found, found.first.expected) == ("nan (7fc00000)", "nan (7fc00001)")


@given(st.data())
def test_places_of_differences(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(["?", "i1", "u2", "f4", "f8", "c8", "c16"]))
    shape = data.draw(st.tuples(st.integers(1, 20), st.integers(1, 4)))
    x = np.zeros(shape, dtype)
    places = sorted(data.draw(st.sets(st.integers(0, x.size - 1))))
    other = x.copy()
    other.reshape(-1)[places] = 1
    assert differing(x, other).tolist() == places
    assert same_bits(x, other) == (not places)
    for place in places[:1]:
        first = described(100, place, x, other)
        assert (first.row - 100, *first.index) == np.unravel_index(place, shape)


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


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (np.zeros((99, 4), "f4"), "it is float32 (100, 4), in array in memory it is float32 (99, 4)"),
        (np.zeros((100, 4), "f8"), "it is float32 (100, 4), in array in memory it is float64 (100, 4)"),
        (np.array(["a", "b"]), "<U1"),
    ],
)
def test_what_cannot_be_compared(tmp_path: Path, other: np.ndarray, words: str) -> None:
    convert(np.zeros((100, 4), "f4"), tmp_path / "x.zarr")
    found = only(verify(tmp_path / "x.zarr", other))
    assert not found.ok
    assert words in found.problem


def test_changed_by_others_with_the_manifest_in_place(tmp_path: Path) -> None:
    convert({"x": np.arange(100)}, tmp_path / "out.zarr", chunk_rows=10)
    root: Any = zarr.open_group(tmp_path / "out.zarr", mode="r+")
    root["x"].resize((90,))
    found = only(verify(tmp_path / "out.zarr"))
    assert "it is int64 (90,), when it was written it was int64 (100,)" in found.problem


def test_names_that_the_store_lacks(tmp_path: Path) -> None:
    convert({"x": np.arange(5), "y": np.arange(5)}, tmp_path / "out.zarr")
    report = verify(tmp_path / "out.zarr", {"x": np.arange(5), "z": np.arange(5)})
    assert [(array.name, array.ok) for array in report.arrays] == [("z", False), ("x", True)]


@pytest.mark.parametrize("many", [False, True])
def test_memory_and_threads_do_not_change_the_result(tmp_path: Path, many: bool) -> None:
    # Above what is read at once, so that pieces are several.
    x = np.random.default_rng(0).integers(0, 200, (5000, 64, 64), dtype=np.uint8)
    convert({"x": x}, tmp_path / "out.zarr", codec="none", chunk_rows=400 if many else 5000)
    other = x.copy()
    other[[17, 3000, 4999], 5, 6] ^= 1
    found = only(verify(tmp_path / "out.zarr", other))
    assert found.differences == 3
    assert found.first is not None
    assert (found.first.row, found.first.index) == (17, (5, 6))


def test_files_that_change_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "x.npy", np.arange(9_000_000))
    convert(tmp_path / "x.npy", tmp_path / "x.zarr")
    real = compare.differing

    def changing(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
        os.utime(tmp_path / "x.npy", ns=(1, 1))
        return real(found, expected)

    monkeypatch.setattr(arrays, "differing", changing)
    with pytest.raises(ChangedError, match=r"x\.npy"):
        verify(tmp_path / "x.zarr", tmp_path / "x.npy")


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
