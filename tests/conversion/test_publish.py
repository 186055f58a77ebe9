"""A store appears under its name only when it is complete, and what was there stays until then."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from oocloader.conversion import publish
from oocloader.conversion.destination import Destination
from oocloader.conversion.publish import aside, remove, size_of, sync
from oocloader.errors import StoreError


def make(path: Path, kind: str, text: str) -> Path:
    """A file, or a folder of files, that can be told by `text`."""
    if kind == "file":
        path.write_text(text)
    else:
        (path / "inner").mkdir(parents=True)
        (path / "zarr.json").write_text(text)
        (path / "inner" / text).touch()
    return path


def content(path: Path) -> tuple[str, list[str]]:
    if path.is_file():
        return path.read_text(), []
    return (path / "zarr.json").read_text(), sorted(entry.name for entry in (path / "inner").iterdir())


def publish_new(destination: Path, kind: str, *, overwrite: bool) -> tuple[str, list[str]]:
    with aside(str(destination)) as path:
        made = content(make(Path(path), kind, "new"))
        publish.publish(path, str(destination), overwrite=overwrite)
    return made


@pytest.fixture(params=["exchange", "no exchange"])
def rename_ability(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "no exchange":
        monkeypatch.setattr(publish, "_libc_function", lambda name: None)


@pytest.mark.usefixtures("rename_ability")
@pytest.mark.parametrize("old", ["file", "folder", None])
@pytest.mark.parametrize("new", ["file", "folder"])
def test_overwrite_replaces_whatever_is_there(tmp_path: Path, new: str, old: str | None) -> None:
    destination = tmp_path / "out"
    if old is not None:
        make(destination, old, "old")
    expected = publish_new(destination, new, overwrite=True)
    assert content(destination) == expected
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.usefixtures("rename_ability")
@pytest.mark.parametrize("old", ["file", "folder"])
@pytest.mark.parametrize("new", ["file", "folder"])
def test_what_appeared_meanwhile_is_kept(tmp_path: Path, new: str, old: str) -> None:
    destination = tmp_path / "out"
    before = content(make(destination, old, "old"))
    with pytest.raises(StoreError, match="someone else made it"):
        publish_new(destination, new, overwrite=False)
    assert content(destination) == before
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.usefixtures("rename_ability")
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_new_name(tmp_path: Path, kind: str) -> None:
    destination = tmp_path / "out"
    expected = publish_new(destination, kind, overwrite=False)
    assert content(destination) == expected


@pytest.mark.parametrize("failing", [1, 2])
def test_old_folder_returns_where_it_cannot_be_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    monkeypatch.setattr(publish, "_libc_function", lambda name: None)
    rename, calls = os.rename, 0

    def failing_rename(source: Any, target: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == failing:
            raise OSError(errno.EIO, "broken")
        rename(source, target)

    before = content(make(tmp_path / "out", "folder", "old"))
    monkeypatch.setattr(os, "rename", failing_rename)
    with pytest.raises(OSError, match="broken"):
        publish_new(tmp_path / "out", "folder", overwrite=True)
    assert content(tmp_path / "out") == before
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_old_store_has_its_name_until_the_rename(tmp_path: Path, kind: str) -> None:
    before = content(make(tmp_path / "out", kind, "old"))
    with aside(str(tmp_path / "out")) as path:
        make(Path(path), kind, "new")
        assert content(tmp_path / "out") == before
        assert os.path.dirname(path) == str(tmp_path)
        assert os.path.basename(path).startswith(".out.oocloader-")


@pytest.mark.parametrize("kind", ["file", "folder"])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_nothing_is_left_of_a_failure(tmp_path: Path, kind: str, error: type[BaseException]) -> None:
    def fail() -> None:
        with aside(str(tmp_path / "out")) as path:
            make(Path(path), kind, "new")
            raise error

    with pytest.raises(error):
        fail()
    assert os.listdir(tmp_path) == []


def test_interrupted_removal_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(tmp_path / "out", "folder", "old")
    real, calls = publish._remove, 0

    def interrupted(path: str) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            os.unlink(os.path.join(path, "zarr.json"))
            raise KeyboardInterrupt
        real(path)

    monkeypatch.setattr(publish, "_remove", interrupted)
    with pytest.raises(KeyboardInterrupt):
        remove(str(path))
    assert not path.exists()


def test_sync_and_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make(tmp_path / "out", "folder", "old")
    (folder / "inner" / "large").write_bytes(bytes(70 << 20))
    assert size_of(str(folder)) == (70 << 20) + 3
    assert size_of(str(folder / "inner" / "large")) == 70 << 20
    synced = []
    fsync = os.fsync

    def recorded(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", recorded)
    sync(str(folder))
    inner = folder / "inner"
    assert sorted(synced) == sorted(
        str(path) for path in (folder, folder / "zarr.json", inner, inner / "old", inner / "large")
    )
    # A folder is synced behind what it holds.
    assert synced.index(str(inner)) > max(
        synced.index(str(inner / "old")), synced.index(str(inner / "large"))
    )
    assert synced[-1] == str(folder)


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    make(tmp_path / "disk" / "real.h5", "file", "old")
    link = tmp_path / "out.h5"
    link.symlink_to(tmp_path / "disk" / "real.h5")
    target = Destination.parsed(link)
    target.check(overwrite=True, needed_nbytes=0)
    real = target.real
    with aside(real) as path:
        make(Path(path), "file", "new")
        publish.publish(path, real, overwrite=True)
    assert link.is_symlink()
    assert link.read_text() == "new"
