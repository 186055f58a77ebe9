"""The journal of a conversion: what it makes of what, and which pieces of it are finished.

One line each, behind the line's CRC-32, so that a line that was cut off is known. A line is handed to the
system after the data it speaks of: a killed process loses neither. When the machine itself stops, the
disk may have the line and lack the data: whoever goes on under another boot reads the data back first.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oocloader.conversion.extents import pwrite_all

_VERSION = 1


@dataclass(frozen=True, slots=True)
class FinishedPiece:
    """A piece that is written: its chunks in order, where they were put and what they are.

    - `array`: its number in the plan; `piece`: the number of the piece.
    - `offsets`, `sizes`: bytes, of each chunk in its file.
    - `checksums`: CRC-32 of the rows of each chunk; `stored_checksums`: of its bytes in the file.
    """

    array: int
    piece: int
    offsets: Sequence[int]
    sizes: Sequence[int]
    checksums: Sequence[int]
    stored_checksums: Sequence[int]

    def packed(self) -> dict[str, Any]:
        """For JSON, short where chunks are alike: one size, and one offset where they lie in a row."""
        sizes, offsets = list(self.sizes), list(self.offsets)
        if len(set(sizes)) == 1:
            sizes = sizes[:1]
        if offsets == _in_a_row(offsets[0], self.sizes):
            offsets = offsets[:1]
        packed = {"a": self.array, "p": self.piece, "at": offsets, "n": sizes, "crc": list(self.checksums)}
        if list(self.stored_checksums) != packed["crc"]:
            packed["stored"] = list(self.stored_checksums)
        return packed

    @classmethod
    def unpacked(cls, packed: Mapping[str, Any]) -> FinishedPiece:
        checksums, offsets, sizes = packed["crc"], packed["at"], packed["n"]
        if len(sizes) == 1:
            sizes = sizes * len(checksums)
        if len(offsets) == 1:
            offsets = _in_a_row(offsets[0], sizes)
        return cls(packed["a"], packed["p"], offsets, sizes, checksums, packed.get("stored", checksums))


def _in_a_row(first: int, sizes: Sequence[int]) -> list[int]:
    return list(itertools.accumulate(sizes[:-1], initial=first))


@dataclass(frozen=True, slots=True)
class JournalContents:
    """What a journal says.

    - `job`: what is made of what; `rebooted`: whether the machine was started anew since it was begun.
    - `finished`: in order; `renaming`: whether all was done, and the store about to get its name.
    """

    job: dict[str, Any]
    rebooted: bool
    finished: tuple[FinishedPiece, ...]
    renaming: bool


class Journal:
    """The journal in the file `fd`, open for reading and writing, which it takes over. Thread-safe."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self._ends: list[int] = []

    def read(self, *, repair: bool = True) -> JournalContents | None:
        """What it says, `None` where nothing was begun.

        What was cut off does not count; `repair` drops it from the file, too.
        """
        size = os.fstat(self._fd).st_size
        parsed, end, renaming = [], 0, False
        for line in os.pread(self._fd, size, 0).splitlines(keepends=True):
            entry = _parsed(line)
            renaming = entry is not None and "renaming" in entry
            if entry is None or renaming:
                break
            end += len(line)
            parsed.append(entry)
            self._ends.append(end)
        if repair and end < size:
            os.ftruncate(self._fd, end)
        if not parsed or parsed[0].get("journal") != _VERSION:
            return None
        rebooted = not parsed[0]["boot"] or parsed[0]["boot"] != _boot()
        finished = tuple(FinishedPiece.unpacked(line) for line in parsed[1:])
        return JournalContents(parsed[0]["job"], rebooted, finished, renaming)

    def begin(self, job: Mapping[str, Any]) -> None:
        """Start anew."""
        os.ftruncate(self._fd, 0)
        self._ends = []
        self._ends = [self._append({"journal": _VERSION, "boot": _boot(), "job": job})]

    def forget_after(self, count: int) -> None:
        """Forget what was finished after the first `count` pieces."""
        del self._ends[1 + count :]
        os.ftruncate(self._fd, self._ends[-1])

    def add(self, finished: FinishedPiece) -> None:
        """Say that a piece is finished, after its data were handed to the system."""
        self._ends.append(self._append(finished.packed()))

    def record_renaming(self) -> None:
        """Say that the store is complete and gets its name now."""
        self._append({"renaming": True})

    @property
    def pieces(self) -> int:
        """Pieces that are finished."""
        return max(0, len(self._ends) - 1)

    def _append(self, what: Mapping[str, Any]) -> int:
        """Write a line behind those that count; where it ends."""
        text = json.dumps(what, separators=(",", ":")).encode()
        line = memoryview(b"%08x %s\n" % (zlib.crc32(text), text))
        with self._lock:
            return pwrite_all(self._fd, line, self._ends[-1] if self._ends else 0)

    def close(self) -> None:
        """Close the file, and so let go of its lock. A thread left behind can add nothing any more."""
        with self._lock:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)


def _parsed(line: bytes) -> dict[str, Any] | None:
    """What a line says, `None` where it is not whole."""
    head, _, text = line.rstrip(b"\n").partition(b" ")
    if not line.endswith(b"\n") or head != b"%08x" % zlib.crc32(text):
        return None
    entry: dict[str, Any] = json.loads(text)
    return entry


def _boot() -> str:
    """What is the same until the machine is started anew, and on no other machine; "" where unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""
