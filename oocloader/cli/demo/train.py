"""One small convolutional model, trained from one store through the loader."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras

from oocloader.cli.demo.digits import ROW_SHAPE, Digits
from oocloader.loader import DataSpec, Loader


@dataclass(frozen=True, slots=True)
class Training:
    """What training from one store took. Sizes in bytes, times in seconds.

    `next_s` is the time that training spent in `next()` of the loader's iterator, measured from outside;
    `waiting_s` the part of it, by the loader's own count, in which the next window was not there yet. The
    rest goes into cutting, casting and scaling batches. `losses` is the loss after each batch
    (the running mean of its epoch, as Keras reports it), `peak_bytes` the most memory that the process held
    meanwhile, of which it held `base_bytes` before.
    """

    store: str
    stored_bytes: int
    rows: int
    windows: int
    epochs: int
    seconds: float
    next_s: float
    waiting_s: float
    base_bytes: int
    peak_bytes: int
    accuracy: float
    losses: tuple[float, ...]

    @property
    def rows_per_s(self) -> float:
        return self.rows * self.epochs / self.seconds

    @property
    def waiting_share(self) -> float:
        return self.waiting_s / self.seconds

    @property
    def cutting_share(self) -> float:
        return max(0.0, self.next_s - self.waiting_s) / self.seconds


def train_from(spec: DataSpec, digits: Digits, *, epochs: int, device_memory: int, verbose: bool) -> Training:
    """Train a fresh model from what `spec` says and judge it on the digits held out."""
    store = Path(spec.source)
    keras.utils.set_random_seed(spec.options["seed"])
    model = _model()
    held_out = {"images": digits.held_out_images, "labels": digits.held_out_labels}
    base_bytes = _reset_peak()
    losses: list[float] = []
    waits_s: list[float] = []
    with Loader(spec, device_memory=device_memory) as loader:
        recorder = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: losses.append(float(logs["loss"])),
            on_epoch_end=lambda epoch, logs: waits_s.append(loader.counters.wait_s if loader.counters else 0),
        )
        stopwatch = _time_next(model)
        start_s = time.perf_counter()
        # shuffle=False keeps Keras from warning that it will not shuffle: the loader does.
        data = loader.dataset()
        model.fit(data, epochs=epochs, shuffle=False, callbacks=[recorder], verbose=int(verbose))
        seconds = time.perf_counter() - start_s
        last = loader.counters
    peak_bytes = _peak()
    assert last is not None
    with Loader(spec.replace(source=held_out, shuffle=False)) as loader:
        accuracy = model.evaluate(loader.dataset(), verbose=0, return_dict=True)["accuracy"]
    return Training(
        store=store.name,
        stored_bytes=_stored_bytes(store),
        rows=last.rows,
        windows=last.windows,
        epochs=epochs,
        seconds=seconds,
        next_s=stopwatch.seconds,
        waiting_s=sum(waits_s),
        base_bytes=base_bytes,
        peak_bytes=peak_bytes,
        accuracy=float(accuracy),
        losses=tuple(losses),
    )


def _model() -> keras.Model:
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input(ROW_SHAPE),
            *(layers.Conv2D(n, 3, strides=2, padding="same", activation="relu") for n in (8, 16, 32)),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
    return model


@dataclass(slots=True)
class _Stopwatch:
    """Sums the seconds that `next` of the iterators takes that it is given one after the other."""

    seconds: float = 0.0
    iterator: Iterator[Any] = field(default_factory=lambda: iter(()))

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        start_s = time.perf_counter()
        try:
            return next(self.iterator)
        finally:
            self.seconds += time.perf_counter() - start_s


def _time_next(model: keras.Model) -> _Stopwatch:
    """Make `fit` take its batches through a stopwatch: measured where Keras asks, not where we answer."""
    stopwatch = _Stopwatch()
    model.make_train_function()
    train_on_next = model.train_function

    def train_function(iterator: Iterator[Any]) -> Any:
        stopwatch.iterator = iterator
        return train_on_next(stopwatch)

    model.train_function = train_function
    return stopwatch


def _stored_bytes(store: Path) -> int:
    files = store.rglob("*") if store.is_dir() else [store]
    return sum(file.stat().st_size for file in files if file.is_file())


def _reset_peak() -> int:
    """Start the high-water mark of memory anew where the system lets us; returns it, bytes."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    """The most resident memory since `_reset_peak`, bytes."""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
