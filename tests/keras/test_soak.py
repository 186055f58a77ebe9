"""Trainings killed by SIGKILL end as if they had not been. OOCLOADER_KILLS=20 kills more often."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import soak


@pytest.mark.soak
def test_killed_at_random_moments(tmp_path: Path) -> None:
    kills = int(os.environ.get("OOCLOADER_KILLS", "3"))
    run = soak.soak(tmp_path, kills=kills, seed=int(os.environ.get("OOCLOADER_KILL_SEED", "1")))
    assert run.kills == kills
    assert len(list(tmp_path.glob("result*.npz"))) == run.trainings
