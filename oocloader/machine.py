"""What this process may use of the machine: cores and memory, limits on groups of processes included.

Containers and batch systems limit both by control groups, of which `os.cpu_count` and `/proc/meminfo` know
nothing: https://docs.kernel.org/admin-guide/cgroup-v2.html and, for version 1, cgroup-v1/memory.html and
scheduler/sched-bwc.html there.
"""

import functools
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


@functools.cache
def usable_cores(*, proc: str = "/proc", groups: str = "/sys/fs/cgroup") -> int:
    """Cores that this process may keep busy, at least 1: those it may run on, within its quota of CPU time.

    Asked of the system once. `proc` and `groups` are as for `available_host_memory`.
    """
    allowed = len(os.sched_getaffinity(0))
    quotas = [quota for group in _groups(proc, groups, "cpu") if (quota := _cpu_quota(group)) is not None]
    return max(1, int(min([allowed, *quotas])))


def _left_of_limits(proc: str, groups: str) -> Iterator[int]:
    """What is left of each limit on this process, bytes."""
    for group in _groups(proc, groups, "memory"):
        for names in (_V2, _V1):
            left = _left(group, names)
            if left is not None:
                yield left


def _groups(proc: str, groups: str, controller: str) -> Iterator[str]:
    """Folders of the control groups that this process is in, and of those around them."""
    for line in _read(f"{proc}/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            roots = [f"{groups}/{controller}", f"{groups}/{controllers}"]
        elif not controllers:
            roots = [groups, f"{groups}/unified"]
        else:
            continue
        # In a container the path may be one that is not seen there: its own group is the root then.
        while True:
            yield from (os.path.join(root, path.strip("/")) for root in dict.fromkeys(roots))
            if path in ("", "/"):
                break
            path = os.path.dirname(path)


def _cpu_quota(group: str) -> float | None:
    """Cores' worth of CPU time that a group may use, `None` where it has no limit."""
    # "max 100000" or "150000 100000" microseconds; version 1 has a file for each, and -1 for no limit.
    found = _read(f"{group}/cpu.max").split()
    if not found:
        found = [_read(f"{group}/cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    if len(found) != 2 or not all(part.isdecimal() for part in found) or int(found[1]) == 0:
        return None
    return int(found[0]) / int(found[1])


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
