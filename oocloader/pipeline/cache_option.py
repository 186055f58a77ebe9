"""What `cache=` asks for, and which arrays it concerns."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from oocloader.errors import SettingError, StoreError
from oocloader.order import RowSet
from oocloader.paths import local_path
from oocloader.pipeline.cache_file import CacheFile, cache_file
from oocloader.pipeline.cached_reader import CachedReader
from oocloader.pipeline.origin import paths_of
from oocloader.pipeline.row_storage import FileStorage
from oocloader.reading import RowReader
from oocloader.stores import StoredArray


@dataclass(frozen=True, slots=True)
class CacheOption:
    """What `cache=` asks for: nothing, memory, or a folder."""

    folder: str | None = None
    in_memory: bool = False

    @classmethod
    def parse(cls, value: object) -> CacheOption:
        """Raises `SettingError` where it is neither None, "memory" nor a folder, `StoreError` for a URL."""
        if value is None:
            return cls()
        if isinstance(value, str) and value == "memory":
            return cls(in_memory=True)
        if not isinstance(value, str | os.PathLike) or not str(value):
            raise SettingError(f'cache={value!r} must be None, "memory" or a folder')
        remedy = "name a folder of this machine"
        folder = os.path.abspath(local_path(value, option="cache", remedy=remedy))
        if os.path.exists(folder) and not os.path.isdir(folder):
            raise SettingError(f"cache={value!r} is a file; name a folder")
        return cls(folder=folder)

    def plan(self, arrays: Sequence[StoredArray], rows: RowSet) -> CachePlan:
        """Where the rows of each array are held, of those that are not in memory anyway.

        Makes the folder. Raises `StoreError` where it cannot be made or has no room for what is not there.
        """
        if self.folder is None:
            cached = [self.in_memory and os.path.exists(paths_of(array)[0]) for array in arrays]
            return CachePlan(rows, tuple("memory" if wanted else None for wanted in cached))
        try:
            os.makedirs(self.folder, exist_ok=True)
            files = tuple(cache_file(self.folder, array, rows) for array in arrays)
            missing = sum(file.nbytes for file in files if file is not None and not file.is_complete())
            free = shutil.disk_usage(self.folder).free
        except OSError as error:
            if isinstance(error, StoreError):
                raise
            what = f"cache={self.folder!r} cannot be used: {error.strerror or error}"
            raise StoreError(what, file=self.folder) from error
        if missing > free:
            raise StoreError(
                f"cache={self.folder!r} has {free} bytes free, and the decoded rows take {missing}; make "
                "room or name another folder",
                file=self.folder,
            )
        return CachePlan(rows, files)


@dataclass(frozen=True, slots=True)
class CachePlan:
    """Where the `rows` of each array are held: in memory, in a file, or nowhere but in the store."""

    rows: RowSet
    places: tuple[Literal["memory"] | CacheFile | None, ...]

    def __bool__(self) -> bool:
        """Whether rows of any array are held."""
        return any(self.places)

    def memory_nbytes(self, readers: Sequence[RowReader]) -> int:
        """Memory that rows take when all are held."""
        in_memory = [reader for reader, place in zip(readers, self.places, strict=True) if place == "memory"]
        return sum(len(self.rows) * reader.row_nbytes for reader in in_memory)

    @property
    def file_nbytes(self) -> int:
        """What mapping all files takes."""
        return sum(place.nbytes for place in self.places if isinstance(place, CacheFile))

    def readers(self, readers: Sequence[RowReader], *, gather: bool) -> list[RowReader]:
        """`readers`, those of which rows are held within a `CachedReader`; for `gather` see `FileStorage`."""
        return [
            reader
            if place is None
            else CachedReader.in_memory(reader, self.rows)
            if place == "memory"
            else CachedReader(reader, self.rows, FileStorage(place, gather=gather))
            for reader, place in zip(readers, self.places, strict=True)
        ]
