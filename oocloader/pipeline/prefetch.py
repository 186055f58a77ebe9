"""Threads that prepare the next stages while one is used: a queue, its order, its end.

Readers never wait for the consumer to release a buffer; they wait only until a prepared stage was taken.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from oocloader.metrics import Counters
from oocloader.pipeline.staging import Stage
from oocloader.reading import Job

# A thread that waited for a stage to be taken lets the taker have the interpreter first: handing a window on
# to TensorFlow changes threads several times, and each change took up to 5 ms (sys.getswitchinterval) while
# another window was planned at once, 1.5 ms in all while none was.
PAUSE_S = 0.003

_thread = threading.local()


@dataclass(slots=True)
class _Entry:
    """A prepared stage: which one it is, and since when it is read."""

    stage: Stage
    number: int
    began_s: float


class Prefetcher:
    """Iterates `stages` in order with their jobs done, `prefetch_windows` of them prepared beforehand by
    `threads`.

    An error comes out in its place, after every stage before it. Threads start at the first `next`
    and are gone when the last stage was taken, an error came out or `close` returns. `cancel` must
    end what a job may wait for; it is called at the end, perhaps more than once, before threads are
    waited for. `taken` is called once, from any thread, when the last stage was taken and no error came
    before it: nothing is held here any more. `counters` learn what the threads did. `pauses`: whether whoever
    takes a stage hands it on through other threads, which a thread here lets have the interpreter first.
    """

    def __init__(
        self,
        stages: Iterator[Stage],
        *,
        threads: int,
        prefetch_windows: int,
        cancel: Callable[[], None],
        taken: Callable[[], None] | None = None,
        counters: Counters | None = None,
        pauses: bool = False,
    ) -> None:
        self._stages = stages
        self._cancel = cancel
        self._taken = taken
        self._counters = Counters() if counters is None else counters
        self._number = threads
        self._ahead = prefetch_windows
        self._pauses = pauses
        # Never left through the condition, as a function of Python would: Ctrl-C at its first step keeps the
        # lock held for ever.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._jobs: deque[tuple[_Entry, Job]] = deque()
        self._prepared: deque[_Entry] = deque()
        self._threads: list[threading.Thread] = []
        self._working = 0
        self._made = 0
        self._asked = False
        self._preparing = False
        self._exhausted = False
        self._failed = False
        self._failure: BaseException | None = None
        self._closed = False
        self.wait_s = 0.0

    def start(self) -> None:
        """Prepare the first stages already. The threads end when that is done; `next` starts others."""
        with self._lock:
            self._start()

    def __iter__(self) -> Prefetcher:
        return self

    def __next__(self) -> Stage:
        began = time.perf_counter()
        with self._lock:
            if not self._asked:
                self._asked = True
                self._start()
            while not self._closed:
                head = self._prepared[0] if self._prepared else None
                if head is not None and (head.stage.error is not None or head.stage.pending == 0):
                    break
                if head is None and self._exhausted and not self._preparing:
                    break
                self._changed.wait()
            now = time.perf_counter()
            self.wait_s += now - began
            if self._closed:
                raise StopIteration
            entry = self._prepared.popleft() if self._prepared else None
            taken = self._all_taken(entry)
            self._changed.notify_all()
        error = self._failure if entry is None else entry.stage.error
        if error is not None:
            self.close()
            raise error
        if taken is not None:
            taken()
        if entry is None:
            self.close()
            raise StopIteration
        self._counters.events.add("window", entry.began_s, now, entry.number)
        return entry.stage

    def close(self) -> None:
        """End the threads; what was prepared is dropped. Safe to call twice and from any thread.

        A thread of this kind does not wait for the others: they might wait for it.
        """
        with self._lock:
            self._closed = True
            self._failure = None
            self._jobs.clear()
            self._prepared.clear()
            self._changed.notify_all()
            threads = list(self._threads)
        self._cancel()
        # The last reference may go in one of these threads, or in a thread of TensorFlow's.
        if not getattr(_thread, "reads", False):
            for thread in threads:
                # One whose start was interrupted cannot be waited for; it finds this closed.
                with contextlib.suppress(RuntimeError):
                    thread.join()

    def _start(self) -> None:
        """Have all threads at work that there is work for. Called with the lock held."""
        if self._closed or (self._exhausted and not self._jobs and not self._preparing):
            return
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        while self._working < self._number:
            name = f"oocloader-read-{self._working}"
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            self._working += 1
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        _thread.reads = True
        while True:
            idle = False
            with self._lock:
                while not (self._closed or self._jobs or self._may_prepare()):
                    if not self._preparing and (self._exhausted or not self._asked):
                        self._working -= 1
                        return
                    self._changed.wait()
                    idle = True
                if self._closed:
                    return
                prepare = self._may_prepare() and len(self._jobs) < 2 * self._number
                if prepare:
                    self._preparing = True
                    # Only where the consumer has something else to take meanwhile.
                    pause = self._pauses and idle and bool(self._prepared)
                else:
                    entry, job = self._jobs.popleft()
            if prepare:
                if pause:
                    self._pause()
                self._prepare()
            else:
                self._run(entry, job)
                # A thread that waits must not hold the buffers of the stage it worked on last.
                del entry, job

    def _pause(self) -> None:
        """Let the consumer have the interpreter for a moment, unless it takes more than one stage now."""
        with self._lock:
            enough = max(1, self._ahead - 1)
            self._changed.wait_for(lambda: self._closed or len(self._prepared) < enough, PAUSE_S)

    def _may_prepare(self) -> bool:
        return not self._preparing and not self._exhausted and len(self._prepared) < self._ahead

    def _prepare(self) -> None:
        began = time.perf_counter()
        stage: Stage | None = None
        failure: BaseException | None = None
        try:
            stage = next(self._stages, None)
        except BaseException as error:
            failure = error
        ended = time.perf_counter()
        taken = None
        with self._lock:
            self._preparing = False
            if stage is None:
                self._exhausted = True
                self._failure = failure
                taken = self._all_taken(None)
            else:
                self._counters.events.add("plan", began, ended, self._made)
                if not self._closed:
                    entry = _Entry(stage, self._made, began)
                    self._made += 1
                    self._prepared.append(entry)
                    # Jobs hold memory to decode to, so each goes as soon as it is done.
                    self._jobs.extend((entry, job) for job in stage.jobs)
                    stage.jobs.clear()
            self._changed.notify_all()
        self._counters.add(busy_s=ended - began)
        if taken is not None:
            taken()

    def _all_taken(self, entry: _Entry | None) -> Callable[[], None] | None:
        """What to call where the last stage has just been taken, as `entry`. Called with the lock held."""
        over = self._exhausted and not self._prepared and not self._preparing
        if (
            not (over or (entry is not None and entry.stage.last))
            or self._failed
            or self._failure is not None
            or self._closed
            or not self._asked
        ):
            return None
        taken, self._taken = self._taken, None
        return taken

    def _run(self, entry: _Entry, job: Job) -> None:
        stage = entry.stage
        error: BaseException | None = None
        if stage.error is None:
            began = time.perf_counter()
            try:
                job()
            except BaseException as raised:
                error = raised
            ended = time.perf_counter()
            self._counters.add(busy_s=ended - began)
            self._counters.events.add("job", began, ended, entry.number)
        with self._lock:
            stage.pending -= 1
            if error is not None and stage.error is None:
                stage.error = error
                self._failed = self._exhausted = True
            if stage.pending == 0 or error is not None:
                self._changed.notify_all()
