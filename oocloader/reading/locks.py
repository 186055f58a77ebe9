"""Locks that a forked child can take, whoever held them in the parent."""

import contextlib
import os
import threading
import weakref


class Lock:
    """A lock for `with`. In a forked child nobody holds it: whoever did in the parent cannot let go of it."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        # The thread that forked may have held it.
        with contextlib.suppress(RuntimeError):
            self._lock.release()

    def locked(self) -> bool:
        """Whether some thread holds it."""
        return self._lock.locked()


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


def _renew() -> None:
    for lock in list(_locks):
        lock._lock = threading.Lock()


os.register_at_fork(after_in_child=_renew)
