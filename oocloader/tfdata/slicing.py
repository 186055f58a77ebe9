"""Windows cut into batches on their device."""

import itertools
import threading
from collections.abc import Sequence

import tensorflow as tf

from oocloader.tfdata.device import is_host

# A GPU has kernels for these in the memory of the host alone, or none: their bytes travel as another type.
CARRIERS = {tf.int32: tf.float32, tf.uint32: tf.float32, tf.uint64: tf.int64}
# Where two threads slice at once on a device that is not the host, TensorFlow hands the kernel of one the
# begin or the end of the other (tensorflow/tensorflow#62523): rows were missing, doubled, or of others.
SLICING = threading.Lock()


def cut_batches(arrays: Sequence[tf.Tensor], batch_size: int, device: str) -> list[Sequence[tf.Tensor]]:
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
        array = tf.bitcast(array, CARRIERS[stored])
    with tf.device("/CPU:0"):
        at = [tf.constant([edge]) for edge in edges]
        step = tf.constant([1])
    with SLICING:
        parts = [
            tf.raw_ops.StridedSlice(input=array, begin=begin, end=end, strides=step)
            for begin, end in itertools.pairwise(at)
        ]
    return [tf.bitcast(part, stored) for part in parts] if stored == tf.int32 else parts
