"""The demo from beginning to end."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from oocloader.errors import SettingError, StoreError

MIB = 1 << 20


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
