"""Windows on their way to TensorFlow: where they lie, and who holds their memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from oocloader.reading.buffers import Pool, allocate
from recorded import device_of, eventually

pytestmark = pytest.mark.usefixtures("tf")


def test_windows_cross_to_the_device_and_not_before_the_first_is_asked_for(tf: Any) -> None:
    from oocloader.tfdata.crossing import cross

    made: list[int] = []

    def windows() -> Iterator[np.ndarray]:
        for number in range(6):
            made.append(number)
            yield np.full(4, number)

    with tf.device("/CPU:0"):
        source = tf.data.Dataset.from_generator(windows, output_signature=tf.TensorSpec((None,), tf.int64))
        crossed = iter(cross(source, "/CPU:1"))
    time.sleep(0.1)
    assert made == []
    first = next(crossed)
    assert first.numpy().tolist() == [0, 0, 0, 0]
    assert device_of(first) == "/CPU:1"
    # One is copied while one is used, and one more may be on its way.
    assert eventually(lambda: len(made) >= 2)
    time.sleep(0.1)
    assert len(made) <= 3
    assert [int(window[0]) for window in crossed] == [1, 2, 3, 4, 5]


def test_on_the_host_a_window_is_fetched_when_it_is_asked_for(tf: Any) -> None:
    from oocloader.tfdata.crossing import on_host

    made: list[int] = []

    def windows() -> Iterator[list[np.ndarray]]:
        for number in range(3):
            made.append(number)
            yield [np.full(4, number), np.full((4, 2), number, np.float32)]

    found = on_host(windows())
    assert made == []
    with tf.device("/CPU:1"):
        first = next(found)
    assert made == [0]
    assert [device_of(part) for part in first] == ["/CPU:0", "/CPU:0"]
    assert [[int(part[3]) for part in (x, y[:, 1])] for x, y in found] == [[1, 1], [2, 2]]


DTYPES = ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")


@pytest.mark.parametrize("code", DTYPES)
def test_a_tensor_borrows_memory(tf: Any, code: str) -> None:
    from oocloader.tfdata.crossing import borrowed

    array = allocate(24 * np.dtype(code).itemsize).view(code).reshape(2, 3, 4)
    array[...] = np.arange(24).reshape(2, 3, 4) % 2
    tensor = borrowed(array)
    assert tensor.dtype == tf.dtypes.as_dtype(np.dtype(code))
    assert tensor.shape == (2, 3, 4)
    assert np.array_equal(tensor.numpy(), array)
    array[1, 2, 3] = 0
    assert not tensor[1, 2, 3].numpy()


def test_memory_is_borrowed_for_as_long_as_a_part_of_it_is_used(tf: Any) -> None:
    from oocloader.tfdata.crossing import borrowed
    from oocloader.tfdata.slicing import cut_batches

    pool = Pool(8 * 64, keep=1)
    array = pool.take().reshape(8, 64)
    parts = cut_batches([borrowed(array)], 2, "/CPU:0")
    del array
    kept = parts[1][0]
    del parts
    assert len(pool._free) == 0
    del kept
    assert len(pool._free) == 1


@pytest.mark.parametrize("kind", ["unaligned", "read-only", "strided"])
def test_what_cannot_be_borrowed_is_copied(tf: Any, kind: str) -> None:
    from oocloader.tfdata.crossing import borrowed

    array = allocate(4096).view(np.int32)
    array[:] = np.arange(1024)
    if kind == "unaligned":
        array = array[3:]
    elif kind == "read-only":
        array.flags.writeable = False
    else:
        array = array[::2]
    tensor = borrowed(array)
    assert np.array_equal(tensor.numpy(), array)
    assert np.frombuffer(memoryview(tensor), np.int32).ctypes.data != array.ctypes.data


def test_a_window_of_the_host_is_let_go_before_the_next_is_awaited() -> None:
    from oocloader.tfdata.crossing import on_host

    pool = Pool(4096, keep=4)
    free: list[int] = []

    def windows() -> Iterator[tuple[np.ndarray, ...]]:
        for _ in range(3):
            free.append(len(pool._free))
            yield (pool.take(),)

    taken = on_host(windows())
    for _ in range(3):
        next(taken)
    assert free == [0, 1, 1]
