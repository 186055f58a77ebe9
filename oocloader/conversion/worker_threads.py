"""Calls that threads carry out, and their results in order."""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, wait
from contextlib import suppress
from itertools import islice
from typing import Any, TypeVar

from oocloader.errors import ClosedError

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

# How long somebody who gives up waits for the threads, which notice after the step at hand.
_PATIENCE_S = 1.0
# After an error in one of them, the others may finish what they do.
_PATIENCE_AFTER_ERROR_S = 30.0


def results_in_order(
    function: Callable[[_Item], _Result],
    items: Iterable[_Item],
    *,
    threads: int,
    name: str,
    ahead: int | None = None,
    stop: threading.Event | None = None,
) -> Generator[_Result, None, None]:
    """What `function` makes of each item, in the order of the items, which threads take up in that order.

    `items` are asked for in the calling thread, no more than `ahead` (4 a thread) before the result that is
    waited for. After an error, or Ctrl-C, no item is begun, and `stop` is set; the results before it are
    still given out, where that takes less than 30 seconds, or one after Ctrl-C; then it is raised. Close it
    (as by `contextlib.closing`) to stop early.

    >>> list(results_in_order(abs, [-3, 1, -2], threads=2, name="doctest"))
    [3, 1, 2]
    """
    calls: queue.SimpleQueue[tuple[Future[_Result], _Item] | None] = queue.SimpleQueue()
    failure: Future[None] = Future()

    def fail(error: BaseException) -> None:
        with suppress(InvalidStateError):  # the first one counts
            failure.set_exception(error)
        if stop is not None:
            stop.set()

    def work() -> None:
        # Whatever was taken from the queue is carried out: an item may rely on those before it.
        while not failure.done() and (call := calls.get()) is not None:
            future, item = call
            try:
                future.set_result(function(item))
            except BaseException as error:
                fail(error)
                future.set_exception(error)

    # Daemons, which those of `concurrent.futures` are not: a chunk of gigabytes takes longer to encode than
    # Ctrl-C may take to end the program.
    started: list[threading.Thread] = []
    waiting: deque[Future[_Result]] = deque()
    remaining = iter(items)
    try:
        try:
            for number in range(threads):
                thread = threading.Thread(target=work, name=f"{name}-{number}", daemon=True)
                thread.start()
                started.append(thread)
            while not failure.done():
                for item in islice(remaining, (ahead or 4 * threads) - len(waiting)):
                    waiting.append(Future())
                    calls.put((waiting[-1], item))
                if not waiting:
                    return
                first: tuple[Future[Any], ...] = (waiting[0], failure)
                wait(first, return_when=FIRST_COMPLETED)
                if not failure.done():
                    yield waiting.popleft().result()
        except (Exception, KeyboardInterrupt) as error:
            fail(error)
        with suppress(queue.Empty):
            while (call := calls.get_nowait()) is not None:
                call[0].set_exception(failure.exception())
        ordinary = isinstance(failure.exception(), Exception)
        wait(waiting, timeout=_PATIENCE_AFTER_ERROR_S if ordinary else _PATIENCE_S)
        while waiting and waiting[0].done():
            yield waiting.popleft().result()
        failure.result()
    finally:
        fail(ClosedError("the conversion was given up"))
        deadline = time.monotonic() + _PATIENCE_S
        for _ in started:
            calls.put(None)
        for thread in started:
            thread.join(max(0.0, deadline - time.monotonic()))
