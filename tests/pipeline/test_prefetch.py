"""Threads that prepare stages: in order, not too many ahead, errors in their place, gone in the end."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pytest

from oocloader.errors import ClosedError
from oocloader.order.order import Order, RowSet
from oocloader.order.row_spans import RowSpan
from oocloader.pipeline.prefetch import Prefetcher
from oocloader.pipeline.stage_plan import StagePlan
from oocloader.pipeline.staging import Stage
from oocloader.reading.jobs import Job
from oocloader.reading.shared_chunks import Band, SharedChunks

# How long anything may take that should take no time, on a machine that does other things too.
PATIENCE_S = 10.0
# How soon threads must be gone.
CLOSE_S = 2.0


def our_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("oocloader-read")]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    assert our_threads() == []
    yield
    assert our_threads() == []


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.002)
    return holds()


class Stages:
    """Stages 0, 1, 2, ... of some jobs each: records how far they were prepared and which jobs are done.

    `actions`: what job `(stage, job)` does besides; `preparing`: what preparing a stage does besides.
    """

    def __init__(
        self,
        count: int,
        jobs: int = 2,
        *,
        actions: dict[tuple[int, int], Job] | None = None,
        preparing: dict[int, Job] | None = None,
    ) -> None:
        self.count = count
        self.done: list[tuple[int, int]] = []
        self.prepared = 0
        self.taken = 0
        self.most_ahead = 0
        self.arrays: list[weakref.ref[np.ndarray]] = []
        self._jobs = jobs
        self._actions = actions or {}
        self._preparing = preparing or {}

    def __iter__(self) -> Iterator[Stage]:
        for number in range(self.count):
            self.most_ahead = max(self.most_ahead, self.prepared + 1 - self.taken)
            self._preparing.get(number, lambda: None)()
            yield self._stage(number)
            self.prepared += 1

    def _stage(self, number: int) -> Stage:
        array = np.full(3, number)
        self.arrays.append(weakref.ref(array))
        plan = StagePlan((), 0, 0, 3, number)
        return Stage(plan, [array], [True], [self._job(number, job, array) for job in range(self._jobs)])

    def _job(self, number: int, job: int, array: np.ndarray) -> Job:
        def run() -> None:
            self._actions.get((number, job), lambda: None)()
            assert array[0] == number
            self.done.append((number, job))

        return run

    def prefetch_windows(
        self, *, threads: int = 2, prefetch_windows: int = 2, cancel: Callable[[], None] = lambda: None
    ) -> Prefetcher:
        return Prefetcher(iter(self), threads=threads, prefetch_windows=prefetch_windows, cancel=cancel)

    def take(self, reading: Prefetcher) -> int:
        """The number of the next stage."""
        stage = next(reading)
        self.taken += 1
        (array,), _ = stage.take_batches([None])
        return int(array[0])


def waiting(event: threading.Event) -> Job:
    def wait() -> None:
        event.wait(PATIENCE_S)

    return wait


def raising(error: BaseException) -> Job:
    def fail() -> None:
        raise error

    return fail


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("prefetch_windows", [1, 2, 3])
@pytest.mark.parametrize("jobs", [0, 1, 5])
def test_stages_come_in_order_with_their_jobs_done(threads: int, prefetch_windows: int, jobs: int) -> None:
    source = Stages(20, jobs)
    reading = source.prefetch_windows(threads=threads, prefetch_windows=prefetch_windows)
    for number in range(20):
        assert source.take(reading) == number
        assert {job for stage, job in source.done if stage == number} == set(range(jobs))
    with pytest.raises(StopIteration):
        next(reading)
    with pytest.raises(StopIteration):
        next(reading)
    assert len(source.done) == 20 * jobs


def test_no_stages() -> None:
    assert list(Stages(0).prefetch_windows()) == []


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("prefetch_windows", [1, 2, 4])
def test_never_more_than_ahead_are_prepared(threads: int, prefetch_windows: int) -> None:
    source = Stages(30)
    reading = source.prefetch_windows(threads=threads, prefetch_windows=prefetch_windows)
    for number in range(12):
        assert source.take(reading) == number
        if number % 4 == 0:
            # Given time, all of them are prepared, and no more.
            assert eventually(lambda: len(source.done) == 2 * (source.taken + prefetch_windows))
            time.sleep(0.01)
            assert len(source.done) == 2 * (source.taken + prefetch_windows)
    reading.close()
    # The stage that is being taken was counted as one that waits.
    assert source.most_ahead <= prefetch_windows + 1


def test_nothing_starts_before_the_first_next() -> None:
    source = Stages(3)
    reading = source.prefetch_windows()
    time.sleep(0.02)
    assert source.arrays == []
    assert our_threads() == []
    assert source.take(reading) == 0
    assert len(our_threads()) == 2
    reading.close()


def test_jobs_of_a_stage_run_together() -> None:
    """Each of three jobs waits for the other two."""
    barrier = threading.Barrier(3)

    def meet() -> None:
        barrier.wait(PATIENCE_S)

    source = Stages(1, 3, actions={(0, job): meet for job in range(3)})
    reading = source.prefetch_windows(threads=3)
    assert source.take(reading) == 0
    reading.close()


def test_a_slow_stage_does_not_hold_up_the_work_on_later_ones() -> None:
    later = threading.Event()
    source = Stages(5, 1, actions={(0, 0): waiting(later), (2, 0): later.set})
    reading = source.prefetch_windows(threads=2, prefetch_windows=3)
    assert source.take(reading) == 0
    assert later.is_set()
    reading.close()


# -- errors


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("prefetch_windows", [1, 3])
@pytest.mark.parametrize("failing", [(0, 0), (3, 0), (3, 1), (9, 1)])
def test_an_error_comes_in_its_place(threads: int, prefetch_windows: int, failing: tuple[int, int]) -> None:
    error = OSError("no such luck")
    # Stages before it are slow, so that the error happens first.
    slow: dict[tuple[int, int], Job] = {(stage, 0): lambda: time.sleep(0.01) for stage in range(failing[0])}
    source = Stages(10, actions={**slow, failing: raising(error)})
    reading = source.prefetch_windows(threads=threads, prefetch_windows=prefetch_windows)
    for number in range(failing[0]):
        assert source.take(reading) == number
    with pytest.raises(OSError, match="no such luck") as caught:
        next(reading)
    assert caught.value is error
    assert our_threads() == []
    with pytest.raises(StopIteration):
        next(reading)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("failing", [0, 4])
def test_an_error_while_preparing_comes_in_its_place(threads: int, failing: int) -> None:
    error = OSError("no such luck")
    source = Stages(10, actions={(3, 0): lambda: time.sleep(0.05)}, preparing={failing: raising(error)})
    reading = source.prefetch_windows(threads=threads, prefetch_windows=3)
    for number in range(failing):
        assert source.take(reading) == number
    with pytest.raises(OSError, match="no such luck") as caught:
        next(reading)
    assert caught.value is error
    assert our_threads() == []


def test_the_first_of_two_errors_comes_out() -> None:
    first, second = OSError("first"), OSError("second")
    late = threading.Event()

    def fail_late() -> None:
        late.wait(PATIENCE_S)
        raise first

    def fail() -> None:
        late.set()
        raise second

    source = Stages(5, 1, actions={(1, 0): fail_late, (2, 0): fail})
    reading = source.prefetch_windows(threads=2, prefetch_windows=3)
    assert source.take(reading) == 0
    with pytest.raises(OSError, match="first"):
        next(reading)


def test_an_error_does_not_wait_for_what_else_the_stage_does() -> None:
    given_up = threading.Event()
    source = Stages(2, actions={(0, 0): waiting(given_up), (0, 1): raising(OSError("no such luck"))})
    began = time.monotonic()
    with pytest.raises(OSError, match="no such luck"):
        next(source.prefetch_windows(cancel=given_up.set))
    assert time.monotonic() - began < CLOSE_S


def test_what_is_no_exception_comes_out_too() -> None:
    source = Stages(2, actions={(1, 0): raising(SystemExit(3))})
    reading = source.prefetch_windows()
    assert source.take(reading) == 0
    with pytest.raises(SystemExit):
        next(reading)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_an_error_beside_a_shared_chunk_does_not_leave_anyone_waiting(threads: int) -> None:
    """The stage that failed was to decode a chunk for the next one, whose job waits for it."""
    order = Order(RowSet(0, 100), shuffle=False, seed=0, block=5, window=5)
    shared_chunks = SharedChunks(order.rows.count)
    decoded = np.arange(100)

    def jobs_of(spans: Sequence[RowSpan], out: np.ndarray) -> list[Job]:
        claim = shared_chunks.claim(spans, out, rows=100, band_rows=10)
        decode = [
            band.jobs([partial(np.copyto, band.rows, decoded[band.lo : band.hi])]) for band in claim.bands
        ]
        return [*chain.from_iterable(decode), *claim.copies]

    def stages() -> Iterator[Stage]:
        for window in order.windows(0):
            out = np.full(5, -1)
            jobs = jobs_of(window.spans, out)
            if window.index == 6:
                jobs.insert(0, raising(OSError("the labels are gone")))
            plan = StagePlan((window,), 0, 0, 5, window.first)
            yield Stage(plan, [out], [True], jobs)

    reading = Prefetcher(stages(), threads=threads, prefetch_windows=3, cancel=shared_chunks.cancel)
    for number in range(6):
        (array,), _ = next(reading).take_batches([None])
        assert array.tolist() == list(range(5 * number, 5 * number + 5))
    began = time.monotonic()
    with pytest.raises(OSError, match="the labels are gone"):
        next(reading)
    assert time.monotonic() - began < CLOSE_S
    with pytest.raises(ClosedError):
        jobs_of([RowSpan(0, 1, None, slice(0, 1))], np.empty(1, np.int64))


@pytest.mark.parametrize("threads", [1, 2])
def test_one_thread_is_enough_for_shared_chunks(threads: int) -> None:
    order = Order(RowSet(0, 300), shuffle=True, seed=0, block=3, window=30)
    shared_chunks = SharedChunks(order.rows.count)

    def decode(band: Band) -> list[Job]:
        return band.jobs(
            [partial(band.rows.__setitem__, at, band.lo + at) for at in range(band.hi - band.lo)]
        )

    def stages() -> Iterator[Stage]:
        for window in order.windows(0):
            out = np.full(window.rows, -1)
            claim = shared_chunks.claim(window.spans, out, rows=300, band_rows=64)
            jobs = [*chain.from_iterable(map(decode, claim.bands)), *claim.copies]
            yield Stage(StagePlan((window,), 0, 0, window.rows, window.first), [out], [True], jobs)

    found = [
        stage.take_batches([None])[0][0]
        for stage in Prefetcher(stages(), threads=threads, prefetch_windows=3, cancel=shared_chunks.cancel)
    ]
    assert sorted(np.concatenate(found).tolist()) == list(range(300))


# -- the end


def closed_soon(reading: Prefetcher) -> None:
    began = time.monotonic()
    reading.close()
    assert time.monotonic() - began < CLOSE_S
    assert our_threads() == []
    with pytest.raises(StopIteration):
        next(reading)


@pytest.mark.parametrize("taken", [0, 1, 5, 10])
@pytest.mark.parametrize("threads", [1, 4])
def test_close_after_some_stages(taken: int, threads: int) -> None:
    source = Stages(10)
    reading = source.prefetch_windows(threads=threads)
    for number in range(taken):
        assert source.take(reading) == number
    closed_soon(reading)
    closed_soon(reading)


@pytest.mark.parametrize("threads", [1, 3])
def test_close_while_jobs_run(threads: int) -> None:
    source = Stages(10, actions={(stage, 0): lambda: time.sleep(0.3) for stage in range(1, 10)})
    reading = source.prefetch_windows(threads=threads, prefetch_windows=3)
    assert source.take(reading) == 0
    time.sleep(0.05)
    closed_soon(reading)
    assert len(source.done) < 12


def test_close_while_a_stage_is_prepared() -> None:
    source = Stages(10, preparing={1: lambda: time.sleep(0.3)})
    reading = source.prefetch_windows()
    assert source.take(reading) == 0
    time.sleep(0.05)
    closed_soon(reading)
    # What was prepared meanwhile is dropped.
    assert eventually(lambda: all(array() is None for array in source.arrays[1:]))


def test_close_ends_who_waits_for_a_chunk() -> None:
    given_up = threading.Event()
    source = Stages(3, actions={(1, 0): waiting(given_up)})
    reading = source.prefetch_windows(cancel=given_up.set)
    assert source.take(reading) == 0
    closed_soon(reading)
    assert given_up.is_set()


def test_close_from_another_thread_ends_the_consumer() -> None:
    block = threading.Event()
    source = Stages(3, actions={(1, 0): waiting(block)})
    reading = source.prefetch_windows(cancel=block.set)
    assert source.take(reading) == 0
    ended: list[str] = []

    def consume() -> None:
        ended.extend(f"stage {stage.plan.first}" for stage in reading)
        ended.append("the end")

    consumer = threading.Thread(target=consume)
    consumer.start()
    time.sleep(0.05)
    closed_soon(reading)
    consumer.join(CLOSE_S)
    assert ended == ["the end"]


def test_close_from_many_threads_at_once() -> None:
    source = Stages(50, actions={(stage, 1): lambda: time.sleep(0.001) for stage in range(50)})
    reading = source.prefetch_windows(threads=3, prefetch_windows=3)
    assert source.take(reading) == 0
    closers = [threading.Thread(target=reading.close) for _ in range(5)]
    for closer in closers:
        closer.start()
    for closer in closers:
        closer.join(CLOSE_S)
        assert not closer.is_alive()
    assert eventually(lambda: our_threads() == [])


def test_close_from_one_of_the_threads() -> None:
    """A buffer that goes there may be what the last reference to a pass hangs on."""
    taken = threading.Event()
    meeting = threading.Barrier(2)
    readings: list[Prefetcher] = []

    def close() -> None:
        taken.wait(PATIENCE_S)
        meeting.wait(PATIENCE_S)
        readings[0].close()

    source = Stages(5, actions={(1, 0): close, (1, 1): close})
    readings.append(source.prefetch_windows(threads=3))
    assert source.take(readings[0]) == 0
    taken.set()
    assert list(readings[0]) == []
    assert eventually(lambda: our_threads() == [])


def test_threads_end_with_the_last_stage() -> None:
    source = Stages(4)
    reading = source.prefetch_windows(threads=3)
    assert [source.take(reading) for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(StopIteration):
        next(reading)
    assert our_threads() == []


def test_hundreds_of_passes_leave_no_thread() -> None:
    for number in range(300):
        reading = Stages(5, 1).prefetch_windows(threads=2)
        for _, _ in zip(range(number % 4), reading, strict=False):
            pass
        reading.close()
    assert our_threads() == []


# -- memory


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_threads_that_wait_hold_no_stage(threads: int) -> None:
    source = Stages(8)
    reading = source.prefetch_windows(threads=threads, prefetch_windows=2)
    for number in range(5):
        assert source.take(reading) == number
    assert eventually(lambda: len(source.done) == 2 * 7)
    gc.collect()
    assert eventually(lambda: [array() is None for array in source.arrays] == [True] * 5 + [False] * 2)
    reading.close()
    assert eventually(lambda: all(array() is None for array in source.arrays))


def test_jobs_go_when_they_are_done() -> None:
    """What a job decodes to must not wait until the stage is taken."""

    held: list[weakref.ref[np.ndarray]] = []
    go_on = threading.Event()

    def job() -> Job:
        scratch = np.zeros(3)
        held.append(weakref.ref(scratch))
        return lambda: scratch.fill(1)

    def stages() -> Iterator[Stage]:
        yield Stage(StagePlan((), 0, 0, 1, 0), [np.zeros(1)], [True], [job(), job(), waiting(go_on)])

    reading = Prefetcher(stages(), threads=2, prefetch_windows=1, cancel=lambda: None)
    consumer = threading.Thread(target=lambda: next(reading))
    consumer.start()
    try:
        assert eventually(lambda: len(held) == 2 and all(scratch() is None for scratch in held))
        assert consumer.is_alive()
    finally:
        go_on.set()
        consumer.join()
        reading.close()


def test_waiting_is_measured() -> None:
    source = Stages(3, 1, actions={(1, 0): lambda: time.sleep(0.2)})
    reading = source.prefetch_windows(threads=1, prefetch_windows=1)
    source.take(reading)
    before = reading.wait_s
    source.take(reading)
    assert 0.05 < reading.wait_s - before < PATIENCE_S
    reading.close()


# -- Ctrl-C, which comes between any two steps of Python


def test_no_lock_is_left_by_a_function_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt at the first step of `Condition.__exit__` would leave the lock held."""
    leaves = threading.Condition.__exit__
    left: list[str] = []

    def leave(self: threading.Condition, *error: Any) -> None:
        left.append(sys._getframe(1).f_code.co_filename)
        leaves(self, *error)

    monkeypatch.setattr(threading.Condition, "__exit__", leave)
    shared_chunks = SharedChunks(lambda lo, hi: 10)
    prefetch_windows = Prefetcher(iter(Stages(3)), threads=2, prefetch_windows=2, cancel=shared_chunks.cancel)
    assert len(list(prefetch_windows)) == 3
    ours = ("pipeline/prefetch.py", "reading/shared_chunks.py")
    assert [name for name in left if name.endswith(ours)] == []


def test_an_interrupted_start_of_a_thread_is_told_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    chunk_origins = threading.Thread.start

    def start(self: threading.Thread) -> None:
        if self.name == "oocloader-read-1":
            raise KeyboardInterrupt
        chunk_origins(self)

    monkeypatch.setattr(threading.Thread, "start", start)
    prefetch_windows = Prefetcher(iter(Stages(3)), threads=2, prefetch_windows=2, cancel=lambda: None)
    with pytest.raises(KeyboardInterrupt):
        next(prefetch_windows)
    prefetch_windows.close()
