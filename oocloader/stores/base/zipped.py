"""Where the members of a zip archive lie in it."""

import os
import zipfile
import zlib

from oocloader.errors import StoreError

_LOCAL_HEADER_NBYTES = 30
_ENCRYPTED = 0x1


Member = zipfile.ZipInfo


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
    return {entry.filename: entry for entry in entries if not entry.is_dir()}


def data_offset(fd: int, member: Member, path: str) -> int:
    """Where the bytes of a member begin; its local header may be longer than the directory says."""
    header = os.pread(fd, _LOCAL_HEADER_NBYTES, member.header_offset)
    if len(header) < _LOCAL_HEADER_NBYTES or header[:4] != b"PK\x03\x04":
        raise StoreError(f"{path}: the zip archive is damaged at member {member.filename!r}", file=path)
    name = int.from_bytes(header[26:28], "little")
    extra = int.from_bytes(header[28:30], "little")
    return member.header_offset + _LOCAL_HEADER_NBYTES + name + extra


def compression(member: Member) -> str:
    """How people call the way in which the bytes of a member are kept: "stored" is as they are."""
    if member.flag_bits & _ENCRYPTED:
        return "encrypted"
    names = {0: "stored", 8: "deflate", 9: "deflate64", 12: "bzip2", 14: "lzma", 93: "zstd"}
    return names.get(member.compress_type, f"method {member.compress_type}")


def read_member(path: str, member: Member) -> bytes:
    """A member unpacked, checked against its checksum. Raises `StoreError`."""
    if compression(member) == "encrypted":
        raise StoreError(f"{path}: member {member.filename!r} is encrypted", file=path)
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.read(member)
    except (zipfile.BadZipFile, EOFError, OSError, ValueError, NotImplementedError, zlib.error) as error:
        what = f"{path}: member {member.filename!r} of the zip archive is damaged: {error}"
        raise StoreError(what, file=path) from error
