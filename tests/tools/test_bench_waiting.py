"""`tools/bench.py waiting`: it trains from the stores it says, and says what it found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmark.waiting import Figure, table

ROOT = Path(__file__).parents[2]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools/bench.py"), "waiting", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=180)


@pytest.mark.slow
def test_a_small_run(tmp_path: Path) -> None:
    out = tmp_path / "o.json"
    done = bench("--rows=600", "--epochs=2", "--store=hdf5-zstd", f"--json={out}")
    assert done.returncode == 0, done.stderr
    figures = json.loads(out.read_text())["figures"]
    assert [one["store"] for one in figures] == ["hdf5-zstd"] * 3
    for one in figures:
        assert one["epochs"] == 2
        assert 0 < one["share"] < 1
        assert 0 < one["first_share"] < 1
        assert one["step_ms"] > 0
    assert done.stdout.count("\nhdf5-zstd ") == 3


def test_one_epoch_says_nothing() -> None:
    done = bench("--epochs=1")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("--epochs: must be at least 2")


def test_table() -> None:
    lines = table([Figure("npy", 6.04, 0.0123, 0.04, 3), Figure("zarr", 3.0, 0.05, 0.1, 3)]).splitlines()
    assert lines[1].split() == ["npy", "6.0", "ms", "1.23%", "4.00%"]
    assert lines[2].endswith("10.00%  over 2%")
