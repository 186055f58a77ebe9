"""How much memory of the host is left: the machine's, or what is left of a limit on a group of processes.

Containers and batch systems limit memory by control groups, of which `/proc/meminfo` knows nothing:
https://docs.kernel.org/admin-guide/cgroup-v2.html and, for version 1, cgroup-v1/memory.html there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class _Group:
    """How one version of control groups names things: limit, use, and the prefix of totals in its table."""

    limit: str
    used: str
    total: str


_V1 = _Group("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
_V2 = _Group("memory.max", "memory.current", "")


def available_host_memory(*, proc: str = "/proc", groups: str = "/sys/fs/cgroup") -> int | None:
    """Bytes of memory that are free or can be freed, for this process; `None` where the system does not say.

    `proc` and `groups` are where the system tells about processes and their control groups.
    """
    found = re.search(r"MemAvailable:\s*(\d+) kB", _read(f"{proc}/meminfo"))
    known = [int(found[1]) * 1024] if found else []
    return min([*known, *_left_of_limits(proc, groups)], default=None)


def _left_of_limits(proc: str, groups: str) -> Iterator[int]:
    """What is left of each limit on this process, bytes: of its control group and of those around it."""
    for line in _read(f"{proc}/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            kind, roots = _V1, [f"{groups}/memory"]
        elif not controllers:
            kind, roots = _V2, [groups, f"{groups}/unified"]
        else:
            continue
        # In a container the path may be one that is not seen there: its own group is the root then.
        while True:
            for root in roots:
                left = _left(os.path.join(root, path.strip("/")), kind)
                if left is not None:
                    yield left
            if path in ("", "/"):
                break
            path = os.path.dirname(path)


def _left(group: str, kind: _Group) -> int | None:
    """What is left of the limit of one group, bytes, `None` where it has none."""
    limit, used = (_read(os.path.join(group, name)).strip() for name in (kind.limit, kind.used))
    if not limit.isdecimal() or not used.isdecimal():
        return None
    # Pages of files count as used, and are given up where memory is wanted.
    cached = re.findall(
        rf"^{kind.total}(?:in)?active_file (\d+)$", _read(f"{group}/memory.stat"), re.MULTILINE
    )
    return max(0, int(limit) - max(0, int(used) - sum(map(int, cached))))


def _read(path: str) -> str:
    """The text of a file, "" where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
