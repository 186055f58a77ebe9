"""Windows to batches on a device.

`from_generator` carries windows from the host to another device, which gets them whole; on the host itself
they are in their place already. Batches are cut there. TensorFlow's eager operations are called from the
consumer's thread alone.
"""

from __future__ import annotations

import _thread
import collections
import ctypes
import itertools
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

import numpy as np
import tensorflow as tf

from oocloader.errors import ClosedError, SettingError, TracingError, in_forked_child
from oocloader.pipeline import EpochPass
from oocloader.reading import ALIGNMENT, allocate
from oocloader.tfdata import gpu_memory

# Files whose functions are on the stack of a thread that makes windows: TensorFlow's, and the readers'.
_GENERATOR = ("from_generator_op.py", "script_ops.py")
_READERS = ("oocloader/pipeline/prefetch.py",)
# A GPU has kernels for these in the memory of the host alone, or none: their bytes travel as another type.
_CARRIED = {tf.int32: tf.float32, tf.uint32: tf.float32, tf.uint64: tf.int64}
# Where two threads slice at once on a device that is not the host, TensorFlow hands the kernel of one the
# begin or the end of the other (tensorflow/tensorflow#62523): rows were missing, doubled, or of others.
_slicing = threading.Lock()


def resolve(device: str | None) -> str:
    """The device to deliver to, such as ``/GPU:0``; None: the first GPU where TensorFlow sees one.

    Raises `SettingError`, listing the devices there are.
    """
    if device is None:
        return "/GPU:0" if tf.config.list_logical_devices("GPU") else "/CPU:0"
    known = [found.name.removeprefix("/device:") for found in tf.config.list_logical_devices()]
    wanted = None
    if isinstance(device, str):
        try:
            spec = tf.DeviceSpec.from_string(device if device.startswith("/") else f"/{device}")
            here = spec.job in (None, "localhost") and not spec.task and not spec.replica
            wanted = f"{spec.device_type}:{spec.device_index or 0}" if spec.device_type and here else None
        except ValueError:
            pass
    if wanted not in known:
        listed = ", ".join(f"/{name}" for name in known)
        raise SettingError(f"device={device!r} is not there; TensorFlow sees {listed}")
    return f"/{wanted}"


def expected(device: str | None) -> str:
    """What `resolve` will give for a device that was checked, without taking hold of a GPU."""
    if device is not None:
        return device
    return "/GPU:0" if tf.config.get_visible_devices("GPU") else "/CPU:0"


def memory_nbytes(device: str) -> int | None:
    """Bytes of memory that there are on a GPU, None where nobody tells.

    As limited by `tf.config.set_logical_device_configuration`, or the whole of it. Takes hold of no GPU.
    """
    found: list[tuple[int, float | None]] = []
    for physical in tf.config.get_visible_devices("GPU"):
        number = int(physical.name.rpartition(":")[2])
        parts = tf.config.get_logical_device_configuration(physical) or [None]
        found += [(number, None if part is None else part.memory_limit) for part in parts]
    at = int(device.rpartition(":")[2])
    number, limit_mib = found[at] if at < len(found) else (at, None)
    total = gpu_memory.total_nbytes(number)
    if limit_mib is None:
        return total
    limit = int(limit_mib * 2**20)
    return limit if total is None else min(limit, total)


def cross(windows: tf.data.Dataset, device: str) -> tf.data.Dataset:
    """Windows on `device`, not the host: the next is copied in the background while one is used.

    Replace this function to cross another way; `tools/gpu_check.py` compares the kinds of host memory.
    """
    options = tf.data.Options()
    # There is nothing to tune or to rewrite, and an iterator that tunes waits up to its period when dropped.
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    windows = windows.with_options(options)
    return windows.apply(tf.data.experimental.prefetch_to_device(device, 1))


def on_host(windows: Iterator[Sequence[np.ndarray]]) -> Iterator[Sequence[tf.Tensor]]:
    """Windows as tensors of the host, in the memory that they lie in.

    An iterator of tf.data's hands the same memory on, but through several threads: 360 microseconds a window
    and 10 milliseconds for the first were measured, where this takes 2 microseconds.
    """
    for arrays in windows:
        yield tuple(borrowed(array) for array in arrays)
        # While the next is awaited, nothing here keeps this memory from being used again.
        del arrays


def borrowed(array: np.ndarray) -> tf.Tensor:
    """A tensor in the memory of `array`, which it keeps alive, or of a copy that TensorFlow can use."""
    # TensorFlow ends the process over an address that is no multiple of this.
    if array.ctypes.data % ALIGNMENT or not array.flags.c_contiguous or not array.flags.writeable:
        copy = allocate(array.nbytes).view(array.dtype).reshape(array.shape)
        copy[...] = array
        array = copy
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())


def is_host(device: str) -> bool:
    """Whether batches stay where the windows are."""
    return device == "/CPU:0"


class Batches(Iterator[Any]):
    """The batches of `passes` one after another, on `device`. Starts nothing before the first `next`.

    `begin()` gives the next pass with the iterator of its device windows; `finish(batch, running, number)`
    makes an element of one batch of every array, number `number` of the pass. `owner` is kept alive.
    """

    def __init__(
        self,
        begin: Callable[[], tuple[EpochPass, Iterator[Any]]],
        finish: Callable[[Sequence[tf.Tensor], EpochPass, int], Any],
        *,
        owner: object,
        passes: int | None,
        batch_size: int,
        device: str,
        element_spec: Any,
    ) -> None:
        self._running: tuple[EpochPass, Iterator[Any]] | None = None
        self._process = os.getpid()
        self._begin = begin
        self._finish = finish
        self._owner = owner
        self._left = passes
        self._batch_size = batch_size
        self._short = False
        self._device = device
        self._ready: collections.deque[Sequence[tf.Tensor]] = collections.deque()
        self._closed = False
        # A signal handler may ask in the middle of `next`: it gets an error, and does not wait for ever.
        self._taking = threading.RLock()
        self.element_spec = element_spec

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Any:
        self._refuse()
        # A pass is a generator, which two threads must not enter at once.
        with self._taking:
            if self._closed:
                raise _gave_up()
            asked = time.perf_counter()
            if self._running is None:
                if self._left == 0:
                    if self._short and _asks_keras():
                        # Keras asks for as many batches as a whole pass has, and fails at the other.
                        raise tf.errors.OutOfRangeError(None, None, "End of sequence")
                    raise StopIteration
                self._running = self._begin()
                # To begin is to wait for the first window.
                self._running[0].counters.add(wait_s=time.perf_counter() - asked)
            running, windows = self._running
            if not self._ready:
                self._fill(running, windows)
            batch = self._ready.popleft()
            number = running.start + running.counters.batches
            try:
                # Before it counts as delivered: what goes on from here must begin with this one if it fails.
                element = self._finish(batch, running, number)
            except BaseException:
                # A batch is missing: what comes behind it must not pass for the rest.
                self._end(0)
                raise
            # A pass is over with its last batch: nobody may ask for one more.
            if running.take_batches():
                self._short = self._short or running.short
                self._end(None if self._left is None else self._left - 1)
            running.counters.delivered(asked, time.perf_counter())
            return element

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
        """Give up the pass; `next` raises `ClosedError` from now on. Safe to call twice."""
        self._closed = True
        self._end(self._left)

    def __del__(self) -> None:
        running, self._running = self._running, None
        if running is None:
            return
        if os.getpid() != self._process:
            # To let go of what belongs to the parent would wait for threads that are not here.
            _never_free(running)
        elif _runs(sys._getframe(), _GENERATOR + _READERS):
            # The garbage collector runs in any thread: one that may be waited for must not wait itself.
            try:
                _thread.start_new_thread(_give_up, running)
            except RuntimeError:  # the interpreter is about to go
                _never_free(running)
        else:
            _give_up(*running)

    def _refuse(self) -> None:
        if not tf.executing_eagerly():
            raise TracingError(
                "next() on the batches of a Loader inside a tf.function would bake one batch into the graph: "
                "call next() outside and pass the batch in, or loop over `loader.dataset()` in the function"
            )
        if os.getpid() != self._process:
            raise in_forked_child("batches of a Loader cannot be taken")
        if self._closed:
            raise _gave_up()

    def _fill(self, running: EpochPass, windows: Iterator[Any]) -> None:
        began = time.perf_counter()
        try:
            arrays = next(windows)
            running.counters.add(wait_s=time.perf_counter() - began)
            self._ready.extend(split(arrays, self._batch_size, self._device))
        except BaseException as raised:
            # What has failed, or was interrupted, lacks rows: it must not go on behind them.
            self._end(0)
            if self._closed:
                self._refuse()
            if isinstance(raised, tf.errors.OpError) and running.error is not None:
                # TensorFlow hands on the text of an error only: raise the one that was raised.
                raise running.error from None
            raise

    def _end(self, left: int | None) -> None:
        self._left = left
        self._ready.clear()
        running, self._running = self._running, None
        if running is not None:
            _give_up(*running)


def _gave_up() -> ClosedError:
    return ClosedError("the Loader was closed before its pass was over; make another one")


def _asks_keras() -> bool:
    """Whether `next` is called by Keras."""
    caller = sys._getframe(2)
    return caller.f_globals.get("__name__", "").partition(".")[0] in ("keras", "tf_keras")


def _give_up(running: EpochPass, windows: Iterator[Any]) -> None:
    """End a pass. With the last reference to `windows`, TensorFlow waits for its threads that make them."""
    running.close()
    del windows


def _never_free(running: tuple[EpochPass, Iterator[Any]]) -> None:
    """Keep windows beyond the end of the interpreter, which empties every list."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(running))


def _runs(frame: FrameType | None, files: tuple[str, ...]) -> bool:
    """Whether the stack that ends in `frame` has a function of one of `files`."""
    while frame is not None:
        if frame.f_code.co_filename.endswith(files):
            return True
        frame = frame.f_back
    return False


def settle(timeout_s: float) -> None:
    """Wait until no thread of TensorFlow's is in Python to make a window, at most `timeout_s`.

    The end of the interpreter ends such a thread, and TensorFlow then waits for it for ever.
    """
    until = time.monotonic() + timeout_s
    quiet = 0
    # One that waits for the interpreter's lock has no frame yet: a pause lets it in, to be seen or be gone.
    while quiet < 3 and time.monotonic() < until:
        time.sleep(0.01)
        own = _thread.get_ident()
        busy = any(_runs(frame, _GENERATOR) for ident, frame in sys._current_frames().items() if ident != own)
        quiet = 0 if busy else quiet + 1


def split(arrays: Sequence[tf.Tensor], batch_size: int, device: str) -> list[Sequence[tf.Tensor]]:
    """Cut a window into batches on its device: a list of batches, each one tensor an array.

    The parts share the window's memory where they are aligned. On the host one split an array is quickest.
    A GPU splits only floats: anything else would silently go through the host, and come back there.
    """
    rows = arrays[0].shape[0]
    whole, rest = divmod(rows, batch_size)
    if whole + bool(rest) == 1:
        return [arrays]
    with tf.device(device):
        if not is_host(device):
            edges = [*range(0, rows, batch_size), rows]
            parts = [_slices(array, edges) for array in arrays]
        elif rest:
            sizes = [batch_size] * whole + [rest]
            parts = [tf.split(array, sizes) for array in arrays]
        else:
            parts = [tf.split(array, whole) for array in arrays]
    return list(zip(*parts, strict=True))


def _slices(array: tf.Tensor, edges: Sequence[int]) -> list[tf.Tensor]:
    """The rows between each two of `edges`. The operation itself: `array[a:b]` takes five times as long."""
    stored = array.dtype
    if stored == tf.int32:
        array = tf.bitcast(array, _CARRIED[stored])
    with tf.device("/CPU:0"):
        at = [tf.constant([edge]) for edge in edges]
        step = tf.constant([1])
    with _slicing:
        found = [
            tf.raw_ops.StridedSlice(input=array, begin=begin, end=end, strides=step)
            for begin, end in itertools.pairwise(at)
        ]
    return [tf.bitcast(part, stored) for part in found] if stored == tf.int32 else found


class DeviceRows:
    """All rows of every array on `device`: put there window by window, gathered batch by batch.

    `specs` are each array's rows with their sample shape, and dtype.
    """

    def __init__(self, specs: Sequence[tuple[tuple[int, ...], np.dtype]], device: str) -> None:
        self._device = device
        self._stored = [tf.dtypes.as_dtype(dtype) for _, dtype in specs]
        self._carriers = [_CARRIED.get(stored, stored) for stored in self._stored]
        with tf.device(device):
            # Filled in place, so that there is never a second copy.
            self._rows = [
                tf.Variable(tf.zeros(shape, carrier), trainable=False)
                for (shape, _), carrier in zip(specs, self._carriers, strict=True)
            ]
        self._nbytes = sum(variable.dtype.size * math.prod(variable.shape) for variable in self._rows)

    @property
    def nbytes(self) -> int:
        """Memory of all rows on the device."""
        return int(self._nbytes)

    def put(self, first: int, arrays: Sequence[np.ndarray]) -> None:
        """Copy rows of every array to the device, the first of them to row `first`."""
        for variable, carrier, array in zip(self._rows, self._carriers, arrays, strict=True):
            if not array.size:
                continue
            with tf.device("/CPU:0"):
                value = tf.convert_to_tensor(array.view(carrier.as_numpy_dtype))
                begin, end, step = (tf.constant([at]) for at in (first, first + len(array), 1))
            with tf.device(self._device), _slicing:
                # The operation itself: `variable[a:b].assign` would copy all rows first.
                tf.raw_ops.ResourceStridedSliceAssign(
                    ref=variable.handle, begin=begin, end=end, strides=step, value=value
                )

    def close(self) -> None:
        """Let go of the rows. Batches that were gathered have memory of their own."""
        self._rows = []

    def gather(self, numbers: tf.Tensor) -> list[tf.Tensor]:
        """The rows of these numbers, int64, of every array."""
        found = []
        with tf.device(self._device):
            if not self._rows:
                raise ClosedError("the Loader is closed; make another one")
            rows_of = zip(self._rows, self._carriers, self._stored, strict=True)
            for variable, carrier, stored in rows_of:
                # A GPU gathers bytes from a variable only, not from a tensor.
                rows = tf.raw_ops.ResourceGather(resource=variable.handle, indices=numbers, dtype=carrier)
                found.append(rows if carrier == stored else tf.bitcast(rows, stored))
        return found
