"""Local files written atomically, locked, and recognised as unchanged."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import BinaryIO

import pytest

from oocloader.local_files import FileState, is_at, try_lock, write_atomically


def test_a_file_is_replaced_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")

    def write(stream: BinaryIO) -> None:
        stream.write(b"new")
        assert path.read_bytes() == b"old"

    write_atomically(str(path), write)
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
def test_what_fails_leaves_the_old_file(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")

    def write(stream: BinaryIO) -> None:
        stream.write(b"half")
        raise error

    with pytest.raises(type(error)):
        write_atomically(str(path), write)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["x"]


def test_a_lock_is_for_one_descriptor(tmp_path: Path) -> None:
    first, second = (os.open(tmp_path / "x", os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert try_lock(first) is True
    assert try_lock(second) is False
    os.close(first)
    assert try_lock(second) is True
    os.close(second)


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int, operation: int) -> None:
        raise OSError(code, "no")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with open(tmp_path / "x", "w") as file:
        code = errno.ENOTSUP
        assert try_lock(file.fileno()) is None
        code = errno.EIO
        with pytest.raises(OSError, match="no"):
            try_lock(file.fileno())


def test_whether_a_name_still_names_the_open_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with open(path, "w") as file:
        assert is_at(file.fileno(), str(path))
        path.rename(tmp_path / "y")
        assert not is_at(file.fileno(), str(path))
        path.write_text("another")
        assert not is_at(file.fileno(), str(path))


def test_a_file_that_was_written_to_has_another_state(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"12")
    before = FileState.of(str(path))
    assert before == FileState.of(str(path))
    path.write_bytes(b"123")
    assert FileState.of(str(path)) != before
    path.write_bytes(b"12")
    os.utime(path, ns=(1, before.mtime_ns + 1))
    assert FileState.of(str(path)) != before
