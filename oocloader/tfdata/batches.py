"""Batches of a loader, one after another, on its device.

TensorFlow's eager operations are called from the consumer's thread alone.
"""

from __future__ import annotations

import _thread
import collections
import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any

import tensorflow as tf

from oocloader.errors import ClosedError, TracingError, in_forked_child
from oocloader.pipeline import EpochPass, in_read_thread
from oocloader.tfdata.slicing import cut_batches

# Files whose functions are on the stack of a thread of TensorFlow's that makes windows.
_GENERATOR = ("from_generator_op.py", "script_ops.py")


class Batches(Iterator[Any]):
    """The batches of `passes` one after another, on `device`. Starts nothing before the first `next`.

    `begin()` gives the next pass with the iterator of its device windows; `make_element(arrays, running,
    number)` makes an element of batch number `number` of the pass. `starting` is held from there until the
    first window came. `owner` is kept alive.
    """

    def __init__(
        self,
        begin: Callable[[], tuple[EpochPass, Iterator[Any]]],
        make_element: Callable[[Sequence[tf.Tensor], EpochPass, int], Any],
        *,
        owner: object,
        passes: int | None,
        batch_size: int,
        device: str,
        element_spec: Any,
        starting: AbstractContextManager[object],
    ) -> None:
        self._running: tuple[EpochPass, Iterator[Any]] | None = None
        self._process = os.getpid()
        self._begin = begin
        self._make_element = make_element
        self._owner = owner
        self._starting = starting
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
                with self._starting:
                    self._running = self._begin()
                    # To begin is to wait for the first window.
                    self._running[0].counters.add(wait_s=time.perf_counter() - asked)
                    self._cut_next(*self._running)
            running, windows = self._running
            if not self._ready:
                self._cut_next(running, windows)
            batch = self._ready.popleft()
            number = running.start + running.counters.batches
            try:
                # Before it counts as delivered: what goes on from here must begin with this one if it fails.
                element = self._make_element(batch, running, number)
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
        elif in_read_thread() or _runs(sys._getframe(), _GENERATOR):
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

    def _cut_next(self, running: EpochPass, windows: Iterator[Any]) -> None:
        began = time.perf_counter()
        try:
            arrays = next(windows)
            running.counters.add(wait_s=time.perf_counter() - began)
            self._ready.extend(cut_batches(arrays, self._batch_size, self._device))
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
        frames = sys._current_frames()
        del frames[_thread.get_ident()]
        busy = any(_runs(frame, _GENERATOR) for frame in frames.values())
        quiet = 0 if busy else quiet + 1
