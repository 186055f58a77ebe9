"""`oocloader demo`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from oocloader.cli import main

MIB = 1 << 20


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
