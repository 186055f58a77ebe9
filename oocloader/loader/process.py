"""Loaders in their process: closed before it exits, refused in its forked children."""

import atexit
import os
import sys
import weakref
from typing import Protocol

from oocloader.errors import in_forked_child


class Closable(Protocol):
    """What is closed at exit; to close it twice is safe."""

    def close(self) -> None: ...


_live: weakref.WeakSet[Closable] = weakref.WeakSet()
# Whether TensorFlow was in use when this process was forked off.
_forked_in_use = False


def close_at_exit(loader: Closable) -> None:
    """Have `loader` closed when the interpreter exits, if it still lives."""
    _live.add(loader)
    # Called before what the libraries of the store have registered, or a reader waits for what is gone.
    atexit.unregister(_close_all)
    atexit.register(_close_all)


def refuse_forked(made_in: int) -> None:
    """Raise `ClosedError` in a forked child of process `made_in`, or where TensorFlow did not survive."""
    if os.getpid() != made_in or _forked_in_use:
        raise in_forked_child("a Loader cannot be used")


def _close_all() -> None:
    # TensorFlow's threads must not wait in Python code when the interpreter goes.
    for loader in list(_live):
        loader.close()
    used = sys.modules.get("oocloader.tfdata")
    if used is not None and not _forked_in_use:
        used.settle(timeout_s=1.0)


def _after_fork() -> None:
    global _forked_in_use
    eager = sys.modules.get("tensorflow.python.eager.context")
    if eager is not None:
        # No public name tells whether TensorFlow's threads have been started; without one, they have.
        _forked_in_use = getattr(getattr(eager, "_context", None), "_initialized", True)


os.register_at_fork(after_in_child=_after_fork)
