"""Keras trains on a Loader's dataset as it is: every row once an epoch, on the device, without a warning."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import oocloader as ooc
from numbered import Numbered
from recorded import eventually, keras, our_threads, recorder, watching

pytestmark = pytest.mark.usefixtures("tf")

ROWS = 330
EVERY = list(range(ROWS))


@pytest.fixture
def store(make_store: Callable[..., Numbered]) -> Numbered:
    return make_store("h5", ROWS)


def epochs_of(numbers: list[int]) -> list[list[int]]:
    """Epochs of rows, in the order in which they were trained on."""
    assert len(numbers) % ROWS == 0
    return [numbers[at : at + ROWS] for at in range(0, len(numbers), ROWS)]


@pytest.mark.parametrize("kind", ["npy", "zarr", "memory"])
@pytest.mark.parametrize("device", ["/CPU:0", "/CPU:1"])
def test_fit(make_store: Callable[..., Numbered], kind: Any, device: str) -> None:
    store = make_store(kind, ROWS)
    model, watch = recorder(), watching()
    with ooc.Loader(store.source, "x", "y", shuffle=True, window=100, device=device) as loader:
        history = model.fit(loader.dataset(), epochs=3, verbose=0, callbacks=[watch])
    assert len(history.history["loss"]) == 3
    found = epochs_of(model.trained)
    assert [sorted(epoch) for epoch in found] == [EVERY] * 3
    assert len({tuple(epoch) for epoch in found}) == 3
    # Eleven batches, announced from the first epoch on.
    assert watch.steps == [(11, 11)] * 3
    assert set(watch.devices) == {device}


def test_validation_evaluate_and_predict(store: Numbered) -> None:
    model = recorder()
    with (
        ooc.Loader(store.source, "x", "y", shuffle=True, device="/CPU:1") as train,
        ooc.Loader(store.source, "x", "y", device="/CPU:1", batch_size=50) as test,
    ):
        model.fit(train.dataset(), epochs=2, validation_data=test.dataset(), verbose=0)
        assert model.tested == EVERY * 2
        model.evaluate(test.dataset(), verbose=0)
        assert model.tested == EVERY * 3
        found = model.predict(test.dataset(), verbose=0)
        assert model.asked == EVERY
    expected = model(store.x.reshape(ROWS, 16))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(
    "compiled", [{"steps_per_execution": 8}, {"run_eagerly": True}], ids=["eight steps at once", "eagerly"]
)
def test_ways_to_run_a_step(store: Numbered, compiled: dict[str, Any]) -> None:
    model, watch = recorder(**compiled), watching()
    with ooc.Loader(store.source, "x", "y", shuffle=True, device="/CPU:1") as loader:
        model.fit(loader.dataset(), epochs=2, verbose=0, callbacks=[watch])
        model.evaluate(loader.dataset(), verbose=0)
    assert [sorted(epoch) for epoch in epochs_of(model.trained)] == [EVERY] * 2
    assert sorted(model.tested) == EVERY
    assert [announced for announced, _ in watch.steps] == [11, 11]
    assert set(watch.devices) == {"/CPU:1"}


def test_compiled_by_xla(store: Numbered) -> None:
    """On one device with the model. XLA cannot call back to record rows: steps, devices and loss are seen."""
    layers = keras().layers
    model = keras().Sequential([layers.Rescaling(1 / 128), layers.Flatten(), layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=True)
    watch = watching()
    with ooc.Loader(store.source, "x", "y", shuffle=True, dtype="float32", device="/CPU:0") as loader:
        history = model.fit(loader.dataset(), epochs=2, verbose=0, callbacks=[watch])
    assert watch.steps == [(11, 11)] * 2
    assert set(watch.devices) == {"/CPU:0"}
    assert np.isfinite(history.history["loss"]).all()


def test_class_weight_of_fit(make_store: Callable[..., Numbered], caplog: pytest.LogCaptureFixture) -> None:
    store = make_store("zarr", ROWS)
    model = recorder()
    weights = {row: float(row % 5) for row in range(ROWS)}
    with (
        caplog.at_level(logging.WARNING, "oocloader"),
        ooc.Loader(store.source, "x", "y", shuffle=True, device="/CPU:1") as loader,
    ):
        model.fit(loader.dataset(), epochs=2, verbose=0, class_weight=weights)
    assert [sorted(epoch) for epoch in epochs_of(model.trained)] == [EVERY] * 2
    assert model.weights_seen == [row % 5 for row in model.trained]
    assert [record.message.startswith("oocloader: ") for record in caplog.records] == [True]


def test_mirrored_strategy(mirrored: Any, store: Numbered, caplog: pytest.LogCaptureFixture) -> None:
    with mirrored.scope():
        model = recorder()
    with (
        caplog.at_level(logging.WARNING, "oocloader"),
        ooc.Loader(store.source, "x", "y", shuffle=True, seed=5) as loader,
    ):
        model.fit(loader.dataset(), epochs=2, verbose=0)
        # Under a strategy Keras takes a batch of an iterator of its own first: that pass is given up.
        assert loader.epoch == 3
    found = epochs_of(model.trained)
    assert [sorted(epoch) for epoch in found] == [EVERY] * 2
    assert found[0] != found[1]
    assert len([record for record in caplog.records if "host pipeline" in record.message]) == 1


def test_steps_per_epoch_of_passes_without_end(store: Numbered) -> None:
    model, watch = recorder(), watching()
    with ooc.Loader(store.source, "x", "y", shuffle=True, device="/CPU:1") as loader:
        model.fit(loader.dataset(epochs=None), epochs=3, steps_per_epoch=5, verbose=0, callbacks=[watch])
    assert watch.steps == [(5, 5)] * 3
    assert (
        len(model.trained) == 11 * 32 + 4 * 32 - 22
    )  # eleven batches of the first pass, the last of ten rows
    assert sorted(model.trained[:ROWS]) == EVERY


def test_validation_steps_see_the_same_rows_in_every_epoch(store: Numbered) -> None:
    model = recorder()
    with (
        ooc.Loader(store.source, "x", "y", shuffle=True) as train,
        ooc.Loader(store.source, "x", "y") as test,
    ):
        model.fit(train.dataset(), epochs=3, validation_data=test.dataset(), validation_steps=2, verbose=0)
    assert model.tested == list(range(64)) * 3


def test_a_read_error_comes_out_of_fit(tmp_path: Path) -> None:
    path = tmp_path / "data.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.zeros((ROWS, 4, 4), "f4"), chunks=(64, 4, 4), compression="gzip")
        file.create_dataset("y", data=np.arange(ROWS, dtype="f4"))
        offset = file["x"].id.get_chunk_info(2).byte_offset
    with open(path, "r+b") as stream:
        stream.seek(offset)
        stream.write(b"\xff" * 16)
    model = keras().Sequential([keras().layers.Flatten(), keras().layers.Dense(1)])
    model.compile("sgd", "mse")
    with ooc.Loader(path, "x", "y", device="/CPU:1") as loader:
        with pytest.raises(
            ooc.OocloaderError, match=r"data\.h5: array 'x', chunk .*, rows 128 to 191: "
        ) as told:
            model.fit(loader.dataset(), epochs=2, verbose=0)
        assert isinstance(told.value, ooc.CorruptChunkError)
    assert eventually(lambda: not our_threads())


def test_an_error_of_a_callback_ends_the_pass(store: Numbered) -> None:
    class Stop(keras().callbacks.Callback):  # type: ignore[misc]  # keras has no type information
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 3:
                raise ZeroDivisionError

    model = recorder()
    with ooc.Loader(store.source, "x", "y", window=40, device="/CPU:1") as loader:
        with pytest.raises(ZeroDivisionError):
            model.fit(loader.dataset(), epochs=2, verbose=0, callbacks=[Stop()])
        assert model.trained == list(range(4 * 32))
        model.fit(loader.dataset(), epochs=1, verbose=0)
        assert model.trained[4 * 32 :] == EVERY
    assert eventually(lambda: not our_threads())
