"""Batches of one pass after another: when passes begin, and how each ends."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from oocloader.errors import ClosedError, StoreError, TracingError
from oocloader.metrics.counters import Counters
from oocloader.pipeline import prefetch
from recorded import eventually

pytestmark = pytest.mark.usefixtures("tf")


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

        from oocloader.tfdata.batches import Batches

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
            starting=contextlib.nullcontext(),
        )


def listed(batches: Any) -> list[list[int]]:
    return [batch.numpy().tolist() for batch in batches]


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
    from oocloader.tfdata import batches as module

    fakes = Fakes([8, 8])
    batches = fakes.batches()
    next(batches)
    next(batches)
    no_memory = tf.errors.ResourceExhaustedError(None, None, "OOM when allocating")
    monkeypatch.setattr(module, "cut_batches", lambda *_: raising(no_memory)())
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
        ("a thread that reads", True),
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

    def work() -> None:
        prefetch._thread.reads = file == "a thread that reads"
        scope["work"]()

    thread = threading.Thread(target=work)
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


@pytest.mark.parametrize("file", ["script_ops.py", "from_generator_op.py"])
def test_settle_waits_for_threads_that_make_windows(file: str) -> None:
    from oocloader.tfdata.batches import settle

    began, end = threading.Event(), threading.Event()
    scope: dict[str, Any] = {"began": began, "end": end}
    exec(compile("def work():\n    began.set()\n    end.wait(10)", f"/somewhere/{file}", "exec"), scope)

    def work() -> None:
        prefetch._thread.reads = file == "a thread that reads"
        scope["work"]()

    thread = threading.Thread(target=work)
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
    from oocloader.tfdata.batches import settle

    end = threading.Event()
    scope: dict[str, Any] = {"end": end}
    exec(compile("def work(): end.wait(10)", "/somewhere/script_ops.py", "exec"), scope)
    thread = threading.Thread(target=scope["work"])
    thread.start()
    settle(0.1)
    assert thread.is_alive()
    end.set()
    thread.join(10)


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
