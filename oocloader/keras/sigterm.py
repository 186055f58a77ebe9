"""SIGTERM held back until there is something to hand over."""

from __future__ import annotations

import os
import signal
import threading
from types import CodeType, FrameType


class Termination:
    """From `hold` to `release`, SIGTERM only sets `arrived`; `deliver` lets it do what it did before.

    Only the main thread can hold signals; in any other, `hold` changes nothing. A second SIGTERM does at
    once what it did before, and so does one that comes when an exception has left the function for which
    they are held back.
    """

    def __init__(self) -> None:
        self.arrived = False
        self._held = False
        self._before: signal._HANDLER = signal.SIG_DFL
        self._while: tuple[CodeType, int] | None = None

    def hold(self, frame: FrameType) -> None:
        """Hold SIGTERM back for as long as the function that runs in `frame` is on the stack."""
        self.release()
        before = signal.getsignal(signal.SIGTERM)
        # None: a handler that was not set from Python, and could not be set again.
        if before is None or threading.current_thread() is not threading.main_thread():
            return
        while isinstance(left := getattr(before, "__self__", None), Termination) and not left._runs(frame):
            before = left._before  # of a training that failed
        self._before = before
        # Not the frame, which would keep everything that the function holds.
        self._while = frame.f_code, id(frame)
        self._held = True
        signal.signal(signal.SIGTERM, self._arrive)

    def release(self) -> None:
        """Set the handler from before again; a signal that was held back is delivered."""
        if self._held:
            self._put_back()
            self.deliver()

    def deliver(self) -> None:
        """Let a signal that has arrived do what it did before. Returns where that was to go on."""
        if self.arrived:
            self.arrived = False
            # Put back first, since what it did before may be to raise an exception.
            held = self._put_back()
            self._as_before(signal.SIGTERM, None)
            if held:
                self._held = True
                signal.signal(signal.SIGTERM, self._arrive)

    def _put_back(self) -> bool:
        """Set the handler from before again; whether this one was set."""
        self._held = False
        # Whoever has set another one since then calls this one if they want to.
        if signal.getsignal(signal.SIGTERM) != self._arrive:
            return False
        signal.signal(signal.SIGTERM, self._before)
        return True

    def _arrive(self, number: int, frame: FrameType | None) -> None:
        if self._held and not self.arrived and self._runs(frame):
            self.arrived = True
        else:
            self.arrived = False
            self._as_before(number, frame)

    def _as_before(self, number: int, frame: FrameType | None) -> None:
        if callable(self._before):
            self._before(number, frame)
        elif self._before == signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _runs(self, frame: FrameType | None) -> bool:
        while frame is not None:
            if (frame.f_code, id(frame)) == self._while:
                return True
            frame = frame.f_back
        return False
