from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from oocloader.conversion.extents import Extent, extents_of, put, put_tail


def test_chunks_that_follow_each_other_are_one_extent() -> None:
    found = extents_of("f", [8, 10, 13, 40, 44, 0], [2, 3, 1, 4, 1, 8])
    assert found == [Extent("f", 8, 6), Extent("f", 40, 5), Extent("f", 0, 8)]
    assert extents_of("f", [7], [1]) == [Extent("f", 7, 1)]


def test_put(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    second.write_bytes(bytes(100))
    data = np.arange(1, 11, dtype=np.uint8)
    extents = [Extent(str(first), 3, 4), Extent(str(second), 1, 6, b"tail", True)]
    assert put(extents, data, stopped=lambda: False)
    assert first.read_bytes() == b"\0\0\0\1\2\3\4"
    assert second.read_bytes() == b"\0\5\6\7\x08\x09\x0atail"


def test_extents_of_a_file_in_any_order(tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    put([Extent(path, 4, 2, b"!", True)], np.array([5, 6], np.uint8), stopped=lambda: False)
    put([Extent(path, 0, 4)], np.array([1, 2, 3, 4], np.uint8), stopped=lambda: False)
    assert Path(path).read_bytes() == b"\1\2\3\4\5\6!"


def test_stopped_between_extents(tmp_path: Path) -> None:
    extents = [Extent(str(tmp_path / name), 0, 1) for name in "ab"]
    assert not put(extents, np.array([1, 2], np.uint8), stopped=lambda: (tmp_path / "a").exists())
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_stopped_before_any(tmp_path: Path) -> None:
    assert not put([Extent(str(tmp_path / "a"), 0, 1)], np.zeros(1, np.uint8), stopped=lambda: True)
    assert list(tmp_path.iterdir()) == []


def test_a_tail_is_put_behind_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"0123456789")
    put_tail(Extent(str(path), 2, 3, b"xy", True))
    assert path.read_bytes() == b"01234xy"


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        put([Extent(str(tmp_path / "gone" / "a"), 0, 1)], np.zeros(1, np.uint8), stopped=lambda: False)
