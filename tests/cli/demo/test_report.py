"""The report of the demo."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from oocloader.cli.demo.report import DemoReport
from oocloader.cli.demo.train import Training

MIB = 1 << 20


class TestReport:
    @pytest.fixture
    def report(self) -> DemoReport:
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
