"""Windows to batches on a device: where they lie, how they are cut, and how a run through them ends."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from oocloader.errors import ClosedError, SettingError, StoreError, TracingError
from oocloader.metrics.counters import Counters
from oocloader.reading.buffers import Pool, allocate
from recorded import device_of, eventually

pytestmark = pytest.mark.usefixtures("tf")


# -- names of devices


@pytest.mark.parametrize(
    ("named", "found"),
    [
        (None, "/CPU:0"),
        ("/CPU:0", "/CPU:0"),
        ("/CPU:1", "/CPU:1"),
        ("CPU:1", "/CPU:1"),
        ("/cpu:1", "/CPU:1"),
        ("/CPU", "/CPU:0"),
        ("/device:CPU:1", "/CPU:1"),
        ("/job:localhost/replica:0/task:0/device:CPU:1", "/CPU:1"),
    ],
)
def test_resolve(named: str | None, found: str) -> None:
    from oocloader.tfdata.device import resolve

    assert resolve(named) == found


@pytest.mark.parametrize(
    "named", ["/GPU:0", "/CPU:2", "gpu", "", "/", "nonsense", "/CPU:x", "/job:x/CPU:0", 1, ["/CPU:0"]]
)
def test_resolve_lists_the_devices_there_are(named: Any) -> None:
    from oocloader.tfdata.device import resolve

    with pytest.raises(SettingError) as caught:
        resolve(named)
    assert str(caught.value) == f"device={named!r} is not there; TensorFlow sees /CPU:0, /CPU:1"


# -- the crossing


def test_windows_cross_to_the_device_and_not_before_the_first_is_asked_for(tf: Any) -> None:
    from oocloader.tfdata.device import cross

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
    from oocloader.tfdata.device import on_host

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
    from oocloader.tfdata.device import borrowed

    array = allocate(24 * np.dtype(code).itemsize).view(code).reshape(2, 3, 4)
    array[...] = np.arange(24).reshape(2, 3, 4) % 2
    tensor = borrowed(array)
    assert tensor.dtype == tf.dtypes.as_dtype(np.dtype(code))
    assert tensor.shape == (2, 3, 4)
    assert np.array_equal(tensor.numpy(), array)
    array[1, 2, 3] = 0
    assert not tensor[1, 2, 3].numpy()


def test_memory_is_borrowed_for_as_long_as_a_part_of_it_is_used(tf: Any) -> None:
    from oocloader.tfdata.device import borrowed, split

    pool = Pool(8 * 64, keep=1)
    array = pool.take().reshape(8, 64)
    parts = split([borrowed(array)], 2, "/CPU:0")
    del array
    kept = parts[1][0]
    del parts
    assert len(pool._free) == 0
    del kept
    assert len(pool._free) == 1


@pytest.mark.parametrize("kind", ["unaligned", "read-only", "strided"])
def test_what_cannot_be_borrowed_is_copied(tf: Any, kind: str) -> None:
    from oocloader.tfdata.device import borrowed

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


# -- cutting


@pytest.mark.parametrize("device", ["/CPU:0", "/CPU:1"])
@pytest.mark.parametrize(
    ("rows", "batch_size", "sizes"),
    [(12, 4, [4, 4, 4]), (10, 4, [4, 4, 2]), (4, 4, [4]), (3, 4, [3]), (1, 1, [1]), (3, 1, [1, 1, 1])],
)
def test_split(tf: Any, device: str, rows: int, batch_size: int, sizes: list[int]) -> None:
    from oocloader.tfdata.device import split

    with tf.device(device):
        x = tf.reshape(tf.range(rows * 6, dtype=tf.float32), (rows, 2, 3))
        y = tf.range(rows, dtype=tf.int64)
    batches = split([x, y], batch_size, device)
    assert [len(batch) for batch in batches] == [2] * len(sizes)
    assert [part.shape[0] for part, _ in batches] == sizes
    np.testing.assert_array_equal(np.concatenate([part.numpy() for part, _ in batches]), x.numpy())
    np.testing.assert_array_equal(np.concatenate([part.numpy() for _, part in batches]), np.arange(rows))
    assert {device_of(tensor) for batch in batches for tensor in batch} == {device}


@pytest.mark.parametrize("device", ["/CPU:0", "/CPU:1"])
def test_threads_that_slice_at_once_get_their_own_rows(tf: Any, device: str) -> None:
    """Three at a time: TensorFlow gave the begin and end of one to another, in one of a hundred slices."""
    from oocloader.tfdata.device import DeviceRows, split

    rows = np.arange(130, dtype=np.int64)
    wrong: list[Any] = []

    def slice_and_put() -> None:
        try:
            for _ in range(60):
                with tf.device(device):
                    window = tf.identity(rows)
                parts = [part.numpy() for (part,) in split([window], 13, device)]
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


def test_split_copies_nothing_that_is_aligned(tf: Any) -> None:
    from oocloader.tfdata.device import split

    window = tf.zeros((8, 64), tf.uint8)

    def address(tensor: Any) -> int:
        return int(np.frombuffer(memoryview(tensor), np.uint8).ctypes.data)

    parts = [batch[0] for batch in split([window], 2, "/CPU:0")]
    assert [address(part) - address(window) for part in parts] == [0, 128, 256, 384]


# -- batches


class FakePass:
    """Stands for a pass: counts how often it was ended."""

    def __init__(self, batches: int, *, start: int = 0) -> None:
        self.batches = batches
        self.start = start
        self.short = start > 0
        self.counters = Counters()
        self.error: BaseException | None = None
        self.closed_by: list[int] = []

    def take_batches(self) -> bool:
        self.counters.batches += 1
        return self.start + self.counters.batches >= self.batches

    def close(self) -> None:
        self.closed_by.append(threading.get_ident())


class Fakes:
    """Passes of `sizes` windows each. A window is called, where it can be, for what happens instead."""

    def __init__(self, windows: Sequence[int | Callable[[], Any]]) -> None:
        self.windows = windows
        self.passes: list[FakePass] = []
        self.asked = 0
        self.chunk_origins: list[int] = []
        self.count = 0

    def begin(self) -> tuple[FakePass, Iterator[Any]]:
        self.passes.append(FakePass(self.count, start=self.chunk_origins.pop(0) if self.chunk_origins else 0))
        return self.passes[-1], iter(self._windows())

    def _windows(self) -> Iterator[Any]:
        import tensorflow as tf

        at = 0
        for window in self.windows:
            self.asked += 1
            if callable(window):
                window()
                continue
            yield (tf.range(at, at + window, dtype=tf.int64),)
            at += window

    def batches(self, *, passes: int | None = 1, batch_size: int = 4, batches: int | None = None) -> Any:
        import tensorflow as tf

        from oocloader.tfdata.device import Batches

        total = sum(window for window in self.windows if isinstance(window, int))
        self.count = -(-total // batch_size) if batches is None else batches
        return Batches(
            self.begin,  # type: ignore[arg-type]  # a fake
            lambda arrays, running, number: arrays[0],
            owner=self,
            passes=passes,
            batch_size=batch_size,
            device="/CPU:0",
            element_spec=tf.TensorSpec((None,), tf.int64),
        )


def listed(batches: Any) -> list[list[int]]:
    return [batch.numpy().tolist() for batch in batches]


def test_a_window_of_the_host_is_let_go_before_the_next_is_awaited() -> None:
    from oocloader.tfdata.device import on_host

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


def test_a_pass_begins_with_the_first_next_and_ends_with_its_last_batch() -> None:
    fakes = Fakes([8, 2])
    batches = fakes.batches()
    assert iter(batches) is batches
    assert fakes.passes == []
    assert next(batches).numpy().tolist() == [0, 1, 2, 3]
    assert len(fakes.passes) == 1
    assert next(batches).numpy().tolist() == [4, 5, 6, 7]
    assert fakes.passes[0].closed_by == []
    # Nobody asks for one more: the pass is over now.
    assert next(batches).numpy().tolist() == [8, 9]
    assert len(fakes.passes[0].closed_by) == 1
    assert fakes.asked == 2
    assert fakes.passes[0].counters.batches == 3
    with pytest.raises(StopIteration):
        next(batches)
    assert len(fakes.passes) == 1


def test_passes_follow_one_another() -> None:
    fakes = Fakes([4, 3])
    assert listed(fakes.batches(passes=3)) == [[0, 1, 2, 3], [4, 5, 6]] * 3
    assert [len(running.closed_by) for running in fakes.passes] == [1, 1, 1]
    endless = fakes.batches(passes=None)
    for _ in range(20):
        assert next(endless).numpy()[0] == 0
        assert next(endless).numpy()[0] == 4
    assert len(fakes.passes) == 23


def test_get_next(tf: Any) -> None:
    batches = Fakes([6]).batches()
    assert batches.get_next().numpy().tolist() == [0, 1, 2, 3]
    last = batches.get_next_as_optional()
    assert last.has_value()
    assert last.get_value().numpy().tolist() == [4, 5]
    for _ in range(2):
        with pytest.raises(tf.errors.OutOfRangeError, match="End of sequence"):
            batches.get_next()
        none = batches.get_next_as_optional()
        assert not none.has_value()
        assert none.element_spec == batches.element_spec


@pytest.mark.parametrize("take", [next, lambda it: it.get_next(), lambda it: it.get_next_as_optional()])
@pytest.mark.parametrize("autograph", [False, True])
def test_a_batch_is_not_baked_into_a_graph(tf: Any, take: Callable[[Any], Any], autograph: bool) -> None:
    fakes = Fakes([8])
    batches = fakes.batches()

    @tf.function(autograph=autograph)  # type: ignore[untyped-decorator]  # tensorflow has no type information
    def step() -> Any:
        return take(batches)

    with pytest.raises(TracingError, match=r"call next\(\) outside and pass the batch in, or loop over"):
        step()
    assert fakes.passes == []
    assert listed(batches) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def raising(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


@pytest.mark.parametrize("error", [ValueError("no"), MemoryError(), KeyboardInterrupt(), GeneratorExit()])
def test_whatever_stops_a_window_ends_the_iterator(error: BaseException) -> None:
    """Going on behind it would leave rows out."""
    fakes = Fakes([4, raising(error), 4])
    batches = fakes.batches(passes=None)
    next(batches)
    with pytest.raises(type(error)) as caught:
        next(batches)
    assert caught.value is error
    assert len(fakes.passes[0].closed_by) == 1
    for _ in range(2):
        with pytest.raises(StopIteration):
            next(batches)
    assert len(fakes.passes) == 1


def test_a_window_that_cannot_be_cut_ends_the_iterator(tf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from oocloader.tfdata import device

    fakes = Fakes([8, 8])
    batches = fakes.batches()
    next(batches)
    next(batches)
    no_memory = tf.errors.ResourceExhaustedError(None, None, "OOM when allocating")
    monkeypatch.setattr(device, "split", lambda *_: raising(no_memory)())
    with pytest.raises(tf.errors.ResourceExhaustedError):
        next(batches)
    assert len(fakes.passes[0].closed_by) == 1
    with pytest.raises(StopIteration):
        next(batches)


@pytest.mark.parametrize("known", [False, True])
def test_the_error_that_was_raised_comes_out_and_not_its_text(tf: Any, known: bool) -> None:
    text = tf.errors.UnknownError(None, None, "StoreError: x.npy: gone")
    original = StoreError("x.npy: gone")
    fakes = Fakes([4])

    def fail() -> None:
        fakes.passes[0].error = original if known else None
        raise text

    fakes.windows = [4, fail]
    batches = fakes.batches(batches=2)
    next(batches)
    with pytest.raises(StoreError if known else tf.errors.UnknownError) as caught:
        next(batches)
    assert caught.value is (original if known else text)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ is known


def test_a_short_pass_just_ends() -> None:
    fakes = Fakes([4])
    batches = fakes.batches(batches=3, passes=2)
    assert listed(batches) == [[0, 1, 2, 3]]
    assert len(fakes.passes[0].closed_by) == 1


def test_an_empty_pass() -> None:
    assert listed(Fakes([]).batches(passes=None)) == []


def test_close() -> None:
    fakes = Fakes([4, 4])
    batches = fakes.batches()
    next(batches)
    batches.close()
    batches.close()
    assert len(fakes.passes[0].closed_by) == 1
    for take in (lambda: next(batches), batches.get_next, batches.get_next_as_optional):
        with pytest.raises(ClosedError, match="closed before its pass was over"):
            take()


def test_closed_while_another_thread_waits_for_a_window() -> None:
    waiting, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        waiting.set()
        go_on.wait(10)

    fakes = Fakes([wait])
    batches = fakes.batches(batches=2)
    raised: list[BaseException] = []

    def take() -> None:
        try:
            next(batches)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=take)
    thread.start()
    assert waiting.wait(10)
    batches.close()
    go_on.set()
    thread.join(10)
    assert [type(error) for error in raised] == [ClosedError]


def test_an_abandoned_iterator_ends_its_pass() -> None:
    fakes = Fakes([4, 4])
    batches = fakes.batches()
    next(batches)
    del batches
    assert fakes.passes[0].closed_by == [threading.get_ident()]
    # One that never began has none.
    fakes.batches()
    assert len(fakes.passes) == 1


@pytest.mark.parametrize(
    ("file", "elsewhere"),
    [
        ("oocloader/pipeline/prefetch.py", True),
        ("from_generator_op.py", True),
        ("script_ops.py", True),
        ("train.py", False),
    ],
)
def test_the_garbage_collector_ends_a_pass_but_never_waits_in_a_thread_that_makes_windows(
    file: str, elsewhere: bool
) -> None:
    fakes = Fakes([4, 4])
    batches = fakes.batches()
    next(batches)
    cycle = [batches]
    cycle.append(cycle)
    del batches, cycle
    scope: dict[str, Any] = {"collect": gc.collect}
    exec(compile("def work(): collect()", f"/somewhere/{file}", "exec"), scope)
    thread = threading.Thread(target=scope["work"])
    thread.start()
    thread.join(10)
    assert eventually(lambda: fakes.passes[0].closed_by)
    assert (fakes.passes[0].closed_by[0] != thread.ident) is elsewhere


def test_only_a_new_window_is_waited_for() -> None:
    fakes = Fakes([8, 4])
    batches = fakes.batches()
    next(batches)
    waited = fakes.passes[0].counters.wait_s
    assert waited > 0
    next(batches)
    assert fakes.passes[0].counters.wait_s == waited
    next(batches)
    assert fakes.passes[0].counters.wait_s > waited


# -- the end of the interpreter


@pytest.mark.parametrize("file", ["script_ops.py", "from_generator_op.py"])
def test_settle_waits_for_threads_that_make_windows(file: str) -> None:
    from oocloader.tfdata.device import settle

    began, end = threading.Event(), threading.Event()
    scope: dict[str, Any] = {"began": began, "end": end}
    exec(compile("def work():\n    began.set()\n    end.wait(10)", f"/somewhere/{file}", "exec"), scope)
    thread = threading.Thread(target=scope["work"])
    thread.start()
    assert began.wait(10)
    settled = threading.Thread(target=settle, args=(10.0,))
    settled.start()
    settled.join(0.3)
    assert settled.is_alive()
    end.set()
    settled.join(5)
    assert not settled.is_alive()
    thread.join(10)


def test_settle_gives_up() -> None:
    from oocloader.tfdata.device import settle

    end = threading.Event()
    scope: dict[str, Any] = {"end": end}
    exec(compile("def work(): end.wait(10)", "/somewhere/script_ops.py", "exec"), scope)
    thread = threading.Thread(target=scope["work"])
    thread.start()
    settle(0.1)
    assert thread.is_alive()
    end.set()
    thread.join(10)


# -- a pass that starts in the middle


def test_a_short_pass_simply_ends_in_a_loop() -> None:
    fakes = Fakes([8])
    fakes.chunk_origins = [3]
    batches = fakes.batches(batches=5)
    assert listed(batches) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert next(batches, "end") == "end"


def test_the_pass_after_a_short_one_is_whole() -> None:
    fakes = Fakes([8])
    fakes.chunk_origins = [1]
    assert len(listed(fakes.batches(batches=2, passes=2))) == 3


@pytest.mark.parametrize("module", ["keras.src.backend.tensorflow.trainer", "keras"])
def test_keras_is_told_of_the_end_in_its_own_way(tf: Any, module: str) -> None:
    """A bare StopIteration in its training step raises UnboundLocalError there."""

    def asked(batches: Any) -> Any:
        # As Keras takes batches: next() called in C from one of its functions.
        caller: dict[str, Any] = {"__name__": module}
        exec("def step(batches):\n    for _, batch in zip(range(1), batches):\n        return batch", caller)
        return caller["step"](batches)

    fakes = Fakes([8])
    fakes.chunk_origins = [3]
    batches = fakes.batches(batches=5)
    assert asked(batches).numpy().tolist() == [0, 1, 2, 3]
    assert asked(batches).numpy().tolist() == [4, 5, 6, 7]
    with pytest.raises(tf.errors.OutOfRangeError):
        asked(batches)
    # Not after a whole pass, of which Keras asks for no more than there is.
    whole = Fakes([8]).batches()
    assert [asked(whole) is None for _ in range(3)] == [False, False, True]
