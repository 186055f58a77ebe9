"""Where a new store goes: its path, its format, and what is said where it cannot be written."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

from oocloader.conversion.encode import Format
from oocloader.errors import OocloaderError, SettingError, StoreError
from oocloader.paths import local_path
from oocloader.sizes import nbytes_text

_SUFFIXES: dict[str, Format] = {".zarr": "zarr", ".h5": "hdf5", ".hdf5": "hdf5"}
_NO_SPACE = {
    errno.ENOSPC: "no space left on the disk",
    errno.EDQUOT: "no space left within the disk quota",
    errno.EFBIG: "no space: the file would outgrow the limit for files (ulimit -f, or the file system's)",
}


@dataclass(frozen=True, slots=True)
class Destination:
    """A local path as it was given, the same with symbolic links followed, and the format that it names."""

    path: str
    real: str
    store_format: Format

    @classmethod
    def parsed(cls, destination: str | os.PathLike[str]) -> Destination:
        """Raises `SettingError` where it is no path, not on this machine, or of no known ending."""
        try:
            path = os.fspath(destination)
        except TypeError:
            path = ""
        if not path:
            raise SettingError(f"destination: expected a path, got {destination!r}")
        local = local_path(path, remedy="write the store to this machine and copy it there")
        path = local.rstrip(os.sep) or os.sep
        suffix = os.path.splitext(path)[1].lower()
        if suffix not in _SUFFIXES:
            what = f"the ending says which format to write, .zarr, .h5 or .hdf5; got {suffix or 'none'!r}"
            raise SettingError(f"{path}: {what}", file=path)
        return cls(path, os.path.realpath(path), _SUFFIXES[suffix])

    @property
    def folder(self) -> str:
        return os.path.dirname(self.real)

    def check(self, *, overwrite: bool, needed_nbytes: int) -> None:
        """Whether a store can be written there.

        Raises `StoreError` where it exists and may not be replaced, its folder is missing or cannot be
        written to, or has no room for `needed_nbytes`.
        """
        problem = self._problem(overwrite, needed_nbytes)
        if problem:
            raise StoreError(f"{self.path}: {problem}", file=self.path)

    def _problem(self, overwrite: bool, needed_nbytes: int) -> str:
        folder = self.folder
        if not os.path.isdir(folder):
            return f"its folder {folder} does not exist; create it first"
        exists = os.path.lexists(self.real)
        if exists and not overwrite:
            return (
                "exists already and was left as it is; choose another name, or replace it with"
                " overwrite=True (--overwrite)"
            )
        if exists and os.path.isdir(self.real) and not _is_store(self.real):
            return (
                "is a folder that is no Zarr store, so it is not overwritten; remove it yourself or choose"
                " another name"
            )
        if not os.access(folder, os.W_OK | os.X_OK):
            return f"the folder {folder} cannot be written to: no permission"
        total, _, free = shutil.disk_usage(folder)
        # What has no size at all is no disk, and says so itself when it is written to.
        if free < needed_nbytes and total > 0:
            return (
                f"no space: the store needs {nbytes_text(needed_nbytes)}, but {nbytes_text(free)} are free in"
                f" {folder}; free some, choose another folder or a codec"
            )
        return ""

    @contextlib.contextmanager
    def explained(self, nbytes: int) -> Iterator[None]:
        """Turn what the system or a library says about writing `nbytes` of rows into one line of an error."""
        try:
            yield
        except OocloaderError:
            raise
        except (OSError, RuntimeError) as error:
            reason = _NO_SPACE.get(error.errno or 0) if isinstance(error, OSError) else None
            if reason is not None:
                what = f"{reason}; {nbytes_text(nbytes)} of rows were to be written"
                what += "; free some or choose another disk"
            else:
                said = getattr(error, "strerror", None) or str(error) or type(error).__name__
                what = f"cannot be written: {said.splitlines()[0]}"
            raise StoreError(f"{self.path}: {what}", file=self.path) from error


def _is_store(folder: str) -> bool:
    """Whether a folder is a Zarr store, a group without metadata of its own included, or empty."""
    metadata = ("zarr.json", ".zarray", ".zgroup")
    children = os.listdir(folder)
    inside = [f"{child}/{name}" for child in children for name in metadata]
    return not children or any(os.path.exists(os.path.join(folder, name)) for name in (*metadata, *inside))
