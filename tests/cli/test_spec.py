"""`oocloader convert --spec`: what the file says, and what may be said beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import oocloader as ooc
from oocloader.cli import main


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", np.arange(20).reshape(10, 2))
    path = tmp_path / "data.toml"
    path.write_text('[convert]\nsource = "x.npy"\ndestination = "x.zarr"\nrows = "2:6"\n')
    return path


def test_the_file_says_what_to_convert(spec: Path) -> None:
    assert main(["convert", "--spec", str(spec)]) == 0
    assert main(["convert", "--spec", str(spec), "--overwrite"]) == 0
    with ooc.open_store(spec.parent / "x.zarr") as store:
        assert np.array_equal(store["x"].read(0, 4), np.arange(4, 12).reshape(4, 2))


@pytest.mark.parametrize("beside", [["--rows", "1:2"], ["x.npy", "y.zarr"], ["--codec", "zstd"]])
def test_only_flags_may_stand_beside_it(
    spec: Path, beside: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", "--spec", str(spec), *beside]) == 2
    assert "cannot be given with --spec" in capsys.readouterr().err


def test_a_spec_that_converts_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "data.toml"
    path.write_text('source = "x.npy"\n[load]\nfeatures = "x"\n')
    assert main(["convert", "--spec", str(path)]) == 2
    assert "data.toml" in capsys.readouterr().err
