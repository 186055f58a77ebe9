"""`oocloader inspect`: what is shown, and the advice that goes with it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

from oocloader import open_store
from oocloader.cli import main
from oocloader.stores import ArrayInfo
from oocloader.stores.inspection import advice, inspect_store


def _info(shape: tuple[int, ...], chunks: tuple[int, ...] | None, dtype: str = "f4") -> ArrayInfo:
    return ArrayInfo("x", shape, np.dtype(dtype), chunk_shape=chunks)


@pytest.mark.parametrize(
    ("info", "words"),
    [
        (_info((1000, 16, 16), (64, 16, 16)), []),
        (_info((1000, 16, 16), None), []),
        (_info((64, 50, 30), (64, 16, 8)), ["cut the samples: a row needs 16 chunks"]),
        (_info((3000, 8), (1, 8)), ["3000 chunks of 32 B"]),
        (_info((100, 8), (1, 8)), []),  # too few to matter
        (_info((4000, 1 << 20), (400, 1 << 20), "u1"), ["at least 400.0 MiB (400 rows)"]),
        (
            _info((4000, 1 << 20), (4000, 1000), "u1"),
            ["a row needs 1049 chunks", "at least 3.9 GiB (4000 rows)"],
        ),
    ],
)
def test_advice(info: ArrayInfo, words: list[str]) -> None:
    found = advice(info)
    assert len(found) == len(words)
    for line, part in zip(found, words, strict=True):
        assert part in line
        assert "oocloader convert" in line


def test_unloadable_arrays_get_no_advice() -> None:
    assert advice(ArrayInfo("x", (), np.dtype("V"), reader="none", reason="a broken link")) == []


def test_library_reader_is_named(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=np.arange(100, dtype="i4"), chunks=(10,), scaleoffset=0)
    with open_store(tmp_path / "a.h5") as store:
        (report,) = inspect_store(store)
    assert report.info.reader == "library"
    assert "one thread at a time" in report.advice[0]


def test_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset(
            "x", data=np.zeros((64, 50, 30), "f4"), chunks=(64, 16, 8), compression="gzip", shuffle=True
        )
        file["gone"] = h5py.SoftLink("/nowhere")
    assert main(["inspect", str(tmp_path / "a.h5")]) == 0
    shown = capsys.readouterr().out
    assert "x: 64 x 50 x 30 float32, chunks 64 x 16 x 8, shuffle, gzip" in shown
    assert "read directly" in shown
    assert "advice: chunks cut the samples" in shown
    assert "gone: cannot be loaded" in shown
    assert "/nowhere" in shown


def test_json_of_joined_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (10, 2, 1):
        np.save(tmp_path / f"part-{number}.npy", np.full((number, 3), number, "i2"))
    paths = [str(tmp_path / f"part-{number}.npy") for number in (10, 2, 1)]
    assert main(["inspect", "--json", *paths]) == 0
    (array,) = json.loads(capsys.readouterr().out)["arrays"]
    assert array["shape"] == [13, 3]
    assert array["dtype"] == "int16"
    assert [Path(part).name for part in array["parts"]] == ["part-1.npy", "part-2.npy", "part-10.npy"]
    assert array["reader"] == "direct"


def test_json_attributes_survive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    array = group.create_array("x", data=np.zeros((4, 2)))
    array.attrs.update({"unit": "K", "range": [0, 1], "nested": {"a": None}})
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["x"] = np.zeros(4)
        file["x"].attrs["limits"] = np.array([1.5, np.inf])
        file["x"].attrs["name"] = b"bytes"
    assert main(["inspect", "--json", str(tmp_path / "a.zarr")]) == 0
    attrs = json.loads(capsys.readouterr().out)["arrays"][0]["attrs"]
    assert attrs == {"unit": "K", "range": [0, 1], "nested": {"a": None}}
    assert main(["inspect", "--json", str(tmp_path / "b.h5")]) == 0
    shown = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)["arrays"][0]["attrs"]
    assert shown["limits"] == [1.5, "inf"]


def test_missing_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(tmp_path / "no.h5")]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("oocloader: error: ")
    assert "no.h5" in said.err
    assert said.err.count("\n") == 1


@pytest.mark.slow
def test_a_million_chunks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = 1_000_000
    with h5py.File(tmp_path / "many.h5", "w", libver="latest") as file:
        data = file.create_dataset("x", shape=(rows, 32), dtype="f4", chunks=(1, 32))
        row = np.zeros((1, 32), "f4")
        for number in range(rows):
            data.id.write_direct_chunk((number, 0), row)
    began = time.perf_counter()
    assert main(["inspect", str(tmp_path / "many.h5")]) == 0
    # Three seconds on a quiet machine; this catches a cost per chunk that is ten times too large.
    assert time.perf_counter() - began < 15
    assert "1000000 chunks of 128 B" in capsys.readouterr().out
