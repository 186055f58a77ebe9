from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import zarr

from oocloader.conversion.destination import Destination
from oocloader.errors import StoreError


def check(path: str | Path, *, overwrite: bool = False, needed_nbytes: int = 0) -> None:
    Destination.parsed(path).check(overwrite=overwrite, needed_nbytes=needed_nbytes)


def make(path: Path, kind: str, text: str) -> Path:
    """A file, or a folder of files, that can be told by `text`."""
    if kind == "file":
        path.write_text(text)
    else:
        (path / "inner").mkdir(parents=True)
        (path / "zarr.json").write_text(text)
        (path / "inner" / text).touch()
    return path


Refusal = tuple[Callable[[Path], Path], str]


def _missing_folder(tmp_path: Path) -> Path:
    return tmp_path / "nowhere" / "out.h5"


def _below_a_file(tmp_path: Path) -> Path:
    return make(tmp_path / "file", "file", "x") / "out.h5"


def _existing(tmp_path: Path) -> Path:
    return make(tmp_path / "out.zarr", "folder", "x")


def _broken_link(tmp_path: Path) -> Path:
    (tmp_path / "out.h5").symlink_to(tmp_path / "gone" / "there.h5")
    return tmp_path / "out.h5"


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (_missing_folder, "nowhere does not exist; create it first"),
        (_below_a_file, "file does not exist"),
        (_existing, "exists already and was left as it is"),
        (_broken_link, "gone does not exist"),
    ],
)
def test_destination_refused(tmp_path: Path, prepare: Callable[[Path], Path], words: str) -> None:
    path = prepare(tmp_path)
    with pytest.raises(StoreError) as caught:
        check(path, overwrite=False)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)
    assert caught.value.file == str(path)


def test_folder_without_write_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    with pytest.raises(StoreError, match="cannot be written to: no permission"):
        check(tmp_path / "out.h5", overwrite=False)


def test_lack_of_room_is_known_before(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"out\.h5: no space: the store needs 909,494\.7 TiB"):
        check(tmp_path / "out.h5", needed_nbytes=10**18)


def test_only_stores_are_overwritten(tmp_path: Path) -> None:
    photos = tmp_path / "photos.zarr"
    photos.mkdir()
    check(photos, overwrite=True)  # empty
    (photos / "holiday.jpg").touch()
    with pytest.raises(StoreError, match="a folder that is no Zarr store"):
        check(photos, overwrite=True)
    for version in (2, 3):
        path = str(tmp_path / f"v{version}.zarr")
        zarr.create_array(path, shape=(3,), dtype="i4", zarr_format=version)
        check(path, overwrite=True)
        assert Destination.parsed(path).real == path
        inner = tmp_path / f"implicit{version}.zarr"
        inner.mkdir()
        os.rename(path, inner / "x")
        check(inner, overwrite=True)
