"""Windows cut into batches: the right rows, on the same device."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from recorded import device_of

pytestmark = pytest.mark.usefixtures("tf")


@pytest.mark.parametrize("device", ["/CPU:0", "/CPU:1"])
@pytest.mark.parametrize(
    ("rows", "batch_size", "sizes"),
    [(12, 4, [4, 4, 4]), (10, 4, [4, 4, 2]), (4, 4, [4]), (3, 4, [3]), (1, 1, [1]), (3, 1, [1, 1, 1])],
)
def test_cut_batches(tf: Any, device: str, rows: int, batch_size: int, sizes: list[int]) -> None:
    from oocloader.tfdata.slicing import cut_batches

    with tf.device(device):
        x = tf.reshape(tf.range(rows * 6, dtype=tf.float32), (rows, 2, 3))
        y = tf.range(rows, dtype=tf.int64)
    batches = cut_batches([x, y], batch_size, device)
    assert [len(batch) for batch in batches] == [2] * len(sizes)
    assert [part.shape[0] for part, _ in batches] == sizes
    np.testing.assert_array_equal(np.concatenate([part.numpy() for part, _ in batches]), x.numpy())
    np.testing.assert_array_equal(np.concatenate([part.numpy() for _, part in batches]), np.arange(rows))
    assert {device_of(tensor) for batch in batches for tensor in batch} == {device}


@pytest.mark.parametrize("device", ["/CPU:0", "/CPU:1"])
def test_threads_that_slice_at_once_get_their_own_rows(tf: Any, device: str) -> None:
    """Three at a time: TensorFlow gave the begin and end of one to another, in one of a hundred slices."""
    from oocloader.tfdata.device_rows import DeviceRows
    from oocloader.tfdata.slicing import cut_batches

    rows = np.arange(130, dtype=np.int64)
    wrong: list[Any] = []

    def slice_and_put() -> None:
        try:
            for _ in range(60):
                with tf.device(device):
                    window = tf.identity(rows)
                parts = [part.numpy() for (part,) in cut_batches([window], 13, device)]
                if not np.array_equal(parts, rows.reshape(10, 13)):
                    wrong.append(parts)
                kept = DeviceRows([(rows.shape, rows.dtype)], device)
                for first in range(0, len(rows), 13):
                    kept.put(first, [rows[first : first + 13]])
                (found,) = kept.gather(tf.constant(rows))
                if not np.array_equal(found, rows):
                    wrong.append(found)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=slice_and_put) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_cut_batches_copies_nothing_that_is_aligned(tf: Any) -> None:
    from oocloader.tfdata.slicing import cut_batches

    window = tf.zeros((8, 64), tf.uint8)

    def address(tensor: Any) -> int:
        return int(np.frombuffer(memoryview(tensor), np.uint8).ctypes.data)

    parts = [batch[0] for batch in cut_batches([window], 2, "/CPU:0")]
    assert [address(part) - address(window) for part in parts] == [0, 128, 256, 384]
