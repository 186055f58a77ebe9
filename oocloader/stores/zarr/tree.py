"""The keys of a Zarr store, in a folder or in a zip archive, and where the bytes of its chunks lie."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from oocloader.errors import StoreError
from oocloader.paths import natural_key
from oocloader.reading import Files
from oocloader.stores.base.zipped import Member, compression, data_offset, read_member


@dataclass(frozen=True, slots=True)
class Objects:
    """Objects of a store below one prefix: `keys`, relative to it, and where the bytes of each are.

    Columns have one entry a key: `file` (int32, index into `files`), `offset` and `stored` (int64,
    bytes). `packed` says why the bytes in the files are not those of the objects, if they are not.
    """

    keys: list[str]
    files: Files
    file: np.ndarray
    offset: np.ndarray
    stored: np.ndarray
    packed: str = ""


@dataclass(frozen=True, slots=True)
class Below:
    """What is known of the keys of an array: folders `depth` below it hold the object `tail` and no other.

    An array of one chunk across, in folders "c/17/0/0", has as many folders as chunks for each axis;
    looking up the name that is known takes a tenth of the time of listing them.

    >>> Below.of("c/", "/", (200, 1, 1))
    Below(depth=2, tail='0/0')
    """

    depth: int | None = None
    tail: str = ""

    @classmethod
    def of(cls, prefix: str, separator: str, grid: tuple[int, ...]) -> Below:
        """For keys of that prefix and separator, and `grid` chunks along each axis."""
        across = next((i for i, n in enumerate(reversed(grid)) if n != 1), len(grid) - 1)
        if separator != "/" or across <= 0:
            return cls()
        return cls(prefix.count("/") + len(grid) - across, "/".join("0" * across))


class FolderTree:
    """Keys, separated by "/", as paths of files below a folder. A prefix is "" or ends with "/"."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)

    def identity(self, prefix: str) -> object:
        """What two prefixes have in common that lead to the same folder, by a link."""
        folder = os.stat(os.path.join(self.path, prefix))
        return folder.st_dev, folder.st_ino

    def children(self, prefix: str) -> tuple[list[str], list[str]]:
        """Names of the folders and of the objects directly below `prefix`, in natural order."""
        folders: list[str] = []
        files: list[str] = []
        with os.scandir(os.path.join(self.path, prefix)) as entries:
            for entry in entries:
                (folders if entry.is_dir() else files).append(entry.name)
        return sorted(folders, key=natural_key), sorted(files, key=natural_key)

    def read(self, key: str) -> bytes:
        """An object. Raises `OSError`, or `StoreError` where it lies in an archive."""
        with open(os.path.join(self.path, key), "rb") as stream:
            return stream.read()

    def objects(self, prefix: str, below: Below) -> Objects:
        """All objects below `prefix` that can be chunks: in folders named by numbers, or "c"."""
        root = os.path.abspath(os.path.join(self.path, prefix))
        keys: list[str] = []
        states: list[tuple[int, int]] = []
        for key, state in _files_below(root, below):
            keys.append(key)
            states.append((state.st_size, state.st_mtime_ns))
        count = len(keys)
        size, mtime_ns = np.ascontiguousarray(np.array(states, np.int64).reshape(count, 2).T)
        files = Files(root, keys, size, mtime_ns)
        return Objects(keys, files, np.arange(count, dtype=np.int32), np.zeros(count, np.int64), size)


def _files_below(root: str, below: Below) -> Iterator[tuple[str, os.stat_result]]:
    waiting = [("", 1)]
    while waiting:
        prefix, depth = waiting.pop()
        with os.scandir(f"{root}/{prefix}") as entries:
            for entry in entries:
                name = entry.name
                if not entry.is_dir():
                    if name[-1:].isdecimal():
                        yield prefix + name, entry.stat()
                elif name.isdecimal() and depth == below.depth:
                    key = f"{prefix}{name}/{below.tail}"
                    with suppress(FileNotFoundError, NotADirectoryError):  # a chunk that was never written
                        yield key, os.stat(f"{root}/{key}")
                elif name.isdecimal() or name == "c":
                    waiting.append((f"{prefix}{name}/", depth + 1))


class ZipTree:
    """The same, of the members of a zip archive."""

    def __init__(self, path: str, members: Mapping[str, Member]) -> None:
        self.path = os.path.abspath(path)
        self._members = members
        self._files = Files.of(path)
        self._folders: dict[str, dict[str, None]] = {"": {}}
        self._names: dict[str, list[str]] = {}
        for name in members:
            folder, _, base = name.rpartition("/")
            prefix = f"{folder}/" if folder else ""
            self._names.setdefault(prefix, []).append(base)
            while prefix:
                above, _, base = prefix[:-1].rpartition("/")
                above = f"{above}/" if above else ""
                self._folders.setdefault(above, {})[base] = None
                prefix = above

    def identity(self, prefix: str) -> object:
        return prefix

    def children(self, prefix: str) -> tuple[list[str], list[str]]:
        folders = sorted(self._folders.get(prefix, ()), key=natural_key)
        return folders, sorted(self._names.get(prefix, ()), key=natural_key)

    def read(self, key: str) -> bytes:
        return read_member(self.path, self._members[key])

    def objects(self, prefix: str, below: Below) -> Objects:
        members = [member for member in self._below(prefix) if member.filename[-1:].isdecimal()]
        packed = {compression(member) for member in members} - {"stored"}
        offsets = np.zeros(len(members), np.int64)
        if not packed:
            with open(self.path, "rb") as file:
                offsets[:] = [data_offset(file.fileno(), member, self.path) for member in members]
        sizes = np.array([member.compress_size for member in members], np.int64)
        if not packed and (offsets + sizes > self._files.size[0]).any():
            raise StoreError(f"{self.path}: the zip archive is truncated", file=self.path)
        return Objects(
            [member.filename[len(prefix) :] for member in members],
            self._files,
            np.zeros(len(members), np.int32),
            offsets,
            sizes,
            f"members of the zip archive are compressed ({', '.join(sorted(packed))})" if packed else "",
        )

    def _below(self, prefix: str) -> Iterator[Member]:
        waiting = [prefix]
        while waiting:
            at = waiting.pop()
            for name in self._names.get(at, ()):
                yield self._members[at + name]
            waiting.extend(
                f"{at}{name}/" for name in self._folders.get(at, ()) if name.isdecimal() or name == "c"
            )


Tree = FolderTree | ZipTree
