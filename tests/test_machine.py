"""Memory that is left, of the machine and of limits on groups of processes, as the system's files tell."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from oocloader.machine import available_host_memory, usable_cores

_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30
_UNLIMITED_V1 = "9223372036854771712"


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def v2(path: str, limit: int | str, used: int, **stat: int) -> dict[str, str]:
    table = "".join(f"{name} {nbytes}\n" for name, nbytes in stat.items())
    return {
        f"groups/{path}memory.max": f"{limit}\n",
        f"groups/{path}memory.current": f"{used}\n",
        f"groups/{path}memory.stat": f"anon 5\n{table}",
    }


def v1(path: str, limit: int | str, used: int, cached: int = 0) -> dict[str, str]:
    return {
        f"groups/memory/{path}memory.limit_in_bytes": f"{limit}\n",
        f"groups/memory/{path}memory.usage_in_bytes": f"{used}\n",
        f"groups/memory/{path}memory.stat": f"inactive_file 1\ntotal_inactive_file {cached}\n",
    }


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        # No groups, no limit, another controller's group: what the machine has.
        ("", {}, 8 * _GIB),
        ("0::/\n", v2("", "max", _GIB), 8 * _GIB),
        ("4:cpu:/a\n", v1("a/", _GIB, 0), 8 * _GIB),
        ("4:memory:/\n", v1("", _UNLIMITED_V1, _GIB), 8 * _GIB),
        # A limit that is higher than what is free.
        ("0::/\n", v2("", 20 * _GIB, _GIB), 8 * _GIB),
        # What is left of the limit; pages of files are given up where memory is wanted.
        ("0::/\n", v2("", 3 * _GIB, _GIB), 2 * _GIB),
        ("0::/\n", v2("", 3 * _GIB, _GIB, inactive_file=_MIB, active_file=2 * _MIB), 2 * _GIB + 3 * _MIB),
        ("5:cpu,memory:/\n", v1("", 3 * _GIB, _GIB, 5 * _MIB), 2 * _GIB + 5 * _MIB),
        # Used up.
        ("0::/\n", v2("", _GIB, _GIB + 1), 0),
        # A group within others: the least of all limits.
        ("0::/a/b\n", {**v2("a/b/", "max", _MIB), **v2("a/", 2 * _GIB, _GIB), **v2("", 6 * _GIB, 0)}, _GIB),
        ("0::/a/b\n", {**v2("a/b/", _MIB, 0), **v2("a/", 2 * _GIB, _GIB)}, _MIB),
        # In a container: the path is the one outside, and the root is its own group.
        ("0::/docker/7f\n", v2("", _GIB, _KIB), _GIB - _KIB),
        ("4:memory:/docker/7f\n", v1("", _GIB, _KIB), _GIB - _KIB),
        # Both versions at once, with memory in the first.
        ("4:memory:/a\n0::/a\n", v1("a/", _GIB, 0), _GIB),
        (
            "0::/a\n",
            {name.replace("groups", "groups/unified"): t for name, t in v2("a/", _GIB, 0).items()},
            _GIB,
        ),
    ],
)
def test_what_is_left(tmp_path: Path, own: str, files: dict[str, str], expected: int) -> None:
    meminfo = f"MemTotal: 99999999 kB\nMemAvailable:   {8 * _GIB // _KIB} kB\n"
    write(tmp_path, {"proc/meminfo": meminfo, "proc/self/cgroup": own, **files})
    assert available_host_memory(proc=f"{tmp_path}/proc", groups=f"{tmp_path}/groups") == expected


def test_a_limit_where_the_machine_says_nothing(tmp_path: Path) -> None:
    write(tmp_path, {"proc/self/cgroup": "0::/\n", **v2("", _GIB, 0)})
    assert available_host_memory(proc=f"{tmp_path}/proc", groups=f"{tmp_path}/groups") == _GIB


def test_a_system_that_says_nothing(tmp_path: Path) -> None:
    assert available_host_memory(proc=f"{tmp_path}/proc", groups=f"{tmp_path}/groups") is None


def test_here() -> None:
    found = available_host_memory()
    assert found is not None
    assert found > _MIB


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("", {}, None),
        ("0::/\n", {"groups/cpu.max": "max 100000\n"}, None),
        ("0::/\n", {"groups/cpu.max": "100000 100000\n"}, 1),
        # Less than a core, and a part of one, still let a thread run.
        ("0::/\n", {"groups/cpu.max": "50000 100000\n"}, 1),
        ("0::/\n", {"groups/cpu.max": "9900000 100000\n"}, None),
        # A group within another that has less.
        ("0::/a/b\n", {"groups/a/b/cpu.max": "300000 100000\n", "groups/a/cpu.max": "100000 100000\n"}, 1),
        # Version 1: one controller or two in a folder; -1 for none.
        ("3:cpu,cpuacct:/a\n", {"groups/cpu,cpuacct/a/cpu.cfs_quota_us": "-1\n"}, None),
        (
            "3:cpu,cpuacct:/a\n",
            {"groups/cpu/a/cpu.cfs_quota_us": "100000\n", "groups/cpu/a/cpu.cfs_period_us": "100000\n"},
            1,
        ),
    ],
)
def test_cores_within_a_quota(tmp_path: Path, own: str, files: dict[str, str], expected: int | None) -> None:
    write(tmp_path, {"proc/self/cgroup": own, **files})
    found = usable_cores(proc=f"{tmp_path}/proc", groups=f"{tmp_path}/groups")
    assert found == (len(os.sched_getaffinity(0)) if expected is None else expected)


def test_cores_that_this_process_may_run_on() -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert usable_cores(proc="/nowhere", groups="/nowhere/a") == 1
    finally:
        os.sched_setaffinity(0, before)
