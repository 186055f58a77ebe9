"""Members of zip archives."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from oocloader.errors import StoreError
from oocloader.stores.base import zipped


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("folder/", b"")
        archive.writestr("a", b"hello")
        archive.writestr("b", b"b" * 1000, zipfile.ZIP_DEFLATED)
        archive.writestr("c", b"c" * 1000, zipfile.ZIP_BZIP2)
    return path


def test_members_lie_where_they_say(path: Path) -> None:
    members = zipped.members(str(path))
    assert {name: zipped.compression(member) for name, member in members.items()} == {
        "a": "stored",
        "b": "deflate",
        "c": "bzip2",
    }
    with open(path, "rb") as file:
        file.seek(zipped.data_offset(file.fileno(), members["a"], str(path)))
        assert file.read(5) == b"hello"
    assert zipped.read_member(str(path), members["c"]) == b"c" * 1000


def test_damage_and_passwords(path: Path) -> None:
    members = zipped.members(str(path))
    members["a"].flag_bits |= 1
    with pytest.raises(StoreError, match="'a' is encrypted"):
        zipped.read_member(str(path), members["a"])
    content = bytearray(path.read_bytes())
    content[content.index(b"hello")] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreError, match="'a' of the zip archive is damaged"):
        zipped.read_member(str(path), zipped.members(str(path))["a"])
    path.write_bytes(content[:-30])
    with pytest.raises(StoreError, match="truncated"):
        zipped.members(str(path))
