"""Threads that prepare the next stages while one is used: a queue, its order, its end.

Readers never wait for the consumer to release a buffer; they wait only until a prepared stage was taken.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

from oocloader.metrics import Counters
from oocloader.pipeline.staging import Stage
from oocloader.reading import Job

_thread = threading.local()


def in_read_thread() -> bool:
    """Whether this thread is one that reads: it must not wait for others of its kind."""
    return getattr(_thread, "reads", False)


class Prefetcher:
    """Iterates `stages` in order with their jobs done, `prefetch_windows` of them prepared beforehand by
    `threads`.

    An error comes out in its place, after every stage before it. Threads start at the first `next`
    and are gone when the last stage was taken, an error came out or `close` returns. `cancel` must
    end what a job may wait for; it is called at the end, perhaps more than once, before threads are
    waited for. `all_taken` is called once, when the last stage was taken and no error came before it:
    nothing is held here any more. `counters` learn what the threads did.

    No executor of `concurrent.futures`: its locks are not reentrant, and `close` may run in any thread that
    the garbage collector happens to run in; and an interrupt can leave them held.
    """

    def __init__(
        self,
        stages: Iterator[Stage],
        *,
        threads: int,
        prefetch_windows: int,
        cancel: Callable[[], None],
        all_taken: Callable[[], None] = lambda: None,
        counters: Counters | None = None,
    ) -> None:
        self._stages = stages
        self._cancel = cancel
        self._all_taken = all_taken
        self._counters = Counters() if counters is None else counters
        self._most_threads = threads
        self._most_prepared = prefetch_windows
        # Never left through the condition, as a function of Python would: Ctrl-C at its first step keeps the
        # lock held for ever.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._jobs: deque[tuple[Stage, Job]] = deque()
        self._prepared: deque[Stage] = deque()
        self._planned = 0
        self._threads: list[threading.Thread] = []
        self._working = 0
        self._asked = False
        self._planning = False
        self._exhausted = False
        self._planning_error: BaseException | None = None
        self._closed = False
        self.wait_s = 0.0

    def start(self) -> None:
        """Prepare the first stages already. The threads end when that is done; `next` starts others."""
        with self._lock:
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            while self._working < self._most_threads and not self._closed:
                name = f"oocloader-read-{self._working}"
                thread = threading.Thread(target=self._work, name=name, daemon=True)
                self._working += 1
                self._threads.append(thread)
                thread.start()

    def __iter__(self) -> Prefetcher:
        return self

    def __next__(self) -> Stage:
        began = time.perf_counter()
        with self._lock:
            if not self._asked:
                self._asked = True
                self.start()
            while not (self._closed or self._head_is_ready()):
                self._changed.wait()
            now = time.perf_counter()
            self.wait_s += now - began
            if self._closed:
                raise StopIteration
            stage = self._prepared.popleft() if self._prepared else None
            self._changed.notify_all()
        error = self._planning_error if stage is None else stage.error
        if error is not None:
            self.close()
            raise error
        if stage is None or stage.last:
            all_taken, self._all_taken = self._all_taken, lambda: None
            all_taken()
        if stage is None:
            self.close()
            raise StopIteration
        self._counters.events.add("window", stage.began_s, now, stage.number)
        return stage

    def close(self) -> None:
        """End the threads; what was prepared is dropped. Safe to call twice and from any thread.

        A thread that reads does not wait for the others: they might wait for it.
        """
        with self._lock:
            self._closed = True
            self._planning_error = None
            self._jobs.clear()
            self._prepared.clear()
            self._changed.notify_all()
            threads = list(self._threads)
        self._cancel()
        # The last reference may go in one of these threads, or in a thread of TensorFlow's.
        if not in_read_thread():
            for thread in threads:
                # One whose start was interrupted cannot be waited for; it finds this closed.
                with contextlib.suppress(RuntimeError):
                    thread.join()

    def _head_is_ready(self) -> bool:
        """Whether the next stage, its error or the end can be handed out. Called with the lock held."""
        if self._prepared:
            return self._prepared[0].pending == 0 or self._prepared[0].error is not None
        return self._exhausted and not self._planning

    def _work(self) -> None:
        _thread.reads = True
        while (task := self._next_task()) is not None:
            task()
            # A thread that waits must not hold the buffers of the stage it worked on last.
            del task

    def _next_task(self) -> Callable[[], None] | None:
        """Waits for something to do; None where there will be nothing more for this thread."""
        with self._lock:
            while not self._closed:
                may_plan = not self._planning and not self._exhausted
                room = len(self._prepared) < self._most_prepared
                if may_plan and room and len(self._jobs) < 2 * self._most_threads:
                    self._planning = True
                    return self._plan
                if self._jobs:
                    return functools.partial(self._run, *self._jobs.popleft())
                if not self._planning and (self._exhausted or not self._asked):
                    break
                self._changed.wait()
            self._working -= 1
        return None

    def _plan(self) -> None:
        """Make the next stage, and queue its jobs."""
        began = time.perf_counter()
        stage: Stage | None = None
        planning_error: BaseException | None = None
        try:
            stage = next(self._stages, None)
        except BaseException as error:
            planning_error = error
        ended = time.perf_counter()
        self._counters.add(busy_s=ended - began)
        with self._lock:
            self._planning = False
            if stage is None:
                self._exhausted = True
                self._planning_error = planning_error
            elif not self._closed:
                stage.number, stage.began_s = self._planned, began
                self._planned += 1
                self._counters.events.add("plan", began, ended, stage.number)
                self._prepared.append(stage)
                # Jobs hold memory to decode to, so each goes as soon as it is done.
                self._jobs.extend((stage, job) for job in stage.jobs)
                stage.jobs.clear()
            self._changed.notify_all()

    def _run(self, stage: Stage, job: Job) -> None:
        error: BaseException | None = None
        if stage.error is None:
            began = time.perf_counter()
            try:
                job()
            except BaseException as raised:
                error = raised
            ended = time.perf_counter()
            self._counters.add(busy_s=ended - began)
            self._counters.events.add("job", began, ended, stage.number)
        with self._lock:
            stage.pending -= 1
            if error is not None and stage.error is None:
                stage.error = error
                self._exhausted = True
            if stage.pending == 0 or error is not None:
                self._changed.notify_all()
