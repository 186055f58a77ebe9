"""Windows from NumPy to TensorFlow: to another device, or as tensors of the host where they lie."""

from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from oocloader.reading import ALIGNMENT, allocate


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
