"""Arrays written as files of chunks, with their layout, and a codec that records what it decodes."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Collection
from pathlib import Path

import numpy as np

from oocloader.codecs.chain import Chain, CodecError, Step
from oocloader.reading.layout import Files, Layout


class Flip(Step):
    """Every byte inverted. Counts the chunks it decodes by their first stored byte on, and the threads.

    `damaged`: stored chunks (as bytes) that are refused.
    """

    name = "flip"

    def __init__(self) -> None:
        self.decoded: list[bytes] = []
        self.threads: set[int] = set()
        self.damaged: set[bytes] = set()
        self._lock = threading.Lock()

    def decode(self, stored: np.ndarray, out: np.ndarray) -> np.ndarray:
        taken = stored.tobytes()
        with self._lock:
            self.decoded.append(taken)
            self.threads.add(threading.get_ident())
        if taken in self.damaged:
            raise CodecError("flip: not what it was")
        if stored.size > out.size:
            raise CodecError("flip: more than fits")
        np.invert(stored, out=out[: stored.size])
        return out[: stored.size]


def write_layout(
    folder: Path,
    array: np.ndarray,
    chunk_shape: tuple[int, ...] | None = None,
    *,
    step: Step | None = None,
    skipped: Collection[int] = (),
    missing: Collection[int] = (),
    fill: float = 0,
    axes: tuple[int, ...] | None = None,
    file_each: bool = False,
    gap: int = 0,
    lead: int = 0,
    backwards: bool = False,
) -> Layout:
    """Writes `array` in chunks (None: one run of bytes) and returns the layout.

    - `step`: the codec, a `Flip`, which the chunks `skipped` do without
    - `missing`: chunks that are not stored and read as `fill`
    - `axes`: chunks are stored transposed
    - `file_each`: every chunk in a file of its own; else `gap` bytes between them, `lead` before
    - `backwards`: the last chunk comes first in the file
    """
    chunk_shape = chunk_shape or array.shape
    chain = Chain() if step is None else Chain((step,), (3,), (step.name,))
    grid = tuple(-(-n // c) for n, c in zip(array.shape, chunk_shape, strict=True))
    count = int(np.prod(grid))
    file, offset = np.full(count, -1, np.int32), np.zeros(count, np.int64)
    stored, mask = np.zeros(count, np.int64), np.zeros(count, np.uint32)
    folder.mkdir(parents=True, exist_ok=True)
    names: list[str] = []
    data = bytearray(b"\xaa" * lead)
    corners = list(enumerate(itertools.product(*map(range, grid))))
    for chunk, corner in reversed(corners) if backwards else corners:
        if chunk in missing:
            continue
        begin = [at * n for at, n in zip(corner, chunk_shape, strict=True)]
        inside = array[tuple(slice(at, at + n) for at, n in zip(begin, chunk_shape, strict=True))]
        whole = np.full(chunk_shape, fill, array.dtype)
        whole[tuple(map(slice, inside.shape))] = inside
        decoded = np.ascontiguousarray(whole if axes is None else whole.transpose(axes)).view(np.uint8)
        mask[chunk] = 8 if chunk in skipped else 0
        stored_bytes = (decoded if step is None or chunk in skipped else ~decoded).tobytes()
        if file_each:
            names.append(f"c{chunk}")
            (folder / names[-1]).write_bytes(stored_bytes)
            file[chunk], offset[chunk] = len(names) - 1, 0
        else:
            file[chunk], offset[chunk] = 0, len(data)
            data += stored_bytes + b"\xaa" * gap
        stored[chunk] = len(stored_bytes)
    if not file_each:
        names = ["data.bin"]
        (folder / names[0]).write_bytes(data)
    return Layout(
        array="x",
        shape=array.shape,
        dtype=array.dtype,
        chunk_shape=chunk_shape,
        files=files_of(folder, names),
        file=file,
        offset=offset,
        stored=stored,
        mask=mask,
        chain=chain,
        axes=axes,
        fill=np.array(fill, array.dtype),
    )


def files_of(folder: Path, names: list[str]) -> Files:
    """The files of `folder` as they are now."""
    found = [os.stat(folder / name) for name in names]
    size, mtime_ns = [one.st_size for one in found], [one.st_mtime_ns for one in found]
    return Files(str(folder), tuple(names), np.array(size, np.int64), np.array(mtime_ns, np.int64))


def open_files() -> list[str]:
    """What the descriptors of this process stand for."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:
            pass  # the one that lists them
    return found
