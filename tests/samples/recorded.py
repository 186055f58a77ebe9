"""What came out of a Loader: numbers of rows, where batches lay, and how a program that used one ended."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from numbered import numbers_of


def ids_of(elements: Iterable[Any]) -> list[int]:
    """The numbers of the rows of `(x, y)` batches, in order; fails where features and labels do not match."""
    ids: list[int] = []
    for x, y in elements:
        labels = [int(label) for label in y.numpy()]
        assert numbers_of(x) == labels
        ids += labels
    return ids


def device_of(tensor: Any) -> str:
    """Such as ``/CPU:1``."""
    return "/" + str(tensor.device).rpartition("device:")[2]


def keras() -> Any:
    """Keras, imported by the tests that train alone."""
    import keras

    return keras


def recorder(**compiled: Any) -> Any:
    """A model of one weight that keeps the numbers of the rows it is trained, tested and asked on.

    - `trained`, `tested`, `asked`: numbers in order, in whichever way the steps are run
    - `weights_seen`: sample weights, in order
    """
    import keras
    import numpy as np
    import tensorflow as tf

    class Recorder(keras.Model):  # type: ignore[misc]  # keras has no type information
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(1)
            self.trained: list[int] = []
            self.tested: list[int] = []
            self.asked: list[int] = []
            self.weights_seen: list[float] = []

        def call(self, x: Any) -> Any:
            return self.dense(tf.reshape(tf.cast(x, tf.float32), (tf.shape(x)[0], 16)) / 128)

        def _note(self, kept: list[int], data: Any) -> None:
            x, y, weight = keras.utils.unpack_x_y_sample_weight(data)

            def note(rows: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.int64:
                numbers = numbers_of(rows)
                assert len(labels) == 0 or numbers == labels.tolist()
                kept.extend(numbers)
                self.weights_seen.extend(weights.tolist())
                return np.int64(0)

            labels = tf.zeros(0, tf.int64) if y is None else tf.cast(y, tf.int64)
            weights = tf.zeros(0) if weight is None else tf.cast(weight, tf.float32)
            tf.numpy_function(note, [x, labels, weights], tf.int64)

        def train_step(self, data: Any) -> Any:
            self._note(self.trained, data)
            return super().train_step(data)

        def test_step(self, data: Any) -> Any:
            self._note(self.tested, data)
            return super().test_step(data)

        def predict_step(self, data: Any) -> Any:
            self._note(self.asked, data)
            return super().predict_step(data)

    model = Recorder()
    model.compile(optimizer="sgd", loss="mse", **compiled)
    return model


class Watch(Iterator[Any]):
    """Passes batches on, and notes where each tensor of them lies."""

    def __init__(self, batches: Iterator[Any], devices: list[str]) -> None:
        self._batches = batches
        self._devices = devices

    def __next__(self) -> Any:
        import tensorflow as tf

        batch = next(self._batches)
        self._devices.extend(device_of(tensor) for tensor in tf.nest.flatten(batch))
        return batch


def watching() -> Any:
    """A callback of `fit` that keeps `devices` of the tensors handed to the training step, and `steps`.

    `steps` are the numbers of batches that Keras announces and that each epoch had: `(announced, seen)`.
    """
    import keras

    class Watching(keras.callbacks.Callback):  # type: ignore[misc]  # keras has no type information
        def __init__(self) -> None:
            super().__init__()
            self.devices: list[str] = []
            self.steps: list[tuple[int | None, int]] = []

        def on_train_begin(self, logs: Any = None) -> None:
            inner = self.model.train_function
            self.model.train_function = lambda batches: inner(Watch(batches, self.devices))

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self._seen = 0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self._seen += 1

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.steps.append((self.params["steps"], self._seen))

        def on_train_end(self, logs: Any = None) -> None:
            self.model.train_function = None

    return Watching()


def storage_bytes() -> int:
    """Bytes that this process has read by system calls, whether from a disk or from the system's cache."""
    with open("/proc/self/io", encoding="ascii") as table:
        return int(dict(line.split(": ") for line in table)["rchar"])


def our_threads() -> list[str]:
    """Names of the threads that read ahead."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("oocloader")]


def eventually(what: Callable[[], object], *, within_s: float = 2.0) -> bool:
    """Whether `what` comes true."""
    until = time.monotonic() + within_s
    while not what():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


PROLOGUE = """
import os, sys, time
import numpy as np
import tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
import oocloader as ooc
from recorded import *
from numbered import *
import logging
logging.getLogger("oocloader").setLevel("ERROR")
"""


def started(code: str, *arguments: object, prologue: str = PROLOGUE) -> subprocess.Popen[str]:
    """A program that runs `code` behind the imports of `PROLOGUE`, its output in pipes."""
    samples = Path(__file__).parent
    path = os.pathsep.join([str(samples), str(samples.parents[1])])
    return subprocess.Popen(
        [sys.executable, "-c", prologue + textwrap.dedent(code), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )


def finished(program: subprocess.Popen[str], *, timeout_s: float = 120) -> tuple[int, str, str]:
    """Exit code, standard output and standard error; a program that hangs is ended and fails the test."""
    try:
        out, err = program.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        program.kill()
        out, err = program.communicate()
        raise AssertionError(f"no end within {timeout_s} s; it said:\n{out}\n{err[-4000:]}") from None
    # What TensorFlow and absl say of machines without a GPU is no news.
    kept = [
        line
        for line in err.splitlines()
        if not line.startswith(("WARNING: All log", "E0000", "W0000", "I0000"))
    ]
    return program.returncode, out, "\n".join(kept)
