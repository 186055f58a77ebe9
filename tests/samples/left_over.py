"""What a test of Loaders must not leave behind: threads that read ahead, and open files."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator

from recorded import eventually, our_threads


@contextlib.contextmanager
def leaving_nothing() -> Iterator[None]:
    """Fails where threads that read ahead, or files with data, are left that were not there before."""
    before = open_files()
    yield
    # Collecting takes longer than most tests, so only where something is left to collect.
    if our_threads() or open_files() != before:
        gc.collect()
    assert eventually(lambda: not our_threads())
    assert open_files() == before


def open_files() -> list[str]:
    """Files with data that this process has open."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:
            continue  # the one that listed the others
        if target.endswith((".npy", ".h5")) or ".zarr" in target:
            found.append(target)
    return sorted(found)
