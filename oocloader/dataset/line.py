"""A way for windows to the device, which one pass after another takes."""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from oocloader.device import let_go


class Intake(Iterator[Any]):
    """What an iterator of TensorFlow's takes windows from: those of the pass that it serves just now."""

    def __init__(self) -> None:
        self.windows: Iterator[Any] = iter(())

    def __next__(self) -> Any:
        return next(self.windows)


class Line(Iterator[Any]):
    """Windows on the device, of the pass that `start` was given last.

    To make an iterator of TensorFlow's and to get a first window through it takes 10 ms, as long as reading
    300 MB: so the same one is used again. It goes back to `lines` then.
    """

    def __init__(self, windows: Iterator[Any], intake: Intake, lines: Lines) -> None:
        self._windows: Iterator[Any] | None = windows
        self._intake = intake
        self._lines = weakref.ref(lines)
        self._process = os.getpid()
        self._first: Any = None
        self._error: BaseException | None = None

    def start(self, windows: Iterator[Any]) -> None:
        """Serve a pass with these windows, and fetch the first of them; `next` raises what that raised."""
        self._intake.windows = windows
        try:
            self._first = next(self)
        except BaseException as error:
            self._error = error

    def __next__(self) -> Any:
        first, error = self._first, self._error
        self._first = self._error = None
        if error is not None:
            raise error
        assert self._windows is not None
        return next(self._windows) if first is None else first

    def release(self) -> None:
        """The pass has had all its windows: serve another. Not after an error, which ends the iterator."""
        self._intake.windows = iter(())
        lines = self._lines()
        if lines is not None:
            lines.take_back(self)

    def __del__(self) -> None:
        windows, self._windows = self._windows, None
        let_go(windows, process=self._process)


class Lines:
    """The lines of one dataset of windows, made as they are needed. Thread-safe.

    `iterate(intake)` makes an iterator of TensorFlow's that takes windows from `intake`. `again`: whether a
    line is used again; not where TensorFlow asks for windows by itself, beyond the end of a pass.
    """

    def __init__(self, iterate: Callable[[Intake], Iterator[Any]], *, again: bool) -> None:
        self._iterate = iterate
        # One is enough for passes one after another; of several at once, the others end.
        self._idle: deque[Line] = deque(maxlen=1 if again else 0)

    def start(self, windows: Iterator[Any]) -> Line:
        """A line that serves a pass with these windows, the first of them fetched."""
        try:
            line = self._idle.pop()
        except IndexError:
            intake = Intake()
            line = Line(self._iterate(intake), intake, self)
        line.start(windows)
        return line

    def take_back(self, line: Line) -> None:
        """Take a line that serves no pass any more."""
        self._idle.append(line)

    def close(self) -> None:
        """Let go of the lines that serve no pass."""
        self._idle.clear()
