"""Where the members of a zip archive lie in it."""

from __future__ import annotations

import os
import zipfile
import zlib
from dataclasses import dataclass

from oocloader.errors import StoreError

_LOCAL_HEADER_NBYTES = 30
_ENCRYPTED = 0x1


@dataclass(frozen=True, slots=True)
class Member:
    """A member: its local header at `header_offset`, then `stored` bytes that are `nbytes` when unpacked.

    `method` is the compression method of the zip format: 0 as it is, 8 deflate.
    """

    name: str
    header_offset: int
    stored: int
    nbytes: int
    method: int
    crc: int


def members(path: str) -> dict[str, Member]:
    """The members of an archive by name, without folders; of several with one name the last counts.

    Raises `StoreError` where the archive is cut short or damaged.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError) as error:
        what = f"{path}: the zip archive cannot be read ({error}); it may be truncated"
        raise StoreError(what, file=path) from error
    return {entry.filename: _member(entry) for entry in entries if not entry.is_dir()}


def _member(entry: zipfile.ZipInfo) -> Member:
    # Encryption counts as a method, so that such members need no care of their own.
    method = -1 if entry.flag_bits & _ENCRYPTED else entry.compress_type
    stored, nbytes = entry.compress_size, entry.file_size
    return Member(entry.filename, entry.header_offset, stored, nbytes, method, entry.CRC)


def data_offset(fd: int, member: Member, path: str) -> int:
    """Where the bytes of a member begin; its local header may be longer than the directory says."""
    header = os.pread(fd, _LOCAL_HEADER_NBYTES, member.header_offset)
    if len(header) < _LOCAL_HEADER_NBYTES or header[:4] != b"PK\x03\x04":
        raise StoreError(f"{path}: the zip archive is damaged at member {member.name!r}", file=path)
    name = int.from_bytes(header[26:28], "little")
    extra = int.from_bytes(header[28:30], "little")
    return member.header_offset + _LOCAL_HEADER_NBYTES + name + extra


def method_name(method: int) -> str:
    """How people call a compression method of the zip format."""
    names = {-1: "encrypted", 0: "stored", 8: "deflate", 9: "deflate64", 12: "bzip2", 14: "lzma", 93: "zstd"}
    return names.get(method, f"method {method}")


def read_member(path: str, member: Member) -> bytes:
    """A member unpacked, checked against its checksum. Raises `StoreError`."""
    if member.method == -1:
        raise StoreError(f"{path}: member {member.name!r} is encrypted", file=path)
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.read(archive.NameToInfo[member.name])
    except (zipfile.BadZipFile, EOFError, OSError, ValueError, NotImplementedError, zlib.error) as error:
        what = f"{path}: member {member.name!r} of the zip archive is damaged: {error}"
        raise StoreError(what, file=path) from error
