"""Threads that prepare the next stages while one is used: a queue, its order, its end.

Readers never wait for the consumer to release a buffer; they wait only until a prepared stage was taken.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

from oocloader.read import Job
from oocloader.staging import Stage

_thread = threading.local()


class ReadAhead:
    """Iterates `stages` in order with their jobs done, `ahead` of them prepared beforehand by `threads`.

    An error comes out in its place, after every stage before it. Threads start at the first `next`
    and are gone when the last stage was taken, an error came out or `close` returns. `cancel` must
    end what a job may wait for; it is called at the end, perhaps more than once, before threads are
    waited for.
    """

    def __init__(
        self, stages: Iterator[Stage], *, threads: int, ahead: int, cancel: Callable[[], None]
    ) -> None:
        self._stages = stages
        self._cancel = cancel
        self._number = threads
        self._ahead = ahead
        self._changed = threading.Condition()
        self._jobs: deque[tuple[Stage, Job]] = deque()
        self._prepared: deque[Stage] = deque()
        self._threads: list[threading.Thread] = []
        self._preparing = False
        self._exhausted = False
        self._failure: BaseException | None = None
        self._closed = False
        self.wait_s = 0.0

    def __iter__(self) -> ReadAhead:
        return self

    def __next__(self) -> Stage:
        began = time.perf_counter()
        with self._changed:
            if not self._threads and not self._closed:
                self._start()
            while not self._closed:
                head = self._prepared[0] if self._prepared else None
                if head is not None and (head.error is not None or head.pending == 0):
                    break
                if head is None and self._exhausted and not self._preparing:
                    break
                self._changed.wait()
            self.wait_s += time.perf_counter() - began
            if self._closed:
                raise StopIteration
            stage = self._prepared.popleft() if self._prepared else None
            self._changed.notify_all()
        error = self._failure if stage is None else stage.error
        if error is not None:
            self.close()
            raise error
        if stage is None:
            self.close()
            raise StopIteration
        return stage

    def close(self) -> None:
        """End the threads; what was prepared is dropped. Safe to call twice and from any thread.

        A thread of this kind does not wait for the others: they might wait for it.
        """
        with self._changed:
            self._closed = True
            self._jobs.clear()
            self._prepared.clear()
            self._changed.notify_all()
        self._cancel()
        # The last reference may go in one of these threads, or in a thread of TensorFlow's.
        if not getattr(_thread, "reads", False):
            for thread in self._threads:
                thread.join()

    def _start(self) -> None:
        for number in range(self._number):
            thread = threading.Thread(target=self._work, name=f"oocloader-read-{number}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def _work(self) -> None:
        _thread.reads = True
        while True:
            with self._changed:
                while not (self._closed or self._jobs or self._may_prepare()):
                    self._changed.wait()
                if self._closed:
                    return
                prepare = self._may_prepare() and len(self._jobs) < 2 * self._number
                if prepare:
                    self._preparing = True
                else:
                    stage, job = self._jobs.popleft()
            if prepare:
                self._prepare()
            else:
                self._run(stage, job)
                # A thread that waits must not hold the buffers of the stage it worked on last.
                del stage, job

    def _may_prepare(self) -> bool:
        return not self._preparing and not self._exhausted and len(self._prepared) < self._ahead

    def _prepare(self) -> None:
        stage: Stage | None = None
        failure: BaseException | None = None
        try:
            stage = next(self._stages, None)
        except BaseException as error:
            failure = error
        with self._changed:
            self._preparing = False
            if stage is None:
                self._exhausted = True
                self._failure = failure
            elif not self._closed:
                self._prepared.append(stage)
                # Jobs hold memory to decode to, so each goes as soon as it is done.
                self._jobs.extend((stage, job) for job in stage.jobs)
                stage.jobs.clear()
            self._changed.notify_all()

    def _run(self, stage: Stage, job: Job) -> None:
        error: BaseException | None = None
        if stage.error is None:
            try:
                job()
            except BaseException as raised:
                error = raised
        with self._changed:
            stage.pending -= 1
            if error is not None and stage.error is None:
                stage.error = error
                self._exhausted = True
            if stage.pending == 0 or error is not None:
                self._changed.notify_all()
