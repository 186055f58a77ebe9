"""Bytes of files that must still be what they were; descriptors bounded, and closed when nobody reads."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from chunked import files_of, open_files
from oocloader.errors import ChangedError, ClosedError, StoreError
from oocloader.reading.files import FileReader
from oocloader.reading.page_cache import Fetcher


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files whose bytes carry their file and place."""
    for number in range(3):
        (tmp_path / f"f{number}").write_bytes(((np.arange(1000) + 50 * number) % 251).astype("u1").tobytes())
    return tmp_path


def reader_of(folder: Path) -> FileReader:
    return FileReader(files_of(folder, sorted(path.name for path in folder.iterdir())))


def read(reader: FileReader, index: int, offset: int, nbytes: int) -> bytes:
    out = np.zeros(nbytes, np.uint8)
    with reader.opened(index) as fd:
        reader.read(fd, index, offset, out)
    return out.tobytes()


def test_reads_bytes_of_every_file(folder: Path) -> None:
    reader = reader_of(folder)
    for index in (2, 0, 1, 2):
        for offset, nbytes in ((0, 1000), (17, 3), (999, 1), (500, 0)):
            expected = (folder / f"f{index}").read_bytes()[offset : offset + nbytes]
            assert read(reader, index, offset, nbytes) == expected


def test_short_reads_go_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    preadv = os.preadv

    def seven_bytes(fd: int, views: list[memoryview], offset: int, flags: int = 0) -> int:
        taken.append(offset)
        return preadv(fd, [views[0][:7]], offset, flags)

    monkeypatch.setattr(os, "preadv", seven_bytes)
    reader = reader_of(folder)
    out = np.zeros(30, np.uint8)
    with reader.opened(1) as fd:
        assert reader.read(fd, 1, 100, out) == 5
    assert out.tobytes() == (folder / "f1").read_bytes()[100:130]
    assert taken == [100, 107, 114, 121, 128]


def test_what_will_be_needed_is_fetched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted: list[tuple[bool, str, int, int]] = []

    def want(self: Fetcher, fd: int, path: str, offset: int, nbytes: int) -> None:
        wanted.append((os.path.samestat(os.fstat(fd), os.stat(path)), path, offset, nbytes))

    monkeypatch.setattr(Fetcher, "want", want)
    reader = reader_of(folder)
    reader.will_need(1, [(300, 7), (400, 9)])
    assert wanted == [(True, str(folder / "f1"), 300, 7), (True, str(folder / "f1"), 400, 9)]
    # What is wrong with a file is told of where it is read.
    (folder / "f2").unlink()
    reader.will_need(2, [(0, 7)])
    reader.close()
    reader.will_need(1, [(300, 7)])
    assert len(wanted) == 2


def test_nothing_is_fetched_once_closed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []
    monkeypatch.setattr(Fetcher, "close", lambda self: closed.append(True))
    reader_of(folder).close()
    assert closed == [True]


def truncate(path: Path) -> None:
    os.truncate(path, 400)


def append(path: Path) -> None:
    with open(path, "ab") as stream:
        stream.write(b"more")


def modify(path: Path) -> None:
    with open(path, "r+b") as stream:
        stream.write(b"other")
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))


def replace(path: Path) -> None:
    beside = path.with_name("beside")
    beside.write_bytes(b"x" * 1000)
    os.utime(beside, ns=(0, path.stat().st_mtime_ns + 1))
    os.rename(beside, path)


CHANGES = [
    (truncate, "it has 400 bytes now and had 1000 when the store was opened"),
    (append, "it has 1004 bytes now and had 1000 when the store was opened"),
    (modify, "it was modified since the store was opened"),
    (replace, "it was modified since the store was opened"),
    (os.remove, "the file was removed since the store was opened"),
]


@pytest.mark.parametrize(("change", "words"), CHANGES)
def test_a_file_that_changed_is_an_error(folder: Path, change: Callable[[Path], None], words: str) -> None:
    reader = reader_of(folder)
    change(folder / "f1")
    for _ in range(2):
        with pytest.raises(ChangedError) as caught:
            read(reader, 1, 0, 10)
        assert str(caught.value).startswith(f"{folder}/f1: the file ")
        assert words in str(caught.value)
        assert caught.value.file == f"{folder}/f1"
        assert isinstance(caught.value, OSError)
    assert read(reader, 0, 0, 3) == b"\0\1\2"


@pytest.mark.parametrize(("change", "words"), CHANGES[:3])
def test_a_file_that_changes_while_open_is_an_error(
    folder: Path, change: Callable[[Path], None], words: str
) -> None:
    reader = reader_of(folder)
    read(reader, 1, 0, 10)
    change(folder / "f1")
    with pytest.raises(ChangedError, match=words):
        read(reader, 1, 0, 10)


@pytest.mark.parametrize("change", [replace, os.remove])
def test_an_open_file_stays_what_it_was_under_another_of_its_name(
    folder: Path, change: Callable[[Path], None]
) -> None:
    reader = reader_of(folder)
    expected = read(reader, 1, 0, 1000)
    change(folder / "f1")
    assert read(reader, 1, 0, 1000) == expected


def test_a_file_truncated_under_a_reader_is_an_error(folder: Path) -> None:
    reader = reader_of(folder)
    with reader.opened(0) as fd:
        truncate(folder / "f0")
        out = np.zeros(1000, np.uint8)
        with pytest.raises(
            ChangedError, match="the file ends at byte 400, but bytes up to 1000 are expected"
        ):
            reader.read(fd, 0, 0, out)
    assert out[:400].tobytes() == (folder / "f0").read_bytes()


@pytest.mark.parametrize(
    ("raised", "kind", "words"),
    [
        (PermissionError(13, "Permission denied"), StoreError, "cannot be read: Permission denied"),
        (FileNotFoundError(2, "No such file"), ChangedError, "was removed since"),
        (OSError(24, "Too many open files"), StoreError, "cannot be read: Too many open files"),
    ],
)
def test_files_that_do_not_open(
    folder: Path, monkeypatch: pytest.MonkeyPatch, raised: OSError, kind: type[StoreError], words: str
) -> None:
    def refuse(*_: object) -> int:
        raise raised

    reader = reader_of(folder)
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(kind, match=words) as caught:
        read(reader, 1, 0, 10)
    assert type(caught.value) is kind
    assert caught.value.__cause__ is raised
    assert caught.value.file == f"{folder}/f1"


def test_an_error_of_the_disk_names_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(5, "Input/output error")

    reader = reader_of(folder)
    monkeypatch.setattr(os, "preadv", fail)
    with pytest.raises(StoreError, match=r"/f2: cannot be read: Input/output error$"):
        read(reader, 2, 0, 10)


def many(folder: Path, count: int) -> FileReader:
    folder = folder / "many"
    folder.mkdir()
    for number in range(count):
        (folder / f"{number:04}").write_bytes(bytes([number % 256]) * 8)
    return reader_of(folder)


@pytest.mark.parametrize(("count", "kept"), [(64, 64), (65, 0), (1500, 0)])
def test_descriptors_are_bounded(folder: Path, count: int, kept: int) -> None:
    reader = many(folder, count)
    gc.collect()  # errors of tests before hold files in cycles
    before = len(open_files())
    for index in range(count):
        assert read(reader, index, 0, 8) == bytes([index % 256]) * 8
        assert len(open_files()) <= before + 64
    assert len(open_files()) == before + kept
    reader.close()
    assert len(open_files()) == before


@pytest.mark.parametrize("count", [3, 100])
def test_a_closed_reader_says_so(folder: Path, count: int) -> None:
    reader = many(folder, count)
    read(reader, 0, 0, 8)
    reader.close()
    reader.close()
    for index in (0, 1):
        with pytest.raises(ClosedError, match="the store is closed"):
            read(reader, index, 0, 8)


def test_descriptors_go_with_the_reader(folder: Path) -> None:
    gc.collect()  # errors of tests before hold files in cycles
    before = len(open_files())
    reader = reader_of(folder)
    read(reader, 0, 0, 10)
    assert len(open_files()) == before + 1
    del reader
    assert len(open_files()) == before


@pytest.mark.parametrize("change", [truncate, os.remove])
def test_refused_files_leave_no_descriptor(folder: Path, change: Callable[[Path], None]) -> None:
    reader = many(folder, 100)
    change(folder / "many" / "0007")
    gc.collect()  # errors of tests before hold files in cycles
    before = len(open_files())
    for _ in range(5):
        with pytest.raises(ChangedError):
            read(reader, 7, 0, 8)
    assert len(open_files()) == before


def test_close_leaves_the_file_to_whoever_reads_from_it(folder: Path) -> None:
    """The number of a closed descriptor goes to the next file opened, whose bytes would be taken for ours."""
    reader = reader_of(folder)
    gc.collect()  # errors of tests before hold files in cycles
    before = len(open_files())
    with reader.opened(0) as fd:
        reader.close()
        with open(folder / "f2", "rb") as other:
            assert other.fileno() != fd
            out = np.zeros(10, np.uint8)
            reader.read(fd, 0, 0, out)
            assert out.tobytes() == (folder / "f0").read_bytes()[:10]
    assert len(open_files()) == before


def test_many_threads(folder: Path) -> None:
    reader = reader_of(folder)
    expected = [(folder / f"f{index}").read_bytes() for index in range(3)]
    wrong: list[tuple[int, int]] = []

    def work(seed: int) -> None:
        for offset in np.random.default_rng(seed).integers(0, 990, 300).tolist():
            index = offset % 3
            if read(reader, index, offset, 10) != expected[index][offset : offset + 10]:
                wrong.append((index, offset))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert sum(str(folder) in name for name in open_files()) == 3
