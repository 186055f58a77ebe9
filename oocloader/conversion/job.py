"""What a conversion is: its source files, options and plan, so that another can be told from it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from oocloader.conversion.store_plan import Plan
from oocloader.errors import ChangedError
from oocloader.stores import StoredArray

# Asking for the state of this many files takes a tenth of a millisecond: worth it for every piece.
_FEW = 64
# What a plan leaves to the machine at hand, and does not show in the new store, and what is told beside it.
_NOT_COMPARED = frozenset(("threads", "buffers", "codec"))


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """The files of a source as they were at the start: real path -> (bytes, modified at, nanoseconds)."""

    files: Mapping[str, tuple[int, int]]

    @classmethod
    def of(cls, arrays: Iterable[StoredArray]) -> SourceFiles | None:
        """The files that hold these arrays, `None` where one of them is in memory.

        Files that HDF5 reaches through links or virtual datasets are not among them.
        """
        paths = dict.fromkeys(path for array in arrays for path in (array.parts or (array.store,)))
        files: dict[str, tuple[int, int]] = {}
        for path in paths:
            if not os.path.exists(path):
                return None
            files.update((file, _state(file)) for file in _files_of(os.path.realpath(path)))
        return cls(files)

    @property
    def few(self) -> bool:
        """Whether looking at all of them costs next to nothing."""
        return len(self.files) <= _FEW

    def check(self) -> None:
        """Raise `ChangedError` where one of them is not what it was."""
        for path, before in self.files.items():
            try:
                now = _state(path)
            except OSError:
                raise ChangedError(
                    f"{path}: the file was removed while it was converted; restore it", file=path
                ) from None
            if now != before:
                what = (
                    f"it had {before[0]} bytes, and {now[0]} now"
                    if now[0] != before[0]
                    else "it was modified"
                )
                raise ChangedError(
                    f"{path}: the file changed while it was converted: {what}; convert it again",
                    file=path,
                )


def _files_of(path: str) -> Iterator[str]:
    if not os.path.isdir(path):
        yield path
        return
    for folder, folders, names in os.walk(path):
        folders.sort()
        yield from (os.path.join(folder, name) for name in sorted(names))


def _state(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns


def job_of(
    files: SourceFiles | None, sources: Mapping[str, StoredArray], plan: Plan, options: Mapping[str, Any]
) -> dict[str, Any] | None:
    """All that makes the new store what it is, for JSON; `None` for what is in memory, which has no identity.

    `sources` are by their new names; `options` are the caller's, by name, those that show in the store.
    """
    if files is None:
        return None
    job = {
        "options": options,
        "arrays": {name: array.info.name for name, array in sources.items()},
        "files": files.files,
        "plan": plan,
        "codec": str(plan.codec),
    }
    # As it will be read from the journal.
    found: dict[str, Any] = json.loads(json.dumps(_plain(job)))
    return found


def _plain(value: Any) -> Any:
    """For JSON, in full."""
    if is_dataclass(value):
        named = {one.name: getattr(value, one.name) for one in fields(value) if one.name not in _NOT_COMPARED}
        return _plain(named)
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, np.ndarray | np.generic):
        return [str(value.dtype), value.tobytes().hex()]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def digest(job: Mapping[str, Any] | None) -> str:
    """A short text that is the same for the same job, "" for none.

    The codec is the one that was asked for: which one is best, where that is left open, is measured.
    """
    if job is None:
        return ""
    job = {name: value for name, value in job.items() if name != "codec"}
    return hashlib.blake2b(json.dumps(job, sort_keys=True).encode(), digest_size=16).hexdigest()


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The first thing in which two jobs differ, in words; "" where they are the same."""
    if not before:
        return "it was of arrays in memory"
    for name in dict.fromkeys((*before["options"], *now["options"])):
        old, new = before["options"].get(name), now["options"].get(name)
        if old != new:
            return f"{name} was {old!r} and is {new!r} now"
    for path in dict.fromkeys((*before["files"], *now["files"])):
        old, new = before["files"].get(path), now["files"].get(path)
        if old is None or new is None:
            return f"{path} was {'not ' if old is None else ''}part of the source"
        if old[0] != new[0]:
            return f"the source {path} had {old[0]} bytes and has {new[0]} now"
        if old[1] != new[1]:
            return f"the source {path} was modified since"
    if before["arrays"] != now["arrays"]:
        return f"the arrays were {before['arrays']} and are {now['arrays']} now"
    if before["codec"] != now["codec"]:
        return f"the codec was {before['codec']!r} and is {now['codec']!r} now"
    if before["plan"] != now["plan"]:
        return "chunks or pieces are cut otherwise (by another version of oocloader, or with other memory)"
    return ""
