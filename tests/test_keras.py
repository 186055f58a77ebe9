"""Training that is broken off and started again ends, bit by bit, where it would have ended; nothing less."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oocloader as ooc
from numbered import Numbered
from recorded import keras

pytestmark = pytest.mark.usefixtures("tf")

ROWS = 330
BATCHES = 11


class Killed(Exception):
    """What ends a run in this process: nothing that comes after it in `fit` is called."""


def dropping(*, moving: bool = True, **compiled: Any) -> Any:
    """A model whose steps depend on seeds, on moving means and on the moments of its optimizer."""
    layers = keras().layers
    means = [layers.BatchNormalization()] if moving else []
    model = keras().Sequential(
        [
            keras().Input((4, 4)),
            layers.Flatten(),
            layers.Rescaling(1 / 128),
            layers.Dropout(0.3),
            layers.Dense(8, activation="relu"),
            *means,
            layers.Dropout(0.5),
            layers.Dense(1),
        ]
    )
    model.compile(**{"optimizer": "adam", "loss": "mse", **compiled})
    return model


def values(model: Any) -> list[np.ndarray]:
    return [variable.numpy() for variable in [*model.variables, *model.optimizer.variables]]


def same(found: list[np.ndarray], expected: list[np.ndarray]) -> bool:
    """Bit by bit."""
    assert [each.shape for each in found] == [each.shape for each in expected]
    return all(one.tobytes() == other.tobytes() for one, other in zip(found, expected, strict=True))


@dataclass
class Training:
    """A training that can be run whole, or in lives that each end after some steps."""

    store: Numbered
    folder: Path
    model: Callable[[], Any] = dropping
    data: Callable[[Any], Any] = lambda loader: loader.dataset()
    options: dict[str, Any] = field(default_factory=lambda: {"shuffle": True, "window": 100, "seed": 3})
    fit: dict[str, Any] = field(default_factory=dict)
    epochs: int = 3
    save_freq: Any = "epoch"
    validation: bool = False
    validates_with_loader: bool = False
    others: Callable[[], list[Any]] = list
    """Callbacks made anew in each life."""
    handed: bool = False
    """Whether these are handed to BackupAndRestore."""
    seeds: Iterator[int] = field(default_factory=lambda: iter(range(1, 1000)))
    epochs_seen: list[tuple[int, int]] = field(default_factory=list)
    """Of the last life, each epoch that ended and its number of steps."""

    def run(self, *, dies_after: int | None = None, backup: bool = True, epochs: int | None = None) -> Any:
        """One life; the model it leaves."""
        keras().utils.set_random_seed(next(self.seeds) if backup else 1)
        training = self
        training.epochs_seen = []

        class Life(keras().callbacks.Callback):  # type: ignore[misc]  # keras has no type information
            done = 0
            of_epoch = 0

            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                self.of_epoch = 0

            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                self.done += batch + 1 - self.of_epoch
                self.of_epoch = batch + 1
                if dies_after is not None and self.done >= dies_after:
                    raise Killed

            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                training.epochs_seen.append((epoch, self.of_epoch))

        with (
            ooc.Loader(self.store.source, "x", "y", **self.options) as loader,
            ooc.Loader(self.store.source, "x", "y", rows=slice(0, 50)) as test,
        ):
            model = self.model()
            others = self.others()
            callbacks = [Life(), *others]
            if backup:
                kept = others if self.handed else []
                callbacks.append(
                    ooc.keras.BackupAndRestore(self.folder, loader, self.save_freq, callbacks=kept)
                )
            fit = {"epochs": epochs or self.epochs, "verbose": 0, "callbacks": callbacks, **self.fit}
            if self.validation:
                fit["validation_data"] = test.dataset()
            if self.validates_with_loader:
                fit["validation_data"] = loader.dataset()
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # "ran out of data" above all
                warnings.filterwarnings("ignore", message="`shuffle=True` was passed")
                if dies_after is None:
                    model.fit(self.data(loader), **fit)
                else:
                    with pytest.raises(Killed):
                        model.fit(self.data(loader), **fit)
        return model

    def proves_equal(self, *lives: int) -> None:
        expected = values(self.run(backup=False))
        for steps in lives:
            self.run(dies_after=steps)
        assert same(values(self.run()), expected)


@pytest.fixture
def training(make_store: Callable[..., Numbered], tmp_path: Path) -> Training:
    return Training(make_store("h5", ROWS, label_dtype="float32"), tmp_path / "backup")


def in_mixed_precision() -> Any:
    keras().config.set_dtype_policy("mixed_float16")
    try:
        return dropping(optimizer=keras().optimizers.SGD(0.01, momentum=0.9))
    finally:
        keras().config.set_dtype_policy("float32")


def doubled(x: Any, y: Any) -> Any:
    return x, y * 2


WEIGHTS = {row: 1.0 + row % 5 for row in range(ROWS)}

# How fit is run, and after how many steps of theirs the lives end.
WAYS: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "after each epoch": ({}, (13, 15)),
    "within epochs": ({"save_freq": 4}, (6, 14)),
    "rows in stored order, on a device": (
        {"save_freq": 1, "options": {"device": "/CPU:1", "drop_remainder": True}},
        (10, 1),
    ),
    "with validation": ({"save_freq": 3, "validation": True}, (10, 11)),
    "several steps at once": (
        {"save_freq": 4, "model": lambda: dropping(steps_per_execution=4)},
        (8, 16),
    ),
    "epochs of 7 steps": (
        {
            "save_freq": 2,
            "data": lambda loader: loader.dataset(epochs=None),
            "fit": {"steps_per_epoch": 7},
            "epochs": 4,
        },
        (10, 9),
    ),
    "class_weight": ({"save_freq": 3, "fit": {"class_weight": WEIGHTS}}, (7, 10)),
    "a pipeline": ({"save_freq": 3, "data": lambda loader: loader.dataset().map(doubled)}, (15,)),
    "a pipeline, several steps at once": (
        {
            "save_freq": 4,
            "data": lambda loader: loader.dataset().map(doubled),
            "model": lambda: dropping(steps_per_execution=4),
        },
        (8,),
    ),
    "a pipeline without end": (
        {
            "save_freq": 2,
            "data": lambda loader: loader.dataset().map(doubled).repeat().prefetch(4),
            "fit": {"steps_per_epoch": 7},
            "epochs": 4,
        },
        (9, 12),
    ),
    "mixed precision": ({"save_freq": 5, "model": in_mixed_precision}, (16,)),
}


@pytest.mark.parametrize("way", WAYS)
def test_lives_add_up(training: Training, way: str) -> None:
    changes, lives = WAYS[way]
    for name, value in changes.items():
        setattr(training, name, value)
    training.proves_equal(*lives)


def test_mirrored_strategy(tf: Any, training: Training) -> None:
    strategy = tf.distribute.MirroredStrategy(["/CPU:0", "/CPU:1"])

    def mirrored() -> Any:
        # Two reductions at once, of gradients and of means, now and then get mixed up in TensorFlow.
        with strategy.scope():
            return dropping(moving=False)

    training.model, training.save_freq = mirrored, 3
    training.proves_equal(14)


def test_the_loader_also_validates(training: Training) -> None:
    """Every other pass is then one of validation."""
    training.validates_with_loader = True
    training.proves_equal(14)
