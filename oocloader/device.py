"""Windows to batches on a device.

`from_generator` carries windows on the host, a device gets them whole, and batches are cut there.
TensorFlow's eager operations are called from the consumer's thread alone.
"""

from __future__ import annotations

import collections
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from oocloader.errors import SettingError, TracingError
from oocloader.passes import Pass


def resolve(device: str | None) -> str:
    """The device to deliver to, such as ``/GPU:0``; None: the first GPU where TensorFlow sees one.

    Raises `SettingError`, listing the devices there are.
    """
    if device is None:
        return "/GPU:0" if tf.config.list_physical_devices("GPU") else "/CPU:0"
    known = [found.name.removeprefix("/device:") for found in tf.config.list_logical_devices()]
    try:
        spec = tf.DeviceSpec.from_string(device if device.startswith("/") else f"/{device}")
        wanted = f"{spec.device_type}:{spec.device_index or 0}" if spec.device_type else None
    except ValueError:
        wanted = None
    if wanted not in known:
        listed = ", ".join(f"/{name}" for name in known)
        raise SettingError(f"device={device!r} is not there; TensorFlow sees {listed}")
    return f"/{wanted}"


def cross(windows: tf.data.Dataset, device: str) -> tf.data.Dataset:
    """Windows on `device`: the next is copied in the background while one is used.

    On the host nothing is copied, the window is only fetched ahead. Replace this function to cross another
    way; `tools/gpu_check.py` compares the kinds of host memory.
    """
    options = tf.data.Options()
    # There is nothing to tune or to rewrite, and an iterator that tunes waits up to its period when it is dropped.
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    windows = windows.with_options(options)
    if is_host(device):
        return windows.prefetch(1)
    return windows.apply(tf.data.experimental.prefetch_to_device(device, 1))


def is_host(device: str) -> bool:
    """Whether batches stay where the windows are."""
    return device == "/CPU:0"


class Batches(Iterator[Any]):
    """The batches of `passes` one after another, on `device`. Starts nothing before the first `next`.

    `begin()` gives the next pass with the iterator of its device windows; `finish(batch)` makes an
    element of one batch of every array.
    """

    def __init__(
        self,
        begin: Callable[[], tuple[Pass, Any]],
        finish: Callable[[Sequence[tf.Tensor]], Any],
        *,
        passes: int | None,
        batch_size: int,
        batches: int,
        device: str,
        element_spec: Any,
    ) -> None:
        self._begin = begin
        self._finish = finish
        self._passes = passes
        self._batch_size = batch_size
        self._batches = batches
        self._device = device
        self._pass: Pass | None = None
        self._windows: Any = None
        self._ready: collections.deque[Sequence[tf.Tensor]] = collections.deque()
        self._done = 0
        self._closed = False
        self.element_spec = element_spec

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Any:
        self._refuse_tracing()
        if self._closed:
            raise StopIteration
        if self._pass is None:
            if self._passes is not None and self._done >= self._passes:
                raise StopIteration
            self._pass, self._windows = self._begin()
        running = self._pass
        if not self._ready and not self._fill(running):
            raise StopIteration
        batch = self._ready.popleft()
        running.counters.batches += 1
        # A pass is over with its last batch: nobody may ask for one more.
        if running.start + running.counters.batches >= self._batches:
            self._end()
            self._done += 1
        return self._finish(batch)

    def get_next(self) -> Any:
        """The next element; `tf.errors.OutOfRangeError` at the end."""
        try:
            return next(self)
        except StopIteration:
            raise tf.errors.OutOfRangeError(None, None, "End of sequence") from None

    def get_next_as_optional(self) -> tf.experimental.Optional:
        """The next element as an optional, empty at the end."""
        try:
            return tf.experimental.Optional.from_value(next(self))
        except StopIteration:
            return tf.experimental.Optional.empty(self.element_spec)

    def close(self) -> None:
        """Give up the pass. Safe to call twice."""
        self._closed = True
        self._end()

    def __del__(self) -> None:
        self._end()

    def _refuse_tracing(self) -> None:
        if not tf.executing_eagerly():
            raise TracingError(
                "next() on the batches of a Loader inside a tf.function would bake one batch into the graph; "
                "call next() outside and pass the batch in, or iterate `dataset.map(lambda *e: e)` in the function"
            )

    def _fill(self, running: Pass) -> bool:
        began = time.perf_counter()
        try:
            arrays = next(self._windows)
        except StopIteration:
            self._end()
            self._closed = True
            return False
        except tf.errors.OpError:
            # TensorFlow hands on the text of an error only: raise the one that was raised.
            error = running.error
            self.close()
            if error is None:
                raise
            raise error from None
        finally:
            running.counters.add(wait_s=time.perf_counter() - began)
        self._ready.extend(split(arrays, self._batch_size, self._device))
        return True

    def _end(self) -> None:
        running, self._pass = self._pass, None
        if running is not None:
            running.close()
        self._windows = None
        self._ready.clear()


def split(arrays: Sequence[tf.Tensor], batch_size: int, device: str) -> list[Sequence[tf.Tensor]]:
    """Cut a window into batches on its device: a list of batches, each one tensor an array.

    One split per array, whose parts share the window's memory where they are aligned.
    """
    rows = arrays[0].shape[0]
    whole, rest = divmod(rows, batch_size)
    if whole + bool(rest) == 1:
        return [arrays]
    with tf.device(device):
        if rest:
            sizes = [batch_size] * whole + [rest]
            parts = [tf.split(array, sizes) for array in arrays]
        else:
            parts = [tf.split(array, whole) for array in arrays]
    return list(zip(*parts, strict=True))
