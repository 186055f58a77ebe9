"""One small convolutional model, trained from one store through the loader."""

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path

import keras

from oocloader.cli.demo.digits import ROW_SHAPE, Digits
from oocloader.loader import DataSpec, Loader
from oocloader.metrics import Report, peak_memory_bytes


@dataclass(frozen=True, slots=True)
class Training:
    """What training from one store took. Sizes in bytes, times in seconds.

    `next_s` is the time that training spent in `next()` of the loader's iterator, `waiting_s` the part of
    it in which the next window was not there yet; the rest goes into cutting, casting and scaling batches.
    `losses` is the loss after each batch (the running mean of its epoch, as Keras reports it), `peak_bytes`
    the most memory that the process held meanwhile, of which it held `base_bytes` before.
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
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the most memory held counts from here
    base_bytes = peak_memory_bytes()
    losses: list[float] = []
    reports: list[Report] = []
    with Loader(spec, device_memory=device_memory) as loader:
        recorder = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: losses.append(float(logs["loss"])),
            on_epoch_end=lambda epoch, logs: reports.append(loader.report()),
        )
        start_s = time.perf_counter()
        # shuffle=False keeps Keras from warning that it will not shuffle: the loader does.
        data = loader.dataset()
        model.fit(data, epochs=epochs, shuffle=False, callbacks=[recorder], verbose=int(verbose))
        seconds = time.perf_counter() - start_s
    with Loader(spec.replace(source=held_out, shuffle=False)) as loader:
        accuracy = model.evaluate(loader.dataset(), verbose=0, return_dict=True)["accuracy"]
    last = reports[-1]
    return Training(
        store=store.name,
        stored_bytes=_stored_bytes(store),
        rows=last.rows,
        windows=last.windows,
        epochs=epochs,
        seconds=seconds,
        next_s=sum(report.waiting_s for report in reports),
        waiting_s=sum(report.waiting_s - report.cutting_s for report in reports),
        base_bytes=base_bytes,
        peak_bytes=last.peak_memory_bytes,
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


def _stored_bytes(store: Path) -> int:
    files = store.rglob("*") if store.is_dir() else [store]
    return sum(file.stat().st_size for file in files if file.is_file())
