"""Checks on a real GPU what the tests can only check on logical devices, and prints a table.

Where every batch lies, through `for` and through `fit`; how fast three kinds of host memory cross to
the device; the most device memory held; the share of time spent waiting for data.

    python tools/gpu_check.py                      # on /GPU:0
    python tools/gpu_check.py --device /CPU:1      # on half of the CPU, to try the check itself

Exit code 0 where all is well, 1 where a batch lies elsewhere, 2 where there is no such device.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras
import tensorflow as tf

import oocloader as ooc

MIB = 1 << 20
COPY_MIB = (4, 16, 64)
COPY_REPEATS = 15
ROW_SHAPE = (64, 64, 3)
BATCH_SIZE = 128


@dataclass(slots=True)
class Watched:
    """An iterator that notes where each batch lies and how long `next` took."""

    iterator: Iterator[Any] = field(default_factory=lambda: iter(()))
    devices: Counter[str] = field(default_factory=Counter)
    nbytes: int = 0
    next_s: float = 0.0

    def restart(self) -> None:
        """Forget how much and how long, keep where."""
        self.nbytes, self.next_s = 0, 0.0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        start_s = time.perf_counter()
        batch = next(self.iterator)
        self.next_s += time.perf_counter() - start_s
        for tensor in tf.nest.flatten(batch):
            self.devices[short_name(tensor.device)] += 1
            self.nbytes += tensor.dtype.size * int(np.prod(tensor.shape))
        return batch


def short_name(device: str) -> str:
    """`/job:localhost/.../device:GPU:0` or `/GPU:0` -> `/GPU:0`."""
    spec = tf.DeviceSpec.from_string(device)
    return f"/{spec.device_type}:{spec.device_index or 0}"


def choose_device(asked: str | None) -> str | None:
    """The device to check, or None where there is none such. Splits the CPU in two for `/CPU:1`."""
    if asked is None:
        return "/GPU:0" if tf.config.list_physical_devices("GPU") else None
    device = short_name(asked)
    if device == "/CPU:1":
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    there = [short_name(found.name) for found in tf.config.list_logical_devices()]
    return device if device in there else None


def aligned(nbytes: int) -> np.ndarray:
    """`nbytes` of uint8 at an address that is a multiple of 4096, every page touched."""
    memory = np.empty(nbytes + 4096, np.uint8)
    start = -memory.ctypes.data % 4096
    memory[:] = 7
    return memory[start : start + nbytes]


def address(tensor: Any) -> int:
    return int(np.asarray(memoryview(tensor)).ctypes.data)


def numpy_tensor(array: np.ndarray) -> Any:
    """A CPU tensor that is `array`'s own memory, as windows are handed over: through from_generator."""
    spec = tf.TensorSpec(array.shape, tf.as_dtype(array.dtype))
    tensor = next(iter(tf.data.Dataset.from_generator(lambda: iter([array]), output_signature=spec)))
    if address(tensor) != array.ctypes.data:
        raise RuntimeError("TensorFlow copied an aligned NumPy array; this check measures the copy")
    return tensor


def tensorflow_tensor(nbytes: int) -> Any:
    """A CPU tensor in memory of TensorFlow's own allocator."""
    with tf.device("/CPU:0"):
        return tf.fill([nbytes], tf.constant(7, tf.uint8))


class Cuda:
    """The few calls of the CUDA driver that pin memory; `OSError` where there is no driver."""

    def __init__(self, device: str) -> None:
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._call("cuInit", 0)
        handle = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(handle), int(device.rsplit(":", 1)[1]))
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), handle)
        self._call("cuCtxSetCurrent", context)

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._driver, name)(*arguments)
        if code:
            raise OSError(f"{name} answered CUDA error {code}")

    def pin(self, array: np.ndarray) -> None:
        portable = 1  # CU_MEMHOSTREGISTER_PORTABLE: pinned for every context, so for TensorFlow's too
        size = ctypes.c_size_t(array.nbytes)
        self._call("cuMemHostRegister_v2", ctypes.c_void_p(array.ctypes.data), size, portable)

    def unpin(self, array: np.ndarray) -> None:
        self._call("cuMemHostUnregister", ctypes.c_void_p(array.ctypes.data))


def copy_rate(tensor: Any, device: str) -> str:
    """Median GB/s of `tensor` to `device`, or what was seen in its place."""
    seconds = []
    for _ in range(COPY_REPEATS):
        start_s = time.perf_counter()
        with tf.device(device):
            there = tf.identity(tensor)
            last = there[-1:]
        last.numpy()  # waits until the copy is done
        seconds.append(time.perf_counter() - start_s)
        if short_name(there.device) != device:
            return f"not copied: it stayed on {short_name(there.device)}"
        if short_name(device).startswith("/CPU") and address(there) == address(tensor):
            return "not copied: logical devices of a CPU share its memory"
        del there, last
    return f"{tensor.dtype.size * int(tensor.shape[0]) / statistics.median(seconds) / 1e9:.1f} GB/s"


def pinned_rate(nbytes: int, device: str) -> str:
    if device.startswith("/CPU"):
        return "not measured: memory is pinned for a GPU"
    try:
        cuda = Cuda(device)
        array = aligned(nbytes)
        cuda.pin(array)
    except (OSError, AttributeError) as error:
        return f"not measured: {error}"
    try:
        return copy_rate(numpy_tensor(array), device)
    finally:
        cuda.unpin(array)


def copy_rates(device: str) -> dict[str, str]:
    rates = {}
    for mib in COPY_MIB:
        nbytes = mib * MIB
        rates[f"copy {mib} MiB, NumPy memory"] = copy_rate(numpy_tensor(aligned(nbytes)), device)
        rates[f"copy {mib} MiB, TensorFlow's memory"] = copy_rate(tensorflow_tensor(nbytes), device)
        rates[f"copy {mib} MiB, pinned memory"] = pinned_rate(nbytes, device)
    return rates


def write_images(path: Path, size_bytes: int) -> int:
    """Random images `(rows, 64, 64, 3)` uint8 as `.npy`, with their labels beside; returns rows."""
    rows = max(BATCH_SIZE, size_bytes // int(np.prod(ROW_SHAPE)))
    rng = np.random.default_rng(0)
    images = np.lib.format.open_memmap(path / "x.npy", mode="w+", dtype=np.uint8, shape=(rows, *ROW_SHAPE))
    for start in range(0, rows, 1024):
        part = images[start : start + 1024]
        part[:] = rng.integers(0, 255, part.shape, np.uint8, endpoint=True)
    np.save(path / "y.npy", rng.integers(0, 10, rows))
    return rows


def forget_peak(device: str) -> None:
    tf.config.experimental.reset_memory_stats(device.lstrip("/"))


def peak_mib(device: str) -> str:
    return f"{tf.config.experimental.get_memory_info(device.lstrip('/'))['peak'] / MIB:,.0f} MiB"


def through_for(loader: ooc.Loader, device: str) -> tuple[Watched, dict[str, str]]:
    watched = Watched()
    # The first pass builds the pipeline; the second is the one that counts.
    for _ in range(2):
        watched.restart()
        forget_peak(device)
        start_s = time.perf_counter()
        watched.iterator = iter(loader)
        for _ in watched:
            pass
        seconds = time.perf_counter() - start_s
    return watched, {
        "for: delivered": f"{watched.nbytes / seconds / 1e9:.2f} GB/s",
        "for: most device memory": peak_mib(device),
    }


def through_fit(loader: ooc.Loader, device: str) -> tuple[Watched, dict[str, str]]:
    with tf.device(device):
        model = keras.Sequential(
            [
                keras.Input(ROW_SHAPE),
                keras.layers.Rescaling(1 / 255),
                keras.layers.Conv2D(8, 3, strides=4, activation="relu"),
                keras.layers.GlobalAveragePooling2D(),
                keras.layers.Dense(10),
            ]
        )
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    watched = Watched()
    model.make_train_function()
    train_on_next: Callable[[Any], Any] = model.train_function

    def train_function(iterator: Iterator[Any]) -> Any:
        watched.iterator = iterator
        return train_on_next(watched)

    model.train_function = train_function
    # The first epoch compiles the step; the second is the one that counts.
    for _ in range(2):
        watched.restart()
        forget_peak(device)
        start_s = time.perf_counter()
        model.fit(loader.dataset(), verbose=0, shuffle=False)
        seconds = time.perf_counter() - start_s
    waiting_s = 0.0 if loader.counters is None else loader.counters.wait_s
    return watched, {
        "fit: trained": f"{watched.nbytes / seconds / 1e9:.2f} GB/s",
        "fit: most device memory": peak_mib(device),
        "fit: waiting for data": f"{waiting_s / seconds:.1%} of {seconds:.1f} s",
        "fit: cutting batches": f"{(watched.next_s - waiting_s) / seconds:.1%}",
    }


def check(device: str, size_mib: int) -> tuple[dict[str, str], bool]:
    """The table, and whether every batch lay on `device`."""
    lines = {"TensorFlow": tf.__version__, "device": device}
    details = tf.config.list_physical_devices("GPU")
    if device.startswith("/GPU"):
        found = tf.config.experimental.get_device_details(details[int(device.rsplit(":", 1)[1])])
        lines["name"] = str(found.get("device_name", "unknown"))
    right = True
    with tempfile.TemporaryDirectory(prefix="gpu_check-") as folder:
        rows = write_images(Path(folder), size_mib * MIB)
        budget = max(16 * MIB, size_mib * MIB // 8)  # three windows and two batches of 1.5 MiB at least
        lines["data, budget"] = f"{rows:,} rows, {size_mib} MiB, device_memory {budget / MIB:.0f} MiB"
        source = {"x": f"{folder}/x.npy", "y": f"{folder}/y.npy"}
        ways: list[tuple[str, Any, bool, Literal["stream", "device"]]] = [
            ("for", through_for, False, "stream"),
            ("for, shuffled", through_for, True, "stream"),
            ("for, kept there", through_for, True, "device"),
            ("fit", through_fit, True, "stream"),
            ("fit, kept there", through_fit, True, "device"),
        ]
        for name, through, shuffle, residency in ways:
            with ooc.Loader(
                source,
                "x",
                "y",
                batch_size=BATCH_SIZE,
                shuffle=shuffle,
                device=device,
                residency=residency,
                device_memory=budget if residency == "stream" else None,
            ) as loader:
                watched, found = through(loader, device)
            lines[f"{name}: tensors"] = ", ".join(f"{n} on {where}" for where, n in watched.devices.items())
            lines |= {key.replace("for:", f"{name}:"): value for key, value in found.items()}
            right = right and set(watched.devices) == {device}
    return lines | copy_rates(device), right


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--device", help="the device to check (default: /GPU:0)")
    parser.add_argument("--size", type=int, default=1024, metavar="MIB", help="data to load (default: 1024)")
    parser.add_argument("--json", action="store_true", help="print JSON in place of the table")
    options = parser.parse_args()
    device = choose_device(options.device)
    if device is None:
        there = ", ".join(short_name(found.name) for found in tf.config.list_logical_devices())
        asked = options.device or "GPU"
        print(f"TensorFlow sees no {asked} here, only {there}; --device /CPU:1 tries the check without one")
        return 2
    lines, right = check(device, options.size)
    if options.json:
        print(json.dumps({**lines, "right": right}, indent=2))
    else:
        width = max(map(len, lines))
        print("\n".join(f"{name.ljust(width)}  {value}" for name, value in lines.items()))
        print(f"\n{'every batch lies on' if right else 'NOT every batch lies on'} {device}")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
