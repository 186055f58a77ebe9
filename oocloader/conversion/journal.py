"""The journal of a conversion: what it makes of what, and which pieces of it are finished.

One line each, behind the line's CRC-32, so that a line that was cut off is known. A line is handed to the
system after the data it speaks of: a killed process loses neither. When the machine itself stops, the
disk may have the line and lack the data: whoever goes on under another boot reads the data back first.
"""

from __future__ import annotations

import json
import os
import threading
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Finished:
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
        packed: dict[str, Any] = {"a": self.array, "p": self.piece, "at": offsets, "n": sizes}
        packed["crc"] = list(self.checksums)
        if list(self.stored_checksums) != packed["crc"]:
            packed["stored"] = list(self.stored_checksums)
        return packed

    @classmethod
    def unpacked(cls, found: Mapping[str, Any]) -> Finished:
        checksums = found["crc"]
        sizes = found["n"] * len(checksums) if len(found["n"]) == 1 else found["n"]
        offsets = _in_a_row(found["at"][0], sizes) if len(found["at"]) == 1 else found["at"]
        return cls(found["a"], found["p"], offsets, sizes, checksums, found.get("stored", checksums))


def _in_a_row(first: int, sizes: Sequence[int]) -> list[int]:
    offsets = [first]
    for size in sizes[:-1]:
        offsets.append(offsets[-1] + size)
    return offsets


@dataclass(frozen=True, slots=True)
class Begun:
    """What a journal says.

    - `job`: what is made of what; `rebooted`: whether the machine was started anew since it was begun.
    - `finished`: in order; `renaming`: whether all was done, and the store about to get its name.
    """

    job: dict[str, Any]
    rebooted: bool
    finished: tuple[Finished, ...]
    renaming: bool


class Journal:
    """The journal in the file `fd`, open for reading and writing, which it takes over. Thread-safe."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self._ends: list[int] = []

    def read(self, *, repair: bool = True) -> Begun | None:
        """What it says, `None` where nothing was begun.

        What was cut off does not count; `repair` drops it from the file, too.
        """
        size = os.fstat(self._fd).st_size
        lines = os.pread(self._fd, size, 0).splitlines(keepends=True)
        parsed, end, renaming = [], 0, False
        for line in lines:
            found = _parsed(line)
            renaming = found is not None and "renaming" in found
            if found is None or renaming:
                break
            end += len(line)
            parsed.append(found)
            self._ends.append(end)
        if repair and end < size:
            self._cut(end)
        if not parsed or parsed[0].get("journal") != _VERSION:
            return None
        boot = parsed[0]["boot"]
        return Begun(
            parsed[0]["job"],
            not boot or boot != _boot(),
            tuple(Finished.unpacked(found) for found in parsed[1:]),
            renaming,
        )

    def begin(self, job: Mapping[str, Any]) -> None:
        """Start anew."""
        self._cut(0)
        self._ends = []
        self._ends = [self._append({"journal": _VERSION, "boot": _boot(), "job": job})]

    def keep(self, count: int) -> None:
        """Forget what was finished after the first `count` pieces."""
        del self._ends[1 + count :]
        self._cut(self._ends[-1])

    def add(self, finished: Finished) -> None:
        """Say that a piece is finished, after its data were handed to the system."""
        self._ends.append(self._append(finished.packed()))

    def rename(self) -> None:
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
        at = self._ends[-1] if self._ends else 0
        end = at + len(line)
        with self._lock:
            while line:
                written = os.pwrite(self._fd, line, at)
                line, at = line[written:], at + written
        return end

    def close(self) -> None:
        """Close the file, and so let go of its lock. A thread left behind can add nothing any more."""
        with self._lock:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)

    def _cut(self, size: int) -> None:
        os.ftruncate(self._fd, size)


def _parsed(line: bytes) -> dict[str, Any] | None:
    """What a line says, `None` where it is not whole."""
    head, _, text = line.rstrip(b"\n").partition(b" ")
    if not line.endswith(b"\n") or head != b"%08x" % zlib.crc32(text):
        return None
    found: dict[str, Any] = json.loads(text)
    return found


def _boot() -> str:
    """What is the same until the machine is started anew, and on no other machine; "" where unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""
