"""What is measured while the demo trains."""

from __future__ import annotations

from dataclasses import replace

from oocloader.cli.demo.train import Training


def test_shares_of_the_time() -> None:
    training = Training(
        store="x.zarr",
        stored_bytes=1,
        rows=100,
        windows=2,
        epochs=3,
        seconds=10.0,
        next_s=4.0,
        waiting_s=3.0,
        base_bytes=1,
        peak_bytes=2,
        accuracy=1.0,
        losses=(),
    )
    assert training.rows_per_s == 30
    assert training.waiting_share == 0.3
    assert training.cutting_share == 0.1
    assert replace(training, next_s=2.0).cutting_share == 0
