"""`tools/bench.py convert`: it converts the rows it says, and says what it found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from benchmark.conversions import Figure, make_sources, parse, table

ROOT = Path(__file__).parents[2]


def test_sources_hold_the_same_rows(tmp_path: Path) -> None:
    paths = make_sources(tmp_path, 100, {"fortran", "across"})
    x = np.load(paths["npy"])
    fortran = np.load(paths["fortran"], mmap_mode="r")
    assert fortran.flags.f_contiguous
    assert np.array_equal(fortran, x)
    with h5py.File(paths["across"]) as file:
        assert file["x"].chunks == (100, 16, 16, 3)
        assert np.array_equal(file["x"][:], x)


@pytest.mark.slow
def test_a_quick_run(tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(ROOT / "tools/bench.py"),
        "convert",
        "--quick",
        f"--json={tmp_path}/o.json",
    ]
    names = ["raw HDF5", "zstd-1 Zarr, sharded", "raw Zarr, shuffled"]
    done = subprocess.run(
        [*command, *(f"--only={name}" for name in names)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    found = {one["name"]: one for one in json.loads((tmp_path / "o.json").read_text())["figures"]}
    others = {"cp", "zstd-1 encoding alone", "h5py zstd-1", "zarr-python zstd-1"}
    assert set(found) == others | set(names)
    assert all(one["gb_s"] > 0 and len(one["all_gb_s"]) == 1 for one in found.values())
    for name in set(found) - others:
        assert 0 < found[name]["peak_mib"] < 400
        assert f"\n{name} " in done.stdout
        # Nothing is judged by so little data.
        assert found[name]["met"] is None
    assert "MET" not in done.stdout.upper()
    assert "of cp (0.85)" in found["raw HDF5"]["wanted"]
    assert "of h5py zstd-1 (2)" in found["zstd-1 Zarr, sharded"]["wanted"]


def test_table() -> None:
    one = Figure("raw", 1.234, [1.234], 0.5, "0.50 of cp (0.9)", 12.3, 200, 0.01, 0.02, met=False)
    lines = table([Figure("cp", 2.5), one]).splitlines()
    assert lines[1].split() == ["cp", "2.50"]
    assert lines[2].split()[:5] == ["raw", "1.23", "0.50", "12", "0.01"]
    assert lines[2].endswith("0.50 of cp (0.9); under 200 MiB: NOT MET")


def test_arguments() -> None:
    assert parse(["--quick", "--only=raw"]).only == ["raw"]
    with pytest.raises(SystemExit):
        parse(["--rows=many"])
