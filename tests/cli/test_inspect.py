"""`oocloader inspect`: what is shown as text and as JSON."""

from __future__ import annotations

import json
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

from oocloader.cli import main


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
