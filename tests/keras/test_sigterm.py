"""SIGTERM is held back, handed on, and never lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oocloader.keras.sigterm import DeferredSigterm


@pytest.fixture
def arrived() -> Iterator[list[int]]:
    """Signals that the handler from before got."""
    got: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: got.append(number))
    yield got
    signal.signal(signal.SIGTERM, before)


def sent() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_held_back_and_delivered(arrived: list[int]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    held = DeferredSigterm()
    held.defer(sys._getframe())
    assert signal.getsignal(signal.SIGTERM) != before
    sent()
    assert (held.pending, arrived) == (True, [])
    held.deliver()
    assert (held.pending, arrived) == (False, [signal.SIGTERM])
    held.deliver()
    sent()
    assert (held.pending, len(arrived)) == (True, 1)
    held.restore()
    assert len(arrived) == 2
    assert signal.getsignal(signal.SIGTERM) == before
    held.restore()
    sent()
    assert (held.pending, len(arrived)) == (False, 3)


def test_a_second_signal_does_not_wait(arrived: list[int]) -> None:
    held = DeferredSigterm()
    held.defer(sys._getframe())
    sent()
    sent()
    assert (held.pending, len(arrived)) == (False, 1)
    held.restore()
    assert len(arrived) == 1


def test_a_training_that_failed_holds_nothing_back(arrived: list[int]) -> None:
    held = DeferredSigterm()

    def fails() -> None:
        held.defer(sys._getframe())
        sent()
        held.deliver()
        raise ZeroDivisionError

    for number in (1, 3):
        with pytest.raises(ZeroDivisionError):
            fails()
        assert len(arrived) == number
        sent()
        assert (held.pending, len(arrived)) == (False, number + 1)
    held.restore()


def test_held_twice_is_released_once(arrived: list[int]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    held = DeferredSigterm()
    held.defer(sys._getframe())
    held.defer(sys._getframe())
    held.restore()
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_handler_set_meanwhile_stays(arrived: list[int]) -> None:
    held = DeferredSigterm()
    held.defer(sys._getframe())
    inner = signal.getsignal(signal.SIGTERM)
    assert callable(inner)

    def later(number: int, frame: Any) -> None:
        inner(number, frame)

    signal.signal(signal.SIGTERM, later)
    held.restore()
    assert signal.getsignal(signal.SIGTERM) is later
    sent()
    assert arrived == [signal.SIGTERM]


def test_other_threads_hold_nothing(arrived: list[int]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    held = DeferredSigterm()
    thread = threading.Thread(target=lambda: held.defer(sys._getframe()))
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) == before
    held.restore()


@pytest.mark.parametrize(
    ("before", "ends"), [("SIG_DFL", -signal.SIGTERM), ("SIG_IGN", 7)], ids=["default", "ignored"]
)
def test_what_the_system_does(before: str, ends: int) -> None:
    code = f"""
        import os, signal, sys
        from oocloader.keras.sigterm import DeferredSigterm
        signal.signal(signal.SIGTERM, signal.{before})
        held = DeferredSigterm()
        held.defer(sys._getframe())
        os.kill(os.getpid(), signal.SIGTERM)
        assert held.pending
        held.deliver()
        assert not held.pending
        os._exit(7)
    """
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env={**os.environ, "PYTHONPATH": str(root)}, timeout=60
    )
    assert done.returncode == ends
