"""`oocloader verify`: exit codes and wrong usage."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from oocloader.cli import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.arange(20).reshape(10, 2))
    np.save("other.npy", np.arange(20).reshape(10, 2) // 5)
    assert main(["convert", "x.npy", "x.zarr"]) == 0
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["x.zarr"], 0),
        (["x.zarr", "x.npy"], 0),
        (["x.zarr", "--array", "x=x.npy"], 0),
        (["x.zarr", "other.npy"], 1),
        (["x.zarr", "--array", "x=other.npy"], 1),
        (["x.zarr", "x.npy", "other.npy"], 2),
        (["x.zarr", "x.npy", "--array", "x=x.npy"], 2),
    ],
)
def test_exit_codes(folder: Path, arguments: list[str], code: int) -> None:
    assert main(["verify", *arguments]) == code


def test_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["verify", "x.zarr", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True
