"""The plan of a loader: sums that are kept, bytes that are read, words that say why."""

from __future__ import annotations

import json
import logging
import os
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr

import oocloader as ooc
from numbered import Numbered, rows_array
from oocloader.loader import plan as plans
from oocloader.memory.alignment import Column
from oocloader.memory.cost import Cost
from oocloader.sizes import MIB
from oocloader.stores import ArrayInfo

pytestmark = pytest.mark.usefixtures("tf")

ROWS = 10_000
CLASSES = np.arange(ROWS) // 1000


@pytest.fixture
def store(tmp_path: Path) -> str:
    """Rows of 128 bytes in zstd chunks of 100, labels class by class, in chunks of 100."""
    group = zarr.open_group(tmp_path / "store.zarr", mode="w")
    x = rows_array(ROWS, "uint8", sample_shape=(8, 16))
    group.create_array("x", data=x, chunks=(100, 8, 16))
    group.create_array("y", data=CLASSES, chunks=(100,))
    group.create_array("raw", data=x, chunks=(100, 8, 16), compressors=None)
    group.create_array("wide", data=CLASSES.astype("f4"), chunks=(700,))
    return str(tmp_path / "store.zarr")


def stored(path: str, name: str) -> int:
    """Bytes of the chunks of an array, by the file system."""
    return sum(file.stat().st_size for file in (Path(path) / name / "c").rglob("*") if file.is_file())


def test_what_an_epoch_does(store: str) -> None:
    options: dict[str, Any] = {"batch_size": 64, "host_memory": "8MiB", "device_memory": "8MiB"}
    with ooc.Loader(store, "x", "y", shuffle=True, window=2000, **options) as loader:
        plan = loader.plan()
        assert isinstance(plan, ooc.Plan)
        assert (plan.rows, plan.batches, plan.batch_size, plan.windows) == (ROWS, 157, 64, 5)
        assert (plan.window_rows, plan.block_rows, plan.shuffle) == (2000, 100, "window")
        assert plan.window_nbytes == 2000 * 136
        assert plan.device == "/CPU:0"
        assert [array.name for array in plan.arrays] == ["x", "y"]
        assert [array.read_nbytes for array in plan.arrays] == [stored(store, "x"), stored(store, "y")]
        assert plan.read_nbytes == stored(store, "x") + stored(store, "y")
        assert plan.amplification == 1.0
        assert plan.host_nbytes == loader.sizes.host_nbytes == sum(part.nbytes for part in plan.host.parts)
        assert plan.host.budget_nbytes == 8 * MIB
        assert plan.host.left_nbytes == 8 * MIB - plan.host_nbytes
        assert plan.device_nbytes == loader.sizes.device_nbytes
        assert plan.device_memory.left_nbytes == 8 * MIB - plan.device_nbytes
        for _ in loader:
            pass
        assert loader.counters is not None
        assert loader.counters.read_bytes == plan.read_nbytes
        assert loader.counters.batches == plan.batches
        assert loader.plan() == plan


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("feature", ["x", "raw"])
@pytest.mark.parametrize("rows", [slice(150, 9850), np.arange(0, ROWS, 13)], ids=["run", "picked"])
def test_read_amplification_is_what_happens(store: str, feature: str, rows: Any, shuffle: bool) -> None:
    options: dict[str, Any] = {"shuffle": shuffle, "window": 3000, "block": 100, "mmap": False}
    with ooc.Loader(store, feature, "y", rows=rows, **options) as loader:
        plan = loader.plan()
        for _ in loader:
            pass
        assert loader.counters is not None
        assert loader.counters.read_bytes == pytest.approx(plan.read_nbytes, rel=0.06)


def test_a_row_by_row_selection_of_compressed_rows_says_what_it_costs(store: str) -> None:
    with ooc.Loader(store, "x", rows=np.arange(0, ROWS, 10)) as loader:
        plan = loader.plan()
    assert plan.amplification == pytest.approx(10, rel=0.01)
    assert plan.arrays[0].why.startswith("chunks of 100 rows are decoded whole for the rows wanted of them; ")
    assert [warning for warning in plan.warnings if "read 10.0 times over" in warning]
    assert "  x: " in str(plan)
    assert "10.00 times: chunks of 100 rows are decoded whole" in str(plan)
    with ooc.Loader(store, "raw", rows=np.arange(0, ROWS, 10)) as loader:
        plan = loader.plan()
    assert plan.arrays[0].why.startswith("unwanted rows between wanted ones are read along")


def test_a_split_by_row_of_compressed_rows_is_in_the_plan(
    store: str, caplog: pytest.LogCaptureFixture
) -> None:
    with ooc.Loader(store, "x", "y", shuffle=True) as loader:
        train, val = loader.split(0.1, by="row")
        with train, val:
            assert (train.plan().rows, val.plan().rows) == (9000, 1000)
            assert train.plan().amplification == pytest.approx(10 / 9, rel=0.01)
            assert val.plan().amplification == pytest.approx(10, rel=0.01)
            assert any("split(by=" in warning for warning in val.plan().warnings)
            next(iter(val))
            assert val.plan().shuffle is False
        train, val = loader.split(0.1, by="block")
        with train, val:
            assert val.plan().amplification == 1.0
    assert said(caplog) == []


@pytest.mark.parametrize("shuffle", [False, "window", "global"])
def test_a_shard_reads_its_part(store: str, shuffle: bool | str) -> None:
    options: dict[str, Any] = {"shuffle": shuffle, "shard": (1, 3), "mmap": False, "window": 1000}
    with ooc.Loader(store, "raw", **options) as loader:
        plan = loader.plan()
        for _ in loader:
            pass
        assert loader.counters is not None
        assert plan.shuffle == shuffle
        assert (plan.rows, plan.batches, plan.windows) == (
            3333,
            len(loader),
            len(loader._assembly.decisions.read_config.order),
        )
        assert plan.mixing == (1.0 if shuffle == "global" else plan.mixing)
        assert plan.arrays[0].wanted_nbytes == pytest.approx(3333 * 128, abs=128)
        assert loader.counters.rows == plan.rows


def test_what_a_library_reads_is_a_share_of_what_is_stored() -> None:
    info = ArrayInfo("x", (100, 10), np.dtype("u1"), stored_nbytes=250, reader="library", reason="odd")
    column = Column("x", 10, 10, 20, 200, row_access=False)
    found = plans.array_plan(column, Cost(100, 400, 400), info)
    assert (found.wanted_nbytes, found.read_nbytes, found.amplification) == (25, 100, 4.0)
    half = plans.array_plan(column, Cost(100, 400, 400), info, share=0.5)
    assert (half.wanted_nbytes, half.read_nbytes) == (12, 50)


def test_nothing_is_read_and_little_allocated(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> int:
        raise AssertionError("a chunk was read")

    monkeypatch.setattr(os, "preadv", refused)
    monkeypatch.setattr("oocloader.reading.buffers.allocate", refused)
    with ooc.Loader(store, "x", "y") as loader:
        str(loader.plan())
        with pytest.raises(AssertionError, match="a chunk was read"):
            next(iter(loader))


@pytest.mark.usefixtures("tf")
@pytest.mark.parametrize(
    ("options", "kept", "words"),
    [
        ({}, "", "read per epoch: "),
        ({"cache": "memory"}, "cache", "read per epoch, until the cache has all rows: "),
        ({"cache": "folder"}, "cache", "read per epoch, until the cache has all rows: "),
        ({"residency": "device"}, "device", "read once, since all rows stay on the device: "),
    ],
)
@pytest.mark.parametrize("shard", [(0, 1), (1, 4)])
def test_what_is_read_once_is_told(
    store: str, tmp_path: Path, options: dict[str, Any], kept: str, words: str, shard: tuple[int, int]
) -> None:
    """The bytes are those that a pass reads, and those that keep all rows read no more of the store."""
    if options.get("cache") == "folder":
        options = {"cache": tmp_path / "cache"}
    with ooc.Loader(store, "x", "y", shard=shard, mmap=False, **options) as loader:
        plan = loader.plan()
        assert (plan.kept, plan.as_dict()["kept"]) == (kept, kept)
        assert words in str(plan)
        list(loader)
        assert loader.counters is not None
        assert loader.counters.read_bytes == pytest.approx(plan.read_nbytes, rel=0.02)
        loader.epoch = 0
        list(loader)
        assert (loader.counters.chunks_decoded == 0) is bool(kept)


def test_the_plan_in_terms_of_json(store: str) -> None:
    with ooc.Loader(store, "x", "y", shuffle=True, host_memory="4MiB", window=2000) as loader:
        plan = loader.plan()
    found = json.loads(json.dumps(plan.as_dict()))
    assert found["host_nbytes"] == plan.host_nbytes == sum(part["nbytes"] for part in found["host"]["parts"])
    assert found["host"]["left_nbytes"] == plan.host.left_nbytes
    assert found["device_memory"]["budget_nbytes"] is None
    assert found["arrays"][0]["amplification"] == 1.0
    assert found["mixing"] == plan.mixing
    assert found["poorly_mixed"] is False


def test_the_plan_in_words(store: str) -> None:
    with ooc.Loader(store, "x", "y", shuffle=True, batch_size=50, host_memory="4MiB", threads=2) as loader:
        text = str(loader.plan())
    # A quarter of 4 MiB is more than all rows have.
    assert text.splitlines()[:2] == [
        "10,000 rows in 200 batches of 50, shuffled window by window",
        "2 windows of up to 7,700 rows (1,022.7 KiB): half of host_memory is for 2 windows",
    ]
    assert "of 4.0 MiB (as given), " in text
    assert "\ndevice memory (/CPU:0): " in text
    assert "\nmixing: 1.00 (" in text
    with ooc.Loader(store, "x", "y", shuffle=True, block=300, window=900) as loader:
        lines = str(loader.plan()).splitlines()
    assert "12 windows of up to 900 rows (119.5 KiB): as asked for" in lines
    assert "blocks of 300 rows: as asked for" in lines
    assert any("(a quarter of what is free, 2 GiB at most)" in line for line in lines)


def test_chunks_that_stay_decoded_are_counted(store: str) -> None:
    with ooc.Loader(store, "x", "wide", shuffle=True, window=2000) as loader:
        plan = loader.plan()
    parts = {part.name: part.nbytes for part in plan.host.parts}
    assert parts["chunks kept decoded"] == ROWS * 4


# -- what is said once, where it is built or first used


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_poor_mixing_is_said_when_the_loader_is_built(store: str, caplog: pytest.LogCaptureFixture) -> None:
    with ooc.Loader(store, "x", "y", shuffle=True, window=400, batch_size=64) as loader:
        (warning,) = said(caplog)
        assert warning.startswith(
            "oocloader: rows stored class by class would mix poorly: windows of 400 rows come from 4 places, "
            "and a batch has 0."
        )
        assert "Give window=1600 (for which host_memory must have about " in warning
        plan = loader.plan()
        assert plan.poorly_mixed
        assert warning == f"oocloader: {plan.warnings[0]}"
        for _ in range(2):
            for _ in loader:
                pass
    assert len(said(caplog)) == 1
    caplog.clear()
    with ooc.Loader(store, "x", "y", shuffle=True, window=1600, batch_size=64) as loader:
        assert not loader.plan().poorly_mixed
        assert loader.plan().warnings == ()
    assert said(caplog) == []


@pytest.mark.parametrize("options", [{}, {"shuffle": True}])
def test_what_mixes_well_says_nothing(
    store: str, caplog: pytest.LogCaptureFixture, options: dict[str, Any]
) -> None:
    with ooc.Loader(store, "x", "wide", **options) as loader:
        plan = loader.plan()
        next(iter(loader))
    assert plan.mixing == (1.0 if options else None)
    assert plan.warnings == ()
    assert said(caplog) == []


def test_labels_in_order_are_said_at_the_first_use(store: str, caplog: pytest.LogCaptureFixture) -> None:
    with ooc.Loader(store, "x", "y") as loader:
        assert loader.plan().warnings == ()
        for _ in range(2):
            next(iter(loader))
        expected = (
            "the labels 'y' are stored in order, and the loader does not shuffle: a model trained on such "
            "batches sees one class after the other. Give shuffle=True for training; for evaluation all is "
            "well"
        )
        assert said(caplog) == [f"oocloader: {expected}"]
        assert loader.plan().warnings == (expected,)


@pytest.mark.parametrize(
    ("labels", "options"),
    [
        ("wide", {}),
        ("y", {"shuffle": True}),
        (None, {}),
        (None, {"features": "y"}),
        ("x", {"features": "raw"}),
    ],
)
def test_other_labels_say_nothing(
    store: str, caplog: pytest.LogCaptureFixture, labels: str | None, options: dict[str, Any]
) -> None:
    with ooc.Loader(store, **{"features": "x", "labels": labels, **options}) as loader:
        next(iter(loader))
    assert said(caplog) == []


# -- the GPU's memory


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], None]:
    """Makes TensorFlow seem to have a GPU of so many bytes, as which /CPU:1 would do."""

    def make(nbytes: int | None) -> None:
        monkeypatch.setattr("oocloader.tfdata.resolve", lambda device: "/GPU:0")
        monkeypatch.setattr("oocloader.tfdata.expected", lambda device: "/GPU:0")
        monkeypatch.setattr("oocloader.tfdata.memory_nbytes", lambda device: nbytes)

    return make


def test_a_gpu_gives_half_its_memory(store: str, gpu: Callable[[int | None], None]) -> None:
    gpu(6 << 30)
    with ooc.Loader(store, "x", "y", residency="stream") as loader:
        plan = loader.plan()
        assert plan.device == "/GPU:0"
        assert plan.device_memory.budget_nbytes == 3 << 30
        assert plan.device_nbytes == loader.sizes.device_nbytes
        assert "of 3.0 GiB (half of the GPU's memory: the rest is for the model)" in str(plan)
    with ooc.Loader(store, "x", "y", device_memory="1GiB") as loader:
        assert loader.plan().device_memory.budget_nbytes == 1 << 30
    gpu(None)
    with ooc.Loader(store, "x", "y") as loader:
        assert loader.plan().device_memory.budget_nbytes == 1 << 30


def test_a_gpu_too_small_names_the_window_that_fits(store: str, gpu: Callable[[int | None], None]) -> None:
    gpu(2 * 1_000_000)
    message = r"windows of 10000 rows need .* bytes of device_memory, more than the 1000000 bytes .*window="
    with pytest.raises(ooc.SettingError, match=message) as caught:
        ooc.Loader(store, "x", "y", device="/GPU:0")
    with ooc.Loader(store, "x", "y") as loader:
        assert loader.sizes.window == ROWS
        with pytest.raises(ooc.SettingError, match=message):
            loader.dataset()
    window = int(str(caught.value).partition("window=")[2])
    with ooc.Loader(store, "x", "y", device="/GPU:0", window=window) as loader:
        assert loader.plan().device_nbytes <= 1_000_000


def test_memory_of_a_gpu_as_tensorflow_has_it(tf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from oocloader.tfdata.device import expected, memory_nbytes

    limited = [tf.config.LogicalDeviceConfiguration(memory_limit=n) for n in (1024, 2048)]
    parts = {0: None, 2: limited, 3: [tf.config.LogicalDeviceConfiguration()]}
    physical = [types.SimpleNamespace(name=f"/physical_device:GPU:{number}") for number in parts]
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: physical)
    monkeypatch.setattr(
        tf.config, "get_logical_device_configuration", lambda one: parts[int(one.name.rpartition(":")[2])]
    )
    totals: dict[int, int | None] = {0: 8 << 30, 2: 1536 << 20, 3: None}
    monkeypatch.setattr("oocloader.tfdata.gpu_memory.total_nbytes", totals.get)
    assert expected(None) == "/GPU:0"
    found = [memory_nbytes(f"/GPU:{index}") for index in range(5)]
    assert found == [8 << 30, 1 << 30, 1536 << 20, None, None]


# -- how labels of a store mix


@pytest.mark.parametrize(
    ("kind", "compressed", "label_chunk_rows"),
    [("zarr", False, 256), ("zarr", True, 256), ("zarr", True, 100), ("h5", False, 256), ("h5", True, 1000)],
)
def test_class_sorted_labels_mix_nearly_as_well_as_a_full_shuffle(
    tmp_path: Path, kind: str, compressed: bool, label_chunk_rows: int
) -> None:
    """100,000 rows of ten classes, chunks of 256, windows of a tenth, otherwise default, batches of 128."""
    rows = 100_000
    labels = np.repeat(np.arange(10), rows // 10)
    x = np.arange(rows, dtype="f4")[:, np.newaxis]
    path = tmp_path / f"sorted.{kind}"
    if kind == "h5":
        with h5py.File(path, "w") as file:
            compression = "gzip" if compressed else None
            file.create_dataset("x", data=x, chunks=(256, 1), compression=compression)
            file.create_dataset("y", data=labels, chunks=(label_chunk_rows,), compression=compression)
    else:
        group = zarr.open_group(path, mode="w")
        options: dict[str, Any] = {} if compressed else {"compressors": None}
        group.create_array("x", data=x, chunks=(256, 1), **options)
        group.create_array("y", data=labels, chunks=(label_chunk_rows,), **options)

    def entropy(found: np.ndarray) -> float:
        shares = np.bincount(found, minlength=10) / len(found)
        shares = shares[shares > 0]
        return float(-(shares * np.log(shares)).sum())

    with ooc.Loader(path, "x", "y", shuffle=True, window=rows // 10, batch_size=128) as loader:
        assert loader.plan().mixing == pytest.approx(0.994, abs=0.006)
        epoch = [(x.numpy()[:, 0].astype(np.int64), y.numpy()) for x, y in loader]
    assert np.array_equal(np.sort(np.concatenate([numbers for numbers, _ in epoch])), np.arange(rows))
    assert all(np.array_equal(found, labels[numbers]) for numbers, found in epoch)
    shuffled = np.random.default_rng(0).permutation(labels)
    full = np.mean([entropy(shuffled[at : at + 128]) for at in range(0, rows - 128, 128)])
    assert np.mean([entropy(found) for _, found in epoch[:-1]]) >= 0.98 * full


def test_numbered_rows_in_memory_have_a_plan(make_store: Callable[..., Numbered]) -> None:
    made = make_store("memory", 500)
    with ooc.Loader(made.source, "x", "y", shuffle=True) as loader:
        plan = loader.plan()
    assert (plan.rows, plan.windows, plan.mixing) == (500, 1, 1.0)
    assert plan.read_nbytes == made.x.nbytes + made.y.nbytes
