"""The demo: its data, its report, and the command."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from oocloader.cli import main
from oocloader.cli.demo.digits import HELD_OUT, ROW_SHAPE, Digits, load_digits, write_grown
from oocloader.errors import SettingError, StoreError

if TYPE_CHECKING:
    from oocloader.cli.demo.report import DemoReport

MIB = 1 << 20

Grown = tuple[np.ndarray, np.ndarray, list[int]]


@pytest.fixture(scope="module")
def digits() -> Digits:
    return load_digits(0)


def grow(
    digits: Digits, rows: int, folder: Path, *, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, list[int]]:
    folder.mkdir(exist_ok=True)
    images, labels = folder / "images.npy", folder / "labels.npy"
    pieces = list(write_grown(digits, rows, images=images, labels=labels, seed=seed))
    return np.load(images), np.load(labels), pieces


class TestDigits:
    def test_every_digit_is_used_once(self, digits: Digits) -> None:
        from sklearn.datasets import load_digits as bundled

        both = np.concatenate([digits.source_images, digits.held_out_images])
        labels = np.concatenate([digits.source_labels, digits.held_out_labels])
        assert both.shape == (1797, *ROW_SHAPE)
        assert np.array_equal(np.bincount(labels), np.bincount(bundled().target))
        assert len(np.unique(both.reshape(1797, -1), axis=0)) == 1797

    def test_held_out_in_proportion(self, digits: Digits) -> None:
        assert len(digits.held_out_labels) == HELD_OUT
        assert set(np.bincount(digits.held_out_labels)) <= {35, 36, 37}

    def test_enlarging_keeps_the_picture(self, digits: Digits) -> None:
        from sklearn.datasets import load_digits as bundled

        small = digits.held_out_images.reshape(HELD_OUT, 8, 4, 8, 4).mean(axis=(2, 4)).reshape(HELD_OUT, -1)
        originals = bundled().data
        nearest = np.argmin(
            ((small[:, np.newaxis] / 255 * 16 - originals[np.newaxis]) ** 2).sum(axis=2), axis=1
        )
        assert np.array_equal(bundled().target[nearest], digits.held_out_labels)


class TestGrown:
    def test_rows_in_bounded_pieces(self, digits: Digits, tmp_path: Path) -> None:
        images, labels, pieces = grow(digits, 5000, tmp_path)
        assert images.shape == (5000, *ROW_SHAPE)
        assert images.dtype == np.uint8
        assert labels.shape == (5000,)
        assert labels.dtype == np.uint8
        assert sum(pieces) == 5000
        assert max(pieces) * images[0].nbytes <= 4 * MIB

    def test_seed_decides_the_bytes(self, digits: Digits, tmp_path: Path) -> None:
        first, again, other = (
            grow(digits, 500, tmp_path / str(place), seed=seed)[0] for place, seed in enumerate((7, 7, 8))
        )
        assert np.array_equal(first, again)
        assert not np.array_equal(first, other)

    def test_label_belongs_to_image(self, digits: Digits, tmp_path: Path) -> None:
        # Flat images, as grey as their label says: turning, shifting and noise leave the middle alone.
        labels = np.arange(10, dtype=np.uint8)
        flat = np.broadcast_to((25 * labels)[:, None, None, None], (10, *ROW_SHAPE)).astype(np.uint8)
        images, found, _ = grow(replace(digits, source_images=flat, source_labels=labels), 2000, tmp_path)
        middle = images[:, 12:20, 12:20].mean(axis=(1, 2, 3))
        assert np.abs(middle - 25.0 * found).max() < 10
        assert set(found) == set(labels)

    def test_rows_differ(self, digits: Digits, tmp_path: Path) -> None:
        images, _, _ = grow(digits, 1000, tmp_path)
        assert len(np.unique(images.reshape(1000, -1), axis=0)) == 1000


class TestReport:
    @pytest.fixture
    def report(self) -> DemoReport:
        from oocloader.cli.demo.report import DemoReport
        from oocloader.cli.demo.train import Training

        training = Training(
            store="digits.zarr",
            stored_bytes=256 * MIB,
            rows=262_144,
            windows=33,
            epochs=2,
            seconds=50.0,
            next_s=6.0,
            waiting_s=5.0,
            base_bytes=600 * MIB,
            peak_bytes=700 * MIB,
            accuracy=0.9889,
            losses=(2.3, 1.0, 0.1),
        )
        return DemoReport(
            rows=262_144,
            data_bytes=256 * MIB,
            device_memory=32 * MIB,
            held_out=360,
            trainings=(training, replace(training, store="digits.h5", accuracy=0.97)),
            folder=Path("demo"),
            plot=Path("demo/digits.png"),
        )

    def test_table(self, report: DemoReport) -> None:
        text = str(report)
        assert "8.0 times the device budget of 32 MiB" in text
        line = next(line for line in text.splitlines() if line.startswith("digits.zarr"))
        cells = ["256 MiB", "33", "10,486", "10.0%", "2.0%", "700 MiB", "+100 MiB", "0.9889"]
        assert re.split(r" {2,}", line)[1:] == cells

    def test_json_has_what_the_table_has(self, report: DemoReport) -> None:
        found = json.loads(json.dumps(report.as_dict()))
        assert found["passed"] is True
        assert found["trainings"][0]["waiting_share"] == pytest.approx(0.1)
        assert found["trainings"][1]["store"] == "digits.h5"

    def test_one_poor_accuracy_fails(self, report: DemoReport) -> None:
        good, fair = report.trainings
        for trainings in ((replace(good, accuracy=0.9699), fair), (good, replace(fair, accuracy=0.9699))):
            poor = replace(report, trainings=trainings)
            assert poor.passed is False
            assert "0.97 is NOT reached" in str(poor)


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    call = "import sys; from oocloader.cli import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", call, "demo", *arguments], capture_output=True, text=True, timeout=300
    )


class TestCommand:
    @pytest.mark.slow
    def test_trains_from_both_stores(self, tmp_path: Path) -> None:
        result = demo("--folder", str(tmp_path), "--size", "16MiB", "--epochs", "5", "--json")
        found = json.loads(result.stdout)
        assert result.returncode == 0, found
        assert found["rows"] == 16_384
        assert found["device_memory_bytes"] == 4 * MIB
        assert [training["store"] for training in found["trainings"]] == ["digits.zarr", "digits.h5"]
        for training in found["trainings"]:
            assert training["rows"] == 16_384
            assert training["windows"] > 8
            assert training["accuracy"] >= 0.97
            assert 0 < training["waiting_s"] < training["next_s"] < training["seconds"]
            assert training["stored_bytes"] >= 16 * MIB
            assert training["peak_bytes"] > training["base_bytes"] > 100 * MIB
        plot = Path(found["plot"]).read_bytes()
        assert plot.startswith(b"\x89PNG\r\n")
        assert "16,384 images" in result.stderr

    @pytest.mark.slow
    def test_poor_accuracy_exits_1(self, tmp_path: Path) -> None:
        result = demo("--folder", str(tmp_path), "--size", "1MiB")
        assert "0.97 is NOT reached" in result.stdout
        assert result.returncode == 1

    def test_what_is_no_size_is_said_at_once(self) -> None:
        code = (
            "import sys; from oocloader.cli import main; code = main(['demo', '--size', 'many']);"
            " sys.exit(code if 'tensorflow' not in sys.modules else 3)"
        )
        assert subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL).returncode == 2

    @pytest.mark.parametrize("size", ["many", "0", "64KiB"])
    def test_bad_size(self, size: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["demo", "--folder", str(tmp_path / "new"), "--size", size]) == 2
        assert "size" in capsys.readouterr().err
        assert not (tmp_path / "new").exists()

    def test_folder_that_cannot_be(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "file").touch()
        assert main(["demo", "--folder", str(tmp_path / "file")]) == 1
        error = capsys.readouterr().err
        assert str(tmp_path / "file") in error
        assert len(error.splitlines()) == 1

    def test_missing_package_names_the_extra(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(
            sys.modules["oocloader.cli.demo_command"], "_NEEDED", ("sklearn", "no_such_package_here")
        )
        assert main(["demo"]) == 1
        assert "needs no_such_package_here" in (error := capsys.readouterr().err)
        assert "oocloader[demo]" in error


class TestRun:
    def test_full_disk_is_said_first(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from oocloader.cli.demo.run import run

        monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=700 * MIB))
        with pytest.raises(StoreError, match=r"needs 794 MiB there and 700 MiB are free"):
            run(tmp_path)
        assert list(tmp_path.iterdir()) == []

    def test_epochs(self, tmp_path: Path) -> None:
        from oocloader.cli.demo.run import run

        with pytest.raises(SettingError, match="epochs"):
            run(tmp_path, epochs=0)
