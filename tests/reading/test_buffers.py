"""Memory that is aligned and reused only when nobody looks at it, and mappings that nobody else sees."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunked import open_files
from oocloader.reading import buffers
from oocloader.reading.buffers import ALIGNMENT, PAGE, Pool, allocate, map_private, on_local_file_system


def address(array: np.ndarray) -> int:
    return int(array.ctypes.data)


@pytest.mark.parametrize("nbytes", [0, 1, 63, 64, 4097, 5 << 20])
def test_allocate(nbytes: int) -> None:
    memory = allocate(nbytes)
    assert memory.shape == (nbytes,)
    assert memory.dtype == np.uint8
    assert memory.flags.writeable
    assert address(memory) % PAGE == 0
    assert not memory.any()


FORK = """
import os
from oocloader.reading.buffers import allocate
memory = allocate(100)
child = os.fork()
if child == 0:
    memory[:] = 1
    os._exit(0)
os.waitpid(child, 0)
print(memory.any())
"""


def test_what_is_allocated_is_not_shared_with_children() -> None:
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@given(nbytes=st.integers(1, 100_000), lent=st.integers(1, 6), keep=st.integers(0, 8))
def test_lent_buffers_are_aligned_and_apart(nbytes: int, lent: int, keep: int) -> None:
    pool = Pool(nbytes, keep=keep)
    held = [pool.take() for _ in range(lent)]
    for number, buffer in enumerate(held):
        assert address(buffer) % ALIGNMENT == 0
        assert buffer.shape == (nbytes,)
        buffer[:] = number
    assert [int(buffer[0]) for buffer in held] == list(range(lent))
    assert [int(buffer[-1]) for buffer in held] == list(range(lent))


def test_a_buffer_is_lent_again_when_its_last_view_is_gone() -> None:
    pool = Pool(1000, keep=3)
    first = pool.take()
    there = address(first)
    rows = first[:960].view(np.float32).reshape(10, 24)
    part = rows[3:5].T.data
    del first, rows
    assert address(pool.take()) != there
    del part
    assert address(pool.take()) == there


def test_every_kind_of_view_keeps_a_buffer() -> None:
    views: list[Callable[[np.ndarray], Any]] = [
        lambda buffer: buffer[1:2],
        lambda buffer: buffer[::7],
        lambda buffer: buffer.view(np.uint16),
        lambda buffer: buffer.reshape(10, 100).T[3],
        lambda buffer: buffer.data,
        lambda buffer: np.asarray(buffer.data),
        lambda buffer: np.frombuffer(buffer, np.uint8),
        lambda buffer: np.lib.stride_tricks.sliding_window_view(buffer, 5),
        lambda buffer: np.split(buffer, 2)[1],
        lambda buffer: np.broadcast_to(buffer, (3, 1000)),
    ]
    for make in views:
        pool = Pool(1000, keep=3)
        buffer = pool.take()
        there = address(buffer)
        view = make(buffer)
        del buffer
        assert address(pool.take()) != there
        del view
        assert address(pool.take()) == there


def test_buffers_come_back_from_other_threads() -> None:
    pool = Pool(1000, keep=8)
    held = [pool.take() for _ in range(8)]
    places = {address(buffer) for buffer in held}
    threads = [threading.Thread(target=lambda lent: lent.clear(), args=([held.pop()],)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    again = [pool.take() for _ in range(8)]
    assert {address(buffer) for buffer in again} == places


def test_many_threads_never_share_a_buffer() -> None:
    pool = Pool(256, keep=3)
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(500):
            buffer = pool.take()
            buffer[:] = number
            if not np.all(buffer == number):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def rss_mib() -> float:
    with open("/proc/self/statm", encoding="ascii") as table:
        return int(table.read().split()[1]) * PAGE / 2**20


def test_no_more_are_kept_than_said() -> None:
    nbytes = 8 << 20
    pool = Pool(nbytes, keep=2)
    before = rss_mib()
    held = [pool.take() for _ in range(10)]
    for buffer in held:
        buffer[:] = 1
    assert rss_mib() - before > 70
    del buffer
    held.clear()
    assert rss_mib() - before < 30
    pool.clear()
    assert rss_mib() - before < 10


def test_a_buffer_outlives_its_pool() -> None:
    pool = Pool(1000, keep=2)
    buffer = pool.take()
    buffer[:] = 7
    del pool
    gc.collect()
    assert np.all(buffer == 7)


# -- mappings


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Ten pages and a bit, whose bytes are told apart."""
    path = tmp_path / "bytes"
    content = np.arange(10 * PAGE + 100) % 251
    path.write_bytes(content.astype(np.uint8).tobytes())
    return path


@contextmanager
def descriptor(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)


def mappings(path: Path) -> int:
    with open("/proc/self/maps", encoding="utf-8") as table:
        return sum(line.rstrip().endswith(str(path)) for line in table)


def mapped(path: Path, *pieces: tuple[int, int]) -> np.ndarray | None:
    with descriptor(path) as fd:
        return map_private([(fd, offset, nbytes) for offset, nbytes in pieces])


@pytest.mark.parametrize(
    "pieces",
    [
        [(0, 1)],
        [(0, 10 * PAGE + 100)],
        [(64, 100)],
        [(PAGE + 128, 3 * PAGE)],
        [(10 * PAGE + 64, 36)],
        [(PAGE, PAGE), (5 * PAGE, 10)],
        [(PAGE - 64, 64), (7 * PAGE, PAGE), (3 * PAGE, 1)],
        [(0, PAGE), (0, PAGE), (0, PAGE)],
    ],
)
def test_map_private(file: Path, pieces: list[tuple[int, int]]) -> None:
    content = file.read_bytes()
    expected = b"".join(content[offset : offset + nbytes] for offset, nbytes in pieces)
    found = mapped(file, *pieces)
    assert found is not None
    assert found.tobytes() == expected
    assert address(found) % ALIGNMENT == 0
    assert mappings(file) >= 1
    found[:] = 255
    assert found.tobytes() == b"\xff" * len(expected)
    assert file.read_bytes() == content
    again = mapped(file, *pieces)
    assert again is not None
    assert again.tobytes() == expected
    del found, again
    assert mappings(file) == 0


@pytest.mark.parametrize(
    "pieces",
    [
        [(1, 100)],
        [(63, 100)],
        [(PAGE + 8, 100)],
        [(0, 100), (PAGE, 10)],  # the first ends within a page
        [(0, PAGE), (PAGE + 64, 10)],  # the second starts within one
        [(32, PAGE - 32), (PAGE, 10)],
        [(0, 0)],
    ],
)
def test_map_private_refuses(file: Path, pieces: list[tuple[int, int]]) -> None:
    assert mapped(file, *pieces) is None
    assert mappings(file) == 0


@pytest.mark.parametrize("pieces", [[(0, 64)], [(0, PAGE), (PAGE, PAGE)]])
def test_map_private_where_the_system_refuses(tmp_path: Path, pieces: list[tuple[int, int]]) -> None:
    """A descriptor that cannot be mapped, such as that of a folder."""
    assert mapped(tmp_path, *pieces) is None
    with open("/proc/self/maps", encoding="utf-8") as table:
        before = len(table.readlines())
    for _ in range(100):
        mapped(tmp_path, *pieces)
    with open("/proc/self/maps", encoding="utf-8") as table:
        assert len(table.readlines()) < before + 20


def test_several_files_in_one_mapping(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"o" * PAGE)
    with descriptor(file) as first, descriptor(other) as second:
        found = map_private([(first, PAGE, PAGE), (second, 0, PAGE)])
    assert found is not None
    assert found.tobytes() == file.read_bytes()[PAGE : 2 * PAGE] + b"o" * PAGE


def test_a_mapping_lives_as_long_as_its_last_view(file: Path) -> None:
    content = file.read_bytes()
    found = mapped(file, (0, 8 * PAGE))
    assert found is not None
    view = found.view(np.uint64).reshape(8, -1)[3:4]
    del found
    assert mappings(file) == 1
    assert view.tobytes() == content[3 * PAGE : 4 * PAGE]
    threading.Thread(target=lambda held: held.clear(), args=([view],)).start()
    del view
    deadline = threading.Event()
    while mappings(file) and not deadline.wait(0.01):
        pass
    assert mappings(file) == 0


def test_thousands_of_mappings_leave_nothing(file: Path) -> None:
    descriptors = len(open_files())
    for _ in range(3000):
        found = mapped(file, (0, PAGE), (2 * PAGE, PAGE))
        assert found is not None
    del found
    assert mappings(file) == 0
    assert len(open_files()) == descriptors


EXIT = """
import os, sys
import numpy as np
from oocloader.reading.buffers import Pool, map_private
fd = os.open(sys.argv[1], os.O_RDONLY)
held = map_private([(fd, 0, 4096)])
pool = Pool(100, keep=1)
lent = pool.take()
held[0] = lent[0]
"""


def test_nothing_is_said_at_exit(file: Path) -> None:
    done = subprocess.run([sys.executable, "-c", EXIT, str(file)], capture_output=True, text=True, check=True)
    assert done.stderr == ""


# -- file systems


MOUNTS = r"""
overlay / overlay rw 0 0
proc /proc proc rw 0 0
/dev/sda1 /data ext4 rw 0 0
server:/share /data/remote nfs4 rw 0 0
/dev/sdb1 /data/remote/local xfs rw 0 0
sshfs /home/me/far fuse.sshfs rw 0 0
scratch /lustre\040disk lustre rw 0 0
tmpfs /data/remotely tmpfs rw 0 0
"""


@pytest.mark.parametrize(
    ("folder", "local"),
    [
        ("/", True),
        ("/anything", True),
        ("/data", True),
        ("/data/sets", True),
        ("/data/remote", False),
        ("/data/remote/a/b", False),
        ("/data/remote/local", True),
        ("/data/remotely/x", True),
        ("/home/me/far/x", False),
        ("/home/me", True),
        ("/lustre disk/x", False),
    ],
)
def test_local_file_systems(
    folder: str, local: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "mounts"
    table.write_text(MOUNTS.lstrip())
    real = open
    monkeypatch.setattr(
        buffers,
        "open",
        lambda path, **options: real(table if path == "/proc/self/mounts" else path, **options),
        raising=False,
    )
    on_local_file_system.cache_clear()
    try:
        assert on_local_file_system(folder) is local
    finally:
        on_local_file_system.cache_clear()


def test_this_file_system_is_local(tmp_path: Path) -> None:
    assert on_local_file_system(str(tmp_path))
