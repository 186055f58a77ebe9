"""What is fetched before it is read: in order by a thread, from the start of files, or as advice."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oocloader.reading import page_cache
from oocloader.reading.page_cache import Fetcher, advise, is_cached
from recorded import eventually, our_threads

MIB = 1 << 20
SIZE = 24 * MIB + 5

linux = pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="Linux alone tells of its page cache")


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert eventually(lambda: our_threads() == [])


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file, sparse, of 24 MiB and five bytes."""
    (tmp_path / "x").touch()
    os.truncate(tmp_path / "x", SIZE)
    return str(tmp_path / "x")


@pytest.fixture
def fd(path: str) -> Iterator[int]:
    opened = os.open(path, os.O_RDONLY)
    yield opened
    os.close(opened)


class System:
    """The system, with nothing in its page cache: notes what is read, as asked, and what is advised."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read: list[tuple[int, int]] = []
        self.begun: list[tuple[int, int]] = []
        self.advice: list[tuple[int, int]] = []
        self.fds: set[int] = set()
        self.go_on = threading.Event()
        self.go_on.set()
        self.reading = threading.Event()
        self.nowait: Callable[[], object] = self.try_again
        self._preadv = os.preadv
        monkeypatch.setattr(page_cache, "_holds", lambda fd, place: False)
        monkeypatch.setattr(os, "preadv", self.preadv)
        monkeypatch.setattr(os, "posix_fadvise", self.advise, raising=False)

    @staticmethod
    def try_again() -> None:
        raise BlockingIOError(errno.EAGAIN, "try again")

    def preadv(self, fd: int, buffers: Any, offset: int, flags: int = 0) -> int:
        nbytes = sum(len(buffer) for buffer in buffers)
        if flags:
            assert flags == os.RWF_NOWAIT
            self.begun.append((offset, nbytes))
            self.nowait()
            return nbytes
        assert threading.current_thread().name == "oocloader-fetch"
        self.fds.add(fd)
        self.reading.set()
        assert self.go_on.wait(20)
        self.read.append((offset, nbytes))
        return self._preadv(fd, buffers, offset, flags)

    def advise(self, fd: int, offset: int, nbytes: int, advice: int) -> None:
        assert advice == os.POSIX_FADV_WILLNEED
        self.advice.append((offset, nbytes))


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> System:
    return System(monkeypatch)


def test_bytes_in_order_are_read_by_a_thread(system: System, fd: int, path: str) -> None:
    fetcher = Fetcher()
    fetcher.want(fd, path, 128, 9 * MIB)
    # Behind a gap, and with some of them again.
    fetcher.want(fd, path, 10 * MIB, MIB)
    fetcher.want(fd, path, 10 * MIB + 1, 2 * MIB)
    assert eventually(lambda: our_threads() == [])
    assert system.read == [
        (128, 4 * MIB),
        (128 + 4 * MIB, 4 * MIB),
        (128 + 8 * MIB, MIB),
        (10 * MIB, MIB),
        (10 * MIB + 1, 2 * MIB),
    ]
    assert (system.advice, system.begun) == ([], [])
    assert fd not in system.fds
    fetcher.want(fd, path, 12 * MIB, 3)
    assert eventually(lambda: system.read[5:] == [(12 * MIB, 3)])


def test_the_thread_goes_on_with_what_is_wanted_meanwhile(system: System, fd: int, path: str) -> None:
    fetcher = Fetcher()
    system.go_on.clear()
    fetcher.want(fd, path, 128, 1000)
    assert system.reading.wait(20)
    fetcher.want(fd, path, 1128, 1000)
    assert our_threads() == ["oocloader-fetch"]
    system.go_on.set()
    assert eventually(lambda: system.read == [(128, 1000), (1128, 1000)])


def test_bytes_elsewhere_are_advised_in_steps(system: System, fd: int, path: str) -> None:
    fetcher = Fetcher()
    fetcher.want(fd, path, 8 * MIB + 3, 5 * MIB // 4)
    assert system.advice == [
        (8 * MIB + 3, MIB // 2),
        (8 * MIB + 3 + MIB // 2, MIB // 2),
        (9 * MIB + 3, MIB // 4),
    ]
    fetcher.want(fd, path, 2 * MIB, 7)
    assert system.advice[3:] == [(2 * MIB, 7)]
    assert (system.read, system.begun) == ([], [])


@linux
def test_files_are_begun_without_waiting(system: System, fd: int, path: str) -> None:
    fetcher = Fetcher()
    fetcher.want(fd, path, 0, 300_000)
    assert system.begun == [(0, 131_072), (131_072, 131_072), (262_144, 300_000 - 262_144)]
    # The next bytes of it go on with them.
    fetcher.want(fd, path, 300_000, 10)
    assert eventually(lambda: system.read == [(300_000, 10)])
    assert system.advice == []


@linux
def test_a_file_system_that_only_waits_is_read_by_the_thread(system: System, fd: int, path: str) -> None:
    def not_supported() -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    system.nowait = not_supported
    Fetcher().want(fd, path, 0, MIB)
    assert len(system.begun) == 1
    assert eventually(lambda: system.read == [(0, MIB)])


def test_files_have_ends_of_their_own(system: System, fd: int, path: str, tmp_path: Path) -> None:
    other = tmp_path / "y"
    other.write_bytes(bytes(10))
    fetcher = Fetcher()
    fetcher.want(fd, path, 128, 8 * MIB)
    fetcher.want(fd, str(other), 5, 5)
    fetcher.want(fd, path, 8 * MIB, 9)
    assert eventually(lambda: len(system.read) == 4)
    assert system.read[2:] == [(5, 5), (8 * MIB, 9)]


def test_of_many_files_few_are_remembered(system: System, fd: int) -> None:
    fetcher = Fetcher()
    for number in range(1000):
        fetcher.want(fd, f"{number}", 2 * MIB, 1)
    assert len(fetcher._ends) <= 64


def test_what_cannot_be_fetched_is_left(system: System, fd: int, path: str, tmp_path: Path) -> None:
    fetcher = Fetcher()
    system.go_on.clear()
    fetcher.want(fd, path, 128, 10)
    assert system.reading.wait(20)
    fetcher.want(fd, str(tmp_path / "gone"), 128, 10)
    fetcher.want(fd, path, 138, SIZE)
    system.go_on.set()
    # Up to its end, and once more.
    assert eventually(lambda: our_threads() == [])
    assert system.read[-1][0] == SIZE
    assert {offset for offset, _ in system.read} == {128, SIZE, *range(138, SIZE, 4 * MIB)}


def test_closed_while_it_reads(system: System, fd: int, path: str) -> None:
    fetcher = Fetcher()
    system.go_on.clear()
    fetcher.want(fd, path, 128, 20 * MIB)
    fetcher.want(fd, path, 20 * MIB, MIB)
    assert system.reading.wait(20)
    threading.Timer(0.05, system.go_on.set).start()
    fetcher.close()
    assert our_threads() == []
    assert system.read == [(128, 4 * MIB)]
    fetcher.want(fd, path, 21 * MIB, 1)
    fetcher.close()
    assert our_threads() == []
    assert len(system.read) == 1


def test_where_no_thread_can_be_started(
    system: System, fd: int, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    fetcher = Fetcher()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        fetcher.want(fd, path, 128, 10)
    fetcher.want(fd, path, 138, 10)
    assert eventually(lambda: system.read == [(128, 10), (138, 10)])


def test_only_so_much_is_wanted_at_once(
    system: System, fd: int, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_cache, "_MOST_WANTED", 256)
    fetcher = Fetcher()
    system.go_on.clear()
    fetcher.want(fd, path, 128, 1)
    assert system.reading.wait(20)
    for number in range(1, 1000):
        fetcher.want(fd, path, 128 + number, 1)
    system.go_on.set()
    assert eventually(lambda: our_threads() == [])
    # What comes last is left to whoever reads it.
    assert [offset - 128 for offset, _ in system.read] == list(range(257))


@linux
def test_a_pipe_in_the_place_of_a_file(system: System, fd: int, path: str) -> None:
    os.remove(path)
    os.mkfifo(path)
    fetcher = Fetcher()
    fetcher.want(fd, path, 128, 10)
    closing = threading.Thread(target=fetcher.close)
    closing.start()
    closing.join(20)
    assert not closing.is_alive()


@linux
def test_a_forked_child_waits_for_no_thread(system: System, fd: int, path: str) -> None:
    fetcher = Fetcher()
    system.go_on.clear()
    fetcher.want(fd, path, 128, 10)
    assert system.reading.wait(20)
    child = os.fork()
    if child == 0:
        fetcher.want(fd, path, 138, 10)
        fetcher.close()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    system.go_on.set()
    fetcher.close()


@linux
def test_what_lies_in_the_page_cache_is_not_fetched(
    fd: int, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def holds(fd: int, place: int) -> bool:
        asked.append(place)
        return place < 4 * MIB

    monkeypatch.setattr(page_cache, "_holds", holds)
    fetcher = Fetcher()
    fetcher.want(fd, path, 300, 3 * MIB)
    assert asked == [300, 300 + 3 * MIB // 2, 299 + 3 * MIB]
    fetcher.want(fd, path, 300, 1)
    assert asked[3:] == [300, 300, 300]
    assert our_threads() == []


@linux
@pytest.mark.parametrize("told", ["by cachestat", "by preadv2"])
def test_the_system_tells_what_lies_in_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    _, preadv2 = page_cache._calls()
    if told == "by preadv2":
        # As of a file that one may not write.
        monkeypatch.setattr(page_cache, "_calls", lambda: (lambda *arguments: -1, preadv2))
    path = tmp_path / "x"
    path.write_bytes(bytes(4 * MIB))
    with open(path, "rb") as file:
        fd = file.fileno()
        os.fsync(fd)
        assert is_cached(fd, 0, 4 * MIB)
        # Behind the end is nothing.
        assert not is_cached(fd, 0, 9 * MIB)
        assert not is_cached(-1, 0, 1)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        if page_cache._holds(fd, MIB):
            return  # a file system in memory
        assert not is_cached(fd, 0, 4 * MIB)


@linux
def test_nothing_is_known_of_the_page_cache_where_the_system_does_not_tell(
    fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_cache, "_calls", lambda: (None, None))
    assert not is_cached(fd, 0, 1)


@linux
@pytest.mark.parametrize("first", [0, 128], ids=["begun", "in order"])
def test_what_was_fetched_lies_in_the_page_cache(tmp_path: Path, first: int) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(4 * MIB))
    fetcher = Fetcher()
    with open(path, "rb") as file:
        fd = file.fileno()
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        fetcher.want(fd, str(path), first, 4 * MIB - first)
        # All of it where a thread reads; what the system begins to read is its own affair.
        last = 4 * MIB - 1 if first else 1000
        assert eventually(lambda: is_cached(fd, first, last - first))
    fetcher.close()


def test_advice_for_what_cannot_be_read(fd: int) -> None:
    advise(-1, 0, 10)
    advise(fd, 0, 10)
