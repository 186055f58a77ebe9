"""What tells one conversion from another: its source files, options and plan."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from oocloader.conversion.store_plan import StorePlan
from oocloader.errors import ChangedError
from oocloader.local_files import FileState
from oocloader.stores import StoredArray

# Asking for the state of this many files takes a tenth of a millisecond: worth it for every piece.
_FEW = 64
# What a plan leaves to the machine at hand, and does not show in the new store, and what is said beside it.
_NOT_COMPARED = frozenset(("threads", "buffers", "codec"))


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """The files of a source as they were at the start, by their real paths."""

    states: Mapping[str, FileState]

    @classmethod
    def of(cls, arrays: Iterable[StoredArray]) -> SourceFiles | None:
        """The files that hold these arrays, `None` where one of them is in memory.

        Files that HDF5 reaches through links or virtual datasets are not among them.
        """
        states: dict[str, FileState] = {}
        for path in dict.fromkeys(path for array in arrays for path in (array.parts or (array.store,))):
            if not os.path.exists(path):
                return None
            states.update((file, FileState.of(file)) for file in _files_of(os.path.realpath(path)))
        return cls(states)

    @property
    def few(self) -> bool:
        """Whether looking at all of them costs next to nothing."""
        return len(self.states) <= _FEW

    def check(self) -> None:
        """Raise `ChangedError` where one of them is not what it was."""
        for path, before in self.states.items():
            try:
                now = FileState.of(path)
            except OSError:
                what = "was removed while it was converted; restore it"
            else:
                if now == before:
                    continue
                sizes = f"it had {before.nbytes} bytes, and {now.nbytes} now"
                change = sizes if now.nbytes != before.nbytes else "it was modified"
                what = f"changed while it was converted: {change}; convert it again"
            raise ChangedError(f"{path}: the file {what}", file=path) from None


def _files_of(path: str) -> Iterator[str]:
    if not os.path.isdir(path):
        yield path
        return
    for folder, folders, names in os.walk(path):
        folders.sort()
        yield from (os.path.join(folder, name) for name in sorted(names))


def identity_of(
    files: SourceFiles | None,
    sources: Mapping[str, StoredArray],
    plan: StorePlan,
    options: Mapping[str, object],
) -> dict[str, Any] | None:
    """All that makes the new store what it is, for JSON; `None` for what is in memory, which has no identity.

    `sources` are by their new names; `options` are the caller's, by name, those that show in the store.
    """
    if files is None:
        return None
    identity = {
        "options": options,
        "arrays": {name: array.info.name for name, array in sources.items()},
        "files": {path: (state.nbytes, state.mtime_ns) for path, state in files.states.items()},
        "plan": plan,
        "codec": str(plan.codec),
    }
    # As it will be read from the journal.
    plain: dict[str, Any] = json.loads(json.dumps(_plain(identity)))
    return plain


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


def digest(identity: Mapping[str, Any] | None) -> str:
    """A short text that is the same for the same conversion, "" for none.

    The codec is the one that was asked for: which one is best, where that is left open, is measured.
    """
    if identity is None:
        return ""
    compared = {name: value for name, value in identity.items() if name != "codec"}
    return hashlib.blake2b(json.dumps(compared, sort_keys=True).encode(), digest_size=16).hexdigest()


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The first thing in which two conversions differ, in words; "" where they are the same."""
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
