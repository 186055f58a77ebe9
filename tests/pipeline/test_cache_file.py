"""The file of decoded rows: complete before use, and never that of another store."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oocloader as ooc
from caches import work
from numbered import Numbered
from recorded import eventually, finished, ids_of, our_threads, started

pytestmark = pytest.mark.usefixtures("tf")


ROWS = 1000


KEEPS = ("memory", "folder")


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert eventually(lambda: not our_threads())


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "cache").iterdir())


def test_the_file_is_the_rows_as_npy(make_store: Callable[..., Numbered], tmp_path: Path) -> None:
    store = make_store("zarr")
    rows = np.r_[np.arange(5, 300), np.arange(500, 999, 2)]
    with ooc.Loader(store.source, "x", "y", cache=tmp_path / "cache", rows=rows, shuffle=True) as loader:
        list(loader)
    x, y = (np.load(tmp_path / "cache" / name) for name in names(tmp_path))
    np.testing.assert_array_equal(x, store.x[rows])
    np.testing.assert_array_equal(y, store.y[rows])


def test_nothing_has_its_name_before_it_is_complete(
    make_store: Callable[..., Numbered], tmp_path: Path
) -> None:
    store = make_store("h5", 5000)
    loader = ooc.Loader(store.source, "x", cache=tmp_path / "cache", window=64, batch_size=64)
    assert names(tmp_path) == []
    batches = iter(loader)
    next(batches)
    assert [name.endswith(".npy.partial") for name in names(tmp_path)] == [True]
    loader.close()
    # What is not complete is of no use to anybody.
    assert names(tmp_path) == []


@pytest.mark.parametrize("damage", ["short", "left over"])
def test_a_file_that_is_not_whole_is_made_anew(
    make_store: Callable[..., Numbered], tmp_path: Path, damage: str
) -> None:
    """Cut short by somebody, or left aside by a run that was killed."""
    store = make_store("h5")
    with ooc.Loader(store.source, "x", "y", cache=tmp_path / "cache") as loader:
        ids_of(loader)
    for path in (tmp_path / "cache").iterdir():
        if damage == "short":
            path.write_bytes(path.read_bytes()[:-1])
        else:
            path.rename(str(path) + ".partial")
    with ooc.Loader(store.source, "x", "y", cache=tmp_path / "cache") as loader:
        for _ in range(2):
            assert ids_of(loader) == list(range(ROWS))
        assert work(loader) == (0, 0, 0)
    assert all(name.endswith(".npy") for name in names(tmp_path))
    assert len(names(tmp_path)) == 2


def test_one_fills_and_others_use_it_when_it_is_there(
    make_store: Callable[..., Numbered], tmp_path: Path
) -> None:
    store = make_store("h5", 3000)
    options: dict[str, Any] = {"cache": tmp_path / "cache", "window": 100, "batch_size": 100}
    with (
        ooc.Loader(store.source, "x", "y", **options) as filling,
        ooc.Loader(store.source, "x", "y", **options) as waiting,
    ):
        batches = iter(filling)
        found = ids_of([next(batches)])
        assert ids_of(waiting) == list(range(3000))
        assert work(waiting)[0] == 3000 * 24
        assert all(name.endswith(".partial") for name in names(tmp_path))
        assert found + ids_of(batches) == list(range(3000))
        assert len(names(tmp_path)) == 2
        ids_of(waiting)
        assert ids_of(waiting) == list(range(3000))
        assert work(waiting) == (0, 0, 0)


def test_nothing_is_left_of_one_who_came_too_late_to_fill(
    make_store: Callable[..., Numbered], tmp_path: Path
) -> None:
    store = make_store("h5")
    options: dict[str, Any] = {"cache": tmp_path / "cache"}
    with (
        ooc.Loader(store.source, "x", "y", **options) as filling,
        ooc.Loader(store.source, "x", "y", **options) as late,
    ):
        assert ids_of(filling) == list(range(1000))
        complete = names(tmp_path)
        assert ids_of(late) == list(range(1000))
        assert work(late) == (0, 0, 0)
        assert names(tmp_path) == complete
        assert not any(name.endswith(".partial") for name in complete)


@pytest.mark.soak
def test_a_filler_that_is_killed_is_replaced(make_store: Callable[..., Numbered], tmp_path: Path) -> None:
    store = make_store("h5", 5000)
    program = started(
        """
        loader = ooc.Loader(sys.argv[1], "x", "y", cache=sys.argv[2], window=64, batch_size=64)
        batches = iter(loader)
        next(batches)
        print(*os.listdir(sys.argv[2]), flush=True)
        os.kill(os.getpid(), 9)
        """,
        store.source,
        tmp_path / "cache",
    )
    code, out, err = finished(program)
    assert code == -9, err
    assert [name.endswith(".partial") for name in out.split()] == [True, True]
    with ooc.Loader(store.source, "x", "y", cache=tmp_path / "cache") as loader:
        assert ids_of(loader) == list(range(5000))
    assert [name.endswith(".npy") for name in names(tmp_path)] == [True, True]


def test_a_full_disk_is_told_before_anything_is_read(
    make_store: Callable[..., Numbered], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store("h5")
    usage = type("Usage", (), {"free": 1000 * 24 - 1})
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(ooc.StoreError, match="has 23999 bytes free, and the decoded rows take 24000; make"):
        ooc.Loader(store.source, "x", "y", cache=tmp_path / "cache")
    monkeypatch.undo()

    # Others may have filled it since.
    def full(fd: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with ooc.Loader(store.source, "x", "y", cache=tmp_path / "cache") as loader:
        with pytest.raises(ooc.StoreError, match=r"the cache cannot be written \(.* bytes\): No space left"):
            list(loader)
        assert names(tmp_path) == []
