"""Training that is broken off and started again ends, bit by bit, where it would have ended; nothing less."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import oocloader as ooc
from numbered import Numbered
from oocloader.keras.backup_file import read
from recorded import keras

pytestmark = pytest.mark.usefixtures("tf")

ROWS = 330
BATCHES = 11


class Killed(Exception):
    """What ends a run in this process: nothing that comes after it in `fit` is called."""


def dropping(**compiled: Any) -> Any:
    """A model whose steps depend on seeds, on moving means and on the moments of its optimizer."""
    layers = keras().layers
    model = keras().Sequential(
        [
            keras().Input((4, 4)),
            layers.Flatten(),
            layers.Rescaling(1 / 128),
            layers.Dropout(0.3),
            layers.Dense(8, activation="relu"),
            layers.BatchNormalization(),
            layers.Dropout(0.5),
            layers.Dense(1),
        ]
    )
    model.compile(**{"optimizer": "adam", "loss": "mse", **compiled})
    return model


def lean() -> Any:
    """The least model whose steps depend on a seed and on an optimizer's past: it is traced soonest."""
    layers = keras().layers
    model = keras().Sequential(
        [
            keras().Input((4, 4)),
            layers.Flatten(),
            layers.Rescaling(1 / 128),
            layers.Dropout(0.3),
            layers.Dense(1),
        ]
    )
    model.compile(keras().optimizers.SGD(1e-3, momentum=0.9), "mse")
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
    model: Callable[[], Any] = lean
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
    strict: bool = True
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
                if self.strict:
                    warnings.simplefilter("error")  # "ran out of data" above all
                warnings.filterwarnings("ignore", message="`shuffle=True` was passed")
                # Keras's own, of ReduceLROnPlateau.
                warnings.filterwarnings("ignore", message="__array__ implementation doesn't accept a copy")
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
    "within epochs": ({"save_freq": 4, "model": dropping}, (6, 14)),
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


def test_mirrored_strategy(mirrored: Any, training: Training) -> None:
    def scoped() -> Any:
        with mirrored.scope():
            return dropping()

    training.model, training.save_freq = scoped, 3
    training.proves_equal(14)


def test_the_loader_also_validates(training: Training) -> None:
    """Every other pass is then one of validation."""
    training.validates_with_loader = True
    training.proves_equal(14)


# -- SIGTERM


class Terminated(Exception):
    """What the handler from before does."""


def test_sigterm_saves_at_the_end_of_the_batch(training: Training) -> None:
    """Also with save_freq="epoch": nothing that was trained is lost."""
    expected = values(training.run(backup=False))

    class Terminates(keras().callbacks.Callback):  # type: ignore[misc]  # keras has no type information
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if batch == 4 and self.model.optimizer.iterations == 15:
                os.kill(os.getpid(), signal.SIGTERM)

    def handler(number: int, frame: Any) -> None:
        raise Terminated

    training.others = lambda: [Terminates()]
    before = signal.signal(signal.SIGTERM, handler)
    try:
        with pytest.raises(Terminated):
            training.run()
        assert training.epochs_seen == [(0, 11)]
        assert saved(training.folder, "epoch", "batch") == (1, 5)
        training.others = list
        assert same(values(training.run()), expected)
        assert training.epochs_seen == [(1, 6), (2, 11)]
        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)


def test_sigterm_in_validation_is_not_kept_waiting(training: Training) -> None:
    expected = values(training.run(backup=False))
    training.validation = True

    class Terminates(keras().callbacks.Callback):  # type: ignore[misc]  # keras has no type information
        def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
            if batch == 0 and self.model.optimizer.iterations == 11:
                os.kill(os.getpid(), signal.SIGTERM)

    def handler(number: int, frame: Any) -> None:
        raise Terminated

    training.others = lambda: [Terminates()]
    before = signal.signal(signal.SIGTERM, handler)
    try:
        with pytest.raises(Terminated):
            training.run()
        assert training.epochs_seen == []
        training.others = list
        assert same(values(training.run()), expected)
        assert training.epochs_seen == [(1, 11), (2, 11)]
    finally:
        signal.signal(signal.SIGTERM, before)


# -- what is kept, and for how long


def saved(folder: Path, *names: str) -> tuple[Any, ...]:
    found = read(str(folder))
    assert found is not None
    return tuple(found.facts[name] for name in names)


def test_a_complete_training_is_not_trained_again(
    training: Training, caplog: pytest.LogCaptureFixture
) -> None:
    done = values(training.run())
    assert saved(training.folder, "epoch", "batch") == (3, 0)
    assert not caplog.records
    assert same(values(training.run()), done)
    assert training.epochs_seen == []
    (record,) = caplog.records
    assert record.message.startswith(
        f"oocloader: the training in {training.folder} is complete: its model is "
    )
    longer = values(training.run(epochs=5))
    assert training.epochs_seen == [(3, 11), (4, 11)]
    assert same(longer, values(training.run(backup=False, epochs=5)))


def test_the_last_epoch_is_saved_whatever_save_freq_is(training: Training) -> None:
    training.save_freq = 1000
    training.run()
    assert saved(training.folder, "epoch", "batch", "position") == (3, 0, [3, 0])


def test_a_loader_that_starts_in_the_middle(training: Training) -> None:
    """Of a state that the user has loaded: counted from there."""
    training.save_freq = 1

    def data(loader: ooc.Loader) -> Any:
        loader.load_state_dict(loader.state_at(5, 4))
        return loader.dataset()

    training.data = data
    training.run(dies_after=4)
    assert saved(training.folder, "epoch", "batch", "position") == (0, 3, [5, 7])


def test_one_model_is_trained_twice_in_one_process(training: Training) -> None:
    """A second fit goes on, a third without the callback begins with epoch 0 as ever."""
    keras().utils.set_random_seed(1)
    with ooc.Loader(training.store.source, "x", "y", **training.options) as loader:
        model = lean()
        backup = ooc.keras.BackupAndRestore(training.folder, loader)
        fit = {"verbose": 0, "shuffle": False}
        first = model.fit(loader.dataset(), epochs=1, callbacks=[backup], **fit)
        second = model.fit(loader.dataset(), epochs=3, callbacks=[backup], **fit)
        found = values(model)
        third = model.fit(loader.dataset(), epochs=1, **fit)
    assert (first.epoch, second.epoch, third.epoch) == ([0], [1, 2], [0])
    assert same(found, values(training.run(backup=False)))


def test_a_callback_that_stops_in_the_middle(training: Training) -> None:
    """Such as a limit of time: the rest of the epoch is trained by the next run."""
    expected = values(training.run(backup=False))

    class Stops(keras().callbacks.Callback):  # type: ignore[misc]  # keras has no type information
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.model.stop_training |= self.model.optimizer.iterations == 16

    training.others = lambda: [Stops()]
    training.run()
    assert saved(training.folder, "epoch", "batch") == (1, 5)
    assert same(values(training.run()), expected)
    assert training.epochs_seen == [(1, 6), (2, 11)]


def test_early_stopping_that_is_handed_over(training: Training) -> None:
    """It counts on where it was, stops for good, and has the best weights again."""
    callbacks = keras().callbacks
    training.epochs, training.handed = 20, True
    training.others = lambda: [
        callbacks.EarlyStopping("loss", patience=3, min_delta=1e9, restore_best_weights=True)
    ]
    expected = training.run(backup=False)
    assert training.epochs_seen[-1] == (3, 11)
    training.run(dies_after=2 * BATCHES + 3)
    stopped = training.run()
    assert training.epochs_seen == [(2, 11), (3, 11)]
    assert same(values(stopped), values(expected))
    assert same(values(training.run(epochs=30)), values(expected))
    assert training.epochs_seen == []


def test_early_stopping_that_is_not_handed_over_begins_anew(training: Training) -> None:
    training.epochs = 20
    training.others = lambda: [keras().callbacks.EarlyStopping("loss", patience=3, min_delta=1e9)]
    training.run(dies_after=2 * BATCHES + 3)
    training.run()
    assert training.epochs_seen[-1] == (5, 11)


def test_rates_that_callbacks_set(training: Training) -> None:
    """One set from the rate before it, at the begin of an epoch, is not set twice in a broken one."""
    callbacks = keras().callbacks
    training.epochs, training.handed, training.save_freq = 4, True, 4

    class Slower(callbacks.Callback):  # type: ignore[name-defined,misc]  # keras has no type information
        epochs: ClassVar[list[int]] = []

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.model.optimizer.learning_rate = self.model.optimizer.learning_rate.numpy() * 0.5
            self.epochs.append(epoch)

        def state_dict(self) -> dict[str, Any]:
            return {"epochs": self.epochs, "of": np.float32(3)}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            assert state["epochs"] == self.epochs[: len(state["epochs"])]
            assert (state["of"].dtype, state["of"]) == (np.float32, 3)

    training.others = lambda: [
        Slower(),
        callbacks.ReduceLROnPlateau("loss", patience=2, min_delta=1e9, factor=0.1),
    ]
    expected = training.run(backup=False)
    Slower.epochs.clear()
    assert float(expected.optimizer.learning_rate) == pytest.approx(1e-3 * 0.5**4 * 0.1)
    training.run(dies_after=BATCHES + 6)
    training.run(dies_after=BATCHES + 6)
    assert same(values(training.run()), values(expected))


def test_a_model_that_is_built_by_its_first_batch(training: Training) -> None:
    def unbuilt() -> Any:
        layers = keras().layers
        model = keras().Sequential([layers.Flatten(), layers.Dropout(0.5), layers.Dense(3), layers.Dense(1)])
        model.compile("adam", "mse")
        return model

    training.model = unbuilt
    training.options["dtype"] = "float32"
    training.proves_equal(15)


def test_the_logs_of_a_broken_epoch_are_of_its_rest(training: Training) -> None:
    """Documented as what is not restored."""
    training.save_freq = 4
    training.run(dies_after=BATCHES + 6)
    history = training.run().history
    assert history.epoch == [1, 2]
    assert len(history.history["loss"]) == 2


# -- what is refused, before the first step


def errors_of(training: Training, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match) as told:
        training.run()
    assert "\n" not in str(told.value)
    assert training.epochs_seen == []


def other_shape() -> Any:
    model = dropping()
    other = keras().Sequential([*model.layers[:-1], keras().layers.Dense(2)])
    other.compile("adam", "mse")
    return other


def other_layer() -> Any:
    model = keras().Sequential([keras().Input((4, 4)), keras().layers.Flatten(), keras().layers.Dense(1)])
    model.compile("adam", "mse")
    return model


OTHERS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "shape": (
        {"model": other_shape},
        ooc.DataError,
        r"\.npz: is of .* has \S*kernel float32\(8, 1\) where this one has \S*kernel float32\(8, 2\); use",
    ),
    "layers": ({"model": other_layer}, ooc.DataError, r"is of another model: it has .* where this one has "),
    "optimizer": (
        {"model": lambda: dropping(optimizer="sgd")},
        ooc.DataError,
        "its optimizer is Adam, this one's SGD; use the model and optimizer",
    ),
    "precision": (
        {"model": in_mixed_precision},
        ooc.DataError,
        r"its optimizer is Adam, this one's LossScaleOptimizer\(SGD\)",
    ),
    "seed of the loader": (
        {"options": {"shuffle": True, "window": 100, "seed": 4}},
        ooc.SettingError,
        r"training\.npz: .* with seed=3, this loader has seed=4",
    ),
    "rows of the loader": (
        {"options": {"shuffle": True, "window": 100, "seed": 3, "rows": slice(0, 325)}},
        ooc.DataError,
        "0:330.*0:325",
    ),
    "batch size": (
        {"options": {"shuffle": True, "window": 100, "seed": 3, "batch_size": 33}},
        ooc.SettingError,
        "was saved after 4 of 11 batches of an epoch, which now has 10; give the same batch_size and steps",
    ),
    "initial_epoch": (
        {"fit": {"initial_epoch": 2}},
        ooc.SettingError,
        "goes on with epoch 0, but fit begins with epoch 2; leave out initial_epoch=",
    ),
}


@pytest.mark.parametrize("other", OTHERS)
def test_another(training: Training, other: str) -> None:
    changes, error, match = OTHERS[other]
    training.save_freq, training.model = 4, dropping
    training.run(dies_after=6)
    before = read(str(training.folder))
    for name, value in changes.items():
        setattr(training, name, value)
    errors_of(training, error, match)
    assert before is not None
    after = read(str(training.folder))
    assert after is not None
    assert after.facts == before.facts


def test_a_damaged_backup(training: Training) -> None:
    training.run(dies_after=12)
    path = training.folder / "training.npz"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    errors_of(training, ooc.StoreError, r"training\.npz: the backup is damaged: .*; delete it to train from")


def test_a_folder_that_is_a_file(training: Training) -> None:
    training.folder.write_text("")
    errors_of(training, ooc.StoreError, "backup: cannot be used as the folder of a backup: File exists")


SETTINGS: dict[str, tuple[dict[str, Any], str]] = {
    "no folder": ({"backup_dir": ""}, "backup_dir='' must be the path of a folder"),
    "no path": ({"backup_dir": 3}, "backup_dir=3 must be the path of a folder"),
    "no loader": ({"loader": "x.h5"}, "loader='x.h5' must be the oocloader.Loader"),
    "a word": ({"save_freq": "batch"}, "save_freq='batch' must be \"epoch\" or a number of batches"),
    "none": ({"save_freq": 0}, "save_freq"),
    "true": ({"save_freq": True}, "save_freq"),
    "half": ({"save_freq": 0.5}, "save_freq"),
    "one callback": ({"callbacks": "x"}, "callbacks='x' must be a list of callbacks"),
    "unknown": (
        {"callbacks": [object()]},
        "callbacks=object: its state is not known; known are",
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings(training: Training, name: str) -> None:
    given, match = SETTINGS[name]
    with ooc.Loader(training.store.source, "x", "y") as loader:
        arguments = {"backup_dir": training.folder, "loader": loader, **given}
        with pytest.raises(ooc.SettingError, match=match):
            ooc.keras.BackupAndRestore(**arguments)
    assert not training.folder.exists()


@pytest.mark.parametrize("url", ["gs://bucket/run", "s3://bucket/run"])
def test_a_url_is_no_folder(training: Training, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.chdir(training.folder.parent)
    before = sorted(os.listdir())
    with (
        ooc.Loader(training.store.source, "x", "y") as loader,
        pytest.raises(ooc.StoreError, match=rf"^backup_dir='{url}': URLs are not supported; name a folder"),
    ):
        ooc.keras.BackupAndRestore(url, loader)
    assert sorted(os.listdir()) == before


def test_callbacks_in_another_order(training: Training) -> None:
    stopping = keras().callbacks.EarlyStopping("loss")
    with ooc.Loader(training.store.source, "x", "y") as loader:
        backup = ooc.keras.BackupAndRestore(training.folder, loader, callbacks=[stopping])
        with pytest.raises(ooc.SettingError, match="EarlyStopping was handed to Backup"):
            lean().fit(loader.dataset(), verbose=0, callbacks=[backup, stopping])


@pytest.mark.parametrize("what", ["another loader", "cached"])
def test_batches_that_are_not_the_loaders(training: Training, what: str) -> None:
    with (
        ooc.Loader(training.store.source, "x", "y") as loader,
        ooc.Loader(training.store.source, "x", "y") as other,
    ):
        data = other.dataset() if what == "another loader" else loader.dataset().cache()
        backup = ooc.keras.BackupAndRestore(training.folder, loader)
        with pytest.raises(ooc.SettingError, match="did not deliver; give both the same loader"):
            lean().fit(data, epochs=2, verbose=0, callbacks=[backup])


def test_steps_per_epoch_of_a_dataset_that_ends(training: Training) -> None:
    """Keras would not know that the pass was begun before: an epoch without batches is an error."""
    training.options["rows"] = slice(0, 320)
    training.fit = {"steps_per_epoch": 5}
    training.run(dies_after=7)
    training.strict = False
    with pytest.warns(UserWarning, match="ran out of data"), pytest.raises(ooc.SettingError) as told:
        training.run()
    assert "had no batch: with steps_per_epoch, give fit a dataset without end" in str(told.value)
    training.data = lambda loader: loader.dataset(epochs=None)
    training.strict = True
    found = values(training.run())
    assert same(found, values(training.run(backup=False)))
