"""SIGTERM put off until there is something to hand over."""

import os
import signal
import threading
from types import CodeType, FrameType


class DeferredSigterm:
    """From `defer` to `restore`, SIGTERM only sets `pending`; `deliver` lets it do what it did before.

    Only the main thread can set handlers; in any other, `defer` changes nothing. A second SIGTERM does at
    once what it did before, and so does one that comes when an exception has left the function for which
    they are deferred.
    """

    def __init__(self) -> None:
        self.pending = False
        self._deferring = False
        self._previous: signal._HANDLER = signal.SIG_DFL
        self._scope: tuple[CodeType, int] | None = None

    def defer(self, frame: FrameType) -> None:
        """Defer SIGTERM for as long as the function that runs in `frame` is on the stack."""
        self.restore()
        previous = signal.getsignal(signal.SIGTERM)
        # None: a handler that was not set from Python, and could not be set again.
        if previous is None or threading.current_thread() is not threading.main_thread():
            return
        while isinstance(
            other := getattr(previous, "__self__", None), DeferredSigterm
        ) and not other._is_in_scope(frame):
            previous = other._previous  # of a training that failed
        self._previous = previous
        # Not the frame, which would keep everything that the function holds.
        self._scope = frame.f_code, id(frame)
        self._set_handler()

    def restore(self) -> None:
        """Set the previous handler again; a signal that is pending is delivered."""
        if self._deferring:
            self._reset_handler()
            self.deliver()

    def deliver(self) -> None:
        """Let a pending signal do what it did before. Returns where that was to go on."""
        if self.pending:
            self.pending = False
            # Reset first, since what it did before may be to raise an exception.
            was_set = self._reset_handler()
            self._call_previous(signal.SIGTERM, None)
            if was_set:
                self._set_handler()

    def _set_handler(self) -> None:
        self._deferring = True
        signal.signal(signal.SIGTERM, self._handle)

    def _reset_handler(self) -> bool:
        """Set the previous handler again; whether this one was set."""
        self._deferring = False
        # Whoever has set another one since then calls this one if they want to.
        if signal.getsignal(signal.SIGTERM) != self._handle:
            return False
        signal.signal(signal.SIGTERM, self._previous)
        return True

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._deferring and not self.pending and self._is_in_scope(frame):
            self.pending = True
        else:
            self.pending = False
            self._call_previous(number, frame)

    def _call_previous(self, number: int, frame: FrameType | None) -> None:
        if callable(self._previous):
            self._previous(number, frame)
        elif self._previous == signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _is_in_scope(self, frame: FrameType | None) -> bool:
        while frame is not None:
            if (frame.f_code, id(frame)) == self._scope:
                return True
            frame = frame.f_back
        return False
