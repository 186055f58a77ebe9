"""One small convolutional model, trained from one store through the loader."""

from __future__ import annotations

import contextlib
import resource
import sys
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
    """Trains a fresh model from what `spec` says and judges it on the digits held out."""
    store = Path(spec.source)
    keras.utils.set_random_seed(spec.options["seed"])
    model = _model()
    held_out = {"images": digits.held_out_images, "labels": digits.held_out_labels}
    base_bytes = _forget_peak()
    with Loader(spec, device_memory=device_memory) as loader:
        timed = _timed(model)
        notes = _Notes(loader)
        start_s = time.perf_counter()
        # shuffle=False keeps Keras from warning that it will not shuffle: the loader does.
        data = loader.dataset()
        model.fit(data, epochs=epochs, shuffle=False, callbacks=[notes], verbose=int(verbose))
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
        next_s=timed.next_s,
        waiting_s=notes.waiting_s,
        base_bytes=base_bytes,
        peak_bytes=peak_bytes,
        accuracy=float(accuracy),
        losses=tuple(notes.losses),
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


class _Notes(keras.callbacks.Callback):  # type: ignore[misc]  # keras is untyped
    """Writes down the loss after each batch and, after each epoch, what the loader waited in it."""

    def __init__(self, loader: Loader) -> None:
        super().__init__()
        self._loader = loader
        self.losses: list[float] = []
        self.waiting_s = 0.0

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        self.losses.append(float((logs or {})["loss"]))

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        counters = self._loader.counters
        self.waiting_s += 0.0 if counters is None else counters.wait_s


@dataclass(slots=True)
class _Timed:
    """Sums the seconds that training spends in `next()` of the iterators it is handed."""

    next_s: float = 0.0
    iterator: Iterator[Any] = field(default_factory=lambda: iter(()))

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        start_s = time.perf_counter()
        try:
            return next(self.iterator)
        finally:
            self.next_s += time.perf_counter() - start_s


def _timed(model: keras.Model) -> _Timed:
    """Makes `fit` take its batches through a stopwatch: measured where Keras asks, not where we answer."""
    timed = _Timed()
    model.make_train_function()
    train_on_next = model.train_function

    def train_function(iterator: Iterator[Any]) -> Any:
        timed.iterator = iterator
        return train_on_next(timed)

    model.train_function = train_function
    return timed


def _stored_bytes(store: Path) -> int:
    files = store.rglob("*") if store.is_dir() else [store]
    return sum(file.stat().st_size for file in files if file.is_file())


def _forget_peak() -> int:
    """Starts the high-water mark of memory anew where the system can (Linux); returns it, bytes."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    """The most resident memory since `_forget_peak`, bytes; elsewhere than on Linux, of the whole run."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return int(status.split("VmHWM:")[1].split()[0]) * 1024
