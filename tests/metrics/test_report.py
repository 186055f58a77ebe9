"""Reports of real passes: the parts of the time add up, and the verdict names who was slow on purpose."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import oocloader as ooc
from numbered import rows_array
from oocloader.codecs.chain import Chain
from oocloader.reading.files import FileReader
from recorded import keras

pytestmark = [pytest.mark.usefixtures("tf"), pytest.mark.alone]

ROWS = 2000
BATCH = 20
WINDOW = 100
# What a slow part takes on purpose, each time: much longer than a loaded machine makes anything else take.
SLOW_S = 0.02


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """2000 rows in chunks of 50: x packed by gzip, raw not packed, y labels."""
    with h5py.File(tmp_path / "data.h5", "w") as file:
        x = rows_array(ROWS, sample_shape=(16,))
        file.create_dataset("x", data=x, chunks=(50, 16), compression="gzip")
        file.create_dataset("raw", data=x, chunks=(50, 16))
        file.create_dataset("y", data=np.arange(ROWS), chunks=(500,))
    return tmp_path / "data.h5"


def slowed(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
    inner = getattr(owner, name)

    def slow(*args: Any, **options: Any) -> Any:
        time.sleep(SLOW_S)
        return inner(*args, **options)

    monkeypatch.setattr(owner, name, slow)


def consumed(batches: Iterable[Any], work_s: float = 0.0) -> tuple[float, float]:
    """Seconds from asking for the first batch to getting the last, and how many of them went into work."""
    worked = 0.0
    batches = iter(batches)
    began = last = time.perf_counter()
    for _ in batches:
        last = time.perf_counter()
        if work_s:
            time.sleep(work_s)
        worked += time.perf_counter() - last
    return last - began, worked


@pytest.mark.parametrize("device", ["/CPU:0", "/CPU:1"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_slow_store(path: Path, monkeypatch: pytest.MonkeyPatch, device: str, shuffle: bool) -> None:
    slowed(monkeypatch, FileReader, "read")
    with ooc.Loader(
        path, "raw", "y", batch_size=BATCH, window=WINDOW, shuffle=shuffle, mmap=False, device=device
    ) as loader:
        consumed(loader)
        report = loader.report()
    assert report.verdict.startswith("storage-bound: reading takes ")
    assert report.read_s > 0.5 * report.waiting_s
    assert report.waiting_share > 0.5


@pytest.mark.parametrize("device", ["/CPU:0", "/CPU:1"])
def test_a_slow_codec(path: Path, monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    slowed(monkeypatch, Chain, "decode")
    with ooc.Loader(path, "x", "y", batch_size=BATCH, window=WINDOW, threads=1, device=device) as loader:
        consumed(loader)
        report = loader.report()
    assert report.verdict.startswith("storage-bound: decoding gzip takes ")
    assert "zstd (oocloader convert --codec zstd)" in report.verdict
    assert report.decode_s >= 40 * SLOW_S
    assert report.chunks_decoded == 40


@pytest.mark.parametrize("name", ["x", "raw"])
@pytest.mark.parametrize("device", ["/CPU:0", "/CPU:1"])
def test_a_slow_model(path: Path, name: str, device: str) -> None:
    with ooc.Loader(path, name, "y", batch_size=100, window=500, device=device) as loader:
        verdicts = []
        # What TensorFlow does once is no part of it; nor is what others do on the machine, now and then.
        for _ in range(4):
            consumed(loader, 5 * SLOW_S)
            verdicts.append(loader.report().verdict)
            assert loader.report().model_s >= 19 * 5 * SLOW_S
            if verdicts[-1].startswith("model-bound: the model takes "):
                return
    raise AssertionError(verdicts)


def test_a_slow_model_in_fit(path: Path) -> None:
    reports: list[ooc.Report] = []

    class Slow(keras().callbacks.Callback):  # type: ignore[misc]  # keras has no type information
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            time.sleep(5 * SLOW_S)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            reports.append(loader.report())
            self.model.stop_training = epoch > 0 and reports[-1].verdict.startswith("model-bound: ")

    model = keras().Sequential([keras().layers.Dense(1)])
    model.compile("sgd", "mse")
    with ooc.Loader(path, "x", "y", batch_size=100, window=500, dtype="float32") as loader:
        model.fit(loader.dataset(), epochs=4, verbose=0, callbacks=[Slow()])
    assert [report.epoch for report in reports] == list(range(len(reports)))
    assert {(report.complete, report.batches) for report in reports} == {(True, 20)}
    assert reports[-1].verdict.startswith("model-bound: ")


@pytest.mark.parametrize("device", ["/CPU:0", "/CPU:1"])
@pytest.mark.parametrize("work_s", [0.0, 0.004])
def test_the_parts_add_up(path: Path, device: str, work_s: float) -> None:
    """With each other, and with a stopwatch outside."""
    with ooc.Loader(path, "x", "y", batch_size=BATCH, window=WINDOW, scale=2.0, device=device) as loader:
        off = []
        for epoch in range(6):
            wall, worked = consumed(loader, work_s)
            report = loader.report()
            assert report.epoch == epoch
            assert report.waiting_s + report.model_s == pytest.approx(report.seconds, rel=1e-6)
            # The consumer worked with the last batch when the pass was over.
            off.append(abs(wall - report.seconds) / wall + abs(worked * 99 / 100 - report.model_s) / wall)
        # Where others use the machine, a thread may be off for long between two looks at the clock; and
        # where the consumer does nothing, the whole pass takes not much longer than looking at it.
        assert min(off) < (0.05 if work_s else 0.2)


def test_amounts(path: Path) -> None:
    with ooc.Loader(path, "x", "y", batch_size=BATCH, window=WINDOW) as loader:
        with pytest.raises(ooc.OocloaderError, match="there is no report before the first batch"):
            loader.report()
        for _ in range(2):
            consumed(loader)
            report = loader.report()
            assert (report.rows, report.batches, report.windows) == (ROWS, 100, 20)
            assert report.delivered_bytes == ROWS * (16 + 8)
            # y is not packed, and its rows lie in one run of bytes.
            assert report.chunks_decoded == 40
            assert report.decoded_bytes == ROWS * 16
            assert report.read_bytes + report.mapped_bytes > ROWS * 8
            assert report.rows_per_s == pytest.approx(ROWS / report.seconds)
            assert report.gb_per_s == pytest.approx(ROWS * 24 / report.seconds / 1e9)
            assert report.peak_memory_bytes > 100 << 20
            assert report.complete


def test_a_pass_that_is_not_over(path: Path) -> None:
    with ooc.Loader(path, "raw", batch_size=BATCH, window=WINDOW) as loader:
        batches = iter(loader)
        for _ in range(7):
            next(batches)
        report = loader.report()
        assert (report.rows, report.batches, report.complete) == (7 * BATCH, 7, False)
        assert report.delivered_bytes == 7 * BATCH * 16
        assert "not to its end" in str(report)


def test_the_last_pass_begun(path: Path) -> None:
    """Not the one that is read ahead already."""
    with ooc.Loader(path, "raw", batch_size=BATCH, window=WINDOW) as loader:
        for epoch in range(2):
            consumed(loader)
            time.sleep(0.05)
            assert loader.report().epoch == epoch
            assert loader.report().rows == ROWS


def test_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "data.npz", x=rows_array(ROWS, sample_shape=(16,)))
    with ooc.Loader(tmp_path / "data.npz", batch_size=BATCH, window=WINDOW) as loader:
        consumed(loader)
        report = loader.report()
    assert report.library_s > 0
    assert report.decode_s == 0


def test_the_host_pipeline(path: Path) -> None:
    with ooc.Loader(path, "x", "y", batch_size=BATCH, window=WINDOW) as loader:
        wall, _ = consumed(loader.dataset().map(lambda x, y: x), 0.01)
        report = loader.report()
        assert report.host_pipeline
        assert report.complete
        assert (report.rows, report.windows, report.batches) == (ROWS, 20, 0)
        assert report.waiting_s + report.model_s == pytest.approx(report.seconds)
        # It ends when the pipeline has taken the last window, a few batches before its consumer.
        assert 0.5 * wall < report.seconds < 1.02 * wall
        assert report.verdict.startswith("model-bound")
        assert "host pipeline" in str(report)


def test_copying_to_the_device(path: Path) -> None:
    with ooc.Loader(path, "x", "y", batch_size=BATCH, window=WINDOW, device="/CPU:1") as loader:
        consumed(loader)
        assert 0 < loader.report().copy_s < loader.report().seconds
    with ooc.Loader(path, "x", "y", batch_size=BATCH, window=WINDOW, device="/CPU:0") as loader:
        consumed(loader)
        assert loader.report().copy_s == 0


def test_texts(path: Path) -> None:
    with ooc.Loader(path, "x", "y", batch_size=BATCH, window=WINDOW) as loader:
        consumed(loader)
        report = loader.report()
    assert "\n" not in report.line
    assert report.line.startswith("epoch 0: 2,000 rows in ")
    assert report.line.endswith(report.verdict)
    text = str(report)
    for part in ("2,000 rows in 100 batches and 20 windows", "waiting for data", "in the model", "40 chunks"):
        assert part in text
    assert text.endswith(report.verdict)
    told = json.loads(json.dumps(report.as_dict()))
    assert told["rows"] == ROWS
    assert told["rows_per_s"] == report.rows_per_s
    assert "events" not in told


def test_the_trace_of_a_pass(path: Path, tmp_path: Path) -> None:
    with ooc.Loader(path, "x", "y", batch_size=BATCH, window=WINDOW) as loader:
        consumed(loader)
        consumed(loader, 0.001)
        loader.report().trace(tmp_path / "trace.json")
        report = loader.report()
    found = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    waits = [entry for entry in found if entry["name"] == "wait for data"]
    assert [entry["args"]["batch"] for entry in waits] == list(range(100))
    models = [entry for entry in found if entry["name"] == "model"]
    assert len(models) == 99
    assert sum(entry["dur"] for entry in waits) == pytest.approx(report.waiting_s * 1e6, rel=1e-3)
    assert sum(entry["dur"] for entry in models) == pytest.approx(report.model_s * 1e6, rel=1e-3)
    assert sorted(entry["id"] for entry in found if entry["ph"] == "b") == list(range(20))
    reads = [entry for entry in found if entry["name"] == "read window"]
    assert {entry["args"]["window"] for entry in reads} == set(range(20))
