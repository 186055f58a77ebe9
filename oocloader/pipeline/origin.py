"""What the rows of an array are made of, as text: another text where they may have changed."""

import hashlib
import json
import os

from oocloader.local_files import FileState
from oocloader.reading import ChunkReader, JoinedReader, LibraryReader, RowReader
from oocloader.stores import StoredArray


def origin_of(array: StoredArray) -> str | None:
    """What the rows of an array are made of, as text that changes when they may have; None in memory.

    Paths, sizes and times of change of every file, and where in them the array is.
    """
    states = [_state(path) for path in paths_of(array)]
    return json.dumps([states, _read_by(array.reader)]) if all(states) else None


def paths_of(array: StoredArray) -> tuple[str, ...]:
    """Where an array, or each part of it, lies; no path where it is in memory."""
    return tuple(array.parts) or (array.store,)


def _state(path: str) -> list[str | int] | None:
    """Path, bytes and time of change of a file; of a folder, of all files in it."""
    path = os.path.realpath(path)
    try:
        state = FileState.of(path)
    except OSError:
        return None
    if not os.path.isdir(path):
        return [path, state.nbytes, state.mtime_ns]
    digest = hashlib.sha256()
    total = 0
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            file = os.path.join(folder, name)
            state = FileState.of(file)
            total += state.nbytes
            digest.update(f"{file}\0{state.nbytes}\0{state.mtime_ns}\0".encode(errors="surrogateescape"))
    return [path, total, digest.hexdigest()]


def _read_by(reader: RowReader) -> object:
    """Which array of its files a reader reads, and how."""
    if isinstance(reader, JoinedReader):
        return [_read_by(part) for _, part in reader.parts]
    if isinstance(reader, ChunkReader):
        layout = reader.layout
        places = hashlib.sha256(layout.offset.tobytes() + layout.stored.tobytes())
        return [layout.array, repr(layout.chunk_shape), repr(layout.axes), places.hexdigest()]
    return [type(reader).__name__, reader.array if isinstance(reader, LibraryReader) else ""]


def name_in_store(reader: RowReader) -> object:
    """The name of the array in its own store."""
    if isinstance(reader, JoinedReader):
        return [name_in_store(part) for _, part in reader.parts]
    if isinstance(reader, ChunkReader):
        return reader.layout.array
    return reader.array if isinstance(reader, LibraryReader) else ""
